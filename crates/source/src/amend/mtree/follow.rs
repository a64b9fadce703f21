//! A tree changed as a manifest says.

use super::keywords::Keywords;
use super::{Manifest, ManifestEntry};
use crate::amend::AmendError;
use crate::amend::edit::{Edit, Kept, NewContent};
use crate::amend::extra::mtime_of;
use crate::amend::owners::Owners;
use crate::list::{self, ListError, shown};
use crate::options::Notices;
use crate::tar::AddError;
use seekless_fs::tree::{NewPayload, Node, NodeAttr, NodeId, Payload};
use seekless_fs::{DeviceNumber, FileKind, FsError};
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where files that the tree lacks come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ManifestRole {
    /// The manifest gives attributes to the files of a source, and names files that need no
    /// contents.
    #[default]
    Attributes,
    /// The same, and files that it does not list are left out.
    Selection,
    /// There is no source: contents, and attributes that the manifest lacks, are those of the path
    /// on the host.
    Whole,
}

impl Manifest {
    /// Changes a tree.
    pub(in crate::amend) fn apply(
        &self,
        edit: &mut Edit,
        role: ManifestRole,
        notices: Notices,
    ) -> Result<(), AmendError> {
        if !self.idle.is_empty() {
            let names: Vec<&str> = self.idle.iter().map(String::as_str).collect();
            let path = self.path.display();
            notices.tell(&format!("{path}: keywords without effect: {}", names.join(", ")));
        }
        let owners = match role {
            ManifestRole::Whole => self.listed_owners(),
            _ => Owners::of(edit)?,
        };
        let (first, mut kept) = (HashMap::new(), Kept::default());
        let mut following = Following { manifest: self, edit, owners, role, first };
        for entry in &self.entries {
            let refused = |why: String| ListError::line(&self.path, entry.line, why);
            let followed = following.entry(entry);
            if role == ManifestRole::Selection {
                following.edit.keep(&entry.path, &mut kept);
            }
            followed.map_err(|fault| match fault {
                EntryFault::Refused(why) => {
                    refused(format!("{}: {why}", path_shown(&entry.path))).into()
                }
                EntryFault::Add(AddError::Fault(fault)) => refused(fault.to_string()).into(),
                // A name or target that no tree can have.
                EntryFault::Add(AddError::Fs(FsError::Invalid(why))) => refused(why).into(),
                EntryFault::Add(AddError::Fs(error)) => AmendError::from(error),
            })?;
        }
        if role == ManifestRole::Selection {
            edit.keep_only(&kept);
        }
        Ok(())
    }

    /// The owners of a tree that has no source: those of the host's files that become its
    /// `/etc/passwd` and `/etc/group`. A file that cannot be read is an error of its own entry.
    fn listed_owners(&self) -> Owners {
        let file = |path: &[u8]| {
            let entry = self.entries.iter().find(|entry| entry.path == path)?;
            Some(os_path(entry.keywords.contents.as_deref().unwrap_or(path)))
        };
        Owners::of_files(file(b"etc/passwd").as_deref(), file(b"etc/group").as_deref())
    }
}

/// A manifest that is being followed.
struct Following<'a> {
    manifest: &'a Manifest,
    edit: &'a mut Edit,
    owners: Owners,
    role: ManifestRole,
    /// The first path of each file that has a device and an inode number.
    first: HashMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
}

/// The reason why an entry cannot be followed.
enum EntryFault {
    Refused(String),
    Add(AddError),
}

impl From<AddError> for EntryFault {
    fn from(error: AddError) -> Self {
        Self::Add(error)
    }
}

