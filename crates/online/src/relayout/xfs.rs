//! Moving files of a mounted XFS: contents that traces read are copied to contiguous free blocks,
//! in the order of first access, and exchanged for the files' former blocks
//! (`XFS_IOC_COMMIT_RANGE`), unless a file was written to meanwhile.
//!
//! Free space is requested as a whole, and the allocator decides its location. No structure of the
//! volume is read from its device.

mod costs;
mod perform;
mod plan;
mod reason;
mod target;
mod tree;

pub use costs::XfsCosts;
pub use reason::XfsReason;
pub use target::XfsTarget;

use super::acquire::left_to_others;
use super::{Broken, Halt, Stop};
use perform::{XfsMoveCounts, XfsMover};
use plan::{Piece, Places, pieces, split, total};
use seekless_images::Error;
use seekless_layout::planner::Storage;
use seekless_layout::replay::{Replayed, replay_for_layout};
use seekless_layout::trace::Events;
use seekless_units::ByteLen;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use tree::{MountedTree, View};

/// Parameters of a rearrangement of an XFS.
pub struct XfsJob<'a> {
    /// The traces to lay out by and to judge a layout by.
    pub traces: &'a [Events],
    /// The storage that the volume lies on.
    pub storage: Storage,
    /// Limit of bytes moved.
    pub budget: Option<ByteLen>,
    /// Whether it is worthwhile to move this many bytes, for these numbers of seeks before and
    /// after.
    pub is_worth_it: &'a dyn Fn(u64, u64, u64) -> bool,
}

/// A snapshot of an XFS's layout: the reads of the traces and their costs on it.
pub struct XfsSnapshot {
    tree: MountedTree,
    /// The replayed reads of each trace.
    pub replays: Vec<Replayed>,
    costs: XfsCosts,
    /// In the intended order on the disk.
    pieces: Vec<Piece>,
}

/// The result of a rearrangement of an XFS.
pub struct XfsOutcome {
    /// Accessed bytes that can be moved.
    pub hot: u64,
    /// Those of them that are placed as well as free space would allow.
    pub in_place: u64,
    /// Bytes moved.
    pub moved: u64,
    /// Bytes that should have been moved but were not.
    pub left: u64,
    /// Number of files with contents that stayed, by reason.
    pub left_files: BTreeMap<XfsReason, u64>,
    /// The reason for stopping early, if any.
    pub stopped: Option<Stop>,
    /// Requests of the traces, before.
    pub before: XfsCosts,
    /// Requests of the traces, after.
    pub after: XfsCosts,
}

