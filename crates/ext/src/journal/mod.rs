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
mod external;
mod fast_commit;
mod form;
mod head;
mod home;
mod locate;
mod log;
mod scan;
mod tags;
mod write;

pub use external::JournalUuid;
pub(crate) use external::{External, is_external, refuse_missing};
pub(crate) use head::{clear_foreign_fields, empty, reset};
pub(crate) use home::{note_recovered, recover_home, repair_home, write_home};
pub(crate) use locate::{BACKUP_BLOCKS, copied_map, inode as locate};
pub(crate) use log::Site;
pub use write::LogWriter;
pub(crate) use write::{check_usable, note_abort};

use crate::inode::Inode;
use crate::ondisk::{
    JOURNAL_MAGIC, JournalSuperblock, compat, incompat, journal_at, journal_block,
};
use crate::superblock::Super;
use crate::volume::Volume;
use form::{be32, place};
use log::Log;
use scan::{Kind, LogBlock};
use seekless_device::{BlockDevice, Overlay};
use seekless_fs::FsError;
use seekless_fs::field::{range, slice, truncated};
use seekless_units::{BlockNo, ByteLen, Ino, Lba, Lbn};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;

/// The least blocks of a journal (`JBD2_MIN_JOURNAL_BLOCKS`).
pub(crate) const MIN_BLOCKS: u64 = 1024;

/// The offset of the number of the first transaction in the journal's superblock.
const SEQUENCE_AT: usize = offset_of!(JournalSuperblock, s_sequence);

/// Reads and checks the superblock of a journal; returns the first block of its transactions, `None`
/// if it is empty.
///
/// # Errors
/// [`FsError::Corrupt`], [`FsError::Unsupported`], [`FsError::Device`].
pub(crate) fn pending_start<'a>(
    volume: &Volume,
    site: impl Into<Site<'a>>,
) -> Result<Option<u32>, FsError> {
    Ok(Log::head(volume, site)?.0.start)
}

/// The error after which a journal was left (`s_errno`); zero for none.
///
/// # Errors
/// As [`pending_start`].
pub(crate) fn error_of<'a>(volume: &Volume, site: impl Into<Site<'a>>) -> Result<i32, FsError> {
    Ok(Log::head(volume, site)?.1.s_errno.get().cast_signed())
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

/// Whether the superblock of a journal has fields of the second version without being
/// one, or several users (e2fsck, `clear_v2_journal_fields`).
///
/// # Errors
/// As [`pending_start`].
pub(crate) fn has_foreign_fields<'a>(
    volume: &Volume,
    site: impl Into<Site<'a>>,
) -> Result<bool, FsError> {
    let sb = Log::head(volume, site)?.1;
    let words = [sb.s_feature_compat, sb.s_feature_incompat, sb.s_feature_ro_compat, sb.s_nr_users];
    Ok(match sb.s_header.h_blocktype.get() {
        journal_block::SUPERBLOCK_V1 => words.iter().any(|word| word.get() != 0),
        _ => sb.s_nr_users.get() > 1,
    })
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
    /// The block with the journal's superblock, which marks it as empty: it is written when all else
    /// is on the disk.
    pub(crate) head: Head,
}

/// A block with the superblock of a journal.
pub(crate) enum Head {
    /// A block of the volume, with its new contents in the overlay.
    Within(BlockNo),
    /// One on another device, with its new contents.
    Outside(External, Vec<u8>),
}

impl Replayed {
    /// The journal on another device as a mount would leave it.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn external(&self) -> Result<Option<External>, FsError> {
        match &self.head {
            Head::Within(_) => Ok(None),
            Head::Outside(external, bytes) => external.with_head(bytes).map(Some),
        }
    }
}

/// The device as a mount would leave it after recovery; `None` when there is
/// nothing to recover.
pub(crate) fn replay(volume: &Volume) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::AsOpened, None)
}

/// As [`replay`], but the checksums of the journal are compared even if those of the volume are
/// not: damaged blocks must not be written over sound ones. The journal may be on another device.
pub(crate) fn replay_checked(
    volume: &Volume,
    external: Option<&External>,
) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Checked, external)
}

/// As [`replay_checked`], for a repair: the journal is found through copies if the primary metadata
/// do not lead to it, and replayed even if the superblock says that it is empty, as in `e2fsck -y`.
pub(crate) fn replay_for_repair(
    volume: &Volume,
    external: Option<&External>,
) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Repair, external)
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
pub(crate) fn salvage(
    volume: &Volume,
    external: Option<&External>,
) -> Result<Option<Replayed>, FsError> {
    recover(volume, Trust::Followed, external)
}

fn recover(
    volume: &Volume,
    trust: Trust,
    external: Option<&External>,
) -> Result<Option<Replayed>, FsError> {
    let is_marked = volume.sb.has_incompat(incompat::RECOVER);
    if !volume.sb.has_compat(compat::HAS_JOURNAL) || !(is_marked || trust.is_repair()) {
        return Ok(None);
    }
    let number = volume.sb.raw.s_journal_inum.get();
    if external.is_none() && (number == 0 || is_external(&volume.sb)) {
        if !is_marked {
            return Ok(None);
        }
        refuse_missing(&volume.sb)?;
        return Err(FsError::Unsupported("recovery from an external journal".into()));
    }
    let number = Ino::new(number);
    let inode = match external {
        Some(_) => None,
        None if trust.is_repair() => Some(locate::inode(volume, number)),
        None => Some(volume.inodes().read(number)),
    };
    let site = match (external, &inode) {
        (Some(external), _) => Some(Site::Device(external)),
        (None, Some(Ok(inode))) => Some(Site::Inode(inode)),
        _ => None,
    };
    if !is_marked {
        // An unreadable journal is a finding of its own: it has no known transactions.
        let head = site.map_or(Ok(None), |site| pending_start(volume, site));
        match head {
            Ok(Some(_)) => {}
            Ok(None) | Err(FsError::Corrupt { .. } | FsError::Unsupported(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let Some(site) = site else { return inode.map_or(Ok(None), |inode| inode.map(|_| None)) };
    let mut log = Log::open(volume, site, trust == Trust::Followed)?;
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
    let mut head = log.block(log.head)?;
    // Numbers of transactions are never reused: blocks of old ones are still there.
    if let Some(sequence) = head.get_mut(SEQUENCE_AT..).and_then(<[u8]>::first_chunk_mut) {
        *sequence = scanned.end.to_be_bytes();
    }
    empty(&mut head);
    if let Site::Device(external) = site {
        return Ok(Some(Replayed { overlay, head: Head::Outside(external.clone(), head) }));
    }
    let run = log.map.find(Lbn::ZERO).ok_or_else(|| truncated(place()))?;
    let at = run.extent.start;
    let byte = at.get() * block_size;
    overlay.write(Lba::containing(ByteLen::new(byte)), &head)?;
    Ok(Some(Replayed { overlay, head: Head::Within(at) }))
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
