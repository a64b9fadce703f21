//! Rearrangement of the kernel's file systems while they are mounted: of the files of an ext4 or
//! XFS by traces ([`relayout`]), or continuously by watching opens ([`watching`]).
//!
//! The kernel exchanges blocks, one range at a time; however the process ends, files are whole.
//! Messages are events of `tracing`.
//!
//! # Example
//!
//! ```
//! use seekless_online::watching::Config;
//!
//! // Without a file: the defaults.
//! let config = Config::load(None)?;
//! let _rules = config.rules();
//! # Ok::<(), seekless_images::Error>(())
//! ```
//!
//! # Files
//!
//! `relayout/` executes the planner's steps with `host::donor`, for the commands `relayout` and
//! `watch`: `survey.rs` reads the locations of files from the device while the kernel uses it,
//! `acquire.rs` allocates free blocks, `perform.rs` checks each file again before and after it is
//! moved. `relayout/xfs/` does the same on XFS without its structures: `tree.rs` presents a mounted
//! tree to a replay, with files located by `fiemap.rs`; `plan.rs` selects the contents to gather;
//! `perform.rs` gives them the blocks of a donor of `host::xfs/`, by `exchange.rs`.
//!
//! `watching/` connects `host::opens` and `host::pressure`: `listener.rs` separates the sources of
//! events, `work.rs` executes proposals with `relayout/`, `daemon.rs` is the loop, `store.rs` the
//! directory of a volume, `request.rs` the socket for requests to a daemon.

pub mod relayout;
pub mod watching;
