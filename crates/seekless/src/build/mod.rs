//! Making an image.

mod disk;
mod layers;

pub use disk::{Architecture, BuiltDisk, BuiltPartition};
pub use layers::{BuiltLayer, Whiteouts};

use crate::{Error, Image, Progress, Stop, Trace};
use seekless_compose::amendments::{ManifestRole, TableSyntax, WantedAmendments};
use seekless_compose::base::Likeness;
use seekless_compose::build::Build as Composition;
use seekless_compose::formats::{OlderImages, Options};
use seekless_compose::freed::Freed;
use seekless_compose::per_layer;
use seekless_compose::registries::{Access, Registries};
use seekless_compose::sources::{self, Purpose, SourceOptions};
use seekless_compose::write::Destination;
use seekless_compose::wrong;
use seekless_ext::Features;
use seekless_fat::FatWidth;
use seekless_ffs::Version;
use seekless_formats::{EXT, FAT, FFS, KnownFormat};
use seekless_fs::Timestamp;
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::Spare;
use seekless_images::{Place, ReflinkMode, Target, Unwatched, output, targets};
use seekless_layout::planner::{Storage, StorageKind};
use seekless_units::ByteLen;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Format {
    /// As mke2fs makes it.
    Ext2,
    /// As mke2fs makes it.
    Ext3,
    /// As mke2fs makes it.
    #[default]
    Ext4,
    /// As newfs makes it.
    Ufs1,
    /// As newfs makes it.
    Ufs2,
    /// FAT12, FAT16 or FAT32, whichever mkfs.fat chooses for the size. Owners, modes and
    /// symlinks, which FAT does not have, are an error unless [`Build::lossy`] is given.
    Fat,
    /// FAT32.
    Fat32,
}

impl Format {
    /// Its row in the table of formats.
    const fn known(self) -> &'static KnownFormat {
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => &EXT,
            Self::Ufs1 | Self::Ufs2 => &FFS,
            Self::Fat | Self::Fat32 => &FAT,
        }
    }
}

/// Whether the blocks of files become blocks of the image by reference (`FICLONERANGE`), without a
/// copy. XFS and Btrfs support it for files that they have both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Reflink {
    /// Where possible; the rest is copied.
    #[default]
    Auto,
    /// Where possible, and it is an error if that is nowhere.
    Always,
    /// All blocks are copied.
    Never,
}

/// The format of an image's file.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, OutputFormat};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("system"));
/// # std::fs::create_dir(&tree)?;
/// let built = Build::of([&tree]).output_format(OutputFormat::Simg).write(&path)?;
/// // Zeros take no bytes in an Android sparse image, which can be read.
/// assert!(std::fs::metadata(&path)?.len() < built.len);
/// assert_eq!(seekless::open(&path)?.volume().format, "ext4");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OutputFormat {
    /// The bytes of the image.
    Raw,
    /// A qcow2 image, converted by `qemu-img`.
    Qcow2,
    /// An Android sparse image.
    Simg,
    /// A fixed VHD image: the bytes of the image, and a footer.
    Vhd,
    /// A dynamic VHDX image, converted by `qemu-img`.
    Vhdx,
    /// A sparse VMDK image, converted by `qemu-img`.
    Vmdk,
}

impl From<OutputFormat> for targets::OutputFormat {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Raw => Self::Raw,
            OutputFormat::Qcow2 => Self::Qcow2,
            OutputFormat::Simg => Self::Simg,
            OutputFormat::Vhd => Self::Vhd,
            OutputFormat::Vhdx => Self::Vhdx,
            OutputFormat::Vmdk => Self::Vmdk,
        }
    }
}

/// The storage that an image is laid out for by traces.
///
/// ```
/// use seekless::{Build, LaidOutFor, Trace};
///
/// # let dir = tempfile::tempdir()?;
/// # let (tree, image) = (dir.path().join("tree"), dir.path().join("a.img"));
/// # std::fs::create_dir(&tree)?;
/// # std::fs::write(tree.join("index"), "many pages")?;
/// let trace = Trace::of_paths(["/index"]);
/// // All that the trace reads moves, however small the pieces.
/// Build::of([&tree]).trace(trace).laid_out_for(LaidOutFor::Lazy).write(&image)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum LaidOutFor {
    /// A disk, which seeks: large files that traces read in small pieces stay whole.
    #[default]
    Disk,
    /// A volume that is fetched chunk by chunk: all that traces read moves.
    Lazy,
    /// A solid-state drive: as for a disk, but a piece costs less.
    Ssd,
}

