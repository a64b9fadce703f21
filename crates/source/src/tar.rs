//! Archives of tar: v7, ustar, GNU and PAX.
//!
//! An archive is indexed by its headers; contents are read from it in place. A compressed archive,
//! or one that does not support seeking, is first unpacked into a temporary file without a name.
//!
//! Directories without an entry of their own get mode 0755, owner 0:0 and the time of the entry
//! that needed them; so does the root.

mod acl;
mod header;
mod members;
mod pax;
mod reader;
mod spool;
mod xz;

use crate::archive::{ArchiveSource, Contents, Layer};
use crate::options::TreeOptions;
use crate::unpack::Unpacker;
use reader::{Entry, Reader};
use seekless_fs::acl::{Acl, AclKind};
use seekless_fs::tree::{NewPayload, NodeAttr, OtherTimes};
use seekless_fs::{ArchiveFault, DeviceNumber, FileKind, FsError, Timestamp, Xattr};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

pub(crate) use members::{Member, members};
pub use spool::Compression;
pub(crate) use spool::{Spooled, spool, spool_section};

/// Opens an archive. Compression is detected by its magic number.
///
/// # Errors
/// [`FsError::Archive`] with the offset of the fault; [`FsError::Io`].
pub fn open(path: &Path, temp_dir: &Path, options: &TreeOptions) -> Result<ArchiveSource, FsError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| FsError::io(&name, error))?;
    from_file(file, name, temp_dir, options)
}

/// Opens an archive from a file that is already open, such as standard input. It is read from its
/// start if it supports seeking, else from the current position.
///
/// # Errors
/// As [`open`].
pub fn from_file(
    file: File,
    name: String,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<ArchiveSource, FsError> {
    let spooled = spool(file, &name, temp_dir)?;
    from_spooled(spooled, name, options, |_| true)
}

/// Opens an archive that can be read in place; `visit` takes the path of each entry and returns
/// whether to include it.
pub(crate) fn from_spooled(
    spooled: Spooled,
    name: String,
    options: &TreeOptions,
    visit: impl Fn(&[u8]) -> bool,
) -> Result<ArchiveSource, FsError> {
    let mut unpacker = Unpacker::new(options.clone());
    let mut contents = Contents::default();
    let layer = contents.add_archive(spooled, name)?;
    read_into(&mut unpacker, &mut contents, layer, Emptiness::Checked, visit)?;
    Ok(ArchiveSource::new(unpacker.finish()?, contents))
}

/// Whether the format of an archive without entries is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emptiness {
    /// It must be valid: otherwise another file was given by mistake.
    Checked,
    /// The file is already known to be an archive.
    Known,
}

/// Whether a file begins as an archive with at least one entry, sound or damaged.
pub(crate) fn begins_with_entry(archive: &Spooled, name: &str) -> Result<bool, FsError> {
    match Reader::new(&archive.file, archive.base, archive.len, name).begins_with_entry() {
        Err(FsError::Archive { .. }) => Ok(false),
        answer => answer,
    }
}

