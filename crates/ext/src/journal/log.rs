//! The journal as a ring of blocks.

use super::checksum;
use super::external::External;
use super::form::{Form, place};
use super::tags::Tag;
use crate::bmap::EVERYTHING;
use crate::checksum::crc32c;
use crate::inode::Inode;
use crate::ondisk::{JOURNAL_MAGIC, JournalSuperblock, journal_block, journal_feature};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{invalid, parse, range, truncated};
use seekless_fs::{BlockMap, Corruption, FsError};
use seekless_units::{BlockNo, ByteLen, Lbn};
use std::sync::Arc;

/// Default size of the fast-commit area, in blocks.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// The kernel ignores a fast-commit area that leaves less of the journal.
const MIN_JOURNAL_BLOCKS: u32 = 1024;
/// Incompatible features that replay supports.
pub(super) const KNOWN: u32 = journal_feature::INCOMPAT_REVOKE
    | journal_feature::INCOMPAT_64BIT
    | journal_feature::INCOMPAT_ASYNC_COMMIT
    | journal_feature::INCOMPAT_CSUM_V2
    | journal_feature::INCOMPAT_CSUM_V3
    | journal_feature::INCOMPAT_FAST_COMMIT;

/// The place of a journal.
#[derive(Clone, Copy)]
pub(crate) enum Site<'a> {
    /// An inode of the volume.
    Inode(&'a Inode),
    /// A device of its own.
    Device(&'a External),
}

impl<'a> From<&'a Inode> for Site<'a> {
    fn from(inode: &'a Inode) -> Self {
        Self::Inode(inode)
    }
}

impl<'a> From<&'a External> for Site<'a> {
    fn from(external: &'a External) -> Self {
        Self::Device(external)
    }
}

/// An open journal.
pub(super) struct Log<'a> {
    pub(super) volume: &'a Volume,
    /// The device with its blocks.
    device: Arc<dyn BlockDevice>,
    pub(super) map: BlockMap,
    /// The block with its superblock.
    pub(super) head: u32,
    /// Damaged blocks are passed over.
    pub(super) lenient: bool,
    /// Checksums are compared.
    pub(super) verifies: bool,
    /// How its blocks look.
    pub(super) form: Form,
    read_only: u32,
    /// The ring: `first .. last`.
    pub(super) first: u32,
    pub(super) last: u32,
    /// All blocks, the fast-commit area included.
    pub(super) len: u32,
    /// The transaction at the start of the log.
    pub(super) sequence: u32,
    /// The start of the log; `None` when it is empty.
    pub(super) start: Option<u32>,
}

