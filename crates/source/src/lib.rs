//! The sources of an image's files.
//!
//! Every source is a [`Source`]: the whole tree first, then the contents of its regular files.
//! [`open`] detects the kind of a path.
//!
//! - [`directory`]: a directory of the running system
//! - [`tar`]: an archive, compressed or not
//! - [`oci`]: the root file system of a container image
//! - [`layered`]: several of these over one another
//! - [`graft`]: parts of one under other paths
//! - [`AccountNames`]: users, groups and projects of an image
//! - [`amend`]: changes to the whole tree; [`contexts`]: SELinux contexts by path
//! - [`image`]: a file-system image, as a file, in a qcow2 image, or on a device
//! - [`options`]: changes made while reading: excludes, owners, times
//! - [`manifest`]: the contents of a source, as text that is equal for two sources only if they are
//!   equal
//!
//! # Example
//!
//! ```
//! use seekless_fs::source::Source;
//! use seekless_source::{OpenOptions, open};
//!
//! let dir = std::env::temp_dir().join(format!("seekless-example-{}", std::process::id()));
//! std::fs::create_dir_all(&dir)?;
//! std::fs::write(dir.join("file"), "contents")?;
//! let source = open(&dir, &OpenOptions::default())?;
//! let sizes: Vec<u64> = source.tree().nodes().iter().map(|node| node.size).collect();
//! assert!(sizes.contains(&8));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accounts;
pub mod amend;
pub mod archive;
pub mod contexts;
pub mod directory;
mod excludes;
mod graft;
pub mod image;
pub mod layered;
mod list;
pub mod manifest;

pub mod oci;
pub mod options;
mod recognize;
pub use recognize::what_it_seems;
pub mod tar;
mod unpack;

pub use accounts::AccountNames;
pub use amend::{AmendError, Amendments, DeviceTable, Labels, Manifest, ManifestRole, TableSyntax};
pub use archive::ArchiveSource;
pub use contexts::FileContexts;
pub use directory::DirectorySource;
pub use excludes::Excludes;
pub use graft::{Graft, graft};
pub use image::ImageSource;
pub use layered::{LayeredSource, ReplacedLink};
pub use list::ListError;
pub use options::{
    DroppedXattrs, IdMap, IdRange, MetadataCalls, Notices, TreeOptions, XattrPolicy,
};

use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::FsError;
use seekless_fs::format::{self, Format, Probe};
use seekless_fs::source::Source;
use seekless_fs::term::Text;
use seekless_qcow2::Qcow2Error;
use seekless_simg::SimgError;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options for opening a source.
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    /// Changes made while reading.
    pub tree: TreeOptions,
    /// Directory for unpacking archives that cannot be read in place.
    pub temp_dir: PathBuf,
    /// The supported image formats.
    pub formats: &'a [Format],
    /// Options for opening an image.
    pub image: format::OpenOptions,
    /// The container image to take if there are several; by default the one for this machine.
    pub choice: oci::Choice,
    /// Opens container images by names that are no paths.
    pub remote: Option<Arc<dyn oci::OpenRemote>>,
    /// The form of the whiteouts of an archive that is one layer of a container image: other sources
    /// have none.
    pub whiteouts: Option<oci::Whiteouts>,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self {
            tree: TreeOptions::default(),
            temp_dir: PathBuf::from("/tmp"),
            formats: &[],
            image: format::OpenOptions::default(),
            choice: oci::Choice::default(),
            remote: None,
            whiteouts: None,
        }
    }
}

/// The kind of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceKind {
    /// A directory.
    Directory,
    /// A container image: an OCI image layout, or a directory written by skopeo.
    Oci,
    /// A tar archive.
    Tar,
    /// An image of one of the formats.
    Image,
}