/// Visits the path of every entry of an archive.
pub(crate) fn paths(
    contents: &Contents,
    layer: Layer,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(), FsError> {
    let archive = contents.archive(layer);
    let mut reader = Reader::new(&archive.file, archive.base, archive.len, &archive.name);
    while let Some(entry) = reader.next()? {
        visit(&relative(&entry.path()).map_err(|fault| reader.error(entry.offset, fault))?);
    }
    Ok(())
}

/// Adds the entries of an archive whose path `wanted` accepts to a tree.
pub(crate) fn read_into(
    unpacker: &mut Unpacker,
    contents: &mut Contents,
    layer: Layer,
    emptiness: Emptiness,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(), FsError> {
    let archive = contents.archive(layer);
    let mut reader = Reader::new(&archive.file, archive.base, archive.len, &archive.name);
    if emptiness == Emptiness::Checked {
        reader.check_start()?;
    }
    unpacker.begin_archive();
    let mut sparse = Vec::new();
    let mut foreign = BTreeSet::new();
    while let Some(entry) = reader.next()? {
        let raw = entry.path();
        let path = relative(&raw).map_err(|fault| reader.error(entry.offset, fault))?;
        if !wanted(&path) {
            continue;
        }
        let key = match entry.sparse.clone() {
            Some((_, runs)) => {
                sparse.push((entry.data, runs));
                contents.sparse_key(sparse.len() - 1)
            }
            None => layer.key(entry.data),
        };
        if let Some(what) = unsupported_kind(entry.header().kind()) {
            return Err(reader.unsupported(entry.offset, &raw, &what));
        }
        let dropped = &unpacker.options().dropped;
        foreign.extend(foreign_names(&entry).filter(|name| !dropped.has(name.as_bytes())));
        add(unpacker, &entry, &path, raw.ends_with(b"/"), key).map_err(|error| match error {
            AddError::Fault(fault) => reader.error(entry.offset, fault.of_entry(&raw)),
            // Not a wrong option, which `Invalid` is for those that open archives.
            AddError::Fs(FsError::Invalid(why)) => reader.unsupported(entry.offset, &raw, &why),
            AddError::Fs(error) => error,
        })?;
    }
    if !foreign.is_empty() {
        let names = foreign.into_iter().collect::<Vec<_>>().join(", ");
        let name = &archive.name;
        let what = "extended attributes that no format can store are left out";
        unpacker.options().notices.tell(&format!("{name}: {what}: {names}"));
    }
    contents.add_sparse(layer, sparse);
    Ok(())
}

/// Names a type of entry that has no place in a tree; `None` for the others.
fn unsupported_kind(kind: u8) -> Option<String> {
    let known = match kind {
        b'0'..=b'7' | 0 | b'D' | b'S' => return None,
        b'A' => " (access control list of Solaris)",
        b'E' => " (extended attribute of Solaris)",
        b'I' => " (inode without contents, of star)",
        _ => "",
    };
    Some(format!("entry of type '{}'{known}", kind.escape_ascii()))
}

/// Names of an entry's extended attributes that neither Linux nor FreeBSD supports.
fn foreign_names(entry: &Entry) -> impl Iterator<Item = String> {
    let xattrs = entry.extra.xattrs.iter().filter(|xattr| !has_place(&xattr.name));
    let names = xattrs.map(|xattr| String::from_utf8_lossy(&xattr.name).into_owned());
    names.chain(entry.extra.has_nfs4_acl.then(|| "SCHILY.acl.ace".to_string()))
}

/// Whether a disk format can store an attribute of this name.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space))
        || matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Whether any format has a namespace for an attribute of this name: UFS stores all of `system`.
fn has_place(name: &[u8]) -> bool {
    is_kept(name) || name.starts_with(b"system.")
}

/// The reason why an entry could not be added to the tree.
pub(crate) enum AddError {
    /// A fault of the archive.
    Fault(ArchiveFault),
    /// Another error.
    Fs(FsError),
}

impl From<ArchiveFault> for AddError {
    fn from(fault: ArchiveFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<FsError> for AddError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

/// Normalizes a path within the archive: removes leading slashes and `.` components.
pub(crate) fn relative(path: &[u8]) -> Result<Vec<u8>, ArchiveFault> {
    let mut clean = Vec::with_capacity(path.len());
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => {
                return Err(ArchiveFault::Path(String::from_utf8_lossy(path).into_owned()));
            }
            _ => {}
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(component);
    }
    Ok(clean)
}

fn add(
    unpacker: &mut Unpacker,
    entry: &Entry,
    path: &[u8],
    is_dir_name: bool,
    key: u64,
) -> Result<(), AddError> {
    let header = entry.header();
    let link = || match &entry.extra.link_path {
        Some(link) => link.clone(),
        None => header.link_name().to_vec(),
    };
    let kind = match header.kind() {
        b'1' => return unpacker.link(path, &relative(&link())?, attr(entry, FileKind::Regular)?),
        b'0' | 0 | b'7' if is_dir_name => FileKind::Directory,
        b'0' | 0 | b'7' | b'S' => FileKind::Regular,
        b'2' => FileKind::Symlink,
        b'3' => FileKind::CharDevice,
        b'4' => FileKind::BlockDevice,
        b'5' | b'D' => FileKind::Directory,
        b'6' => FileKind::Fifo,
        other => {
            return Err(ArchiveFault::Other(unsupported_kind(other).unwrap_or_default()).into());
        }
    };
    let attr = attr(entry, kind)?;
    let xattrs = xattrs(entry, &attr)?;
    let target = link();
    let payload = match kind {
        FileKind::Regular => NewPayload::Content(key),
        FileKind::Symlink => NewPayload::Target(&target),
        FileKind::CharDevice | FileKind::BlockDevice => {
            let (major, minor) = header.device()?;
            NewPayload::Device(DeviceNumber { major, minor })
        }
        _ => NewPayload::None,
    };
    unpacker.add(path, attr, payload, xattrs)
}

/// An entry's attributes. The mode of a file with an ACL is derived from the ACL, as after an
/// extraction: otherwise the two would contradict each other in an image.
fn attr(entry: &Entry, kind: FileKind) -> Result<NodeAttr, ArchiveFault> {
    let attr = attr_of_header(entry, kind)?;
    if kind == FileKind::Symlink {
        // All systems use this mode, whatever the archive says.
        return Ok(NodeAttr { perm: 0o777, ..attr });
    }
    let access = AclKind::Access.name();
    let acl = xattrs(entry, &attr)?.into_iter().find(|xattr| xattr.name == access);
    let perm = match acl.map(|acl| Acl::parse(&acl.value)) {
        Some(Ok(Some(acl))) => acl.applied(attr.perm, true),
        _ => attr.perm,
    };
    Ok(NodeAttr { perm, ..attr })
}

fn attr_of_header(entry: &Entry, kind: FileKind) -> Result<NodeAttr, ArchiveFault> {
    let (header, extra) = (entry.header(), &entry.extra);
    let mtime = match extra.mtime {
        Some(mtime) => mtime,
        None => Timestamp { secs: header.mtime()?, nanos: 0 },
    };
    let others = [extra.atime, extra.ctime, extra.crtime];
    let times = others.iter().any(Option::is_some).then(|| {
        let [atime, ctime, crtime] = others.map(|time| time.unwrap_or(mtime));
        OtherTimes { atime, ctime, crtime }
    });
    Ok(NodeAttr {
        kind,
        perm: header.mode()?,
        uid: extra.uid.map_or_else(|| header.uid(), Ok)?,
        gid: extra.gid.map_or_else(|| header.gid(), Ok)?,
        size: entry.sparse.as_ref().map_or(entry.stored, |(real, _)| *real),
        mtime,
        times,
        flags: 0,
    })
}

fn xattrs(entry: &Entry, attr: &NodeAttr) -> Result<Vec<Xattr>, ArchiveFault> {
    let mut xattrs = entry.extra.xattrs.clone();
    xattrs.retain(|xattr| has_place(&xattr.name));
    let header = entry.header();
    let owner =
        acl::Owner { user: (header.user_name(), attr.uid), group: (header.group_name(), attr.gid) };
    for (name, text) in [
        (&b"system.posix_acl_access"[..], &entry.extra.acl_access),
        (b"system.posix_acl_default", &entry.extra.acl_default),
    ] {
        let Some(text) = text else { continue };
        if let Some(value) = acl::from_text(text, &owner)? {
            xattrs.retain(|xattr| xattr.name != name);
            xattrs.push(Xattr { name: name.to_vec(), value });
        }
    }
    // Symlinks have no lists, and only directories have default lists.
    xattrs.retain(|xattr| match AclKind::of(&xattr.name) {
        Some(AclKind::Access) => attr.kind != FileKind::Symlink,
        Some(AclKind::Default) => attr.kind == FileKind::Directory,
        None => true,
    });
    Ok(xattrs)
}
