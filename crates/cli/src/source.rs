//! Opening a source by path, with the options that all commands share that
//! take one.

use crate::args::{PlaceArgs, count};
use crate::failure::{Failure, Kind};
use crate::say::warning;
use clap::Args;
use seekless_fs::format;
use seekless_fs::source::Source;
use seekless_fs::{ArchiveFault, FsError};
use seekless_host::preloaded;
use seekless_images::{FORMATS, in_use};
use seekless_source::layered::ReplacedLink;
use seekless_source::{
    DroppedXattrs, Excludes, IdMap, IdRange, ImageSource, MetadataCalls, Notices, OpenOptions,
    TreeOptions, oci,
};
use std::path::{Path, PathBuf};

/// What is changed on the way from a source.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SourceArgs {
    /// Exclude files that match PATTERN, a line as in .gitignore; of several, the last that
    /// matches decides, and !PATTERN keeps files (repeatable)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Set the owner and group of all files
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Map COUNT user ids starting at FROM to those starting at TO (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    uid_map: Vec<IdRange>,
    /// Map group ids in the same way (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    gid_map: Vec<IdRange>,
    /// Do not cross file system boundaries (directory sources)
    #[arg(long)]
    one_file_system: bool,
    /// Platform of the container image, such as linux/arm64 or linux/arm/v7; others are
    /// refused [default: that of this machine, if there are several]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<oci::Platform>,
    /// Container image to select from an archive or layout with several: its tag,
    /// such as debian:12 or 12
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Extended attributes that an image is built without. No option of its own: `--drop`.
    #[arg(skip)]
    pub(crate) dropped: DroppedXattrs,
    #[command(flatten)]
    place: PlaceArgs,
}

impl SourceArgs {
    /// Whether a partition is named.
    pub(crate) fn names_partition(&self) -> bool {
        self.place.partition.is_some()
    }

    /// The same for what has no partitions.
    pub(crate) fn whole(&self) -> Self {
        Self { place: PlaceArgs::default(), ..self.clone() }
    }
}

fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let parse = |part: &str| count(part).ok();
    let owner = text.split_once(':').and_then(|(uid, gid)| parse(uid).zip(parse(gid)));
    owner.ok_or_else(|| format!("'{text}' is not UID:GID"))
}

/// The time that nothing may be later than, from the environment.
pub(crate) fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.trim().parse().ok());
    seconds.map(Some).ok_or_else(|| Failure::usage("SOURCE_DATE_EPOCH is not a number of seconds"))
}

/// What a source is opened for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// An image is made of it, in which nothing is later than this time.
    Build { latest: Option<i64> },
    /// It is only listed, names as they are stored.
    List,
}

/// Opens a directory, archive (`-`: standard input), container image or image.
pub(crate) fn open(
    path: &Path,
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
) -> Result<Box<dyn Source + Send>, Failure> {
    look(path, purpose)?;
    let options = options(args, image, purpose)?;
    if args.place.is_part() {
        let image = seekless_images::open(path, &args.place.place(), image)?;
        let source = ImageSource::open(image, &options.tree);
        let about = |error: FsError| Failure::from(error).about(path.display());
        return Ok(Box::new(source.map_err(about)?));
    }
    let opened = seekless_source::open(path, &options);
    opened.map_err(|error| {
        seekless_images::partitions_of(path).map_or_else(|| failed(error), Failure::from)
    })
}

/// Looks whether a device may change while it is read.
fn look(path: &Path, purpose: Purpose) -> Result<(), Failure> {
    match purpose {
        Purpose::Build { .. } => Ok(in_use::refuse(path)?),
        Purpose::List => {
            in_use::warn(path);
            Ok(())
        }
    }
}

/// Opens what an image is made of: a source, or several over one another, the first at
/// the bottom.
pub(crate) fn open_layers(
    paths: &[PathBuf],
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
) -> Result<Box<dyn Source + Send>, Failure> {
    if let [path] = paths {
        return open(path, args, image, purpose);
    }
    if args.place.is_part() {
        return Err(Failure::usage("--partition and --offset take one source"));
    }
    paths.iter().try_for_each(|path| look(path, purpose))?;
    let options = options(args, image, purpose)?;
    let layered = seekless_source::open_layers(paths, &options).map_err(failed)?;
    for ReplacedLink { by, path } in layered.replaced_links() {
        let path = String::from_utf8_lossy(path);
        warning!("{by}: the directory /{path} replaces a symlink of an earlier source");
    }
    Ok(Box::new(layered))
}

fn options(
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
) -> Result<OpenOptions<'static>, Failure> {
    let (clamp_mtime, raw_names) = match purpose {
        Purpose::Build { latest } => (latest, false),
        Purpose::List => (None, true),
    };
    let tree = TreeOptions {
        excludes: Excludes::new(&args.exclude).map_err(Failure::usage)?,
        owner: args.owner,
        uid_map: IdMap::new(args.uid_map.clone()),
        gid_map: IdMap::new(args.gid_map.clone()),
        clamp_mtime,
        one_file_system: args.one_file_system,
        raw_names,
        calls: match preloaded::library() {
            None => MetadataCalls::System,
            Some(_) if preloaded::IS_DYNAMIC => MetadataCalls::Libc(preloaded::xattrs),
            Some(library) => MetadataCalls::Impossible(library),
        },
        notices: Notices(|text| warning!("{text}")),
        dropped: args.dropped.clone(),
    };
    Ok(OpenOptions {
        tree,
        temp_dir: temp_dir(),
        formats: FORMATS,
        image,
        choice: oci::Choice { platform: args.platform.clone(), tag: args.tag.clone() },
    })
}

fn failed(error: FsError) -> Failure {
    match &error {
        // What has no first header was never an archive.
        FsError::Archive {
            offset: 0,
            fault: ArchiveFault::Checksum | ArchiveFault::Zeros | ArchiveFault::Truncated,
            ..
        } => Failure::new(
            Kind::Unsupported,
            format!("{error}: neither a directory, a tar archive, an OCI layout nor a known image"),
        ),
        _ => Failure::from(error),
    }
}

/// `TMPDIR`; else `/var/tmp`, for `/tmp` is often in memory and an unpacked
/// archive is large.
pub(crate) fn temp_dir() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(dir) if !dir.is_empty() => dir.into(),
        _ => PathBuf::from("/var/tmp"),
    }
}
