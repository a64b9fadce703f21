//! The mechanism of allocation: changes the bytes of one cylinder group in place.
//!
//! [`GroupMut`] wraps a group's bytes, as a cache holds them, once their head has been checked;
//! every change keeps all counters of the group true and returns the change of its summary
//! ([`Delta`]), so that the caller can keep the totals. Where to look first comes from
//! `seekless_placement`, and so does the order of the groups; the search from there on follows the
//! rules of FreeBSD's `ffs_alloc.c`.
//!
//! No bytes can make these functions panic or go outside the group. Where the
//! bitmaps and the counters contradict each other the change is refused, and
//! nothing has been changed then (but for a rotor, and for the first blocks of
//! a cluster whose later ones turn out to be wrong).

mod block;
mod cluster;
mod fresh;
mod group;
mod inode;
mod stored;
mod summary;
#[cfg(test)]
mod tests;

pub(crate) use fresh::{identify_head, new_head};
pub(crate) use group::{GroupMut, free_fragments, seal_group};
pub(crate) use stored::{count_maps, head_layout_of};
pub(crate) use summary::{Delta, decode_summaries, encode_summary};

use seekless_units::Extent;

/// An allocated run, and the change of the summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    /// In fragments from the start of the volume.
    pub(crate) run: Extent,
    pub(crate) delta: Delta,
}
