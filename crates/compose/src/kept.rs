//! The files that a new volume has in common with older images, and their places there.
//!
//! Files are the same if they have the same path and kind, or, of those left, the same contents.
//! Android's images are built on the last release in this way (`base_fs` of e2fsdroid).

use crate::layout_list::{
    ContentDigests, FileDigest, LayoutList, ListedFile, of_block, of_contents,
};
use rayon::prelude::*;
use seekless_device::{BlockDevice, PartialDevice};
use seekless_fs::plan::{Base, NewVolume, ObjectId, OlderFile, Placed};
use seekless_fs::source::{Content, Source};
use seekless_fs::tree::{NodeId, Tree};
use seekless_fs::{BlockMap, FileKind, FsError, Inspect, Mapping, extents};
use seekless_images::{Error, ErrorKind};
use seekless_source::{ImageSource, TreeOptions};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lbn, format_size};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes compared at once.
const PIECE: u64 = 256 << 10;

/// An older image, or its layout list, open.
pub struct BaseImage {
    path: PathBuf,
    /// The path, as messages show it.
    name: String,
    device: Arc<dyn BlockDevice>,
    image: Arc<dyn Inspect>,
    source: ImageSource,
    /// By node of `source`.
    inodes: Vec<Ino>,
    /// In place of the image, if that is not there.
    list: Option<List>,
}

/// The parts of a layout list that are in place of an image's contents.
struct List {
    device: Arc<PartialDevice>,
    digests: ContentDigests,
}

/// How many files of a new volume have a place in an older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Files of the source.
    pub files: u64,
    /// Those that an older image has under the same path.
    pub same_path: u64,
    /// Those whose contents an older image has under another path.
    pub same_contents: u64,
}

/// A file of an older image that a new file goes on.
#[derive(Clone, Copy)]
struct Match {
    /// Index of the image.
    image: usize,
    node: NodeId,
    /// Whether it keeps the blocks of its contents.
    keeps_blocks: bool,
}

impl BaseImage {
    /// Walks an older image.
    ///
    /// # Errors
    /// The image's errors.
    pub(crate) fn new(
        path: &Path,
        (device, image): (Arc<dyn BlockDevice>, Arc<dyn Inspect>),
    ) -> Result<Self, FsError> {
        // Names need not be valid anywhere else: they are only compared.
        let options = TreeOptions { raw_names: true, ..TreeOptions::default() };
        let source = ImageSource::open(image.clone(), &options)?;
        let mut inodes = vec![Ino::ZERO; source.tree().nodes().len()];
        for (ino, node) in source.nodes_by_inode()? {
            inodes[node.index()] = ino;
        }
        let name = path.display().to_string();
        Ok(Self { path: path.to_path_buf(), name, device, image, source, inodes, list: None })
    }

    /// Walks an older image whose metadata is in a layout list.
    ///
    /// # Errors
    /// The image's errors, and those of the list.
    pub(crate) fn of_list(
        path: &Path,
        image: Arc<dyn Inspect>,
        list: &LayoutList,
    ) -> Result<Self, Error> {
        let device = list.device().clone();
        let about = |error: Error| error.about(path.display());
        let walked =
            Self::new(path, (device.clone(), image)).map_err(|error| about(error.into()))?;
        let digests = list.digests(&walked.files()).map_err(|error| about(error.into()))?;
        Ok(Self { list: Some(List { device, digests }), ..walked })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        self.device.as_ref()
    }

    fn map(&self, node: NodeId) -> Result<BlockMap, Error> {
        self.map_of(self.inodes[node.index()])
    }

    fn map_of(&self, ino: Ino) -> Result<BlockMap, Error> {
        self.image.block_map(ino).map_err(|error| self.about(error))
    }

    /// The inode of each file, the root's first.
    pub(crate) fn inodes(&self) -> &[Ino] {
        &self.inodes
    }

