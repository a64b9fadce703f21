//! Objects of a tree to be placed: one for every file, with its number of blocks.

use super::attributes::{self, Encoded, Room};
use super::inodes::{inline_capacity, kept_flags};
use crate::casefold;
use crate::encode::device::device_words;
use crate::encode::dirblocks::{DirFormat, Packing};
use crate::encode::mapping::{extent_tree_blocks, extents_of, indirect_blocks, longest_file};
use crate::encode::places::{NamePlaces, OlderNames};
use crate::features::Features;
use crate::ondisk::{XATTR_REFCOUNT_MAX, compat, incompat, ro_compat};
use rayon::prelude::*;
use seekless_fs::plan::{Demand, ObjectId, Placed, Run};
use seekless_fs::source::{Sealed, Segment, Source};
use seekless_fs::tree::{Entry, Node, NodeId, Payload, Tree, inode_walk, walk};
use seekless_fs::{FileKind, FsError, inode_flag};
use seekless_units::{Ino, Lbn};
use std::collections::HashMap;

/// The name of the directory for repairs.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Size of a `lost+found` that is not in the tree, in bytes; room for the files that a repair may
/// connect.
const LOST_AND_FOUND_BYTES: u64 = 16384;

/// The file or attribute value of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    /// A file of the tree; the object's number is the node's.
    Node(NodeId),
    /// The directory for repairs.
    LostAndFound,
    /// The value of a large extended attribute.
    Value(usize),
}

/// Reads the names of the older directory that a node continues, in a format.
pub(crate) type OlderNamesFn<'a> =
    dyn Fn(NodeId, &DirFormat) -> Result<Option<OlderNames>, FsError> + Sync + 'a;

/// A value of a large attribute, stored once for all files that have it.
#[derive(Debug)]
pub(crate) struct SharedValue {
    pub(crate) bytes: Vec<u8>,
    pub(crate) references: u64,
}

/// The logical blocks of an object.
#[derive(Clone, Copy, Debug)]
enum LogicalBlocks {
    /// This many, from logical block 0.
    Dense(u32),
    /// In `TreeDemand::sparse`, from and to.
    Sparse { from: u32, to: u32 },
}

/// The demand of a tree under the rules of a volume.
pub(crate) struct TreeDemand<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) tree: &'a Tree,
    pub(crate) features: Features,
    pub(crate) block_size: u32,
    dir_format: DirFormat,
    /// By attribute set of the tree.
    pub(crate) xattrs: Vec<Encoded>,
    pub(crate) values: Vec<SharedValue>,
    value_index: HashMap<Vec<u8>, usize>,
    /// Entries of all directories, each in listing order.
    listings: Vec<Entry>,
    /// Node i's are `listings[listing_start[i]..listing_start[i + 1]]`.
    listing_start: Vec<u32>,
    blocks: Vec<LogicalBlocks>,
    sparse: Vec<Run>,
    /// The directories whose names lie where an older volume has them.
    directories: HashMap<NodeId, NamePlaces>,
    /// `lost+found` is made, since the tree has none.
    pub(crate) makes_lost_and_found: bool,
    /// The owner of the attribute block that up to 1024 nodes with the same set share, and the
    /// number of these.
    owners: HashMap<(usize, u32), (NodeId, u32)>,
    /// For nodes whose set needs a block: the number of their share of the set.
    shares: HashMap<NodeId, u32>,
    inline_limit: usize,
    inode_size: u32,
}

impl<'a> TreeDemand<'a> {
    pub(crate) fn new(
        source: &'a dyn Source,
        features: Features,
        block_size: u32,
        inode_size: u32,
        dir_format: DirFormat,
        checksum_seed: u32,
        makes_lost_and_found: bool,
    ) -> Result<Self, FsError> {
        let tree = source.tree();
        let extra = if inode_size > 128 { 32 } else { 0 };
        let room = Room {
            in_inode: inode_size as usize - 128 - extra,
            block: block_size as usize,
            blocks: features.has_compat(compat::EXT_ATTR),
            value_inodes: features.has_incompat(incompat::EA_INODE),
            value_inodes_in_block: false,
            checksum_seed,
        };
        let mut demand = Self {
            source,
            tree,
            features,
            block_size,
            dir_format,
            xattrs: Vec::new(),
            values: Vec::new(),
            value_index: HashMap::new(),
            listings: Vec::new(),
            listing_start: Vec::new(),
            blocks: Vec::new(),
            sparse: Vec::new(),
            directories: HashMap::new(),
            makes_lost_and_found: makes_lost_and_found
                && tree.child(NodeId::ROOT, LOST_AND_FOUND).is_none(),
            owners: HashMap::new(),
            shares: HashMap::new(),
            inline_limit: if features.has_incompat(incompat::INLINE_DATA) { 60 } else { 0 },
            inode_size,
        };
        demand.refuse_devices()?;
        demand.sort_listings();
        demand.encode_xattrs(room)?;
        demand.count_blocks()?;
        Ok(demand)
    }

