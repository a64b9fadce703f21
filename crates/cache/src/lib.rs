//! When changed blocks reach the disk.
//!
//! A format states each **change** and **the changes that must be on the disk before it**
//! ([`Cache::change`], [`Cache::edit`], [`Cache::defer`]), never when it is written. A
//! [`Discipline`] decides the rest: `sync` and `normal` write the changes that matter before the
//! call returns, `async` keeps no order, and soft updates keep a graph of changes, write any block
//! at any time, and roll back in the written copy the changes whose dependencies are not on the
//! disk.
//!
//! The rules a format keeps, for every discipline alike (McKusick and Ganger,
//! "Soft Updates", 1999):
//!
//! 1. A pointer waits for its target: a name for its inode, a block number for the bitmap and the
//!    block's contents.
//! 2. An inode or block is freed only in an action deferred until the last pointer to it is gone
//!    from the disk.
//! 3. The last pointer to an inode or block that lives on goes only after the new one is on the
//!    disk.
//!
//! Nothing here depends on a format, or on the meaning of a block.
//!
//! - [`change`]: changes, their roles, and the kinds they are counted by
//! - [`discipline`]: when a change is written
//! - [`config`]: sizes, ages, limits; counters
//! - `shape`, `buffer`, `wheel`, `dirty`, `memory`: the blocks, and when each is due; `seal`: their
//!   check hashes
//! - `order`: keeps changes in order; soft updates are one kind
//! - [`log`]: a journal's interface to a log
//! - `cache`: the fields of the cache, and reading
//! - `modify`: changing blocks
//! - `operation`, `commit`, `apart`, `checkpoint`, `work`: operations as parts of
//!   transactions, and these on their way to the log, and home
//! - `retract`: waiting for changes, and taking them back
//! - `write`: gathering blocks, and writing them
//! - `settle`, `room`: writing changes that a caller waits for, and making room
//! - `durable`: as `settle`, where there is a journal
//! - `flight`: writes under way, and what is on the disk
//! - `syncer`: turning the wheel, and handling a full graph

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
mod seal;
mod settle;
mod shape;
mod syncer;
mod wheel;
mod work;
mod write;

pub use cache::Cache;
pub use change::{Age, ChangeId, Changed, Kind, Piece, Role, Roles};
pub use commit::Why;
pub use config::{Ages, Config, Counters, Dropped, JournalCounters, Limits};
pub use discipline::{Discipline, JournalMode, UnknownDiscipline};
pub use log::{Log, LogCopy, LogTransaction, Stable, Stage, StageWrite};
pub use operation::CREDITS;
pub use seal::{Owner, Seal};
pub use work::{CommitWork, Commits};
