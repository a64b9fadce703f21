//! The journal of a volume in use: transactions laid out in its ring.
//!
//! [`LogWriter`] is the [`Log`] of ext3 and ext4. It encodes and counts; its writes are returned in
//! stages, in the order of jbd2 (`fs/jbd2/commit.c`):
//!
//! 1. revoke records, descriptors and copies, and zeros where the commit record goes,
//!    then a flush, which is also that of all data written before
//! 2. the commit record, which is one sector, flushed as well. Only now is the transaction
//!    committed, and its blocks may go home.
//! 3. later, when all blocks of the oldest transactions are at home: a flush, and
//!    the journal's superblock with the new start. Only now is their room free.
//!
//! Numbers of transactions and times of commits grow, over all mounts: a recovery takes blocks with
//! the number that it expects for the next transaction, and tells damage from leftovers of an older
//! turn around the ring by the times.

mod encode;
mod state;

use super::external::External;
use super::form::{Form, place};
use super::log::Log as Reader;
use crate::inode::Inode;
use crate::ondisk::{JournalSuperblock, compat, incompat};
use crate::volume::Volume;
use encode::Encoder;
use seekless_cache::{Log, LogTransaction, Stable, Stage};
use seekless_device::BlockDevice;
use seekless_fs::field::{low32, range, truncated, wide};
use seekless_fs::patches::Patches;
use seekless_fs::{BlockMap, FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba, Lbn};
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// `s_errno` after an error that ended all changes: `-EIO`.
const ABORTED: i32 = -5;
/// The kernel and e2fsck reject a shorter journal (`JBD2_MIN_JOURNAL_BLOCKS`).
const MIN_BLOCKS: u32 = 1024;
/// Most bytes of neighbouring blocks of the log in one write.
const CLUSTER: usize = 128 << 10;
/// Bytes that a device writes atomically.
const SECTOR: usize = 512;
const NANOS: u32 = 1_000_000_000;

/// A transaction that is in the log.
struct Live {
    tid: u32,
    start: u32,
    len: u32,
}

/// The journal of a volume, as a log that transactions can be written to.
pub struct LogWriter {
    device: Arc<dyn BlockDevice>,
    wall: Box<dyn Fn() -> Timestamp + Send>,
    block_size: u32,
    /// The map of the journal.
    map: BlockMap,
    /// Its runs, in order of place.
    runs: Vec<Extent>,
    /// Blocks of the volume.
    blocks: u64,
    form: Form,
    /// The first block of the journal, as it was last written.
    superblock: JournalSuperblock,
    /// The volume's demands on the journal: blocks of 64-bit numbers, checksums.
    wanted: state::JournalFeatures,
    /// The ring is `first .. last`.
    first: u32,
    last: u32,
    /// The place of the next transaction.
    head: u32,
    /// Its number.
    next: u32,
    /// Transactions in the log, the oldest first; one lies behind the other.
    live: VecDeque<Live>,
    /// The time of the last commit, by its record.
    committed_at: Timestamp,
    is_started: bool,
}

impl LogWriter {
    /// Opens the journal of a volume; nothing is written. `wall` is the time of day,
    /// for commit records.
    ///
    /// # Errors
    /// [`FsError::Unsupported`], by name: a volume without a journal, with one on another device,
    /// with one that must be recovered first, or that was left after an error; unknown features.
    /// [`FsError::Corrupt`] for a journal that contradicts its format. [`FsError::Device`].
    pub fn open(
        device: Arc<dyn BlockDevice>,
        wall: Box<dyn Fn() -> Timestamp + Send>,
    ) -> Result<Self, FsError> {
        let volume = Volume::open(device.clone(), false)?;
        let inode = journal_inode(&volume)?;
        let (mut log, superblock) = usable(&volume, &inode)?;
        if volume.sb.has_incompat(incompat::RECOVER) || log.start.is_some() {
            let what = "writing to a journal with transactions that must be recovered first";
            return Err(FsError::Unsupported(what.into()));
        }
        let (first, last) = (log.first, log.last);
        debug_assert!(first > 0 && first < last && last <= log.len, "the ring was checked");
        let map = std::mem::take(&mut log.map);
        let head = superblock.s_head.get();
        Ok(Self {
            block_size: volume.sb.block_size,
            form: log.form,
            wanted: state::JournalFeatures::of(&volume.sb),
            head: if (first..last).contains(&head) { head } else { first },
            next: superblock.s_sequence.get(),
            live: VecDeque::new(),
            committed_at: Timestamp { secs: 0, nanos: 0 },
            is_started: false,
            runs: runs_of(&map),
            blocks: volume.sb.blocks,
            device,
            wall,
            map,
            superblock,
            first,
            last,
        })
    }

