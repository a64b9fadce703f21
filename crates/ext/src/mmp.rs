//! Multiple mount protection: a block by which hosts that share a disk see that one of them uses the
//! volume (`struct mmp_struct`; Linux, `fs/ext4/mmp.c`; e2fsprogs, `lib/ext2fs/mmp.c` and
//! `e2fsck_check_mmp`).
//!
//! A host that mounts the volume changes the sequence number in the block every few seconds. Number
//! [`MMP_SEQ_CLEAN`] says that nobody uses the volume, and [`MMP_SEQ_FSCK`] that a program changes
//! it that is no mount.

use crate::backup;
use crate::check::CheckOptions;
use crate::checksum::crc32c;
use crate::ondisk::{MMP_MAGIC, MMP_SEQ_CLEAN, MMP_SEQ_FSCK, MMP_SEQ_MAX, MmpBlock, incompat};
use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::field::{low32, parse, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{Corruption, FsError};
use seekless_units::{BlockNo, ByteLen};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use zerocopy::IntoBytes;

/// Bytes of the block that its checksum covers.
const SUMMED: usize = offset_of!(MmpBlock, mmp_checksum);

/// `EXT4_MMP_MIN_CHECK_INTERVAL` and `EXT4_MMP_MAX_UPDATE_INTERVAL`, in seconds: no kernel changes
/// the number less often.
const LEAST_INTERVAL: u16 = 5;
const GREATEST_INTERVAL: u16 = 300;

/// The block of a volume that has the protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mmp {
    at: ByteLen,
    /// The seed of checksums, if the volume has them.
    seed: Option<u32>,
    /// `s_mmp_update_interval`, in seconds.
    interval: u16,
}

impl Mmp {
    /// The block, unless the volume has none, or it lies outside the volume.
    pub(crate) fn of(sb: &Super) -> Option<Self> {
        let block = sb.raw.s_mmp_block.get();
        let is_there = sb.has_incompat(incompat::MMP)
            && (sb.first_block.get() + 1..sb.blocks).contains(&block);
        is_there.then(|| Self::in_block(sb, BlockNo::new(block)))
    }

    /// As [`of`](Self::of), for a block of the volume.
    pub(crate) fn in_block(sb: &Super, block: BlockNo) -> Self {
        Self {
            at: ByteLen::new(block.get() * u64::from(sb.block_size)),
            seed: sb.has_metadata_csum().then_some(sb.checksum_seed),
            interval: sb.raw.s_mmp_update_interval.get(),
        }
    }

