//! When changed blocks reach the disk.
//!
//! A format says **what** changes and **what must be on the disk before it**
//! ([`Cache::change`], [`Cache::edit`], [`Cache::defer`]), never when it is
//! written. A [`Discipline`] decides the rest: `sync` and `normal` write what
//! matters before the call returns, `async` keeps no order, and soft updates
//! keep a graph of changes, write any block at any time, and undo in the copy
//! that is written what the disk may not show yet.
//!
//! The rules a format keeps, for every discipline alike (McKusick and Ganger,
//! "Soft Updates", 1999):
//!
//! 1. A pointer to something waits for what it points to: a name for its
//!    inode, a block number for the bitmap and the block's contents.
//! 2. Something is given back only in an action deferred until the last
//!    pointer to it is gone from the disk.
//! 3. The last pointer to something that lives on goes only after the new one
//!    is on the disk.
//!
//! Nothing here knows a format, or what a block means.
//!
//! - [`change`]: changes, their roles, and the kinds they are counted by
//! - [`discipline`]: when a change is written
//! - [`config`]: sizes, ages, limits; counters
//! - `shape`, `buffer`, `wheel`, `memory`: the blocks, and when each is due
//! - `order`: what keeps changes in order; soft updates are one kind
//! - [`log`]: what a journal asks of a log
//! - `cache`: what it is made of, and reading
//! - `modify`: changing blocks
//! - `operation`, `commit`, `apart`, `checkpoint`, `work`: operations as parts of
//!   transactions, and these on their way to the log, and home
//! - `retract`: waiting for changes, and taking them back
//! - `write`: gathering blocks, and writing them
//! - `settle`, `room`: writing what somebody waits for, and what room is made by
//! - `durable`: as `settle`, where there is a journal
//! - `flight`: writes under way, and what is on the disk
//! - `syncer`: turning the wheel, and what happens when the graph is full

mod apart;
mod buffer;
mod cache;
pub mod change;
mod checkpoint;
mod commit;
pub mod config;
mod dirty;
pub mod discipline;
mod durable;
mod flight;
pub mod log;
mod memory;
mod modify;
mod operation;
mod order;
mod retract;
mod room;
mod settle;
mod shape;
mod syncer;
mod wheel;
mod work;
mod write;

pub use cache::{Cache, Owner, Seal};
pub use change::{Age, ChangeId, Changed, Kind, Piece, Role, Roles};
pub use commit::Why;
pub use config::{Ages, Config, Counters, Dropped, JournalCounters, Limits};
pub use discipline::{Discipline, JournalMode, UnknownDiscipline};
pub use log::{Log, LogCopy, LogTransaction, Stable, Stage, StageWrite};
pub use operation::CREDITS;
pub use work::{CommitWork, Commits};
