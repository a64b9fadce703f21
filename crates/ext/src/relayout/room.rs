//! Space for the files that move: free space, and the blocks that these files leave. Fixed blocks
//! are excluded, even if a bitmap has them free.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "blocks were checked against the volume"
)]

use super::survey::Survey;
use crate::indirect::double_block;
use crate::ondisk::{incompat, ro_compat, special};
use crate::volume::Volume;
use seekless_fs::extents::union;
use seekless_fs::plan::ObjectId;
use seekless_fs::{Corruption, FsError, Location, Mapping};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};

impl Survey<'_> {
    /// Blocks of the volume's own metadata, and those of inodes that stay.
    fn immovable(&self) -> Result<Vec<Extent>, FsError> {
        let volume = self.volume;
        let mut fixed = Vec::new();
        for group in (0..volume.sb.groups).map(GroupNo::new) {
            fixed.extend(volume.descriptors().metadata(&volume.descriptors().read_checked(group)?));
        }
        // Before the superblock there is at most a boot block.
        fixed.push(Extent::new(BlockNo::ZERO, volume.sb.superblock_block().get() + 1));
        if volume.sb.has_incompat(incompat::MMP) {
            fixed.push(Extent::new(BlockNo::new(volume.sb.raw.s_mmp_block.get()), 1));
        }
        for &ino in &self.pinned {
            if !self.says_nothing(ino)? {
                fixed.extend(blocks_of(volume, ino)?);
            }
        }
        Ok(fixed)
    }

    /// Finds the runs of clusters that may be used.
    pub(super) fn find_room(&mut self) -> Result<(), FsError> {
        let mut room: Vec<(Extent, Ino)> = Vec::new();
        let unit = self.cluster;
        let clusters = |run: Extent| {
            let (first, end) = (run.start.get() / unit, run.end().get().div_ceil(unit));
            Extent::new(BlockNo::new(first), end - first)
        };
        for group in 0..self.volume.sb.groups {
            for free in self.volume.bitmaps().group_summary(GroupNo::new(group))?.free {
                room.push((clusters(free), Ino::ZERO));
            }
        }
        for at in 0..self.moved.len() {
            let object = ObjectId::new(at as u32);
            let ino = self.moved[at].ino;
            room.extend(self.clusters(object).into_iter().map(|extent| (extent, ino)));
        }
        room.sort_unstable();
        for pair in room.windows(2) {
            if pair[0].0.overlaps(pair[1].0) {
                let at = pair[1].0.start.get() * unit;
                return Err(twice("block in use twice", at, pair[0].1.max(pair[1].1)));
            }
        }
        let mut fixed: Vec<Extent> = self.immovable()?.into_iter().map(clusters).collect();
        fixed.extend(self.shared.iter().map(|&run| clusters(run)));
        for run in fixed {
            let next = room.partition_point(|(free, _)| free.end() <= run.start);
            if let Some(&(free, ino)) = room.get(next).filter(|(free, _)| free.overlaps(run)) {
                let at = free.start.max(run.start).get() * unit;
                let what = if ino == Ino::ZERO {
                    "block in use but marked free in its bitmap"
                } else {
                    "file block inside the file system's metadata"
                };
                return Err(twice(what, at, ino));
            }
        }
        self.room = union(room.into_iter().map(|(extent, _)| extent).collect());
        debug_assert!(
            self.room.is_sorted_by(|one, next| one.end() < next.start),
            "runs that touch are one"
        );
        Ok(())
    }

    /// With `shared_blocks`: finds the blocks of several files. They stay in place, and the runs of
    /// their files are split there.
    pub(super) fn find_shared(&mut self) {
        if !self.volume.sb.has_ro_compat(ro_compat::SHARED_BLOCKS) {
            return;
        }
        let unit = self.cluster;
        let mut runs: Vec<Extent> = Vec::new();
        for moved in &self.moved {
            let mut own: Vec<Extent> = Vec::new();
            for run in &moved.runs {
                let first = run.extent.start.get() / unit * unit;
                let end = run.extent.end().get().next_multiple_of(unit);
                own.push(Extent::new(BlockNo::new(first), end - first));
            }
            own.sort_unstable();
            // Two runs of a file in one cluster do not count as sharing.
            own.dedup_by(|later, earlier| {
                let meets = later.start < earlier.end();
                if meets {
                    earlier.len = later.end().max(earlier.end()).get() - earlier.start.get();
                }
                meets
            });
            runs.append(&mut own);
        }
        runs.sort_unstable();
        let mut shared: Vec<Extent> = Vec::new();
        let mut reach = BlockNo::ZERO;
        for run in runs {
            let end = run.end().min(reach);
            if end > run.start {
                match shared.last_mut() {
                    Some(last) if last.end() >= run.start => {
                        last.len = last.end().max(end).get() - last.start.get();
                    }
                    _ => shared.push(Extent::new(run.start, end.get() - run.start.get())),
                }
            }
            reach = reach.max(run.end());
        }
        debug_assert!(
            shared.is_sorted_by(|one, next| one.end() <= next.start),
            "shared runs rise and do not overlap"
        );
        self.shared = shared;
        for moved in &mut self.moved {
            moved.runs = split(&moved.runs, &self.shared);
        }
    }

    /// Whether a run lies in blocks of several files: it does not move.
    pub(crate) fn stays(&self, run: &Mapping) -> bool {
        let at = self.shared.partition_point(|shared| shared.end() <= run.extent.start);
        self.shared.get(at).is_some_and(|shared| shared.start <= run.extent.start)
    }
}

