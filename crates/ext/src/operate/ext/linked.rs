//! The format's inodes and directories, for the operations on a file system in use.

use super::Ext;
use crate::encode::device::device_words;
use crate::ondisk::{IBlock, flags, incompat};
use crate::operate::contents::FileContents;
use crate::operate::entries::Entries;
use crate::operate::extents;
use crate::operate::inline::{self, is_inline};
use crate::operate::inline_names::InlineNames;
use crate::operate::map::{Core, Node};
use seekless_cache::{ChangeId, Role};
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_live::{Contents, Linked, Part, Table};
use seekless_units::{Extent, Ino};

/// Flags that the children of a directory inherit (`EXT4_FL_INHERITED` of the
/// kernel, as far as ext2 has them), and those of them that only directories keep.
const INHERITED: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | 0x1_0000;
const OF_DIRECTORIES: u32 = 0x1_0000;
/// Flags inherited by files that are neither directories nor regular.
const OF_OTHERS: u32 = 0x40 | 0x80;

/// The longest target that stands in an inode, and its final zero.
const TARGET_ROOM: usize = size_of::<IBlock>();

impl Linked for Ext {
    type Codec = Entries;

    fn codec(&self) -> &Entries {
        &self.entries
    }

    fn is_in_use(&mut self, core: &mut Core, ino: Ino) -> Result<bool, FsError> {
        let is_allocated = self.maps.free_space().groups().is_in_use(core, ino)?;
        Ok(is_allocated && self.maps.tables().has_links(core, ino)?)
    }

    fn check_new(&self, new: &NewFile<'_>) -> Result<(), FsError> {
        match new {
            NewFile::Device(_, number) => device_words(*number).map(drop),
            _ => Ok(()),
        }
    }

    fn take_inode(
        &mut self,
        core: &mut Core,
        parent: Ino,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(Ino, ChangeId), FsError> {
        let groups = self.maps.space().groups_mut();
        self.inodes.take(groups, core, parent, name, is_directory)
    }

    fn give_inode(&mut self, core: &mut Core, ino: Ino, is_directory: bool) -> Result<(), FsError> {
        let groups = self.maps.space().groups_mut();
        self.inodes.give(groups, core, ino, is_directory)?;
        self.maps.space().forget(ino);
        Ok(())
    }

    fn fit_new(
        &mut self,
        core: &mut Core,
        parent: Ino,
        node: &mut Node,
        new: &NewFile<'_>,
    ) -> Result<(), FsError> {
        node.generation = self.maps.tables().last_generation(core, node.ino)?.wrapping_add(1);
        node.birth = self.maps.tables().has_birth().then_some(node.ctime);
        let handed_down = core.node(parent)?.flags & INHERITED;
        node.flags = match new {
            NewFile::Directory => handed_down,
            NewFile::Regular => handed_down & !OF_DIRECTORIES,
            _ => handed_down & OF_OTHERS,
        };
        let has_blocks = match new {
            NewFile::Regular | NewFile::Directory => true,
            NewFile::Symlink(target) => !self.keeps_in_inode(target),
            _ => false,
        };
        if !matches!(new, NewFile::Symlink(_)) && has_blocks {
            let has_inline = self.layout.sb().has_incompat(incompat::INLINE_DATA);
            inline::fit(has_inline, self.maps.tables(), node);
        }
        let is_inline = node.flags & flags::INLINE_DATA != 0;
        if has_blocks && !is_inline && self.layout.sb().has_incompat(incompat::EXTENTS) {
            node.flags |= flags::EXTENTS;
            node.map.root = extents::empty_root();
        }
        Ok(())
    }

    fn put_new(
        &mut self,
        core: &mut Core,
        ino: Ino,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let node = core.node(ino)?;
        let raw = self.maps.tables().new_bytes(node);
        node.map.inner = None;
        self.maps.tables().put_first(core, ino, &raw, after)
    }

    fn put_links(
        &mut self,
        core: &mut Core,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        Ok(self.maps.tables().put_part(core, ino, Part::Links, role, after, None)?.id)
    }

    fn put_cleared(
        &mut self,
        core: &mut Core,
        ino: Ino,
        _has_blocks: bool,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let tables = self.maps.tables();
        self.orphans.remove((tables, &self.superblock), core, ino)?;
        tables.put_cleared(core, ino, after)
    }

    fn inode_run(&self, ino: Ino) -> Result<Extent, FsError> {
        Ok(Extent::new(self.layout.inode_place(ino)?.0, 1))
    }

    fn keeps_in_inode(&self, target: &[u8]) -> bool {
        target.len() < TARGET_ROOM
    }

    fn first_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError> {
        // A check reads the block of a symlink.
        let role = if role == Role::Data { Role::TargetInit } else { role };
        debug_assert!(len <= self.layout.block_len(), "the first block holds {len} bytes");
        let mut bytes = vec![0; self.layout.block_len()];
        fill(&mut bytes);
        if is_inline(core, ino)? {
            debug_assert_eq!(role, Role::DirectoryInit, "nothing else is made so");
            return InlineNames::of(&mut self.maps, core, self.entries, ino).first(&bytes);
        }
        FileContents::of(&mut self.maps, core, ino).first_block(len, role, bytes)
    }

    fn append(&mut self, core: &mut Core, dir: Ino, bytes: &[u8]) -> Result<ChangeId, FsError> {
        FileContents::of(&mut self.maps, core, dir).append(bytes)
    }
}
