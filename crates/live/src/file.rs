//! Operations on one file, checked before they are carried out.

use crate::{Format, Live};
use seekless_fs::operate::SetAttr;
use seekless_fs::{Attr, FileKind, FsError};
use seekless_units::Ino;

impl<F: Format> Live<F> {
    pub(crate) fn write_file(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let node = self.named_node(ino)?;
        if node.kind == FileKind::Directory {
            return Err(FsError::IsDirectory(format!("inode {ino}")));
        }
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        if node.restrictions.append_only && offset != node.size {
            return Err(FsError::NotPermitted(format!("inode {ino} can only be appended to")));
        }
        self.check_changeable(ino)?;
        let done = match self.write_delayed(ino, offset, bytes)? {
            Some(done) => done,
            None => self.format.write_bytes(&mut self.core, ino, offset, bytes)?,
        };
        let now = self.core.now();
        let node = self.node(ino)?;
        (node.mtime, node.ctime) = (now, now);
        self.format.put_attributes(&mut self.core, ino)?;
        Ok(done)
    }

    pub(crate) fn change_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        self.check_changeable(ino)?;
        let set = self.format.accepted(self.core.node(ino)?, set)?;
        let now = self.core.now();
        if let Some(perm) = set.perm {
            self.chmod_acl(ino, perm)?;
        }
        if let Some(size) = set.size {
            let node = self.node(ino)?;
            match node.kind {
                FileKind::Regular if node.restrictions.append_only => {
                    return Err(FsError::NotPermitted(format!("inode {ino} can only grow")));
                }
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsDirectory(format!("inode {ino}"))),
                _ => {
                    return Err(FsError::Invalid(format!(
                        "the length of inode {ino} cannot be changed"
                    )));
                }
            }
            // Else it has its place by now.
            if size == 0 {
                self.drop_delayed(ino);
                self.note_emptied(ino)?;
            }
            if size <= self.node(ino)?.size {
                self.cut_in_pieces(ino, size)?;
            }
            self.format.truncate(&mut self.core, ino, size)?;
            self.node(ino)?.recorded = None;
            self.node(ino)?.mtime = now;
        }
        let atime = set.atime.map(|time| self.format.representable(time));
        let mtime = set.mtime.map(|time| self.format.representable(time));
        let node = self.node(ino)?;
        node.perm = set.perm.map_or(node.perm, |perm| perm & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = atime.unwrap_or(node.atime);
        node.mtime = mtime.unwrap_or(node.mtime);
        node.ctime = now;
        self.format.put_attributes(&mut self.core, ino)?;
        self.shown(ino)
    }

    pub(crate) fn allocate_file(
        &mut self,
        ino: Ino,
        from: u64,
        len: u64,
        keep: bool,
    ) -> Result<(), FsError> {
        let node = self.named_node(ino)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        self.check_changeable(ino)?;
        let end = from.checked_add(len);
        self.format.allocate_range(&mut self.core, ino, from, end, keep)?;
        self.touch(ino)
    }

    /// An inode has changed.
    pub(crate) fn touch(&mut self, ino: Ino) -> Result<(), FsError> {
        let now = self.core.now();
        self.node(ino)?.ctime = now;
        self.format.put_attributes(&mut self.core, ino)
    }

    /// Whether a file may not be changed.
    pub(crate) fn check_changeable(&mut self, ino: Ino) -> Result<(), FsError> {
        if self.named_node(ino)?.restrictions.keep_it_as_it_is() {
            return Err(FsError::NotPermitted(format!("inode {ino} is immutable")));
        }
        Ok(())
    }
}
