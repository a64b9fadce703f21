//! The files of an image, and the blocks that may move.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "indices are object numbers of our own; blocks were checked against the volume"
)]

use super::orphans::OrphanList;
use super::{keeps_numbers, uses_extents};
use crate::encode::mapping::{extent_tree_blocks, extents_of, indirect_blocks};
use crate::hash::name_hash;
use crate::image::ExtImage;
use crate::ondisk::{compat, incompat, special};
use crate::volume::Volume;
use crate::xattr::names_its_owner;
use rayon::prelude::*;
use seekless_fs::plan::{Demand, InodeTable, ObjectId, Placed, Run, Space};
use seekless_fs::{Corruption, FileKind, FsError, Inspect, Location, Mapping};
use seekless_units::{BlockNo, Extent, GroupNo, Ino, Lbn};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// An inode that may move.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) extents: bool,
    /// Its data on the image.
    pub(crate) runs: Vec<Mapping>,
    /// Blocks of its map on the image.
    pub(crate) map: Vec<BlockNo>,
    pub(crate) xattr_block: Option<BlockNo>,
}

/// All objects that may move, and the room for them.
pub(crate) struct Survey<'a> {
    pub(crate) image: &'a ExtImage,
    pub(crate) volume: &'a Volume,
    pub(crate) cluster: u64,
    /// By object, in the order of the old numbers.
    pub(crate) moved: Vec<Moved>,
    /// Inodes in use that stay, with their blocks.
    pub(crate) pinned: Vec<Ino>,
    /// Those of them that lie in a bad block: their contents are unknown.
    pub(crate) unusable: Vec<Ino>,
    /// The object whose overhead contains an attribute block.
    pub(crate) xattr_owner: HashMap<BlockNo, ObjectId>,
    /// Clusters that are free or belong to files that move, in order.
    pub(crate) room: Vec<Extent>,
    /// Blocks of several files, whole clusters, in order: they stay.
    pub(crate) shared: Vec<Extent>,
    /// Inodes with values that contain their owner's number, as made by Lustre, with that owner.
    pub(crate) owners: HashMap<Ino, Ino>,
    pub(crate) orphans: OrphanList,
    /// Inode tables, counted in clusters.
    tables: Vec<InodeTable>,
    walk: Vec<ObjectId>,
    /// The directories in which the walk comes to directories.
    parents: HashMap<ObjectId, ObjectId>,
    lost_and_found: Option<Ino>,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(image: &'a ExtImage) -> Result<Self, FsError> {
        let volume = image.volume();
        let cluster = u64::from(volume.sb.cluster_ratio);
        let first = volume.sb.raw.s_first_ino.get().max(special::FIRST_ORDINARY);
        let unusable = volume.inodes().in_bad_blocks()?;
        let stays = |ino: Ino| {
            volume.sb.is_own(ino)
                || volume.sb.is_kept_unused(ino)
                || (ino.get() < first && ino.get() != special::ROOT)
                || unusable.binary_search(&ino).is_ok()
        };
        let allocated: Vec<Vec<Ino>> = (0..volume.sb.groups)
            .into_par_iter()
            .map(|group| volume.bitmaps().allocated_inodes(GroupNo::new(group)))
            .collect::<Result<_, _>>()?;
        let (mut pinned, movable): (Vec<Ino>, Vec<Ino>) =
            allocated.into_iter().flatten().partition(|&ino| stays(ino));
        // In a table that was never written they count as free; no file may get one.
        pinned.extend(&unusable);
        pinned.sort_unstable();
        pinned.dedup();
        let moved: Vec<Moved> = movable
            .par_iter()
            .with_min_len(64)
            .map(|&ino| examine(image, ino))
            .collect::<Result<_, _>>()?;
        let mut survey = Self {
            image,
            volume,
            cluster,
            moved,
            pinned,
            unusable,
            xattr_owner: HashMap::new(),
            room: Vec::new(),
            shared: Vec::new(),
            owners: HashMap::new(),
            orphans: OrphanList::read(volume)?,
            tables: inode_tables(volume)?,
            walk: Vec::new(),
            parents: HashMap::new(),
            lost_and_found: image.lookup(image.root(), b"lost+found")?,
        };
        survey.share_xattr_blocks();
        survey.find_owners()?;
        survey.find_shared();
        survey.find_room()?;
        (survey.walk, survey.parents) = survey.walk_tree()?;
        debug_assert_eq!(survey.walk.len(), survey.moved.len(), "a walk meets each object once");
        debug_assert!(
            survey.moved.is_sorted_by(|one, next| one.ino < next.ino),
            "objects come in the order of their old numbers"
        );
        Ok(survey)
    }

    /// Whether the contents of an inode are meaningless.
    pub(crate) fn says_nothing(&self, ino: Ino) -> Result<bool, FsError> {
        Ok(self.unusable.binary_search(&ino).is_ok() || self.volume.inodes().is_unused(ino)?)
    }

    /// The object of an old inode number.
    pub(crate) fn object(&self, ino: Ino) -> Option<ObjectId> {
        let at = self.moved.binary_search_by_key(&ino, |moved| moved.ino).ok()?;
        Some(ObjectId::new(at as u32))
    }

    pub(crate) fn moved(&self, object: ObjectId) -> &Moved {
        &self.moved[object.index()]
    }

    fn share_xattr_blocks(&mut self) {
        for (at, moved) in self.moved.iter().enumerate() {
            if let Some(block) = moved.xattr_block {
                self.xattr_owner.entry(block).or_insert(ObjectId::new(at as u32));
            }
        }
    }

    /// Finds the inodes of values that contain their owner's number.
    fn find_owners(&mut self) -> Result<(), FsError> {
        if !self.volume.sb.has_incompat(incompat::EA_INODE) {
            return Ok(());
        }
        for &owner in self.pinned.iter().chain(self.moved.iter().map(|moved| &moved.ino)) {
            if self.says_nothing(owner)? {
                continue;
            }
            let inode = self.volume.inodes().read(owner)?;
            for value in self.volume.attributes().value_inodes(&inode)? {
                if names_its_owner(&self.volume.inodes().read(value)?, &inode) {
                    self.owners.insert(value, owner);
                }
            }
        }
        Ok(())
    }

    /// Whether an object's overhead contains its attribute block.
    pub(crate) fn owns_xattr_block(&self, object: ObjectId) -> bool {
        let block = self.moved(object).xattr_block;
        block.is_some_and(|block| self.xattr_owner.get(&block) == Some(&object))
    }

    /// The clusters an object occupies on the image.
    pub(super) fn clusters(&self, object: ObjectId) -> Vec<Extent> {
        let moved = self.moved(object);
        let unit = self.cluster;
        let mut clusters: Vec<Extent> = Vec::new();
        let mut add = |first: u64, end: u64| {
            let (first, end) = (first / unit, end.div_ceil(unit));
            match clusters.last_mut() {
                // Two runs of one cluster.
                Some(last) if last.end().get() > first && last.start.get() <= first => {
                    let end = end.max(last.end().get());
                    last.len = end - last.start.get();
                }
                _ => clusters.push(Extent::new(BlockNo::new(first), end - first)),
            }
        };
        for run in moved.runs.iter().filter(|run| !self.stays(run)) {
            add(run.extent.start.get(), run.extent.end().get());
        }
        for &block in &moved.map {
            clusters.push(Extent::new(BlockNo::new(block.get() / unit), 1));
        }
        if self.owns_xattr_block(object) {
            let block = moved.xattr_block.unwrap_or_default();
            clusters.push(Extent::new(BlockNo::new(block.get() / unit), 1));
        }
        clusters
    }

    /// Directories and their files in the order of a walk, inodes without a name last; and for each
    /// directory the one in which the walk comes to it.
    fn walk_tree(&self) -> Result<(Vec<ObjectId>, HashMap<ObjectId, ObjectId>), FsError> {
        let mut parents = HashMap::new();
        let mut order = Vec::with_capacity(self.moved.len());
        let mut seen = vec![false; self.moved.len()];
        let mut stack: Vec<ObjectId> = self.object(self.image.root()).into_iter().collect();
        while let Some(dir) = stack.pop() {
            if std::mem::replace(&mut seen[dir.index()], true) {
                continue;
            }
            order.push(dir);
            let mut below = Vec::new();
            for ino in self.listing(self.moved(dir).ino)? {
                let Some(object) = self.object(ino) else { continue };
                if self.moved(object).kind == FileKind::Directory {
                    parents.entry(object).or_insert(dir);
                    below.push(object);
                } else if !std::mem::replace(&mut seen[object.index()], true) {
                    order.push(object);
                }
            }
            stack.extend(below.into_iter().rev());
        }
        let all = (0..self.moved.len()).map(|at| ObjectId::new(at as u32));
        order.extend(all.filter(|object| !seen[object.index()]));
        Ok((order, parents))
    }

    /// A directory's entries in the kernel's order of listing.
    fn listing(&self, dir: Ino) -> Result<Vec<Ino>, FsError> {
        let sb = &self.volume.sb;
        let version = sb.default_hash_version();
        let mut entries = Vec::new();
        self.image.read_dir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let hash = version.and_then(|it| name_hash(it, sb.hash_seed(), entry.name));
                entries.push((hash.unwrap_or_default(), entry.ino));
            }
            ControlFlow::Continue(())
        })?;
        if sb.has_compat(compat::DIR_INDEX) {
            entries.sort_by_key(|&(hash, _)| hash);
        }
        Ok(entries.into_iter().map(|(_, ino)| ino).collect())
    }

    pub(crate) fn space(&self) -> Space {
        let sb = &self.volume.sb;
        let first = sb.raw.s_first_ino.get().max(special::FIRST_ORDINARY);
        let mut inodes: Vec<(Ino, u32)> = Vec::new();
        let mut next = first;
        let last = sb.raw.s_inodes_count.get();
        let fixed = self.lost_and_found.filter(|ino| ino.get() >= first);
        let mut taken: Vec<u32> =
            self.pinned.iter().chain(&fixed).map(|ino| ino.get()).filter(|&i| i >= first).collect();
        taken.sort_unstable();
        for ino in taken.into_iter().chain([last + 1]) {
            if ino > next {
                inodes.push((Ino::new(next), ino - next));
            }
            next = ino + 1;
        }
        debug_assert!(
            inodes.is_sorted_by(|one, next| one.0 + one.1 < next.0),
            "runs of inodes lie between those that are taken"
        );
        Space {
            inodes,
            free: self.room.clone(),
            tables: self.tables.clone(),
            inodes_per_block: sb.block_size / u32::from(sb.inode_size),
            counts_unused: sb.has_group_checksums(),
        }
    }

    /// An object's old runs under a new placement: the pieces of its new map, in logical order.
    pub(crate) fn pieces(&self, object: ObjectId, data: &[Placed]) -> Vec<Mapping> {
        let unit = self.cluster;
        let mut pieces: Vec<Mapping> = Vec::new();
        for run in &self.moved(object).runs {
            if self.stays(run) {
                add_piece(&mut pieces, *run);
                continue;
            }
            let (low, high) = (run.lbn.get(), run.lbn.get() + run.extent.len);
            let from = data.partition_point(|p| (p.lbn.get() + p.extent.len) * unit <= low);
            for placed in &data[from..] {
                let base = placed.lbn.get() * unit;
                let (start, end) = (low.max(base), high.min(base + placed.extent.len * unit));
                if start >= end {
                    break;
                }
                let block = placed.extent.start.get() * unit + (start - base);
                let piece = Mapping {
                    lbn: Lbn::new(start),
                    extent: Extent::new(BlockNo::new(block), end - start),
                    unwritten: run.unwritten,
                };
                add_piece(&mut pieces, piece);
            }
        }
        pieces
    }

    /// Blocks that an object's map needs for these pieces.
    pub(crate) fn map_blocks(&self, object: ObjectId, pieces: &[Mapping]) -> u64 {
        let bs = self.volume.sb.block_size;
        if self.moved(object).extents {
            let extents = pieces.iter().map(|p| extents_of(p.extent.len, p.unwritten)).sum();
            extent_tree_blocks(extents, bs)
        } else {
            let runs: Vec<Run> =
                pieces.iter().map(|p| Run { lbn: p.lbn, len: p.extent.len }).collect();
            indirect_blocks(&runs, bs)
        }
    }
}

