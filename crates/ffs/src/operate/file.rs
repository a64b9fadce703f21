//! Operations on one file, checked before they are carried out.

use super::FfsLive;
use super::node::flag;
use crate::superblock::Format;
use seekless_fs::operate::SetAttr;
use seekless_fs::{Attr, FileKind, FsError, Timestamp};
use seekless_units::Ino;

impl FfsLive {
    pub(super) fn write_file(
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
        if node.is(flag::APPEND) && offset != node.size {
            return Err(FsError::NotPermitted(format!("inode {ino} can only be appended to")));
        }
        self.check_changeable(ino)?;
        let done = self.write_bytes(ino, offset, bytes)?;
        let now = self.now();
        let node = self.node(ino)?;
        (node.mtime, node.ctime) = (now, now);
        self.put_attributes(ino)?;
        Ok(done)
    }

    pub(super) fn change_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        self.check_changeable(ino)?;
        let now = self.now();
        if let Some(size) = set.size {
            let node = self.node(ino)?;
            match node.kind {
                FileKind::Regular if node.is(flag::APPEND) => {
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
            self.truncate(ino, size)?;
            self.node(ino)?.mtime = now;
        }
        let early = self.sb.format == Format::Ufs1;
        let node = self.node(ino)?;
        node.perm = set.perm.map_or(node.perm, |perm| perm & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.map_or(node.atime, |time| representable(time, early));
        node.mtime = set.mtime.map_or(node.mtime, |time| representable(time, early));
        node.ctime = now;
        let attr = node.attr();
        self.put_attributes(ino)?;
        Ok(attr)
    }

    pub(super) fn allocate_file(
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
        let size = node.size;
        self.check_changeable(ino)?;
        let end = self.check_len(ino, from.checked_add(len))?;
        if keep && end > size {
            return Err(FsError::Unsupported("allocating space beyond the end of a file".into()));
        }
        if let Err(error) = self.allocate_range(ino, from, end) {
            if self.node(ino)?.size > size {
                self.shrink(ino, size)?;
            }
            return Err(error);
        }
        self.touch(ino)
    }
}

/// A time as the format can keep it: UFS1 counts seconds in 32 bits.
fn representable(time: Timestamp, early: bool) -> Timestamp {
    let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
    if early { Timestamp { secs: time.secs.clamp(low, high), ..time } } else { time }
}
