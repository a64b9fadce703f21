//! Quota files: the usage and the limits of users, groups and projects.
//!
//! Format: Linux `fs/quota/quotaio_v2.h` and `quota_tree.h`, revision 1: blocks of 1024 bytes, a tree
//! of four levels by the bytes of the id, leaves with a header of 16 bytes and entries of 72.

use crate::inode::Inode;
use crate::ondisk::{INODE_CORE_SIZE, InodeExtra, QuotaEntry, QuotaHead, QuotaLeafHead};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::field::{index, le32, low32, parse, range, slice, truncated, wide};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes in a block of a quota file.
pub(crate) const BLOCK: u64 = 1024;
/// The longest file that e2fsprogs reads, in bytes (`v2_init_io`).
const LONGEST: u64 = 1 << 31;
/// The tree's root.
pub(crate) const ROOT: u64 = 1;
/// Levels above the leaves.
pub(crate) const DEPTH: u32 = 4;
/// First words of the files for users, groups and projects.
pub(crate) const MAGICS: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
/// `dqh_version` of entries of 72 bytes.
const VERSION: u32 = 1;
/// How long a soft limit may be exceeded, in seconds (`MAX_IQ_TIME` and `MAX_DQ_TIME`).
const GRACE: u32 = 7 * 24 * 60 * 60;
/// Bytes in the unit of limits of space (`QUOTABLOCK_SIZE`).
pub(crate) const LIMIT_UNIT: u64 = 1024;
/// Entries in a leaf.
const PER_LEAF: usize = 14;
/// Bytes of a reference to a block.
const REFERENCE: usize = 4;

/// The quota files of a volume, by kind: users, groups, projects.
pub(crate) fn files(sb: &Super) -> impl Iterator<Item = (usize, Ino)> + use<> {
    let raw = &sb.raw;
    let files = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
    let files = files.map(|ino| Ino::new(ino.get()));
    files.into_iter().enumerate().filter(|(_, ino)| *ino != Ino::ZERO)
}

/// Adds the space and inodes of an inode to the usage of its user, group and project. Inodes of a
/// damaged volume may claim more in all than a number has room for: the sum ends at the largest.
pub(crate) fn charge(counted: &mut UsageByKind, inode: &Inode, used: Usage) {
    for (ids, id) in counted.iter_mut().zip(owners(inode)) {
        let usage = ids.entry(id).or_default();
        usage.space = usage.space.saturating_add(used.space);
        usage.inodes += used.inodes;
    }
}

/// The usage without a part of it.
pub(crate) fn without(
    usage: &BTreeMap<u32, Usage>,
    part: &BTreeMap<u32, Usage>,
) -> BTreeMap<u32, Usage> {
    let mut rest = usage.clone();
    for (id, part) in part {
        if let Some(usage) = rest.get_mut(id) {
            // The sum ends at the largest number, see `charge`.
            usage.space = usage.space.saturating_sub(part.space);
            usage.inodes -= part.inodes;
        }
    }
    rest.retain(|_, usage| *usage != Usage::default());
    rest
}

/// The user, the group and the project of an inode.
fn owners(inode: &Inode) -> [u32; 3] {
    let core = &inode.core;
    let join = |high: u16, low: u16| (u32::from(high) << 16) | u32::from(low);
    let project = INODE_CORE_SIZE + offset_of!(InodeExtra, i_projid);
    [
        join(core.i_uid_high.get(), core.i_uid.get()),
        join(core.i_gid_high.get(), core.i_gid.get()),
        le32(inode.raw(), project).unwrap_or(0),
    ]
}

/// The contents of a quota file.
#[derive(Default)]
pub(crate) struct QuotaContents {
    head: QuotaHead,
    /// No reference leads out of the file.
    pub(crate) is_whole: bool,
    pub(crate) entries: Vec<QuotaEntry>,
    /// The bytes of the file at which the entries begin.
    pub(crate) places: Vec<u64>,
}

impl QuotaContents {
    /// The head of the file, to be changed.
    pub(crate) fn head_mut(&mut self) -> &mut QuotaHead {
        &mut self.head
    }

    /// The grace periods of space and of inodes, in seconds.
    pub(crate) fn grace(&self) -> (u32, u32) {
        let or_usual = |seconds: u32| if seconds == 0 { GRACE } else { seconds };
        (or_usual(self.head.dqi_bgrace.get()), or_usual(self.head.dqi_igrace.get()))
    }
}

/// Whether usage exceeds a limit; zero is none.
pub(crate) const fn exceeds(used: u64, limit: u64) -> bool {
    limit > 0 && used > limit
}

/// Usage by id, of users, groups and projects.
pub(crate) type UsageByKind = [BTreeMap<u32, Usage>; 3];