    pub(crate) fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.path.display())
    }

    fn named(&self) -> NamedSource<'_> {
        NamedSource { source: &self.source, name: &self.name }
    }

    pub(crate) fn source(&self) -> &ImageSource {
        &self.source
    }

    /// Whether only its layout list is there.
    pub(crate) fn is_list(&self) -> bool {
        self.list.is_some()
    }

    /// Refuses a layout list that lacked something which was read.
    ///
    /// # Errors
    /// [`DeviceError::Lacking`](seekless_device::DeviceError::Lacking).
    pub(crate) fn refuse_lack(&self) -> Result<(), Error> {
        let lack = self.list.as_ref().and_then(|list| list.device.lack());
        lack.map_or(Ok(()), |error| Err(self.about(error.into())))
    }

    /// The regular files that have contents, by inode number.
    pub(crate) fn files(&self) -> Vec<ListedFile> {
        let tree = self.source.tree();
        let listed = |node: NodeId| ListedFile {
            ino: self.inodes[node.index()],
            node,
            size: tree.node(node).size,
        };
        let regular = tree.ids().filter(|&node| has_contents(tree, node));
        let mut files: Vec<ListedFile> = regular.map(listed).collect();
        files.sort_unstable();
        files
    }

    /// The blocks of all directories.
    pub(crate) fn directories(&self) -> Result<Vec<Extent>, Error> {
        let tree = self.source.tree();
        let dirs = tree.ids().filter(|&node| tree.node(node).kind == FileKind::Directory);
        let maps = dirs.map(|dir| self.map(dir)).collect::<Result<Vec<_>, Error>>()?;
        Ok(maps.iter().flat_map(|map| map.runs.iter().map(|run| run.extent)).collect())
    }

    /// The digest of a file's contents.
    fn digest(&self, node: NodeId) -> Result<FileDigest, Error> {
        let Some(list) = &self.list else { return self.named().digest(node) };
        Ok(list.digests.of_file(node).expect("each file with contents has a digest"))
    }

    /// Whether a file has a block of `block` bytes in common with another one, at the same place in
    /// their first `len` bytes.
    fn shares_a_block(
        &self,
        node: NodeId,
        new: (NamedSource<'_>, NodeId),
        (len, block): (u64, u64),
    ) -> Result<bool, Error> {
        match &self.list {
            None => share_a_block(new, (self.named(), node), len, block),
            Some(list) => list.shares_a_block(node, new, (len, block)).map_err(|error| {
                let is_own = error.kind() == ErrorKind::Unsupported;
                if is_own { error.about(self.path.display()) } else { error }
            }),
        }
    }

    /// The blocks of each file.
    pub(crate) fn used(&self) -> Result<Vec<Extent>, Error> {
        let nodes: Vec<NodeId> = self.source.tree().ids().collect();
        let maps: Vec<Vec<Extent>> = nodes
            .par_iter()
            .with_min_len(64)
            .map(|&node| {
                let map = self.map(node)?;
                let data = map.runs.iter().map(|run| run.extent);
                Ok(data.chain(overhead(&map, true)).collect())
            })
            .collect::<Result<_, Error>>()?;
        Ok(maps.concat())
    }
}

/// The blocks of a map, and before them that of attributes if it is wanted.
fn overhead(map: &BlockMap, with_attributes: bool) -> impl Iterator<Item = Extent> + '_ {
    let attributes = map.xattr_block.filter(|_| with_attributes);
    let index = map.index.iter().map(|block| Extent::new(block.block, block.len));
    attributes.map(|block| Extent::new(block, 1)).into_iter().chain(index)
}

/// The files of older images that the objects of a new volume continue.
pub(crate) struct Matches {
    /// By node of the source.
    found: Vec<Option<Match>>,
    /// Objects that are no nodes of the source.
    added: HashMap<ObjectId, Match>,
    pub(crate) taken: Taken,
}

impl Match {
    fn file(&self, images: &[BaseImage]) -> OlderFile {
        OlderFile {
            image: self.image,
            ino: images[self.image].inodes[self.node.index()],
            keeps_blocks: self.keeps_blocks,
        }
    }
}

impl Matches {
    /// The files of the source's nodes.
    pub(crate) fn files(&self, images: &[BaseImage]) -> Vec<Option<OlderFile>> {
        self.found.iter().map(|matched| Some(matched.as_ref()?.file(images))).collect()
    }
}