/// Opens the source at a path; `-` is an archive from standard input.
///
/// # Errors
/// [`FsError::Io`] when it cannot be read; otherwise the source's error.
pub fn open(path: &Path, options: &OpenOptions<'_>) -> Result<Box<dyn Source + Send>, FsError> {
    let found = open_any(path, options)?;
    match &options.choice.tag {
        Some(tag) if !found.has_tags() => {
            let name = shown(path);
            if let OpenedSource::Named(_) = found {
                let why = format!("{name}: its tag is a part of its name, so none is {tag}");
                return Err(FsError::Invalid(why));
            }
            Err(FsError::Invalid(format!("{name}: not a container image, so it has no tag {tag}")))
        }
        _ => Ok(found.whole()),
    }
}

/// Opens several sources and lays them over one another, the first at the bottom. A tag is searched
/// in the container images among them.
///
/// # Errors
/// As [`open`] and [`LayeredSource::new`].
pub fn open_layers(paths: &[PathBuf], options: &OpenOptions<'_>) -> Result<LayeredSource, FsError> {
    let whole = |(path, found): (&PathBuf, OpenedSource)| (shown(path), Arc::from(found.whole()));
    let found = open_all(paths, options)?;
    LayeredSource::new(paths.iter().zip(found).map(whole).collect())
}

/// What sources are made of, step by step.
pub struct Steps {
    /// The first layer alone, the first two over one another, and so on, all but the whole.
    pub below: Vec<Arc<dyn Source + Send>>,
    /// All layers over one another.
    pub whole: Arc<dyn Source + Send>,
    /// Symlinks that directories of a later source replace.
    pub replaced_links: Vec<ReplacedLink>,
}

/// Opens sources as layers over one another, the first at the bottom: a container image has the
/// layers that it was made of, each other source is one. Each source is read once, so that standard
/// input may be one.
///
/// # Errors
/// As [`open_layers`]; [`FsError::Invalid`] without a source.
pub fn open_steps(paths: &[PathBuf], options: &OpenOptions<'_>) -> Result<Steps, FsError> {
    let mut steps: Vec<Arc<dyn Source + Send>> = Vec::new();
    let mut replaced_links = Vec::new();
    let mut lower: Vec<(String, Arc<dyn Source + Send>)> = Vec::new();
    for (path, found) in paths.iter().zip(open_all(paths, options)?) {
        let own = found.steps(&options.tree)?;
        for step in &own {
            if lower.is_empty() {
                steps.push(step.clone());
                continue;
            }
            let upper = (shown(path), step.clone());
            let layered = LayeredSource::new(lower.iter().cloned().chain([upper]).collect())?;
            replaced_links = layered.replaced_links().to_vec();
            steps.push(Arc::new(layered));
        }
        lower.extend(own.last().map(|whole| (shown(path), whole.clone())));
    }
    let Some(whole) = steps.pop() else { return Err(FsError::Invalid("no source".into())) };
    Ok(Steps { below: steps, whole, replaced_links })
}

/// Opens a container image, each of whose layers is a tree of its own.
///
/// # Errors
/// As [`open`]; [`FsError::Invalid`] for another source; [`FsError::Unsupported`] for a layer with
/// files that overlayfs takes for marks.
pub fn open_apart(
    path: &Path,
    options: &OpenOptions<'_>,
    whiteouts: oci::Whiteouts,
) -> Result<oci::Apart, FsError> {
    let name = shown(path);
    match (open_any(path, options)?, &options.choice.tag) {
        (OpenedSource::Named(_), Some(tag)) => {
            let why = format!("{name}: its tag is a part of its name, so none is {tag}");
            Err(FsError::Invalid(why))
        }
        (OpenedSource::Container(layers) | OpenedSource::Named(layers), _) => {
            layers.apart(&name, &options.tree, whiteouts)
        }
        (OpenedSource::Plain(_), _) => {
            let why = "not a container image, so it has no layers";
            Err(FsError::Invalid(format!("{name}: {why}")))
        }
    }
}

