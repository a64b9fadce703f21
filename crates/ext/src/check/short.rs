//! A volume that is longer than its device: the end of an image was cut off, or the size in the
//! superblock is wrong (e2fsck, `check_super_block`). It is checked as far as it is there.

use crate::backup;
use crate::ondisk::SUPERBLOCK_MAGIC;
use crate::superblock::{PRIMARY, Super, read_raw};
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// How often the volume may be longer than its device: memory for a check depends on the volume.
const MOST: u64 = 16;

/// A device with zeros behind its end, up to that of its volume.
struct Extended {
    base: Arc<dyn BlockDevice>,
    len: ByteLen,
}

impl BlockDevice for Extended {
    fn len(&self) -> ByteLen {
        self.len
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = at.to_bytes().get();
        let there = self.base.len().get().saturating_sub(start);
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(buf.len());
        let (known, rest) = buf.split_at_mut(there);
        rest.fill(0);
        if known.is_empty() { Ok(()) } else { self.base.read(at, known) }
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.base.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        self.base.forget(at, len)
    }
}

/// The blocks of a volume that is longer than its device, and those of the device; `None` for one
/// that fits, or whose superblock is not sound otherwise or has a copy that fits.
pub(super) struct Short {
    pub(super) volume: u64,
    pub(super) device: u64,
}

/// The device, extended for a volume that is longer.
///
/// # Errors
/// Errors of the device.
pub(super) fn whole(
    device: Arc<dyn BlockDevice>,
) -> Result<(Arc<dyn BlockDevice>, Option<Short>), FsError> {
    let there = device.len();
    let sound = |error: &FsError| matches!(error, FsError::Corrupt { .. });
    let raw = match read_raw(device.as_ref(), PRIMARY) {
        Err(error) if sound(&error) => return Ok((device, None)),
        raw => raw?,
    };
    let most = ByteLen::new(there.get().saturating_mul(MOST));
    let is_ours =
        raw.s_magic.get() == SUPERBLOCK_MAGIC && Super::check(raw.clone(), there).is_err();
    let Some(sb) = Super::check(raw, most).ok().filter(|_| is_ours) else {
        return Ok((device, None));
    };
    if backup::superblock(device.as_ref()).is_some() {
        return Ok((device, None));
    }
    let size = u64::from(sb.block_size);
    let short = Short { volume: sb.blocks, device: there.get() / size };
    let len = ByteLen::new(sb.blocks * size);
    Ok((Arc::new(Extended { base: device, len }), Some(short)))
}