/// Runs cut at the ends of shared extents.
pub(super) fn split(runs: &[Mapping], shared: &[Extent]) -> Vec<Mapping> {
    let mut pieces = Vec::with_capacity(runs.len());
    for run in runs {
        let (mut at, end) = (run.extent.start, run.extent.end());
        let mut next = shared.partition_point(|shared| shared.end() <= at);
        while at < end {
            let (to, more) = match shared.get(next) {
                Some(shared) if shared.start <= at => (shared.end().min(end), 1),
                Some(shared) => (shared.start.min(end), 0),
                None => (end, 0),
            };
            let skip = at - run.extent.start;
            pieces.push(Mapping {
                lbn: Lbn::new(run.lbn.get() + skip),
                extent: Extent::new(at, to - at),
                unwritten: run.unwritten,
            });
            at = to;
            next += more;
        }
    }
    debug_assert_eq!(
        pieces.iter().map(|piece| piece.extent.len).sum::<u64>(),
        runs.iter().map(|run| run.extent.len).sum::<u64>(),
        "runs are cut into all of their blocks"
    );
    pieces
}

/// All blocks of an inode that stays: those of its map and of its attributes.
fn blocks_of(volume: &Volume, ino: Ino) -> Result<Vec<Extent>, FsError> {
    let inode = volume.inodes().read(ino)?;
    let mut blocks: Vec<Extent> = match ino.get() {
        special::BAD_BLOCKS => volume.maps().blocks_of_any_kind(&inode)?,
        // The blocks of its map belong to the groups.
        special::RESIZE => {
            double_block(&inode).map(|block| Extent::new(block, 1)).into_iter().collect()
        }
        _ => {
            let map = volume.maps().block_map(&inode)?;
            let index = map.index.iter().map(|node| Extent::new(node.block, 1));
            map.runs.iter().map(|run| run.extent).chain(index).collect()
        }
    };
    if inode.kind().is_some()
        && let Some(block) = volume.inodes().xattr_block_of(&inode)
    {
        volume.check_block(block, Location::of("inode").in_inode(ino))?;
        blocks.push(Extent::new(block, 1));
    }
    Ok(blocks)
}

fn twice(what: &'static str, block: u64, ino: Ino) -> FsError {
    let place = Location::of(what).in_block(BlockNo::new(block));
    let place = if ino == Ino::ZERO { place } else { place.in_inode(ino) };
    FsError::corrupt(Corruption::Invalid { field: "block", value: block }, place)
}