/// Finds the files of older images that the objects of a new volume continue, which has the files of
/// `source`; this has a name for errors. Of several images that have a file, the first counts.
///
/// # Errors
/// The errors of the images and of the source, for files whose contents are compared.
pub(crate) fn find(
    images: &[BaseImage],
    (source, name): (&dyn Source, &str),
    volume: &dyn NewVolume,
) -> Result<Matches, Error> {
    let source = NamedSource { source, name };
    let tree = source.source.tree();
    let mut found: Vec<Option<Match>> = vec![None; tree.nodes().len()];
    for (image, old) in images.iter().enumerate() {
        by_path(tree, old.source.tree(), |node, own| {
            let slot = &mut found[node.index()];
            *slot = slot.or(Some(Match { image, node: own, keeps_blocks: true }));
        });
    }
    let same_path = found.iter().flatten().count() as u64;
    let added = added(images, volume);
    by_contents(images, source, (&mut found, &added))?;
    let same_contents = found.iter().flatten().count() as u64 - same_path;
    let taken = Taken { files: tree.nodes().len() as u64, same_path, same_contents };
    keep_blocks(images, source, volume.block_size(), &mut found)?;
    Ok(Matches { found, added, taken })
}

/// The layout of older images, for the objects of a new volume. With `has_inodes`, objects keep
/// their inode numbers.
///
/// # Errors
/// The errors of the images.
pub(crate) fn layout(
    images: &[BaseImage],
    matches: &Matches,
    volume: &dyn NewVolume,
    has_inodes: bool,
) -> Result<Base, Error> {
    let mut used = Vec::new();
    for old in images {
        let units = Units { old: old.image.geometry().block_size, volume };
        let touched = old.used()?.into_iter().map(|run| units.touched(run));
        used.extend(touched.filter(|run| run.len > 0));
    }
    let mut base = Base { used: extents::union(used), ..Base::default() };
    let demand = volume.demand();
    let mut claimed: HashSet<(usize, BlockNo)> = HashSet::new();
    let files = matches.files(images);
    let mut others: HashMap<ObjectId, OlderFile> = volume.older_files().iter().copied().collect();
    others.extend(matches.added.iter().map(|(&object, matched)| (object, matched.file(images))));
    for at in 0..demand.objects() {
        let object = ObjectId::new(at as u32);
        let file = files.get(at).copied().flatten().or_else(|| others.get(&object).copied());
        let Some(file) = file else {
            base.plan.push(Ino::ZERO, [], []);
            continue;
        };
        let old = &images[file.image];
        let map = old.map_of(file.ino)?;
        let attributes = demand.attribute_blocks(object) > 0
            && map.xattr_block.is_some_and(|block| claimed.insert((file.image, block)));
        let units = Units { old: old.image.geometry().block_size, volume };
        let data = map.runs.iter().filter(|_| file.keeps_blocks);
        let data: Vec<Placed> = data.filter_map(|run| units.placed(run)).collect();
        let overhead: Vec<Extent> =
            overhead(&map, attributes).filter_map(|run| units.same(run)).collect();
        let number = if has_inodes { file.ino } else { Ino::ZERO };
        base.plan.push(number, data, overhead);
    }
    Ok(base)
}

/// The places of objects that are no nodes of the source, in the first image.
fn added(images: &[BaseImage], volume: &dyn NewVolume) -> HashMap<ObjectId, Match> {
    let Some(first) = images.first() else { return HashMap::new() };
    let tree = first.source.tree();
    let place = |path: &[u8]| {
        let node = tree.resolve(path)?;
        Some(Match { image: 0, node, keeps_blocks: true })
    };
    let added = volume.added_paths().into_iter();
    added.filter_map(|(path, object)| Some((object, place(&path)?))).collect()
}

/// The units of a new volume in which blocks of an older image lie, by their bytes on the disk.
struct Units<'a> {
    /// Bytes in a block of the older image.
    old: u32,
    volume: &'a dyn NewVolume,
}

