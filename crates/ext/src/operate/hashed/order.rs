//! The order of names in a listing.

use crate::hash::name_hash;

/// The hashes by which the names of a directory are ordered.
#[derive(Clone, Copy, Debug)]
pub struct ListingOrder {
    pub(super) version: u8,
    pub(super) seed: [u32; 4],
}

impl ListingOrder {
    /// Names are listed by increasing keys, other than `.` and `..`, which come first.
    #[must_use]
    pub fn key(&self, name: &[u8]) -> (u32, u32) {
        let hash = name_hash(self.version, self.seed, name).unwrap_or_default();
        (hash.major, hash.minor)
    }
}
