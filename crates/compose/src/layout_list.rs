//! Layout lists: of an older image, all that a build needs to be like it.
//!
//! A list has the metadata of a volume, and digests of the contents of its files. From it the image
//! is made that the older image itself gives, byte for byte, except where freed blocks keep their
//! bytes.
//!
//! | part | contents |
//! |---|---|
//! | header | mark, versions of the list and of the program, format and length of the volume, lengths of the parts |
//! | sums | a checksum of each piece of 64K of the payload; one of the header and of the sums is in the header |
//! | payload, packed by zstd | runs, metadata and digests |
//!
//! The runs are the ranges of the volume that the list has. Each run is two numbers in LEB128: the
//! sectors between it and the run before, and its length, doubled, plus one if all its bytes are
//! zeros. A build opens the older volume, checks it for damage, and reads its shape, its tree and
//! the maps of all files: the list has all sectors that these steps read, and besides superblocks,
//! descriptors, their copies, and all blocks of directories. A read of any other sector is an error
//! ([`Lacking`](seekless_device::DeviceError::Lacking)), never zeros.
//!
//! Contents are compared by their digests: whole files with files of other paths, and blocks of
//! those that have grown. Blocks smaller than those of the digests cannot be compared, which is an
//! error where it matters.

mod decode;
mod digesting;
mod digests;
mod encode;
mod error;
mod make;
mod number;
mod ondisk;
mod parse;
mod parts;
mod runs;
#[cfg(test)]
mod tests;

pub use error::ListError;
pub use make::{ListRequest, MadeList};
pub use parse::LayoutList;
pub use parts::ListParts;

pub(crate) use digesting::of_contents;
pub(crate) use digests::{ContentDigests, FileDigest, ListedFile, of_block};

use seekless_images::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a list; `None` if the file is none.
///
/// # Errors
/// [`ListError`]; errors of the file. A file that cannot be opened is none.
pub(crate) fn read(path: &Path) -> Result<Option<LayoutList>, Error> {
    let about = |error| Error::io(path.display(), &error);
    // To open a pipe is to wait for its writer. Other files are opened as images next.
    if !path.metadata().is_ok_and(|it| it.is_file()) {
        return Ok(None);
    }
    // It is opened as an image next, which fails with the same error.
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let mut list = Vec::new();
    let first = file.by_ref().take(ondisk::MAGIC.len() as u64).read_to_end(&mut list);
    if first.is_err() || !LayoutList::is_list(&list) {
        return Ok(None);
    }
    file.read_to_end(&mut list).map_err(about)?;
    LayoutList::parse(&list).map(Some).map_err(|error| Error::from(error).about(path.display()))
}
