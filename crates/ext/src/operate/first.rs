//! First blocks of files, and blocks of directories, which have checksums.

use super::extents::{self, Tree};
use super::inline::is_inline;
use super::{Core, Ext};
use crate::ondisk::INODE_CORE_SIZE;
use seekless_cache::{ChangeId, Role};
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::{FsError, Location};
use seekless_live::Contents;
use seekless_live::indirect::Files;
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

impl Ext {
    /// The place of a block of a file; one of a directory is checked.
    pub(super) fn lookup_dir_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        let found = if is_inline(core, ino)? {
            None
        } else if extents::maps(core, ino)? {
            Tree::of(self, core, ino).lookup_block(lbn)?
        } else {
            Files::of(self, core).lookup_block(ino, lbn)?
        };
        if let Some(at) = found {
            self.claim(core, ino, lbn, at)?;
        }
        Ok(found)
    }

    /// Appends a block to a directory, with its checksum.
    pub(super) fn append_to_dir(
        &mut self,
        core: &mut Core,
        dir: Ino,
        bytes: &[u8],
    ) -> Result<ChangeId, FsError> {
        debug_assert_eq!(bytes.len(), self.volume.block_len(), "a directory grows by blocks");
        let size = core.node(dir)?.size;
        if !size.is_multiple_of(wide(self.volume.block_len())) {
            return Err(invalid("i_size", size, Location::of("directory").in_inode(dir)));
        }
        let mut bytes = bytes.to_vec();
        self.seal_new(core, dir, &mut bytes)?;
        if extents::maps(core, dir)? {
            return Tree::of(self, core, dir).append(&bytes);
        }
        Files::of(self, core).append(dir, &bytes)
    }

    /// Whether inodes have fields behind the first 128 bytes: a time of birth,
    /// nanoseconds and seconds beyond 2038.
    pub(super) fn has_birth(&self) -> bool {
        index(self.volume.sb.inode_size) > INODE_CORE_SIZE
    }

    /// Makes the first block of a new file; a directory may have its names in its inode.
    pub(super) fn put_first_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        len: usize,
        role: Role,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Contents, FsError> {
        // A check reads the block of a symlink.
        let role = if role == Role::Data { Role::TargetInit } else { role };
        debug_assert!(len <= self.volume.block_len(), "the first block holds {len} bytes");
        let mut bytes = vec![0; self.volume.block_len()];
        fill(&mut bytes);
        if is_inline(core, ino)? {
            debug_assert_eq!(role, Role::DirectoryInit, "nothing else is made so");
            return self.first_names(core, ino, &bytes);
        }
        if role == Role::DirectoryInit {
            self.seal_new(core, ino, &mut bytes)?;
        }
        if extents::maps(core, ino)? {
            let mut put = |to: &mut [u8]| to.copy_from_slice(&bytes);
            return Tree::of(self, core, ino).first_block(len, role, &mut put);
        }
        let (at, bitmap) = self.take_block(core, ino, 0, None)?;
        let ((), data) = core.cache.changes().fill(at, bytes.len(), role, |to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        let sectors = u64::from(self.volume.sb.block_size / 512);
        let node = core.node(ino)?;
        if let Some(first) = node.map.trees.direct.first_mut() {
            debug_assert_eq!(*first, 0, "a new file has no blocks yet");
            *first = at.get();
        }
        node.map.last = Some((0, at));
        (node.size, node.sectors) = (wide(len), sectors);
        let run = Extent::new(at, 1);
        Ok(Contents { run: Some(run), after: SmallVec::from_slice(&[bitmap, data]) })
    }
}
