//! A journal on a device of its own: a superblock of ext2 with the feature `journal_dev`, and in the
//! block behind it the superblock of the journal (e2fsprogs, `e2fsck_get_journal` and
//! `ext2fs_create_journal_superblock2`; Linux, `ext4_get_dev_journal`). Its blocks are counted from
//! the start of the device.

use super::form::{WITH_SUM, be32, place};
use super::head::{clear_foreign_fields, empty, reset};
use crate::backup;
use crate::checksum::crc32c;
use crate::ondisk::{
    JOURNAL_MAGIC, JournalSuperblock, SUPERBLOCK_MAGIC, Superblock, compat, incompat,
    journal_block, ro_compat, special,
};
use crate::superblock::{PRIMARY, Super, read_raw};
use seekless_device::{BlockDevice, Overlay};
use seekless_fs::field::{index, parse, truncated};
use seekless_fs::inspect::uuid_text;
use seekless_fs::patches::Patches;
use seekless_fs::term::{Term, Text};
use seekless_fs::{BlockMap, FsError, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Lba, Lbn};
use std::fmt;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// No UUID.
const NONE: [u8; 16] = [0; 16];

/// A device with the journal of a volume.
#[derive(Clone)]
pub(crate) struct External {
    device: Arc<dyn BlockDevice>,
    /// Blocks of the journal, by the ext superblock of its device.
    pub(super) blocks: u32,
    /// The block with the journal's superblock.
    pub(super) head: u32,
    /// Bytes in a block.
    block_size: u32,
    /// The UUID of the journal, and that of the volume.
    journal: [u8; 16],
    user: [u8; 16],
}

/// Whether the journal of a volume is on another device.
pub(crate) fn is_external(sb: &Super) -> bool {
    // With both, a check clears the UUID.
    sb.has_compat(compat::HAS_JOURNAL)
        && sb.raw.s_journal_uuid != NONE
        && sb.raw.s_journal_inum.get() != special::JOURNAL
}

/// Refuses a volume whose journal is on another device that was not given.
///
/// # Errors
/// [`FsError::Refused`] with the UUID of the journal.
pub(crate) fn refuse_missing(sb: &Super) -> Result<(), FsError> {
    match is_external(sb) {
        true => Err(JournalUuid(sb.raw.s_journal_uuid).missing("the journal to be replayed")),
        false => Ok(()),
    }
}

impl External {
    /// The journal of a volume on another device; `None` for a volume that has it in itself or has
    /// none, and where no device was given.
    ///
    /// # Errors
    /// [`FsError::Refused`] for a device that is no journal, one of another volume, or of several;
    /// errors of the device.
    pub(crate) fn of(
        sb: &Super,
        device: Option<&Arc<dyn BlockDevice>>,
    ) -> Result<Option<Self>, FsError> {
        match device.filter(|_| is_external(sb)) {
            Some(device) => Self::open(sb, device).map(Some),
            None => Ok(None),
        }
    }

    fn open(volume: &Super, device: &Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let refuse = |what: String| {
            Err(FsError::Refused(Text::from(Term::JournalDevice).then(format!(": {what}"))))
        };
        let raw = match read_raw(device.as_ref(), PRIMARY) {
            Err(FsError::Corrupt { .. }) => {
                return refuse("the device is too short for a journal".into());
            }
            raw => raw?,
        };
        let has_feature = raw.s_feature_incompat.get() & incompat::JOURNAL_DEV != 0;
        if raw.s_magic.get() != SUPERBLOCK_MAGIC || !has_feature {
            return refuse("the device has no journal (mke2fs -O journal_dev makes one)".into());
        }
        let (found, wanted) = (&raw.s_uuid, &volume.raw.s_journal_uuid);
        if found != wanted {
            let (found, wanted) = (uuid_text(found), uuid_text(wanted));
            return refuse(format!("the device has UUID {found}, but the volume names {wanted}"));
        }
        if !is_sealed(&raw) {
            return refuse(
                "the checksum of the superblock of the journal's device is wrong".into(),
            );
        }
        let external = Self {
            device: device.clone(),
            blocks: count_blocks(&raw),
            head: if volume.block_size == 1024 { 2 } else { 1 },
            block_size: volume.block_size,
            journal: raw.s_uuid,
            user: volume.raw.s_uuid,
        };
        let there = device.len().get() / u64::from(volume.block_size);
        let blocks = there.min(u64::from(external.blocks));
        if blocks <= u64::from(external.head) {
            return refuse(format!("the journal has {blocks} blocks, not even its superblock"));
        }
        let Some(sb) = external.superblock()? else { return Ok(external) };
        let users = sb.s_nr_users.get();
        if users > 1 {
            return refuse(format!("{users} volumes share this journal, which is not supported"));
        }
        if users == 1 && external.is_foreign(&sb) {
            let other = sb.s_users.first_chunk().map(uuid_text).unwrap_or_default();
            return refuse(format!(
                "the journal contains transactions of another volume, with UUID {other}"
            ));
        }
        Ok(external)
    }

    /// The journal's superblock, if it is one of the second version.
    ///
    /// # Errors
    /// Errors of the device.
    fn superblock(&self) -> Result<Option<JournalSuperblock>, FsError> {
        let block = self.block(self.head)?;
        let sb: JournalSuperblock = parse(&block, 0).ok_or_else(|| truncated(place()))?;
        let is_second = sb.s_header.h_magic.get() == JOURNAL_MAGIC
            && sb.s_header.h_blocktype.get() == journal_block::SUPERBLOCK_V2;
        Ok(is_second.then_some(sb))
    }

