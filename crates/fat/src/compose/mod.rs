//! Building an image from a tree: the whole layout decided first, then one forward pass.
//!
//! `options`: the caller's options, and permitted losses. `tree`: the tree as objects of the
//! volume. `slots`, `shorts`: the entries of files and their short names. `objects`: objects to be
//! placed. `sizing`: how large an image must be. `base`: an older volume whose shape a new one has,
//! with `older`, the names in its directories, and `reserved`, its sectors in front of the FATs.
//! `table`: a FAT in memory. `write`: the forward pass.
//!
//! A plan counts clusters. FAT has no inodes: a plan's inode numbers are the order of the entries
//! in their directories.
//!
//! Everything here computes with our own plan, never with bytes of an image; the bounds
//! are ours, so plain indexing and conversion are allowed.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::expect_used,
    reason = "values are of our own making, not an image's"
)]

mod base;
pub(crate) mod objects;
mod offset_device;
mod older;
mod options;
pub(crate) mod reserved;
pub(crate) mod shorts;
mod sizing;
pub(crate) mod slots;
pub(crate) mod table;
mod tree;
pub(crate) mod write;

pub use base::BaseVolume;
pub use options::{BuildOptions, LossCounts, Losses};

use crate::make::MakeOptions;
use crate::make::encode::{Encoder, NO_LABEL, ROOT_CLUSTER, label_entry};
use crate::make::geometry::Geometry;
use crate::make::label;
use crate::time::{EARLIEST, LATEST};
use seekless_device::BlockDevice;
use seekless_fs::extents::difference;
use seekless_fs::plan::{Demand, NewVolume, ObjectId, Plan, Space};
use seekless_fs::source::{Content, Source};
use seekless_fs::tree::{NodeId, OtherTimes, Tree};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
use std::borrow::Cow;
use table::Entries;
use tree::SourceObjects;
use write::{Blocks, Data, ImageWriter};
use zerocopy::IntoBytes;

/// A volume about to be written: its shape is decided, its layout is not.
pub struct Builder<'a> {
    content: SourceObjects<'a>,
    options: MakeOptions,
    geometry: Geometry,
    label: Option<[u8; 11]>,
    /// The older volume whose shape it has.
    base: Option<&'a BaseVolume>,
    /// Whether the number is another one than that of the older volume.
    has_id: bool,
    /// Whether an option says which label it has, or that it has none.
    has_label: bool,
}

impl<'a> Builder<'a> {
    /// Examines a tree and decides the volume's size. An object's number is its node's; further
    /// names of files follow the nodes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options that do not go together; [`FsError::Unsupported`] for a
    /// file that the format cannot store, with a remedy, and for two names that differ in case
    /// only, with both; [`FsError::NoSpace`] when the contents do not fit.
    pub fn new(source: &'a dyn Source, options: &BuildOptions) -> Result<Self, FsError> {
        let mut content = Self::examine(source, options, None)?;
        let mut options = options.clone();
        options.make.time = made(source.tree(), &options);
        if !options.has_id {
            options.make.id = mark(source.tree(), &options.make);
        }
        let label = label::encode(&options.make.label)?;
        let entry = label_entry(&options.make, label);
        content.objects.front = entry.map(|entry| entry.as_bytes().to_vec()).unwrap_or_default();
        content.check_directories()?;
        let (make, geometry) = sizing::choose(&options, &mut content.objects)?;
        content.objects.cluster = geometry.cluster_bytes();
        Ok(Self::with_own_shape(content, make, geometry, label))
    }

    /// A builder of a volume with a shape of its own.
    fn with_own_shape(
        content: SourceObjects<'a>,
        options: MakeOptions,
        geometry: Geometry,
        label: Option<[u8; 11]>,
    ) -> Self {
        Self { content, options, geometry, label, base: None, has_id: true, has_label: true }
    }

