//! Allocation of free blocks for files to be moved.

use super::Halt;
use super::target::Target;
use seekless_host::donor::{Blocks, Donor};
use seekless_images::Error;
use seekless_units::{BlockNo, Extent};

/// Allocation unit in bytes.
const PIECE: u64 = 128 << 20;

/// Divisor of the available blocks: at least that part is left to other users.
const LEAVE_PART: u64 = 16;

/// Minimum number of bytes left to them, capped by `LEAVE_SMALL_PART`.
const LEAVE: u64 = 64 << 20;

/// Divisor of the available blocks: at most that part is left because of `LEAVE`.
const LEAVE_SMALL_PART: u64 = 8;

/// Maximum number of times that the rest is freed and allocated again.
const ATTEMPTS: u32 = 3;

/// The free blocks needed.
pub(crate) struct Wanted {
    /// The region to lay out.
    pub(crate) region: Extent,
    /// Free blocks in it, in order.
    pub(crate) free: Vec<Blocks>,
    /// If set, a run of this length elsewhere is acceptable too.
    pub(crate) instead: Option<u64>,
    /// Blocks outside the region for files that make way.
    pub(crate) room: u64,
}

/// Number of available blocks to leave to other users.
pub(crate) fn left_to_others(available: u64, block_size: u64) -> u64 {
    (available / LEAVE_PART).max((available / LEAVE_SMALL_PART).min(LEAVE / block_size))
}

/// Total number of blocks.
pub(crate) fn total(runs: &[Blocks]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

/// The parts of `runs` that are in one of `within`; both in order.
fn common(runs: impl Iterator<Item = Blocks>, within: &[Blocks]) -> Vec<Blocks> {
    let mut found = Vec::new();
    for run in runs {
        let end = run.start + run.len;
        let first = within.partition_point(|other| other.start + other.len <= run.start);
        for other in within[first..].iter().take_while(|other| other.start < end) {
            let start = run.start.max(other.start);
            let len = end.min(other.start + other.len) - start;
            found.push(Blocks { start, len });
        }
    }
    found
}

impl Wanted {
    /// Makes `donor` allocate as many of the needed blocks as possible. The kernel allocates free
    /// blocks in an order of its own: blocks are allocated until the needed ones are among them,
    /// and the others are freed at once. Meanwhile enough blocks are left to other users that they
    /// do not run out of space.
    pub(crate) fn acquire(
        &self,
        donor: &mut Donor,
        target: &Target,
        block_size: u64,
        halt: &mut Halt<'_>,
    ) -> Result<(), Error> {
        let piece = (PIECE / block_size).max(1);
        let leave = left_to_others(target.available()?, block_size);
        let mut before = None;
        for _ in 0..ATTEMPTS {
            loop {
                halt()?;
                if let Some(run) = self.elsewhere(donor) {
                    return Ok(donor.keep(&[run])?);
                }
                if self.missing(donor) == 0 {
                    return self.trim(donor);
                }
                let may = target.available()?.saturating_sub(leave);
                let asked = piece.max(self.instead.unwrap_or(0)).min(may);
                if asked == 0 || donor.grow(asked)? == 0 {
                    break;
                }
            }
            self.trim(donor)?;
            // The freed blocks may be allocated first again and again.
            let missing = self.missing(donor);
            if before.is_some_and(|before| before <= missing) {
                break;
            }
            before = Some(missing);
        }
        Ok(())
    }

    /// The donor's longest run, if it is acceptable instead of the region.
    fn elsewhere(&self, donor: &Donor) -> Option<Blocks> {
        let longest = donor.held().max_by_key(|run| run.len)?;
        self.instead.filter(|len| longest.len >= *len).map(|_| longest)
    }

    /// Number of needed blocks that the donor lacks.
    fn missing(&self, donor: &Donor) -> u64 {
        let held = common(donor.held(), &self.free);
        let outside = donor.total() - total(&held);
        total(&self.free) - total(&held) + self.room.saturating_sub(outside)
    }

    /// Frees blocks that are not needed.
    fn trim(&self, donor: &mut Donor) -> Result<(), Error> {
        let (low, high) = (self.region.start.get(), self.region.end().get());
        let mut kept = common(donor.held(), &self.free);
        let mut outside: Vec<Blocks> =
            donor.held().filter(|run| run.start + run.len <= low || run.start >= high).collect();
        // In long runs, so that files that make way are not scattered.
        outside.sort_unstable_by_key(|run| (std::cmp::Reverse(run.len), run.start));
        let mut room = self.room;
        for run in outside {
            let len = run.len.min(room);
            room -= len;
            if len > 0 {
                kept.push(Blocks { start: run.start, len });
            }
        }
        kept.sort_unstable_by_key(|run| run.start);
        Ok(donor.keep(&kept)?)
    }
}

/// The donor's blocks, as the planner's free space.
pub(crate) fn free_of(donor: &Donor) -> Vec<Extent> {
    let mut free: Vec<Extent> = Vec::new();
    for run in donor.held() {
        match free.last_mut() {
            Some(last) if last.end().get() == run.start => last.len += run.len,
            _ => free.push(Extent::new(BlockNo::new(run.start), run.len)),
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lists_of_runs_have_in_common() {
        let runs = |pairs: &[(u64, u64)]| -> Vec<Blocks> {
            pairs.iter().map(|&(start, len)| Blocks { start, len }).collect()
        };
        let some = runs(&[(10, 10), (30, 5), (50, 1)]);
        let within = runs(&[(0, 12), (15, 3), (18, 20), (40, 11)]);
        let both = common(some.iter().copied(), &within);
        assert_eq!(both, runs(&[(10, 2), (15, 3), (18, 2), (30, 5), (50, 1)]));
        assert_eq!(total(&both), 13);
        assert_eq!(common(some.into_iter(), &[]), []);
    }
}
