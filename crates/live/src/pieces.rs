//! Operations on one file, checked before they are carried out. Those too large for one transaction
//! are done in several: each of them leaves a sound file system, and operations to be continued
//! after a crash are on a list of orphans.

use crate::features::OrphanList;
use crate::{Live, Named, Names};
use seekless_fs::field::{index, wide};
use seekless_fs::operate::SetAttr;
use seekless_fs::{Attr, FileKind, FsError};
use seekless_units::Ino;

/// Most bytes that one operation allocates, since formats without unwritten blocks keep as many zeros
/// in the cache until it ends.
const ALLOCATED_AT_ONCE: u64 = 8 << 20;

impl<F: Named> Live<F> {
    /// Ends an operation: actions made ready by it are done with it, and their changes are written
    /// with it.
    pub(crate) fn end_operation(&mut self) -> Result<(), FsError> {
        let mut done = self.run_actions();
        self.volume.core.settle_quotas();
        if self.volume.core.cache.is_journalled() {
            done = done.and_then(|()| self.volume.format.put_summaries(&mut self.volume.core));
            if let Err(error) = &done {
                // A part of it is missing.
                self.volume.core.cache.abort(&error.to_string());
            }
        }
        done.and_then(|()| self.volume.core.cache.end())
    }

    /// Whether an operation that has failed may be committed as far as it came: it has refused
    /// before it changed anything, or undone its changes.
    pub(crate) fn is_undone(&self, error: &FsError) -> bool {
        let met_on_the_way =
            matches!(error, FsError::Device(_) | FsError::Corrupt { .. } | FsError::Io { .. });
        !(met_on_the_way && self.volume.core.cache.operation_changed())
    }

    /// Cuts a file behind a length, but for the part that the operation under way has room for.
    /// Does nothing without a journal.
    pub(crate) fn cut_in_pieces(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        let mut listed = false;
        while let Some((list, core)) = self.volume.journalled_orphans() {
            let next = list.cut_at_once(core, ino, len)?;
            debug_assert!(next >= len, "it is cut to {len}, not to {next}");
            if next <= len {
                break;
            }
            if !listed {
                list.note_orphan(core, ino, true)?;
                listed = true;
            }
            list.cut_behind(core, ino, next)?;
            // The operation goes on as another: a crash may leave only its changes so far.
            self.end_operation()?;
            self.volume.core.cache.begin()?;
        }
        if listed && self.volume.node(ino)?.links > 0 {
            self.volume.note_orphan(ino, false)?;
        }
        Ok(())
    }

    /// Deletes or cuts the orphans of a crash: files without names, or being cut.
    pub(crate) fn clear_orphans(&mut self) -> Result<(), FsError> {
        let found = match self.volume.format.orphan_list() {
            Some(list) => list.orphans(&mut self.volume.core)?,
            None => Vec::new(),
        };
        for ino in found {
            let cleared = self.change(|live| {
                let node = live.volume.node(ino)?;
                let (links, size) = (node.links, node.size);
                if links == 0 {
                    return F::Names::destroy(live, ino);
                }
                live.cut_in_pieces(ino, size)?;
                live.volume.format.truncate(&mut live.volume.core, ino, size)?;
                live.volume.note_orphan(ino, false)
            });
            match cleared {
                // It stays on the list, for a check to decide.
                Err(FsError::Corrupt { .. }) if self.volume.core.cache.blocks().may_change() => {}
                cleared => cleared?,
            }
        }
        Ok(())
    }
}

/// Changes of a file's contents that may be too large for one operation.
pub(crate) struct Pieces<'a, F: Named> {
    live: &'a mut Live<F>,
}

impl<'a, F: Named> Pieces<'a, F> {
    pub(crate) fn of(live: &'a mut Live<F>) -> Self {
        Self { live }
    }
}

