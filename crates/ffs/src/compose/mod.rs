//! Building an image from a tree: the whole layout decided first, then one
//! forward pass.
//!
//! `options`: the caller's options. `demand`: objects to be placed. `tails`: which files' last
//! fragments share a block. `directory`: directories as units of 512 bytes. `attributes`: extended
//! attributes as an area of an inode's own. `map`: indirect blocks. `inode`: inodes. `sizing`: how
//! large an image must be. `write`: the forward pass.
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
mod demand;
mod directory;
mod inode;
mod map;
mod options;
mod sizing;
mod tails;
mod write;

pub use options::BuildOptions;

use crate::checksum::crc32c;
use crate::make::MakeOptions;
use crate::make::geometry::Geometry;
use crate::make::group::GroupBuilder;
use demand::TreeDemand;
use seekless_device::BlockDevice;
use seekless_fs::plan::{Demand, InodeTable, NewVolume, ObjectId, Plan, Run, Space};
use seekless_fs::source::Source;
use seekless_fs::tree::Tree;
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};

/// Inodes without a file, and the root.
const RESERVED: u32 = 3;

/// A volume about to be written: its shape is decided, its layout is not.
pub struct Builder<'a> {
    demand: TreeDemand<'a>,
    options: MakeOptions,
    geometry: Geometry,
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
        Ok(Self { demand, options: make, geometry })
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
        for group in sizing::empty_groups(g) {
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
        }
    }

    fn block_size(&self) -> u32 {
        self.geometry.bsize
    }

    fn size(&self) -> ByteLen {
        self.options.size
    }

    fn clamped_times(&self) -> usize {
        let clamped = |time| inode::storable(time, self.geometry.version) != time;
        self.demand.tree.nodes().iter().filter(|node| clamped(node.mtime)).count()
    }

    fn shared_block(&self, object: ObjectId, run: Run) -> Option<(ObjectId, Run)> {
        let tail = self.demand.tails.of(object)?;
        let end = run.lbn.get() + run.len;
        let within = run.lbn.get() <= tail.own_lbn && tail.own_lbn < end;
        (within && tail.owner != object).then_some((tail.owner, Run { lbn: tail.lbn, len: 1 }))
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        let (demand, geometry, options) = (&self.demand, &self.geometry, &self.options);
        write::Writer { demand, geometry, options, plan, device, progress }.run()
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
        group.take_frags(u64::from(geometry.dblkno), geometry.summary_frags());
        group.take_inodes(RESERVED);
    }
}
