//! Settings and counters of the cache of an image in use.

use crate::{Live, Named};
use seekless_cache::{Config, Limits};
use seekless_fs::FsError;
use seekless_units::ByteLen;

/// The configuration of its cache.
#[must_use]
pub fn config<F: Named>(live: &Live<F>) -> &Config {
    live.volume.core.cache.blocks().config()
}

/// As [`BlockCache::adjust`](seekless_cache::BlockCache::adjust). Delayed contents above half of the
/// capacity are allocated and written, since the cache makes room for them with its other blocks.
///
/// # Errors
/// [`FsError::Device`] and [`FsError::NoSpace`] of these contents, which stay delayed. The settings
/// are changed nevertheless.
pub fn adjust<F: Named>(
    live: &mut Live<F>,
    limits: Limits,
    capacity: ByteLen,
) -> Result<(), FsError> {
    live.volume.core.cache.blocks_mut().adjust(limits, capacity);
    live.bound_delayed()
}

/// As [`BlockCache::zero_counters`](seekless_cache::BlockCache::zero_counters).
pub fn zero_counters<F: Named>(live: &mut Live<F>) {
    live.volume.core.cache.blocks_mut().zero_counters();
}