    /// As [`Builder::new`], but with the shape of an older volume. Entries of directories keep their
    /// slots and short names. `options` are those of [`BaseVolume::options`], with changes.
    ///
    /// # Errors
    /// As [`Builder::new`], [`FsError::Unsupported`] where the contents or the options need another
    /// shape, [`FsError::Refused`] for a volume of another width, and [`FsError::Invalid`] for one
    /// that would be smaller.
    pub fn on_base(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        base.refuse_width(&options.make)?;
        base.suits(&options.make)?;
        let (mut content, label) = Self::with_names_of(source, options, base)?;
        let (geometry, size) = base.shape(options, &mut content.objects)?;
        content.objects.cluster = geometry.cluster_bytes();
        let make = MakeOptions { size, ..options.make.clone() };
        let (has_id, has_label) = (options.has_id, options.has_label);
        let base = Some(base);
        Ok(Self { content, options: make, geometry, label, base, has_id, has_label })
    }

    /// As [`Builder::new`], but with the number and the label of an older volume. Entries of
    /// directories keep their slots and short names. The shape is that of the options.
    ///
    /// # Errors
    /// As [`Builder::new`].
    pub fn with_marks_of(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        let (mut content, label) = Self::with_names_of(source, options, base)?;
        let label = if options.has_label { label } else { label.or(base.boot_label()) };
        let (make, geometry) = base.with_marks(options, &mut content.objects)?;
        content.objects.cluster = geometry.cluster_bytes();
        Ok(Self::with_own_shape(content, make, geometry, label))
    }

    /// The objects of a source with the slots and short names of an older volume, and the label if
    /// it is another one.
    fn with_names_of(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: &'a BaseVolume,
    ) -> Result<(SourceObjects<'a>, Option<[u8; 11]>), FsError> {
        let mut content = Self::examine(source, options, Some(base))?;
        let label = label::encode(&options.make.label)?;
        let time = made(source.tree(), options);
        let make = MakeOptions { time, ..options.make.clone() };
        let entry = label_entry(&make, label);
        base.place_label(&mut content.objects, entry, options.has_label);
        for at in 0..content.objects.all.len() {
            content.objects.fill_holes(at);
        }
        content.check_directories()?;
        Ok((content, label))
    }

    fn examine(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: Option<&'a BaseVolume>,
    ) -> Result<SourceObjects<'a>, FsError> {
        options.check()?;
        SourceObjects::new(source, options.losses, base)
    }

    /// The attributes that were lost.
    #[must_use]
    pub fn lost(&self) -> LossCounts {
        self.content.lost
    }

    /// The number of clusters, if systems that go by it take the volume for one of another width: a
    /// FAT32 volume with fewer than 65,525.
    #[must_use]
    pub fn ambiguous_clusters(&self) -> Option<u32> {
        let (width, clusters) = (self.geometry.width, self.geometry.clusters);
        let made = crate::make::MadeVolume { clusters, format: width.name() };
        made.is_ambiguous().then_some(clusters)
    }
}

