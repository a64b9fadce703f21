//! The map of a file, and the types of `seekless-live` with it.

use super::chain::Chain;

/// Bytes of a file at most.
pub(super) const MOST_BYTES: u64 = 0xFFFF_FFFF;

pub(super) type Core = seekless_live::Core<Map>;
pub(super) type Node = seekless_live::Node<Map>;

/// The map of a file: its place.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The first cluster; 0 for none.
    pub(super) first: u32,
    /// All clusters, in order, once the chain has been followed.
    pub(super) chain: Option<Chain>,
    /// `DIR_Attr`.
    pub(super) attr: u8,
}
