//! An older image as the base of a new one: the files of both keep their inode numbers and blocks.
//!
//! Files are the same if they have the same path and kind, or, of those left, the same contents.
//! Android's images are built on the last release in this way (`base_fs` of e2fsdroid).

use crate::freed::{self, Copying, Freed};
use crate::rearrange::{E2FSCK, refused};
use crate::write::{Destination, write_error, write_volume_over};
use crate::wrong;
use rayon::prelude::*;
use seekless_device::BlockDevice;
use seekless_ext::{BaseVolume, BuildOptions, Builder, ExtImage};
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::{Base, NewVolume, ObjectId, Placed, Plan};
use seekless_fs::source::{Content, Source};
use seekless_fs::tree::{NodeId, Tree};
use seekless_fs::{BlockMap, FileKind, FsError, Inspect, Mapping};
use seekless_images::{Error, Place, Progress, in_use, refuse_others};
use seekless_layout::planner::moves::{Moves, move_touched};
use seekless_layout::planner::{self, Touch};
use seekless_source::{ImageSource, TreeOptions};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lbn};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// How often a volume grows by a 64th for longer maps.
const GROWTHS: u32 = 8;

/// Bytes compared at once.
const PIECE: u64 = 256 << 10;

/// An older image, open.
pub struct BaseImage {
    path: PathBuf,
    /// The path, as messages show it.
    name: String,
    device: Arc<dyn BlockDevice>,
    image: Arc<dyn Inspect>,
    source: ImageSource,
    /// By node of `source`.
    inodes: Vec<Ino>,
}

/// Older ext images, on which a new one is built: its shape is that of the first.
pub struct ExtBases {
    volume: BaseVolume,
    images: Vec<BaseImage>,
}

impl ExtBases {
    /// Opens images; `None` without any.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](seekless_images::ErrorKind) for an image that is damaged,
    /// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for one of another format; as
    /// [`seekless_images::open`].
    pub fn open(
        paths: &[PathBuf],
        place: &Place,
        options: OpenOptions,
    ) -> Result<Option<Self>, Error> {
        let (mut volume, mut images) = (None, Vec::new());
        for path in paths {
            let about = |error: FsError| Error::from(error).about(path.display());
            in_use::refuse(path)?;
            let device = seekless_images::device(path, place)?;
            let only = "an ext image is built on the base of ext images";
            refuse_others(path, device.as_ref(), &[seekless_ext::FORMAT], only)?;
            let image = Arc::new(ExtImage::open(device.clone(), options).map_err(about)?);
            if volume.is_none() {
                let first = BaseVolume::new(image.clone());
                volume = Some(first.map_err(|error| refused(error, path, E2FSCK))?);
            } else {
                image.refuse_damage().map_err(|error| refused(error, path, E2FSCK))?;
            }
            images.push(BaseImage::new(path, (device, image)).map_err(about)?);
        }
        Ok(volume.map(|volume| Self { volume, images }))
    }

    /// A volume with the files of a source, which has a name for errors, and its layout. Without a
    /// requested size it grows where places that are kept make maps longer. `touches` are those of
    /// the traces, by `align` blocks.
    ///
    /// # Errors
    /// As [`Builder::on_base`] and [`planner::plan_on`], and errors of the images.
    pub fn plan<'a>(
        &'a self,
        (source, name): (&'a dyn Source, &str),
        (options, likeness): (&BuildOptions, Likeness),
        touches: impl Fn(&Builder<'a>) -> Vec<Touch>,
        align: u64,
    ) -> Result<PlannedVolume<'a>, Error> {
        let about = |error: FsError| wrong(error).about(name);
        let mut options = options.clone();
        let mut tries = 0..GROWTHS;
        loop {
            let (builder, has_its_shape) =
                self.builder(source, &options, likeness.is_strict).map_err(about)?;
            let (mut base, taken) = layout(&self.images, (source, name), &builder)?;
            // In another shape, free blocks could look like metadata of the older one.
            base.keeps_freed = has_its_shape && likeness.freed == Freed::Keep;
            let (demand, space) = (builder.demand(), builder.space());
            let touches = touches(&builder);
            let block_size = u64::from(builder.block_size());
            let budget = likeness.move_budget.get() / block_size;
            let moves = if budget == 0 {
                Moves::default()
            } else {
                let (rest, moves) = move_touched(base, demand, &space, &touches, budget);
                base = rest;
                moves
            };
            match planner::plan_on(&base, demand, &space, &touches, align) {
                Ok(plan) => {
                    let moved = Moved {
                        bytes: ByteLen::new(moves.blocks * block_size),
                        chunks: moves.chunks(&plan, align),
                        pieces_before: moves.pieces_before,
                        pieces_after: moves.pieces_after,
                    };
                    let residue = self.images.first().filter(|_| base.keeps_freed);
                    return Ok(PlannedVolume { volume: builder, plan, taken, moved, residue });
                }
                Err(FsError::NoSpace(_)) if options.size.is_none() && tries.next().is_some() => {
                    let more = options.spare.bytes.get() + builder.size().get() / 64;
                    options.spare.bytes = ByteLen::new(more);
                }
                Err(error) => return Err(about(error)),
            }
        }
    }

