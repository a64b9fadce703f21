//! Options of a check: the superblock that it starts with, and work besides repairs.

use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::check::Watch;
use seekless_fs::{Corruption, FsError};
use seekless_units::{BlockNo, ByteLen};
use std::sync::Arc;
use std::time::Duration;

/// The largest blocks, as a power of two above 1024 bytes.
const MOST_LOG: u32 = 6;

/// The superblock that a check starts with; by default the primary one, or, if that is damaged, the
/// first sound copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The block of a copy to be used instead of the primary one.
    pub block: Option<BlockNo>,
    /// The size of a block in bytes, for places of copies; by default all sizes are tried.
    pub block_size: Option<u32>,
}

/// Options of a check.
#[derive(Clone, Default)]
#[allow(missing_debug_implementations)]
pub struct CheckOptions {
    /// The superblock that it starts with.
    pub start: Start,
    /// Repairs only: directories with several blocks are written again, sorted and without gaps,
    /// once the volume is sound.
    pub optimizes_directories: bool,
    /// Repairs only: the device is told that it need not keep the contents of free blocks, once the
    /// volume is sound.
    pub discards_free: bool,
    /// Blocks that files share, on a volume with `shared_blocks`, are a finding: a repair copies them.
    pub unshares_blocks: bool,
    /// Blocks are read on the calling thread, in the same order each time: a modelled device takes the
    /// same time. By default, tables and directories are read ahead on another thread.
    pub is_sequential: bool,
    /// Follows the progress.
    pub watch: Option<Arc<dyn Watch>>,
    /// Repairs only: lets time pass in which another host that uses a volume with `mmp` says so.
    /// Without it the thread sleeps.
    pub pause: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    /// The device of the journal, for a volume that has it on another one; not used for others.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Repairs only: the volume is claimed already ([`while_claimed`](crate::while_claimed)).
    pub is_claimed: bool,
}

impl CheckOptions {
    /// Lets time pass.
    pub fn pause(&self, time: Duration) {
        self.pause.as_ref().map_or_else(|| std::thread::sleep(time), |pause| pause(time));
    }
}

impl Start {
    /// The copy of the superblock to be used, and its block.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] if there is no sound one, [`FsError::Device`].
    pub(super) fn copy(
        self,
        device: &dyn BlockDevice,
    ) -> Result<Option<(Super, BlockNo)>, FsError> {
        let Some(block) = self.block else { return Ok(None) };
        let sizes = (0..=MOST_LOG).map(|log| 1024u32 << log);
        let mut first = None;
        for size in sizes.filter(|&size| self.block_size.is_none_or(|only| only == size)) {
            let Some(at) = block.get().checked_mul(u64::from(size)) else { continue };
            match Super::read_copy(device, ByteLen::new(at)) {
                Ok(sb) if sb.block_size == size => return Ok(Some((sb, block))),
                Ok(_) => {}
                Err(error @ FsError::Device(_)) => return Err(error),
                // The magic number is missing in all places but one.
                Err(error) => first = first.filter(has_magic).or(Some(error)),
            }
        }
        let other = || FsError::Invalid(format!("block {block} has no copy of the superblock"));
        Err(first.unwrap_or_else(other))
    }
}

/// Whether there is a superblock, with another error than its magic number.
fn has_magic(error: &FsError) -> bool {
    use Corruption::{Magic, Truncated};
    !matches!(error, FsError::Corrupt { kind: Magic { .. } | Truncated, .. })
}