/// The inode tables and their groups, counted in clusters.
fn inode_tables(volume: &Volume) -> Result<Vec<InodeTable>, FsError> {
    let sb = &volume.sb;
    let unit = u64::from(sb.cluster_ratio);
    let clusters = |blocks: Extent| {
        let start = blocks.start.get() / unit;
        Extent::new(BlockNo::new(start), blocks.end().get().div_ceil(unit) - start)
    };
    (0..sb.groups)
        .map(|group| {
            let number = GroupNo::new(group);
            let start = volume.descriptors().read_checked(number)?.inode_table();
            Ok(InodeTable {
                first: Ino::new(group * sb.inodes_per_group + 1),
                count: sb.inodes_per_group,
                blocks: clusters(Extent::new(start, sb.itable_blocks())),
                group: clusters(sb.group_blocks(number)),
            })
        })
        .collect()
}

/// Adds a piece, joined to the last one if it continues that.
fn add_piece(pieces: &mut Vec<Mapping>, piece: Mapping) {
    match pieces.last_mut() {
        Some(last)
            if last.unwritten == piece.unwritten
                && last.lbn.get() + last.extent.len == piece.lbn.get()
                && last.extent.end() == piece.extent.start =>
        {
            last.extent.len += piece.extent.len;
        }
        _ => pieces.push(piece),
    }
}