impl Units<'_> {
    /// Whole units of a file whose bytes lie as they would lie in units of the new volume.
    fn placed(&self, run: &Mapping) -> Option<Placed> {
        let (old, unit) = (u64::from(self.old), u64::from(self.volume.block_size()));
        let (from, len) = (run.lbn.get() * old, run.extent.len * old);
        let first = from.div_ceil(unit);
        let end = (from + len) / unit;
        let at = run.extent.start.get() * old + (first * unit).checked_sub(from)?;
        let at = at.checked_sub(self.volume.origin().get())?;
        let start = at.is_multiple_of(unit).then(|| BlockNo::new(at / unit))?;
        let len = end.checked_sub(first).filter(|&len| len > 0)?;
        Some(Placed { lbn: Lbn::new(first), extent: Extent::new(start, len) })
    }

    /// Blocks that are units of the new volume, too, or several together are one.
    fn same(&self, run: Extent) -> Option<Extent> {
        let (old, unit) = (u64::from(self.old), u64::from(self.volume.block_size()));
        if old == unit {
            return Some(run);
        }
        let is_one = run.len * old == unit && (run.start.get() * old).is_multiple_of(unit);
        is_one.then(|| Extent::new(BlockNo::new(run.start.get() * old / unit), 1))
    }

    /// All units that the blocks touch.
    fn touched(&self, run: Extent) -> Extent {
        let (old, unit) = (u64::from(self.old), u64::from(self.volume.block_size()));
        let origin = self.volume.origin().get();
        let within = |block: BlockNo| (block.get() * old).max(origin) - origin;
        let start = within(run.start) / unit;
        let end = within(run.end()).div_ceil(unit);
        Extent::new(BlockNo::new(start), end - start)
    }
}

/// Calls `found` with each file and the one of the same path and kind in an older tree, at most
/// once with each of the older ones.
pub(crate) fn by_path(new: &Tree, old: &Tree, mut found: impl FnMut(NodeId, NodeId)) {
    let mut used: HashSet<NodeId> = HashSet::new();
    let mut pending = vec![(NodeId::ROOT, NodeId::ROOT)];
    let mut take = |node: NodeId, own: NodeId| {
        if used.insert(own) {
            found(node, own);
        }
    };
    while let Some((dir, own)) = pending.pop() {
        take(dir, own);
        for entry in new.children(dir) {
            let Some(other) = old.child(own, new.name(entry)) else { continue };
            let (kind, other_kind) = (new.node(entry.node).kind, old.node(other.node).kind);
            match (kind, other_kind) {
                (FileKind::Directory, FileKind::Directory) => {
                    pending.push((entry.node, other.node));
                }
                (kind, other_kind) if kind == other_kind => take(entry.node, other.node),
                _ => {}
            }
        }
    }
}

/// Whether a node is a file that has contents.
fn has_contents(tree: &Tree, node: NodeId) -> bool {
    let node = tree.node(node);
    node.kind == FileKind::Regular && node.size > 0
}

/// Finds files with the same contents among those without a match. Files that `added` objects match
/// are taken.
fn by_contents(
    images: &[BaseImage],
    source: NamedSource<'_>,
    (found, added): (&mut [Option<Match>], &HashMap<ObjectId, Match>),
) -> Result<(), Error> {
    let tree = source.source.tree();
    let fresh: Vec<NodeId> =
        tree.ids().filter(|&id| found[id.index()].is_none() && has_contents(tree, id)).collect();
    let sizes: HashSet<u64> = fresh.iter().map(|&id| tree.node(id).size).collect();
    let used: HashSet<(usize, NodeId)> = (found.iter().flatten())
        .chain(added.values())
        .map(|matched| (matched.image, matched.node))
        .collect();
    let mut by_digest: HashMap<FileDigest, Vec<(usize, NodeId)>> = HashMap::new();
    let mut old_sizes: HashSet<u64> = HashSet::new();
    for (image, old) in images.iter().enumerate() {
        let own = old.source.tree();
        let free: Vec<NodeId> = own
            .ids()
            .filter(|&id| !used.contains(&(image, id)) && has_contents(own, id))
            .filter(|&id| sizes.contains(&own.node(id).size))
            .collect();
        let digests: Vec<FileDigest> =
            free.par_iter().map(|&id| old.digest(id)).collect::<Result<_, Error>>()?;
        for (&id, digest) in free.iter().zip(digests) {
            by_digest.entry(digest).or_default().push((image, id));
            old_sizes.insert(own.node(id).size);
        }
    }
    // The first of several is taken first.
    by_digest.values_mut().for_each(|places| places.reverse());
    let fresh: Vec<NodeId> =
        fresh.into_iter().filter(|&id| old_sizes.contains(&tree.node(id).size)).collect();
    let digests: Vec<FileDigest> =
        fresh.par_iter().map(|&id| source.digest(id)).collect::<Result<_, Error>>()?;
    for (id, digest) in fresh.into_iter().zip(digests) {
        if let Some((image, node)) = by_digest.get_mut(&digest).and_then(Vec::pop) {
            found[id.index()] = Some(Match { image, node, keeps_blocks: true });
        }
    }
    Ok(())
}