impl From<LaidOutFor> for StorageKind {
    fn from(storage: LaidOutFor) -> Self {
        match storage {
            LaidOutFor::Disk => Self::Disk,
            LaidOutFor::Lazy => Self::Lazy,
            LaidOutFor::Ssd => Self::Ssd,
        }
    }
}

impl From<Reflink> for ReflinkMode {
    fn from(reflink: Reflink) -> Self {
        match reflink {
            Reflink::Auto => Self::Auto,
            Reflink::Always => Self::Always,
            Reflink::Never => Self::Never,
        }
    }
}

/// An image in the making. The same source gives the same bytes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Format};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
/// # std::fs::create_dir(&tree)?;
/// # std::fs::write(tree.join("hello"), "world")?;
/// // Of several sources each is laid over those before it.
/// let built = Build::of([&tree])
///     .format(Format::Ufs2)
///     .label("data")
///     .size(16 << 20)
///     .exclude("*.tmp")
///     .write(&path)?;
/// assert_eq!(built.len, 16 << 20);
/// assert_eq!(seekless::open(&path)?.volume().label, "data");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Build {
    sources: Vec<PathBuf>,
    options: SourceOptions,
    cache_dir: Option<PathBuf>,
    auth_files: Vec<PathBuf>,
    amendments: WantedAmendments,
    is_only_listed: bool,
    exclude_files: Vec<PathBuf>,
    excludes: Vec<String>,
    includes: Vec<String>,
    format: Format,
    size: Option<u64>,
    free: u64,
    label: String,
    uuid: Option<[u8; 16]>,
    block_size: Option<u32>,
    features: String,
    made: Option<i64>,
    is_lossy: bool,
    traces: Vec<Trace>,
    chunk: u64,
    like: Vec<PathBuf>,
    is_shared: bool,
    freed: Option<Freed>,
    move_budget: u64,
    storage: LaidOutFor,
    reflink: Reflink,
    output_format: Option<OutputFormat>,
    architecture: Architecture,
    replaces: bool,
    reuses: bool,
    progress: Arc<dyn Progress>,
    stop: Stop,
}

/// An image that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Built {
    /// Bytes of the image.
    pub len: u64,
    /// Bytes of its blocks that are in use.
    pub used: u64,
    /// Files of all kinds in it, the root included, each once; an empty `lost+found` is none.
    pub files: u64,
    /// Its UUID; zeros where the format has none.
    pub uuid: String,
}

impl Build {
    /// An image of these sources: directories, tar archives (plain, gzip, zstd, xz, bzip2),
    /// container images (OCI layouts, `docker save`, skopeo's `dir:`; with a
    /// [`cache_dir`](Self::cache_dir), `docker://NAME` in registries) and images.
    pub fn of<P: AsRef<Path>>(sources: impl IntoIterator<Item = P>) -> Self {
        Self {
            sources: sources.into_iter().map(|path| path.as_ref().to_path_buf()).collect(),
            options: SourceOptions::default(),
            cache_dir: None,
            auth_files: Vec::new(),
            amendments: WantedAmendments::default(),
            is_only_listed: false,
            exclude_files: Vec::new(),
            excludes: Vec::new(),
            includes: Vec::new(),
            format: Format::default(),
            size: None,
            free: 0,
            label: String::new(),
            uuid: None,
            block_size: None,
            features: String::new(),
            made: None,
            is_lossy: false,
            traces: Vec::new(),
            chunk: 512 << 10,
            like: Vec::new(),
            is_shared: false,
            freed: None,
            move_budget: 0,
            storage: LaidOutFor::Disk,
            reflink: Reflink::Auto,
            output_format: None,
            architecture: Architecture::default(),
            replaces: false,
            reuses: false,
            progress: Arc::new(Unwatched),
            stop: Stop::new(),
        }
    }

    /// The format; ext4 without one.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The length of the image, in bytes; without one it is as small as its contents allow, on a
    /// block device as large as that.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Bytes that are free, where no size is given.
    #[must_use]
    pub fn free(mut self, bytes: u64) -> Self {
        self.free = bytes;
        self
    }

