//! The rules of the policy.

use super::{DAY, Seconds};

/// Thresholds, with their defaults in [`Rules::default`].
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// After so long a run counts half; more than 0. 7 days.
    pub half_life: Seconds,
    /// An episode is over when its source has opened nothing for more than this. 10 s.
    pub gap: Seconds,
    /// An episode is cut after so long. 10 minutes.
    pub longest: Seconds,
    /// Episodes of fewer files are left out. 4.
    pub least_files: usize,
    /// Episodes of more files are scans (backups, searches), and left out. 4,096.
    pub most_files: usize,
    /// An episode belongs to a habit when so large a part of the files of both together
    /// is in both, from 0 to 1. 0.5.
    pub alike: f64,
    /// A habit is laid out from this weight on. 2: the third run within a few days.
    pub weight: f64,
    /// Below this weight a habit is forgotten. 0.05: 30 days after a single run.
    pub forgotten: f64,
    /// Bytes that may be moved for each seek that is expected to be saved. 1 MiB, about the amount
    /// that a disk transfers in the time of a seek.
    pub price: u64,
    /// Seeks that a run must save at least. 3.
    pub least_seeks: f64,
    /// Of the seeks of a run, this part must be saved at least, from 0 to 1. 0.2.
    pub least_gain: f64,
    /// Bytes that are moved in a day (of UTC) at most. 1 GiB.
    pub budget: u64,
    /// Nothing is moved on a volume that is fuller than this, from 0 to 1. 0.9.
    pub fullest: f64,
    /// Time after which a habit that was looked at in vain, or is laid out, is looked at again. 1
    /// day.
    pub retry: Seconds,
    /// Habits that are known at the same time. 128.
    pub most_habits: usize,
    /// Files in the samples of all habits together. 262,144.
    pub most_entries: usize,
    /// Files in all episodes that are not over. 65,536.
    pub most_open: usize,
    /// When the machine is idle.
    pub idle: IdleRules,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            half_life: 7 * DAY,
            gap: 10,
            longest: 600,
            least_files: 4,
            most_files: 4096,
            alike: 0.5,
            weight: 2.0,
            forgotten: 0.05,
            price: 1 << 20,
            least_seeks: 3.0,
            least_gain: 0.2,
            budget: 1 << 30,
            fullest: 0.9,
            retry: DAY,
            most_habits: 128,
            most_entries: 1 << 18,
            most_open: 1 << 16,
            idle: IdleRules::default(),
        }
    }
}

/// When a machine is idle; each figure is the most that is.
#[derive(Clone, PartialEq, Debug)]
pub struct IdleRules {
    /// Share of the time in which some process waits for I/O, in percent. 5.
    pub io_pressure: f64,
    /// Share of the time in which some process waits for a processor, in percent. 20.
    pub cpu_pressure: f64,
    /// Processes that run, for each processor; only where pressure is not known. 0.5.
    pub load: f64,
    /// Files opened a second, by others. 20.
    pub opens: f64,
    /// Whether it may run on a battery. No.
    pub battery: bool,
    /// All of it must have been so for this long. 2 minutes.
    pub quiet: Seconds,
}

impl Default for IdleRules {
    fn default() -> Self {
        Self {
            io_pressure: 5.0,
            cpu_pressure: 20.0,
            load: 0.5,
            opens: 20.0,
            battery: false,
            quiet: 120,
        }
    }
}
