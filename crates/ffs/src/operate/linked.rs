//! The format's inodes and directories, for the operations on a file system in use.

use super::Ffs;
use super::map::{Core, Node};
use super::typed::Typed;
use crate::inode::raw_device;
use crate::superblock;
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_fs::operate::NewFile;
use seekless_live::indirect::Files;
use seekless_live::{Contents, Linked, Part, Table};
use seekless_placement::block::Wanted;
use seekless_units::{Extent, Ino};
use smallvec::SmallVec;

impl Linked for Ffs {
    type Codec = Typed;

    fn codec(&self) -> &Typed {
        &self.codec
    }

    fn is_in_use(&mut self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        self.is_there(core, ino)
    }

    fn check_new(&self, new: &NewFile<'_>) -> Result<(), FsError> {
        if let NewFile::Device(_, number) = new
            && self.sb.format == superblock::Format::Ufs1
            && u32::try_from(raw_device(*number)).is_err()
        {
            return Err(FsError::Invalid("the device numbers do not fit in UFS1".into()));
        }
        Ok(())
    }

    fn take_inode(
        &mut self,
        core: &mut Core,
        parent: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError> {
        self.allocator.take_inode(core, parent, name, is_directory)
    }

    fn give_inode(&mut self, core: &mut Core, ino: Ino, is_directory: bool) -> Result<(), FsError> {
        self.allocator.free_inode(core, ino, is_directory)
    }

    fn fit_new(
        &mut self,
        core: &mut Core,
        _parent: Ino,
        node: &mut Node,
        new: &NewFile<'_>,
    ) -> Result<(), FsError> {
        node.generation = self.last_generation(core, node.ino)?.wrapping_add(1).max(1);
        node.birth = (self.sb.format == superblock::Format::Ufs2).then_some(node.ctime);
        if let (NewFile::Device(_, number), Some(first)) = (new, node.map.trees.direct.first_mut())
        {
            *first = raw_device(*number);
        }
        Ok(())
    }

    fn put_new(
        &mut self,
        core: &mut Core,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Self::put_new(self, core, ino, after)
    }

    fn put_links(
        &mut self,
        core: &mut Core,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Ok(self.put_part(core, ino, Part::Links, role, after, None)?.id)
    }

    fn put_cleared(
        &mut self,
        core: &mut Core,
        ino: Ino,
        has_blocks: bool,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Self::put_cleared(self, core, ino, has_blocks, after)
    }

    fn inode_run(&self, ino: Ino) -> Result<Extent, FsError> {
        self.sb.inode_fragment(ino)
    }

    fn keeps_in_inode(&self, target: &[u8]) -> bool {
        target.len() < index(self.sb.maxsymlinklen)
    }

    fn first_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError> {
        debug_assert!(len > 0 && len <= index(self.sb.bsize), "{len} bytes of a first block");
        let frags = self.sb.frags(wide(len));
        let wanted = Wanted::Data { index: 0, previous: None, run_before: None };
        core.admit(ino, self.sb.sectors(u64::from(frags)))?;
        let (at, bitmap) = self.allocator.take_data(core, ino, 0, frags, wanted)?;
        let bytes = index(frags * self.sb.fsize);
        let ((), data) = core.cache.changes().fill(at, bytes, role, |to| {
            fill(to);
            Ok(())
        })?;
        let sectors = self.sb.sectors(u64::from(frags));
        let node = core.node(ino)?;
        if let Some(first) = node.map.trees.direct.first_mut() {
            debug_assert_eq!(*first, 0, "a new file has no block");
            *first = at.get();
        }
        (node.size, node.sectors) = (wide(len), sectors);
        let run = Extent::new(at, u64::from(frags));
        Ok(Contents { run: Some(run), after: SmallVec::from_slice(&[bitmap, data]) })
    }

    fn append(&mut self, core: &mut Core, dir: Ino, bytes: &[u8]) -> Result<ChangeId, FsError> {
        Files::of(self, core).append(dir, bytes)
    }
}
