//! Reading an image.

use crate::{Entry, Error, File, Metadata, Replay, Request, Score, Trace, Walk};
use seekless_compose::sharing;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::{files_in, resolve, sorted_entries};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_images::Place;
use seekless_layout::chunks::Codec;
use seekless_layout::replay::{Machine, Replayed};
use seekless_layout::score;
use seekless_units::{ByteLen, Ino};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Bytes that are read of a file at once.
const PIECE: usize = 1 << 20;

/// Opens an image of ext2/3/4, UFS1/2 or FAT for reading: a file, the disk in a qcow2 image, or
/// a block device. A journal that was not replayed is replayed in memory.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind) for a directory,
/// [`ErrorKind::Unsupported`](crate::ErrorKind) for other files,
/// [`ErrorKind::Corrupt`](crate::ErrorKind) with the place of the damage,
/// [`ErrorKind::System`](crate::ErrorKind).
///
/// ```
/// let error = seekless::open("/").err().expect("a directory is no image");
/// assert_eq!(error.kind(), seekless::ErrorKind::Usage);
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Image, Error> {
    Open::default().open(path)
}

/// How an image is opened.
///
/// ```no_run
/// # fn main() -> Result<(), seekless::Error> {
/// let image = seekless::Open::default().partition("root").open("cloud.qcow2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Open {
    place: Place,
    options: OpenOptions,
}

impl Open {
    /// The partition that is meant: its number, name or UUID, the label of its file system, or
    /// `root`.
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// The byte that the file system begins with, a multiple of 512.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.place.offset = Some(ByteLen::new(bytes));
        self
    }

    /// Reads past checksums that do not match.
    #[must_use]
    pub fn ignore_checksums(mut self) -> Self {
        self.options.ignore_checksums = true;
        self
    }

    /// Reads the disk as it is, without a replay of the journal.
    #[must_use]
    pub fn skip_journal(mut self) -> Self {
        self.options.skip_journal = true;
        self
    }

    /// Opens the image.
    ///
    /// # Errors
    /// As [`open()`]; [`ErrorKind::Usage`](crate::ErrorKind) for a partition that is not there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref().to_path_buf();
        let inner = seekless_images::open(&path, &self.place, self.options)?;
        Ok(Image { path, place: self.place.clone(), inner })
    }
}

/// A store that compresses each chunk of an image by itself.
///
/// ```
/// use seekless::Store;
///
/// let store: Store = "zstd:19".parse()?;
/// assert!("zstd:20".parse::<Store>().is_err());
/// # Ok::<(), seekless::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store(Codec);

impl FromStr for Store {
    type Err = Error;

    /// `zstd`, `zstd:LEVEL` with a level from 1 to 19, or `none` for chunks as they are.
    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|why: String| Error::usage(format!("{text:?}: {why}")))
    }
}

/// An image that is read.
pub struct Image {
    path: PathBuf,
    place: Place,
    inner: Arc<dyn Inspect>,
}

impl Image {
    /// An image that has just been written.
    pub(crate) fn of(path: &Path, inner: Arc<dyn Inspect>) -> Self {
        Self { path: path.to_path_buf(), place: Place::default(), inner }
    }
}

/// The shape of a file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Volume {
    /// `ext4`, `ufs2`, `fat32` ...
    pub format: &'static str,
    /// The label, as far as it is text.
    pub label: String,
    /// The UUID; zeros where the format has none.
    pub uuid: String,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in the volume.
    pub blocks: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Inodes in the volume; 0 for FAT.
    pub inodes: u32,
    /// Inodes not in use.
    pub free_inodes: u32,
    /// Features, as the format's own tools name them.
    pub features: Vec<String>,
}

impl Image {
    /// Where the image is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The shape of the file system.
    #[must_use]
    pub fn volume(&self) -> Volume {
        let shape = self.inner.geometry();
        Volume {
            format: shape.format,
            label: String::from_utf8_lossy(&shape.label).into_owned(),
            uuid: shape.uuid_text(),
            block_size: shape.block_size,
            blocks: shape.blocks,
            free_blocks: shape.free_blocks,
            inodes: shape.inodes,
            free_inodes: shape.free_inodes,
            features: shape.features.clone(),
        }
    }

