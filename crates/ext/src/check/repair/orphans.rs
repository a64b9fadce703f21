//! Files that were being deleted or truncated when the system stopped: that is
//! finished here, as a mount would (`ext4_orphan_cleanup`).

use super::Work;
use super::attributes::AttributeRepair;
use super::inode::InodeMut;
use super::superblock::{self, byte_of, time};
use crate::check::salvage::salvage;
use crate::encode::rewrite::seal_orphan_block;
use crate::inode::Inode;
use crate::ondisk::flags;
use seekless_fs::field::index;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino, Lbn};

/// Deletes or truncates orphans, as a mount does after a crash.
pub(super) struct OrphanRepair<'w, 'a> {
    work: &'w mut Work<'a>,
}

impl<'w, 'a> OrphanRepair<'w, 'a> {
    /// As a part of the work of a round.
    pub(super) fn of(work: &'w mut Work<'a>) -> Self {
        Self { work }
    }

    /// Finishes all of them; whether there was room for the maps of the truncated files. A list
    /// that leads through the inodes is shortened from its end, so that the rest is a valid list at
    /// any time.
    pub(super) fn finish_all(&mut self) -> Result<bool, FsError> {
        let volume = &self.work.checker.volume;
        let mut listed = Vec::new();
        match volume.orphans().listed(&mut |ino| listed.push(ino)) {
            // It was reported where it ends.
            Err(FsError::Corrupt { .. }) => {}
            walked => walked?,
        }
        for &ino in &self.work.checker.orphans {
            if !self.finish(ino, !listed.contains(&ino))? {
                return Ok(false);
            }
        }
        self.work.disk.flush()?;
        for at in (0..listed.len()).rev() {
            match at.checked_sub(1).and_then(|before| listed.get(before)) {
                Some(&before) => self.work.change(before, |it| it.core_mut().i_dtime = 0.into())?,
                None => superblock::set_last_orphan(self.work.disk, Ino::ZERO)?,
            }
            self.work.disk.flush()?;
            if let Some(&ino) = listed.get(at) {
                self.date(ino)?;
            }
        }
        if volume.sb.has_filed_orphans() {
            return self.orphan_file();
        }
        Ok(true)
    }

    /// Deletes a file without links, truncates one with links to its length. An inode on the list
    /// keeps its link to the next one.
    fn finish(&mut self, ino: Ino, date: bool) -> Result<bool, FsError> {
        let volume = &self.work.checker.volume;
        let mut inode = InodeMut::read(volume, self.work.disk, ino)?;
        if inode.core().i_links_count.get() == 0 {
            let old = volume.inodes().read(ino)?;
            let block = volume.inodes().xattr_block_of(&old);
            inode.release();
            inode.write(volume, self.work.disk)?;
            if let Some(block) = block {
                AttributeRepair::of(self.work).leave(block)?;
            }
        } else if !self.truncate(ino, &mut inode)? {
            return Ok(false);
        }
        if date {
            self.date(ino)?;
        }
        Ok(true)
    }

    /// Sets a file's deletion time, if it was deleted.
    fn date(&mut self, ino: Ino) -> Result<(), FsError> {
        let now = time(self.work.checker.sb());
        self.work.change(ino, |it| {
            let is_gone = it.core().i_links_count.get() == 0;
            it.core_mut().i_dtime = if is_gone { now } else { 0 }.into();
        })
    }

    /// Releases the blocks past a file's end, and that part of its last block.
    fn truncate(&mut self, ino: Ino, inode: &mut InodeMut) -> Result<bool, FsError> {
        let volume = &self.work.checker.volume;
        let old = volume.inodes().read(ino)?;
        if inode.has_flag(flags::INLINE_DATA) || !volume.maps().has_blocks(&old) {
            return Ok(true);
        }
        let bsize = u64::from(volume.sb.block_size);
        let mut found = salvage(volume, &old)?;
        let end = old.len.div_ceil(bsize);
        let gone = found.cut(end);
        let within = old.len % bsize;
        let last = if within > 0 { found.block_of(Lbn::new(end - 1)) } else { None };
        if let Some(last) = last {
            let rest = vec![0; volume.block_len() - index(within)];
            self.work.disk.put(byte_of(&volume.sb, last) + within, &rest)?;
        }
        if gone.is_empty() {
            return Ok(true);
        }
        // The new map may take released blocks: nobody reads those any more.
        for run in &gone {
            if volume.sb.clusters_of(*run).all(|at| !self.work.checker.twice.get(index(at))) {
                self.work.space.give(&volume.sb, *run);
            }
        }
        if !self.work.put_map(inode, &found.pieces)? {
            return Ok(false);
        }
        inode.write(volume, self.work.disk)?;
        Ok(true)
    }

    /// Writes the blocks of the orphan file without numbers, then that it is empty. A file
    /// that is no orphan file, for a number in the superblock that is wrong, keeps its
    /// contents: the volume has no orphan file from now on.
    pub(super) fn orphan_file(&mut self) -> Result<bool, FsError> {
        let Some((inode, blocks)) = self.orphan_file_blocks()? else {
            superblock::drop_orphan_file(self.work.disk)?;
            return Ok(true);
        };
        let volume = &self.work.checker.volume;
        // Its map is wrong, and leads to blocks of something else.
        if blocks.iter().any(|&block| self.work.is_claimed_twice(block)) {
            superblock::drop_orphan_file(self.work.disk)?;
            self.work.change(inode.ino, InodeMut::clear)?;
            return Ok(true);
        }
        for block in blocks {
            let seed = volume.sb.has_metadata_csum().then(|| volume.inodes().seed(&inode));
            let mut bytes = vec![0; volume.block_len()];
            let place = Location::of("orphan file").in_inode(inode.ino).in_block(block);
            seal_orphan_block(&mut bytes, block, seed, place)?;
            self.work.disk.put(byte_of(&volume.sb, block), &bytes)?;
        }
        self.work.disk.flush()?;
        superblock::no_filed_orphans(self.work.disk)?;
        Ok(true)
    }

    /// The blocks of the orphan file; `None` where it has none that is marked as such, or
    /// has a hole.
    fn orphan_file_blocks(&self) -> Result<Option<(Inode, Vec<BlockNo>)>, FsError> {
        let volume = &self.work.checker.volume;
        let ino = Ino::new(volume.sb.raw.s_orphan_file_inum.get());
        let found = volume.inodes().read(ino).and_then(|inode| {
            let count = inode.len / u64::from(volume.sb.block_size);
            let (mut blocks, mut is_marked) = (Vec::new(), false);
            for lbn in (0..count.min(volume.sb.blocks)).map(Lbn::new) {
                let Some(run) = volume.maps().map_block(&inode, lbn)? else { return Ok(None) };
                is_marked |= volume.orphans().is_file_block(run.extent.start)?;
                blocks.push(run.extent.start);
            }
            Ok(is_marked.then_some((inode, blocks)))
        });
        match found {
            Err(FsError::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }
}