    /// The label: at most 16 bytes, 31 for UFS, 11 characters for FAT.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The UUID of an ext image; without one it is derived from the contents.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Bytes in a block of an ext image: a power of two from 1024 to 65536. Without it 4096, or those
    /// of an older image. Most kernels mount no blocks larger than a page.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// seekless::Build::of([&tree]).block_size(1024).write(&path)?;
    /// assert_eq!(seekless::open(&path)?.volume().block_size, 1024);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// Features of an ext image besides those of its format, or without them, as for `mke2fs
    /// -O`: `^has_journal,quota`.
    #[must_use]
    pub fn features(mut self, list: impl Into<String>) -> Self {
        self.features = list.into();
        self
    }

    /// The time at which the image was made, in seconds since 1970, as `SOURCE_DATE_EPOCH`: no
    /// file in it is later. Without one it is the latest time in the sources.
    #[must_use]
    pub fn made_at(mut self, seconds: i64) -> Self {
        self.made = Some(seconds);
        self
    }

    /// Leaves out files, by a line as in .gitignore; of several, the last that matches decides.
    #[must_use]
    pub fn exclude(mut self, pattern: impl Into<String>) -> Self {
        self.excludes.push(pattern.into());
        self
    }

    /// Leaves out files by the lines of a file, as of a .gitignore. The lines of
    /// [`exclude`](Self::exclude) come after them.
    #[must_use]
    pub fn exclude_from(mut self, path: impl AsRef<Path>) -> Self {
        self.exclude_files.push(path.as_ref().to_path_buf());
        self
    }

    /// Keeps files that [`exclude`](Self::exclude) leaves out, by a line as in .gitignore, with all
    /// below them and the directories above them.
    #[must_use]
    pub fn include(mut self, pattern: impl Into<String>) -> Self {
        self.includes.push(pattern.into());
        self
    }

    /// Keeps only extended attributes of a list with commas: namespaces (`user`), attributes
    /// (`security.capability`), `acl`, `all` or `none`; one with `^` in front is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for another word.
    pub fn xattr_policy(mut self, list: &str) -> Result<Self, Error> {
        self.options.dropped.policy = list.parse().map_err(|why: String| Error::usage(why))?;
        Ok(self)
    }

