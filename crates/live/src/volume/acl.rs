//! ACLs of a volume that stores them: each change keeps the list and the mode together, and
//! new files inherit the default list of their directory. Accesses are decided by the caller.

use crate::volume::Volume;
use crate::{Format, Linked};
use seekless_fs::acl::{Acl, AclKind};
use seekless_fs::field::{invalid, wide};
use seekless_fs::operate::{NewFile, XattrMode};
use seekless_fs::{FileKind, FsError, Location, Xattr};
use seekless_units::Ino;

/// The permissions and ACLs that a new file gets from its directory.
pub(crate) struct Inherited {
    /// Its permissions.
    pub(crate) perm: u16,
    /// Its lists, as extended attributes.
    pub(crate) lists: Vec<Xattr>,
}

fn xattr(kind: AclKind, acl: &Acl) -> Xattr {
    Xattr { name: kind.name().to_vec(), value: acl.encode() }
}

impl<F: Format> Volume<F> {
    /// A list of a file in memory, if it has one and the volume stores such.
    pub(crate) fn acl(&mut self, ino: Ino, kind: AclKind) -> Result<Option<Acl>, FsError> {
        if !self.format.keeps_acls() {
            return Ok(None);
        }
        let all = self.format.xattrs(&mut self.core, ino)?;
        let Some(stored) = all.iter().find(|xattr| xattr.name == kind.name()) else {
            return Ok(None);
        };
        // Stored lists should have been checked when they were stored.
        Acl::parse(&stored.value).map_err(|_| {
            let place = Location::of("ACL").in_inode(ino);
            invalid("a_entries", wide(stored.value.len()), place)
        })
    }

    /// Sets a list of a file or, without a value, removes it. A list that the mode can say is
    /// not stored. `keeps_setgid` as for [`Acl::applied`].
    pub(crate) fn put_acl(
        &mut self,
        ino: Ino,
        kind: AclKind,
        value: Option<&[u8]>,
        mode: XattrMode,
        keeps_setgid: bool,
    ) -> Result<(), FsError> {
        if !self.format.keeps_acls() {
            return Err(FsError::Unsupported("ACLs on this volume".into()));
        }
        self.check_settable(ino)?;
        let node = self.core.node(ino)?;
        let (file, mut perm) = (node.kind, node.perm);
        if file == FileKind::Symlink {
            return Err(FsError::Unsupported("ACLs of symlinks".into()));
        }
        let acl = value.map(Acl::parse).transpose()?.flatten();
        if kind == AclKind::Default && file != FileKind::Directory && acl.is_some() {
            return Err(FsError::NotPermitted(format!("inode {ino} is not a directory")));
        }
        let shown = || String::from_utf8_lossy(kind.name()).into_owned();
        let all = self.format.xattrs(&mut self.core, ino)?;
        match (all.iter().any(|xattr| xattr.name == kind.name()), mode) {
            (true, XattrMode::Create) => return Err(FsError::Exists(shown())),
            (false, XattrMode::Replace) => return Err(FsError::NoAttribute(shown())),
            // Unlike other attributes, a list that is not there can be removed (`set_posix_acl`).
            (false, _) if value.is_none() => return Ok(()),
            (there, _) => {
                if let (AclKind::Access, Some(acl)) = (kind, &acl) {
                    perm = acl.applied(perm, keeps_setgid);
                }
                let said = |acl: &Acl| kind == AclKind::Access && acl.is_minimal();
                let stored = acl.filter(|acl| !said(acl));
                if there || stored.is_some() {
                    self.store_acl(ino, kind, stored.as_ref())?;
                }
            }
        }
        self.core.node(ino)?.perm = perm;
        self.touch(ino)
    }

    fn store_acl(&mut self, ino: Ino, kind: AclKind, acl: Option<&Acl>) -> Result<(), FsError> {
        let value = acl.map(Acl::encode);
        let value = value.as_deref();
        self.format.set_xattr(&mut self.core, ino, kind.name(), value, XattrMode::Any)
    }

    /// Gives the access list of a file the permissions that its mode is about to get.
    pub(crate) fn chmod_acl(&mut self, ino: Ino, perm: u16) -> Result<(), FsError> {
        if self.format.acls_follow_modes() {
            return Ok(());
        }
        let Some(old) = self.acl(ino, AclKind::Access)? else { return Ok(()) };
        let mut new = old.clone();
        new.chmod(perm);
        if new.is_minimal() {
            return self.store_acl(ino, AclKind::Access, None);
        }
        if new == old {
            return Ok(());
        }
        self.store_acl(ino, AclKind::Access, Some(&new))
    }
}

impl<F: Linked> Volume<F> {
    /// The permissions and ACLs that a new file inherits, of requested permissions `perm`.
    pub(crate) fn inherited(
        &mut self,
        dir: Ino,
        new: &NewFile<'_>,
        perm: u16,
    ) -> Result<Inherited, FsError> {
        let default = match new {
            NewFile::Symlink(_) => None,
            _ => self.acl(dir, AclKind::Default)?,
        };
        let Some(default) = default else { return Ok(Inherited { perm, lists: Vec::new() }) };
        let (access, perm) = default.inherited(perm);
        let mut lists = Vec::new();
        if !access.is_minimal() {
            lists.push(xattr(AclKind::Access, &access));
        }
        if matches!(new, NewFile::Directory) {
            lists.push(xattr(AclKind::Default, &default));
        }
        Ok(Inherited { perm, lists })
    }
}
