//! Directories as lists of entries, block by block.

use crate::casefold;
use crate::checksum::crc32c;
use crate::htree;
use crate::inline;
use crate::inode::Inode;
use crate::ondisk::{DIR_TAIL_TYPE, DirEntryHead, DirEntryTail, flags, incompat};
use crate::volume::Volume;
use seekless_fs::field::{byte, index, invalid, le32, parse, range, slice, truncated, wide};
use seekless_fs::read_cache::Block;
use seekless_fs::{DirEntry, FileKind, FsError, Location};
use seekless_units::{BlockNo, Ino, Lbn};
use std::mem::offset_of;
use std::ops::ControlFlow;

/// Bytes of the fixed part of an entry.
const HEAD: usize = size_of::<DirEntryHead>();
/// Bytes of a block's checksum entry.
const TAIL: usize = size_of::<DirEntryTail>();

/// Bytes of the shortest entry, that of a name of one byte (`ext4_check_dir_entry` of the kernel,
/// `check_dir_block` of e2fsck).
pub(crate) const SHORTEST: usize = 12;

/// A directory entry of a block, used or not.
#[derive(Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    pub(crate) ino: Ino,
    pub(crate) name: &'a [u8],
    pub(crate) file_type: u8,
    /// The first byte behind it.
    pub(crate) next: usize,
}

/// The length of an entry; blocks of 64 KiB do not fit in 16 bits.
pub(crate) fn record_len(raw: u16, block_len: usize) -> usize {
    match raw {
        0 | u16::MAX if block_len == 65536 => block_len,
        _ if block_len < 65536 => usize::from(raw),
        _ => usize::from(raw & 0xFFFC) | (usize::from(raw & 3) << 16),
    }
}

/// The entry at byte `at`, its bounds checked.
pub(crate) fn entry_at(
    block: &[u8],
    at: usize,
    inodes: u32,
    place: Location,
) -> Result<RawEntry<'_>, FsError> {
    let place = place.at_offset(byte(at));
    let head: DirEntryHead = parse(block, at).ok_or_else(|| truncated(place))?;
    let len = record_len(head.rec_len.get(), block.len());
    let left = block.len() - at;
    let needed = (HEAD + usize::from(head.name_len)).next_multiple_of(4);
    if len < needed.max(SHORTEST) || len & 3 != 0 {
        return Err(invalid("rec_len", wide(len), place));
    }
    if len > left {
        return Err(range("rec_len", wide(len), wide(left), place));
    }
    let ino = head.inode.get();
    if ino > inodes {
        return Err(range("inode", u64::from(ino), u64::from(inodes), place));
    }
    let name =
        slice(block, at + HEAD, usize::from(head.name_len)).ok_or_else(|| truncated(place))?;
    if ino != 0 && name.is_empty() {
        return Err(invalid("name_len", 0, place));
    }
    Ok(RawEntry { ino: Ino::new(ino), name, file_type: head.file_type, next: at + len })
}

