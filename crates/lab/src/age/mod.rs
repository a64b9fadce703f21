//! Ageing: uses a file system for a long virtual time, so that measurements on it are those of an
//! aged one.
//!
//! - [`profile`]: the classes of files that come and go, as a file specifies them;
//!   [`distribution`]: its random quantities
//! - [`stream`]: operations as a function of profile, seed and room
//! - [`op`]: the operations, and the bytes that they write
//! - [`subject`]: the file systems that are aged: [`image`] or [`mounted`] ones
//! - [`score`]: how well files lie
//! - [`drive`]: the run
//!
//! # Files
//!
//! `profile.rs distribution.rs` read a profile, `stream.rs activity.rs population.rs ledger.rs`
//! are the generator, whose only feedback is the available space; `op.rs` defines the operations,
//! `subject.rs` the interface that performs them: `image.rs` with `Operate`, `mounted.rs` with
//! system calls, obtaining extents through a trait that `cli` implements with `host`. `drive.rs`
//! combines them, `schedule.rs` schedules the samples, `score.rs` computes layout scores.

mod activity;
pub mod distribution;
pub mod drive;
pub mod image;
mod ledger;
pub mod mounted;
pub mod op;
mod population;
pub mod profile;
mod schedule;
pub mod score;
pub mod stream;
pub mod subject;

pub use drive::{Aged, End, OperationTally, Sample, Settings, age};
pub use ledger::Room;
pub use profile::Profile;

use seekless_fs::FsError;

/// Why a file system was not aged, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// It failed.
    #[error(transparent)]
    FileSystem(#[from] FsError),
    /// It has no room below the target.
    #[error(
        "already {:.1}% full; a fullness of {:.1}% leaves less than 1% of the space to work with",
        fullness * 100.0,
        target * 100.0
    )]
    TooFull {
        /// How full it is, from 0 to 1.
        fullness: f64,
        /// How full it was to be.
        target: f64,
    },
}