/// Space in bytes and inodes that an id uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) space: u64,
    pub(crate) inodes: u64,
}

impl Usage {
    /// The usage that an entry says.
    pub(crate) fn of(entry: &QuotaEntry) -> Self {
        Self { space: entry.dqb_curspace.get(), inodes: entry.dqb_curinodes.get() }
    }
}

/// Reads the quota file of a kind in an inode.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_file(volume: &Volume, kind: usize, ino: Ino) -> Result<QuotaContents, FsError> {
    read(volume, &volume.inodes().read(ino)?, kind)
}

/// Reads the entries of a quota file of a kind in the order of its tree: as e2fsck does, those of
/// each leaf once, wherever their ids should lie.
///
/// # Errors
/// [`FsError::Corrupt`] where it is no quota file; errors of the device.
fn read(volume: &Volume, inode: &Inode, kind: usize) -> Result<QuotaContents, FsError> {
    let place = Location::of("quota file").in_inode(inode.ino);
    let mut bytes = vec![0; size_of::<QuotaHead>()];
    if inode.len < wide(bytes.len()) {
        return Err(truncated(place));
    }
    volume.maps().read_mapped(inode, ByteLen::new(0), &mut bytes)?;
    let head: QuotaHead = parse(&bytes, 0).ok_or_else(|| truncated(place))?;
    let magic = head.dqh_magic.get();
    if MAGICS.get(kind) != Some(&magic) {
        return Err(FsError::corrupt(Corruption::Magic { found: u64::from(magic) }, place));
    }
    if inode.len > LONGEST {
        return Err(range("i_size", inode.len, LONGEST + 1, place));
    }
    let blocks = u64::from(head.dqi_blocks.get());
    let rules = [
        ("dqh_version", head.dqh_version.get(), u64::from(VERSION) + 1),
        ("dqi_blocks", head.dqi_blocks.get(), inode.len.div_ceil(BLOCK) + 1),
        ("dqi_free_blk", head.dqi_free_blk.get(), blocks),
        ("dqi_free_entry", head.dqi_free_entry.get(), blocks),
    ];
    for (field, value, limit) in rules {
        if u64::from(value) >= limit {
            return Err(range(field, u64::from(value), limit, place));
        }
    }
    let found = QuotaContents { head, is_whole: true, ..QuotaContents::default() };
    let most = most_blocks(volume);
    let mut walk = QuotaWalk { volume, inode, blocks, most, met: BTreeSet::new(), found };
    walk.node(ROOT, DEPTH)?;
    Ok(walk.found)
}

/// The most blocks of quota files that a volume has room for. A file with holes, or with the same
/// blocks in several places, may be longer.
fn most_blocks(volume: &Volume) -> usize {
    index(volume.sb.blocks * u64::from(volume.sb.block_size) / BLOCK)
}

/// Whether an inode begins as a quota file of a kind.
///
/// # Errors
/// [`FsError::Corrupt`] where its map is damaged; errors of the device.
pub(crate) fn has_magic(volume: &Volume, inode: &Inode, kind: usize) -> Result<bool, FsError> {
    let mut magic = [0; 4];
    volume.maps().read_mapped(inode, ByteLen::new(0), &mut magic)?;
    Ok(MAGICS.get(kind) == Some(&u32::from_le_bytes(magic)))
}

/// A walk over the tree of a quota file.
struct QuotaWalk<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    blocks: u64,
    /// How many of them are read at most.
    most: usize,
    /// Blocks that were read, with the levels below: a hostile tree leads to each once.
    met: BTreeSet<(u32, u64)>,
    found: QuotaContents,
}

impl QuotaWalk<'_> {
    fn node(&mut self, number: u64, levels: u32) -> Result<(), FsError> {
        let is_new = self.met.insert((levels, number));
        if !is_new {
            return Ok(());
        }
        if self.met.len() > self.most {
            self.found.is_whole = false;
            return Ok(());
        }
        let mut bytes = vec![0; index(BLOCK)];
        // A block behind the end or in a hole has no entries.
        if number * BLOCK < self.inode.len {
            let at = ByteLen::new(number * BLOCK);
            self.volume.maps().read_mapped(self.inode, at, &mut bytes)?;
        }
        let Some(below) = levels.checked_sub(1) else {
            let entries = bytes.get(size_of::<QuotaLeafHead>()..).unwrap_or_default();
            let all = entries.chunks_exact(size_of::<QuotaEntry>()).take(PER_LEAF);
            let first = number * BLOCK + wide(size_of::<QuotaLeafHead>());
            let places = (first..).step_by(size_of::<QuotaEntry>());
            let used = places.zip(all).filter(|(_, entry)| entry.iter().any(|&byte| byte != 0));
            for (place, entry) in used {
                if let Ok(entry) = QuotaEntry::read_from_bytes(entry) {
                    self.found.entries.push(without_mark(entry));
                    self.found.places.push(place);
                }
            }
            return Ok(());
        };
        for reference in bytes.chunks_exact(REFERENCE) {
            let next = le32(reference, 0).map_or(0, u64::from);
            if next >= self.blocks {
                self.found.is_whole = false;
            } else if next > 0 {
                self.node(next, below)?;
            }
        }
        Ok(())
    }
}

