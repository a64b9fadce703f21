//! Encodes directories as blocks: linear, or hashed if they need more than one.
//!
//! Entries lie in hash order in both, because that is the order in which the
//! kernel lists a directory of an indexed volume; inodes are numbered in the
//! same order (see `demand`), so that a listing followed by a look at every
//! file goes through the inode table once, forwards.

#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "lengths are of our own making, not an image's"
)]

use super::places::{NamePlaces, PlacedBlock};
use crate::casefold;
use crate::checksum::crc32c;
use crate::hash::{NameHash, name_hash};
use crate::htree::DxChild;
use crate::ondisk::{
    DIR_TAIL_TYPE, DX_NODE_ENTRIES_OFFSET, DX_ROOT_INFO_OFFSET, DirEntryHead, DirEntryTail,
    DxCountLimit, DxEntry, DxRootInfo, DxTail,
};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;
use zerocopy::IntoBytes;

/// The common format of all directory blocks of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirFormat {
    pub(crate) block_size: usize,
    /// Directories of more than one block are hashed.
    pub(crate) indexed: bool,
    /// Blocks end in a checksum.
    pub(crate) checksums: bool,
    /// Index trees may have three levels.
    pub(crate) large: bool,
    /// Entries have a file type.
    pub(crate) typed: bool,
    /// Hashes are those of folded names (`casefold`).
    pub(crate) folds: bool,
    pub(crate) hash_version: u8,
    pub(crate) hash_seed: [u32; 4],
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirRecord<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
}

/// The division of a directory's entries, in listing order, into blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Packing {
    /// Index of the first entry of every block of entries.
    pub(crate) leaves: Vec<u32>,
    /// Blocks of the index, the root included; 0 for a linear directory.
    pub(crate) index_blocks: u64,
}

impl Packing {
    pub(crate) fn blocks(&self) -> u64 {
        self.leaves.len() as u64 + self.index_blocks
    }
}

/// Bytes of an entry with a name of this length, without slack.
pub(crate) const fn record_len(name_len: usize) -> usize {
    size_of::<DirEntryHead>() + name_len.next_multiple_of(4)
}

/// The `file_type` of a directory entry.
pub(crate) const fn type_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

