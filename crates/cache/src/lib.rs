//! When changed blocks reach the disk.
//!
//! A format states each **change** and **the changes that must be on the disk before it**
//! ([`Changes::change`], [`Changes::edit`], [`Changes::defer`]), never when it is written. A
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
//! A [`Cache`] has parts, of which each knows only those below it:
//!
//! - `cache`: the cache, and questions about changes; `settle`: writing for a caller that waits;
//!   `room`: making room; `operation`: operations and their room in a transaction; `syncer`:
//!   turning the wheel, and handling a full graph
//! - `changes`: changing blocks (`modify`); waiting for changes, and taking them back (`retract`)
//! - `transactions`: `commit`, also part by part (`apart`); writing home (`checkpoint`)
//! - `blocks`: blocks in memory; `write`: gathering and writing them; `flight`: writes under way,
//!   and flushes; `capacity`: dropping them
//! - `order`: keeps changes in order; soft updates are one kind, a journal another
//! - `memory`, `buffer`, `shape`, `wheel`, `dirty`: the blocks, and when each is due; `seal`: their
//!   check hashes
//! - [`change`]: changes, their roles, and the kinds they are counted by; [`discipline`]: when a
//!   change is written; [`config`]: sizes, ages, limits, counters; [`log`]: a journal's interface
//!   to a log; `work`: parts of commits performed without the cache
//!
//! # Example
//!
//! ```
//! use seekless_cache::{Cache, Config, Discipline, Piece, Role};
//! use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
//! use seekless_units::{BlockNo, Lba};
//! use std::sync::Arc;
//!
//! let device = Arc::new(MemoryDevice::new(vec![0; 64 << 10]));
//! let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
//! let mut cache: Cache<()> = Cache::new(device.clone(), clock, 4096, 4096, config)?;
//! cache.begin()?;
//! // A pointer waits for the bitmap.
//! let set = |bytes: &mut [u8]| Ok(bytes.fill(1));
//! let ((), bitmap) = cache.changes().edit(BlockNo::new(1), 0, 1, Role::BitmapSet, set)?;
//! let piece = Piece { offset: 0, bytes: &[1, 0, 0, 0] };
//! cache.changes().change(BlockNo::new(2), &[piece], Role::PointerSet, &[bitmap])?;
//! cache.end()?;
//! cache.sync()?;
//! assert!(cache.is_committed(bitmap));
//! let mut sector = [0; 512];
//! device.read(Lba::new(16), &mut sector)?;
//! assert_eq!(sector[0], 1);
//! # Ok::<(), seekless_fs::FsError>(())
//! ```

mod blocks;
mod buffer;
mod cache;
pub mod change;
mod changes;
pub mod config;
mod dirty;
pub mod discipline;
pub mod log;
mod memory;
mod operation;
mod order;
#[cfg(test)]
#[path = "../../fs/tests/shared/property.rs"]
mod property;
mod room;
mod seal;
mod settle;
mod shape;
mod syncer;
mod transactions;
mod wheel;
mod work;

pub use blocks::BlockCache;
pub use cache::Cache;
pub use change::{Age, ChangeId, Changed, Kind, Piece, Role, Roles};
pub use changes::Changes;
pub use config::{Ages, Config, Counters, Dropped, JournalCounters, Limits};
pub use discipline::{Discipline, JournalMode, UnknownDiscipline};
pub use log::{Log, LogCopy, LogTransaction, Stable, Stage, StageWrite};
pub use operation::CREDITS;
pub use seal::{Owner, Seal};
pub use transactions::Transactions;
pub use transactions::commit::CommitReason;
pub use work::{CommitWork, Commits};
