//! The chunks that images share, and those that a program must fetch though others are cached.

use seekless_device::BlockDevice;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Inspect};
use seekless_images::{Error, ErrorKind, Place};
use seekless_layout::chunks::{
    self, BLOCK, Chunked, Codec, Fetched, Kinds, Sharing, StoreError, Stored, Unit, matrix,
    successive, touched,
};
use seekless_layout::fit::Fit;
use seekless_layout::replay::{Machine, Request, replay};
use seekless_layout::trace::Events;
use seekless_layout::usage;
use seekless_units::{BlockNo, ByteLen, format_size};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Length of the largest images that are compared: all their bytes are read, also of holes.
const LARGEST: ByteLen = ByteLen::new(16 << 40);

/// The images to compare, and the chunks to count.
pub struct Comparison<'a> {
    /// Two images or more.
    pub images: &'a [PathBuf],
    /// Where in each the file system is.
    pub place: &'a Place,
    /// How they are opened.
    pub open: OpenOptions,
    /// Sizes of aligned chunks, each a multiple of [`BLOCK`].
    pub sizes: &'a [ByteLen],
    /// Accesses to the last image, and the machine that makes them.
    pub trace: Option<(&'a Events, Machine)>,
}

/// The chunks of one kind.
pub struct UnitShared {
    /// The kind.
    pub unit: Unit,
    /// The chunks of each image; new are those that none of the images before it has.
    pub images: Vec<Sharing>,
    /// How many chunks of each image (row) each image (column) has.
    pub matrix: Vec<Vec<u64>>,
}

/// The chunks of one size of the last image.
pub struct LastShared {
    /// The new ones, by the use of their bytes.
    pub kinds: Kinds,
    /// Its chunks that are not all zeros: their bytes, and whether they are new.
    pub runs: Vec<(Range<u64>, bool)>,
    /// Those that the trace reads; missing are those that no image before has.
    pub fetched: Option<Fetched>,
}

/// The chunks that images share.
pub struct Compared {
    /// Lengths of the images, in bytes.
    pub lens: Vec<ByteLen>,
    /// Blocks of [`BLOCK`] bytes, chunks of each size, and content-defined ones.
    pub units: Vec<UnitShared>,
    /// The last image, by the size of chunks.
    pub last: BTreeMap<ByteLen, LastShared>,
    /// Whether the trace belongs to the last image.
    pub fit: Option<Fit>,
    /// Paths of the trace that the last image lacks.
    pub missing: Vec<Vec<u8>>,
}

impl Comparison<'_> {
    /// Reads all images.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a size that is no multiple of [`BLOCK`], [`ErrorKind::Corrupt`] and
    /// [`ErrorKind::Unsupported`] where the last image cannot be read, or an image is too large,
    /// [`ErrorKind::System`].
    pub fn run(&self) -> Result<Compared, Error> {
        let Some(last_path) = self.images.last() else {
            return Err(Error::usage("no images to compare"));
        };
        let sizes: Vec<ByteLen> = self.sizes.to_vec();
        let aligned: Result<Vec<Unit>, Error> = sizes.iter().map(|&size| unit(size)).collect();
        let mut units = vec![Unit::Aligned(BLOCK)];
        units.extend(aligned?.into_iter().filter(|&unit| unit != Unit::Aligned(BLOCK)));
        units.push(Unit::ContentDefined);

        let image = seekless_images::open(last_path, self.place, self.open)?;
        let about = |error: FsError| Error::from(error).about(last_path.display());
        let replayed = self
            .trace
            .map(|(events, machine)| replay(image.as_ref(), events, machine))
            .transpose()
            .map_err(about)?;
        let requests = replayed.as_ref().map(|it| in_bytes(&it.requests, image.as_ref()));
        let images = read_all(self.images, self.place)?;
        let (last, before) = images.split_last().expect("there is a last path");
        let blocks = stored(before, Unit::Aligned(BLOCK));
        let uses = usage::classify(image.as_ref()).map_err(about)?;
        let (whole, block_size) = (usage::whole(image.as_ref()), image.geometry().block_size);
        let mut by_size = BTreeMap::new();
        for size in sizes {
            let chunks = stored(before, Unit::Aligned(size));
            let uses = (uses.clone(), whole);
            let of_size = LastShared {
                kinds: Kinds::of(last, size, (&chunks, &blocks), uses, block_size),
                runs: last.new_runs(Unit::Aligned(size), &chunks),
                fetched: requests.as_ref().map(|requests| last.fetched(size, requests, &chunks)),
            };
            by_size.insert(size, of_size);
        }
        let shared = |unit| UnitShared {
            unit,
            images: successive(&images, unit),
            matrix: matrix(&images, unit),
        };
        Ok(Compared {
            lens: images.iter().map(Chunked::len).collect(),
            units: units.into_iter().map(shared).collect(),
            last: by_size,
            fit: self.trace.zip(replayed.as_ref()).map(|((events, _), it)| Fit::new(events, it)),
            missing: replayed.map_or_else(Vec::new, |replayed| replayed.missing),
        })
    }
}

/// Images of which the chunks are in a cache.
pub struct Cache {
    images: Vec<Chunked>,
    /// The sizes of chunks, each with its kind.
    sizes: Vec<(ByteLen, Unit)>,
}