impl XfsJob<'_> {
    /// Examines the present state of the volume.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged volume, `ErrorKind::System`.
    pub fn look(&self, target: &XfsTarget) -> Result<XfsSnapshot, Error> {
        target.settle()?;
        let tree = target.look()?;
        let about = |error| target.about(Error::from(error));
        let view = View { tree: &tree, moved: HashMap::new() };
        let replays = replay_for_layout(&view, self.traces).map_err(about)?;
        let costs = XfsCosts::new(&view, self.traces, &BTreeMap::new()).map_err(about)?;
        let pieces = pieces(&tree, &replays, self.storage);
        Ok(XfsSnapshot { tree, replays, costs, pieces })
    }

    /// Limit of blocks moved.
    fn most(&self, block_size: u64) -> u64 {
        self.budget.map_or(u64::MAX, |budget| budget.get() / block_size)
    }

    /// The pieces to move, and whether the budget excludes some.
    fn chosen(&self, target: &XfsTarget, seen: &XfsSnapshot) -> (Vec<Piece>, bool) {
        let (chosen, rest) = split(&seen.pieces, self.most(target.block_size()));
        (chosen, !rest.is_empty())
    }

    /// Maximum number of blocks that the donor may own at once.
    fn room(target: &XfsTarget) -> Result<u64, Error> {
        let available = target.available()?;
        Ok(available.saturating_sub(left_to_others(available, target.block_size())))
    }

    fn costs(&self, target: &XfsTarget, view: &View<'_>) -> Result<XfsCosts, Error> {
        let costs = XfsCosts::new(view, self.traces, &BTreeMap::new());
        costs.map_err(|error| target.about(Error::from(error)))
    }

    /// The outcome that moving would have if free runs are long enough, without moving anything.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a damaged volume, `ErrorKind::System`.
    pub fn foresee(&self, target: &XfsTarget, seen: XfsSnapshot) -> Result<XfsOutcome, Error> {
        let bs = target.block_size();
        let (chosen, is_over) = self.chosen(target, &seen);
        let mut view = View { tree: &seen.tree, moved: HashMap::new() };
        let room = Self::room(target)?;
        let mut rest = chosen.clone();
        let mut end = target.geometry.blocks;
        while room > 0 && !rest.is_empty() {
            let (window, behind) = split(&rest, room);
            Places::behind(end, total(&window)).fill(&mut view, &window);
            // Another run, somewhere.
            end += total(&window) + 1;
            rest = behind;
        }
        let after = self.costs(target, &view)?;
        let moved = (total(&chosen) - total(&rest)) * bs;
        let hot = total(&seen.pieces) * bs;
        let nothing = XfsOutcome {
            hot,
            in_place: 0,
            moved: 0,
            left: hot,
            left_files: BTreeMap::new(),
            stopped: None,
            before: seen.costs.clone(),
            after: seen.costs,
        };
        let room = Some(Stop::Room).filter(|_| !rest.is_empty());
        if moved == 0 {
            return Ok(XfsOutcome { stopped: room, ..nothing });
        }
        Ok(match self.judge(moved, nothing.before.seeks(), after.seeks()) {
            Judged::InPlace => XfsOutcome { in_place: moved, left: hot - moved, ..nothing },
            Judged::TooLittle => XfsOutcome { stopped: Some(Stop::Gain), ..nothing },
            Judged::Worth => {
                let stopped = room.or(is_over.then_some(Stop::Budget));
                XfsOutcome { moved, left: hot - moved, stopped, after, ..nothing }
            }
        })
    }

    fn judge(&self, moved: u64, before: u64, after: u64) -> Judged {
        if after >= before {
            Judged::InPlace
        } else if (self.is_worth_it)(moved, before, after) {
            Judged::Worth
        } else {
            Judged::TooLittle
        }
    }

    /// Moves files into place. However it ends, files are whole, and the donor's blocks are free.
    ///
    /// # Errors
    /// [`Broken`], with the number of bytes moved before.
    pub fn carry_out(
        &self,
        target: &XfsTarget,
        seen: XfsSnapshot,
        halt: &mut Halt<'_>,
        observer: &dyn seekless_images::Progress,
    ) -> Result<XfsOutcome, Broken> {
        let bs = target.block_size();
        target.probe()?;
        let (chosen, is_over) = self.chosen(target, &seen);
        let over = total(&seen.pieces) - total(&chosen);
        observer.begin(ByteLen::new(total(&chosen) * bs));
        let mut mover = XfsMover { target, halt, observer, counts: XfsMoveCounts::default() };
        let done = self.windows(target, &seen, chosen, &mut mover);
        let XfsMoveCounts { moved, left, reasons } = mover.counts;
        let broken = |failure| Broken { failure, moved: moved * bs };
        target.settle().map_err(broken)?;
        let End { stopped, left: not_tried, in_place } = done.map_err(broken)?;
        let tree = target.look().map_err(broken)?;
        let view = View { tree: &tree, moved: HashMap::new() };
        let after = XfsCosts::new(&view, self.traces, &reasons);
        let after = after.map_err(|error| broken(target.about(Error::from(error))))?;
        let mut left_files = BTreeMap::new();
        for reason in reasons.into_values() {
            *left_files.entry(reason).or_default() += 1;
        }
        let hot = total(&seen.pieces);
        Ok(XfsOutcome {
            hot: hot * bs,
            in_place: in_place * bs,
            moved: moved * bs,
            left: (left + not_tried + over) * bs,
            left_files,
            stopped: stopped.or(is_over.then_some(Stop::Budget)),
            before: seen.costs,
            after,
        })
    }

    /// Moves pieces, as many at a time as free space allows.
    fn windows(
        &self,
        target: &XfsTarget,
        seen: &XfsSnapshot,
        mut rest: Vec<Piece>,
        mover: &mut XfsMover<'_, '_>,
    ) -> Result<End, Error> {
        let bs = target.block_size();
        let mut view = View { tree: &seen.tree, moved: HashMap::new() };
        let mut before = seen.costs.seeks();
        let dir = directory(&seen.tree, target, &rest);
        while !rest.is_empty() {
            (mover.halt)()?;
            let room = Self::room(target)?;
            let (window, _) = split(&rest, room);
            if window.is_empty() {
                return Ok(End::early(Stop::Room, &rest));
            }
            let mut donor = target.donor(&seen.tree, &dir)?;
            self.hold(&mut donor, total(&window) * bs, room * bs)?;
            let held = donor.held()?;
            let mut places = Places::held(&held, donor.at(), bs);
            let (window, behind) = split(&rest, places.total());
            if window.is_empty() {
                return Ok(End::early(Stop::Room, &rest));
            }
            places.fill(&mut view, &window);
            let after = self.costs(target, &view)?.seeks();
            match self.judge(total(&window) * bs, before, after) {
                Judged::InPlace => return Ok(End { in_place: total(&rest), ..End::default() }),
                Judged::TooLittle => return Ok(End::early(Stop::Gain, &rest)),
                Judged::Worth => {}
            }
            mover.apply(&seen.tree, donor, &window)?;
            // Freed blocks are available to the next window only after this.
            target.settle()?;
            (before, rest) = (after, behind);
        }
        Ok(End::default())
    }

    /// Makes a donor allocate `len` bytes that begin at a multiple of the chunk, if possible within
    /// `room`.
    fn hold(
        &self,
        donor: &mut seekless_host::xfs::XfsDonor,
        len: u64,
        room: u64,
    ) -> Result<(), Error> {
        let chunk = self.storage.chunk.get();
        donor.hold((len + chunk).min(room))?;
        let held = donor.held()?;
        let Some(first) = held.first().filter(|first| first.logical == donor.at()) else {
            return Ok(());
        };
        let skip = first.physical.next_multiple_of(chunk.max(1)) - first.physical;
        let is_enough = held.iter().map(|extent| extent.len).sum::<u64>() >= skip + len;
        if skip < first.len && is_enough {
            donor.skip(skip)?;
        }
        Ok(())
    }
}

