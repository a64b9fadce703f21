//! Building an image from a tree: the whole layout decided first, then one forward pass.
//!
//! `options`: the caller's options, and permitted losses. `tree`: the tree as objects of the
//! volume. `slots`, `shorts`: the entries of files and their short names. `objects`: objects to be
//! placed. `sizing`: how large an image must be. `table`: a FAT in memory. `write`: the forward
//! pass.
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

pub(crate) mod objects;
mod offset_device;
mod options;
pub(crate) mod shorts;
mod sizing;
pub(crate) mod slots;
pub(crate) mod table;
mod tree;
pub(crate) mod write;

pub use options::{BuildOptions, LossCounts, Losses};

use crate::make::MakeOptions;
use crate::make::encode::{Encoder, ROOT_CLUSTER};
use crate::make::geometry::Geometry;
use crate::make::label;
use crate::time::{EARLIEST, LATEST};
use seekless_device::BlockDevice;
use seekless_fs::plan::{Demand, NewVolume, Plan, Space};
use seekless_fs::source::{Content, Source};
use seekless_fs::tree::Tree;
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
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
        options.check()?;
        let mut content = SourceObjects::new(source, options.losses)?;
        let mut options = options.clone();
        let newest = || source.tree().nodes().iter().map(|node| node.mtime).max();
        options.make.time = options.made.or_else(newest).unwrap_or_default();
        if !options.has_id {
            options.make.id = mark(source.tree(), &options.make);
        }
        let label = label::encode(&options.make.label)?;
        content.objects.front = label_slot(&options.make, label);
        let tree = source.tree();
        let shown = |at: usize| {
            let nodes = tree.nodes().len();
            tree.shown_path(content.nodes[if at < nodes { at } else { 0 }])
        };
        content.objects.check_directories(&shown)?;
        let (make, geometry) = sizing::choose(&options, &mut content.objects)?;
        content.objects.cluster = geometry.cluster_bytes();
        Ok(Self { content, options: make, geometry, label })
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
        space(&self.content.objects, &self.geometry)
    }

    fn block_size(&self) -> u32 {
        self.geometry.cluster_bytes() as u32
    }

    fn size(&self) -> ByteLen {
        self.options.size
    }

    fn clamped_times(&self) -> usize {
        let tree = self.content.source.tree();
        let kept = tree.ids().filter(|id| self.content.objects.all[id.index()].is_kept);
        let clamped = |time: Timestamp| time < EARLIEST || time > LATEST;
        // The root has no times.
        kept.skip(1).filter(|&id| clamped(tree.node(id).mtime)).count()
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
        encoder().head(&mut entries.bytes);
        let (free, last) = writer.body(entries)?;
        encoder().boot(free, last.max(ROOT_CLUSTER), writer.first(0).max(ROOT_CLUSTER))
    }
}

/// The space for objects. A plan's inode numbers are the order of entries here: there are as many
/// as objects.
pub(crate) fn space(objects: &objects::Objects, geometry: &Geometry) -> Space {
    let first = BlockNo::new(blocks(geometry).first);
    Space {
        inodes: vec![(Ino::new(1), objects.objects() as u32)],
        free: vec![Extent::new(first, geometry.clusters.into())],
        tables: Vec::new(),
        inodes_per_block: 1,
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

fn label_slot(options: &MakeOptions, label: Option<[u8; 11]>) -> Vec<u8> {
    let entry = crate::make::encode::label_entry(options, label);
    entry.map(|entry| entry.as_bytes().to_vec()).unwrap_or_default()
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
