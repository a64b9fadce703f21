//! Directories whose names lie where an older directory has them.
//!
//! A new name takes free bytes of the block that it belongs to: the leaf of its hash in an indexed
//! directory, any block in a linear one. A leaf without room is split as by the kernel (`do_split`
//! of Linux `fs/ext4/namei.c`), and so are nodes of the index.

#![allow(
    clippy::indexing_slicing,
    reason = "numbers of names and blocks are of our own making; those of an older directory are \
              checked first"
)]

use super::dirblocks::{DirFormat, record_len};
use crate::htree::DxChild;
use seekless_fs::field::wide;
use seekless_units::Lbn;
use std::collections::HashMap;

/// Where names begin in the first block of a linear directory, behind `.` and `..`.
pub(crate) const BEHIND_DOTS: usize = record_len(1) + record_len(2);

/// Names of a block with their offsets in it, in order, without `.` and `..`.
pub(crate) type OlderNamesOfBlock = Vec<(usize, Vec<u8>)>;

/// A block of an older directory.
pub(crate) enum OlderBlock {
    Names(OlderNamesOfBlock),
    /// Children of the root or of a node of the index.
    Index(Vec<DxChild>),
}

/// The blocks of an older directory, and the levels of nodes below the root of its index, if it has
/// an index.
pub(crate) struct OlderNames {
    pub(crate) blocks: Vec<OlderBlock>,
    pub(crate) levels: Option<u8>,
}

/// A block of a directory: names, with their numbers, or children in the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PlacedBlock {
    Names(Vec<PlacedName>),
    Index(Vec<DxChild>),
}

/// A name's number, and its offset in its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlacedName {
    pub(crate) at: usize,
    pub(crate) name: usize,
}

/// The places of a directory's names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamePlaces {
    pub(crate) blocks: Vec<PlacedBlock>,
    /// Levels of nodes below the root of the index, if there is one.
    pub(crate) levels: Option<u8>,
    /// Blocks in which something is not as in the older directory.
    changed: u64,
}

impl NamePlaces {
    /// The places of names, of which those in `older` keep theirs. `None` if the index of the older
    /// directory is not one of these names, or has no room.
    pub(crate) fn keeping(
        format: DirFormat,
        names: &[&[u8]],
        older: &OlderNames,
        keeps_empty_blocks: bool,
    ) -> Option<Self> {
        let mut placer = Placer::new(format, names, older)?;
        let is_placed = placer.take_over(older);
        for name in (0..names.len()).filter(|&name| !is_placed[name]) {
            match placer.levels {
                Some(_) => placer.add_by_hash(name)?,
                None => placer.add(name),
            }
        }
        if placer.levels.is_none() && !keeps_empty_blocks {
            placer.cut_empty_blocks();
        }
        Some(placer.finish())
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> u64 {
        wide(self.blocks.len())
    }

    /// Whether a directory that was packed into `packed` blocks would have fewer new blocks, or less
    /// than half of its blocks: then the older places are not worth keeping.
    pub(crate) fn is_worse_than(&self, packed: u64) -> bool {
        self.changed > 0 && (self.changed >= packed || self.len() > 2 * packed + 2)
    }
}

/// A block with names.
struct NameBlock {
    /// In order of their places.
    names: Vec<PlacedName>,
    /// The first byte that names may use.
    from: usize,
    /// The longest run of free bytes.
    room: usize,
}

enum Block {
    Names(NameBlock),
    Index(Vec<DxChild>),
}

/// Places names.
struct Placer<'a> {
    format: DirFormat,
    names: &'a [&'a [u8]],
    /// Of an indexed directory: the hash of each name.
    hashes: Vec<u32>,
    blocks: Vec<Block>,
    is_changed: Vec<bool>,
    levels: Option<u8>,
    /// Of a directory without an index: by the words of a record, the first block that may have room
    /// for one.
    roomy: Vec<usize>,
}