impl DirFormat {
    /// A name's place in the listing order.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let folded = if self.folds { casefold::fold(name) } else { None };
        let name = folded.as_deref().map_or(name, str::as_bytes);
        name_hash(self.hash_version, self.hash_seed, name).unwrap_or_default()
    }

    /// Bytes of a block that entries may use.
    pub(crate) fn room(&self) -> usize {
        self.block_size - if self.checksums { size_of::<DirEntryTail>() } else { 0 }
    }

    /// Index entries that fit in the root and in an interior node.
    pub(crate) fn fan_out(&self) -> (usize, usize) {
        let tail = if self.checksums { size_of::<DxTail>() } else { 0 };
        let root = DX_ROOT_INFO_OFFSET + size_of::<DxRootInfo>();
        let entry = size_of::<DxEntry>();
        (
            (self.block_size - root - tail) / entry,
            (self.block_size - DX_NODE_ENTRIES_OFFSET - tail) / entry,
        )
    }

    /// Levels of nodes that an index may have below its root.
    pub(crate) fn most_levels(&self) -> u8 {
        if self.large { 2 } else { 1 }
    }

    /// Divides entries with names of these lengths, in listing order, into blocks.
    pub(crate) fn pack(&self, name_lens: impl Iterator<Item = usize>) -> Result<Packing, FsError> {
        let checked = name_lens.inspect(|&len| {
            debug_assert!(len <= usize::from(u8::MAX), "a name of {len} bytes");
        });
        let lens: Vec<u8> = checked.map(|len| len as u8).collect();
        let first = self.fill(&lens, record_len(1) + record_len(2));
        if first.len() == 1 || !self.indexed {
            return Ok(Packing { leaves: first, index_blocks: 0 });
        }
        // Hashed: `.` and `..` move into the root of the index.
        let leaves = self.fill(&lens, 0);
        let (root, node) = self.fan_out();
        let mut index_blocks = 1;
        let mut level = leaves.len();
        let mut levels = 0;
        while level > root {
            level = level.div_ceil(node);
            index_blocks += level as u64;
            levels += 1;
        }
        if levels > self.most_levels() {
            return Err(FsError::NoSpace(format!(
                "a directory of {} entries does not fit in the index{}",
                lens.len(),
                if self.large { "" } else { " (the large_dir feature allows more)" }
            )));
        }
        Ok(Packing { leaves, index_blocks })
    }

    /// First-fit in order: the first entry of each block.
    fn fill(&self, lens: &[u8], used_in_first: usize) -> Vec<u32> {
        let room = self.room();
        let mut starts = vec![0];
        let mut used = used_in_first;
        for (at, &len) in lens.iter().enumerate() {
            let need = record_len(usize::from(len));
            if used + need > room {
                starts.push(at as u32);
                used = 0;
            }
            used += need;
            debug_assert!(used <= room, "a block has room for any name");
        }
        starts
    }

    /// The blocks of a directory: `records` in listing order, divided by [`DirFormat::pack`].
    /// `seed` is the inode's checksum seed.
    pub(crate) fn encode(
        &self,
        dir: Ino,
        parent: Ino,
        records: &[DirRecord<'_>],
        packing: &Packing,
        seed: u32,
    ) -> Vec<u8> {
        debug_assert_eq!(packing.leaves.first(), Some(&0), "the first block has the first name");
        debug_assert!(
            packing.leaves.last().is_none_or(|&last| last as usize <= records.len()),
            "the names are those that were divided"
        );
        let bs = self.block_size;
        let mut out = vec![0; packing.blocks() as usize * bs];
        let dots = dots(dir, parent);
        let index_bytes = packing.index_blocks as usize * bs;
        for (at, &from) in packing.leaves.iter().enumerate() {
            let to = packing.leaves.get(at + 1).map_or(records.len(), |&next| next as usize);
            let block = &mut out[index_bytes + at * bs..][..bs];
            let dots = if at == 0 && index_bytes == 0 { &dots[..] } else { &[] };
            self.encode_leaf(block, dots, &records[from as usize..to], seed);
        }
        if index_bytes > 0 {
            self.encode_index(&mut out[..index_bytes], &dots, records, packing, seed);
        }
        out
    }

    /// The blocks of a directory whose names have places of their own. `records` are numbered as
    /// those names, `seed` is the inode's checksum seed.
    pub(crate) fn encode_placed(
        &self,
        dir: Ino,
        parent: Ino,
        records: &[DirRecord<'_>],
        places: &NamePlaces,
        seed: u32,
    ) -> Vec<u8> {
        let bs = self.block_size;
        let dots = dots(dir, parent);
        let (root_max, node_max) = self.fan_out();
        let mut out = vec![0; places.blocks.len() * bs];
        for (at, (block, own)) in out.chunks_mut(bs).zip(&places.blocks).enumerate() {
            match own {
                PlacedBlock::Names(names) => {
                    let dots = [(0, &dots[0]), (record_len(1), &dots[1])];
                    let names = names.iter().map(|placed| (placed.at, &records[placed.name]));
                    let placed: Vec<(usize, &DirRecord<'_>)> =
                        dots.into_iter().filter(|_| at == 0).chain(names).collect();
                    self.encode_placed_leaf(block, &placed, seed);
                }
                PlacedBlock::Index(children) => {
                    let entry = |child: &DxChild| DxEntry {
                        hash: child.hash.into(),
                        block: (child.lbn.get() as u32).into(),
                    };
                    let entries: Vec<DxEntry> = children.iter().map(entry).collect();
                    match places.levels.filter(|_| at == 0) {
                        Some(levels) => {
                            self.put_root(block, &dots, levels, (root_max, &entries), seed);
                        }
                        None => self.put_node(block, (node_max, &entries), seed),
                    }
                }
            }
        }
        out
    }

    /// Blocks of an empty directory that keeps room (`lost+found`).
    pub(crate) fn encode_empty(&self, dir: Ino, parent: Ino, blocks: u64, seed: u32) -> Vec<u8> {
        debug_assert!(blocks > 0, "a directory has a block");
        let bs = self.block_size;
        let packing = Packing { leaves: vec![0], index_blocks: 0 };
        let mut out = self.encode(dir, parent, &[], &packing, seed);
        out.resize(blocks as usize * bs, 0);
        for block in out.chunks_mut(bs).skip(1) {
            self.encode_leaf(block, &[], &[], seed);
        }
        out
    }

    fn encode_leaf(
        &self,
        block: &mut [u8],
        dots: &[DirRecord<'_>],
        records: &[DirRecord<'_>],
        seed: u32,
    ) {
        let mut at = 0;
        let placed = dots.iter().chain(records).map(|record| {
            let start = at;
            at += record_len(record.name.len());
            (start, record)
        });
        let placed: Vec<(usize, &DirRecord<'_>)> = placed.collect();
        self.encode_placed_leaf(block, &placed, seed);
    }

    /// Writes a block of names at their offsets, in order. A record takes the bytes up to the next
    /// one; free bytes at the start are an unused record.
    fn encode_placed_leaf(&self, block: &mut [u8], placed: &[(usize, &DirRecord<'_>)], seed: u32) {
        let room = self.room();
        let first = placed.first().map_or(room, |&(at, _)| at);
        if first > 0 {
            block[4..6].copy_from_slice(&encode_rec_len(first as u32, self.block_size));
        }
        let ends = placed.iter().skip(1).map(|&(at, _)| at).chain([room]);
        for (&(at, record), end) in placed.iter().zip(ends) {
            let len = self.put_record(&mut block[at..], record);
            debug_assert!(at + len <= end, "a record of {len} bytes from {at} to {end}");
            let taken = encode_rec_len((end - at) as u32, self.block_size);
            block[at + 4..at + 6].copy_from_slice(&taken);
        }
        if self.checksums {
            let sum = crc32c(seed, &block[..room]);
            let tail = DirEntryTail {
                det_rec_len: (size_of::<DirEntryTail>() as u16).into(),
                det_reserved_ft: DIR_TAIL_TYPE,
                det_checksum: sum.into(),
                ..DirEntryTail::default()
            };
            block[room..].copy_from_slice(tail.as_bytes());
        }
    }

    /// Root and interior nodes, level by level below the root.
    fn encode_index(
        &self,
        out: &mut [u8],
        dots: &[DirRecord<'_>; 2],
        records: &[DirRecord<'_>],
        packing: &Packing,
        seed: u32,
    ) {
        let bs = self.block_size;
        let (root_max, node_max) = self.fan_out();
        let index_blocks = packing.index_blocks as u32;
        let mut level: Vec<DxEntry> = self.leaf_entries(records, packing, index_blocks);
        let mut levels = 0;
        // Lower levels take the highest block numbers, so that a listing's
        // leaves follow the nodes that lead to them.
        let mut next = index_blocks;
        while level.len() > root_max {
            let nodes = level.len().div_ceil(node_max);
            next -= nodes as u32;
            let share = level.len().div_ceil(nodes);
            let mut above = Vec::with_capacity(nodes);
            for (at, entries) in level.chunks(share).enumerate() {
                let block = next + at as u32;
                above.push(DxEntry { hash: entries[0].hash, block: block.into() });
                let bytes = &mut out[block as usize * bs..][..bs];
                self.put_node(bytes, (node_max, entries), seed);
            }
            level = above;
            levels += 1;
        }
        debug_assert_eq!(next, 1, "the nodes take all blocks of the index but the root");
        self.put_root(&mut out[..bs], dots, levels, (root_max, &level), seed);
    }

    /// Writes an interior node, with room for `max` children.
    fn put_node(&self, block: &mut [u8], (max, children): (usize, &[DxEntry]), seed: u32) {
        let whole = encode_rec_len(self.block_size as u32, self.block_size);
        block[4..6].copy_from_slice(&whole);
        self.put_index(block, DX_NODE_ENTRIES_OFFSET, max, children, seed);
    }

    /// Writes the root of an index, with room for `max` children.
    fn put_root(
        &self,
        root: &mut [u8],
        dots: &[DirRecord<'_>; 2],
        levels: u8,
        (max, children): (usize, &[DxEntry]),
        seed: u32,
    ) {
        let bs = self.block_size;
        let dot = self.put_record(root, &dots[0]);
        self.put_record(&mut root[dot..], &dots[1]);
        root[dot + 4..dot + 6].copy_from_slice(&encode_rec_len((bs - dot) as u32, bs));
        // On disk: LEGACY, HALF_MD4 or TEA; signedness is a superblock flag.
        let info = DxRootInfo {
            hash_version: self.hash_version % 3,
            info_length: size_of::<DxRootInfo>() as u8,
            indirect_levels: levels,
            ..DxRootInfo::default()
        };
        let entries = DX_ROOT_INFO_OFFSET + size_of::<DxRootInfo>();
        root[DX_ROOT_INFO_OFFSET..entries].copy_from_slice(info.as_bytes());
        self.put_index(root, entries, max, children, seed);
    }

    /// An index entry for every leaf: the hash of its first name, odd when the
    /// leaf before it ends with the same hash.
    fn leaf_entries(
        &self,
        records: &[DirRecord<'_>],
        packing: &Packing,
        index_blocks: u32,
    ) -> Vec<DxEntry> {
        let entry = |(at, &first): (usize, &u32)| {
            let first = first as usize;
            let hash = match first.checked_sub(1) {
                None => 0,
                Some(before) => {
                    let (own, prior) =
                        (self.hash(records[first].name), self.hash(records[before].name));
                    own.major | u32::from(own.major == prior.major)
                }
            };
            DxEntry { hash: hash.into(), block: (index_blocks + at as u32).into() }
        };
        packing.leaves.iter().enumerate().map(entry).collect()
    }

    /// Writes a record with no slack and returns its length.
    fn put_record(&self, out: &mut [u8], record: &DirRecord<'_>) -> usize {
        let len = record_len(record.name.len());
        let head = DirEntryHead {
            inode: record.ino.get().into(),
            rec_len: (len as u16).into(),
            name_len: record.name.len() as u8,
            file_type: if self.typed { type_code(record.kind) } else { 0 },
        };
        out[..size_of::<DirEntryHead>()].copy_from_slice(head.as_bytes());
        out[size_of::<DirEntryHead>()..][..record.name.len()].copy_from_slice(record.name);
        len
    }

    fn put_index(&self, block: &mut [u8], at: usize, max: usize, entries: &[DxEntry], seed: u32) {
        debug_assert!(!entries.is_empty() && entries.len() <= max, "{} children", entries.len());
        let end = at + std::mem::size_of_val(entries);
        block[at..end].copy_from_slice(entries.as_bytes());
        let count =
            DxCountLimit { limit: (max as u16).into(), count: (entries.len() as u16).into() };
        block[at..at + size_of::<DxCountLimit>()].copy_from_slice(count.as_bytes());
        if self.checksums {
            let sum = crc32c(crc32c(seed, &block[..end]), DxTail::default().as_bytes());
            let tail = DxTail { dt_checksum: sum.into(), ..DxTail::default() };
            let tail_at = at + max * size_of::<DxEntry>();
            block[tail_at..tail_at + size_of::<DxTail>()].copy_from_slice(tail.as_bytes());
        }
    }
}

/// The first two entries of a directory.
fn dots(dir: Ino, parent: Ino) -> [DirRecord<'static>; 2] {
    [
        DirRecord { name: b".", ino: dir, kind: FileKind::Directory },
        DirRecord { name: b"..", ino: parent, kind: FileKind::Directory },
    ]
}

/// `ext4_rec_len_to_disk`: lengths of 64 KiB and more do not fit in 16 bits
/// and borrow the two low ones.
fn encode_rec_len(len: u32, block_size: usize) -> [u8; 2] {
    debug_assert!(len.is_multiple_of(4) && len as usize <= block_size, "an entry of {len} bytes");
    let coded = if len < 65536 {
        len as u16
    } else if len as usize == block_size {
        if block_size == 65536 { u16::MAX } else { 0 }
    } else {
        ((len & 65532) | ((len >> 16) & 3)) as u16
    };
    coded.to_le_bytes()
}