/// The verdict on a plan.
enum Judged {
    Worth,
    /// It saves some seeks, but too few for the bytes to move.
    TooLittle,
    /// It saves nothing: the present layout is as good.
    InPlace,
}

/// The end of moving.
#[derive(Default)]
struct End {
    stopped: Option<Stop>,
    /// Blocks that were not tried.
    left: u64,
    /// Blocks that are already placed well.
    in_place: u64,
}

impl End {
    fn early(stopped: Stop, rest: &[Piece]) -> Self {
        Self { stopped: Some(stopped), left: total(rest), in_place: 0 }
    }
}

/// The directory of a file in the allocation group that contains most of the pieces: the search for
/// free space begins there.
fn directory(tree: &MountedTree, target: &XfsTarget, pieces: &[Piece]) -> PathBuf {
    let shape = &target.geometry;
    let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
    for piece in pieces {
        if let Some(run) = tree.found(piece.ino).map.find(seekless_units::Lbn::new(piece.lbn)) {
            let byte = run.extent.start.get() * target.block_size();
            *blocks.entry(shape.group_of_byte(byte)).or_default() += piece.len;
        }
    }
    let group = blocks.into_iter().max_by_key(|(_, blocks)| *blocks).map(|(group, _)| group);
    let is_there = |piece: &&Piece| Some(shape.group_of_inode(tree.real(piece.ino))) == group;
    let path = pieces.iter().find(is_there).map(|piece| tree.path(piece.ino));
    path.and_then(|path| path.parent().map(PathBuf::from)).unwrap_or_default()
}
