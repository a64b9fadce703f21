//! Sources by path.

use crate::amendments::amend_error;
use crate::registries::{self, Registries};
use crate::wrong;
use seekless_fs::format;
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::{ArchiveFault, FsError};
use seekless_host::preloaded;
use seekless_images::{Error, ErrorKind, FORMATS, Place, in_use, snapshot};
use seekless_source::{
    Amendments, DroppedXattrs, Excludes, IdMap, IdRange, ImageSource, MetadataCalls, Notices,
    OpenOptions, ReplacedLink, Steps, TreeOptions, oci,
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
    /// Changes to the whole tree.
    pub amendments: Amendments,
    /// Where in a disk the source is.
    pub place: Place,
    /// How an image is opened.
    pub image: format::OpenOptions,
    /// Where archives are unpacked that cannot be read in place.
    pub temp_dir: PathBuf,
    /// How container images of registries are fetched.
    pub registries: Registries,
    /// The form of whiteouts of a source that is the archive of one layer.
    pub whiteouts: Option<oci::Whiteouts>,
}

impl SourceOptions {
    /// Whether files of a source are selected or changed when it is read.
    fn changes_sources(&self) -> bool {
        !self.excludes.is_empty()
            || self.owner.or(self.root_owner).is_some()
            || self.root_perm.is_some()
            || !(self.uid_map.is_empty() && self.gid_map.is_empty())
            || self.one_file_system
            || self.platform.is_some()
            || self.tag.is_some()
            || !self.dropped.policy.is_all()
    }
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
            amendments: Amendments::default(),
            place: Place::default(),
            image: format::OpenOptions::default(),
            temp_dir: PathBuf::from("/var/tmp"),
            registries: Registries::default(),
            whiteouts: None,
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

/// Opens a directory, archive (`-`: standard input), container image (of a registry:
/// `docker://NAME`) or image.
///
/// # Errors
/// [`ErrorKind::Usage`] for options that are wrong, [`ErrorKind::Unsupported`] for a file
/// that is no source, [`ErrorKind::Corrupt`] for one that is damaged, [`ErrorKind::System`].
pub fn open(
    path: &Path,
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Arc<dyn Source + Send>, Error> {
    look(path, purpose)?;
    refuse_tag(&[path], options)?;
    let opening = opening(options, purpose)?;
    let source = open_one(path, options, &opening)?;
    amended(source, options, &opening)
}

fn open_one(
    path: &Path,
    options: &SourceOptions,
    opening: &OpenOptions<'_>,
) -> Result<Arc<dyn Source + Send>, Error> {
    if options.place.is_part() || names_snapshot(path) {
        let image = seekless_images::open(path, &options.place, options.image)?;
        let source = ImageSource::open(image, &opening.tree);
        let about = |error: FsError| Error::from(error).about(path.display());
        return Ok(Arc::new(source.map_err(about)?));
    }
    let opened = seekless_source::open(path, opening).map(Arc::from);
    opened.map_err(|error| failed_alone(path, opening, error))
}

/// The error of the only source.
fn failed_alone(path: &Path, opening: &OpenOptions<'_>, error: FsError) -> Error {
    match error {
        FsError::Invalid(_) if opening.whiteouts.is_some() => wrong(error),
        _ => seekless_images::partitions_of(path).unwrap_or_else(|| failed(error)),
    }
}

/// Opens a source, or several over one another, the first at the bottom.
///
/// # Errors
/// As [`open`].
pub fn open_layers(
    paths: &[PathBuf],
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Arc<dyn Source + Send>, Error> {
    refuse_whiteouts(paths, options)?;
    if let [path] = paths {
        return open(path, options, purpose);
    }
    refuse_parts(paths, options)?;
    paths.iter().try_for_each(|path| look(path, purpose))?;
    refuse_tag(paths, options)?;
    if paths.is_empty() && options.changes_sources() {
        let what = "options that select or change files of a source need a source";
        return Err(Error::usage(what));
    }
    let opening = opening(options, purpose)?;
    let layered = seekless_source::open_layers(paths, &opening).map_err(failed)?;
    warn_of_replaced(layered.replaced_links());
    amended(Arc::new(layered), options, &opening)
}

/// A source with the changes that are wanted.
fn amended(
    source: Arc<dyn Source + Send>,
    options: &SourceOptions,
    opening: &OpenOptions<'_>,
) -> Result<Arc<dyn Source + Send>, Error> {
    let excludes = &options.excludes;
    let excludes = excludes.has_includes().then(|| excludes.clone());
    let amendments = Amendments { excludes, ..options.amendments.clone() };
    amendments.apply(source, &opening.tree).map_err(amend_error)
}

/// Opens sources as layers over one another, step by step: a container image has the layers that it
/// was made of, each other source is one.
///
/// # Errors
/// As [`open_layers`]; [`ErrorKind::Usage`] for a source that is a partition or a snapshot beside
/// others, and for changes that need the whole tree.
pub fn open_steps(
    paths: &[PathBuf],
    options: &SourceOptions,
    purpose: Purpose,
) -> Result<Steps, Error> {
    if options.amendments.needs_whole() {
        let what = "manifests and tables of devices are for the whole tree, not for layers of ";
        return Err(Error::usage(Text::from(what).then(Term::Shared)));
    }
    refuse_whiteouts(paths, options)?;
    if let [path] = paths
        && (options.place.is_part() || names_snapshot(path))
    {
        let whole = open(path, options, purpose)?;
        return Ok(Steps { below: Vec::new(), whole, replaced_links: Vec::new() });
    }
    refuse_parts(paths, options)?;
    paths.iter().try_for_each(|path| look(path, purpose))?;
    refuse_tag(paths, options)?;
    let opening = opening(options, purpose)?;
    let steps = seekless_source::open_steps(paths, &opening).map_err(|error| match paths {
        [path] => failed_alone(path, &opening, error),
        _ => failed(error),
    })?;
    warn_of_replaced(&steps.replaced_links);
    let amended = |source| amended(source, options, &opening);
    let Steps { below, whole, replaced_links } = steps;
    let below = below.into_iter().map(amended).collect::<Result<_, _>>()?;
    Ok(Steps { below, whole: amended(whole)?, replaced_links })
}

/// Opens a container image, each of whose layers is a tree of its own.
///
/// # Errors
/// As [`open`]; [`ErrorKind::Usage`] for another source, and for changes to the whole tree;
/// [`ErrorKind::Unsupported`] for a layer with files that overlayfs takes for marks.
pub fn open_apart(
    path: &Path,
    options: &SourceOptions,
    whiteouts: oci::Whiteouts,
    purpose: Purpose,
) -> Result<oci::Apart, Error> {
    let is_amended = !options.amendments.is_empty() || options.excludes.has_includes();
    if is_amended || options.place.is_part() || names_snapshot(path) {
        let what = "layers are taken apart without changes to the whole tree, and not from a part";
        return Err(Error::usage(what).about(path.display()));
    }
    look(path, purpose)?;
    refuse_tag(&[path], options)?;
    let opening = opening(options, purpose)?;
    let opened = seekless_source::open_apart(path, &opening, whiteouts);
    opened.map_err(|error| match error {
        FsError::Invalid(_) => wrong(error),
        error => failed(error),
    })
}

/// Whether a source is a snapshot of an image.
fn names_snapshot(path: &Path) -> bool {
    !registries::is_name(path) && snapshot::split(path).is_some()
}

/// Refuses several sources one of which would be a part of a disk or a snapshot.
fn refuse_parts(paths: &[PathBuf], options: &SourceOptions) -> Result<(), Error> {
    if options.place.is_part() {
        let parameters = Text::from(Term::Partition).then(" and ").then(Term::Offset);
        return Err(Error::usage(parameters.then(" take one source")));
    }
    let own = paths.iter().filter(|path| !registries::is_name(path));
    match own.into_iter().find_map(|path| snapshot::split(path)) {
        Some((image, _)) => {
            Err(Error::usage("a snapshot is the only source").about(image.display()))
        }
        None => Ok(()),
    }
}

/// Refuses whiteouts of other sources than one archive, before any is opened.
fn refuse_whiteouts(paths: &[PathBuf], options: &SourceOptions) -> Result<(), Error> {
    let is_archive = |path: &PathBuf| {
        !registries::is_name(path) && !options.place.is_part() && !names_snapshot(path)
    };
    match paths {
        _ if options.whiteouts.is_none() => Ok(()),
        [path] if is_archive(path) => Ok(()),
        _ => Err(Error::usage("whiteouts are those of one source, the archive of a layer")),
    }
}

/// Refuses a tag where all sources are images of registries, before any is fetched.
fn refuse_tag(paths: &[impl AsRef<Path>], options: &SourceOptions) -> Result<(), Error> {
    let mut names = paths.iter().map(AsRef::as_ref);
    match (&options.tag, paths.first()) {
        (Some(tag), Some(first)) if names.all(registries::is_name) => {
            let name = first.as_ref().display();
            let form = "docker://HOST/NAME:TAG";
            let why = format!("{name}: its tag is a part of its name, so none is {tag}: {form}");
            Err(Error::usage(why))
        }
        _ => Ok(()),
    }
}

fn warn_of_replaced(links: &[ReplacedLink]) {
    for ReplacedLink { by, path } in links {
        let path = String::from_utf8_lossy(path);
        warn!("{by}: the directory /{path} replaces a symlink of an earlier source");
    }
}

/// Looks whether a device may change while it is read, and whether the name of an image is valid.
fn look(path: &Path, purpose: Purpose) -> Result<(), Error> {
    if let Some(name) = registries::name(path) {
        return name.map(|_| ());
    }
    match purpose {
        Purpose::Build { .. } => in_use::refuse(path),
        Purpose::List => {
            in_use::warn(path);
            Ok(())
        }
    }
}

/// Patterns of names to exclude: the lines of files, each as a .gitignore, and behind them others.
/// Files that match a pattern of `includes` are kept nevertheless. The files are read once: they may
/// be pipes. Warns of patterns that can match nothing.
///
/// # Errors
/// [`ErrorKind::System`] for a file that cannot be read.
pub fn excludes(
    files: &[PathBuf],
    lines: &[String],
    includes: &[String],
) -> Result<Excludes, Error> {
    let read = |path: &PathBuf| fs::read(path).map_err(|error| Error::io(path.display(), &error));
    let mut patterns = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    patterns.extend(lines.iter().map(|line| line.clone().into_bytes()));
    let excludes = Excludes::new(&patterns).except(includes);
    for text in excludes.idle() {
        warn!("{text}");
    }
    Ok(excludes)
}

/// Maps of owners, as rootless containers of a user have them: the user is root, and the ranges of
/// `subuid` and `subgid` in `dir` are the ids from 1 on (`subuid(5)`). The user is one of `passwd`
/// there.
///
/// # Errors
/// [`ErrorKind::Usage`] for an unknown user, or one without a range; [`ErrorKind::System`] for a
/// file that cannot be read.
pub fn maps_of_user(user: &str, dir: &Path) -> Result<(Vec<IdRange>, Vec<IdRange>), Error> {
    // Comments about users may be in any encoding.
    let read = |name: &str| {
        let path = dir.join(name);
        let text = fs::read(&path).map_err(|error| Error::io(path.display(), &error))?;
        Ok::<_, Error>(String::from_utf8_lossy(&text).into_owned())
    };
    let passwd = read("passwd")?;
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = users.find_map(|fields| match *fields.as_slice() {
        [name, _, uid, gid, ..] if name == user || uid == user => {
            Some((name.to_string(), uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?))
        }
        _ => None,
    });
    let unknown =
        || Error::usage(format!("{user}: not a user of {}", dir.join("passwd").display()));
    let (name, uid, gid) = found.ok_or_else(unknown)?;
    let map = |file: &str, own: u32| {
        let lines = read(file)?;
        let mut ranges = vec![IdRange::new(own, 0, 1)];
        let mut next = 1u32;
        for line in lines.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [owner, start, count] = *fields.as_slice() else { continue };
            if owner != name && owner != uid.to_string() {
                continue;
            }
            let numbers = start.parse().ok().zip(count.parse().ok());
            ranges.push(numbers.and_then(|(start, count)| IdRange::new(start, next, count)));
            next = next.saturating_add(count.parse().unwrap_or(0));
        }
        let path = dir.join(file);
        if ranges.len() < 2 {
            return Err(Error::usage(format!("{name}: has no range in {}", path.display())));
        }
        let wrong = || Error::usage(format!("{}: a wrong range of {name}", path.display()));
        ranges.into_iter().collect::<Option<Vec<_>>>().ok_or_else(wrong)
    };
    Ok((map("subuid", uid)?, map("subgid", gid)?))
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
        remote: Some(Arc::new(options.registries.clone())),
        whiteouts: options.whiteouts,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_root_and_its_ranges_follow() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let users = b"root:x:0:0::/:\nann:x:1000:100:\xc4nn:/:\nbob:x:1001:100::/:\n";
        fs::write(dir.path().join("passwd"), users).unwrap();
        put("subuid", "# comment\nbob:5:5\nann:100000:65536\n1000:300000:10\n");
        put("subgid", "ann:200000:65536\n");
        let (users, groups) = maps_of_user("ann", dir.path()).unwrap();
        let (users, groups) = (IdMap::new(users), IdMap::new(groups));
        for (id, wanted) in [(1000, 0), (100_000, 1), (165_535, 65_536), (300_009, 65_546)] {
            assert_eq!(users.map(id).unwrap(), wanted);
        }
        assert_eq!((groups.map(100).unwrap(), groups.map(200_001).unwrap()), (0, 2));
        assert!(users.map(0).is_err() && users.map(5).is_err() && groups.map(100_000).is_err());
        assert_eq!(maps_of_user("1000", dir.path()).unwrap().1.len(), 2);
        for user in ["bob", "none"] {
            assert_eq!(maps_of_user(user, dir.path()).unwrap_err().kind(), ErrorKind::Usage);
        }
        put("subgid", "ann:4294967295:65536\n");
        assert!(maps_of_user("ann", dir.path()).unwrap_err().to_string().contains("wrong range"));
    }
}