impl From<FsError> for EntryFault {
    fn from(error: FsError) -> Self {
        Self::Add(error.into())
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, EntryFault> {
    Err(EntryFault::Refused(why.into()))
}

impl Following<'_> {
    fn entry(&mut self, entry: &ManifestEntry) -> Result<(), EntryFault> {
        let ManifestEntry { path, keywords, .. } = entry;
        let found = if path.is_empty() { Some(NodeId::ROOT) } else { self.edit.find(path)? };
        if keywords.is_unchanged {
            return if found.is_some() || keywords.is_optional {
                Ok(())
            } else {
                refused("is missing")
            };
        }
        if self.is_link(entry, found)? {
            return Ok(());
        }
        let host = match self.role {
            ManifestRole::Whole => fs::symlink_metadata(os_path(path)).ok(),
            _ => None,
        };
        let kind = match (keywords.kind, found, &host) {
            (Some(kind), ..) => kind,
            (None, Some(node), _) => self.edit.node(node).kind,
            (None, None, Some(host)) => kind_of(host).ok_or_else(|| {
                EntryFault::Refused("a file of an unknown type on the host".into())
            })?,
            (None, None, None) => FileKind::Regular,
        };
        if let Some(node) = found {
            let there = self.edit.node(node).kind;
            if there != kind {
                let why = format!("is a {}, not a {}", name_of(there), name_of(kind));
                return refused(why);
            }
        }
        let base = match (found, &host) {
            (Some(node), _) => self.edit.attr(node),
            (None, host) => {
                self.new_attr(kind, host.as_ref().filter(|it| kind_of(it) == Some(kind)))
            }
        };
        let attr = self.with_keywords(base, keywords)?;
        let is_missing = match kind {
            FileKind::Regular => self.regular(path, keywords, found, attr)?,
            FileKind::Symlink => self.symlink(path, keywords, found, attr)?,
            FileKind::CharDevice | FileKind::BlockDevice => {
                self.device(path, keywords, found, attr, host.as_ref())?
            }
            FileKind::Directory | FileKind::Fifo | FileKind::Socket => {
                match found {
                    Some(node) => self.edit.set_attr(node, attr)?,
                    None => self.edit.add(path, attr, NewPayload::None)?,
                }
                false
            }
        };
        if is_missing {
            return if keywords.is_optional { Ok(()) } else { refused("is missing") };
        }
        self.finish(path, keywords)
    }

    /// Makes an entry that is another name of a file that name.
    fn is_link(
        &mut self,
        entry: &ManifestEntry,
        found: Option<NodeId>,
    ) -> Result<bool, EntryFault> {
        let ManifestEntry { path, keywords, .. } = entry;
        if let Some(target) = &keywords.hardlink {
            let target = list::path_of(&[target]).map_err(EntryFault::Refused)?;
            if target != *path && (found.is_none() || self.edit.find(&target)? != found) {
                self.edit.link(path, &target)?;
            }
            return Ok(target != *path);
        }
        let (Some(device), Some(inode)) = (&keywords.resdevice, &keywords.inode) else {
            return Ok(false);
        };
        // The source knows better which names are of one file.
        let is_file = keywords.kind.is_none_or(|kind| kind == FileKind::Regular);
        if self.role != ManifestRole::Whole || !is_file {
            return Ok(false);
        }
        match self.first.get(&(device.clone(), inode.clone())) {
            Some(first) if first != path => {
                self.edit.link(path, first)?;
                Ok(true)
            }
            _ => {
                self.first.insert((device.clone(), inode.clone()), path.clone());
                Ok(false)
            }
        }
    }

    /// Attributes of a file that the tree lacks.
    fn new_attr(&self, kind: FileKind, host: Option<&Metadata>) -> NodeAttr {
        let (perm, uid, gid, mtime) = match host {
            Some(host) => (perm_of(host), host.uid(), host.gid(), mtime_of(host)),
            None => {
                let perm = match kind {
                    FileKind::Directory => 0o755,
                    FileKind::Symlink => 0o777,
                    _ => 0o644,
                };
                (perm, 0, 0, self.manifest.mtime)
            }
        };
        NodeAttr { kind, perm, uid, gid, size: 0, mtime, times: None, flags: 0 }
    }

    fn with_keywords(&self, base: NodeAttr, keywords: &Keywords) -> Result<NodeAttr, EntryFault> {
        let Keywords { uid, gid, uname, gname, .. } = keywords;
        let uid = match (uid, uname) {
            (Some(uid), _) => *uid,
            (None, Some(name)) => self.owners.user(name).map_err(EntryFault::Refused)?,
            (None, None) => base.uid,
        };
        let gid = match (gid, gname) {
            (Some(gid), _) => *gid,
            (None, Some(name)) => self.owners.group(name).map_err(EntryFault::Refused)?,
            (None, None) => base.gid,
        };
        Ok(NodeAttr {
            perm: keywords.perm.unwrap_or(base.perm),
            uid,
            gid,
            mtime: keywords.time.unwrap_or(base.mtime),
            // All times of a file of a manifest are its own.
            times: base.times.filter(|_| keywords.time.is_none()),
            flags: keywords.flags.unwrap_or(base.flags),
            ..base
        })
    }

    /// Adds or changes a regular file. Returns whether it is missing.
    fn regular(
        &mut self,
        path: &[u8],
        keywords: &Keywords,
        found: Option<NodeId>,
        attr: NodeAttr,
    ) -> Result<bool, EntryFault> {
        let host = match (&keywords.contents, found) {
            (Some(contents), _) => os_path(contents),
            (None, Some(node)) => {
                self.edit.set_attr(node, attr)?;
                return Ok(false);
            }
            (None, None) if self.role == ManifestRole::Whole => os_path(path),
            (None, None) => return Ok(true),
        };
        let metadata = match fs::metadata(&host) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return refused(format!("{} is not a regular file", host.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if keywords.is_optional {
                    return Ok(true);
                }
                return refused(format!("its contents, {}, are missing", host.display()));
            }
            Err(error) => return refused(format!("{}: {error}", host.display())),
        };
        // Without a source, attributes that the manifest lacks are those of the contents.
        let base = self.new_attr(FileKind::Regular, Some(&metadata));
        let attr = match found {
            Some(_) => attr,
            None => self.with_keywords(base, keywords)?,
        };
        let attr = NodeAttr { size: metadata.len(), ..attr };
        self.edit.add_file(path, attr, NewContent::Host(&host, &metadata))?;
        Ok(false)
    }

    fn symlink(
        &mut self,
        path: &[u8],
        keywords: &Keywords,
        found: Option<NodeId>,
        attr: NodeAttr,
    ) -> Result<bool, EntryFault> {
        let on_host = || match self.role {
            ManifestRole::Whole => fs::read_link(os_path(path)).ok(),
            _ => None,
        };
        let target = match (&keywords.link, found) {
            (Some(target), Some(node)) if self.edit.target(node) == *target => {
                self.edit.set_attr(node, attr)?;
                return Ok(false);
            }
            (Some(target), _) => target.clone(),
            (None, Some(node)) => {
                self.edit.set_attr(node, attr)?;
                return Ok(false);
            }
            (None, None) => match on_host() {
                Some(target) => target.as_os_str().as_bytes().to_vec(),
                None => return refused("a symlink needs link="),
            },
        };
        self.edit.add(path, attr, NewPayload::Target(&target))?;
        Ok(false)
    }

    fn device(
        &mut self,
        path: &[u8],
        keywords: &Keywords,
        found: Option<NodeId>,
        attr: NodeAttr,
        host: Option<&Metadata>,
    ) -> Result<bool, EntryFault> {
        let on_host =
            host.filter(|host| kind_of(host) == Some(attr.kind)).map(|host| DeviceNumber {
                major: rustix::fs::major(host.rdev()),
                minor: rustix::fs::minor(host.rdev()),
            });
        match (keywords.device.or(on_host), found) {
            (Some(number), _) => self.edit.add(path, attr, NewPayload::Device(number))?,
            (None, Some(node)) => self.edit.set_attr(node, attr)?,
            (None, None) => return refused("a device needs device="),
        }
        Ok(false)
    }

    /// Sets extended attributes, and compares size and digests.
    fn finish(&mut self, path: &[u8], keywords: &Keywords) -> Result<(), EntryFault> {
        let node = if path.is_empty() { Some(NodeId::ROOT) } else { self.edit.find(path)? };
        let Some(node) = node else { return refused("is missing") };
        for xattr in &keywords.xattrs {
            self.edit.set_xattr(node, xattr.clone())?;
        }
        let Node { payload, size, .. } = self.edit.node(node);
        if !matches!(payload, Payload::Content(_)) {
            return Ok(());
        }
        if let Some(wanted) = keywords.size.filter(|wanted| *wanted != size) {
            return refused(format!("has {size} bytes, not {wanted}"));
        }
        for digest in &keywords.digests {
            let is_right =
                self.edit.with_content(payload, |source, node| digest.is_of(source, node, size));
            if !is_right? {
                return refused(format!("its contents do not have this {}", digest.name()));
            }
        }
        Ok(())
    }
}

fn path_shown(path: &[u8]) -> String {
    if path.is_empty() { ".".into() } else { shown(path) }
}

pub(super) fn os_path(path: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf()
}

fn kind_of(found: &Metadata) -> Option<FileKind> {
    u16::try_from(found.mode() & 0o170_000).ok().and_then(FileKind::from_mode)
}

fn perm_of(found: &Metadata) -> u16 {
    u16::try_from(found.mode() & 0o7777).unwrap_or_default()
}

fn name_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "pipe",
        FileKind::Socket => "socket",
    }
}
