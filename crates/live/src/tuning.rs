//! Settings and counters of the cache of an image in use.

use crate::{Live, Named};
use seekless_cache::Limits;

/// The limits of pending changes.
#[must_use]
pub fn limits<F: Named>(live: &Live<F>) -> Limits {
    live.volume.core.cache.blocks().config().limits
}

/// As [`BlockCache::adjust`](seekless_cache::BlockCache::adjust).
pub fn adjust<F: Named>(live: &mut Live<F>, limits: Limits, zero_counters: bool) {
    live.volume.core.cache.blocks_mut().adjust(limits, zero_counters);
}
