//! File systems of the kernel rearranged while they are mounted: files of an ext4 or XFS by
//! traces ([`relayout`]), or continuously by the opens that are watched ([`watching`]).
//!
//! Blocks are exchanged by the kernel, one range at a time; whatever ends the process, files
//! are whole. Messages are events of `tracing`.
//!
//! # Files
//!
//! `relayout/` carries out, for the commands `relayout` and `watch`, the planner's steps with
//! `host::donor`: `survey.rs` is what lies where, read from the device while the kernel uses it,
//! `acquire.rs` gets hold of free blocks, `perform.rs` looks at each file again before and after
//! it is moved. `relayout/xfs/` does the same on XFS without its structures: `tree.rs` shows a
//! mounted tree to a replay, files located by `fiemap.rs`; `plan.rs` is what shall lie together;
//! `perform.rs` gives it what a donor of `host::xfs/` holds, by `exchange.rs`.
//!
//! `watching/` connects `host::opens` and `host::pressure`: `listener.rs` tells sources apart,
//! `work.rs` carries out proposals with `relayout/`, `daemon.rs` is the loop, `store.rs` the
//! directory of a volume, `request.rs` the socket by which a daemon is asked.

pub mod relayout;
pub mod watching;
