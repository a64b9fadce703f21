//! Layout by recorded access, for any format.
//!
//! - [`trace`]: touched files and ranges, in order
//! - [`replay`]: a trace on an image: the requests that reach the disk
//! - [`score`]: the cost of such requests
//! - [`fit`]: whether a trace belongs to an image
//! - [`timing`]: how long they take on a device
//! - [`essential`]: the events of a trace that its layout depends on
//! - [`by_path`]: touches of a trace on a tree that is not an image yet
//! - [`recording`]: a trace made of the touches observed in a kernel
//! - [`warm`]: the reads of a trace, as byte ranges to read ahead of it
//! - [`habits`]: files opened together again and again, and when it pays to move them
//! - [`chunks`]: the chunks that images share
//! - [`usage`]: the use of each block of an image, and its owner
//! - [`planner`]: inode numbers and extents for a whole image at once
//!
//! # Files
//!
//! `trace/` reads and writes traces (`quick.rs`: lines as they are written here), has their events
//! in memory (`events.rs`), and reads what can be made into a trace: lists of paths, strace's
//! output, logs of block devices (`blocks.rs`), lists of files for runtimes of containers
//! (`prefetch_lists.rs`). `warm.rs` has the byte ranges that a trace reads. `recording/` turns
//! events of a kernel into a trace: `assemble.rs` from events that name inodes, `blocks.rs` from
//! blocks alone, `index.rs` finds the names. `replay/` is the model of a kernel's page cache
//! (`readahead.rs`, `listing.rs`) and of processes side by side (`interleave.rs`); `faults.rs`
//! reads around the pages of mapped files; `symlinks.rs` adds the symlinks on the way; `planner/`
//! determines a layout: `touches.rs` the order of several traces, `sequence.rs` that of all blocks,
//! `inodes.rs` and `fill.rs` the places.
//!
//! `habits/` is the policy of `watch`, without I/O and without a clock: `streams.rs` makes
//! episodes of opens, `habit.rs` weighs habits, `choose.rs` proposes what to lay out and says
//! whether a plan pays, `idle.rs` when the machine is idle, `keep.rs` writes and reads what is
//! known. `tests/month` drives it through a month in virtual time.

pub mod by_path;
pub mod chunks;
pub mod essential;
pub mod fit;
pub mod habits;
pub mod pages;
pub mod planner;
pub mod recording;
pub mod replay;
pub mod score;
pub mod timing;
pub mod trace;
pub mod usage;
pub mod warm;