impl<'a> Placer<'a> {
    /// Begins with the blocks of an older directory, without names. `None` if its index is not sound.
    fn new(format: DirFormat, names: &'a [&'a [u8]], older: &OlderNames) -> Option<Self> {
        let is_indexed = older.levels.is_some();
        if older.levels.is_some_and(|levels| levels > format.most_levels()) {
            return None;
        }
        let hashes = match is_indexed {
            true => names.iter().map(|name| format.hash(name).major).collect(),
            false => Vec::new(),
        };
        let block = |(at, block): (usize, &OlderBlock)| match block {
            OlderBlock::Index(children) => Block::Index(children.clone()),
            OlderBlock::Names(_) => {
                let from = if at == 0 { BEHIND_DOTS } else { 0 };
                Block::Names(NameBlock { names: Vec::new(), from, room: format.room() - from })
            }
        };
        let blocks: Vec<Block> = older.blocks.iter().enumerate().map(block).collect();
        let is_changed = vec![false; blocks.len()];
        let (levels, roomy) = (older.levels, Vec::new());
        let placer = Self { format, names, hashes, blocks, is_changed, levels, roomy };
        (!is_indexed || placer.leads_to(older)).then_some(placer)
    }

    /// Whether the index leads to each block once, and to the names of the older directory by their
    /// hashes.
    fn leads_to(&self, older: &OlderNames) -> bool {
        let Some(leaves) = self.leaves() else { return false };
        let ends = leaves.iter().skip(1).map(|leaf| Some(leaf.0)).chain([None]);
        leaves.iter().zip(ends).all(|(&(low, at), end)| match &older.blocks[at] {
            OlderBlock::Names(names) => names.iter().all(|(_, name)| {
                let hash = self.format.hash(name).major;
                // The lowest bit of a leaf's hash marks that names of the hash begin before it.
                hash >= low & !1 && end.is_none_or(|end| hash < end)
            }),
            OlderBlock::Index(_) => false,
        })
    }

    /// The blocks of names in the order of the index, with the least hash of each. `None` unless it
    /// leads to each block once.
    fn leaves(&self) -> Option<Vec<(u32, usize)>> {
        let mut is_seen = vec![false; self.blocks.len()];
        let mut leaves = Vec::new();
        // Nodes at the same depth, with the least hash of each.
        let mut level = vec![(0, 0)];
        for depth in 0..=self.levels? {
            let mut below = Vec::new();
            for (low, at) in level {
                let Some(Block::Index(children)) = self.blocks.get(at) else { return None };
                is_seen[at] = true;
                for (n, child) in children.iter().enumerate() {
                    let at = usize::try_from(child.lbn.get()).ok()?;
                    if std::mem::replace(is_seen.get_mut(at)?, true) {
                        return None;
                    }
                    below.push((if n == 0 { low } else { child.hash }, at));
                }
            }
            if Some(depth) == self.levels {
                leaves.append(&mut below);
            }
            level = below;
        }
        let is_sound = is_seen.iter().all(|&seen| seen) && leaves.is_sorted_by_key(|leaf| leaf.0);
        is_sound.then_some(leaves)
    }

    /// Gives names that an older directory has their places there; says which have one.
    fn take_over(&mut self, older: &OlderNames) -> Vec<bool> {
        let numbers: HashMap<&[u8], usize> =
            self.names.iter().enumerate().map(|(number, &name)| (name, number)).collect();
        let mut is_placed = vec![false; self.names.len()];
        for (at, block) in older.blocks.iter().enumerate() {
            let (OlderBlock::Names(names), Block::Names(leaf)) = (block, &mut self.blocks[at])
            else {
                continue;
            };
            for (place, name) in names {
                match numbers.get(&name[..]) {
                    Some(&number) if !std::mem::replace(&mut is_placed[number], true) => {
                        leaf.names.push(PlacedName { at: *place, name: number });
                    }
                    _ => self.is_changed[at] = true,
                }
            }
            self.count_room(at);
        }
        is_placed
    }

    fn needed(&self, name: usize) -> usize {
        record_len(self.names[name].len())
    }

    /// The runs of free bytes of a leaf: the number of the name behind each, its start, its length.
    fn gaps(&self, leaf: &NameBlock) -> impl Iterator<Item = (usize, usize, usize)> {
        let ends = leaf.names.iter().map(|placed| placed.at + self.needed(placed.name));
        let starts = std::iter::once(leaf.from).chain(ends);
        let stops = leaf.names.iter().map(|placed| placed.at).chain([self.format.room()]);
        let gaps = starts.zip(stops).enumerate();
        gaps.map(|(slot, (start, stop))| (slot, start, stop - start))
    }

    fn count_room(&mut self, at: usize) {
        let Block::Names(leaf) = &self.blocks[at] else { return };
        let room = self.gaps(leaf).map(|gap| gap.2).max().unwrap_or(0);
        if let Block::Names(leaf) = &mut self.blocks[at] {
            leaf.room = room;
        }
    }

    /// Puts a name into the first free bytes of a block that suffice.
    fn put(&mut self, at: usize, name: usize) -> bool {
        let needed = self.needed(name);
        let Block::Names(leaf) = &self.blocks[at] else { return false };
        if leaf.room < needed {
            return false;
        }
        let Some((slot, start, _)) = self.gaps(leaf).find(|gap| gap.2 >= needed) else {
            return false;
        };
        if let Block::Names(leaf) = &mut self.blocks[at] {
            leaf.names.insert(slot, PlacedName { at: start, name });
        }
        self.is_changed[at] = true;
        self.count_room(at);
        true
    }

    fn append(&mut self, block: Block) -> usize {
        self.blocks.push(block);
        self.is_changed.push(true);
        self.blocks.len() - 1
    }

    /// A leaf with some names, packed.
    fn packed(&self, names: &[usize]) -> NameBlock {
        let mut at = 0;
        let place = |&name: &usize| {
            let placed = PlacedName { at, name };
            at += self.needed(name);
            placed
        };
        let names = names.iter().map(place).collect();
        let room = self.format.room() - at;
        NameBlock { names, from: 0, room }
    }

    /// Adds a name to a directory without an index.
    fn add(&mut self, name: usize) {
        let words = self.needed(name) / 4;
        if self.roomy.len() <= words {
            self.roomy.resize(words + 1, 0);
        }
        // No block gets more room: those in front are full for a record of this length.
        let at = (self.roomy[words]..self.blocks.len()).find(|&at| self.put(at, name));
        self.roomy[words] = at.unwrap_or_else(|| {
            let leaf = self.packed(&[name]);
            self.append(Block::Names(leaf))
        });
    }

    /// Adds a name to the leaf of its hash. `None` if the index has no room for a further leaf.
    fn add_by_hash(&mut self, name: usize) -> Option<()> {
        let hash = self.hashes[name];
        loop {
            let path = self.path(hash);
            let &(parent, chosen) = path.last()?;
            let leaf = self.child(parent, chosen)?;
            if self.put(leaf, name) || self.pack_with(leaf, name) {
                return Some(());
            }
            if self.is_full(parent) {
                self.widen(&path)?;
            } else {
                self.split((parent, chosen), leaf)?;
            }
        }
    }

    /// The blocks of the index on the path to a hash, each with the number of the child on it.
    fn path(&self, hash: u32) -> Vec<(usize, usize)> {
        let mut path = Vec::new();
        let mut at = 0;
        while let Some(Block::Index(children)) = self.blocks.get(at) {
            let others = children.get(1..).unwrap_or_default();
            let chosen = others.partition_point(|child| child.hash <= hash);
            path.push((at, chosen));
            let Some(next) = self.child(at, chosen) else { break };
            at = next;
        }
        path
    }

    fn child(&self, at: usize, chosen: usize) -> Option<usize> {
        let Block::Index(children) = &self.blocks[at] else { return None };
        usize::try_from(children.get(chosen)?.lbn.get()).ok()
    }

    fn is_full(&self, at: usize) -> bool {
        let (root, node) = self.format.fan_out();
        match &self.blocks[at] {
            Block::Index(children) => children.len() >= if at == 0 { root } else { node },
            Block::Names(_) => false,
        }
    }

    /// Packs a leaf that has enough free bytes for a name, but not in one piece.
    fn pack_with(&mut self, at: usize, name: usize) -> bool {
        let Block::Names(leaf) = &self.blocks[at] else { return false };
        let mut names: Vec<usize> = leaf.names.iter().map(|placed| placed.name).collect();
        names.push(name);
        if names.iter().map(|&name| self.needed(name)).sum::<usize>() > self.format.room() {
            return false;
        }
        self.blocks[at] = Block::Names(self.packed(&names));
        self.is_changed[at] = true;
        true
    }

    /// Moves the upper half of a leaf's names to a new leaf.
    fn split(&mut self, (parent, chosen): (usize, usize), at: usize) -> Option<()> {
        let Block::Names(leaf) = &self.blocks[at] else { return None };
        let mut slots: Vec<usize> = (0..leaf.names.len()).collect();
        slots.sort_by_key(|&slot| self.hashes[leaf.names[slot].name]);
        let names: Vec<usize> = slots.iter().map(|&slot| leaf.names[slot].name).collect();
        let sizes: Vec<usize> = names.iter().map(|&name| self.needed(name)).collect();
        let stay = split_point(&sizes, self.format.block_size);
        let (kept, moved) = names.split_at(stay);
        let (last, first) = (self.hashes[*kept.last()?], self.hashes[*moved.first()?]);
        let new = self.packed(moved);
        let mut stays = vec![true; slots.len()];
        slots[stay..].iter().for_each(|&slot| stays[slot] = false);
        if let Block::Names(leaf) = &mut self.blocks[at] {
            let mut stays = stays.into_iter();
            leaf.names.retain(|_| stays.next() == Some(true));
        }
        self.count_room(at);
        self.is_changed[at] = true;
        let lbn = self.append(Block::Names(new));
        let hash = first | u32::from(first == last);
        self.insert((parent, chosen), DxChild { hash, lbn: Lbn::new(wide(lbn)) });
        Some(())
    }

    /// Adds a child behind another one.
    fn insert(&mut self, (parent, chosen): (usize, usize), child: DxChild) {
        debug_assert!(!self.is_full(parent), "the node has room");
        if let Block::Index(children) = &mut self.blocks[parent] {
            children.insert(chosen + 1, child);
        }
        self.is_changed[parent] = true;
    }

    /// Makes room for one more child in the lowest block of a path, or takes one step towards that.
    fn widen(&mut self, path: &[(usize, usize)]) -> Option<()> {
        let roomy = path.iter().rposition(|&(at, _)| !self.is_full(at));
        let Some(above) = roomy else { return self.add_level() };
        let &(full, _) = path.get(above + 1)?;
        let Block::Index(children) = &mut self.blocks[full] else { return None };
        let right = children.split_off(children.len() / 2);
        let hash = right.first()?.hash;
        self.is_changed[full] = true;
        let lbn = self.append(Block::Index(right));
        self.insert(path[above], DxChild { hash, lbn: Lbn::new(wide(lbn)) });
        Some(())
    }

    /// Moves the children of the root to a node below it.
    fn add_level(&mut self) -> Option<()> {
        let levels = self.levels.filter(|&levels| levels < self.format.most_levels())?;
        let Block::Index(children) = &mut self.blocks[0] else { return None };
        let children = std::mem::take(children);
        let lbn = self.append(Block::Index(children));
        self.blocks[0] = Block::Index(vec![DxChild { hash: 0, lbn: Lbn::new(wide(lbn)) }]);
        self.is_changed[0] = true;
        self.levels = Some(levels + 1);
        Some(())
    }

    /// Cuts blocks without names off the end, if the names are not those of the older directory.
    fn cut_empty_blocks(&mut self) {
        if !self.is_changed.contains(&true) {
            return;
        }
        let is_empty = |block: &Block| matches!(block, Block::Names(leaf) if leaf.names.is_empty());
        while self.blocks.len() > 1 && self.blocks.last().is_some_and(is_empty) {
            self.blocks.pop();
            // The inode has another size: the directory is not as it was.
            self.is_changed.pop();
            self.is_changed[0] = true;
        }
    }

    fn finish(self) -> NamePlaces {
        let changed = wide(self.is_changed.iter().filter(|&&is_changed| is_changed).count());
        let block = |block| match block {
            Block::Names(leaf) => PlacedBlock::Names(leaf.names),
            Block::Index(children) => PlacedBlock::Index(children),
        };
        let blocks = self.blocks.into_iter().map(block).collect();
        NamePlaces { blocks, levels: self.levels, changed }
    }
}

