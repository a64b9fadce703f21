//! Brings the blocks touched by a trace together within an image, moving little else.
//!
//! A region is chosen that has room for all of it, in free and movable blocks. Then, from its
//! beginning on, a stretch of the region is vacated, and its new blocks move in; each is a step of
//! its own (or several, if it is large), since blocks can be used again only when a step is on the
//! disk. Blocks already in place stay. Nothing else on the image moves.

mod region;
mod room;
mod state;
#[cfg(test)]
mod tests;

use super::Touch;
use seekless_fs::FsError;
use seekless_fs::plan::in_place::{Occupied, Step, StepLimits};
use seekless_fs::plan::{ObjectId, Run, Space};
use seekless_units::{BlockNo, Extent};
use state::{Making, State};

/// Blocks that evictions leave for maps that grow.
const MAP_RESERVE: u64 = 32;

/// Default budget: blocks that may be moved for each touched one.
const DEFAULT_BUDGET: u64 = 3;

/// Something that belongs into the region.
#[derive(Clone, Debug)]
struct Item {
    object: ObjectId,
    what: MovedPart,
    /// Its new places: as many blocks as it has, or, for a map, as it may need.
    places: Vec<Extent>,
    /// Whether it is there from the beginning, or is not needed.
    is_kept: bool,
}

/// The part of an object that moves: a run of its data, or its map of at most this many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MovedPart {
    Data(Run),
    Map(u64),
}

impl MovedPart {
    fn blocks(self) -> u64 {
        match self {
            Self::Data(run) => run.len,
            Self::Map(blocks) => blocks,
        }
    }
}

/// Why not everything was brought to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// More would have to move than was allowed.
    Budget,
    /// There is no room for the blocks that would have to make way.
    Room,
}

/// Progress of a rearrangement, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Touched blocks that are in place, or are to be moved there.
    pub hot: u64,
    /// Of these, the ones in place from the beginning.
    pub in_place: u64,
    /// Of these, the ones moved to their place.
    pub moved_in: u64,
    /// Blocks that made way, some of them to come back.
    pub moved_out: u64,
    /// Why the rest of it stays where it is.
    pub stopped: Option<Stopped>,
}

/// How long a run of free blocks must be to hold a region of `blocks` for certain, on a
/// volume of `volume` blocks; see [`InPlace::new`].
#[must_use]
pub fn enough_for(blocks: u64, volume: u64, align: u64) -> u64 {
    // It ends at such a multiple, too.
    blocks + 2 * region::part(volume, align.max(1))
}

/// A rearrangement in place: a sequence of steps.
#[allow(missing_debug_implementations)]
pub struct InPlace<'a> {
    limits: StepLimits,
    group_len: u64,
    items: Vec<Item>,
    /// Items before this one are at their places.
    next: usize,
    /// Places of the items up to this one are being vacated, or are vacated.
    window: usize,
    /// Blocks that may still be moved.
    left: u64,
    /// Of these, the blocks that the window takes.
    reserved: u64,
    progress: Progress,
    state: State<'a>,
}

impl<'a> InPlace<'a> {
    /// A rearrangement of the objects that `hot` names, in order of first touch. `space.free` are
    /// the free runs now; the region begins at a multiple of `align` blocks; at most `budget`
    /// blocks are moved, by default three times as many as were touched.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when all free and movable blocks do not hold it.
    pub fn new(
        occupied: &'a dyn Occupied,
        space: &Space,
        hot: &[Touch],
        align: u64,
        budget: Option<u64>,
        limits: StepLimits,
    ) -> Result<Self, FsError> {
        debug_assert!(limits.blocks > 0 && limits.objects > 0 && limits.groups > 1);
        let group_len = space.tables.first().map_or(u64::MAX, |table| table.group.len).max(1);
        let (items, kept) = region::assign(occupied, space, hot, align, limits)?;
        let places = || items.iter().flat_map(|item| &item.places);
        let start = places().map(|place| place.start).min().unwrap_or_default();
        let end = places().map(|place| place.end()).max().unwrap_or_default();
        let region = Extent::new(start, end - start);
        let moving = items.iter().filter(|item| !item.is_kept).map(|item| item.what.blocks());
        let in_place = kept.iter().map(|place| place.len).sum();
        let progress =
            Progress { hot: in_place + moving.sum::<u64>(), in_place, ..Progress::default() };
        let mut state = State::new(occupied, region, &space.free);
        for place in &kept {
            state.disown(*place);
        }
        Ok(Self {
            limits,
            group_len,
            items,
            next: 0,
            window: 0,
            left: budget.unwrap_or(progress.hot * DEFAULT_BUDGET),
            reserved: 0,
            progress,
            state,
        })
    }

    /// Where everything goes that was touched.
    #[must_use]
    pub fn region(&self) -> Extent {
        self.state.region
    }

    /// Progress of the steps so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The next step. The one before must be on the disk, since this one may use the blocks it has
    /// freed. `None` when there is nothing left to do.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when maps grow beyond the free blocks.
    pub fn next_step(&mut self) -> Result<Option<Step>, FsError> {
        self.state.take_up();
        loop {
            self.pass_kept();
            if self.next == self.items.len() || self.progress.stopped.is_some() {
                return Ok(None);
            }
            if self.window <= self.next && !self.open_window() {
                return Ok(None);
            }
            let mut making = Making::default();
            let is_vacated = self.vacate(&mut making);
            if making.is_empty() && is_vacated {
                self.fill(&mut making);
            }
            if !making.is_empty() {
                return self.state.finish(making, self.group_len).map(Some);
            }
            debug_assert!(self.next >= self.window, "neither vacated nor filled");
        }
    }