/// The ids whose usage in a file is wrong or missing, with that usage. Of several entries of an id, the
/// first wrong one counts.
pub(crate) fn wrong_ids(file: &QuotaContents, usage: &BTreeMap<u32, Usage>) -> Vec<(u32, Usage)> {
    let mut wrong = BTreeMap::new();
    let mut missing: BTreeSet<u32> = usage.keys().copied().collect();
    for entry in &file.entries {
        let id = entry.dqb_id.get();
        missing.remove(&id);
        let recorded = Usage::of(entry);
        if usage.get(&id).copied().unwrap_or_default() != recorded {
            wrong.entry(id).or_insert(recorded);
        }
    }
    wrong.extend(missing.into_iter().map(|id| (id, Usage::default())));
    wrong.into_iter().collect()
}

/// The bytes of a quota file of a kind with this usage, and with the limits of an older one for ids
/// that it has; `None` if the volume has no room for them.
pub(crate) fn encode(
    volume: &Volume,
    kind: usize,
    old: &QuotaContents,
    usage: &BTreeMap<u32, Usage>,
) -> Option<Vec<u8>> {
    encode_within(most_blocks(volume), kind, old, usage)
}

fn encode_within(
    most: usize,
    kind: usize,
    old: &QuotaContents,
    usage: &BTreeMap<u32, Usage>,
) -> Option<Vec<u8>> {
    let mut entries: BTreeMap<u32, QuotaEntry> = BTreeMap::new();
    for entry in &old.entries {
        entries.entry(entry.dqb_id.get()).or_insert(*entry);
    }
    for entry in entries.values_mut() {
        let used = usage.get(&entry.dqb_id.get()).copied().unwrap_or_default();
        set_usage(entry, used);
    }
    for (&id, &used) in usage {
        let new = QuotaEntry { dqb_id: id.into(), ..QuotaEntry::default() };
        set_usage(entries.entry(id).or_insert(new), used);
    }
    let mut tree = NewTree { blocks: vec![vec![0; index(BLOCK)]; 2] };
    let mut last = 0;
    let all: Vec<QuotaEntry> = entries.into_values().collect();
    for leaf in all.chunks(PER_LEAF) {
        last = tree.add_leaf(leaf);
        // Ids that lie far apart need several blocks each.
        if tree.blocks.len() > most {
            return None;
        }
    }
    let is_full = all.len().is_multiple_of(PER_LEAF);
    let (bgrace, igrace) = old.grace();
    let head = QuotaHead {
        dqh_magic: MAGICS.get(kind).copied().unwrap_or_default().into(),
        dqh_version: VERSION.into(),
        dqi_bgrace: bgrace.into(),
        dqi_igrace: igrace.into(),
        dqi_flags: old.head.dqi_flags,
        dqi_blocks: low32(wide(tree.blocks.len())).into(),
        dqi_free_blk: 0.into(),
        dqi_free_entry: low32(if is_full { 0 } else { last }).into(),
    };
    tree.put(0, 0, head.as_bytes());
    Some(tree.blocks.concat())
}

fn set_usage(entry: &mut QuotaEntry, usage: Usage) {
    entry.dqb_curspace = usage.space.into();
    entry.dqb_curinodes = usage.inodes.into();
    keep_in_use(entry);
}

/// Keeps an entry from being one that is not in use, which is all zeros.
pub(crate) fn keep_in_use(entry: &mut QuotaEntry) {
    if entry.as_bytes().iter().all(|&byte| byte == 0) {
        entry.dqb_itime = 1.into();
    }
}

/// An entry without the mark of [`keep_in_use`], as the kernel reads it (`v2r1_disk2memdqb`): otherwise
/// the mark would be a time that began in 1970.
fn without_mark(entry: QuotaEntry) -> QuotaEntry {
    let marked = QuotaEntry { dqb_itime: 1.into(), ..QuotaEntry::default() };
    if entry.as_bytes() == marked.as_bytes() { QuotaEntry::default() } else { entry }
}

/// The blocks of a quota file that is made: the head, the root, and those that were needed since.
struct NewTree {
    blocks: Vec<Vec<u8>>,
}

impl NewTree {
    fn put(&mut self, number: u64, at: usize, bytes: &[u8]) {
        let block = self.blocks.get_mut(index(number)).and_then(|block| block.get_mut(at..));
        for (to, from) in block.into_iter().flatten().zip(bytes) {
            *to = *from;
        }
    }