    /// The attributes of a file. Symlinks are not followed, here and below.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind) for a file that is not there,
    /// [`ErrorKind::Corrupt`](crate::ErrorKind).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        let path = path.as_ref();
        let attr = self.resolve(path).and_then(|ino| self.inner.attr(ino));
        attr.map(|attr| Metadata::from(&attr)).map_err(|error| self.about(error))
    }

    /// The contents of a file; of a symlink, its target.
    ///
    /// # Errors
    /// As [`Image::metadata`]; [`ErrorKind::Unsupported`](crate::ErrorKind) for a file without
    /// contents.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        self.resolve(path.as_ref())
            .and_then(|ino| self.contents(ino))
            .map_err(|error| self.about(error))
    }

    /// Reads a part of a file from a byte on; how much of `buf` was filled: less than all at the
    /// end of the file only. Holes are zeros.
    ///
    /// # Errors
    /// As [`Image::read`].
    pub fn read_at(
        &self,
        path: impl AsRef<Path>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Error> {
        self.resolve(path.as_ref())
            .and_then(|ino| self.inner.read(ino, ByteLen::new(offset), buf))
            .map_err(|error| self.about(error))
    }

    /// A file whose parts are read one after the other: its path is followed once.
    ///
    /// # Errors
    /// As [`Image::read`], of which [`ErrorKind::Unsupported`](crate::ErrorKind) for a file that is
    /// not regular.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("a"), "first second")?;
    /// # seekless::Build::of([&tree]).write(&path)?;
    /// let file = seekless::open(&path)?.file("a")?;
    /// let mut part = [0; 16];
    /// assert_eq!(file.read_at(6, &mut part)?, 6);
    /// assert_eq!(&part[..6], b"second");
    /// # Ok(())
    /// # }
    /// ```
    pub fn file(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let attr = self.resolve(path.as_ref()).and_then(|ino| self.inner.attr(ino));
        let attr = attr.map_err(|error| self.about(error))?;
        File::new(self.inner.clone(), &self.path, path.as_ref(), &attr)
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// As [`Image::metadata`]; [`ErrorKind::Unsupported`](crate::ErrorKind) for another type of
    /// file.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let target = self.resolve(path.as_ref()).and_then(|ino| self.inner.read_link(ino));
        let target = target.map_err(|error| self.about(error))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// The extended attributes of a file with their names, sorted.
    ///
    /// # Errors
    /// As [`Image::metadata`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>, Error> {
        let found = self.resolve(path.as_ref()).and_then(|ino| self.inner.xattrs(ino));
        let named = |it: seekless_fs::Xattr| (OsString::from_vec(it.name), it.value);
        found.map(|all| all.into_iter().map(named).collect()).map_err(|error| self.about(error))
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// As [`Image::metadata`]; [`ErrorKind::System`](crate::ErrorKind) for another type of file.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>, Error> {
        let found = self
            .resolve(path.as_ref())
            .and_then(|dir| sorted_entries(self.inner.as_ref(), dir))
            .map_err(|error| self.about(error))?;
        Ok(found.into_iter().map(|(name, _)| OsString::from_vec(name)).collect())
    }

    /// All files by all of their names, each directory before its entries, names sorted. A
    /// directory that is met a second time, as in a damaged image, is not entered again.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind) at the first damage.
    pub fn walk(&self) -> Result<Vec<Entry>, Error> {
        self.walk_below("")?.collect()
    }

    /// The files below a directory, which is left out, as [`Image::walk`] has them, each when it is
    /// asked for.
    ///
    /// # Errors
    /// As [`Image::list`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir_all(tree.join("etc/init.d"))?;
    /// # std::fs::write(tree.join("etc/passwd"), "")?;
    /// # seekless::Build::of([&tree]).write(&path)?;
    /// let image = seekless::open(&path)?;
    /// let entries = image.walk_below("/etc")?.collect::<Result<Vec<_>, _>>()?;
    /// let paths: Vec<_> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
    /// assert_eq!(paths, ["etc/init.d", "etc/passwd"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk_below(&self, dir: impl AsRef<Path>) -> Result<Walk, Error> {
        let ino = self.resolve(dir.as_ref()).map_err(|error| self.about(error))?;
        Walk::new(self.inner.clone(), &self.path, dir.as_ref(), ino)
    }

    /// The cost of a trace on the image from a cold start, under a model of Linux' page cache and
    /// read-ahead; chunks are counted in each of these sizes, in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a chunk of no bytes,
    /// [`ErrorKind::Corrupt`](crate::ErrorKind).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("a"), vec![1; 100_000])?;
    /// # seekless::Build::of([&tree]).write(&path)?;
    /// let trace = seekless::Trace::of_paths(["/a"]);
    /// let score = seekless::open(&path)?.score(&trace, &[512 << 10])?;
    /// assert!(score.bytes >= 100_000 && score.chunks[&(512 << 10)] >= 1);
    /// assert!(score.missing.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn score(&self, trace: &Trace, chunks: &[u64]) -> Result<Score, Error> {
        self.replayed(trace, chunks).map(|(score, _)| score)
    }

    /// The requests of a trace on the image, with their cost: those that [`Image::score`] counts.
    ///
    /// # Errors
    /// As [`Image::score`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("a"), vec![1; 100_000])?;
    /// # seekless::Build::of([&tree]).write(&path)?;
    /// use seekless::Purpose;
    ///
    /// let replay = seekless::open(&path)?.replay(&seekless::Trace::of_paths(["/a"]), &[])?;
    /// let data = replay.requests.iter().filter(|request| request.purpose == Purpose::Data);
    /// assert!(data.map(|request| request.len).sum::<u64>() >= 100_000);
    /// assert_eq!(replay.requests.len() as u64, replay.score.requests);
    /// # Ok(())
    /// # }
    /// ```
    pub fn replay(&self, trace: &Trace, chunks: &[u64]) -> Result<Replay, Error> {
        let (score, replayed) = self.replayed(trace, chunks)?;
        Ok(Replay::new(score, &replayed, self.inner.geometry().block_size.into()))
    }

    /// The bytes that a store sends for the chunks that requests to the image read, by the size of
    /// chunks: each chunk once, wherever equal ones lie. Chunks of zeros cost nothing. The first
    /// chunk begins with the file system.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a chunk of no bytes,
    /// [`ErrorKind::System`](crate::ErrorKind) if the image cannot be read.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("a"), vec![1; 100_000])?;
    /// # seekless::Build::of([&tree]).write(&path)?;
    /// let image = seekless::open(&path)?;
    /// let replay = image.replay(&seekless::Trace::of_paths(["/a"]), &[65536])?;
    /// let plain = image.stored_bytes(&replay.requests, &[65536], "none".parse()?)?;
    /// let packed = image.stored_bytes(&replay.requests, &[65536], "zstd:3".parse()?)?;
    /// assert!(packed[&65536] < plain[&65536] / 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stored_bytes(
        &self,
        requests: &[Request],
        chunks: &[u64],
        store: Store,
    ) -> Result<BTreeMap<u64, u64>, Error> {
        let sizes = sizes(chunks)?;
        let shape = self.inner.geometry();
        // In a damaged image a request may be behind the end.
        let end = shape.blocks * u64::from(shape.block_size);
        let range = |it: &Request| it.offset.min(end)..(it.offset + it.len).min(end);
        let requests: Vec<_> = requests.iter().map(range).collect();
        let found = sharing::stored_bytes_of(&self.path, &self.place, &requests, &sizes, store.0)?;
        Ok(found.into_iter().map(|(size, bytes)| (size.get(), bytes)).collect())
    }

    fn replayed(&self, trace: &Trace, chunks: &[u64]) -> Result<(Score, Replayed), Error> {
        let sizes = sizes(chunks)?;
        score::score(self.inner.as_ref(), &trace.events, Machine::for_score(), &sizes)
            .map_err(|error| self.about(error))
    }

    /// Files of all kinds, the root included, each once; an empty `lost+found` in the root is none.
    pub(crate) fn files(&self) -> Result<u64, Error> {
        files_in(self.inner.as_ref()).map_err(|error| self.about(error))
    }

    pub(crate) fn contents(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let attr = self.inner.attr(ino)?;
        if attr.kind == FileKind::Symlink {
            return self.inner.read_link(ino);
        }
        let mut contents = Vec::new();
        // A length in an inode may be anything.
        let size = usize::try_from(attr.size).unwrap_or(usize::MAX);
        contents.try_reserve_exact(size).map_err(|_| {
            FsError::Unsupported(format!("a file of {size} bytes in memory, read whole"))
        })?;
        let mut piece = vec![0; PIECE];
        loop {
            let len = self.inner.read(ino, ByteLen::new(contents.len() as u64), &mut piece)?;
            contents.extend_from_slice(&piece[..len]);
            if len < piece.len() {
                return Ok(contents);
            }
        }
    }

    pub(crate) fn shared(&self) -> Arc<dyn Inspect> {
        self.inner.clone()
    }

    pub(crate) fn inspect(&self) -> &dyn Inspect {
        self.inner.as_ref()
    }

    pub(crate) fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.path.display())
    }

    fn resolve(&self, path: &Path) -> Result<Ino, FsError> {
        resolve(self.inner.as_ref(), path.as_os_str().as_bytes())
    }
}

/// The sizes of chunks.
fn sizes(chunks: &[u64]) -> Result<Vec<ByteLen>, Error> {
    if chunks.contains(&0) {
        return Err(Error::usage("a chunk of 0 bytes"));
    }
    Ok(chunks.iter().copied().map(ByteLen::new).collect())
}
