//! Building an image from a tree: the whole layout decided first, then one
//! forward pass.
//!
//! `options`: the caller's options. `demand`: objects to be placed. `tails`: which files' last
//! fragments share a block. `directory`: directories as units of 512 bytes. `attributes`: extended
//! attributes as an area of an inode's own. `map`: indirect blocks. `inode`: inodes. `sizing`: how
//! large an image must be. `base`: an older volume whose shape and metadata a new one has, with
//! `older`, the places of last fragments and entries. `write`: the forward pass.
//!
//! A plan counts whole blocks. Fragments come in through `tails`: the block that
//! several files' last fragments share belongs to one of them, which the plan
//! places like any other of its blocks.
//!
//! Everything here computes with our own plan, never with bytes of an image;
//! the bounds are ours, so plain indexing and conversion are allowed.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::expect_used,
    reason = "values are of our own making, not an image's"
)]

mod attributes;
mod base;
mod demand;
mod directory;
mod inode;
mod map;
mod older;
mod options;
mod sizing;
mod tails;
mod write;

pub use base::BaseVolume;
pub(crate) use map::indirect_blocks;
pub use options::BuildOptions;

use crate::checksum::crc32c;
use crate::image::FfsImage;
use crate::make::MakeOptions;
use crate::make::geometry::Geometry;
use crate::make::group::GroupBuilder;
use demand::TreeDemand;
use older::OlderFiles;
use seekless_device::BlockDevice;
use seekless_fs::plan::{Demand, InodeTable, NewVolume, ObjectId, OlderFile, Plan, Run, Space};
use seekless_fs::source::Source;
use seekless_fs::tree::{Node, OtherTimes, Tree};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
use std::sync::Arc;
use tails::{Holes, Home};

/// Inodes without a file, and the root.
const RESERVED: u32 = 3;

/// A volume about to be written: its shape is decided, its layout is not.
pub struct Builder<'a> {
    demand: TreeDemand<'a>,
    options: MakeOptions,
    geometry: Geometry,
    /// The older volume whose shape it has.
    base: Option<&'a BaseVolume>,
    /// The options of the caller.
    wanted: BuildOptions,
    /// The inodes of the first older volume that files continue, by node; 0 without one.
    older_inodes: Vec<u32>,
}

impl<'a> Builder<'a> {
    /// Examines a tree and decides the volume's size. `hot` are the objects
    /// whose blocks a trace touched, in order of first touch: their last
    /// fragments lie together. An object's number is its node's.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options that do not go together; [`FsError::Unsupported`] for a
    /// file that the format cannot store, with a remedy; [`FsError::NoSpace`] when the contents do
    /// not fit; errors of the source for files it cannot examine.
    pub fn new(
        source: &'a dyn Source,
        options: &BuildOptions,
        hot: &[ObjectId],
    ) -> Result<Self, FsError> {
        options.check()?;
        let demand = TreeDemand::new(source, options, hot)?;
        let wanted = options.clone();
        let mut options = options.clone();
        let newest = || source.tree().nodes().iter().map(|node| node.mtime).max();
        let made = options.made.or_else(newest).unwrap_or_default();
        options.make.time = Timestamp { secs: made.secs.max(0), nanos: 0 };
        options.make.id = [options.make.time.secs as u32, mark(source.tree(), &options.make)];
        let mut make = sizing::choose(&options, &demand)?;
        let geometry = Geometry::new(&make)?;
        if options.is_fitted {
            // A last group that is too small is left out.
            make.size = ByteLen::new(geometry.size * u64::from(geometry.fsize));
        }
        let taken = geometry.size * u64::from(geometry.fsize);
        debug_assert!(taken <= make.size.get(), "it takes no more than its size");
        let (base, older_inodes) = (None, Vec::new());
        Ok(Self { demand, options: make, geometry, base, wanted, older_inodes })
    }

    /// As [`Builder::new`], but with the shape, the settings and the metadata of an older volume.
    /// `options` are those of [`BaseVolume::options`], with changes.
    ///
    /// # Errors
    /// As [`Builder::new`], [`FsError::Unsupported`] where the contents or the options need another
    /// shape, [`FsError::Refused`] for another format or byte order, and [`FsError::Invalid`] for a
    /// volume that would be smaller.
    pub fn on_base(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        options.check()?;
        base.refuse_format(&options.make)?;
        base.suits(&options.make)?;
        let demand = TreeDemand::new(source, options, &[])?;
        let (geometry, size) = base.shape(options, &demand)?;
        let make = MakeOptions { size, id: base.id(), ..options.make.clone() };
        let (wanted, older_inodes) = (options.clone(), Vec::new());
        Ok(Self { demand, options: make, geometry, base: Some(base), wanted, older_inodes })
    }

    /// As [`Builder::new`], but with the identifier of an older volume. The shape is that of the
    /// options.
    ///
    /// # Errors
    /// As [`Builder::new`].
    pub fn with_marks_of(
        source: &'a dyn Source,
        options: &BuildOptions,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        let mut builder = Self::new(source, &base.marks(options), &[])?;
        builder.options.id = base.id();
        Ok(builder)
    }

