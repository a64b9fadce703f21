//! The block map of a snapshot, changed in place. Only block numbers of the last level change: a
//! snapshot has all of its indirect blocks from the start.

use crate::inode::Inode;
use crate::inode_edit::put_pointer;
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT};
use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, range, slice, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba, SECTOR};
use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

/// Blocks that every snapshot copies when it is taken: superblock, summary area and heads of the
/// groups. An allocation of blocks for copies changes these.
pub(crate) fn always_kept(sb: &Super) -> BTreeSet<u64> {
    let frag = u64::from(sb.frag);
    let groups = (0..sb.ncg).map(|group| sb.in_group(GroupNo::new(group), sb.cblkno).get() / frag);
    let (first, end) = (sb.summaries.start.get(), sb.summaries.end().get());
    let summaries = first / frag..end.div_ceil(frag);
    let bsize = u64::from(sb.bsize);
    let superblock = sb.at / bsize..(sb.at + u64::from(sb.tuning.sbsize)).div_ceil(bsize);
    groups.chain(summaries).chain(superblock).collect()
}

/// Upper bound of the bytes of indirect blocks kept in memory, for each snapshot.
const MOST_IN_MEMORY: usize = 8 << 20;

/// The block map of a snapshot. New numbers are set in memory first, and written by
/// [`MapMut::write`].
pub(crate) struct MapMut {
    sb: Arc<Super>,
    pub(crate) ino: Ino,
    direct: [u64; DIRECT],
    indirect: [u64; 3],
    /// Indirect blocks that were read, by their first fragment.
    blocks: HashMap<u64, Vec<u8>>,
    /// Sectors to be written: first fragment of the indirect block, and byte within it.
    changed: BTreeSet<(u64, usize)>,
    /// Fragments added since the inode's `di_blocks` was written.
    gained: u64,
}

impl MapMut {
    /// Checks and opens the map of a snapshot.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] if indirect blocks or copies of [`always_kept`] blocks are missing;
    /// [`FsError::Corrupt`] for indirect blocks outside of the volume, in metadata, or used twice.
    pub(crate) fn new(
        sb: Arc<Super>,
        inode: &Inode,
        device: &dyn BlockDevice,
    ) -> Result<Self, FsError> {
        let mut map = Self::of(sb, inode.ino, inode.direct, inode.indirect);
        map.check(device)?;
        Ok(map)
    }

    /// Opens the map of a snapshot that was just written, without checks.
    pub(crate) fn of(sb: Arc<Super>, ino: Ino, direct: [u64; DIRECT], indirect: [u64; 3]) -> Self {
        let (blocks, changed) = (HashMap::new(), BTreeSet::new());
        Self { sb, ino, direct, indirect, blocks, changed, gained: 0 }
    }

    fn check(&mut self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let lacking = |what: &str, ino: Ino| {
            FsError::Unsupported(format!(
                "changing a volume whose snapshot of inode {ino} has no {what}"
            ))
        };
        let blocks = self.sb.snapshot_blocks();
        if (0..blocks).zip(&self.direct).any(|(_, &number)| number == 0) {
            return Err(lacking("copies of the first blocks", self.ino));
        }
        let pointers = self.sb.pointers();
        let mut leaves = BTreeSet::new();
        for first in (wide(DIRECT)..blocks).step_by(index(pointers)) {
            let Some((leaf, _)) = self.leaf(device, first)? else {
                return Err(lacking("complete map", self.ino));
            };
            // `leaf` has put the blocks of higher levels into memory.
            if !leaves.insert(leaf) || self.blocks.contains_key(&leaf) {
                let place = Location::of("block map").in_inode(self.ino);
                return Err(invalid("indirect block", leaf, place));
            }
        }
        for block in always_kept(&self.sb) {
            if self.number(device, block)? == 0 {
                return Err(lacking("copies of the groups and the superblock", self.ino));
            }
        }
        Ok(())
    }

    /// Returns the number for a block; 0 if the snapshot uses the volume's own block, and for holes
    /// behind the image.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for indirect blocks outside of the volume; errors of the device.
    pub(crate) fn number(&mut self, device: &dyn BlockDevice, at: u64) -> Result<u64, FsError> {
        if let Some(&number) = self.direct.get(index(at)) {
            return Ok(number);
        }
        let Some((leaf, n)) = self.leaf(device, at)? else { return Ok(0) };
        self.number_in(device, leaf, n)
    }