/// Opens each of several sources; one of them at least must be a container image if a tag is
/// wanted.
fn open_all(paths: &[PathBuf], options: &OpenOptions<'_>) -> Result<Vec<OpenedSource>, FsError> {
    if paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(FsError::Invalid("standard input can be one source only".into()));
    }
    let found: Vec<OpenedSource> =
        paths.iter().map(|path| open_any(path, options)).collect::<Result<_, FsError>>()?;
    match &options.choice.tag {
        Some(tag) if !found.iter().any(OpenedSource::has_tags) => Err(FsError::Invalid(format!(
            "none of the sources is a container image with a tag {tag}"
        ))),
        _ => Ok(found),
    }
}

/// The name of a source in messages.
fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

/// An opened source.
enum OpenedSource {
    /// The layers of a container image, which may have tags.
    Container(oci::Layers),
    /// The layers of a container image whose tag is a part of its name.
    Named(oci::Layers),
    /// Any other source.
    Plain(Box<dyn Source + Send>),
}

impl OpenedSource {
    fn plain(source: impl Source + Send + 'static) -> Self {
        Self::Plain(Box::new(source))
    }

    /// Whether a tag may choose among several images in it.
    fn has_tags(&self) -> bool {
        matches!(self, Self::Container(_))
    }

    fn whole(self) -> Box<dyn Source + Send> {
        match self {
            Self::Container(layers) | Self::Named(layers) => Box::new(layers.whole()),
            Self::Plain(source) => source,
        }
    }

    /// The layers of a container image, step by step; any other source is one step.
    fn steps(self, options: &TreeOptions) -> Result<Vec<Arc<dyn Source + Send>>, FsError> {
        Ok(match self {
            Self::Container(layers) | Self::Named(layers) => {
                let steps = layers.steps(options)?.into_iter();
                steps.map(|step| Arc::new(step) as Arc<dyn Source + Send>).collect()
            }
            Self::Plain(source) => vec![Arc::from(source)],
        })
    }
}

fn open_any(path: &Path, options: &OpenOptions<'_>) -> Result<OpenedSource, FsError> {
    if path.as_os_str() == "-" {
        return stdin(options);
    }
    if let Some(remote) = options.remote.as_ref().and_then(|remote| remote.open(path)) {
        let (remote, name) = (remote?, shown(path));
        if options.whiteouts.is_some() {
            return Err(without_whiteouts(&name));
        }
        let platform = options.choice.platform.clone();
        let OpenOptions { temp_dir, tree, .. } = options;
        let layers = oci::remote_layers(&*remote, &name, platform, temp_dir, tree)?;
        return Ok(OpenedSource::Named(layers));
    }
    let io = |error| FsError::io(path.display().to_string(), error);
    let kind = detect(path, options.formats)?;
    if options.whiteouts.is_some() && kind != SourceKind::Tar {
        return Err(without_whiteouts(&shown(path)));
    }
    Ok(match kind {
        SourceKind::Directory => OpenedSource::plain(DirectorySource::open(path, &options.tree)?),
        SourceKind::Oci => {
            let layers = oci::layers(path, &options.choice, &options.temp_dir, &options.tree)?;
            OpenedSource::Container(layers)
        }
        SourceKind::Tar => archive(File::open(path).map_err(io)?, shown(path), options)?,
        SourceKind::Image => {
            let device = disk(path)?;
            let source = format::open(options.formats, device, options.image)
                .and_then(|image| ImageSource::open(image, &options.tree));
            let about = |error| FsError::Source { name: shown(path), error: Box::new(error) };
            OpenedSource::plain(source.map_err(about)?)
        }
    })
}

/// The device of an image: the file, or the disk in a qcow2, Android sparse or VHD image.
fn disk(path: &Path) -> Result<Arc<dyn BlockDevice>, FsError> {
    let about = |what: String| format!("{}: {what}", path.display());
    let device = seekless_qcow2::open(path).map_err(|error| match error {
        Qcow2Error::Open { path, source } => FsError::io(path.display().to_string(), source),
        Qcow2Error::Unsupported(why) => FsError::Unsupported(about(why)),
        Qcow2Error::Device(error) => FsError::Device(error),
    })?;
    let device = seekless_simg::disk_in(device).map_err(|error| match error {
        SimgError::Unsupported(why) => FsError::Unsupported(about(why)),
        SimgError::Device(error) => FsError::Device(error),
    })?;
    seekless_vhd::disk_in(device).map_err(FsError::Device)
}

