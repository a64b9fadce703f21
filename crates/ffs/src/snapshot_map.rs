//! The map of a snapshot: the places of the volume's blocks as they were ([`crate::snapshot`]).

use crate::inode::Inode;
use crate::ondisk::{BLK_NOCOPY, BLK_SNAP, DIRECT};
use crate::volume::Volume;
use seekless_fs::field::{index, wide};
use seekless_fs::{BlockMap, FsError, Location, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Lbn};

/// The contents of a block of the volume at the time of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// The block was free, or an older snapshot's: zeros.
    Nothing,
    /// The block at this fragment.
    At(BlockNo),
}

/// The map of a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotMap<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
}

impl<'a> SnapshotMap<'a> {
    pub(crate) const fn new(volume: &'a Volume, inode: &'a Inode) -> Self {
        Self { volume, inode }
    }

    /// The number for a block.
    fn number(self, at: u64) -> Result<u64, FsError> {
        let (volume, inode) = (self.volume, self.inode);
        if let Some(&number) = inode.direct.get(index(at)) {
            return Ok(number);
        }
        let mut within = at - wide(DIRECT);
        let mut span = 1;
        for &root in &inode.indirect {
            span *= volume.sb.pointers();
            if within >= span {
                within -= span;
                continue;
            }
            let mut number = root;
            while span > 1 && number != 0 {
                let start = BlockNo::new(number);
                let place = Location::of("indirect block").in_inode(inode.ino).in_block(start);
                let block = volume.block(start, index(volume.sb.bsize), place)?;
                span /= volume.sb.pointers();
                number = volume.sb.pointer(&block, within / span);
                within %= span;
            }
            return Ok(number);
        }
        Ok(0)
    }

    /// The contents that the snapshot has for a block of the volume.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a number outside of the volume.
    pub(crate) fn kept(self, at: u64) -> Result<Kept, FsError> {
        let sb = &self.volume.sb;
        debug_assert!(at < sb.snapshot_blocks(), "block {at} is one of the volume");
        match self.number(at)? {
            0 => Ok(Kept::At(BlockNo::new(at * u64::from(sb.frag)))),
            BLK_NOCOPY | BLK_SNAP => Ok(Kept::Nothing),
            number => {
                let start = BlockNo::new(number);
                let place = Location::of("block map").in_inode(self.inode.ino);
                self.volume.check_extent(Extent::new(start, u64::from(sb.frag)), place)?;
                Ok(Kept::At(start))
            }
        }
    }

    /// Where the contents of the file lie: in its own blocks, which `held` has, and for its image in
    /// blocks of the volume.
    pub(crate) fn contents(self, mut held: BlockMap) -> Result<BlockMap, FsError> {
        let sb = &self.volume.sb;
        let mut image = ImageRuns { map: self, runs: Vec::new() };
        for (at, &number) in (0..).zip(&self.inode.direct) {
            image.add(at, 1, number)?;
        }
        let (mut first, mut span) = (wide(DIRECT), 1u64);
        for &root in &self.inode.indirect {
            span *= sb.pointers();
            image.add(first, span, root)?;
            first += span;
        }
        let end = sb.snapshot_blocks() * u64::from(sb.frag);
        // The last block of the image and the list may lie in one run.
        for run in &mut held.runs {
            let before = end.saturating_sub(run.lbn.get()).min(run.extent.len);
            let start = run.extent.start + before;
            run.lbn += before;
            run.extent = Extent::new(start, run.extent.len - before);
        }
        held.runs.retain(|run| run.extent.len > 0);
        image.runs.append(&mut held.runs);
        Ok(BlockMap { runs: image.runs, ..held })
    }

    /// Reads bytes of the image.
    pub(crate) fn read_image(self, mut at: u64, mut buf: &mut [u8]) -> Result<(), FsError> {
        let bsize = u64::from(self.volume.sb.bsize);
        while !buf.is_empty() {
            let (block, within) = (at / bsize, at % bsize);
            let len = index((bsize - within).min(wide(buf.len())));
            let (part, rest) = buf.split_at_mut(len);
            match self.kept(block)? {
                Kept::Nothing => part.fill(0),
                Kept::At(start) => self.volume.read_bytes(start, within, part)?,
            }
            (at, buf) = (at + wide(len), rest);
        }
        Ok(())
    }

    /// Reads bytes of the file, which must lie within it: of the image, and of the list behind it.
    pub(crate) fn read(self, offset: ByteLen, buf: &mut [u8]) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let image = sb.snapshot_blocks() * u64::from(sb.bsize);
        let len = image.saturating_sub(offset.get()).min(wide(buf.len()));
        let (kept, list) = buf.split_at_mut(index(len));
        self.read_image(offset.get(), kept)?;
        match list.is_empty() {
            true => Ok(()),
            false => self.volume.read_mapped(self.inode, ByteLen::new(offset.get() + len), list),
        }
    }
}

/// The runs of a snapshot's image, as they are found.
struct ImageRuns<'a> {
    map: SnapshotMap<'a>,
    runs: Vec<Mapping>,
}

impl ImageRuns<'_> {
    /// Adds the `span` blocks from `first` on, whose number, or that of their indirect block, is
    /// given.
    fn add(&mut self, first: u64, span: u64, number: u64) -> Result<(), FsError> {
        let (volume, inode) = (self.map.volume, self.map.inode);
        let (blocks, frag) = (volume.sb.snapshot_blocks(), u64::from(volume.sb.frag));
        if first >= blocks {
            return Ok(());
        }
        let place = Location::of("block map").in_inode(inode.ino);
        if number == 0 {
            let (start, end) = (first * frag, (first + span) * frag);
            self.push(first, BlockNo::new(start), end.min(volume.sb.size) - start);
        } else if span > 1 {
            let start = BlockNo::new(number);
            let block = volume.block(start, index(volume.sb.bsize), place.in_block(start))?;
            let step = span / volume.sb.pointers();
            for (n, first) in (0..volume.sb.pointers()).zip((first..).step_by(index(step))) {
                self.add(first, step, volume.sb.pointer(&block, n))?;
            }
        } else if !is_mark(number) {
            let start = BlockNo::new(number);
            // A copy is whole, but the volume may end in its last block.
            volume.check_extent(Extent::new(start, frag), place)?;
            self.push(first, start, frag);
        }
        Ok(())
    }

    fn push(&mut self, block: u64, start: BlockNo, len: u64) {
        let lbn = Lbn::new(block * u64::from(self.map.volume.sb.frag));
        if let Some(last) = self.runs.last_mut()
            && last.lbn + last.extent.len == lbn
            && last.extent.end() == start
        {
            last.extent.len += len;
            return;
        }
        self.runs.push(Mapping { lbn, extent: Extent::new(start, len), unwritten: false });
    }
}

/// Whether a number in the map of a snapshot stands for no block.
pub(crate) const fn is_mark(number: u64) -> bool {
    matches!(number, BLK_NOCOPY | BLK_SNAP)
}