    /// The number of the next transaction.
    #[must_use]
    pub const fn next_tid(&self) -> u32 {
        self.next
    }

    /// The runs of the journal, in order of place.
    #[must_use]
    pub fn runs(&self) -> &[Extent] {
        &self.runs
    }

    fn encoder(&self) -> Encoder<'_> {
        let block = seekless_fs::field::index(self.block_size);
        Encoder { form: &self.form, uuid: self.superblock.s_uuid, block, tid: self.next }
    }

    /// Whether a block lies in the volume and outside the journal: a recovery would overwrite its
    /// own log.
    fn is_home(&self, block: BlockNo) -> bool {
        let after = self.runs.partition_point(|run| run.start <= block);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        block.get() < self.blocks && run.is_none_or(|run| run.end() <= block)
    }

    fn ring(&self) -> u32 {
        self.last - self.first
    }

    fn used(&self) -> u64 {
        self.live.iter().map(|live| u64::from(live.len)).sum()
    }

    /// The block `n` steps behind one of the ring.
    fn after(&self, at: u32, n: u32) -> u32 {
        super::log::after(self.first, self.last, at, n)
    }

    /// The place of a block of the journal on the device.
    fn sector(&self, at: u32) -> Lba {
        let run = self.map.find(Lbn::new(u64::from(at)));
        debug_assert!(run.is_some(), "all blocks were found to be mapped");
        let block = run.map_or(BlockNo::ZERO, |run| run.extent.start);
        Lba::containing(ByteLen::new(block.get() * u64::from(self.block_size)))
    }

    /// The time of the next commit: later than that of the last one.
    fn tick(&mut self) -> Timestamp {
        let last = self.committed_at;
        let next = match last.nanos + 1 {
            NANOS => Timestamp { secs: last.secs + 1, nanos: 0 },
            nanos => Timestamp { nanos, ..last },
        };
        let now = (self.wall)();
        let is_later = (now.secs, now.nanos) > (next.secs, next.nanos);
        self.committed_at = if is_later { now } else { next };
        debug_assert!(
            (self.committed_at.secs, self.committed_at.nanos) > (last.secs, last.nanos),
            "times of commits grow"
        );
        self.committed_at
    }

    /// Writes the journal's superblock, with the start of the log and its first transaction.
    fn write_tail(&mut self) -> Stage {
        debug_assert!((self.first..self.last).contains(&self.head), "block {}", self.head);
        let tail = self.live.front().map_or((self.head, self.next), |live| (live.start, live.tid));
        (self.superblock.s_start, self.superblock.s_sequence) = (tail.0.into(), tail.1.into());
        self.superblock_stage()
    }

    fn superblock_stage(&mut self) -> Stage {
        state::seal(&mut self.superblock, &self.form);
        let mut stage = Stage { stable: Stable::Own, ..Stage::default() };
        stage.push(self.sector(0), zerocopy::IntoBytes::as_bytes(&self.superblock), CLUSTER);
        stage
    }
}

/// Refuses a journal that could not be written to after a recovery.
///
/// # Errors
/// As [`LogWriter::open`].
pub(crate) fn check_usable(volume: &Volume) -> Result<(), FsError> {
    let inode = journal_inode(volume)?;
    usable(volume, &inode).map(drop)
}

/// A journal that can be written to while it is empty, and its superblock.
fn usable<'a>(
    volume: &'a Volume,
    inode: &Inode,
) -> Result<(Reader<'a>, JournalSuperblock), FsError> {
    // With the number of a device beside that of an inode no kernel mounts the volume.
    if volume.sb.raw.s_journal_dev.get() != 0 {
        return Err(FsError::Unsupported("writing to an external journal".into()));
    }
    let mut log = Reader::open(volume, inode, false)?;
    log.distrust()?;
    let superblock = state::parse(&log.block(0)?)?;
    state::check(&superblock)?;
    if log.last < MIN_BLOCKS {
        let len = u64::from(log.last);
        return Err(range("s_maxlen", len, u64::from(MIN_BLOCKS), place()));
    }
    check_places(volume, &log.map, log.len)?;
    Ok((log, superblock))
}

