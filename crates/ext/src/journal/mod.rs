//! Replay of an unclean journal, in memory.
//!
//! Blocks that a mount would write back to the volume go into an [`Overlay`]; the image itself is
//! never touched. Three passes as in jbd2: find the committed transactions, collect their revoke
//! records, write the blocks that are not revoked in order; fast commits come on top.
//!
//! [`write`] makes new transactions on a volume in use.
//!
//! Orphans need no treatment here: an unlinked one has no name, and one that was being truncated
//! already has its final size.

mod checksum;
mod fast_commit;
mod form;
mod home;
mod locate;
mod log;
mod scan;
mod tags;
mod write;

pub(crate) use home::{note_recovered, recover_home, repair_home, write_home};
pub(crate) use locate::{BACKUP_BLOCKS, copied_map, inode as locate};
pub use write::LogWriter;
pub(crate) use write::{check_usable, note_abort};

use crate::checksum::crc32c;
use crate::inode::Inode;
use crate::ondisk::{
    JOURNAL_MAGIC, JournalSuperblock, compat, incompat, journal_at, journal_block,
};
use crate::superblock::Super;
use crate::volume::Volume;
use form::{CHECKSUM_CRC32C, WITH_SUM, be32, place};
use log::Log;
use scan::{Kind, LogBlock};
use seekless_device::{BlockDevice, Overlay};
use seekless_fs::FsError;
use seekless_fs::field::{range, slice, truncated};
use seekless_units::{BlockNo, ByteLen, Ino, Lba, Lbn};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The least blocks of a journal (`JBD2_MIN_JOURNAL_BLOCKS`).
pub(crate) const MIN_BLOCKS: u64 = 1024;

/// The offset of the number of the first transaction in the journal's superblock.
const SEQUENCE_AT: usize = offset_of!(JournalSuperblock, s_sequence);

/// Reads and checks the superblock of the journal in an inode; returns the first block of its
/// transactions, `None` if it is empty.
///
/// # Errors
/// [`FsError::Corrupt`], [`FsError::Unsupported`], [`FsError::Device`].
pub(crate) fn pending_start(volume: &Volume, inode: &Inode) -> Result<Option<u32>, FsError> {
    Ok(Log::head(volume, inode)?.0.start)
}

/// The error after which the journal in an inode was left (`s_errno`); zero for none.
///
/// # Errors
/// As [`pending_start`].
pub(crate) fn error_of(volume: &Volume, inode: &Inode) -> Result<i32, FsError> {
    Ok(Log::head(volume, inode)?.1.s_errno.get().cast_signed())
}

/// Checks that the journal in an inode has all its blocks (e2fsck, `e2fsck_get_journal`).
///
/// # Errors
/// [`FsError::Corrupt`] with the first block that is missing, a length below the least, or a map
/// that cannot be followed; [`FsError::Device`].
pub(crate) fn check_whole(volume: &Volume, inode: &Inode) -> Result<(), FsError> {
    let len = inode.len / u64::from(volume.sb.block_size);
    if len < MIN_BLOCKS {
        return Err(range("journal blocks", len, MIN_BLOCKS, place()));
    }
    let mut next = 0;
    for run in volume.maps().block_map(inode)?.runs {
        if run.lbn.get() != next || run.unwritten {
            break;
        }
        next = (run.lbn + run.extent.len).get();
    }
    if next < len {
        return Err(range("journal block", next, len, place()));
    }
    Ok(())
}

/// Whether an inode leads to no journal of which e2fsck keeps anything: it lacks blocks, or its
/// first block is not that of a journal (`e2fsck_journal_fix_bad_inode`).
///
/// # Errors
/// Errors of the device.
pub(crate) fn is_lost(volume: &Volume, inode: &Inode) -> Result<bool, FsError> {
    match check_whole(volume, inode) {
        Err(FsError::Corrupt { .. }) => return Ok(true),
        checked => checked?,
    }
    let first = volume.maps().map_block(inode, Lbn::ZERO)?;
    let Some(first) = first.filter(|run| !run.unwritten) else { return Ok(true) };
    let block = volume.block(first.extent.start, place())?;
    Ok(be32(&block, 0) != Some(JOURNAL_MAGIC))
}