    fn builder<'a>(
        &'a self,
        source: &'a dyn Source,
        options: &BuildOptions,
        is_strict: bool,
    ) -> Result<(Builder<'a>, bool), FsError> {
        match Builder::on_base(source, options, &self.volume) {
            Err(FsError::Unsupported(why)) if !is_strict => {
                warn!("{why}: the new volume has a shape of its own");
                let builder = Builder::with_marks_of(source, options, &self.volume)?;
                Ok((builder, false))
            }
            builder => Ok((builder?, true)),
        }
    }

    /// The volume whose shape is taken.
    #[must_use]
    pub fn volume(&self) -> &BaseVolume {
        &self.volume
    }

    /// All images, in order.
    #[must_use]
    pub fn images(&self) -> &[BaseImage] {
        &self.images
    }
}

/// How far a volume is like the older one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Likeness {
    /// Whether a volume is an error that cannot have the shape of the older one. Else it has a
    /// shape of its own, with a warning, and its free blocks are zeros.
    pub is_strict: bool,
    /// The blocks of files that were replaced or removed.
    pub freed: Freed,
    /// Bytes of contents that traces read which may leave their places, so that they lie in the
    /// order in which they are read.
    pub move_budget: ByteLen,
}

/// A volume on the base of an older one, and its layout.
pub struct PlannedVolume<'a> {
    volume: Builder<'a>,
    plan: Plan,
    taken: Taken,
    moved: Moved,
    /// The image whose bytes the free blocks have.
    residue: Option<&'a BaseImage>,
}

impl PlannedVolume<'_> {
    /// How many files have a place in the older volume.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// The blocks that left their places for the traces.
    #[must_use]
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Writes the volume, and returns its length. `source` names the source in errors.
    ///
    /// # Errors
    /// Errors of the source, of the older image, and of the device.
    pub fn write(
        &self,
        source: &str,
        place: Destination<'_>,
        progress: &dyn Progress,
    ) -> Result<ByteLen, Error> {
        let (volume, plan) = (&self.volume, &self.plan);
        write_volume_over((volume, plan), &source, place, progress, |device| {
            let Some(old) = self.residue else { return Ok(()) };
            let free = freed::free_blocks(volume, plan);
            let copied = freed::copy(old.device.as_ref(), (&free, volume.block_size()), device);
            copied.map_err(|error| match error {
                Copying::Read(error) => old.about(error.into()),
                Copying::Write(error) => write_error(error.into(), &source, place),
            })
        })
    }
}