/// Visits the used entries of a block (or of a piece of inline data).
pub(crate) fn for_each<'a>(
    block: &'a [u8],
    inodes: u32,
    place: Location,
    visit: &mut dyn FnMut(RawEntry<'a>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, FsError> {
    let mut at = 0;
    while at < block.len() {
        let entry = entry_at(block, at, inodes, place)?;
        at = entry.next;
        if entry.ino != Ino::ZERO && visit(entry).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The kind of file for a file type of an entry.
pub(crate) fn kind_of(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// The offset of the tail with the checksum of a block of entries; `None` if there is no such tail.
pub(crate) fn tail_at(block: &[u8]) -> Option<usize> {
    let at = block.len().checked_sub(TAIL)?;
    let tail: DirEntryTail = parse(block, at)?;
    let is_tail = tail.det_reserved_zero1.get() == 0
        && usize::from(tail.det_rec_len.get()) == TAIL
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == DIR_TAIL_TYPE;
    is_tail.then_some(at)
}

/// Whether an entry of a block takes the room of the block's checksum: e2fsck then finds none.
pub(crate) fn reaches_over_tail(block: &[u8]) -> bool {
    let Some(tail) = tail_at(block) else { return false };
    let mut at = 0;
    while at < tail {
        match entry_at(block, at, u32::MAX, Location::of("directory block")) {
            Ok(entry) => at = entry.next,
            Err(_) => return false,
        }
    }
    at > tail
}

/// Checks the checksum of a block of entries. `seed` is the directory's.
pub(crate) fn verify_leaf(
    volume: &Volume,
    block: &[u8],
    seed: u32,
    place: Location,
) -> Result<(), FsError> {
    let Some(at) = tail_at(block) else {
        let found = block.len().checked_sub(TAIL).and_then(|at| parse::<DirEntryTail>(block, at));
        let found = found.ok_or_else(|| truncated(place))?.det_reserved_ft;
        return Err(invalid("det_reserved_ft", u64::from(found), place));
    };
    let tail: DirEntryTail = parse(block, at).ok_or_else(|| truncated(place))?;
    let computed = crc32c(seed, block.get(..at).unwrap_or_default());
    volume.verify(tail.det_checksum.get(), computed, place)
}

/// Sets the checksum of a block of entries that has a tail.
pub(crate) fn seal_leaf(block: &mut [u8], seed: u32) {
    let Some(at) = tail_at(block) else { return };
    let sum = crc32c(seed, block.get(..at).unwrap_or_default());
    let field = at + offset_of!(DirEntryTail, det_checksum);
    if let Some(field) = block.get_mut(field..).and_then(<[u8]>::first_chunk_mut) {
        *field = sum.to_le_bytes();
    }
}

/// An open directory.
pub(crate) struct Directory<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) inode: &'a Inode,
    /// Blocks that were read before.
    held: Option<&'a dyn Fn(Lbn) -> Option<Block>>,
}

impl<'a> Directory<'a> {
    pub(crate) fn new(volume: &'a Volume, inode: &'a Inode) -> Self {
        Self { volume, inode, held: None }
    }

    /// A directory some blocks of which were read before, and are not verified again.
    pub(crate) fn with_blocks(
        volume: &'a Volume,
        inode: &'a Inode,
        held: &'a dyn Fn(Lbn) -> Option<Block>,
    ) -> Self {
        Self { volume, inode, held: Some(held) }
    }

    /// The place for errors of one of its blocks.
    pub(crate) fn place(&self) -> Location {
        Location::of("directory block").in_inode(self.inode.ino)
    }

    /// Logical blocks up to its end.
    pub(crate) fn blocks(&self) -> u64 {
        self.inode.len.div_ceil(u64::from(self.volume.sb.block_size))
    }

    /// The highest inode number of an entry.
    pub(crate) fn inodes(&self) -> u32 {
        self.volume.sb.raw.s_inodes_count.get()
    }

    /// The logical blocks that are mapped, in order; holes read as nothing.
    pub(crate) fn present(&self) -> Result<Vec<Lbn>, FsError> {
        Ok(self.placed()?.into_iter().map(|(lbn, _)| lbn).collect())
    }

    /// The same, and where each lies.
    pub(crate) fn placed(&self) -> Result<Vec<(Lbn, BlockNo)>, FsError> {
        let runs = self.volume.maps().runs(self.inode, 0..self.blocks())?;
        Ok(runs
            .iter()
            .filter(|run| !run.unwritten)
            .flat_map(|run| (0..run.extent.len).map(|n| (run.lbn + n, run.extent.start + n)))
            .collect())
    }

    /// One of its blocks, its checksum checked.
    pub(crate) fn block(&self, lbn: Lbn) -> Result<Block, FsError> {
        if let Some(block) = self.held.and_then(|held| held(lbn)) {
            return Ok(block);
        }
        let place = self.place();
        let Some(run) = self.volume.maps().map_block(self.inode, lbn)? else {
            return Err(range("directory block", lbn.get(), self.blocks(), place));
        };
        let place = place.in_block(run.extent.start);
        let block = self.volume.block(run.extent.start, place)?;
        self.verify(&block, lbn, place)?;
        Ok(block)
    }

    /// Compares the checksum of one of its blocks.
    pub(crate) fn verify(&self, block: &[u8], lbn: Lbn, place: Location) -> Result<(), FsError> {
        if !self.volume.sb.has_metadata_csum() || self.volume.ignore_checksums {
            return Ok(());
        }
        let seed = self.volume.inodes().seed(self.inode);
        if self.volume.inodes().is_hashed(self.inode) && htree::is_index_block(block, lbn) {
            return htree::verify(self.volume, block, seed, place);
        }
        verify_leaf(self.volume, block, seed, place)
    }

    /// Visits its entries in disk order after the one with cookie `after`.
    pub(crate) fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        if self.inode.has_flag(flags::INLINE_DATA) {
            return inline::read_dir(self, after, visit);
        }
        let block_size = u64::from(self.volume.sb.block_size);
        let skip = after / block_size;
        for lbn in self.present()?.into_iter().skip_while(|lbn| lbn.get() < skip) {
            let block = self.block(lbn)?;
            let base = lbn.get() * block_size;
            let flow = for_each(&block, self.inodes(), self.place(), &mut |entry| {
                let cookie = base + wide(entry.next);
                if cookie <= after {
                    ControlFlow::Continue(())
                } else {
                    visit(self.shown(&entry, cookie))
                }
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// An entry for a listing.
    pub(crate) fn shown<'e>(&self, entry: &RawEntry<'e>, cookie: u64) -> DirEntry<'e> {
        let typed = self.volume.sb.has_incompat(incompat::FILETYPE);
        let kind = if typed { kind_of(entry.file_type) } else { None };
        DirEntry { name: entry.name, ino: entry.ino, kind, cookie }
    }

    /// Whether names compare without regard to case.
    pub(crate) fn folds_case(&self) -> bool {
        self.inode.has_flag(flags::CASEFOLD) && self.volume.sb.has_incompat(incompat::CASEFOLD)
    }

    /// The inode of a name.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let wanted = casefold::LookupName::new(name, self.folds_case());
        if self.inode.has_flag(flags::INLINE_DATA) {
            return inline::lookup(self, &wanted);
        }
        for lbn in self.candidates(name)? {
            if let Some(ino) = self.search(lbn, &wanted)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// The blocks that may contain an entry for `name`, leaves only.
    fn candidates(&self, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        match htree::probe(self, name)? {
            Some(path) => Ok(path.leaves),
            None => self.present(),
        }
    }

    fn search(&self, lbn: Lbn, wanted: &casefold::LookupName<'_>) -> Result<Option<Ino>, FsError> {
        let block = self.block(lbn)?;
        let mut found = None;
        let _ = for_each(&block, self.inodes(), self.place(), &mut |entry| {
            if wanted.is(entry.name) {
                found = Some(entry.ino);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The logical blocks that a lookup of `name` reads, in order.
    pub(crate) fn lookup_blocks(&self, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        if self.inode.has_flag(flags::INLINE_DATA) {
            return Ok(Vec::new());
        }
        let wanted = casefold::LookupName::new(name, self.folds_case());
        let (mut read, leaves) = match htree::probe(self, name)? {
            Some(path) => (path.index, path.leaves),
            None => (Vec::new(), self.present()?),
        };
        for lbn in leaves {
            if !read.contains(&lbn) {
                read.push(lbn);
            }
            if self.search(lbn, &wanted)?.is_some() {
                break;
            }
        }
        Ok(read)
    }

    /// The logical blocks, if they are searched one by one.
    pub(crate) fn unindexed_blocks(&self) -> Result<Option<Vec<Lbn>>, FsError> {
        if self.inode.has_flag(flags::INLINE_DATA) || htree::probe(self, b"")?.is_some() {
            return Ok(None);
        }
        self.present().map(Some)
    }

    /// The logical blocks in the order a listing reads them.
    pub(crate) fn listing_blocks(&self) -> Result<Vec<Lbn>, FsError> {
        if self.inode.has_flag(flags::INLINE_DATA) {
            return Ok(Vec::new());
        }
        match htree::in_hash_order(self)? {
            Some(blocks) => Ok(blocks),
            None => self.present(),
        }
    }
}

/// Whether a block's first entry takes the whole block, as in an interior node.
pub(crate) fn is_one_entry(block: &[u8]) -> bool {
    let raw = le32(block, 4).map(|word| word & 0xFFFF).and_then(|word| u16::try_from(word).ok());
    raw.is_some_and(|raw| record_len(raw, block.len()) == index(block.len()))
}