    /// Refuses devices whose numbers an inode has no room for, before anything is written.
    fn refuse_devices(&self) -> Result<(), FsError> {
        for id in self.tree.ids() {
            if let Payload::Device(number) = self.tree.node(id).payload {
                device_words(number).map_err(|error| in_file(error, &self.tree.shown_path(id)))?;
            }
        }
        Ok(())
    }

    fn encode_xattrs(&mut self, room: Room) -> Result<(), FsError> {
        let mut users: Vec<u32> = vec![0; self.tree.xattr_sets()];
        let mut example: Vec<Option<NodeId>> = vec![None; self.tree.xattr_sets()];
        let mut has_links = vec![false; self.tree.xattr_sets()];
        for id in self.tree.ids() {
            let node = self.tree.node(id);
            let set = self.tree.xattr_set(node);
            users[set] += 1;
            example[set].get_or_insert(id);
            has_links[set] |= node.kind == FileKind::Symlink;
        }
        self.xattrs = std::iter::zip(&example, has_links)
            .map(|(example, has_links)| match example {
                None => Ok(Encoded::default()),
                Some(id) => {
                    let room = Room { value_inodes_in_block: has_links && room.blocks, ..room };
                    attributes::encode(self.tree.xattrs(self.tree.node(*id)), room)
                        .map_err(|error| in_file(error, &self.tree.shown_path(*id)))
                }
            })
            .collect::<Result<_, _>>()?;
        let mut next_share = vec![0u32; self.xattrs.len()];
        for id in self.tree.ids() {
            let set = self.tree.xattr_set(self.tree.node(id));
            if self.xattrs[set].block.is_some() {
                let share = next_share[set] / XATTR_REFCOUNT_MAX;
                next_share[set] += 1;
                self.shares.insert(id, share);
                self.owners.entry((set, share)).or_insert((id, 0)).1 += 1;
            }
        }
        for (encoded, &users) in self.xattrs.iter().zip(&users) {
            for value in &encoded.values {
                // A shared block has one reference to the value; otherwise each inode has one.
                let references = if value.in_block {
                    u64::from(users.div_ceil(XATTR_REFCOUNT_MAX))
                } else {
                    u64::from(users)
                };
                let bytes = value.value.clone();
                let index = *self.value_index.entry(bytes.clone()).or_insert_with(|| {
                    self.values.push(SharedValue { bytes, references: 0 });
                    self.values.len() - 1
                });
                self.values[index].references += references;
            }
        }
        Ok(())
    }

    fn count_blocks(&mut self) -> Result<(), FsError> {
        let ids: Vec<NodeId> = self.tree.ids().collect();
        // Directories are packed and sparse files examined on all cores.
        let counted: Vec<(u32, Option<Vec<Segment>>)> = ids
            .par_iter()
            .with_min_len(256)
            .map(|&id| self.count_node(id))
            .collect::<Result<_, _>>()?;
        self.blocks.reserve(counted.len());
        for (dense, segments) in counted {
            let Some(segments) = segments else {
                self.blocks.push(LogicalBlocks::Dense(dense));
                continue;
            };
            let from = self.sparse.len() as u32;
            self.add_sparse_runs(&segments);
            self.blocks.push(LogicalBlocks::Sparse { from, to: self.sparse.len() as u32 });
        }
        Ok(())
    }

