//! Opens sources by path, with the options that all commands with a source share.

use crate::args::{Global, PlaceArgs, count};
use crate::failure::Failure;
use crate::registry::RegistryArgs;
use clap::{ArgGroup, Args};
use seekless_compose::sources::{self, SourceOptions};
use seekless_fs::format;
use seekless_fs::source::Source;
use seekless_source::{Amendments, DroppedXattrs, Excludes, IdRange, Steps, XattrPolicy, oci};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use seekless_compose::sources::Purpose;

/// What is changed on the way from a source.
#[derive(Args, Debug, Clone, Default)]
#[command(group = ArgGroup::new("excluded").args(["exclude", "exclude_from"]).multiple(true))]
pub(crate) struct SourceArgs {
    /// Exclude files that match PATTERN, a line as in .gitignore; of several, the last that
    /// matches decides, and !PATTERN keeps files (repeatable)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Exclude files that match patterns in FILE, in the format of .gitignore; patterns of
    /// --exclude are applied after them (repeatable)
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// With --exclude, keep files that match PATTERN, all below them, and the directories above them
    /// (repeatable)
    #[arg(long, value_name = "PATTERN", requires = "excluded")]
    include: Vec<String>,
    /// Keep only extended attributes of LIST: user, trusted, security, system, acl, a whole name
    /// such as security.capability, all or none; with ^ in front, drop it
    #[arg(long, value_name = "LIST")]
    xattr_policy: Option<XattrPolicy>,
    /// Set the owner and group of all files
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Set the owner and group of the root directory
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    root_owner: Option<(u32, u32)>,
    /// Set the permissions of the root directory, in octal
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    root_mode: Option<u16>,
    /// Map COUNT user ids starting at FROM to those starting at TO (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    uid_map: Vec<IdRange>,
    /// Map group ids in the same way (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    gid_map: Vec<IdRange>,
    /// Map owners as rootless containers of USER do: USER to root, and the ids of /etc/subuid and
    /// /etc/subgid to those from 1 on
    #[arg(long, value_name = "USER", conflicts_with_all = ["owner", "uid_map", "gid_map"])]
    map_user: Option<String>,
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
    /// The patterns of both, once they have been read.
    #[arg(skip)]
    excludes: Option<Excludes>,
    /// Extended attributes that an image is built without. No option of its own: `--drop`.
    #[arg(skip)]
    pub(crate) dropped: DroppedXattrs,
    /// Changes to the whole tree of an image that is built.
    #[arg(skip)]
    pub(crate) amendments: Amendments,
    /// The form of whiteouts of an archive that an image is built of.
    #[arg(skip)]
    pub(crate) whiteouts: Option<oci::Whiteouts>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl SourceArgs {
    /// Whether `--partition` was given.
    pub(crate) fn names_partition(&self) -> bool {
        self.place.partition.is_some()
    }

    /// The files of patterns.
    pub(crate) fn pattern_files(&self) -> &[PathBuf] {
        &self.exclude_from
    }

    /// These options with the patterns to exclude read, for several sources.
    pub(crate) fn with_patterns(&self) -> Result<Self, Failure> {
        let excludes = self.read_patterns()?;
        Ok(Self { excludes: Some(excludes), ..self.clone() })
    }

    fn read_patterns(&self) -> Result<Excludes, Failure> {
        Ok(sources::excludes(&self.exclude_from, &self.exclude, &self.include)?)
    }

    fn options(
        &self,
        image: format::OpenOptions,
        global: &Global,
    ) -> Result<SourceOptions, Failure> {
        let excludes = match &self.excludes {
            Some(excludes) => excludes.clone(),
            None => self.read_patterns()?,
        };
        let mut dropped = self.dropped.clone();
        dropped.policy = self.xattr_policy.clone().unwrap_or_default();
        let (uid_map, gid_map) = match &self.map_user {
            Some(user) => sources::maps_of_user(user, Path::new("/etc"))?,
            None => (self.uid_map.clone(), self.gid_map.clone()),
        };
        Ok(SourceOptions {
            excludes,
            owner: self.owner,
            root_owner: self.root_owner,
            root_perm: self.root_mode,
            uid_map,
            gid_map,
            one_file_system: self.one_file_system,
            platform: self.platform.clone(),
            tag: self.tag.clone(),
            dropped,
            amendments: self.amendments.clone(),
            place: self.place.place(),
            image,
            temp_dir: temp_dir(),
            registries: self.registry.registries(global),
            whiteouts: self.whiteouts,
        })
    }

    /// Only those options that tell how registries are reached, for another source.
    pub(crate) fn of_registries(&self) -> Self {
        Self { registry: self.registry.clone(), ..Self::default() }
    }

    /// These options without `--partition` and `--offset`, for a source without partitions.
    pub(crate) fn whole(&self) -> Self {
        Self { place: PlaceArgs::default(), ..self.clone() }
    }
}

fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let parse = |part: &str| count(part).ok();
    let owner = text.split_once(':').and_then(|(uid, gid)| parse(uid).zip(parse(gid)));
    owner.ok_or_else(|| format!("'{text}' is not UID:GID"))
}

fn parse_mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("'{text}' is not a mode in octal, such as 755"))
}

/// SOURCE_DATE_EPOCH from the environment: the latest time in an image.
pub(crate) fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.trim().parse().ok());
    seconds.map(Some).ok_or_else(|| Failure::usage("SOURCE_DATE_EPOCH is not a number of seconds"))
}

/// Opens a directory, an archive (`-`: standard input), a container image or a file system image.
pub(crate) fn open(
    path: &Path,
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
    global: &Global,
) -> Result<Arc<dyn Source + Send>, Failure> {
    Ok(sources::open(path, &args.options(image, global)?, purpose)?)
}

/// Opens the source of an image: one, or several in layers, the first at the bottom.
pub(crate) fn open_layers(
    paths: &[PathBuf],
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
    global: &Global,
) -> Result<Arc<dyn Source + Send>, Failure> {
    Ok(sources::open_layers(paths, &args.options(image, global)?, purpose)?)
}

/// Opens the sources of an image as layers, step by step.
pub(crate) fn open_steps(
    paths: &[PathBuf],
    args: &SourceArgs,
    image: format::OpenOptions,
    purpose: Purpose,
    global: &Global,
) -> Result<Steps, Failure> {
    Ok(sources::open_steps(paths, &args.options(image, global)?, purpose)?)
}

/// Opens a container image, layer by layer.
pub(crate) fn open_apart(
    path: &Path,
    args: &SourceArgs,
    image: format::OpenOptions,
    whiteouts: oci::Whiteouts,
    purpose: Purpose,
    global: &Global,
) -> Result<oci::Apart, Failure> {
    Ok(sources::open_apart(path, &args.options(image, global)?, whiteouts, purpose)?)
}

/// `TMPDIR`, or else `/var/tmp`: `/tmp` is often in memory, and unpacked archives are large.
pub(crate) fn temp_dir() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(dir) if !dir.is_empty() => dir.into(),
        _ => PathBuf::from("/var/tmp"),
    }
}
