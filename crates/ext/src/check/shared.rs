//! Copies of blocks that several files have, on a volume with `shared_blocks` (e2fsck,
//! `-E unshare_blocks`). The first file keeps a block, each other one gets a copy.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use super::repair::space::Space;
use crate::encode::mapping::{Piece, blocks_of_map, push};
use crate::inode::Inode;
use crate::ondisk::{flags, ro_compat};
use seekless_fs::bits::Bits;
use seekless_fs::field::index;
use seekless_fs::plan::Placed;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};

/// The places of the blocks of a file that shares some, and the copies to be made.
pub(super) struct Apart {
    pub(super) pieces: Vec<Piece>,
    pub(super) copies: Vec<(BlockNo, BlockNo)>,
}

/// Clusters that have their owner: the first file with them, in order of inode numbers.
pub(super) struct Owned(Bits);

impl Owned {
    /// No file has been looked at. Blocks of attributes, whose users are counted, and those of the
    /// volume's own files stay where they are.
    pub(super) fn new(checker: &Checker) -> Result<Self, FsError> {
        let mut owned = Bits::new(index(checker.sb().clusters()));
        let mut own = |run: Extent| {
            for cluster in checker.sb().clusters_of(run) {
                owned.set(index(cluster));
            }
        };
        let inodes = checker.volume.inodes();
        for (ino, seen) in checker.seen.iter().filter(|(_, seen)| !seen.is_empty) {
            let inode = inodes.read(ino)?;
            if let Some(block) = inodes.xattr_block_of(&inode) {
                own(Extent::new(block, 1));
            }
            if seen.is_special {
                checker.volume.maps().blocks_of_any_kind(&inode)?.into_iter().for_each(&mut own);
            }
        }
        Ok(Self(owned))
    }

    /// The new places of a file's blocks, in clusters that `take` finds; `None` for a file that
    /// shares no block, or keeps all that it shares. `Err` with the error of `take`, or for a damaged map.
    pub(super) fn part(
        &mut self,
        checker: &Checker,
        inode: &Inode,
        take: &mut dyn FnMut() -> Result<BlockNo, FsError>,
    ) -> Result<Option<Apart>, FsError> {
        let map = checker.volume.maps().block_map(inode)?;
        let is_shared =
            |run: Extent| checker.sb().clusters_of(run).any(|at| checker.twice.get(index(at)));
        let has_shared_index = map.index.iter().any(|node| is_shared(Extent::new(node.block, 1)));
        let shares = map.runs.iter().any(|run| is_shared(run.extent)) || has_shared_index;
        if !shares {
            return Ok(None);
        }
        let mut is_moved = has_shared_index;
        let ratio = u64::from(checker.sb().cluster_ratio);
        let mut apart = Apart { pieces: Vec::new(), copies: Vec::new() };
        // The last cluster of the file, and the block at which its copy begins.
        let mut last: Option<(u64, u64, Option<BlockNo>)> = None;
        for run in &map.runs {
            for n in 0..run.extent.len {
                let (lbn, block) = (run.lbn + n, run.extent.start + n);
                let (logical, physical) = (lbn.get() / ratio, block.get() / ratio);
                let start = match last {
                    Some((of, at, start)) if (of, at) == (logical, physical) => start,
                    _ if !checker.twice.get(index(physical)) => None,
                    _ if self.0.set(index(physical)) => None,
                    _ => Some(take()?),
                };
                last = Some((logical, physical, start));
                let at = start.map_or(block, |start| start + lbn.get() % ratio);
                is_moved |= at != block;
                if at != block && !run.unwritten {
                    apart.copies.push((block, at));
                }
                let placed = Placed { lbn, extent: Extent::new(at, 1) };
                push(&mut apart.pieces, Piece { placed, unwritten: run.unwritten });
            }
        }
        // The first file with a block keeps its map.
        Ok(is_moved.then_some(apart))
    }
}

/// Inodes that may share blocks.
pub(super) fn inodes(checker: &Checker) -> impl Iterator<Item = Ino> {
    let may = checker.seen.iter().filter(|(_, seen)| !seen.is_empty && !seen.is_special);
    may.map(|(ino, _)| ino)
}

/// Notes that files share blocks, which a repair copies if there is room.
///
/// # Errors
/// Errors of the device.
pub(super) fn shared_files(checker: &mut Checker) -> Result<(), FsError> {
    if !checker.sb().has_ro_compat(ro_compat::SHARED_BLOCKS) {
        return Ok(());
    }
    // Damaged maps are written again before.
    let has_room = match has_room(checker) {
        Err(FsError::Corrupt { .. }) => true,
        has_room => has_room?,
    };
    let all = index(checker.sb().clusters());
    let clusters = (0..all).filter(|&at| checker.twice.get(at)).count();
    let what = match has_room {
        true => format!("files share {clusters} blocks or clusters"),
        false => format!("no room for copies of {clusters} blocks or clusters that files share"),
    };
    checker.graded(has_room, problems::SUPERBLOCK_SHARED, what, Location::of("superblock"));
    if has_room {
        checker.fix(Stage::Copies, Fix::Unshare);
    }
    Ok(())
}

/// Whether there is room for a copy of each block that files share.
///
/// # Errors
/// Errors of the device.
fn has_room(checker: &Checker) -> Result<bool, FsError> {
    let mut owned = Owned::new(checker)?;
    let mut space = Space::new(checker.used.clone());
    let no_space = || FsError::NoSpace("no cluster for a copy".into());
    for ino in inodes(checker) {
        let inode = checker.volume.inodes().read(ino)?;
        let parted =
            owned.part(checker, &inode, &mut || space.cluster(checker).ok_or_else(no_space));
        let apart = match parted {
            Err(FsError::NoSpace(_)) => return Ok(false),
            apart => apart?,
        };
        let Some(apart) = apart else { continue };
        let has_extents = inode.has_flag(flags::EXTENTS);
        let blocks = blocks_of_map(&apart.pieces, has_extents, checker.sb().block_size);
        if (0..blocks).any(|_| space.cluster(checker).is_none()) {
            return Ok(false);
        }
    }
    Ok(true)
}