    /// The block count of a dense node, or the segments of a sparse one.
    fn count_node(&self, id: NodeId) -> Result<(u32, Option<Vec<Segment>>), FsError> {
        let node = self.tree.node(id);
        let blocks = match node.kind {
            FileKind::Directory => self.directory_blocks(id)?.0,
            // A hole at the end has no blocks, but counts.
            FileKind::Regular if node.size > self.longest() => {
                return Err(self.too_long(id));
            }
            FileKind::Symlink if node.size >= u64::from(self.block_size) => {
                return Err(FsError::NoSpace(format!(
                    "{}: a link target of {} bytes does not fit in a block of {}",
                    self.tree.shown_path(id),
                    node.size,
                    self.block_size
                )));
            }
            FileKind::Symlink if node.size >= 60 && self.inline_len(id) == 0 => 1,
            FileKind::Regular if self.is_sealed(id) => {
                let mut segments = self.source.segments(id)?;
                segments.extend(self.seal_of(id)?);
                return Ok((0, Some(segments)));
            }
            FileKind::Regular if self.inline_len(id) == 0 && node.size > 0 => {
                let segments = self.source.segments(id)?;
                match segments.as_slice() {
                    [all] if all.offset == 0 && all.len == node.size => {
                        node.size.div_ceil(u64::from(self.block_size))
                    }
                    _ => return Ok((0, Some(segments))),
                }
            }
            _ => 0,
        };
        let dense = u32::try_from(blocks).map_err(|_| self.too_long(id))?;
        Ok((dense, None))
    }

    fn too_long(&self, id: NodeId) -> FsError {
        let (path, size) = (self.tree.shown_path(id), self.tree.node(id).size);
        let longest = self.longest();
        let has_extents = self.features.has_incompat(incompat::EXTENTS);
        let hint = match (has_extents, self.has_huge_files()) {
            (_, false) if longest < longest_file(has_extents, true, self.block_size) => {
                "; the huge_file feature allows longer ones"
            }
            (false, _) => "; the extent feature allows longer ones",
            (true, _) => "",
        };
        let what = format!("{path}: {size} bytes exceed the maximum file size ({longest}{hint})");
        FsError::NoSpace(what)
    }

    /// The longest file, in bytes.
    fn longest(&self) -> u64 {
        let has_extents = self.features.has_incompat(incompat::EXTENTS);
        longest_file(has_extents, self.has_huge_files(), self.block_size)
    }

    fn has_huge_files(&self) -> bool {
        self.features.has_ro_compat(ro_compat::HUGE_FILE)
    }

    fn add_sparse_runs(&mut self, segments: &[Segment]) {
        let bs = u64::from(self.block_size);
        let start = self.sparse.len();
        for segment in segments {
            let (first, end) = (segment.offset / bs, (segment.offset + segment.len).div_ceil(bs));
            match self.sparse[start..].last_mut() {
                Some(run) if run.lbn.get() + run.len >= first => {
                    run.len = run.len.max(end - run.lbn.get());
                }
                _ => self.sparse.push(Run { lbn: Lbn::new(first), len: end - first }),
            }
        }
    }

    /// Whether a file is sealed by fs-verity, and this volume can keep it so.
    pub(crate) fn is_sealed(&self, id: NodeId) -> bool {
        self.tree.node(id).flags & kept_flags(self.features) & inode_flag::VERITY != 0
    }

    /// The Merkle tree and descriptor behind the end of a sealed file.
    fn seal_of(&self, id: NodeId) -> Result<Vec<Segment>, FsError> {
        let sealed = self.source.sealed(id)?;
        match sealed {
            Some(sealed) if sealed.block_size == self.block_size => Ok(sealed.segments),
            Some(Sealed { block_size, .. }) => Err(FsError::Unsupported(format!(
                "{}: sealed by fs-verity on blocks of {block_size} bytes; an image with others \
                 can have it without the feature verity only",
                self.tree.shown_path(id)
            ))),
            None => Err(FsError::Invalid(format!(
                "{}: sealed by fs-verity, but the source does not have its hashes",
                self.tree.shown_path(id)
            ))),
        }
    }

    /// Bytes of a file or link target that lie in the inode instead of in
    /// blocks; 0 when they do not.
    pub(crate) fn inline_len(&self, id: NodeId) -> usize {
        let node = self.tree.node(id);
        let len = node.size as usize;
        let holds = self.inline_limit > 0
            && matches!(node.kind, FileKind::Regular | FileKind::Symlink)
            && len > 0
            && !self.is_sealed(id)
            && !(node.kind == FileKind::Symlink && len < 60)
            && len <= inline_capacity(self.inode_size, self.tree.xattr_set(node) != 0);
        if holds { len } else { 0 }
    }

    /// The format of a directory's blocks.
    pub(crate) fn dir_format(&self, dir: NodeId) -> DirFormat {
        DirFormat { folds: self.folds_case(dir), ..self.dir_format }
    }

    /// The format of the blocks of a `lost+found` that is not in the tree.
    pub(crate) fn lost_and_found_format(&self) -> DirFormat {
        self.dir_format
    }