    /// Lets files keep their last fragments where those lie in older volumes, and directories the
    /// places of their entries. `files` says which file of which volume each node continues.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] where the contents need another shape then; errors of the source
    /// and of the older volumes.
    pub fn continue_files(
        &mut self,
        (images, files): (&[Arc<FfsImage>], &[Option<OlderFile>]),
        hot: &[ObjectId],
        keeps_freed: bool,
    ) -> Result<(), FsError> {
        let older = OlderFiles::new(images, files);
        self.demand.keep_directories(&|id| older.places(id))?;
        self.older_inodes = older.numbers();
        // Free fragments are used if the volume is too small otherwise.
        for fills_all in [false, true] {
            let (tails, mut holes) = older.fixed(&self.demand, &self.geometry, fills_all)?;
            if keeps_freed && !fills_all {
                // A chunk in which nothing is written stays equal.
                holes = Holes::default();
            }
            self.demand.pack_around(tails, &mut holes, hot)?;
            let Some(base) = self.base else { return Ok(()) };
            match base.shape(&self.wanted, &self.demand) {
                Ok((geometry, size)) if fills_all || !base.is_exceeded_by(&geometry) => {
                    (self.geometry, self.options.size) = (geometry, size);
                    return Ok(());
                }
                Err(error) if fills_all || !matches!(error, FsError::Unsupported(_)) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The groups with nothing but metadata and fixed pieces.
    fn empty_groups(&self) -> Vec<GroupBuilder> {
        let g = &self.geometry;
        let mut groups: Vec<GroupBuilder> = sizing::empty_groups(g).collect();
        let frag = u64::from(g.frag);
        for block in self.demand.tails.fixed_blocks() {
            let start = block.get() * frag;
            let group = &mut groups[(start / u64::from(g.fpg)) as usize];
            for at in (start..start + frag).filter(|&at| g.is_data(at)) {
                group.take_frags(at % u64::from(g.fpg), 1);
            }
        }
        groups
    }
}

impl NewVolume for Builder<'_> {
    fn demand(&self) -> &dyn Demand {
        &self.demand
    }

    fn space(&self) -> Space {
        let g = &self.geometry;
        let frag = u64::from(g.frag);
        let mut free: Vec<Extent> = Vec::new();
        for group in self.empty_groups() {
            let base = g.in_group(group.number, 0) / frag;
            for run in group.free_blocks(g.frag) {
                let run = Extent::new(BlockNo::new(base + run.start), run.end - run.start);
                let in_order = free.last().is_none_or(|last| last.end() <= run.start);
                debug_assert!(in_order, "free runs are found in order");
                match free.last_mut() {
                    Some(last) if last.end() == run.start => last.len += run.len,
                    _ => free.push(run),
                }
            }
        }
        let tables = (0..g.ncg)
            .map(|group| InodeTable {
                first: Ino::new(group * g.ipg),
                count: g.ipg,
                blocks: Extent::new(
                    BlockNo::new(g.in_group(group, g.iblkno) / frag),
                    u64::from(g.dblkno - g.iblkno) / frag,
                ),
                group: Extent::new(
                    BlockNo::new(g.in_group(group, 0) / frag),
                    g.group_frags(group) / frag,
                ),
            })
            .collect();
        Space {
            inodes: vec![(Ino::new(RESERVED), g.ncg * g.ipg - RESERVED)],
            free,
            tables,
            inodes_per_block: g.bsize / g.inode_size(),
            counts_unused: false,
        }
    }

    fn block_size(&self) -> u32 {
        self.geometry.bsize
    }

    fn size(&self) -> ByteLen {
        self.options.size
    }

    fn clamped_times(&self) -> usize {
        let tree = self.demand.tree;
        let clamped = |time| inode::storable(time, self.geometry.version) != time;
        let is_clamped = |node: &&Node| {
            let OtherTimes { atime, ctime, .. } = tree.other_times(node);
            [node.mtime, atime, ctime].into_iter().any(clamped)
        };
        tree.nodes().iter().filter(is_clamped).count()
    }

    fn shared_block(&self, object: ObjectId, run: Run) -> Option<(ObjectId, Run)> {
        let tail = self.demand.tails.of(object)?;
        let end = run.lbn.get() + run.len;
        let within = run.lbn.get() <= tail.own_lbn && tail.own_lbn < end;
        match tail.home {
            Home::Owned(owner, lbn) if within && owner != object => {
                Some((owner, Run { lbn, len: 1 }))
            }
            _ => None,
        }
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        let (demand, geometry, options) = (&self.demand, &self.geometry, &self.options);
        let base = self.base.map(|base| base.metadata(geometry, options));
        let older_inodes = &self.older_inodes;
        write::Writer { demand, geometry, options, plan, device, progress, base, older_inodes }
            .run()
    }

    fn free_parts(&self) -> Vec<(ByteLen, ByteLen)> {
        let bytes = |frags: u64| ByteLen::new(frags * u64::from(self.geometry.fsize));
        let parts = older::free_in_fixed(&self.demand, &self.geometry).into_iter();
        parts.map(|(start, len)| (bytes(start), bytes(len))).collect()
    }
}

/// A number from names, sizes and times of the whole tree: the same tree gives
/// the same volume, another tree another one.
fn mark(tree: &Tree, options: &MakeOptions) -> u32 {
    let mut bytes = options.block_size.to_le_bytes().to_vec();
    bytes.extend_from_slice(&options.label);
    for id in tree.ids() {
        let node = tree.node(id);
        bytes.extend_from_slice(&node.size.to_le_bytes());
        bytes.extend_from_slice(&node.mtime.secs.to_le_bytes());
        bytes.extend_from_slice(&[node.uid.to_le_bytes(), node.gid.to_le_bytes()].concat());
        tree.children(id).iter().for_each(|entry| bytes.extend_from_slice(tree.name(entry)));
    }
    crc32c(&bytes)
}

/// Takes a group's fixed parts besides its metadata.
fn take_fixed(geometry: &Geometry, group: &mut GroupBuilder) {
    if group.number == 0 {
        group.take_inodes(RESERVED);
    }
    let area = geometry.summaries();
    let start = u64::from(group.number) * u64::from(geometry.fpg);
    let end = start + geometry.group_frags(group.number);
    let (from, to) = (area.start.get().max(start), area.end().get().min(end));
    if from < to {
        group.take_frags(from - start, to - from);
    }
}
