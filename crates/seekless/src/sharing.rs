//! The chunks that images share.

use crate::Error;
use seekless_compose::sharing::Comparison;
use seekless_fs::format::OpenOptions;
use seekless_images::Place;
use seekless_layout::chunks::Unit;
use seekless_units::ByteLen;
use serde::Serialize;
use std::path::Path;

/// The chunks of an image among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Chunks {
    /// Different chunks of the image that are not all zeros.
    pub chunks: u64,
    /// Those that none of the images before it has.
    pub new: u64,
    /// Bytes of the new ones.
    pub new_bytes: u64,
}

/// The aligned chunks of `size` bytes, a multiple of 4096, that each of several images has and
/// those before it lack, wherever they lie there. Lazily loaded volumes store and fetch equal
/// chunks once.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind) for another size,
/// [`ErrorKind::Unsupported`](crate::ErrorKind) where the last is no image of a known format or one
/// is larger than 16 TiB, [`ErrorKind::Corrupt`](crate::ErrorKind) for a damaged one.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let work = tempfile::tempdir()?;
/// # let tree = work.path().join("tree");
/// # let (old, new) = (work.path().join("old.img"), work.path().join("new.img"));
/// # std::fs::create_dir(&tree)?;
/// # std::fs::write(tree.join("file"), "text")?;
/// seekless::Build::of([&tree]).write(&old)?;
/// std::fs::copy(&old, &new)?;
/// let images = seekless::sharing(&[&old, &new], 512 << 10)?;
/// assert_eq!(images[1].new, 0);
/// # Ok(())
/// # }
/// ```
pub fn sharing<P: AsRef<Path>>(images: &[P], size: u64) -> Result<Vec<Chunks>, Error> {
    let paths: Vec<_> = images.iter().map(|path| path.as_ref().to_path_buf()).collect();
    let comparison = Comparison {
        images: &paths,
        place: &Place::default(),
        open: OpenOptions::default(),
        sizes: &[ByteLen::new(size)],
        trace: None,
    };
    let wanted = Unit::Aligned(ByteLen::new(size));
    let units = comparison.run()?.units;
    let counted = units.into_iter().find(|counted| counted.unit == wanted);
    let chunks = counted.into_iter().flat_map(|counted| counted.images).map(|image| Chunks {
        chunks: image.all.chunks,
        new: image.new.chunks,
        new_bytes: image.new.bytes,
    });
    Ok(chunks.collect())
}