/// Whether the superblock of a journal in an inode has fields of the second version without being
/// one, or several users (e2fsck, `clear_v2_journal_fields`).
///
/// # Errors
/// As [`pending_start`].
pub(crate) fn has_foreign_fields(volume: &Volume, inode: &Inode) -> Result<bool, FsError> {
    let sb = Log::head(volume, inode)?.1;
    let words = [sb.s_feature_compat, sb.s_feature_incompat, sb.s_feature_ro_compat, sb.s_nr_users];
    Ok(match sb.s_header.h_blocktype.get() {
        journal_block::SUPERBLOCK_V1 => words.iter().any(|word| word.get() != 0),
        _ => sb.s_nr_users.get() > 1,
    })
}

/// Clears the fields that a journal of the first version does not have.
pub(crate) fn clear_foreign_fields(block: &mut [u8]) {
    let from = offset_of!(JournalSuperblock, s_feature_compat);
    block.get_mut(from..).unwrap_or_default().fill(0);
}

/// Blocks of the journal of a volume with so many blocks (e2fsprogs, `ext2fs_default_journal_size`).
pub(crate) fn default_blocks(volume: u64) -> u64 {
    match volume {
        blocks if blocks < 32 * 1024 => MIN_BLOCKS,
        blocks if blocks < 256 * 1024 => 4096,
        blocks if blocks < 512 * 1024 => 8192,
        blocks if blocks < 4096 * 1024 => 16384,
        blocks if blocks < 8192 * 1024 => 32768,
        blocks if blocks < 16384 * 1024 => 65536,
        blocks if blocks < 32768 * 1024 => 131_072,
        _ => 262_144,
    }
}

/// Changes of a recovery.
pub(crate) struct Replayed {
    /// The volume as a mount would leave it.
    pub(crate) overlay: Arc<Overlay>,
    /// The journal's first block, which marks it as empty: it is written when all else is on the
    /// disk.
    pub(crate) head: BlockNo,
}

/// The device as a mount would leave it after recovery; `None` when there is
/// nothing to recover.
pub(crate) fn replay(volume: &Volume) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::AsOpened)
}

/// As [`replay`], but the checksums of the journal are compared even if those of the volume are
/// not: damaged blocks must not be written over sound ones.
pub(crate) fn replay_checked(volume: &Volume) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Checked)
}

/// As [`replay_checked`], for a repair: the journal is found through copies if the primary metadata
/// do not lead to it, and replayed even if the superblock says that it is empty, as in `e2fsck -y`.
pub(crate) fn replay_for_repair(volume: &Volume) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Repair)
}

/// The trust in a journal, and the way to find it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Checksums are compared if those of the volume are.
    AsOpened,
    /// Checksums are compared, and a wrong one is an error.
    Checked,
    /// The same; copies of metadata are used, and `needs_recovery` is ignored.
    Repair,
    /// The same, but a block with a wrong checksum is passed over.
    Followed,
}

impl Trust {
    /// Whether copies may be used, and the superblock's flag is ignored.
    fn is_repair(self) -> bool {
        matches!(self, Self::Repair | Self::Followed)
    }
}

/// As [`replay_for_repair`], but a damaged journal is followed as far as it makes sense, as in
/// e2fsck: copies of blocks with a wrong checksum are passed over, and a transaction that was not
/// wholly written ends it.
pub(crate) fn salvage(volume: &Volume) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Followed)
}