impl Cache {
    /// Reads images. Their file systems are in the same place.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a size that is no multiple of [`BLOCK`],
    /// [`ErrorKind::Unsupported`] for an image that is too large, [`ErrorKind::System`].
    pub fn read(images: &[PathBuf], sizes: &[ByteLen], place: &Place) -> Result<Self, Error> {
        let sizes = sizes.iter().map(|&size| Ok((size, unit(size)?)));
        let sizes = sizes.collect::<Result<_, Error>>()?;
        Ok(Self { images: read_all(images, place)?, sizes })
    }

    /// The chunks that requests to an image read, for each size, with those that are not cached.
    ///
    /// # Errors
    /// As [`Cache::read`].
    pub fn fetched(
        &self,
        image: (&Path, &dyn Inspect),
        requests: &[Request],
        place: &Place,
    ) -> Result<BTreeMap<ByteLen, Fetched>, Error> {
        let (path, inspect) = image;
        let chunked = read(path, place)?;
        let requests = in_bytes(requests, inspect);
        let of = |&(size, unit): &(ByteLen, Unit)| {
            (size, chunked.fetched(size, &requests, &stored(&self.images, unit)))
        };
        Ok(self.sizes.iter().map(of).collect())
    }
}

/// The bytes that a store sends for the chunks of each size that requests to an image read. If
/// chunks are cached, `fetched` has those ([`Cache::fetched`]), and the sizes are its own; else
/// a chunk is sent for each place in the image, whether others equal it or not. A chunk of zeros
/// costs nothing ([`Codec::stored_bytes`]). The first chunk begins with the file system.
///
/// # Errors
/// [`ErrorKind::Usage`] and [`ErrorKind::Corrupt`] as in [`seekless_images::device`],
/// [`ErrorKind::System`].
pub fn stored_bytes(
    image: (&Path, &dyn Inspect),
    requests: &[Request],
    place: &Place,
    (sizes, fetched): (&[ByteLen], Option<&BTreeMap<ByteLen, Fetched>>),
    codec: Codec,
) -> Result<BTreeMap<ByteLen, u64>, Error> {
    let (path, inspect) = image;
    match fetched {
        Some(fetched) => {
            let device = seekless_images::device_in_use(path, place)?;
            let bytes = |it: &Fetched| in_store(codec, (path, device.as_ref()), &it.missing);
            fetched.iter().map(|(&size, it)| Ok((size, bytes(it)?))).collect()
        }
        None => stored_bytes_of(path, place, &in_bytes(requests, inspect), sizes, codec),
    }
}

/// As [`stored_bytes`] without cached chunks, for requests that are ranges of bytes of the file
/// system.
///
/// # Errors
/// As [`stored_bytes`].
pub fn stored_bytes_of(
    path: &Path,
    place: &Place,
    requests: &[Range<u64>],
    sizes: &[ByteLen],
    codec: Codec,
) -> Result<BTreeMap<ByteLen, u64>, Error> {
    // The image was opened, and a device in use warned of, for the requests.
    let device = seekless_images::device_in_use(path, place)?;
    let of_size = |&size: &ByteLen| {
        let chunks = touched(size, requests, device.len());
        Ok((size, in_store(codec, (path, device.as_ref()), &chunks)?))
    };
    sizes.iter().map(of_size).collect()
}

/// The bytes that a store sends for these chunks.
fn in_store(
    codec: Codec,
    (path, device): (&Path, &dyn BlockDevice),
    chunks: &[Range<u64>],
) -> Result<u64, Error> {
    codec.stored_bytes(device, chunks).map_err(|error| match error {
        StoreError::Device(error) => Error::from(FsError::from(error)).about(path.display()),
        StoreError::Compress(_) => Error::new(ErrorKind::System, error.to_string()),
    })
}

fn unit(size: ByteLen) -> Result<Unit, Error> {
    chunks::Unit::aligned(size).map_err(Error::usage)
}

fn read(path: &Path, place: &Place) -> Result<Chunked, Error> {
    let device = seekless_images::device(path, place)?;
    if device.len() > LARGEST {
        let what = format!("images of more than {} are not compared", format_size(LARGEST));
        return Err(Error::new(ErrorKind::Unsupported, what).about(path.display()));
    }
    let chunked = Chunked::read(device.as_ref());
    chunked.map_err(|error| Error::from(FsError::from(error)).about(path.display()))
}

fn read_all(paths: &[PathBuf], place: &Place) -> Result<Vec<Chunked>, Error> {
    paths.iter().map(|path| read(path, place)).collect()
}

fn stored(images: &[Chunked], unit: Unit) -> Stored {
    let mut stored = Stored::new(unit);
    for image in images {
        stored.add(image);
    }
    stored
}

/// Requests as ranges of bytes of the file system.
fn in_bytes(requests: &[Request], image: &dyn Inspect) -> Vec<Range<u64>> {
    let shape = image.geometry();
    // In a damaged image a request may be behind the end.
    let bytes = |block: BlockNo| block.get().min(shape.blocks) * u64::from(shape.block_size);
    requests.iter().map(|it| bytes(it.extent.start)..bytes(it.extent.end())).collect()
}