/// Decides which files keep the blocks of their contents: those whose contents are partly the same,
/// and those that fit in the blocks they had. All blocks of other files get new places.
fn keep_blocks(
    images: &[BaseImage],
    source: NamedSource<'_>,
    block_size: u32,
    found: &mut [Option<Match>],
) -> Result<(), Error> {
    let tree = source.source.tree();
    let block = u64::from(block_size);
    let decided: Vec<bool> = found
        .par_iter()
        .enumerate()
        .with_min_len(64)
        .map(|(at, matched)| {
            let Some(matched) = matched else { return Ok(false) };
            let (id, old) = (NodeId::new(at as u32), &images[matched.image]);
            let (node, other) = (tree.node(id), old.source.tree().node(matched.node));
            let grown = node.size.div_ceil(block) > other.size.div_ceil(block);
            if node.kind != FileKind::Regular || !grown {
                return Ok(true);
            }
            let len = node.size.min(other.size);
            old.shares_a_block(matched.node, (source, id), (len, block))
        })
        .collect::<Result<_, Error>>()?;
    for (matched, keeps) in found.iter_mut().zip(decided) {
        if let Some(matched) = matched {
            matched.keeps_blocks = keeps;
        }
    }
    Ok(())
}

/// Whether two files have an equal block of `block` bytes at the same place in their first `len`
/// bytes.
fn share_a_block(
    (source, id): (NamedSource<'_>, NodeId),
    (other, own): (NamedSource<'_>, NodeId),
    len: u64,
    block: u64,
) -> Result<bool, Error> {
    let (mut new, mut old) = (source.open(id)?, other.open(own)?);
    let piece = PIECE.max(block);
    let (mut one, mut two) = (vec![0; piece as usize], vec![0; piece as usize]);
    let (mut at, end) = (0, len / block * block);
    while at < end {
        let n = piece.min(end - at) as usize;
        new.read_at(at, &mut one[..n]).map_err(|error| source.about(error))?;
        old.read_at(at, &mut two[..n]).map_err(|error| other.about(error))?;
        let mut blocks = one[..n].chunks(block as usize).zip(two[..n].chunks(block as usize));
        if blocks.any(|(new, old)| new == old) {
            return Ok(true);
        }
        at += n as u64;
    }
    Ok(false)
}

impl List {
    /// As [`share_a_block`], by the digests of the older file's blocks.
    fn shares_a_block(
        &self,
        own: NodeId,
        (source, id): (NamedSource<'_>, NodeId),
        (len, block): (u64, u64),
    ) -> Result<bool, Error> {
        let unit = u64::from(self.digests.unit());
        // Both are powers of two: a block is equal if all units in it are, and a unit has equal
        // blocks only.
        let step = unit.max(block);
        let (mut new, mut old) = (source.open(id)?, self.digests.of_blocks(own));
        let mut piece = vec![0; step as usize];
        for at in (0..len / step).map(|number| number * step) {
            new.read_at(at, &mut piece).map_err(|error| source.about(error))?;
            let mut is_equal = true;
            for unit in piece.chunks(unit as usize) {
                is_equal &= old.next() == Some(of_block(unit));
            }
            if is_equal {
                return Ok(true);
            }
        }
        if step == block || len < block {
            return Ok(false);
        }
        let size = |bytes| format_size(ByteLen::new(bytes));
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the layout list has digests of {} of contents, and blocks of {} are to be \
                 compared: a list of the same image with digests of those is needed",
                size(unit),
                size(block)
            ),
        ))
    }
}

/// A source, and its name in errors.
#[derive(Clone, Copy)]
struct NamedSource<'a> {
    source: &'a dyn Source,
    name: &'a str,
}

impl<'a> NamedSource<'a> {
    fn about(self, error: FsError) -> Error {
        Error::from(error).about(self.name)
    }

    fn open(self, id: NodeId) -> Result<Box<dyn Content + 'a>, Error> {
        self.source.open(id).map_err(|error| self.about(error))
    }

    fn digest(self, id: NodeId) -> Result<FileDigest, Error> {
        let size = self.source.tree().node(id).size;
        let mut content = self.open(id)?;
        of_contents(content.as_mut(), size, 1, |_| {}).map_err(|error| self.about(error))
    }
}
