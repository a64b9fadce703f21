//! How much of the space is taken, and how much may be.

use seekless_units::ByteLen;

/// The free space that a file system reports, as `df` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Bytes that are taken.
    pub used: ByteLen,
    /// Bytes that ordinary users may still take.
    pub available: ByteLen,
    /// Bytes that files' space is counted in.
    pub unit: ByteLen,
    /// Inodes not in use; `None` where there is no limit.
    pub free_inodes: Option<u64>,
}

impl Room {
    /// The used part of the space available to users, as `df` has it.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let (used, all) = (self.used.get(), self.used.get() + self.available.get());
        if all == 0 { 1.0 } else { used as f64 / all as f64 }
    }
}

/// Operations between two comparisons with the reported space, if that depends on the moment.
const LOOK_EVERY: u64 = 1024;
/// Allowed difference of own account and reported space then: 1 part in so many of the space.
const DRIFT: u64 = 400;

/// The account of a run.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Bytes that users may take, taken ones included.
    usable: u64,
    target: u64,
    unit: u64,
    used: u64,
    free_inodes: Option<u64>,
    /// The reported space is the same in each run, and so may be relied on.
    exact: bool,
    told: u64,
}

impl Ledger {
    pub(super) fn new(room: &Room, target: f64, exact: bool) -> Self {
        let usable = room.used.get() + room.available.get();
        Self {
            usable,
            target: (usable as f64 * target) as u64,
            unit: room.unit.get().max(1),
            used: room.used.get(),
            free_inodes: room.free_inodes,
            exact,
            told: 0,
        }
    }

    /// Bytes that users may take, taken ones included.
    pub(super) fn usable(&self) -> u64 {
        self.usable
    }

    /// Whether this many bytes and inodes more are within the target.
    pub(super) fn fits(&self, bytes: u64, inodes: u64) -> bool {
        let inodes = self.free_inodes.is_none_or(|free| free >= inodes);
        inodes && self.used + self.rounded(bytes) <= self.target
    }

    /// Whether the target has been reached: as near as the next file allows.
    pub(super) fn is_full(&self) -> bool {
        self.used + self.usable / 200 >= self.target
    }

    /// The space that a file of this length takes.
    pub(super) fn rounded(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.unit) * self.unit
    }

    /// A file has become longer.
    pub(super) fn grown(&mut self, from: u64, to: u64) {
        debug_assert!(to >= from, "a file that grows is longer");
        let more = self.rounded(to) - self.rounded(from);
        self.used += more;
    }

    /// A file has gone. A file system that compresses may have reported less than its files have.
    pub(super) fn gone(&mut self, len: u64) {
        self.used = self.used.saturating_sub(self.rounded(len));
    }

    /// A directory is there, or is no more.
    pub(super) fn directory(&mut self, made: bool) {
        let unit = self.unit;
        if made { self.grown(0, unit) } else { self.gone(unit) }
    }

    /// Takes the space that the file system reports after an operation. Where that depends on the
    /// kernel's background work it must not decide over each file: own account is corrected now and
    /// then, in large steps.
    pub(super) fn told(&mut self, room: &Room) {
        self.free_inodes = room.free_inodes;
        self.told += 1;
        if self.exact {
            self.used = room.used.get();
        } else if self.told.is_multiple_of(LOOK_EVERY) {
            let step = (self.usable / DRIFT).max(1);
            let (told, own) = (room.used.get(), self.used);
            let steps = told.abs_diff(own) / step * step;
            self.used = if told > own { own + steps } else { own - steps };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(used: u64) -> Room {
        let available = ByteLen::new(100_000 - used);
        Room { used: ByteLen::new(used), available, unit: ByteLen::new(100), free_inodes: Some(3) }
    }

    #[test]
    fn what_fits_is_within_the_target() {
        let ledger = Ledger::new(&room(50_000), 0.8, true);
        assert!(ledger.fits(30_000, 1));
        assert!(!ledger.fits(30_001, 1), "rounded up");
        assert!(!ledger.fits(1, 4), "no inode left");
        assert!((room(50_000).fullness() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_depends_on_the_moment_is_taken_in_large_steps() {
        let mut ledger = Ledger::new(&room(50_000), 0.8, false);
        (0..1023).for_each(|_| ledger.told(&room(60_000)));
        assert!(ledger.fits(30_000, 1), "not looked at yet");
        ledger.told(&room(50_249));
        assert!(ledger.fits(30_000, 1), "less than a step");
        (0..1024).for_each(|_| ledger.told(&room(50_510)));
        assert!(ledger.fits(29_500, 1) && !ledger.fits(29_501, 1), "two steps of 250");
        ledger.grown(100, 150);
        assert!(!ledger.fits(29_500, 1));
        ledger.gone(150);
        assert!(ledger.fits(29_600, 1) && !ledger.fits(29_601, 1));
    }
}
