//! Operations on a file system in use.

use crate::pieces::Pieces;
use crate::quota_files::{write_quotas, write_quotas_for, write_quotas_when_due};
use crate::trim::trim_some;
use crate::{Live, Named, Names};
use seekless_cache::{CommitWork, Commits};
use seekless_fs::acl::AclKind;
use seekless_fs::field::{index, wide};
use seekless_fs::operate::{
    Begun, FsyncParts, NewFile, Operate, Ownership, RenameMode, SetAttr, StatVfs, Trim, Work,
    XattrMode,
};
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{Attr, DirEntry, FileKind, FsError, Mapping, Xattr};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;

impl<F: Named> Operate for Live<F> {
    fn root(&self) -> Ino {
        self.volume.format.limits().root
    }

    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.volume.drop_nodes();
        F::Names::find(self, dir, name)
    }

    fn attr(&mut self, ino: Ino) -> Result<Attr, FsError> {
        self.volume.drop_nodes();
        self.volume.named_node(ino)?;
        self.volume.shown(ino)
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        if set.size.is_some_and(|size| size > 0) {
            self.write_back(ino, false)?;
        }
        if let Some(size) = set.size {
            Pieces::of(self).fill_up_to(ino, size, 0)?;
        }
        self.change(|live| live.change_attr(ino, set))
    }

    fn file_flags(&mut self, ino: Ino) -> Result<u32, FsError> {
        let node = self.volume.named_node(ino)?;
        let kind = node.kind;
        if self.volume.format.settable_flags(kind) == 0 {
            return Err(FsError::Unsupported("flags of files".into()));
        }
        Ok(self.volume.shown(ino)?.flags)
    }

    fn set_file_flags(&mut self, ino: Ino, flags: u32) -> Result<(), FsError> {
        self.change(|live| live.change_flags(ino, flags))
    }

    fn take_snapshot(&mut self, ino: Ino) -> Result<(), FsError> {
        self.volume.check_open()?;
        let taken = F::take_snapshot(self, ino);
        self.volume.noted(taken)
    }

    fn release_snapshot(&mut self, ino: Ino) -> Result<(), FsError> {
        self.volume.check_open()?;
        let released = F::release_snapshot(self, ino);
        self.volume.noted(released)
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotFile>, FsError> {
        F::snapshots(self)
    }

    fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: NewFile<'_>,
        owner: Ownership,
    ) -> Result<Attr, FsError> {
        let ino = self.change(|live| F::Names::make(live, dir, name, &new, owner))?;
        self.attr(ino)
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, FsError> {
        self.change(|live| F::Names::link(live, ino, dir, name))?;
        self.attr(ino)
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| F::Names::unlink(live, dir, name))
    }

    fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| F::Names::rmdir(live, dir, name))
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FsError> {
        if mode == RenameMode::Replace {
            self.before_replacing(from, to)?;
        }
        self.change(|live| F::Names::rename(live, from, to, mode))
    }

    fn read(&mut self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let node = self.volume.named_node(ino)?;
        match node.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory(format!("inode {ino}"))),
            _ => return Err(FsError::Invalid(format!("inode {ino} is not a regular file"))),
        }
        let is_snapshot = node.restrictions.snapshot;
        let left = node.size.saturating_sub(offset.get());
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        match is_snapshot {
            true => self.volume.format.read_snapshot(ino, offset, buf)?,
            false => self.volume.read_bytes(ino, offset.get(), buf)?,
        }
        Ok(len)
    }

    fn write(&mut self, ino: Ino, offset: ByteLen, bytes: &[u8]) -> Result<usize, FsError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(wide(bytes.len()));
        end.ok_or_else(|| FsError::TooLarge(format!("inode {ino}")))?;
        Pieces::of(self).write(ino, offset.get(), bytes)
    }

    fn allocate(
        &mut self,
        ino: Ino,
        offset: ByteLen,
        len: ByteLen,
        keep_size: bool,
    ) -> Result<(), FsError> {
        self.write_back(ino, true)?;
        Pieces::of(self).allocate(ino, offset.get(), len.get(), keep_size)
    }

    fn data_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        self.volume.drop_nodes();
        if self.volume.named_node(ino)?.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        self.write_back(ino, false)?;
        self.volume.format.mapped_runs(&mut self.volume.core, ino)
    }

    fn read_dir(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        F::Names::list(self, dir, after, visit)
    }

    fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let bsize = u64::from(self.volume.format.limits().block);
        let node = self.volume.named_node(ino)?;
        if node.kind != FileKind::Symlink {
            return Err(FsError::Invalid(format!("inode {ino} is not a symlink")));
        }
        if let Some(target) = &node.target {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; index(node.size.min(bsize))];
        self.volume.read_bytes(ino, 0, &mut target)?;
        Ok(target)
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.volume.named_node(ino)?;
        self.volume.format.xattrs(&mut self.volume.core, ino)
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        self.change(|live| live.put_xattr(ino, name, Some(value), mode))
    }

    fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(|live| live.put_xattr(ino, name, None, XattrMode::Any))
    }

    fn ignored_features(&self) -> Vec<&'static str> {
        self.volume.format.ignored_features()
    }

    fn take_rewritten(&mut self) -> Vec<Ino> {
        self.volume.core.take_rewritten()
    }

    fn stale_quota_files(&mut self) -> Result<Vec<&'static str>, FsError> {
        let root = self.root();
        let mut stale = Vec::new();
        for &name in self.volume.format.quota_names() {
            if let Some(ino) = self.lookup(root, name.as_bytes())?
                && !self.volume.core.is_quota_file(ino)
            {
                stale.push(name);
            }
        }
        Ok(stale)
    }

    fn keeps_acls(&self) -> bool {
        self.volume.format.keeps_acls()
    }

    fn has_default_acl(&mut self, dir: Ino) -> Result<bool, FsError> {
        self.volume.dir_node(dir)?;
        Ok(self.volume.acl(dir, AclKind::Default)?.is_some())
    }

    fn set_acl(
        &mut self,
        ino: Ino,
        kind: AclKind,
        value: Option<&[u8]>,
        keeps_setgid: bool,
    ) -> Result<(), FsError> {
        self.change(|live| live.volume.put_acl(ino, kind, value, XattrMode::Any, keeps_setgid))
    }

    fn hold(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.volume.named_node(ino)?;
        node.holds += 1;
        Ok(())
    }

    fn release(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.volume.node(ino)?;
        debug_assert!(node.holds > 0, "inode {ino} is released and not held");
        node.holds -= 1;
        if node.holds > 0 {
            return Ok(());
        }
        self.volume.format.released(ino);
        let node = self.volume.node(ino)?;
        if node.effective > 0 {
            let was_emptied = node.was_emptied;
            return if was_emptied { self.write_back(ino, false) } else { Ok(()) };
        }
        if node.links > 0 {
            self.volume.count_free(ino);
            return Ok(());
        }
        self.change(|live| F::Names::destroy(live, ino))
    }

    fn fsync(&mut self, ino: Ino) -> Result<(), FsError> {
        write_quotas_for(self, ino)?;
        let done = self.make_durable(ino);
        self.volume.noted(done)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        // Everything else is written all the same.
        let quotas = write_quotas(self);
        let done =
            self.write_everything().and_then(|()| self.volume.core.cache.blocks_mut().flush());
        self.volume.noted(done).and(quotas)
    }

    fn tick(&mut self) -> Result<(), FsError> {
        let done = self.volume.core.cache.tick().and_then(|()| self.run_actions());
        self.volume.noted(done)?;
        // Everything else is written all the same.
        let quotas = write_quotas_when_due(self);
        self.write_back_expired().and(quotas)
    }

    fn discard_some(&mut self) -> Result<bool, FsError> {
        if self.volume.is_closed() || self.volume.has_failed() {
            return Ok(false);
        }
        self.discard_next()
    }

    fn trim_some(&mut self, trim: &mut Trim) -> Result<bool, FsError> {
        self.volume.check_open()?;
        let done = trim_some(self, trim);
        self.volume.noted(done)
    }

    fn leave_work(&mut self) {
        self.volume.core.cache.transactions().set_commits(Commits::Apart);
    }

    fn work(&mut self) -> Result<Option<Work>, FsError> {
        if let Some(work) = self.volume.core.cache.transactions().commit_work()? {
            return Ok(Some(boxed(work)));
        }
        Ok(self.volume.core.cache.blocks_mut().due_flush_work()?.map(boxed))
    }

    fn fsync_part(&mut self, ino: Ino, parts: &mut FsyncParts) -> Result<Option<Work>, FsError> {
        if parts.passes == 0 {
            write_quotas_for(self, ino)?;
        }
        let done = self.make_durable_apart(ino, parts);
        Ok(self.volume.noted(done)?.map(boxed))
    }

    fn start_fsync(&mut self, ino: Ino) -> Result<Option<Begun>, FsError> {
        if !self.volume.core.cache.leaves_commits() {
            return Ok(None);
        }
        let awaits = self.awaits_commit(ino);
        let awaits = self.volume.noted(awaits)?;
        Ok(self.volume.core.cache.last_uncommitted().filter(|_| awaits).map(Begun))
    }

    fn work_towards(&mut self, begun: Begun) -> Result<Option<Work>, FsError> {
        Ok(self.volume.core.cache.transactions().work_towards(begun.0)?.map(boxed))
    }

    fn work_before_change(&mut self) -> Result<Option<Work>, FsError> {
        Ok(self.volume.core.cache.transactions().work_before_operation()?.map(boxed))
    }

    fn ignores_case(&self) -> bool {
        self.volume.format.ignores_case()
    }

    fn space(&mut self) -> StatVfs {
        self.volume.format.space(&self.volume.core)
    }

    fn spend_reserve(&mut self, may: bool) {
        self.volume.core.may_spend_reserve = may;
    }

    fn unmount(&mut self) -> Result<(), FsError> {
        if self.volume.is_closed() {
            return Ok(());
        }
        // Files that were still open and that have no names go now.
        let orphans: Vec<Ino> = self
            .volume
            .core
            .nodes
            .values()
            .filter(|node| node.effective == 0)
            .map(|node| node.ino)
            .collect();
        self.volume.format.releasing();
        let left = self.release_all(orphans)?;
        let placed = self.write_back_all();
        let Err(error) = &placed else {
            if let Err(error) = &left
                && self.volume.format.orphan_list().is_none()
            {
                // Nothing on the disk says that they are to be deleted: it is not marked clean.
                self.volume.fail(error);
            }
            // Files that could not be deleted are orphans still.
            let quotas = write_quotas(self);
            let closed = self.close();
            let closed = self.volume.noted(closed);
            if left.is_ok() {
                closed?;
            }
            self.volume.close();
            return left.and(quotas);
        };
        // Everything else is written, and the volume is not marked clean: contents were lost.
        self.volume.format.closing();
        let written =
            self.write_changes().and_then(|()| self.volume.core.cache.blocks_mut().flush());
        self.volume.fail(error);
        self.volume.close();
        let noted = self.volume.format.note_failure(&mut self.volume.core, error);
        placed.and(written).and(noted)
    }
}