    /// Whether names of a directory are compared without regard to case.
    fn folds_case(&self, dir: NodeId) -> bool {
        let node = self.tree.node(dir);
        let flag = node.flags & kept_flags(self.features) & inode_flag::CASEFOLD;
        node.kind == FileKind::Directory && flag != 0
    }

    /// Refuses names of one directory that differ in case alone where case does not count, and, if
    /// the encoding is strict, names there that are not UTF-8.
    pub(crate) fn check_folded_names(&self, is_strict: bool) -> Result<(), FsError> {
        for dir in self.tree.ids().filter(|&dir| self.folds_case(dir)) {
            let mut seen = HashMap::new();
            let own = self.adds_lost_and_found(dir).then_some(LOST_AND_FOUND);
            let names = self.tree.children(dir).iter().map(|entry| self.tree.name(entry));
            for name in own.into_iter().chain(names) {
                let Some(folded) = casefold::fold(name) else {
                    if is_strict {
                        return Err(FsError::Invalid(format!(
                            "{}: '{}' is not UTF-8, which a strict encoding demands",
                            self.tree.shown_path(dir),
                            String::from_utf8_lossy(name),
                        )));
                    }
                    continue;
                };
                if let Some(other) = seen.insert(folded, name) {
                    return Err(FsError::Invalid(format!(
                        "{}: '{}' and '{}' are one name in a directory that ignores case",
                        self.tree.shown_path(dir),
                        String::from_utf8_lossy(other),
                        String::from_utf8_lossy(name),
                    )));
                }
            }
        }
        Ok(())
    }

    fn sort_listings(&mut self) {
        let tree = self.tree;
        let formats: Vec<DirFormat> = tree
            .ids()
            .filter(|&id| tree.children(id).len() > 1)
            .map(|id| self.dir_format(id))
            .collect();
        self.listing_start = vec![0; tree.nodes().len() + 1];
        for id in tree.ids() {
            let entries = tree.children(id);
            self.listings.extend_from_slice(entries);
            self.listing_start[id.index() + 1] = self.listings.len() as u32;
        }
        if !self.dir_format.indexed {
            return;
        }
        let mut rest = self.listings.as_mut_slice();
        let mut directories = Vec::new();
        for id in tree.ids() {
            let (own, after) = rest.split_at_mut(tree.children(id).len());
            rest = after;
            if own.len() > 1 {
                directories.push(own);
            }
        }
        directories.par_iter_mut().zip(formats).with_min_len(16).for_each(|(own, format)| {
            own.sort_by_cached_key(|entry| format.hash(tree.name(entry)));
        });
    }

    /// A directory's entries in the order it lists them.
    pub(crate) fn listing(&self, dir: NodeId) -> &[Entry] {
        let (from, to) = (self.listing_start[dir.index()], self.listing_start[dir.index() + 1]);
        &self.listings[from as usize..to as usize]
    }

    /// Whether the root needs an entry that is not in the tree.
    pub(crate) fn adds_lost_and_found(&self, dir: NodeId) -> bool {
        dir == NodeId::ROOT && self.makes_lost_and_found
    }

    /// The division of a directory's entries into blocks. The root's includes the `lost+found` that
    /// is added to it.
    pub(crate) fn packing(&self, dir: NodeId) -> Result<Packing, FsError> {
        self.dir_format
            .pack(self.names(dir).into_iter().map(<[u8]>::len))
            .map_err(|error| in_file(error, &self.tree.shown_path(dir)))
    }

    /// A directory's names in the order in which it lists them, with the `lost+found` that is added
    /// to the root.
    fn names(&self, dir: NodeId) -> Vec<&[u8]> {
        let listing = self.listing(dir);
        let mut names: Vec<&[u8]> = listing.iter().map(|entry| self.tree.name(entry)).collect();
        if self.adds_lost_and_found(dir) {
            names.insert(self.lost_and_found_place(listing), LOST_AND_FOUND);
        }
        names
    }