/// Records in the journal of a volume that writing to it was given up after an error
/// (`jbd2_journal_abort`): by that, e2fsck marks the volume even after it has written home a copy
/// of the superblock from before.
///
/// # Errors
/// Errors of the device, and for a journal that cannot be read.
pub(crate) fn note_abort(disk: &mut Patches) -> Result<(), FsError> {
    note_error(disk, None, ABORTED)
}

/// Sets `s_errno` of a volume's journal on the device.
///
/// # Errors
/// As [`note_abort`].
pub(super) fn note_error(
    disk: &mut Patches,
    external: Option<&External>,
    error: i32,
) -> Result<(), FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    if let Some(external) = external {
        let (log, mut sb) = Reader::head(&volume, external)?;
        sb.s_errno = error.cast_unsigned().into();
        state::seal(&mut sb, &log.form);
        let mut block = external.block(external.head)?;
        if let Some(head) = block.get_mut(..size_of::<JournalSuperblock>()) {
            head.copy_from_slice(sb.as_bytes());
        }
        return external.put_head(&block).map(drop);
    }
    let (log, mut sb) = Reader::head(&volume, &journal_inode(&volume)?)?;
    let Some(first) = log.map.runs.first() else { return Err(truncated(place())) };
    sb.s_errno = error.cast_unsigned().into();
    state::seal(&mut sb, &log.form);
    let at = first.extent.start.get() * u64::from(volume.sb.block_size);
    disk.put(at, sb.as_bytes())?;
    disk.flush()
}

/// Whether a volume's journal, on the device, was left after an error.
///
/// # Errors
/// As [`note_abort`].
pub(super) fn has_error(disk: &Patches, external: Option<&External>) -> Result<bool, FsError> {
    let volume = Volume::open(disk.device().clone(), true)?;
    let error = match external {
        Some(external) => super::error_of(&volume, external),
        None => super::error_of(&volume, &journal_inode(&volume)?),
    };
    Ok(error? != 0)
}

/// The inode that holds a volume's journal.
fn journal_inode(volume: &Volume) -> Result<Inode, FsError> {
    if !volume.sb.has_compat(compat::HAS_JOURNAL) {
        return Err(FsError::Unsupported("a journal on a volume that has none".into()));
    }
    let number = volume.sb.raw.s_journal_inum.get();
    if number == 0 {
        return Err(FsError::Unsupported("writing to an external journal".into()));
    }
    volume.inodes().read(Ino::new(number))
}

/// The runs of a map in order of place.
fn runs_of(map: &BlockMap) -> Vec<Extent> {
    let mut runs: Vec<Extent> = map.runs.iter().map(|run| run.extent).collect();
    runs.sort_unstable_by_key(|run| run.start);
    runs
}

/// Checks that the journal has all of its blocks, each once, outside of the volume's superblock and
/// descriptors: so that writes to it overwrite nothing else that is read before a recovery.
fn check_places(volume: &Volume, map: &BlockMap, len: u32) -> Result<(), FsError> {
    let mut reached = 0u64;
    for run in &map.runs {
        if run.unwritten || run.lbn.get() > reached {
            break;
        }
        reached = run.lbn.get() + run.extent.len;
    }
    if reached < u64::from(len) {
        return Err(range("journal blocks", reached, u64::from(len), place()));
    }
    let mut taken = runs_of(map);
    taken.push(Extent::new(volume.sb.superblock_block(), 1));
    let descriptors = 0..volume.sb.descriptor_blocks();
    taken.extend(descriptors.map(|nr| Extent::new(volume.sb.descriptor_block(nr), 1)));
    taken.sort_unstable_by_key(|run| run.start);
    let overlap = taken.windows(2).find_map(|pair| match pair {
        [one, two] if one.end() > two.start => Some(two.start),
        _ => None,
    });
    match overlap {
        Some(block) => Err(range("journal block", block.get(), 1, place().in_block(block))),
        None => Ok(()),
    }
}

