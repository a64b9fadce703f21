//! File systems of the kernel rearranged while they are mounted: files of an ext4 or XFS by
//! traces ([`relayout`]), or continuously by the opens that are watched ([`watching`]).
//!
//! Blocks are exchanged by the kernel, one range at a time; whatever ends the process, files
//! are whole. Messages are events of `tracing`.

pub mod relayout;
pub mod watching;