    /// Lets names keep the places that they have in older directories, except where the directory
    /// has fewer new blocks without. A `lost+found` keeps all its blocks, as room for repairs.
    pub(crate) fn keep_directories(&mut self, older: &OlderNamesFn<'_>) -> Result<(), FsError> {
        let ids: Vec<NodeId> = self.tree.ids().collect();
        let keep = |&id: &NodeId| {
            if self.tree.node(id).kind != FileKind::Directory {
                return Ok(None);
            }
            let format = self.dir_format(id);
            let keeps_all = self.is_lost_and_found(id);
            let Some(older) = older(id, &format)? else { return Ok(None) };
            let packing = self.packing(id)?;
            // A directory of more than one block gets an index if it has none, as by a kernel.
            let stays_plain = older.blocks.len() == 1 && packing.index_blocks == 0;
            if !(keeps_all || !format.indexed || older.levels.is_some() || stays_plain) {
                return Ok(None);
            }
            let places = NamePlaces::keeping(format, &self.names(id), &older, keeps_all);
            let places = places.filter(|it| keeps_all || !it.is_worse_than(packing.blocks()));
            Ok(places.map(|places| (id, places)))
        };
        let kept = ids.par_iter().with_min_len(64).filter_map(|id| keep(id).transpose());
        self.directories = kept.collect::<Result<_, FsError>>()?;
        self.count_directories(self.directories.keys().copied().collect())
    }

    /// Packs all directories, as without an older volume.
    pub(crate) fn pack_directories(&mut self) -> Result<(), FsError> {
        let kept = std::mem::take(&mut self.directories);
        self.count_directories(kept.into_keys().collect())
    }

    fn count_directories(&mut self, dirs: Vec<NodeId>) -> Result<(), FsError> {
        for id in dirs {
            self.blocks[id.index()] = LogicalBlocks::Dense(self.count_node(id)?.0);
        }
        Ok(())
    }

    /// Whether a node of the tree is the directory for repairs.
    fn is_lost_and_found(&self, id: NodeId) -> bool {
        let own = self.tree.child(NodeId::ROOT, LOST_AND_FOUND);
        own.is_some_and(|entry| entry.node == id)
    }

    /// The places of a directory's names, if an older volume has it.
    pub(crate) fn places(&self, dir: NodeId) -> Option<&NamePlaces> {
        self.directories.get(&dir)
    }

    /// The number of a directory's blocks, and whether it has an index.
    pub(crate) fn directory_blocks(&self, dir: NodeId) -> Result<(u64, bool), FsError> {
        if let Some(places) = self.places(dir) {
            return Ok((places.len(), places.levels.is_some()));
        }
        let packing = self.packing(dir)?;
        Ok((packing.blocks(), packing.index_blocks > 0))
    }

    /// The place of `lost+found` in the root's listing.
    pub(crate) fn lost_and_found_place(&self, listing: &[Entry]) -> usize {
        let name = LOST_AND_FOUND;
        let format = self.dir_format(NodeId::ROOT);
        if format.indexed {
            let own = format.hash(name);
            listing.partition_point(|entry| format.hash(self.tree.name(entry)) < own)
        } else {
            listing.partition_point(|entry| self.tree.name(entry) < name)
        }
    }

    /// The file or attribute value of an object.
    pub(crate) fn object(&self, id: ObjectId) -> Object {
        match id.index().checked_sub(self.tree.nodes().len()) {
            None => Object::Node(NodeId::new(id.index() as u32)),
            Some(0) => Object::LostAndFound,
            Some(at) => Object::Value(at - 1),
        }
    }

    /// The object of a large attribute's value.
    pub(crate) fn value_object(&self, value: &[u8]) -> Option<ObjectId> {
        let at = *self.value_index.get(value)?;
        Some(ObjectId::new((self.tree.nodes().len() + 1 + at) as u32))
    }

    pub(crate) fn lost_and_found_object(&self) -> ObjectId {
        ObjectId::new(self.tree.nodes().len() as u32)
    }

    /// The node whose overhead contains a node's attribute block, when its attributes need one.
    pub(crate) fn xattr_owner(&self, id: NodeId) -> Option<NodeId> {
        let share = *self.shares.get(&id)?;
        let set = self.tree.xattr_set(self.tree.node(id));
        self.owners.get(&(set, share)).map(|&(owner, _)| owner)
    }

    /// The number of nodes that share the attribute block of an owner.
    pub(crate) fn xattr_sharers(&self, owner: NodeId) -> u32 {
        let set = self.tree.xattr_set(self.tree.node(owner));
        let share = self.shares.get(&owner);
        share.and_then(|&share| self.owners.get(&(set, share))).map_or(0, |&(_, count)| count)
    }