    /// Whether transactions of another volume wait in it: of one that is alone in its list of users.
    /// A superblock with a wrong checksum says nothing.
    fn is_foreign(&self, sb: &JournalSuperblock) -> bool {
        let mut summed = *sb;
        summed.s_checksum = 0.into();
        let is_sound = sb.s_feature_incompat.get() & WITH_SUM == 0
            || crc32c(!0, summed.as_bytes()) == sb.s_checksum.get();
        sb.s_start.get() != 0 && is_sound && !sb.s_users.starts_with(&self.user)
    }

    /// Blocks of the journal. Those past the end of a device that was cut off cannot be read, as with
    /// a defective device: they may contain transactions, and the journal is not to be emptied.
    pub(super) fn map(&self) -> BlockMap {
        let extent = Extent::new(BlockNo::ZERO, u64::from(self.blocks));
        let run = Mapping { lbn: Lbn::ZERO, extent, unwritten: false };
        BlockMap { runs: vec![run], ..BlockMap::default() }
    }

    pub(super) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The byte of a block on its device.
    fn byte_of(&self, at: u32) -> ByteLen {
        ByteLen::new(u64::from(at) * u64::from(self.block_size))
    }

    /// A block of its device.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn block(&self, at: u32) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; index(self.block_size)];
        self.device.read_bytes(self.byte_of(at), &mut bytes)?;
        Ok(bytes)
    }

    /// The same journal with another first block, in memory.
    pub(crate) fn with_head(&self, head: &[u8]) -> Result<Self, FsError> {
        let device = Arc::new(Overlay::new(self.device.clone(), u64::from(self.block_size)));
        device.write(Lba::containing(self.byte_of(self.head)), head)?;
        Ok(Self { device, ..self.clone() })
    }

    /// Writes the block with the journal's superblock, and waits until it is on the disk; whether
    /// the old one differed.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn put_head(&self, head: &[u8]) -> Result<bool, FsError> {
        let mut disk = Patches::new(self.device.clone());
        disk.put(self.byte_of(self.head).get(), head)?;
        disk.flush()?;
        Ok(disk.writes() > 0)
    }

    /// Whether the block of its superblock is that of a journal.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn has_magic(&self) -> Result<bool, FsError> {
        let block = self.block(self.head)?;
        Ok(be32(&block, 0) == Some(JOURNAL_MAGIC))
    }

    /// Empties it, whatever its superblock contains: the transactions in it are lost. The volume is
    /// then the only one in the list of users, without which a kernel refuses the journal. Whether
    /// something was written.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn reset(&self) -> Result<bool, FsError> {
        let mut block = self.block(self.head)?;
        reset(&mut block, self.blocks, self.block_size, self.head + 1);
        if let Some((head, _)) = block.split_at_mut_checked(size_of::<JournalSuperblock>())
            && let Ok(sb) = JournalSuperblock::mut_from_bytes(head)
        {
            sb.s_uuid = self.journal;
            sb.s_nr_users = 1.into();
            sb.s_users.fill(0);
            if let Some(first) = sb.s_users.first_chunk_mut() {
                *first = self.user;
            }
        }
        empty(&mut block);
        self.put_head(&block)
    }

    /// Clears the fields that a journal of the first version does not have; whether there were any.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn clear_foreign_fields(&self) -> Result<bool, FsError> {
        let mut block = self.block(self.head)?;
        clear_foreign_fields(&mut block);
        self.put_head(&block)
    }
}

/// Whether the superblock of a device with a journal has the right checksum, or none.
fn is_sealed(raw: &Superblock) -> bool {
    let covered = raw.as_bytes().get(..1020).unwrap_or_default();
    raw.s_feature_ro_compat.get() & ro_compat::METADATA_CSUM == 0
        || raw.s_checksum.get() == crc32c(!0, covered)
}

/// Blocks of a device with a journal; a journal counts them in 32 bits.
fn count_blocks(raw: &Superblock) -> u32 {
    let wide = raw.s_feature_incompat.get() & incompat::BIT64 != 0;
    if wide && raw.s_blocks_count_hi.get() != 0 {
        return u32::MAX;
    }
    raw.s_blocks_count_lo.get()
}

/// The UUID of a journal on a device of its own.
///
/// ```
/// use seekless_device::{BlockDevice, MemoryDevice};
/// use seekless_ext::JournalUuid;
/// use std::sync::Arc;
///
/// let empty: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(vec![0; 65_536]));
/// assert_eq!(JournalUuid::of(empty.as_ref()).unwrap(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalUuid([u8; 16]);

impl JournalUuid {
    /// That of a volume's journal, by its superblock or a copy of that; `None` for a volume that has
    /// its journal in itself, or has none.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn of(volume: &dyn BlockDevice) -> Result<Option<Self>, FsError> {
        let sb = match Super::read(volume, true) {
            Err(FsError::Corrupt { .. }) => backup::superblock(volume).map(|(sb, _)| sb),
            Err(FsError::Unsupported(_)) => None,
            sb => Some(sb?),
        };
        Ok(sb.filter(is_external).map(|sb| Self(sb.raw.s_journal_uuid)))
    }

    /// Whether a device has this journal. A device that cannot be read has none.
    #[must_use]
    pub fn is_on(self, device: &dyn BlockDevice) -> bool {
        read_raw(device, PRIMARY).is_ok_and(|raw| {
            raw.s_magic.get() == SUPERBLOCK_MAGIC
                && raw.s_feature_incompat.get() & incompat::JOURNAL_DEV != 0
                && raw.s_uuid == self.0
        })
    }

    /// The error for a check that lacks this journal; `what` names it in the message.
    #[must_use]
    pub fn missing(self, what: &str) -> FsError {
        let text = format!("{what} is on another device, with UUID {self}: use ");
        FsError::Refused(Text::from(text).then(Term::JournalDevice))
    }
}

impl fmt::Display for JournalUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&uuid_text(&self.0))
    }
}