impl<F: Named> Pieces<'_, F> {
    /// Writes bytes in as many operations as that takes. Returns how many there was
    /// space for.
    pub(crate) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let most = index(self.piece()).max(1);
        let filled = self.fill_up_to(ino, offset, 1)?;
        let mut done = 0usize;
        // Where there was space for a part, more may be had for the rest: blocks given up, and not
        // free yet.
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + wide(done);
            let piece = rest.get(..most).unwrap_or(rest);
            let ready = self.live.before_write(ino, at, wide(piece.len()));
            match ready.and_then(|()| self.live.change(|live| live.write_file(ino, at, piece))) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => {
                    if let Some(size) = filled {
                        self.shorten(ino, size)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Lengthens a file to `len` in as many operations as that takes, where it has no holes and its
    /// zeros are too many for one; at least `more` bytes shall follow. Returns the length that it had
    /// then.
    pub(crate) fn fill_up_to(
        &mut self,
        ino: Ino,
        len: u64,
        more: u64,
    ) -> Result<Option<u64>, FsError> {
        let Some(most) = self.live.volume.format.longest_without_holes() else { return Ok(None) };
        let node = self.live.volume.named_node(ino)?;
        let size = node.size;
        // The operation itself refuses a file of another kind, and one that is too long.
        let can_be =
            node.kind == FileKind::Regular && most.checked_sub(len).is_some_and(|it| it >= more);
        if !can_be || len <= size + ALLOCATED_AT_ONCE {
            return Ok(None);
        }
        self.allocate(ino, size, len - size, false)?;
        Ok(Some(size))
    }

    /// Gives a file the length back that it had before it was lengthened.
    fn shorten(&mut self, ino: Ino, size: u64) -> Result<(), FsError> {
        self.live.change(|live| {
            live.cut_in_pieces(ino, size)?;
            live.volume.format.truncate(&mut live.volume.core, ino, size)
        })
    }

    /// As [`Format::allocate_range`], in as many operations as that takes.
    pub(crate) fn allocate(
        &mut self,
        ino: Ino,
        from: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let piece = self.piece().min(ALLOCATED_AT_ONCE);
        let most = self.live.volume.format.longest_without_holes().unwrap_or(u64::MAX);
        let end = from.checked_add(len).filter(|end| *end <= most);
        let Some(end) = end.filter(|_| len > piece) else {
            return self.live.change(|live| live.allocate_file(ino, from, len, keep_size));
        };
        let size = self.live.volume.named_node(ino)?.size;
        let mut at = from;
        while at < end {
            let len = (end - at).min(piece);
            let done = self.live.change(|live| live.allocate_file(ino, at, len, keep_size));
            if done.is_err() {
                if self.live.volume.node(ino)?.size > size {
                    self.shorten(ino, size)?;
                }
                return done;
            }
            at += len;
        }
        Ok(())
    }

    /// Bytes of a file that one operation writes at most.
    fn piece(&mut self) -> u64 {
        self.live.volume.journalled_orphans().map_or(u64::MAX, |(list, core)| list.piece(core))
    }
}

impl<F: Named> Live<F> {
    pub(crate) fn write_file(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let node = self.volume.named_node(ino)?;
        if node.kind == FileKind::Directory {
            return Err(FsError::IsDirectory(format!("inode {ino}")));
        }
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        if node.restrictions.append_only && offset != node.size {
            return Err(FsError::NotPermitted(format!("inode {ino} can only be appended to")));
        }
        self.volume.check_changeable(ino)?;
        let done = match self.volume.write_delayed(ino, offset, bytes)? {
            Some(done) => done,
            None => self.volume.format.write_bytes(&mut self.volume.core, ino, offset, bytes)?,
        };
        let now = self.volume.core.now();
        let node = self.volume.node(ino)?;
        (node.mtime, node.ctime) = (now, now);
        self.volume.format.put_attributes(&mut self.volume.core, ino)?;
        Ok(done)
    }

    pub(crate) fn change_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        self.volume.check_changeable(ino)?;
        if set.perm.is_some() || set.uid.is_some() || set.gid.is_some() {
            self.volume.check_settable(ino)?;
        }
        let set = self.volume.format.accepted(self.volume.core.node(ino)?, set)?;
        let node = self.volume.core.node(ino)?;
        let (uid, gid) = (set.uid.unwrap_or(node.uid), set.gid.unwrap_or(node.gid));
        if (uid, gid) != (node.uid, node.gid) {
            self.volume.core.admit_owner(ino, uid, gid)?;
        }
        let now = self.volume.core.now();
        if let Some(perm) = set.perm {
            self.volume.chmod_acl(ino, perm)?;
        }
        if let Some(size) = set.size {
            let node = self.volume.node(ino)?;
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
                self.volume.drop_delayed(ino);
                self.volume.note_emptied(ino)?;
            }
            if size <= self.volume.node(ino)?.size {
                self.cut_in_pieces(ino, size)?;
            }
            self.volume.format.truncate(&mut self.volume.core, ino, size)?;
            self.volume.node(ino)?.recorded = None;
            self.volume.node(ino)?.mtime = now;
        }
        let atime = set.atime.map(|time| self.volume.format.representable(time));
        let mtime = set.mtime.map(|time| self.volume.format.representable(time));
        let node = self.volume.node(ino)?;
        node.perm = set.perm.map_or(node.perm, |perm| perm & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = atime.unwrap_or(node.atime);
        node.mtime = mtime.unwrap_or(node.mtime);
        node.ctime = now;
        self.volume.format.put_attributes(&mut self.volume.core, ino)?;
        self.volume.shown(ino)
    }

    /// Sets flags of a file, which may be immutable.
    pub(crate) fn change_flags(&mut self, ino: Ino, flags: u32) -> Result<(), FsError> {
        let now = self.volume.core.now();
        let node = self.volume.named_node(ino)?;
        if node.restrictions.snapshot {
            return Err(FsError::NotPermitted(format!("inode {ino} is a snapshot")));
        }
        let kind = node.kind;
        let (shown, settable) = {
            let format = &self.volume.format;
            (format.shown_flags(self.volume.core.node(ino)?), format.settable_flags(kind))
        };
        let others = (shown ^ flags) & !settable;
        if others != 0 {
            return Err(FsError::Unsupported(format!("a change of the flags {others:#x}")));
        }
        self.volume.format.set_flags(self.volume.core.node(ino)?, flags);
        self.volume.core.node(ino)?.ctime = now;
        self.volume.format.put_attributes(&mut self.volume.core, ino)
    }

    pub(crate) fn allocate_file(
        &mut self,
        ino: Ino,
        from: u64,
        len: u64,
        keep: bool,
    ) -> Result<(), FsError> {
        let node = self.volume.named_node(ino)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        self.volume.check_changeable(ino)?;
        let end = from.checked_add(len);
        self.volume.format.allocate_range(&mut self.volume.core, ino, from, end, keep)?;
        self.volume.node(ino)?.mtime = self.volume.core.now();
        self.volume.touch(ino)
    }

    /// To be called before a name is given to a file in the place of another's: that
    /// file's contents are then not lost with a crash (`auto_da_alloc`).
    pub(crate) fn before_replacing(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
    ) -> Result<(), FsError> {
        if self.volume.core.delayed.is_empty() {
            return Ok(());
        }
        // The rename itself reports its errors.
        let Ok(Some(moved)) = F::Names::find(self, from.0, from.1) else { return Ok(()) };
        let replaces = matches!(F::Names::find(self, to.0, to.1), Ok(Some(_)));
        if replaces { self.write_back(moved, false) } else { Ok(()) }
    }
}