fn recover(volume: &Volume, trust: Trust) -> Result<Option<Replayed>, FsError> {
    let is_marked = volume.sb.has_incompat(incompat::RECOVER);
    if !volume.sb.has_compat(compat::HAS_JOURNAL) || !(is_marked || trust.is_repair()) {
        return Ok(None);
    }
    let number = volume.sb.raw.s_journal_inum.get();
    if number == 0 {
        if !is_marked {
            return Ok(None);
        }
        return Err(FsError::Unsupported("recovery from an external journal".into()));
    }
    let number = Ino::new(number);
    let inode = if trust.is_repair() {
        locate::inode(volume, number)
    } else {
        volume.inodes().read(number)
    };
    if !is_marked {
        // An unreadable journal is a finding of its own: it has no known transactions.
        let head = inode.as_ref().map_or(Ok(None), |inode| pending_start(volume, inode));
        match head {
            Ok(Some(_)) => {}
            Ok(None) | Err(FsError::Corrupt { .. } | FsError::Unsupported(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let inode = inode?;
    let mut log = Log::open(volume, &inode)?;
    log.lenient = trust == Trust::Followed;
    if trust != Trust::AsOpened {
        log.distrust()?;
    }
    let Some(start) = log.start else { return Ok(None) };
    let scanned = scan::scan(&log, start)?;
    debug_assert!(
        scanned.steps.iter().all(|step| (log.first..log.last).contains(&step.at)),
        "transactions lie in the ring"
    );
    let block_size = u64::from(volume.sb.block_size);
    let overlay = Arc::new(Overlay::new(volume.device().clone(), block_size));
    let revoked = revoked(&log, &scanned.steps)?;
    for step in scanned.steps.iter().filter(|step| step.kind == Kind::Descriptor) {
        write_back(&log, step, &revoked, &overlay)?;
    }
    fast_commit::replay(&log, scanned.end, &overlay)?;
    // Nothing waits any more.
    let mut head = log.block(0)?;
    // Numbers of transactions are never reused: blocks of old ones are still there.
    if let Some(sequence) = head.get_mut(SEQUENCE_AT..).and_then(<[u8]>::first_chunk_mut) {
        *sequence = scanned.end.to_be_bytes();
    }
    empty(&mut head);
    let run = log.map.find(Lbn::ZERO).ok_or_else(|| truncated(place()))?;
    let at = run.extent.start;
    let byte = at.get() * block_size;
    overlay.write(Lba::containing(ByteLen::new(byte)), &head)?;
    Ok(Some(Replayed { overlay, head: at }))
}

/// Makes the first block of a journal that of an empty one, which goes on behind the old
/// transactions.
pub(crate) fn empty(block: &mut [u8]) {
    let Some((head, _)) = block.split_at_mut_checked(size_of::<JournalSuperblock>()) else {
        return;
    };
    let Ok(superblock) = JournalSuperblock::mut_from_bytes(head) else { return };
    superblock.s_start = 0.into();
    superblock.s_sequence = superblock.s_sequence.get().wrapping_add(1).max(1).into();
    if superblock.s_feature_incompat.get() & WITH_SUM != 0 {
        superblock.s_checksum = 0.into();
        superblock.s_checksum = crc32c(!0, superblock.as_bytes()).into();
    }
}

/// Each revoked block with the last transaction that revokes it.
fn revoked(log: &Log<'_>, steps: &[LogBlock]) -> Result<HashMap<BlockNo, u32>, FsError> {
    let mut revoked = HashMap::new();
    for step in steps.iter().filter(|step| step.kind == Kind::Revoke) {
        let block = log.block(step.at)?;
        log.verify_tail(&block)?;
        let used = be32(&block, journal_at::REVOKE_COUNT).ok_or_else(|| truncated(place()))?;
        let room = seekless_fs::field::wide(block.len() - log.form.tail_len());
        let len = seekless_fs::field::index(used)
            .checked_sub(journal_at::REVOKE_RECORDS)
            .filter(|_| u64::from(used) <= room)
            .ok_or_else(|| range("r_count", u64::from(used), room, place()))?;
        let records =
            slice(&block, journal_at::REVOKE_RECORDS, len).ok_or_else(|| truncated(place()))?;
        for record in records.chunks_exact(log.form.revoke_record_len()) {
            let number = record.iter().fold(0u64, |number, &byte| (number << 8) | u64::from(byte));
            // Steps come in order of their transactions: the last one stays.
            revoked.insert(BlockNo::new(number), step.transaction);
        }
    }
    Ok(revoked)
}

/// Whether transaction `a` is not older than `b`; the numbers wrap.
fn not_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() >= 0
}

/// Writes the blocks of one descriptor home.
fn write_back(
    log: &Log<'_>,
    step: &LogBlock,
    revoked: &HashMap<BlockNo, u32>,
    overlay: &Overlay,
) -> Result<(), FsError> {
    let descriptor = log.block(step.at)?;
    let mut at = step.at;
    for tag in tags::read(&log.form, &descriptor)? {
        at = log.after(at, 1);
        let newest = revoked.get(&tag.block);
        if newest.is_some_and(|&newest| not_older(newest, step.transaction)) {
            continue;
        }
        let mut data = log.block(at)?;
        match log.verify_data(&tag, step.transaction, &data) {
            Err(FsError::Corrupt { .. }) if log.lenient => continue,
            checked => checked?,
        }
        if let Some(head) = data.first_chunk_mut().filter(|_| tag.escaped) {
            *head = JOURNAL_MAGIC.to_be_bytes();
        }
        check_home(&log.volume.sb, tag.block)?;
        let byte = tag.block.get() * u64::from(log.volume.sb.block_size);
        overlay.write(Lba::containing(ByteLen::new(byte)), &data)?;
    }
    Ok(())
}

/// Checks that a journalled block belongs to the volume; block 0 may contain the superblock.
fn check_home(sb: &Super, block: BlockNo) -> Result<(), FsError> {
    if block.get() < sb.blocks {
        return Ok(());
    }
    Err(range("t_blocknr", block.get(), sb.blocks, place()))
}

/// Makes the first block of a journal of `blocks` blocks that of an empty one: the one there as far
/// as it can be used, else one without features. The transactions in the journal are lost.
pub(crate) fn reset(block: &mut [u8], blocks: u32, block_size: u32) {
    const KEPT: usize = size_of::<JournalSuperblock>();
    // A number that old transactions hardly have: theirs are unknown.
    let number = crc32c(!0, block) | 1;
    let Some((head, rest)) = block.split_at_mut_checked(KEPT) else { return };
    let Ok(sb) = JournalSuperblock::mut_from_bytes(head) else { return };
    let is_usable = sb.s_header.h_magic.get() == JOURNAL_MAGIC
        && sb.s_header.h_blocktype.get() == journal_block::SUPERBLOCK_V2
        && sb.s_blocksize.get() == block_size
        && sb.s_first.get() == 1
        && sb.s_feature_ro_compat.get() == 0
        && sb.s_feature_incompat.get() & !log::KNOWN == 0;
    if !is_usable {
        let uuid = sb.s_uuid;
        *sb = JournalSuperblock::new_zeroed();
        sb.s_header.h_magic = JOURNAL_MAGIC.into();
        sb.s_header.h_blocktype = journal_block::SUPERBLOCK_V2.into();
        sb.s_blocksize = block_size.into();
        sb.s_first = 1.into();
        sb.s_nr_users = 1.into();
        sb.s_uuid = uuid;
        sb.s_sequence = number.into();
        rest.fill(0);
    }
    sb.s_maxlen = blocks.into();
    sb.s_errno = 0.into();
    if sb.s_feature_incompat.get() & WITH_SUM != 0 {
        sb.s_checksum_type = CHECKSUM_CRC32C;
    }
    empty(block);
}
