//! Sources by path.

use seekless_fs::format;
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::{ArchiveFault, FsError};
use seekless_host::{block_device, preloaded};
use seekless_images::output::directory_of;
use seekless_images::{Error, ErrorKind, FORMATS, Place, in_use, snapshot};
use seekless_source::{
    DroppedXattrs, Excludes, IdMap, IdRange, ImageSource, MetadataCalls, Notices, OpenOptions,
    ReplacedLink, Steps, TreeOptions, oci,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Options of a source, and changes to its files.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Files that are left out ([`excludes`]).
    pub excludes: Excludes,
    /// User and group of all files.
    pub owner: Option<(u32, u32)>,
    /// User and group of the root directory.
    pub root_owner: Option<(u32, u32)>,
    /// Permissions of the root directory.
    pub root_perm: Option<u16>,
    /// Users, mapped.
    pub uid_map: Vec<IdRange>,
    /// Groups, mapped.
    pub gid_map: Vec<IdRange>,
    /// Whether a directory is left at the borders of its file system.
    pub one_file_system: bool,
    /// The platform of a container image.
    pub platform: Option<oci::Platform>,
    /// The tag of a container image, where there are several.
    pub tag: Option<String>,
    /// Extended attributes that are left out.
    pub dropped: DroppedXattrs,
    /// Where in a disk the source is.
    pub place: Place,
    /// How an image is opened.
    pub image: format::OpenOptions,
    /// Where archives are unpacked that cannot be read in place.
    pub temp_dir: PathBuf,
}

impl Default for SourceOptions {
    /// Everything as it is; `/var/tmp`, since `/tmp` is often in memory and an unpacked archive
    /// is large.
    fn default() -> Self {
        Self {
            excludes: Excludes::default(),
            owner: None,
            root_owner: None,
            root_perm: None,
            uid_map: Vec::new(),
            gid_map: Vec::new(),
            one_file_system: false,
            platform: None,
            tag: None,
            dropped: DroppedXattrs::default(),
            place: Place::default(),
            image: format::OpenOptions::default(),
            temp_dir: PathBuf::from("/var/tmp"),
        }
    }
}

/// The purpose of opening a source.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// An image is made of it, in which nothing is later than this time, in seconds since 1970.
    Build {
        /// The latest time.
        latest: Option<i64>,
    },
    /// It is only listed, names as they are stored.
    List,
}

