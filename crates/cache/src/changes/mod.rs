//! Changes of blocks: made, and waited for or taken back.

mod modify;
mod retract;

use crate::blocks::BlockCache;

/// The changes of a cache.
pub struct Changes<'a, A> {
    pub(crate) blocks: &'a mut BlockCache<A>,
}