fn stdin(options: &OpenOptions<'_>) -> Result<OpenedSource, FsError> {
    let name = "standard input";
    let file = std::io::stdin().as_fd().try_clone_to_owned();
    let file = File::from(file.map_err(|error| FsError::io(name, error))?);
    archive(file, name.into(), options)
}

/// Opens an archive of files, or of the layers of container images.
fn archive(file: File, name: String, options: &OpenOptions<'_>) -> Result<OpenedSource, FsError> {
    let OpenOptions { temp_dir, choice, tree, .. } = options;
    let spooled = tar::spool(file, &name, temp_dir)?;
    if !tar::begins_with_entry(&spooled, &name)?
        && let Some(what) = seems(&spooled.file, options.formats)
    {
        let text = Text::from(format!("{name}: ")).then(what).then(", not a tar archive");
        return Err(FsError::Refused(text));
    }
    let opened = oci::open_archive(spooled.clone(), &name, choice, temp_dir, tree)?;
    Ok(match (opened, options.whiteouts) {
        (oci::Opened::Image(_), Some(_)) => return Err(without_whiteouts(&name)),
        (oci::Opened::Image(layers), None) => OpenedSource::Container(layers),
        (oci::Opened::Ordinary(_), Some(form)) => {
            OpenedSource::plain(oci::open_alone(spooled, &name, tree, form)?)
        }
        (oci::Opened::Ordinary(source), None) => OpenedSource::Plain(source),
    })
}

fn without_whiteouts(name: &str) -> FsError {
    let why = "not the archive of one layer, so it has no whiteouts to be marked";
    FsError::Invalid(format!("{name}: {why}"))
}

/// Names the format of a file that is no archive, if it is recognized.
fn seems(file: &File, formats: &[Format]) -> Option<Text> {
    let device = FileDevice::from_file(file.try_clone().ok()?, false).ok()?;
    recognize::what(&device, formats)
}

/// Detects the kind of the source at a path.
///
/// # Errors
/// [`FsError::Io`] when it cannot be read.
pub fn detect(path: &Path, formats: &[Format]) -> Result<SourceKind, FsError> {
    let io = |error| FsError::io(path.display().to_string(), error);
    let kind = std::fs::metadata(path).map_err(io)?.file_type();
    if kind.is_dir() {
        // A layout without its index is damaged, not a tree of files.
        let has_parts = path.join("index.json").exists() || path.join("blobs/sha256").is_dir();
        let is_layout = path.join("oci-layout").is_file() && has_parts;
        let is_image = is_layout || oci::skopeo::is_image(path);
        return Ok(if is_image { SourceKind::Oci } else { SourceKind::Directory });
    }
    if kind.is_file() || kind.is_block_device() {
        let file = FileDevice::open(path).map_err(io)?;
        let is_qcow2 = seekless_qcow2::is_image(&file);
        let is_simg = seekless_simg::is_image(&file);
        let device = if is_qcow2 || is_simg { disk(path)? } else { Arc::new(file) };
        // An image too damaged to open is reported only after the file turns out to be no archive.
        if formats.iter().any(|format| (format.probe)(device.as_ref()) == Probe::Yes) {
            return Ok(SourceKind::Image);
        }
        if is_qcow2 || is_simg {
            let container = if is_qcow2 { "qcow2 image" } else { "sparse image" };
            let held = recognize::what(device.as_ref(), formats);
            let held = held.unwrap_or_else(|| "nothing that is known".into());
            let text = Text::from(format!("{}: the {container} holds ", path.display()));
            return Err(FsError::Refused(text.then(held)));
        }
    }
    Ok(SourceKind::Tar)
}