impl<F: Named> Live<F> {
    /// Releases files that are no longer in use. A release that lacks room for its changes is tried
    /// again after others have freed blocks. Returns the first error of those that failed, and goes on
    /// with the others.
    fn release_all(&mut self, mut files: Vec<Ino>) -> Result<Result<(), FsError>, FsError> {
        let mut left = Ok(());
        loop {
            let (all, mut again, mut full) = (files.len(), Vec::new(), Ok(()));
            for ino in files {
                let node = self.volume.node(ino)?;
                node.holds = 0;
                if node.links > 0 {
                    continue;
                }
                match self.change(|live| F::Names::destroy(live, ino)) {
                    Err(error @ FsError::NoSpace(_)) => {
                        again.push(ino);
                        full = full.and(Err(error));
                    }
                    done => left = left.and(done),
                }
            }
            if again.is_empty() || again.len() == all {
                return Ok(left.and(full));
            }
            files = again;
        }
    }

    /// Sets or, without a value, removes an extended attribute.
    fn put_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if let Some(kind) = AclKind::of(name) {
            return self.volume.put_acl(ino, kind, value, mode, true);
        }
        self.volume.check_settable(ino)?;
        self.volume.format.set_xattr(&mut self.volume.core, ino, name, value, mode)?;
        self.volume.touch(ino)
    }

    /// Writes all remaining changes, and marks the volume as not in use any more.
    fn close(&mut self) -> Result<(), FsError> {
        self.volume.format.closing();
        self.write_changes()?;
        if self.volume.has_failed() {
            return Err(FsError::ReadOnly("an earlier operation failed".into()));
        }
        self.flush_device()?;
        // A device that cannot discard is no reason to leave the volume unclean.
        while self.discard_next().unwrap_or(false) {}
        self.volume.core.cache.begin()?;
        self.volume.format.mark(&mut self.volume.core, true)?;
        self.volume.core.cache.end()?;
        self.volume.core.cache.transactions().close_log()
    }
}

fn boxed(work: CommitWork) -> Work {
    Box::new(move || work.perform())
}