/// How many names of these sizes, in the order of their hashes, stay in a leaf that is split: those
/// that move take up to half a block. Where that would be all of them, half of them move.
fn split_point(sizes: &[usize], block: usize) -> usize {
    let half = block / 2;
    let (mut size, mut moved) = (0, 0);
    for needed in sizes.iter().rev() {
        if size + needed / 2 > half {
            return sizes.len() - moved;
        }
        size += needed;
        moved += 1;
    }
    sizes.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::hash_version;

    const FORMAT: DirFormat = DirFormat {
        block_size: 1024,
        indexed: true,
        checksums: false,
        large: false,
        typed: true,
        folds: false,
        hash_version: hash_version::HALF_MD4,
        hash_seed: [1, 2, 3, 4],
    };

    fn names(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|n| format!("name-{n:04}").into_bytes()).collect()
    }

    /// One leaf with names, in an index.
    fn older(names: &[&[u8]]) -> OlderNames {
        let placed = names.iter().enumerate().map(|(n, name)| (n * 20, name.to_vec()));
        let root = OlderBlock::Index(vec![DxChild { hash: 0, lbn: Lbn::new(1) }]);
        OlderNames { blocks: vec![root, OlderBlock::Names(placed.collect())], levels: Some(0) }
    }

    #[test]
    fn a_leaf_takes_names_until_it_is_full_and_is_split_then() {
        let all = names(53);
        let all: Vec<&[u8]> = all.iter().map(|name| &name[..]).collect();
        let keep = |names: &[&[u8]], older: &OlderNames| {
            NamePlaces::keeping(FORMAT, names, older, false).expect("places")
        };
        let places = keep(&all[..51], &older(&all[..51]));
        assert!(!places.is_worse_than(2) && places.changed == 0, "nothing changed");
        // A name in the place of a removed one.
        let without: Vec<&[u8]> = [&all[..20], &all[21..52]].concat();
        let places = keep(&without, &older(&all[..51]));
        let PlacedBlock::Names(leaf) = &places.blocks[1] else { panic!("{places:?}") };
        assert_eq!(leaf[20], PlacedName { at: 400, name: 50 });
        assert_eq!((places.len(), places.changed), (2, 1));
        // No room: names from a hash on move to a leaf of their own.
        let places = keep(&all[..52], &older(&all[..51]));
        let (PlacedBlock::Index(root), PlacedBlock::Names(left), PlacedBlock::Names(right)) =
            (&places.blocks[0], &places.blocks[1], &places.blocks[2])
        else {
            panic!("{places:?}")
        };
        let hash = |placed: &PlacedName| FORMAT.hash(all[placed.name]).major;
        assert_eq!((left.len() + right.len(), root.len()), (52, 2));
        assert!(left.iter().all(|name| hash(name) < root[1].hash));
        assert!(right.iter().all(|name| hash(name) >= root[1].hash));
        assert!(left.iter().all(|placed| placed.name == 51 || placed.at == placed.name * 20));
        assert!(places.is_worse_than(3) && !places.is_worse_than(4));
    }

    /// An index that does not lead to its names, or has more levels than the volume allows.
    #[test]
    fn an_index_of_other_names_is_not_kept() {
        let all = names(40);
        let all: Vec<&[u8]> = all.iter().map(|name| &name[..]).collect();
        let keeps =
            |older: &OlderNames, format| NamePlaces::keeping(format, &all, older, false).is_some();
        assert!(keeps(&older(&all), FORMAT));
        let mut wrong = older(&all);
        wrong.blocks.push(OlderBlock::Names(Vec::new()));
        assert!(!keeps(&wrong, FORMAT), "a block that the index does not lead to");
        let children = [(0, 1), (1 << 31, 2)];
        let child = |(hash, lbn)| DxChild { hash, lbn: Lbn::new(lbn) };
        wrong.blocks[0] = OlderBlock::Index(children.map(child).into());
        assert!(!keeps(&wrong, FORMAT), "names above the hash of the next leaf");
        // Three levels, which only large_dir allows.
        let node = |at| OlderBlock::Index(vec![DxChild { hash: 0, lbn: Lbn::new(at) }]);
        let leaf = older(&all).blocks.remove(1);
        let deep = OlderNames { blocks: vec![node(1), node(2), node(3), leaf], levels: Some(2) };
        assert!(keeps(&deep, DirFormat { large: true, ..FORMAT }));
        assert!(!keeps(&deep, FORMAT));
    }

    /// A directory with these places, as an older one.
    fn as_older(places: &NamePlaces, names: &[&[u8]]) -> OlderNames {
        let named = |placed: &PlacedName| (placed.at, names[placed.name].to_vec());
        let block = |block: &PlacedBlock| match block {
            PlacedBlock::Names(own) => OlderBlock::Names(own.iter().map(named).collect()),
            PlacedBlock::Index(children) => OlderBlock::Index(children.clone()),
        };
        OlderNames { blocks: places.blocks.iter().map(block).collect(), levels: places.levels }
    }

    /// Leaves that begin with names of the hash with which the one before ends have odd hashes, all
    /// the same; such an index is kept like any other.
    #[test]
    fn names_of_one_hash_fill_several_leaves() {
        // Hashes of this version need a key: here all are 0.
        let format = DirFormat { hash_version: hash_version::SIPHASH, ..FORMAT };
        let all = names(400);
        let all: Vec<&[u8]> = all.iter().map(|name| &name[..]).collect();
        let mut before = older(&all[..40]);
        for count in [160, 400] {
            let places = NamePlaces::keeping(format, &all[..count], &before, false);
            let places = places.expect("the index is kept");
            let (mut hashes, mut placed) = (Vec::new(), 0);
            for block in &places.blocks {
                match block {
                    PlacedBlock::Index(children) => {
                        hashes.extend(children.iter().map(|it| it.hash))
                    }
                    PlacedBlock::Names(names) => placed += names.len(),
                }
            }
            assert_eq!((placed, hashes.remove(0)), (count, 0));
            assert!(hashes.len() > 2 && hashes.iter().all(|&hash| hash == 1), "{hashes:?}");
            before = as_older(&places, &all);
        }
    }

    #[test]
    fn half_a_block_moves_and_never_all() {
        assert_eq!(split_point(&[16; 64], 1024), 32);
        assert_eq!(split_point(&[264; 3], 1024), 1);
        assert_eq!(split_point(&[16; 10], 1024), 5, "less than half a block in all");
    }
}