/// The blocks that left their places in an older volume for the order of traces, and the gain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Bytes of contents and directories.
    pub bytes: ByteLen,
    /// Chunks in which they lie now.
    pub chunks: u64,
    /// Pieces in which the blocks that traces read would lie if none moved.
    pub pieces_before: u64,
    /// Pieces in which they lie.
    pub pieces_after: u64,
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
    fn new(
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
        Ok(Self { path: path.to_path_buf(), name, device, image, source, inodes })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn map(&self, node: NodeId) -> Result<BlockMap, Error> {
        self.image.block_map(self.inodes[node.index()]).map_err(|error| self.about(error))
    }

    fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.path.display())
    }

    fn named(&self) -> NamedSource<'_> {
        NamedSource { source: &self.source, name: &self.name }
    }

    /// The blocks of each file.
    fn used(&self) -> Result<Vec<Extent>, Error> {
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

/// The layout of older images, for the objects of a new volume with the files of `source`, which
/// has a name for errors. Of several images that have a file, the first counts.
///
/// # Errors
/// The errors of the images and of the source, for files whose contents are compared.
pub fn layout(
    images: &[BaseImage],
    (source, name): (&dyn Source, &str),
    volume: &dyn NewVolume,
) -> Result<(Base, Taken), Error> {
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
    by_contents(images, source, &mut found)?;
    let same_contents = found.iter().flatten().count() as u64 - same_path;
    let taken = Taken { files: tree.nodes().len() as u64, same_path, same_contents };
    keep_blocks(images, source, volume.block_size(), &mut found)?;
    let mut base = Base::default();
    for old in images {
        let units = Units { old: old.image.geometry().block_size, volume };
        base.used.extend(old.used()?.into_iter().map(|run| units.touched(run)));
    }
    base.used.sort_unstable();
    base.used.dedup_by(|later, earlier| {
        let meet = later.start <= earlier.end();
        if meet {
            let end = later.end().max(earlier.end());
            earlier.len = end - earlier.start;
        }
        meet
    });
    let demand = volume.demand();
    let mut added: HashMap<ObjectId, Match> = HashMap::new();
    for (path, object) in volume.added_paths() {
        let node = images.first().and_then(|image| image.source.tree().resolve(path));
        if let Some(node) = node {
            added.insert(object, Match { image: 0, node, keeps_blocks: true });
        }
    }
    let mut claimed: HashSet<(usize, BlockNo)> = HashSet::new();
    for at in 0..demand.objects() {
        let object = ObjectId::new(at as u32);
        let matched = found.get(at).copied().flatten().or_else(|| added.get(&object).copied());
        let Some(matched) = matched else {
            base.plan.push(Ino::ZERO, [], []);
            continue;
        };
        let old = &images[matched.image];
        let map = old.map(matched.node)?;
        let attributes = demand.attribute_blocks(object) > 0
            && map.xattr_block.is_some_and(|block| claimed.insert((matched.image, block)));
        let units = Units { old: old.image.geometry().block_size, volume };
        let data = map.runs.iter().filter(|_| matched.keeps_blocks);
        let data: Vec<Placed> = data.filter_map(|run| units.placed(run)).collect();
        let overhead: Vec<Extent> =
            overhead(&map, attributes).filter_map(|run| units.same(run)).collect();
        base.plan.push(old.inodes[matched.node.index()], data, overhead);
    }
    Ok((base, taken))
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
        let start = self.volume.unit_at(ByteLen::new(at))?;
        let len = end.checked_sub(first).filter(|&len| len > 0)?;
        Some(Placed { lbn: Lbn::new(first), extent: Extent::new(start, len) })
    }

    /// Blocks that are units of the new volume, too.
    fn same(&self, run: Extent) -> Option<Extent> {
        (self.old == self.volume.block_size()).then_some(run)
    }

    /// All units that the blocks touch.
    fn touched(&self, run: Extent) -> Extent {
        let (old, unit) = (u64::from(self.old), u64::from(self.volume.block_size()));
        let start = run.start.get() * old / unit;
        let end = (run.end().get() * old).div_ceil(unit);
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

/// Finds files with the same contents among those without a match.
fn by_contents(
    images: &[BaseImage],
    source: NamedSource<'_>,
    found: &mut [Option<Match>],
) -> Result<(), Error> {
    let tree = source.source.tree();
    let left = |tree: &Tree, node: NodeId| {
        let node = tree.node(node);
        node.kind == FileKind::Regular && node.size > 0
    };
    let fresh: Vec<NodeId> =
        tree.ids().filter(|&id| found[id.index()].is_none() && left(tree, id)).collect();
    let sizes: HashSet<u64> = fresh.iter().map(|&id| tree.node(id).size).collect();
    let used: HashSet<(usize, NodeId)> =
        found.iter().flatten().map(|matched| (matched.image, matched.node)).collect();
    let mut by_digest: HashMap<[u8; 32], Vec<(usize, NodeId)>> = HashMap::new();
    let mut old_sizes: HashSet<u64> = HashSet::new();
    for (image, old) in images.iter().enumerate() {
        let own = old.source.tree();
        let free: Vec<NodeId> = own
            .ids()
            .filter(|&id| !used.contains(&(image, id)) && left(own, id))
            .filter(|&id| sizes.contains(&own.node(id).size))
            .collect();
        let digests: Vec<[u8; 32]> =
            free.par_iter().map(|&id| old.named().digest(id)).collect::<Result<_, Error>>()?;
        for (&id, digest) in free.iter().zip(digests) {
            by_digest.entry(digest).or_default().push((image, id));
            old_sizes.insert(own.node(id).size);
        }
    }
    // The first of several is taken first.
    by_digest.values_mut().for_each(|places| places.reverse());
    let fresh: Vec<NodeId> =
        fresh.into_iter().filter(|&id| old_sizes.contains(&tree.node(id).size)).collect();
    let digests: Vec<[u8; 32]> =
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
            share_a_block((source, id), (old.named(), matched.node), len, block)
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

    fn digest(self, id: NodeId) -> Result<[u8; 32], Error> {
        let size = self.source.tree().node(id).size;
        let mut content = self.open(id)?;
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE.min(size) as usize];
        let mut at = 0;
        while at < size {
            let n = PIECE.min(size - at) as usize;
            content.read_at(at, &mut piece[..n]).map_err(|error| self.about(error))?;
            hash.update(&piece[..n]);
            at += n as u64;
        }
        Ok(hash.finalize().into())
    }
}