impl Log for LogWriter {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn capacity(&self) -> u64 {
        u64::from(self.ring())
    }

    fn free(&self) -> u64 {
        let used = self.used();
        debug_assert!(used <= self.capacity());
        self.capacity() - used
    }

    fn most(&self) -> u64 {
        u64::from(self.ring() / 4)
    }

    fn cost(&self, copies: u64, revokes: u64) -> u64 {
        self.encoder().cost(copies, revokes)
    }

    fn start(&mut self) -> Result<Vec<Stage>, FsError> {
        debug_assert!(!self.is_started && self.live.is_empty());
        state::want(&mut self.superblock, &mut self.form, self.wanted);
        let journal = self.write_tail();
        // A mount that finds the flag and an empty journal has nothing to do; one that finds a log
        // without the flag drops it, and e2fsck asks.
        let volume = state::mark(self.device.as_ref(), true)?;
        self.is_started = true;
        Ok(vec![volume, journal])
    }

    fn encode(&mut self, transaction: &LogTransaction<'_>) -> Result<Vec<Stage>, FsError> {
        debug_assert!(self.is_started, "a mount would not recover it");
        let whole = |copy: &seekless_cache::LogCopy<'_>| {
            wide(copy.bytes.len()) == u64::from(self.block_size)
        };
        debug_assert!(transaction.copies.iter().all(whole), "blocks are logged as a whole");
        if let Some(copy) = transaction.copies.iter().find(|copy| !self.is_home(copy.home)) {
            let place = place().in_block(copy.home);
            return Err(range("logged block", copy.home.get(), self.blocks, place));
        }
        let cost = self.cost(wide(transaction.copies.len()), wide(transaction.revokes.len()));
        let most = self.most().min(self.free());
        if cost > most {
            let what = format!("a transaction of {cost} blocks, in a journal with {most} for it");
            return Err(FsError::NoSpace(what));
        }
        let (tid, start) = (self.next, self.head);
        debug_assert!(
            self.live.back().is_none_or(|live| {
                self.after(live.start, live.len) == start && live.tid.wrapping_add(1) == tid
            }),
            "transactions follow one another, in the ring and by number"
        );
        let time = self.tick();
        let mut at = start;
        let mut body = Stage { stable: Stable::All, ..Stage::default() };
        let crc = self.encoder().blocks(transaction, |block| {
            body.push(self.sector(at), block, CLUSTER);
            at = self.after(at, 1);
        });
        // A torn commit record has a wrong checksum, which a recovery takes for damage of a
        // committed transaction. So all of it is written before except for its first sector: the
        // rest is zeros.
        body.push(self.sector(at), &vec![0; seekless_fs::field::index(self.block_size)], CLUSTER);
        let record = self.encoder().commit(time, crc);
        let (first, rest) = record.split_at_checked(SECTOR).unwrap_or_default();
        debug_assert!(rest.iter().all(|&byte| byte == 0), "it is written with its first sector");
        let mut commit = Stage { stable: Stable::Own, ..Stage::default() };
        commit.push(self.sector(at), first, CLUSTER);
        let len = low32(cost);
        debug_assert_eq!(self.after(start, len), self.after(at, 1), "it took what was counted");
        self.live.push_back(Live { tid, start, len });
        self.head = self.after(start, len);
        self.next = tid.wrapping_add(1);
        debug_assert!(self.used() <= self.capacity(), "the log had room for it");
        Ok(vec![body, commit])
    }

    fn retire(&mut self, oldest: usize) -> Vec<Stage> {
        debug_assert!(oldest <= self.live.len(), "{oldest} transactions left out");
        self.live.drain(..oldest.min(self.live.len()));
        vec![Stage::flush(), self.write_tail()]
    }

    fn close(&mut self) -> Result<Vec<Stage>, FsError> {
        debug_assert!(self.is_started && self.live.is_empty(), "something waits in the log");
        debug_assert_eq!(self.used(), 0, "all transactions are at home");
        self.superblock.s_start = 0.into();
        self.superblock.s_sequence = self.next.into();
        self.superblock.s_head = self.head.into();
        let journal = self.superblock_stage();
        let volume = state::mark(self.device.as_ref(), false)?;
        self.is_started = false;
        Ok(vec![Stage::flush(), journal, volume])
    }
}