    /// Returns the first fragment with the contents of one of the file's blocks, in the volume or
    /// in a copy; `None` if it was free, of an older snapshot, or is a hole of the list.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for blocks outside of the volume; errors of the device.
    pub(crate) fn place(
        &mut self,
        device: &dyn BlockDevice,
        at: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        let (frag, of_volume) = (u64::from(self.sb.frag), at < self.sb.snapshot_blocks());
        let number = self.number(device, at)?;
        match number {
            0 => Ok(of_volume.then(|| BlockNo::new(at * frag))),
            BLK_NOCOPY | BLK_SNAP if of_volume => Ok(None),
            _ => {
                let place = Location::of("block map").in_inode(self.ino);
                let end = number.checked_add(frag).filter(|&end| end <= self.sb.size);
                end.ok_or_else(|| range("block number", number, self.sb.size, place))?;
                Ok(Some(BlockNo::new(number)))
            }
        }
    }

    /// Sets the number for a block that has none, in memory, and counts the block as the snapshot's.
    ///
    /// # Errors
    /// As [`MapMut::number`].
    pub(crate) fn set(
        &mut self,
        device: &dyn BlockDevice,
        at: u64,
        number: BlockNo,
    ) -> Result<(), FsError> {
        debug_assert_eq!(self.number(device, at).ok(), Some(0), "block {at} has no number yet");
        let leaf = self.leaf(device, at)?;
        let (leaf, n) = leaf.ok_or_else(|| {
            let place = Location::of("block map").in_inode(self.ino);
            range("indirect block", at, 0, place)
        })?;
        let width = index(self.sb.pointer_size());
        let sb = Arc::clone(&self.sb);
        let at = index(n) * width;
        put_pointer(&sb, self.block(device, leaf)?, at, number.get());
        let sector = index(SECTOR);
        self.changed.insert((leaf, at / sector * sector));
        self.gained += u64::from(sb.frag);
        Ok(())
    }

    /// Writes the changed sectors. A number never crosses a sector.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let fsize = u64::from(self.sb.fsize);
        for (leaf, from) in std::mem::take(&mut self.changed) {
            let block = self.blocks.get(&leaf).map(Vec::as_slice).unwrap_or_default();
            let sector = slice(block, from, index(SECTOR));
            debug_assert!(sector.is_some(), "a changed block stays in memory");
            let at = Lba::containing(ByteLen::new(leaf * fsize + wide(from)));
            device.write(at, sector.unwrap_or_default())?;
        }
        Ok(())
    }

    /// Drops the cached indirect blocks.
    pub(crate) fn reread(&mut self) {
        debug_assert!(self.changed.is_empty(), "all numbers are written");
        self.blocks.clear();
    }

    /// Returns the fragments added since the last call.
    pub(crate) fn take_gained(&mut self) -> u64 {
        std::mem::take(&mut self.gained)
    }

    /// Finds the last-level indirect block with a block's number, and the index in it.
    fn leaf(&mut self, device: &dyn BlockDevice, at: u64) -> Result<Option<(u64, u64)>, FsError> {
        debug_assert!(at >= wide(DIRECT), "block {at} has its number in the inode");
        let pointers = self.sb.pointers();
        let (mut within, mut span) = (at - wide(DIRECT), 1);
        for root in self.indirect {
            span *= pointers;
            if within >= span {
                within -= span;
                continue;
            }
            let mut number = root;
            while span > pointers && number != 0 {
                span /= pointers;
                number = self.number_in(device, number, within / span)?;
                within %= span;
            }
            return Ok((number != 0).then_some((number, within)));
        }
        Ok(None)
    }

    fn number_in(&mut self, device: &dyn BlockDevice, leaf: u64, n: u64) -> Result<u64, FsError> {
        let sb = Arc::clone(&self.sb);
        Ok(sb.pointer(self.block(device, leaf)?, n))
    }

    fn block(&mut self, device: &dyn BlockDevice, start: u64) -> Result<&mut Vec<u8>, FsError> {
        let bytes = self.blocks.len() * index(self.sb.bsize);
        if bytes >= MOST_IN_MEMORY && self.changed.is_empty() {
            self.blocks.clear();
        }
        match self.blocks.entry(start) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let sb = &self.sb;
                let run = Extent::new(BlockNo::new(start), u64::from(sb.frag));
                let end = start.checked_add(run.len);
                let place = Location::of("indirect block").in_inode(self.ino);
                if end.is_none_or(|end| end > sb.size) || !start.is_multiple_of(run.len) {
                    return Err(range("block number", start, sb.size, place));
                }
                if run.overlaps(sb.group_metadata(sb.group_of(run.start))) {
                    return Err(invalid("block number", start, place));
                }
                let mut bytes = vec![0; index(sb.bsize)];
                device.read_bytes(ByteLen::new(start * u64::from(sb.fsize)), &mut bytes)?;
                Ok(vacant.insert(bytes))
            }
        }
    }
}
