//! Operations on a file system in use.

use crate::{Format, Live, Names};
use seekless_cache::{CommitWork, Commits};
use seekless_fs::acl::AclKind;
use seekless_fs::field::{index, wide};
use seekless_fs::operate::{
    Begun, FsyncParts, NewFile, Operate, Ownership, RenameMode, SetAttr, Space, Work, XattrMode,
};
use seekless_fs::{Attr, DirEntry, FileKind, FsError, Mapping, Xattr};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;

impl<F: Format> Operate for Live<F> {
    fn root(&self) -> Ino {
        self.format.limits().root
    }

    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.drop_nodes();
        F::Names::find(self, dir, name)
    }

    fn attr(&mut self, ino: Ino) -> Result<Attr, FsError> {
        self.drop_nodes();
        self.named_node(ino)?;
        self.shown(ino)
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Result<Attr, FsError> {
        if set.size.is_some_and(|size| size > 0) {
            self.write_back(ino, false)?;
        }
        self.change(|live| live.change_attr(ino, set))
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
        let node = self.named_node(ino)?;
        match node.kind {
            FileKind::Regular if !node.restrictions.snapshot => {}
            FileKind::Directory => return Err(FsError::IsDirectory(format!("inode {ino}"))),
            _ => return Err(FsError::Invalid(format!("inode {ino} is not a regular file"))),
        }
        let left = node.size.saturating_sub(offset.get());
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        self.read_bytes(ino, offset.get(), buf)?;
        Ok(len)
    }

    fn write(&mut self, ino: Ino, offset: ByteLen, bytes: &[u8]) -> Result<usize, FsError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.write_in_pieces(ino, offset.get(), bytes)
    }

    fn allocate(
        &mut self,
        ino: Ino,
        offset: ByteLen,
        len: ByteLen,
        keep_size: bool,
    ) -> Result<(), FsError> {
        self.write_back(ino, true)?;
        self.allocate_in_pieces(ino, offset.get(), len.get(), keep_size)
    }

    fn data_runs(&mut self, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        self.drop_nodes();
        if self.named_node(ino)?.kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        self.write_back(ino, false)?;
        self.format.mapped_runs(&mut self.core, ino)
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
        let bsize = u64::from(self.format.limits().block);
        let node = self.named_node(ino)?;
        if node.kind != FileKind::Symlink {
            return Err(FsError::Invalid(format!("inode {ino} is not a symlink")));
        }
        if let Some(target) = &node.target {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; index(node.size.min(bsize))];
        self.read_bytes(ino, 0, &mut target)?;
        Ok(target)
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.named_node(ino)?;
        self.format.xattrs(&mut self.core, ino)
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
        self.format.ignored_features()
    }

    fn keeps_acls(&self) -> bool {
        self.format.keeps_acls()
    }

    fn has_default_acl(&mut self, dir: Ino) -> Result<bool, FsError> {
        self.dir_node(dir)?;
        Ok(self.acl(dir, AclKind::Default)?.is_some())
    }

    fn set_acl(
        &mut self,
        ino: Ino,
        kind: AclKind,
        value: Option<&[u8]>,
        keeps_setgid: bool,
    ) -> Result<(), FsError> {
        self.change(|live| live.put_acl(ino, kind, value, XattrMode::Any, keeps_setgid))
    }

    fn hold(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.named_node(ino)?;
        node.holds = node.holds.saturating_add(1);
        Ok(())
    }

    fn release(&mut self, ino: Ino) -> Result<(), FsError> {
        let node = self.node(ino)?;
        debug_assert!(node.holds > 0, "inode {ino} is released and not held");
        node.holds = node.holds.saturating_sub(1);
        if node.holds > 0 {
            return Ok(());
        }
        self.format.released(ino);
        let node = self.node(ino)?;
        if node.effective > 0 {
            let was_emptied = node.was_emptied;
            return if was_emptied { self.write_back(ino, false) } else { Ok(()) };
        }
        if node.links > 0 {
            self.count_free(ino);
            return Ok(());
        }
        self.change(|live| F::Names::destroy(live, ino))
    }

    fn fsync(&mut self, ino: Ino) -> Result<(), FsError> {
        let done = self.make_durable(ino);
        self.noted(done)
    }

    fn sync(&mut self) -> Result<(), FsError> {
        let done = self.write_everything().and_then(|()| self.core.cache.flush());
        self.noted(done)
    }

    fn tick(&mut self) -> Result<(), FsError> {
        let done = self.core.cache.tick().and_then(|()| self.run_actions());
        self.noted(done)?;
        self.write_back_expired()
    }

    fn leave_work(&mut self) {
        self.core.cache.set_commits(Commits::Apart);
    }

    fn work(&mut self) -> Result<Option<Work>, FsError> {
        if let Some(work) = self.core.cache.commit_work()? {
            return Ok(Some(boxed(work)));
        }
        Ok(self.core.cache.due_flush_work()?.map(boxed))
    }

    fn fsync_part(&mut self, ino: Ino, parts: &mut FsyncParts) -> Result<Option<Work>, FsError> {
        let done = self.make_durable_apart(ino, parts);
        Ok(self.noted(done)?.map(boxed))
    }

    fn start_fsync(&mut self, ino: Ino) -> Result<Option<Begun>, FsError> {
        if !self.core.cache.leaves_commits() {
            return Ok(None);
        }
        let awaits = self.awaits_commit(ino);
        let awaits = self.noted(awaits)?;
        Ok(self.core.cache.last_uncommitted().filter(|_| awaits).map(Begun))
    }

    fn work_towards(&mut self, begun: Begun) -> Result<Option<Work>, FsError> {
        Ok(self.core.cache.work_towards(begun.0)?.map(boxed))
    }

    fn work_before_change(&mut self) -> Result<Option<Work>, FsError> {
        Ok(self.core.cache.work_before_operation()?.map(boxed))
    }

    fn ignores_case(&self) -> bool {
        self.format.ignores_case()
    }

    fn space(&mut self) -> Space {
        self.format.space(&self.core)
    }

    fn spend_reserve(&mut self, may: bool) {
        self.core.may_spend_reserve = may;
    }

    fn unmount(&mut self) -> Result<(), FsError> {
        if self.closed {
            return Ok(());
        }
        // Files that were still open and that have no names go now.
        let orphans: Vec<Ino> = self
            .core
            .nodes
            .values()
            .filter(|node| node.effective == 0)
            .map(|node| node.ino)
            .collect();
        let mut left = Ok(());
        for ino in orphans {
            let node = self.node(ino)?;
            node.holds = 0;
            if node.links == 0 {
                // Other changes are written all the same.
                left = left.and(self.change(|live| F::Names::destroy(live, ino)));
            }
        }
        let placed = self.write_back_all();
        let Err(error) = &placed else {
            // Files that could not be deleted are orphans still.
            let closed = self.close();
            self.noted(closed)?;
            self.closed = true;
            return left;
        };
        // Everything else is written, and the volume is not marked clean: contents were lost.
        self.format.closing();
        let written = self.write_changes().and_then(|()| self.core.cache.flush());
        self.broken.get_or_insert_with(|| error.to_string());
        self.closed = true;
        let noted = self.format.note_failure(&mut self.core, error);
        placed.and(written).and(noted)
    }
}

impl<F: Format> Live<F> {
    /// Sets or, without a value, removes an extended attribute.
    fn put_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if let Some(kind) = AclKind::of(name) {
            return self.put_acl(ino, kind, value, mode, true);
        }
        self.check_changeable(ino)?;
        self.format.set_xattr(&mut self.core, ino, name, value, mode)?;
        self.touch(ino)
    }

    /// Writes all remaining changes, and marks the volume as not in use any more.
    fn close(&mut self) -> Result<(), FsError> {
        self.format.closing();
        self.write_changes()?;
        if self.broken.is_some() {
            return Err(FsError::ReadOnly("an earlier operation failed".into()));
        }
        self.device.flush()?;
        self.core.cache.begin()?;
        self.format.mark(&mut self.core, true)?;
        self.core.cache.end()?;
        self.core.cache.close_log()
    }
}

fn boxed(work: CommitWork) -> Work {
    Box::new(move || work.perform())
}