    fn pass_kept(&mut self) {
        while self.items.get(self.next).is_some_and(|item| item.is_kept) {
            self.next += 1;
        }
    }

    /// Chooses the items whose places are vacated next: as many as there is room and
    /// allowance for. Whether there are any.
    fn open_window(&mut self) -> bool {
        let room = self.state.outside.total().saturating_sub(MAP_RESERVE);
        let (mut copied, mut evicted) = (0, 0);
        let mut end = self.next;
        while let Some(item) = self.items.get(end) {
            if !item.is_kept {
                let here: u64 = item.places.iter().map(|place| self.used(*place)).sum();
                let moved = here + item.what.blocks();
                if copied + moved > self.left {
                    if end == self.next {
                        self.progress.stopped = Some(Stopped::Budget);
                    }
                    break;
                }
                if evicted + here > room {
                    if end == self.next {
                        self.progress.stopped = Some(Stopped::Room);
                    }
                    break;
                }
                if end > self.next && copied > self.limits.blocks {
                    break;
                }
                copied += moved;
                evicted += here;
            }
            end += 1;
        }
        (self.window, self.reserved) = (end, copied);
        end > self.next
    }

    /// Blocks in a part of the region that must make way.
    fn used(&self, place: Extent) -> u64 {
        self.state.owners(place).iter().map(|owned| owned.within(place).extent.len).sum()
    }

    /// Whether a step has as much as it may have.
    fn is_full(&self, making: &Making) -> bool {
        making.blocks() >= self.limits.blocks
            || making.objects() >= self.limits.objects
            || making.groups() + 1 >= self.limits.groups
    }

    /// Moves blocks away from the window's places; whether none is left there.
    fn vacate(&mut self, making: &mut Making) -> bool {
        for at in self.next..self.window {
            if self.items[at].is_kept {
                continue;
            }
            for place in self.items[at].places.clone() {
                while let Some(owned) = self.state.owners(place).first().copied() {
                    if self.is_full(making) {
                        return false;
                    }
                    self.evict(making, owned, place);
                }
            }
        }
        true
    }

    /// Moves one run away that lies at `place`, or the part of it there.
    fn evict(&mut self, making: &mut Making, owned: state::Owned, place: Extent) {
        let Some(lbn) = owned.lbn else {
            // The step gives the map other blocks.
            let map = self.state.map(owned.object);
            let left = map.iter().copied().filter(|block| *block != owned.extent.start).collect();
            self.state.replace_map(making, owned.object, left);
            self.progress.moved_out += 1;
            self.spend(1, 1);
            return;
        };
        // All of the run, where there is room: it must make way anyhow, and stays whole.
        let here = owned.within(place);
        let beyond = owned.extent.len - here.extent.len;
        let spare = self.state.outside.total().saturating_sub(MAP_RESERVE);
        let may_go = owned.extent.len <= self.limits.blocks
            && beyond <= self.left - self.reserved
            && self.reserved + beyond <= spare;
        let part = if may_go { owned } else { here };
        debug_assert_eq!(part.lbn.map(|at| at >= lbn), Some(true));
        let run = Run { lbn: part.lbn.unwrap_or(lbn), len: part.extent.len };
        let mut to = Vec::new();
        let mut left = run.len;
        while left > 0 {
            // A window is opened only where there is room for the blocks it evicts.
            let Some(extent) = self.state.outside.take(left) else { break };
            left -= extent.len;
            to.push(extent);
        }
        debug_assert_eq!(left, 0, "no room for what was counted");
        let run = Run { len: run.len - left, ..run };
        self.state.relocate(making, owned.object, run, &to, self.group_len);
        self.progress.moved_out += run.len;
        self.spend(run.len, here.extent.len);
    }

    /// Counts blocks as moved, some of which the window had reserved.
    fn spend(&mut self, moved: u64, reserved: u64) {
        debug_assert!(moved <= self.left && reserved <= self.reserved);
        self.left -= moved;
        self.reserved -= reserved;
    }

    /// Moves items of the window to their places, which are free.
    fn fill(&mut self, making: &mut Making) {
        while self.next < self.window && !self.is_full(making) {
            let item = self.items[self.next].clone();
            self.next += 1;
            if item.is_kept {
                continue;
            }
            match item.what {
                MovedPart::Data(run) => {
                    self.state.relocate(making, item.object, run, &item.places, self.group_len);
                }
                MovedPart::Map(_) => {
                    let blocks = item.places.iter().flat_map(blocks_of).collect();
                    self.state.replace_map(making, item.object, blocks);
                }
            }
            let blocks = item.what.blocks();
            self.progress.moved_in += blocks;
            self.spend(blocks, blocks);
        }
    }
}

fn blocks_of(extent: &Extent) -> impl Iterator<Item = BlockNo> + use<> {
    let start = extent.start;
    (0..extent.len).map(move |n| start + n)
}