    /// Gives all files to this user and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.options.owner = Some((uid, gid));
        self
    }

    /// Labels all files with SELinux contexts, by the lines of a `file_contexts` of a policy and of
    /// the files `.homedirs`, `.local`, `.subs` and `.subs_dist` beside it, as libselinux matches
    /// them. For ext images.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("passwd"), "")?;
    /// let contexts = work.path().join("file_contexts");
    /// std::fs::write(&contexts, "/.*  --  system_u:object_r:etc_t:s0\n")?;
    /// seekless::Build::of([&tree]).file_contexts(&contexts).write(&path)?;
    /// let xattrs = seekless::open(&path)?.xattrs("/passwd")?;
    /// assert_eq!(xattrs[0].0, "security.selinux");
    /// assert_eq!(xattrs[0].1, b"system_u:object_r:etc_t:s0\0");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn file_contexts(mut self, path: impl AsRef<Path>) -> Self {
        self.amendments.file_contexts = Some(path.as_ref().to_path_buf());
        self
    }

    /// Path at which the image will be mounted, in front of the paths that
    /// [`file_contexts`](Self::file_contexts) compares; the root by default.
    #[must_use]
    pub fn mount_point(mut self, path: impl Into<String>) -> Self {
        self.amendments.mount_point = Some(path.into());
        self
    }

    /// Takes owners, modes, flags, times, links and devices from a manifest of `mtree(5)`, whose
    /// digests are compared. Without a source it is the whole tree: contents, and attributes that it
    /// lacks, are those of its paths, relative to the working directory.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (file, path) = (work.path().join("file"), work.path().join("disk.img"));
    /// # std::fs::write(&file, "hello")?;
    /// let manifest = work.path().join("tree.mtree");
    /// let lines = format!("#mtree\n./a type=file mode=0600 uid=7 contents={}\n", file.display());
    /// std::fs::write(&manifest, lines)?;
    /// seekless::Build::of::<&str>([]).manifest(&manifest).write(&path)?;
    /// let image = seekless::open(&path)?;
    /// assert_eq!((image.read("/a")?, image.metadata("/a")?.uid), (b"hello".to_vec(), 7));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn manifest(mut self, path: impl AsRef<Path>) -> Self {
        self.amendments.manifest = Some((path.as_ref().to_path_buf(), ManifestRole::default()));
        self
    }

    /// Leaves out files of the sources that the [`manifest`](Self::manifest) does not list.
    #[must_use]
    pub fn only_listed(mut self) -> Self {
        self.is_only_listed = true;
        self
    }

    /// Makes devices, directories and empty files, and sets owners and modes, as a table of genext2fs
    /// says. Of several tables, each is followed after those before it.
    #[must_use]
    pub fn device_table(mut self, path: impl AsRef<Path>) -> Self {
        self.amendments.tables.push((path.as_ref().to_path_buf(), TableSyntax::Genext2fs));
        self
    }

    /// As [`device_table`](Self::device_table), for a table as makedevs of Buildroot has it.
    #[must_use]
    pub fn makedevs(mut self, path: impl AsRef<Path>) -> Self {
        self.amendments.tables.push((path.as_ref().to_path_buf(), TableSyntax::Makedevs));
        self
    }

    /// Stores every name of a file with several as a file of its own.
    #[must_use]
    pub fn hard_dereference(mut self) -> Self {
        self.amendments.hard_dereference = true;
        self
    }

    /// Takes the source for the archive of one layer of a container image, and stores its whiteouts in
    /// a form, for overlayfs to lay the image over those of the layers below. Without it, files
    /// `.wh.NAME` of an archive are files.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Kind, Whiteouts};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # std::fs::write(work.path().join(".wh.removed"), "")?;
    /// # let mut tar = std::process::Command::new("tar");
    /// # assert!(tar.current_dir(&work).args(["-cf", "layer.tar", ".wh.removed"]).status()?.success());
    /// # let (layer, path) = (work.path().join("layer.tar"), work.path().join("layer.img"));
    /// // The archive has an entry `.wh.removed`.
    /// Build::of([&layer]).whiteouts(Whiteouts::Overlay).write(&path)?;
    /// assert_eq!(seekless::open(&path)?.metadata("/removed")?.kind, Kind::CharDevice);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn whiteouts(mut self, form: Whiteouts) -> Self {
        self.options.whiteouts = Some(form.into());
        self
    }

    /// The container image that is meant of several, by its tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.options.tag = Some(tag.into());
        self
    }

    /// The directory in which images of registries are kept, an OCI layout that several processes may
    /// use at once. Sources `docker://NAME` need it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), seekless::Error> {
    /// seekless::Build::of(["docker://debian:12"]).cache_dir("/var/cache/images").write("disk.img")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cache_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.cache_dir = Some(dir.as_ref().to_path_buf());
        self
    }

    /// A file of credentials for registries, as docker, podman and skopeo write them. Of several, the
    /// first that has some for an image counts; without one, everybody may read the image.
    #[must_use]
    pub fn auth_file(mut self, path: impl AsRef<Path>) -> Self {
        self.auth_files.push(path.as_ref().to_path_buf());
        self
    }

    /// Leaves out attributes and files that FAT does not have, with a warning: owners, modes,
    /// symlinks, devices, extended attributes, names that it cannot spell. Further names of a file
    /// become files of their own.
    #[must_use]
    pub fn lossy(mut self) -> Self {
        self.is_lossy = true;
        self
    }

    /// Places the blocks that a trace reads first, in their order; those of a later trace follow.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Self {
        self.traces.push(trace);
        self
    }

    /// Bytes of the unit in which a lazily loaded volume is fetched: the blocks that
    /// traces read begin at a multiple of it. 512 KiB without one.
    #[must_use]
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.chunk = bytes;
        self
    }

    /// The storage that the image is laid out for by its traces; a disk without one.
    #[must_use]
    pub fn laid_out_for(mut self, storage: LaidOutFor) -> Self {
        self.storage = storage;
        self
    }

    /// Keeps the files of an older image where they lie there, so that the two share
    /// blocks and chunks. Size, features, UUID or volume ID, and label are those of the older image
    /// unless they are given, and it grows if need be. Of several, the first that has a file counts.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let tree = work.path().join("tree");
    /// # let (old, new) = (work.path().join("old.img"), work.path().join("new.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # let large: Vec<u8> = (0u32..1 << 20).flat_map(u32::to_le_bytes).collect();
    /// # std::fs::write(tree.join("large"), large)?;
    /// seekless::Build::of([&tree]).write(&old)?;
    /// std::fs::write(tree.join("added"), "text")?;
    /// seekless::Build::of([&tree]).like(&old).write(&new)?;
    /// let images = seekless::sharing(&[&old, &new], 4096)?;
    /// assert!(images[1].new < images[1].chunks / 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn like(mut self, image: impl AsRef<Path>) -> Self {
        self.like.push(image.as_ref().to_path_buf());
        self
    }

    /// Lays each layer behind those below it, where it lies in every ext image that begins with the
    /// same layers and has the same options. A container image has the layers that it was made of;
    /// any other source is one layer.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Whether blocks of files that were replaced or removed keep their bytes, so that their chunks
    /// stay equal, or are zeros. Kept bytes can be read from the image. By default they are kept in an
    /// image that is [`shared`](Self::shared), and zeros in one that is like an older one.
    #[must_use]
    pub fn keep_freed(mut self, keep: bool) -> Self {
        self.freed = Some(if keep { Freed::Keep } else { Freed::Zero });
        self
    }

    /// Lets so many bytes that traces read leave their places in the older image, so that they lie in
    /// the order in which they are read. None do by default.
    #[must_use]
    pub fn move_budget(mut self, bytes: u64) -> Self {
        self.move_budget = bytes;
        self
    }

    /// Whether contents are cloned instead of copied.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Reflink};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let tree = work.path().join("tree");
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("file"), "text")?;
    /// let (cloned, copied) = (work.path().join("cloned.img"), work.path().join("copied.img"));
    /// Build::of([&tree]).write(&cloned)?;
    /// Build::of([&tree]).reflink(Reflink::Never).write(&copied)?;
    /// assert!(std::fs::read(cloned)? == std::fs::read(copied)?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn reflink(mut self, reflink: Reflink) -> Self {
        self.reflink = reflink;
        self
    }

    /// The format of the image's file; without one, the end of its name decides.
    #[must_use]
    pub fn output_format(mut self, format: OutputFormat) -> Self {
        self.output_format = Some(format);
        self
    }

    /// Replaces a file that is there, or the contents of a block device. An input is never
    /// replaced, except a trace, which was loaded before.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// Keeps images of layers that an earlier [`write_layers`](Self::write_layers) wrote into the
    /// directory, if this one would write the same; replaces its other ones. `layers.json` must
    /// describe them, with the digests that only runs with this option write: another file in the
    /// place of an image is an error unless [`replace`](Self::replace) is given.
    #[must_use]
    pub fn reuse(mut self) -> Self {
        self.reuses = true;
        self
    }

    /// Tells this how far the work is.
    #[must_use]
    pub fn progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// Lets another thread stop the work, which is an error then: a file does not appear, and a block
    /// device shows no file system.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, ErrorKind, Stop};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// let stop = Stop::new();
    /// // Such as in a handler of SIGINT.
    /// stop.clone().stop();
    /// let stopped = Build::of([&tree]).stop(stop).write(&path);
    /// assert_eq!(stopped.unwrap_err().kind(), ErrorKind::System);
    /// assert!(!path.exists());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Writes the image to a file, which appears when it is complete, or to a block device. Without
    /// an [`output_format`](Self::output_format), names that end in `.qcow2`, `.vhdx` and `.vmdk` are
    /// written by `qemu-img`, those that end in `.simg` as Android sparse images, those that end in
    /// `.vhd` as fixed VHD images.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for options that contradict each other,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind) for contents that do not fit,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a feature that the format does not have,
    /// [`ErrorKind::Corrupt`](crate::ErrorKind) for a source that is damaged, with the place,
    /// [`ErrorKind::System`](crate::ErrorKind) also for a file that is there, and where it was stopped.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Built, Error> {
        let path = path.as_ref();
        self.stop.during(path.display(), || self.compose(path))
    }

    fn registries(&self) -> Registries {
        let access = self.cache_dir.as_ref().map(|dir| {
            let credential_files = self.auth_files.clone();
            Access { credential_files, ..Access::new(dir) }
        });
        Registries { access, progress: self.progress.clone() }
    }

    fn compose(&self, path: &Path) -> Result<Built, Error> {
        // Wrong options are an error before anything is opened.
        self.settings(self.format, self.size, None)?;
        if self.sources.is_empty() && self.amendments.files().next().is_none() {
            return Err(Error::usage("no source, and no manifest that takes its place"));
        }
        if self.reuses {
            return Err(Error::usage("only images of layers are used again"));
        }
        let format = self.output_format.map(Into::into);
        let target = Target::create(path, self.replaces, format, self.inputs())?;
        let target = target.with_reflink(self.reflink.into())?.with_stop(self.stop.clone());
        let bases = self.older_images()?;
        let all = target.capacity().map(ByteLen::get).filter(|_| self.free == 0);
        let options = self.settings(self.format, self.size.or(all), bases.as_ref())?;
        target.refuse_blocks(options.unit(), "the device has larger blocks")?;
        if let Some(form) = self.options.whiteouts {
            per_layer::check(&options, form)?;
        }
        let is_fat = matches!(options, Options::Fat(_));
        if self.amendments.file_contexts.is_some() && !matches!(options, Options::Ext(_)) {
            return Err(Error::usage("SELinux contexts are those of ext images"));
        }
        let mut opening = self.opening(path)?;
        opening.dropped.all |= is_fat && self.is_lossy;
        let purpose = self.purpose();
        let (below, source) = if self.is_shared {
            let steps = sources::open_steps(&self.sources, &opening, purpose)?;
            (steps.below, steps.whole)
        } else {
            (Vec::new(), sources::open_layers(&self.sources, &opening, purpose)?)
        };
        let traces: Vec<_> = self.traces.iter().map(|trace| trace.events.clone()).collect();
        let composition = Composition {
            source: source.as_ref(),
            name: &self.shown_sources(),
            traces: &traces,
            storage: Storage { kind: self.storage.into(), chunk: ByteLen::new(self.chunk) },
            destination: Destination::whole(&target),
            progress: self.progress.as_ref(),
        };
        let len = match &options {
            Options::Ext(options) if self.is_shared => {
                composition.ext_in_layers(&below, options, self.freed.unwrap_or(Freed::Keep))?
            }
            options => {
                let older = bases.as_ref().map(|bases| (bases, self.likeness()));
                composition.write(options, older)?.len
            }
        };
        // Some formats of files are written and not read.
        let device = target.written().expect("the image was written to it");
        target.finish()?;
        let options = OpenOptions::default();
        let inner = seekless_fs::format::open(seekless_images::FORMATS, device, options)?;
        let image = Image::of(path, inner);
        let shape = image.volume();
        let used = (shape.blocks - shape.free_blocks) * u64::from(shape.block_size);
        Ok(Built { len: len.get(), used, files: image.files()?, uuid: shape.uuid })
    }

    /// All files that are read: no image may replace one of them.
    fn inputs(&self) -> Vec<PathBuf> {
        let lists = self.exclude_files.iter().cloned().chain(self.amendments.files());
        self.sources.iter().chain(&self.like).cloned().chain(lists).collect()
    }

    /// How the sources are opened for an output, which must not be a file of theirs.
    fn opening(&self, path: &Path) -> Result<SourceOptions, Error> {
        if self.is_only_listed && self.amendments.manifest.is_none() {
            return Err(Error::usage("only listed files are kept by a manifest"));
        }
        let amendments = self.wanted_amendments().read(true)?;
        output::refuse_inputs(path, amendments.host_files())?;
        Ok(SourceOptions {
            excludes: sources::excludes(&self.exclude_files, &self.excludes, &self.includes)?,
            amendments,
            registries: self.registries(),
            ..self.options.clone()
        })
    }

    fn purpose(&self) -> Purpose {
        Purpose::Build { latest: self.made }
    }

    /// The sources' names in errors.
    fn shown_sources(&self) -> String {
        let names: Vec<String> =
            self.sources.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    /// The changes to the tree. Without a source, a manifest is all of it.
    fn wanted_amendments(&self) -> WantedAmendments {
        let role = match (self.sources.is_empty(), self.is_only_listed) {
            (true, _) => ManifestRole::Whole,
            (false, true) => ManifestRole::Selection,
            (false, false) => ManifestRole::Attributes,
        };
        let manifest = self.amendments.manifest.clone().map(|(path, _)| (path, role));
        WantedAmendments { manifest, ..self.amendments.clone() }
    }

    fn has_ext_options(&self) -> bool {
        self.uuid.is_some() || self.block_size.is_some() || !self.features.is_empty()
    }

    fn older_images(&self) -> Result<Option<OlderImages>, Error> {
        let (place, options) = (Place::default(), OpenOptions::default());
        OlderImages::open(self.format.known(), &self.like, &place, options)
    }

    fn likeness(&self) -> Likeness {
        Likeness {
            freed: self.freed.unwrap_or_default(),
            move_budget: ByteLen::new(self.move_budget),
            ..Likeness::default()
        }
    }

    /// The options of a volume of this format.
    fn settings(
        &self,
        format: Format,
        size: Option<u64>,
        bases: Option<&OlderImages>,
    ) -> Result<Options, Error> {
        if self.chunk == 0 {
            return Err(Error::usage("a chunk of 0 bytes"));
        }
        if self.label.contains('\0') {
            return Err(Error::usage("a label does not contain a zero byte"));
        }
        let is_ext = format.known().is(&EXT);
        if !is_ext && self.has_ext_options() {
            return Err(Error::usage("a UUID, a block size and features are those of ext images"));
        }
        if !is_ext && self.is_shared {
            return Err(Error::usage("common places are those of ext images"));
        }
        if self.freed.is_some() && !self.is_shared && self.like.is_empty() {
            return Err(Error::usage("only images that share places have freed blocks"));
        }
        if self.is_shared && !self.like.is_empty() {
            return Err(Error::usage("an image has the places of others, or common ones"));
        }
        let size = size.map(ByteLen::new);
        let spare = Spare { bytes: ByteLen::new(self.free), share: 0 };
        let made = self.made.map(|secs| Timestamp { secs, nanos: 0 });
        let label = self.label.clone().into_bytes();
        let ext = |base: Features| -> Result<Options, Error> {
            let plain = bases.and_then(OlderImages::ext).map(|bases| bases.volume().options());
            let base = plain.as_ref().map_or(base, |plain| plain.features);
            let plain = plain.unwrap_or_default();
            let options = seekless_ext::BuildOptions {
                size,
                spare,
                features: base.apply(&self.features).map_err(wrong)?,
                label: if label.is_empty() { plain.label } else { label.clone() },
                uuid: self.uuid.or(plain.uuid),
                block_size: self.block_size.unwrap_or(plain.block_size),
                made: plain.made.or(made),
                ..plain
            };
            options.check().map_err(wrong)?;
            Ok(Options::Ext(options))
        };
        let ufs = |version: Version| -> Result<Options, Error> {
            let mut options = match bases.and_then(OlderImages::ufs) {
                Some(bases) => bases.volume().options(),
                None => seekless_ffs::BuildOptions::new(version),
            };
            options.make.version = version;
            if bases.is_none() || !label.is_empty() {
                options.make.label = label.clone();
            }
            options.make.size = size.unwrap_or_default();
            (options.is_fitted, options.spare, options.made) = (size.is_none(), spare, made);
            options.check().map_err(wrong)?;
            Ok(Options::Ufs(options))
        };
        let fat = |width: Option<FatWidth>| -> Result<Options, Error> {
            let plain = seekless_fat::MakeOptions::new(None, ByteLen::ZERO);
            let mut options = match bases.and_then(OlderImages::fat) {
                Some(bases) => bases.volume().options(),
                None => seekless_fat::BuildOptions::new(plain),
            };
            options.make.width = width.or(options.make.width);
            options.make.size = size.unwrap_or_default();
            options.make.label = label.clone();
            (options.is_fitted, options.spare, options.made) = (size.is_none(), spare, made);
            if self.is_lossy {
                options.losses = seekless_fat::Losses {
                    owners: true,
                    modes: true,
                    links: true,
                    symlinks: true,
                    devices: true,
                    xattrs: true,
                    names: true,
                };
            }
            options.check().map_err(wrong)?;
            Ok(Options::Fat(options))
        };
        match format {
            Format::Ext2 => ext(Features::EXT2),
            Format::Ext3 => ext(Features::EXT3),
            Format::Ext4 => ext(Features::EXT4),
            Format::Ufs1 => ufs(Version::Ufs1),
            Format::Ufs2 => ufs(Version::Ufs2),
            Format::Fat => fat(None),
            Format::Fat32 => fat(Some(FatWidth::Fat32)),
        }
    }
}