impl NewVolume for Builder<'_> {
    fn demand(&self) -> &dyn Demand {
        &self.content.objects
    }

    fn space(&self) -> Space {
        let bad = self.base.map_or(&[][..], BaseVolume::bad);
        space(&self.content.objects, &self.geometry, bad)
    }

    fn block_size(&self) -> u32 {
        self.geometry.cluster_bytes() as u32
    }

    fn origin(&self) -> ByteLen {
        blocks(&self.geometry).origin()
    }

    fn size(&self) -> ByteLen {
        self.options.size
    }

    fn added_paths(&self) -> Vec<(Cow<'_, [u8]>, ObjectId)> {
        let nodes = self.content.source.tree().nodes().len() as u32;
        let paths = self.content.further.iter().map(|path| Cow::Borrowed(&path[..]));
        paths.zip((nodes..).map(ObjectId::new)).collect()
    }

    fn clamped_times(&self) -> usize {
        let tree = self.content.source.tree();
        let kept = tree.ids().filter(|id| self.content.objects.all[id.index()].is_kept);
        let clamped = |time: Timestamp| time < EARLIEST || time > LATEST;
        // The root has no times.
        let is_clamped = |&id: &NodeId| {
            let node = tree.node(id);
            let OtherTimes { atime, crtime, .. } = tree.other_times(node);
            [node.mtime, atime, crtime].into_iter().any(clamped)
        };
        kept.skip(1).filter(is_clamped).count()
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        let (geometry, options) = (&self.geometry, &self.options);
        let encoder = || Encoder { geometry, options, label: self.label, device };
        let writer = ImageWriter {
            objects: &self.content.objects,
            encoder: encoder(),
            blocks: blocks(geometry),
            plan,
            data: &self.content,
            progress,
        };
        let mut entries = Entries::new(geometry.width, geometry.clusters);
        match self.base {
            Some(base) => base.mark(&mut entries)?,
            None => encoder().head(&mut entries.bytes),
        }
        let (free, last) = writer.body(entries)?;
        let (hint, root) = (last.max(ROOT_CLUSTER), writer.first(0).max(ROOT_CLUSTER));
        let Some(base) = self.base else { return encoder().boot(free, hint, root) };
        let mut reserved = base.reserved(geometry, options.hidden);
        reserved.set_root(root);
        if self.has_id {
            reserved.set_id(options.id);
        }
        if self.label.is_some() || self.has_label {
            reserved.set_label(self.label.as_ref().unwrap_or(&NO_LABEL));
        }
        reserved.write(&encoder(), free, hint)
    }
}

/// The time of creation: the newest time in the tree by default.
fn made(tree: &Tree, options: &BuildOptions) -> Timestamp {
    let newest = || tree.nodes().iter().map(|node| node.mtime).max();
    options.made.or_else(newest).unwrap_or_default()
}

/// The space for objects: all clusters but bad ones. A plan's inode numbers are the order of entries
/// here: there are as many as objects.
pub(crate) fn space(objects: &objects::Objects, geometry: &Geometry, bad: &[u32]) -> Space {
    let first = blocks(geometry).first;
    let all = Extent::new(BlockNo::new(first), geometry.clusters.into());
    debug_assert!(bad.is_sorted(), "bad clusters are found in order");
    let bad = bad.iter().map(|&cluster| Extent::new(all.start + (u64::from(cluster) - 2), 1));
    let bad: Vec<Extent> = bad.collect();
    Space {
        inodes: vec![(Ino::new(1), objects.objects() as u32)],
        free: difference(&[all], &bad),
        tables: Vec::new(),
        inodes_per_block: 1,
        counts_unused: false,
    }
}

pub(crate) fn blocks(geometry: &Geometry) -> Blocks {
    Blocks::new(geometry.byte_of(geometry.first_data()), geometry.cluster_bytes())
}

impl Data for SourceObjects<'_> {
    fn read(&self, object: usize, offset: u64, out: &mut [u8]) -> Result<(), FsError> {
        let mut content = self.source.open(self.nodes[object])?;
        content.read_at(offset, out)?;
        // Each part of a file must be of the version that was walked, so that all are of one.
        content.verify()
    }

    fn open(&self, object: usize) -> Result<Box<dyn Content + '_>, FsError> {
        self.source.open(self.nodes[object])
    }
}

/// A number from names, sizes and times of the whole tree: the same tree gives the same
/// volume, another tree another one (FNV-1a).
fn mark(tree: &Tree, options: &MakeOptions) -> u32 {
    let mut mark = 0xCBF2_9CE4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            mark = (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    };
    add(&options.label);
    for id in tree.ids() {
        let node = tree.node(id);
        add(&node.size.to_le_bytes());
        add(&node.mtime.secs.to_le_bytes());
        tree.children(id).iter().for_each(|entry| add(tree.name(entry)));
    }
    (mark >> 32) as u32 ^ mark as u32
}
