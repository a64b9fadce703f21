//! Replay of an unclean journal, in memory.
//!
//! What a mount would write back to the volume goes into an [`Overlay`]; the
//! image itself is never touched. Three passes as in jbd2: find the committed
//! transactions, collect what they revoke, write the rest in order; fast commits
//! come on top.
//!
//! Orphans need nothing here: an unlinked one has no name, and one that was
//! being truncated already has its final size.

mod checksum;
mod fast_commit;
mod log;
mod scan;
mod tags;

use crate::checksum::crc32c;
use crate::field::{range, slice, truncated};
use crate::inode::Inode;
use crate::ondisk::{JOURNAL_MAGIC, JournalSuperblock, compat, incompat, journal_feature};
use crate::volume::Volume;
use log::Log;
use scan::{Kind, Step};
use seekless_device::{BlockDevice, Overlay};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Ino, Lba, Lbn};
use std::collections::HashMap;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Where revoke records start in their block.
const REVOKE_RECORDS_AT: usize = 16;

fn place() -> Location {
    Location::of("journal")
}

/// Reads and checks the superblock of the journal that an inode holds, where the
/// superblock of the volume says that nothing waits in it: a mount then drops
/// what is there, but e2fsck offers to replay it.
pub(crate) fn check_idle(volume: &Volume, inode: &Inode) -> Result<(), FsError> {
    let (log, _) = Log::head(volume, inode)?;
    let Some(start) = log.start else { return Ok(()) };
    let found = u64::from(start);
    Err(FsError::corrupt(Corruption::Invalid { field: "s_start", value: found }, place()))
}

/// The device as a mount would leave it after recovery; `None` when there is
/// nothing to recover.
pub(crate) fn replay(volume: &Volume) -> Result<Option<Arc<dyn BlockDevice>>, FsError> {
    if !volume.sb.has_compat(compat::HAS_JOURNAL) || !volume.sb.has_incompat(incompat::RECOVER) {
        return Ok(None);
    }
    let number = volume.sb.raw.s_journal_inum.get();
    if number == 0 {
        return Err(FsError::Unsupported("recovery from an external journal".into()));
    }
    let inode: Inode = volume.inode(Ino::new(number))?;
    let log = Log::open(volume, &inode)?;
    let Some(start) = log.start else { return Ok(None) };
    let scanned = scan::scan(&log, start)?;
    let block_size = u64::from(volume.sb.block_size);
    let overlay = Arc::new(Overlay::new(volume.device().clone(), block_size));
    let revoked = revoked(&log, &scanned.steps)?;
    for step in scanned.steps.iter().filter(|step| step.kind == Kind::Descriptor) {
        write_back(&log, step, &revoked, &overlay)?;
    }
    fast_commit::replay(&log, scanned.end, &overlay)?;
    // Nothing waits any more.
    let mut head = log.block(0)?;
    empty(&mut head);
    if let Some(run) = log.map.find(Lbn::ZERO) {
        let byte = run.extent.start.get().saturating_mul(block_size);
        overlay.write(Lba::containing(ByteLen::new(byte)), &head)?;
    }
    Ok(Some(overlay))
}

/// Makes the first block of a journal that of an empty one, which goes on behind
/// the transactions that were there.
pub(crate) fn empty(block: &mut [u8]) {
    let Some((head, _)) = block.split_at_mut_checked(size_of::<JournalSuperblock>()) else {
        return;
    };
    let Ok(superblock) = JournalSuperblock::mut_from_bytes(head) else { return };
    superblock.s_start = 0.into();
    superblock.s_sequence = superblock.s_sequence.get().wrapping_add(1).max(1).into();
    let with_sum = journal_feature::INCOMPAT_CSUM_V2 | journal_feature::INCOMPAT_CSUM_V3;
    if superblock.s_feature_incompat.get() & with_sum != 0 {
        superblock.s_checksum = 0.into();
        superblock.s_checksum = crc32c(!0, superblock.as_bytes()).into();
    }
}

/// Each revoked block with the last transaction that revokes it.
fn revoked(log: &Log<'_>, steps: &[Step]) -> Result<HashMap<BlockNo, u32>, FsError> {
    let mut revoked = HashMap::new();
    for step in steps.iter().filter(|step| step.kind == Kind::Revoke) {
        let block = log.block(step.at)?;
        log.verify_tail(&block)?;
        let used = tags::be32(&block, 12).ok_or_else(|| truncated(place()))?;
        let room = u64::try_from(block.len().saturating_sub(log.tail_len())).unwrap_or(0);
        let len = crate::field::index(used)
            .checked_sub(REVOKE_RECORDS_AT)
            .filter(|_| u64::from(used) <= room)
            .ok_or_else(|| range("r_count", u64::from(used), room, place()))?;
        let records = slice(&block, REVOKE_RECORDS_AT, len).ok_or_else(|| truncated(place()))?;
        for record in records.chunks_exact(log.revoke_record_len()) {
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

/// Writes the blocks of one descriptor to where they belong.
fn write_back(
    log: &Log<'_>,
    step: &Step,
    revoked: &HashMap<BlockNo, u32>,
    overlay: &Overlay,
) -> Result<(), FsError> {
    let descriptor = log.block(step.at)?;
    let mut at = step.at;
    for tag in tags::read(log, &descriptor)? {
        at = log.after(at, 1);
        let newest = revoked.get(&tag.block);
        if newest.is_some_and(|&newest| not_older(newest, step.transaction)) {
            continue;
        }
        let mut data = log.block(at)?;
        checksum::verify_data(log, &tag, step.transaction, &data)?;
        if let Some(head) = data.first_chunk_mut().filter(|_| tag.escaped) {
            *head = JOURNAL_MAGIC.to_be_bytes();
        }
        log.volume.check_home(tag.block)?;
        let byte = tag.block.get().saturating_mul(u64::from(log.volume.sb.block_size));
        overlay.write(Lba::containing(ByteLen::new(byte)), &data)?;
    }
    Ok(())
}

impl Volume {
    /// Checks that a journalled block belongs to the volume; block 0 may hold
    /// the superblock.
    fn check_home(&self, block: BlockNo) -> Result<(), FsError> {
        if block.get() < self.sb.blocks {
            return Ok(());
        }
        Err(range("t_blocknr", block.get(), self.sb.blocks, place()))
    }
}