impl<'a> Log<'a> {
    /// Reads and checks the journal's superblock, and the ring that it describes. A lenient log passes
    /// over damaged blocks, and has its ring behind the superblock where that names no first block.
    pub(super) fn open<'s>(
        volume: &'a Volume,
        site: impl Into<Site<'s>>,
        is_lenient: bool,
    ) -> Result<Self, FsError> {
        let (mut log, sb) = Self::head(volume, site)?;
        log.lenient = is_lenient;
        log.check_ring(&sb)?;
        Ok(log)
    }

    /// Reads the journal's superblock and checks it as far as e2fsck does without pending
    /// transactions (`e2fsck_journal_load`): the start of the log is not checked then.
    pub(super) fn head<'s>(
        volume: &'a Volume,
        site: impl Into<Site<'s>>,
    ) -> Result<(Self, JournalSuperblock), FsError> {
        let (device, map, head, most) = match site.into() {
            Site::Inode(inode) => {
                let runs = volume.maps().runs(inode, EVERYTHING)?;
                let held = inode.len / u64::from(volume.sb.block_size);
                let map = BlockMap { runs, ..BlockMap::default() };
                (volume.device(), map, 0, held.min(volume.sb.blocks))
            }
            Site::Device(external) => {
                (external.device(), external.map(), external.head, external.blocks.into())
            }
        };
        let mut log = Self {
            volume,
            device: device.clone(),
            map,
            head,
            lenient: false,
            verifies: !volume.ignore_checksums,
            form: Form::default(),
            read_only: 0,
            first: 0,
            last: 1,
            len: 1,
            sequence: 0,
            start: None,
        };
        let block = log.block(head)?;
        let sb: JournalSuperblock = parse(&block, 0).ok_or_else(|| truncated(place()))?;
        log.read_superblock(&sb)?;
        log.check_len(&sb, most)?;
        log.verify_head(&block, &sb)?;
        Ok((log, sb))
    }

    fn verify_head(&self, block: &[u8], sb: &JournalSuperblock) -> Result<(), FsError> {
        if !self.verifies || !self.form.has_block_checksums() {
            return Ok(());
        }
        checksum::verify_superblock(block, sb.s_checksum.get())
    }

    /// Compares checksums from now on, that of the superblock first.
    pub(super) fn distrust(&mut self) -> Result<(), FsError> {
        self.verifies = true;
        let block = self.block(self.head)?;
        let sb: JournalSuperblock = parse(&block, 0).ok_or_else(|| truncated(place()))?;
        self.verify_head(&block, &sb)
    }

    /// Checks a journalled block against its tag, if checksums are compared.
    pub(super) fn verify_data(
        &self,
        tag: &Tag,
        transaction: u32,
        data: &[u8],
    ) -> Result<(), FsError> {
        if !self.verifies {
            return Ok(());
        }
        checksum::verify_data(&self.form, tag, transaction, data)
    }

    fn read_superblock(&mut self, sb: &JournalSuperblock) -> Result<(), FsError> {
        let magic = sb.s_header.h_magic.get();
        if magic != JOURNAL_MAGIC {
            return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place()));
        }
        match sb.s_header.h_blocktype.get() {
            journal_block::SUPERBLOCK_V1 => {}
            journal_block::SUPERBLOCK_V2 => {
                self.form.incompat = sb.s_feature_incompat.get();
                self.form.compat = sb.s_feature_compat.get();
                self.read_only = sb.s_feature_ro_compat.get();
            }
            other => return Err(invalid("h_blocktype", u64::from(other), place())),
        }
        let unknown = self.form.incompat & !KNOWN;
        if unknown != 0 {
            return Err(FsError::Unsupported(format!("journal feature {unknown:#x}")));
        }
        // The kernel supports none either, and does not mount then.
        if self.read_only != 0 {
            let what = format!("journal feature {:#x}, which writing needs", self.read_only);
            return Err(FsError::Unsupported(what));
        }
        self.form.seed = crc32c(!0, &sb.s_uuid);
        self.sequence = sb.s_sequence.get();
        self.start = Some(sb.s_start.get()).filter(|&start| start != 0);
        Ok(())
    }

    /// Checks that the journal has no more blocks than there are.
    fn check_len(&mut self, sb: &JournalSuperblock, most: u64) -> Result<(), FsError> {
        let block_size = self.volume.sb.block_size;
        if sb.s_blocksize.get() != block_size {
            return Err(invalid("s_blocksize", u64::from(sb.s_blocksize.get()), place()));
        }
        self.len = sb.s_maxlen.get();
        if u64::from(self.len) > most {
            return Err(range("s_maxlen", u64::from(self.len), most, place()));
        }
        Ok(())
    }

    /// Checks that the ring lies in the journal.
    fn check_ring(&mut self, sb: &JournalSuperblock) -> Result<(), FsError> {
        self.first = match sb.s_first.get() {
            0 if self.lenient => self.head + 1,
            first => first,
        };
        self.last = self.len;
        if self.form.has(journal_feature::INCOMPAT_FAST_COMMIT) {
            let named = sb.s_num_fc_blks.get();
            let kept = if named == 0 { DEFAULT_FAST_COMMIT_BLOCKS } else { named };
            if let Some(rest) = self.len.checked_sub(kept).filter(|it| *it >= MIN_JOURNAL_BLOCKS) {
                self.last = rest;
            }
        }
        if self.first == 0 || self.first >= self.last {
            return Err(range("s_first", u64::from(self.first), u64::from(self.last), place()));
        }
        match self.start {
            Some(start) if start < self.first || start >= self.last => {
                Err(range("s_start", u64::from(start), u64::from(self.last), place()))
            }
            _ => Ok(()),
        }
    }

    /// Blocks of the ring.
    pub(super) fn ring_len(&self) -> u32 {
        debug_assert!(self.first < self.last, "the ring was checked");
        self.last - self.first
    }

    /// The block `n` steps behind `at`, around the ring's end.
    pub(super) fn after(&self, at: u32, n: u32) -> u32 {
        after(self.first, self.last, at, n)
    }

    /// A block of the journal.
    pub(super) fn block(&self, at: u32) -> Result<Vec<u8>, FsError> {
        let lbn = Lbn::new(u64::from(at));
        let Some(run) = self.map.find(lbn).filter(|run| !run.unwritten) else {
            return Err(range("journal block", lbn.get(), u64::from(self.len), place()));
        };
        let block: BlockNo = run.extent.start;
        let mut bytes = vec![0; self.volume.block_len()];
        let byte = block.get() * u64::from(self.volume.sb.block_size);
        self.device.read_bytes(ByteLen::new(byte), &mut bytes)?;
        Ok(bytes)
    }

    /// Whether a descriptor or revoke block's checksum is right.
    pub(super) fn tail_matches(&self, block: &[u8]) -> bool {
        self.verify_tail(block).is_ok()
    }

    /// Checks a descriptor or revoke block's checksum.
    pub(super) fn verify_tail(&self, block: &[u8]) -> Result<(), FsError> {
        if !self.form.has_block_checksums() {
            return Ok(());
        }
        checksum::verify_at(&self.form, block, block.len() - 4)
    }
}

/// The block `n` steps behind `at` in the ring `first .. last`.
pub(super) fn after(first: u32, last: u32, at: u32, n: u32) -> u32 {
    debug_assert!((first..last).contains(&at), "block {at} of the ring {first}..{last}");
    let ring = u64::from(last - first);
    let from = u64::from(at - first);
    let to = (from + u64::from(n)) % ring;
    first + u32::try_from(to).unwrap_or(0)
}