    fn add(&mut self) -> u64 {
        self.blocks.push(vec![0; index(BLOCK)]);
        wide(self.blocks.len()) - 1
    }

    /// Adds a leaf with entries in order, and the references to it; its number.
    fn add_leaf(&mut self, entries: &[QuotaEntry]) -> u64 {
        debug_assert!(!entries.is_empty() && entries.len() <= PER_LEAF, "they fit in a leaf");
        let leaf = self.add();
        let count = u16::try_from(entries.len()).unwrap_or(0);
        let head = QuotaLeafHead { dqdh_entries: count.into(), ..QuotaLeafHead::default() };
        self.put(leaf, 0, head.as_bytes());
        for (slot, entry) in entries.iter().enumerate() {
            let at = size_of::<QuotaLeafHead>() + slot * size_of::<QuotaEntry>();
            self.put(leaf, at, entry.as_bytes());
            let mut node = ROOT;
            let bytes = entry.dqb_id.get().to_be_bytes();
            let (last, before) = bytes.split_last().unwrap_or((&0, &[]));
            for &byte in before {
                node = self.child(node, byte);
            }
            self.put(node, usize::from(*last) * REFERENCE, &low32(leaf).to_le_bytes());
        }
        leaf
    }

    /// The node below another one, which is added where there is none.
    fn child(&mut self, node: u64, byte: u8) -> u64 {
        let at = usize::from(byte) * REFERENCE;
        let block = self.blocks.get(index(node)).map(Vec::as_slice).unwrap_or_default();
        let there = slice(block, at, REFERENCE).and_then(|it| le32(it, 0));
        match there.unwrap_or(0) {
            0 => {
                let new = self.add();
                self.put(node, at, &low32(new).to_le_bytes());
                new
            }
            there => u64::from(there),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of several leaves and nodes; each is found by the bytes of its id.
    #[test]
    fn each_id_is_found_by_its_bytes() {
        let ids = (0..40).map(|n| n * 7).chain([70_000, u32::MAX]);
        let usage: BTreeMap<u32, Usage> =
            ids.map(|id| (id, Usage { space: u64::from(id) * 512, inodes: 3 })).collect();
        let old = QuotaContents::default();
        let bytes = encode_within(1000, 1, &old, &usage).unwrap();
        let most = bytes.len() / 1024;
        assert!(encode_within(most, 1, &old, &usage).is_some());
        assert_eq!(encode_within(most - 1, 1, &old, &usage), None, "no room for it");
        let head = QuotaHead::read_from_prefix(&bytes).unwrap().0;
        assert_eq!(head.dqh_magic.get(), MAGICS[1]);
        assert_eq!(u64::from(head.dqi_blocks.get()) * BLOCK, wide(bytes.len()));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        for (&id, used) in &usage {
            let mut block = 1;
            for byte in id.to_be_bytes() {
                block = word(block * 1024 + usize::from(byte) * 4) as usize;
                assert!(block > 1, "{id}");
            }
            let entries = bytes[block * 1024 + 16..][..14 * 72].chunks(72);
            let entries = entries.map(|it| QuotaEntry::read_from_bytes(it).unwrap());
            let found = entries.into_iter().find(|it| it.dqb_id.get() == id).unwrap();
            assert_eq!(Usage::of(&found), *used, "{id}");
        }
    }

    /// The mark of an entry that would be all zeros is no time.
    #[test]
    fn marks_are_no_times() {
        let mut entry = QuotaEntry::default();
        keep_in_use(&mut entry);
        assert_ne!(entry.as_bytes(), QuotaEntry::default().as_bytes());
        assert_eq!(without_mark(entry).as_bytes(), QuotaEntry::default().as_bytes());
        let used = QuotaEntry { dqb_curinodes: 1.into(), ..entry };
        assert_eq!(without_mark(used).dqb_itime.get(), 1, "a time that runs");
    }

    /// Limits stay, also of an id that uses nothing.
    #[test]
    fn limits_are_kept() {
        let limited = QuotaEntry {
            dqb_id: 5.into(),
            dqb_bhardlimit: 900.into(),
            dqb_curspace: 1.into(),
            ..QuotaEntry::default()
        };
        let old = QuotaContents { entries: vec![limited], ..QuotaContents::default() };
        let bytes = encode_within(1000, 0, &old, &BTreeMap::new()).unwrap();
        // Behind the head and the root.
        let leaf = 2 * 1024;
        let entry = QuotaEntry::read_from_prefix(&bytes[leaf + 16..]).unwrap().0;
        assert_eq!((entry.dqb_bhardlimit.get(), entry.dqb_curspace.get()), (900, 0));
    }
}