    /// Blocks that the whole tree needs, with the fewest possible extents, and its inodes (without
    /// the root: its number is reserved).
    pub(crate) fn totals(&self) -> (u64, u64) {
        let mut runs = Vec::new();
        let mut blocks = 0;
        for at in 0..self.objects() {
            let object = ObjectId::new(at as u32);
            if self.is_pinned(object) {
                continue;
            }
            runs.clear();
            self.runs(object, &mut runs);
            blocks += runs.iter().map(|run| run.len).sum::<u64>();
            blocks += self.overhead_blocks(object, &Run::apart(&runs));
        }
        (blocks, self.objects() as u64)
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.tree.node(id)
    }
}

impl Demand for TreeDemand<'_> {
    fn objects(&self) -> usize {
        self.tree.nodes().len() + 1 + self.values.len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        use crate::ondisk::special::{FIRST_ORDINARY, ROOT};
        match self.object(object) {
            Object::Node(NodeId::ROOT) => Some(Ino::new(ROOT)),
            Object::LostAndFound => Some(Ino::new(FIRST_ORDINARY)),
            _ => None,
        }
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        match self.object(object) {
            Object::Node(id) => self.tree.node(id).kind == FileKind::Directory,
            Object::LostAndFound => true,
            Object::Value(_) => false,
        }
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let dense = match self.object(object) {
            Object::Node(id) => match self.blocks[id.index()] {
                LogicalBlocks::Dense(blocks) => u64::from(blocks),
                LogicalBlocks::Sparse { from, to } => {
                    runs.extend_from_slice(&self.sparse[from as usize..to as usize]);
                    return;
                }
            },
            Object::LostAndFound => {
                LOST_AND_FOUND_BYTES.div_ceil(u64::from(self.block_size)).min(12)
            }
            Object::Value(at) => {
                (self.values[at].bytes.len() as u64).div_ceil(u64::from(self.block_size))
            }
        };
        if dense > 0 {
            runs.push(Run { lbn: Lbn::ZERO, len: dense });
        }
    }

    fn overhead_blocks(&self, object: ObjectId, data: &[Placed]) -> u64 {
        let map = if self.features.has_incompat(incompat::EXTENTS) {
            let extents = data.iter().map(|placed| extents_of(placed.extent.len, false)).sum();
            extent_tree_blocks(extents, self.block_size)
        } else {
            let mut runs = Vec::new();
            self.runs(object, &mut runs);
            indirect_blocks(&runs, self.block_size)
        };
        map + self.attribute_blocks(object)
    }

    fn attribute_blocks(&self, object: ObjectId) -> u64 {
        match self.object(object) {
            Object::Node(id) => u64::from(self.xattr_owner(id) == Some(id)),
            _ => 0,
        }
    }

    fn is_pinned(&self, object: ObjectId) -> bool {
        !self.makes_lost_and_found && self.object(object) == Object::LostAndFound
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        let mut order = Vec::with_capacity(self.objects());
        let visit = |id: NodeId| order.push(ObjectId::new(id.index() as u32));
        walk(self.tree, &|dir| self.listing(dir), visit);
        if self.makes_lost_and_found {
            order.push(self.lost_and_found_object());
        }
        let values = self.tree.nodes().len() + 1;
        order.extend((0..self.values.len()).map(|at| ObjectId::new((values + at) as u32)));
        order
    }

    fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        match self.object(directory) {
            Object::Node(NodeId::ROOT) | Object::Value(_) => None,
            Object::Node(id) => Some(ObjectId::new(self.tree.parent(id).index() as u32)),
            Object::LostAndFound => Some(ObjectId::new(NodeId::ROOT.index() as u32)),
        }
    }

    fn named_in(&self, directory: ObjectId) -> Vec<ObjectId> {
        let Object::Node(id) = self.object(directory) else { return Vec::new() };
        let entries = self.tree.children(id).iter();
        entries.map(|entry| ObjectId::new(entry.node.index() as u32)).collect()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        let walked = inode_walk(self.tree, &|dir| self.listing(dir));
        let mut order: Vec<ObjectId> =
            walked.into_iter().map(|id| ObjectId::new(id.index() as u32)).collect();
        let mut seen = vec![false; self.objects()];
        order.iter().for_each(|object| seen[object.index()] = true);
        order.extend(self.walk_order().into_iter().filter(|object| !seen[object.index()]));
        order
    }
}

/// Adds the file's path to an error.
pub(crate) fn in_file(error: FsError, path: &str) -> FsError {
    match error {
        FsError::NoSpace(why) => FsError::NoSpace(format!("{path}: {why}")),
        FsError::Unsupported(why) => FsError::Unsupported(format!("{path}: {why}")),
        FsError::Invalid(why) => FsError::Invalid(format!("{path}: {why}")),
        other => other,
    }
}