/// Examines an inode and its map.
fn examine(image: &ExtImage, ino: Ino) -> Result<Moved, FsError> {
    let volume = image.volume();
    let inode = volume.inodes().read(ino)?;
    let place = Location::of("inode").in_inode(ino);
    let Some(kind) = inode.kind() else {
        let value = u64::from(inode.core.i_mode.get());
        return Err(FsError::corrupt(Corruption::Invalid { field: "i_mode", value }, place));
    };
    let map = volume.maps().block_map(&inode)?;
    let unit = u64::from(volume.sb.cluster_ratio);
    if let Some(run) =
        map.runs.iter().find(|run| run.lbn.get() % unit != run.extent.start.get() % unit)
    {
        let kind = Corruption::Invalid { field: "ee_start", value: run.extent.start.get() };
        return Err(FsError::corrupt(kind, place));
    }
    Ok(Moved {
        ino,
        kind,
        extents: uses_extents(inode.core.i_flags.get()),
        runs: map.runs,
        map: map.index.iter().map(|index| index.block).collect(),
        xattr_block: map.xattr_block,
    })
}

impl Demand for Survey<'_> {
    fn objects(&self) -> usize {
        self.moved.len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        let ino = self.moved(object).ino;
        let fixed = ino.get() == special::ROOT
            || self.lost_and_found == Some(ino)
            || keeps_numbers(self.image);
        fixed.then_some(ino)
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        self.moved(object).kind == FileKind::Directory
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let start = runs.len();
        for run in self.moved(object).runs.iter().filter(|run| !self.stays(run)) {
            let first = run.lbn.get() / self.cluster;
            let end = (run.lbn.get() + run.extent.len).div_ceil(self.cluster);
            match runs[start..].last_mut() {
                Some(last) if last.lbn.get() + last.len >= first => {
                    last.len = last.len.max(end - last.lbn.get());
                }
                _ => runs.push(Run { lbn: Lbn::new(first), len: end - first }),
            }
        }
    }

    fn overhead_blocks(&self, object: ObjectId, data: &[Placed]) -> u64 {
        let pieces = self.pieces(object, data);
        self.map_blocks(object, &pieces) + self.attribute_blocks(object)
    }

    fn attribute_blocks(&self, object: ObjectId) -> u64 {
        self.owns_xattr_block(object).into()
    }

    fn attribute_owner(&self, object: ObjectId) -> Option<ObjectId> {
        self.xattr_owner.get(&self.moved(object).xattr_block?).copied()
    }

    fn is_pinned(&self, _object: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        self.walk.clone()
    }

    fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        self.parents.get(&directory).copied()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        let mut order = Vec::with_capacity(self.moved.len());
        let mut seen = vec![false; self.moved.len()];
        let mut add = |object: ObjectId| {
            if !std::mem::replace(&mut seen[object.index()], true) {
                order.push(object);
            }
        };
        for &object in &self.walk {
            add(object);
            if self.is_directory(object) {
                let listed = self.listing(self.moved(object).ino).unwrap_or_default();
                listed.iter().filter_map(|&ino| self.object(ino)).for_each(&mut add);
            }
        }
        order
    }
}
