//! The new image: fixed blocks are copied, files that move go to their new places, and bitmaps,
//! descriptors and superblocks follow.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own plan and of structures that the survey checked"
)]

mod inodes;
mod summaries;

use super::quota::Charges;
use super::room::split;
use super::survey::Survey;
use crate::dir::Directory;
use crate::encode::mapping::Piece;
use crate::encode::rewrite;
use crate::journal::empty;
use crate::mmp::Mmp;
use crate::ondisk::{MMP_MAGIC, MMP_SEQ_CLEAN, MmpBlock};
use seekless_device::BlockDevice;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::mapped::MappedContent;
use seekless_fs::plan::{ObjectId, Placed, Plan};
use seekless_fs::source::Content;
use seekless_fs::{FileKind, FsError, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba, Lbn};
use zerocopy::FromBytes;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Writes a new image from a survey and a plan for it.
pub(crate) struct RelayoutWriter<'a> {
    pub(crate) survey: &'a Survey<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// The source of a group's new summary.
#[derive(Default)]
struct GroupCount {
    inodes: Vec<u32>,
    directories: u32,
    /// Changes of the usage of users, groups and projects.
    charges: [Charges; 3],
}

impl RelayoutWriter<'_> {
    pub(crate) fn run(&self) -> Result<(), FsError> {
        self.copy_fixed()?;
        self.write_data()?;
        let counts = self.write_inodes()?;
        self.write_quota(&counts)?;
        self.write_summaries(&counts)
    }

    fn block_size(&self) -> u64 {
        u64::from(self.survey.volume.sb.block_size)
    }

    pub(super) fn seed(&self) -> Option<u32> {
        let sb = &self.survey.volume.sb;
        sb.has_metadata_csum().then_some(sb.checksum_seed)
    }

    pub(super) fn put(&self, block: BlockNo, bytes: &[u8]) -> Result<(), FsError> {
        debug_assert!(!bytes.is_empty(), "block {block} gets bytes");
        let at = ByteLen::new(block.get() * self.block_size());
        self.device.write(Lba::containing(at), bytes)?;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }

    /// The new number of an inode: moved ones by plan, the others keep theirs.
    pub(super) fn renumber(&self, old: Ino) -> Option<Ino> {
        match self.survey.object(old) {
            Some(object) => Some(self.plan.inodes[object.index()]),
            None => self.survey.pinned.binary_search(&old).ok().map(|_| old),
        }
    }

    // ---- fixed blocks ----------------------------------------------------

    /// Blocks in use that are neither room for moved files nor rewritten.
    fn fixed(&self) -> Result<Vec<Extent>, FsError> {
        let sb = &self.survey.volume.sb;
        let unit = self.survey.cluster;
        let mut not_copied: Vec<Extent> = self
            .survey
            .room
            .iter()
            .map(|run| Extent::new(BlockNo::new(run.start.get() * unit), run.len * unit))
            .collect();
        for group in 0..sb.groups {
            let desc = self.survey.volume.descriptors().read_checked(GroupNo::new(group))?;
            not_copied.push(Extent::new(desc.inode_table(), sb.itable_blocks()));
            not_copied.push(Extent::new(desc.block_bitmap(), 1));
            not_copied.push(Extent::new(desc.inode_bitmap(), 1));
        }
        not_copied.extend(self.journal()?.iter().copied());
        not_copied.sort_unstable();
        let mut fixed = Vec::new();
        let mut at = BlockNo::ZERO;
        for run in not_copied.into_iter().chain([Extent::new(BlockNo::new(sb.blocks), 0)]) {
            if run.start > at {
                fixed.push(Extent::new(at, run.start - at));
            }
            at = at.max(run.end());
        }
        Ok(fixed)
    }

    /// The runs of the journal, its first block first.
    fn journal(&self) -> Result<Vec<Extent>, FsError> {
        let ino = Ino::new(self.survey.volume.sb.raw.s_journal_inum.get());
        if ino == Ino::ZERO {
            return Ok(Vec::new());
        }
        let inode = self.survey.volume.inodes().read(ino)?;
        let map = self.survey.volume.maps().block_map(&inode)?;
        Ok(map.runs.iter().map(|run| run.extent).collect())
    }

    fn copy_fixed(&self) -> Result<(), FsError> {
        let most = (COPY_BYTES / self.block_size()).max(1);
        for run in self.fixed()? {
            let mut at = 0;
            while at < run.len {
                let blocks = (run.len - at).min(most);
                let mut buf = vec![0; (blocks * self.block_size()) as usize];
                let from = run.start + at;
                self.survey.volume.read_bytes(from, 0, &mut buf)?;
                self.put(from, &buf)?;
                at += blocks;
            }
        }
        self.write_mmp()?;
        self.write_orphan_file()?;
        self.write_journal()
    }

    /// The block of multiple mount protection: the new image is not in use.
    fn write_mmp(&self) -> Result<(), FsError> {
        let sb = &self.survey.volume.sb;
        let Some(mmp) = Mmp::of(sb) else { return Ok(()) };
        let at = BlockNo::new(sb.raw.s_mmp_block.get());
        let mut block = vec![0; self.block_size() as usize];
        self.survey.volume.read_bytes(at, 0, &mut block)?;
        let (head, _) = block.split_at_mut(size_of::<MmpBlock>());
        let Ok(state) = MmpBlock::mut_from_bytes(head) else { return Ok(()) };
        if state.mmp_magic.get() != MMP_MAGIC {
            return Ok(());
        }
        state.mmp_seq = MMP_SEQ_CLEAN.into();
        mmp.seal(state);
        self.put(at, &block)
    }

    /// An empty journal in the old one's place: its transactions are in the files already.
    fn write_journal(&self) -> Result<(), FsError> {
        let Some(first) = self.journal()?.first().map(|run| run.start) else { return Ok(()) };
        let mut block = vec![0; self.block_size() as usize];
        self.survey.volume.read_bytes(first, 0, &mut block)?;
        empty(&mut block);
        self.put(first, &block)
    }

    // ---- moved files -----------------------------------------------------

    fn write_data(&self) -> Result<(), FsError> {
        let mut pieces = Vec::new();
        for at in 0..self.survey.moved.len() {
            let object = ObjectId::new(at as u32);
            let new = self.survey.pieces(object, self.plan.data(object));
            let new = split(&new, &self.survey.shared);
            // Blocks of several files stay in place, and are copied as they are.
            let written = new.iter().filter(|piece| !piece.unwritten && !self.survey.stays(piece));
            pieces.extend(written.map(|piece| forward::Piece {
                object,
                placed: Placed { lbn: piece.lbn, extent: piece.extent },
            }));
        }
        Forward {
            block_size: self.survey.volume.sb.block_size,
            device: self.device,
            progress: self.progress,
            contents: self,
        }
        .run(pieces)
    }

    fn fill_directory(&self, ino: Ino, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let volume = self.survey.volume;
        let inode = volume.inodes().read(ino)?;
        let dir = Directory::new(volume, &inode);
        let place = dir.place();
        let inodes = volume.sb.raw.s_inodes_count.get();
        let hashed = volume.inodes().is_hashed(&inode);
        let new = self.renumber(ino).unwrap_or(ino);
        for (at, block) in (lbn..).zip(out.chunks_mut(self.block_size() as usize)) {
            block.copy_from_slice(&dir.block(Lbn::new(at))?);
            rewrite::entries(block, inodes, &|old| self.renumber(old), place)?;
            if let Some(seed) = self.seed() {
                let seed = rewrite::inode_seed(seed, new, inode.core.i_generation.get());
                rewrite::seal_directory_block(block, Lbn::new(at), hashed, seed, place)?;
            }
        }
        Ok(())
    }

    /// The contents of a file in the old image.
    fn contents(&self, object: ObjectId) -> MappedContent<'_> {
        let volume = self.survey.volume;
        let runs = &self.survey.moved(object).runs[..];
        MappedContent::new(runs, volume.sb.block_size, volume.device().as_ref())
    }
}

/// Converts a run for an encoder of maps.
pub(super) fn piece_of(run: &Mapping) -> Piece {
    let placed = Placed { lbn: run.lbn, extent: run.extent };
    Piece { placed, unwritten: run.unwritten }
}

impl Contents for RelayoutWriter<'_> {
    fn is_whole(&self, _object: ObjectId) -> bool {
        false
    }

    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let moved = self.survey.moved(object);
        if moved.kind == FileKind::Directory {
            self.fill_directory(moved.ino, lbn, out)
        } else {
            self.contents(object).read_at(lbn * self.block_size(), out)
        }
    }

    fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
        if self.survey.moved(object).kind == FileKind::Directory {
            return Ok(None);
        }
        Ok(Some(Box::new(self.contents(object))))
    }
}