    /// Reads the block from the medium, to which other hosts write; `None` where the device ends before
    /// it.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn read(&self, device: &dyn BlockDevice) -> Result<Option<MmpBlock>, FsError> {
        let mut bytes = [0; size_of::<MmpBlock>()];
        let end = self.at.get().checked_add(wide(bytes.len()));
        if end.is_none_or(|end| end > device.len().get()) {
            return Ok(None);
        }
        device.forget(self.at, wide(bytes.len()))?;
        device.read_bytes(self.at, &mut bytes)?;
        Ok(parse(&bytes, 0))
    }

    /// The fault of the block's contents.
    pub(crate) fn fault(&self, block: &MmpBlock) -> Option<Corruption> {
        let magic = block.mmp_magic.get();
        if magic != MMP_MAGIC {
            return Some(Corruption::Magic { found: magic.into() });
        }
        let stored = block.mmp_checksum.get();
        let computed = self.sum(block).filter(|&sum| sum != stored)?;
        Some(Corruption::Checksum { stored, computed })
    }

    /// The checksum that the block should have, if it has one.
    fn sum(&self, block: &MmpBlock) -> Option<u32> {
        let summed = block.as_bytes().get(..SUMMED).unwrap_or_default();
        self.seed.map(|seed| crc32c(seed, summed))
    }

    /// Sets the checksum.
    pub(crate) fn seal(&self, block: &mut MmpBlock) {
        if let Some(sum) = self.sum(block) {
            block.mmp_checksum = sum.into();
        }
    }

    fn put(&self, disk: &mut Patches, mut block: MmpBlock) -> Result<(), FsError> {
        self.seal(&mut block);
        disk.put(self.at.get(), block.as_bytes())?;
        disk.flush()
    }

    /// Writes a block of a volume that this process changes, without names of hosts.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn make(&self, disk: &mut Patches) -> Result<(), FsError> {
        let interval = self.interval.clamp(LEAST_INTERVAL, GREATEST_INTERVAL);
        let block = MmpBlock {
            mmp_magic: MMP_MAGIC.into(),
            mmp_seq: MMP_SEQ_FSCK.into(),
            mmp_check_interval: interval.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.put(disk, block)
    }

    /// Marks the volume as one that this process changes; `false` where the block is damaged, which
    /// then says nothing. Says how long it waits in an event of `tracing` with the field `progress`. Calls
    /// `pause` with the time in which another host changes the number: where
    /// the volume is not marked as unused, and once this process has written a number of its own.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] if another host uses the volume, if a check of it has not ended, or
    /// for a number that has no meaning; errors of the device.
    pub(crate) fn claim(
        &self,
        disk: &mut Patches,
        pause: &dyn Fn(Duration),
    ) -> Result<bool, FsError> {
        let Some(mut block) = self.sound(disk)? else { return Ok(false) };
        let interval = self.interval.max(block.mmp_check_interval.get());
        let interval = u64::from(interval.clamp(LEAST_INTERVAL, GREATEST_INTERVAL));
        let wait = (interval * 2 + 1).min(interval + 60);
        let time = Duration::from_secs(wait);
        let tell = |waits: u64| {
            info!(
                progress = true,
                "multiple mount protection: waiting {} seconds for another host that uses the volume \
                 (MMP interval is {interval} seconds)",
                wait * waits
            );
        };
        match block.mmp_seq.get() {
            MMP_SEQ_CLEAN => tell(1),
            MMP_SEQ_FSCK => {
                let what = format!("is being checked, or a check was cut off. {CLEAR}");
                return Err(in_use(&block, &what));
            }
            sequence if sequence > MMP_SEQ_MAX => {
                let what = format!("has the unknown number {sequence:#x}. {CLEAR}");
                return Err(in_use(&block, &what));
            }
            sequence => {
                tell(2);
                pause(time);
                self.still(disk, sequence)?;
            }
        }
        let sequence = number();
        block.mmp_seq = sequence.into();
        self.put(disk, block)?;
        pause(time);
        self.still(disk, sequence)?;
        block.mmp_seq = MMP_SEQ_FSCK.into();
        self.put(disk, block)?;
        Ok(true)
    }

    /// Refuses a volume whose number has changed.
    fn still(&self, disk: &Patches, sequence: u32) -> Result<(), FsError> {
        match self.read(disk.device().as_ref())? {
            Some(block) if block.mmp_seq.get() == sequence => Ok(()),
            Some(block) => Err(in_use(&block, "is in use by another host")),
            None => Ok(()),
        }
    }

    /// Marks a volume that this process changed as unused.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn release(&self, disk: &mut Patches) -> Result<(), FsError> {
        let Some(mut block) = self.sound(disk)? else { return Ok(()) };
        if block.mmp_seq.get() != MMP_SEQ_FSCK {
            return Ok(());
        }
        block.mmp_seq = MMP_SEQ_CLEAN.into();
        self.put(disk, block)
    }

    fn sound(&self, disk: &Patches) -> Result<Option<MmpBlock>, FsError> {
        Ok(self.read(disk.device().as_ref())?.filter(|block| self.fault(block).is_none()))
    }
}

/// Does work on a volume that is claimed for it, where it has multiple mount protection: other hosts
/// see that the volume is being changed, and the work sees all that they wrote before. The work gets
/// the options with [`CheckOptions::is_claimed`]. A volume is not claimed where its superblock and the
/// copies of that, or the block of the protection, are damaged.
///
/// # Errors
/// [`FsError::Unsupported`] if another host uses the volume, or a check of it has not ended; errors of
/// the device and of the work.
pub fn while_claimed<T>(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    work: impl FnOnce(&CheckOptions) -> Result<T, FsError>,
) -> Result<T, FsError> {
    if options.is_claimed {
        return work(options);
    }
    let options = CheckOptions { is_claimed: true, ..options.clone() };
    let sb = match Super::read(device.as_ref(), false) {
        Err(FsError::Corrupt { .. }) => backup::superblock(device.as_ref()).map(|(sb, _)| sb),
        Err(FsError::Unsupported(_)) => None,
        sb => Some(sb?),
    };
    let Some(mmp) = sb.as_ref().and_then(Mmp::of) else { return work(&options) };
    let mut disk = Patches::new(device.clone());
    let is_claimed = mmp.claim(&mut disk, &|time| options.pause(time))?;
    device.forget(ByteLen::new(0), device.len().get())?;
    let done = work(&options);
    if is_claimed {
        mmp.release(&mut disk)?;
    }
    done
}

/// A number by which this process knows its claim; two hosts that begin at the same time have
/// different ones. Nothing of it stays in the volume.
fn number() -> u32 {
    let random = RandomState::new().hash_one(std::process::id());
    low32(random) % MMP_SEQ_MAX + 1
}

/// The way out where nothing shows that no host uses a volume.
const CLEAR: &str = "If no host uses it, `tune2fs -f -E clear_mmp` says so in the volume";

/// The refusal of a volume that somebody else uses.
fn in_use(block: &MmpBlock, what: &str) -> FsError {
    let node = name(&block.mmp_nodename);
    let device = name(&block.mmp_bdevname);
    FsError::Unsupported(format!(
        "multiple mount protection (mmp): the volume, last used by host {node:?} as {device:?}, {what}"
    ))
}

/// A name up to its first zero byte.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
