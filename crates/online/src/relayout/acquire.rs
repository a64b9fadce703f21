//! Getting hold of the free blocks that files are to have.

use super::Halt;
use super::target::Target;
use seekless_host::donor::{Blocks, Donor};
use seekless_images::Error;
use seekless_units::{BlockNo, Extent};

/// What is taken in one go: bytes.
const PIECE: u64 = 128 << 20;

/// Of what others have, at least this part is left to them;
const LEAVE_PART: u64 = 16;

/// and so much where it is more: bytes,
const LEAVE: u64 = 64 << 20;

/// though not more than this part.
const LEAVE_SMALL_PART: u64 = 8;

/// How often the rest is given back and asked for again.
const ATTEMPTS: u32 = 3;

/// What is wanted of free space.
pub(crate) struct Wanted {
    /// The region that is laid out.
    pub(crate) region: Extent,
    /// What is free in it, in order.
    pub(crate) free: Vec<Blocks>,
    /// A run of free blocks of this length elsewhere will do as well.
    pub(crate) instead: Option<u64>,
    /// Blocks outside the region for what must make way.
    pub(crate) room: u64,
}

/// Blocks that are left to others of those that they could get.
pub(crate) fn left_to_others(available: u64, block_size: u64) -> u64 {
    (available / LEAVE_PART).max((available / LEAVE_SMALL_PART).min(LEAVE / block_size))
}

/// Blocks in all.
pub(crate) fn total(runs: &[Blocks]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

/// The parts of `runs` that lie in one of `within`; both in order.
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
    /// Lets `donor` hold as much of it as can be had. The kernel hands out free blocks
    /// in an order of its own: blocks are taken until the wanted ones are among them,
    /// and the others are given back at once. So much is left to others all the
    /// while that they do not run out of space.
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
            // What was given back may be given out first, again and again.
            let missing = self.missing(donor);
            if before.is_some_and(|before| before <= missing) {
                break;
            }
            before = Some(missing);
        }
        Ok(())
    }

    /// The longest run that is held, if it will do instead of the region.
    fn elsewhere(&self, donor: &Donor) -> Option<Blocks> {
        let longest = donor.held().max_by_key(|run| run.len)?;
        self.instead.filter(|len| longest.len >= *len).map(|_| longest)
    }

    /// Blocks that are wanted and not held.
    fn missing(&self, donor: &Donor) -> u64 {
        let held = common(donor.held(), &self.free);
        let outside = donor.total() - total(&held);
        total(&self.free) - total(&held) + self.room.saturating_sub(outside)
    }

    /// Gives back what is not wanted.
    fn trim(&self, donor: &mut Donor) -> Result<(), Error> {
        let (low, high) = (self.region.start.get(), self.region.end().get());
        let mut kept = common(donor.held(), &self.free);
        let mut outside: Vec<Blocks> =
            donor.held().filter(|run| run.start + run.len <= low || run.start >= high).collect();
        // In long runs, so that what makes way is not scattered.
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

/// What a donor holds, as the planner takes free blocks.
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