/// Opens a directory, archive (`-`: standard input), container image or image.
///
/// # Errors
/// [`ErrorKind::Usage`] for options that are wrong, [`ErrorKind::Unsupported`] for a file
/// that is no source, [`ErrorKind::Corrupt`] for one that is damaged, [`ErrorKind::System`].
pub fn open(
    path: &Path,
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Box<dyn Source + Send>, Error> {
    look(path, purpose)?;
    let opening = opening(options, purpose)?;
    if options.place.is_part() || snapshot::split(path).is_some() {
        let image = seekless_images::open(path, &options.place, options.image)?;
        let source = ImageSource::open(image, &opening.tree);
        let about = |error: FsError| Error::from(error).about(path.display());
        return Ok(Box::new(source.map_err(about)?));
    }
    let opened = seekless_source::open(path, &opening);
    opened.map_err(|error| seekless_images::partitions_of(path).unwrap_or_else(|| failed(error)))
}

/// Opens a source, or several over one another, the first at the bottom.
///
/// # Errors
/// As [`open`].
pub fn open_layers(
    paths: &[PathBuf],
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Box<dyn Source + Send>, Error> {
    if let [path] = paths {
        return open(path, options, purpose);
    }
    refuse_parts(paths, options)?;
    paths.iter().try_for_each(|path| look(path, purpose))?;
    let opening = opening(options, purpose)?;
    let layered = seekless_source::open_layers(paths, &opening).map_err(failed)?;
    warn_of_replaced(layered.replaced_links());
    Ok(Box::new(layered))
}

/// Opens sources as layers over one another, step by step: a container image has the layers that it
/// was made of, each other source is one.
///
/// # Errors
/// As [`open_layers`]; [`ErrorKind::Usage`] for a source that is a partition or a snapshot beside
/// others.
pub fn open_steps(
    paths: &[PathBuf],
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Steps, Error> {
    if let [path] = paths
        && (options.place.is_part() || snapshot::split(path).is_some())
    {
        let whole = Arc::from(open(path, options, purpose)?);
        return Ok(Steps { below: Vec::new(), whole, replaced_links: Vec::new() });
    }
    refuse_parts(paths, options)?;
    paths.iter().try_for_each(|path| look(path, purpose))?;
    let opening = opening(options, purpose)?;
    let steps = seekless_source::open_steps(paths, &opening).map_err(|error| match paths {
        [path] => seekless_images::partitions_of(path).unwrap_or_else(|| failed(error)),
        _ => failed(error),
    })?;
    warn_of_replaced(&steps.replaced_links);
    Ok(steps)
}

/// Refuses several sources one of which would be a part of a disk or a snapshot.
fn refuse_parts(paths: &[PathBuf], options: &SourceOptions) -> Result<(), Error> {
    if options.place.is_part() {
        let parameters = Text::from(Term::Partition).then(" and ").then(Term::Offset);
        return Err(Error::usage(parameters.then(" take one source")));
    }
    match paths.iter().find_map(|path| snapshot::split(path)) {
        Some((image, _)) => {
            Err(Error::usage("a snapshot is the only source").about(image.display()))
        }
        None => Ok(()),
    }
}

fn warn_of_replaced(links: &[ReplacedLink]) {
    for ReplacedLink { by, path } in links {
        let path = String::from_utf8_lossy(path);
        warn!("{by}: the directory /{path} replaces a symlink of an earlier source");
    }
}

/// Refuses an output that lies inside one of the sources: the image would find its predecessor
/// there, and grow with every build.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn refuse_inside<'a>(
    output: &Path,
    sources: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    // A device only has its node there.
    if block_device::number(output).is_some() {
        return Ok(());
    }
    let Ok(dir) = directory_of(output).canonicalize() else { return Ok(()) };
    let contains_output = |source: &&PathBuf| {
        let source = source.canonicalize();
        source.is_ok_and(|source| source.is_dir() && dir.starts_with(&source))
    };
    match sources.into_iter().find(contains_output) {
        Some(source) => {
            let (output, source) = (output.display(), source.display());
            Err(Error::usage(format!("{output}: the image would lie inside its source, {source}")))
        }
        None => Ok(()),
    }
}

/// Looks whether a device may change while it is read.
fn look(path: &Path, purpose: Purpose) -> Result<(), Error> {
    match purpose {
        Purpose::Build { .. } => in_use::refuse(path),
        Purpose::List => {
            in_use::warn(path);
            Ok(())
        }
    }
}

/// Patterns of names to exclude: the lines of files, each as a .gitignore, and behind them others.
/// The files are read once: they may be pipes. Warns of patterns that can match nothing.
///
/// # Errors
/// [`ErrorKind::System`] for a file that cannot be read.
pub fn excludes(files: &[PathBuf], lines: &[String]) -> Result<Excludes, Error> {
    let read = |path: &PathBuf| fs::read(path).map_err(|error| Error::io(path.display(), &error));
    let mut patterns = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    patterns.extend(lines.iter().map(|line| line.clone().into_bytes()));
    let excludes = Excludes::new(&patterns);
    for text in excludes.idle() {
        warn!("{text}");
    }
    Ok(excludes)
}

fn opening(options: &SourceOptions, purpose: Purpose) -> Result<OpenOptions<'static>, Error> {
    let (clamp_mtime, raw_names) = match purpose {
        Purpose::Build { latest } => (latest, false),
        Purpose::List => (None, true),
    };
    let tree = TreeOptions {
        excludes: options.excludes.clone(),
        owner: options.owner,
        root_owner: options.root_owner,
        root_perm: options.root_perm,
        uid_map: IdMap::new(options.uid_map.clone()),
        gid_map: IdMap::new(options.gid_map.clone()),
        clamp_mtime,
        one_file_system: options.one_file_system,
        raw_names,
        calls: match preloaded::library() {
            None => MetadataCalls::System,
            Some(_) if preloaded::IS_DYNAMIC => MetadataCalls::Libc(preloaded::xattrs),
            Some(library) => MetadataCalls::Impossible(library),
        },
        notices: Notices(|text| warn!("{text}")),
        dropped: options.dropped.clone(),
    };
    Ok(OpenOptions {
        tree,
        temp_dir: options.temp_dir.clone(),
        formats: FORMATS,
        image: options.image,
        choice: oci::Choice { platform: options.platform.clone(), tag: options.tag.clone() },
    })
}

fn failed(error: FsError) -> Error {
    match &error {
        FsError::Archive { fault: ArchiveFault::Foreign(_), .. } => Error::new(
            ErrorKind::Unsupported,
            format!("{error}: neither a directory, a tar archive, an OCI layout nor a known image"),
        ),
        _ => Error::from(error),
    }
}
