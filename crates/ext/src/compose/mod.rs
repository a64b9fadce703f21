//! Building an image: the whole layout decided first, then one forward pass.
//!
//! - [`options`]: the caller's options
//! - [`base`]: an older volume, whose shape and marks a new one has
//! - [`geometry`]: groups and fixed metadata; how large an image must be
//! - [`demand`]: objects to be placed
//! - [`attributes`]: extended attributes in inode, block and inodes of their own
//! - [`inodes`]: inode records
//! - [`older`]: the names of directories and the values of attributes in older volumes
//! - [`fixed`]: journal, resize inode, orphan file
//! - [`write`]: the forward pass
//!
//! Everything here computes with our own plan, never with bytes of an image;
//! the bounds are ours, so plain indexing and conversion are allowed.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own making, not an image's"
)]

pub(crate) mod attributes;
pub(crate) mod base;
pub(crate) mod demand;
pub(crate) mod fixed;
pub(crate) mod geometry;
pub(crate) mod inodes;
pub(crate) mod older;
pub(crate) mod options;
pub(crate) mod shape;
pub(crate) mod summary;
pub(crate) mod write;

use crate::checksum::crc32c;
use crate::encode::dirblocks::DirFormat;
use crate::image::ExtImage;
use crate::ondisk::{hash_version, incompat, ro_compat, special};
use base::BaseVolume;
use demand::TreeDemand;
use fixed::Fixed;
use geometry::{Geometry, Need};
use options::Options;
use seekless_device::BlockDevice;
use seekless_fs::plan::{Demand, InodeTable, NewVolume, ObjectId, OlderFile, Plan, Space};
use seekless_fs::source::Source;
use seekless_fs::tree::{Node, OtherTimes, Tree};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
use sha2::{Digest, Sha256};
use shape::Shape;
use std::borrow::Cow;
use std::sync::Arc;
use summary::Identity;

/// A volume about to be written: its shape is decided, its layout is not.
pub struct Builder<'a> {
    demand: TreeDemand<'a>,
    geometry: Geometry,
    identity: Identity,
    fixed: Fixed,
    orphan_ino: Ino,
    copies: CopyCounts<'a>,
    /// The older volume in whose places its own files are, if there is one.
    base: Option<&'a BaseVolume>,
    /// The options from which its shape follows.
    wanted: Options,
    /// The files of older volumes that values of attributes continue.
    older_values: Vec<(ObjectId, OlderFile)>,
}

/// The counts in copies of the superblock and of the descriptors.
#[derive(Clone, Copy)]
pub(crate) enum CopyCounts<'a> {
    /// Those of the primary ones.
    Current,
    /// Those of the older volume whose shape it has.
    Of(&'a BaseVolume),
    /// Those of a volume without files.
    Empty,
}

/// The marks of a volume that begins with the same files as others: UUID, seeds, and time of
/// creation.
pub struct CommonMarks(Identity);

impl CommonMarks {
    /// The marks of a volume with the files of a source alone. With `metadata_csum_seed`, a UUID
    /// of the options changes no seed.
    #[must_use]
    pub fn new(first: &dyn Source, options: &Options) -> Self {
        if !options.features.has_incompat(incompat::CSUM_SEED) {
            // Checksums start from the UUID.
            return Self(identify(first.tree(), options));
        }
        let plain = Options { uuid: None, ..options.clone() };
        let mut identity = identify(first.tree(), &plain);
        identity.uuid = options.uuid.unwrap_or(identity.uuid);
        Self(identity)
    }
}

impl<'a> Builder<'a> {
    /// Examines a tree and decides the volume's size and fixed metadata.
    ///
    /// # Errors
    /// As [`Options::check`]; [`FsError::NoSpace`] when the contents do not fit; errors of the
    /// source for files it cannot examine.
    pub fn new(source: &'a dyn Source, options: &Options) -> Result<Self, FsError> {
        Self::with(source, options, |need| Geometry::choose(options, need), None, None)
    }

    /// As [`Builder::new`], but with the shape of an older volume, and its own files in their
    /// places. `options` are those of [`BaseVolume::options`], with changes.
    ///
    /// # Errors
    /// As [`Builder::new`], [`FsError::Unsupported`] where the contents or the options need another
    /// shape, and [`FsError::Invalid`] for a volume that would be smaller.
    pub fn on_base(
        source: &'a dyn Source,
        options: &Options,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        base.refuse_smaller(options)?;
        base.suits(options)?;
        let choose = |need| Geometry::on_base(&base.shape, options, need);
        let mut builder = Self::with(source, options, choose, Some(base), None)?;
        builder.copies = CopyCounts::Of(base);
        Ok(builder)
    }

    /// As [`Builder::new`], but with a shape that follows from the options alone, and the marks of
    /// the files that come first: volumes that begin with the same files have the same bytes there.
    /// The volume has whole groups, and its journal in front.
    ///
    /// # Errors
    /// As [`Builder::new`], and [`FsError::Unsupported`] for more groups than this shape has room
    /// for.
    pub fn common(
        source: &'a dyn Source,
        options: &Options,
        marks: &CommonMarks,
    ) -> Result<Self, FsError> {
        let shape = Shape::common(options);
        let options = Options {
            journal_size: Some(Shape::common_journal(options)),
            inode_ratio: None,
            ..options.clone()
        };
        let choose = |need| Geometry::on_base(&shape, &options, need);
        let mut builder = Self::with(source, &options, choose, None, Some(marks))?;
        builder.fixed = Fixed::place(&builder.geometry, 0, None)?;
        builder.copies = CopyCounts::Empty;
        Ok(builder)
    }

    /// As [`Builder::new`], but with the marks of an older volume that are no options, and its own
    /// files in their places where those are free. The shape is that of the options.
    ///
    /// # Errors
    /// As [`Builder::new`].
    pub fn with_marks_of(
        source: &'a dyn Source,
        options: &Options,
        base: &'a BaseVolume,
    ) -> Result<Self, FsError> {
        Self::with(source, options, |need| Geometry::choose(options, need), Some(base), None)
    }

    fn with(
        source: &'a dyn Source,
        options: &Options,
        choose: impl Fn(Need) -> Result<Geometry, FsError>,
        base: Option<&'a BaseVolume>,
        marks: Option<&CommonMarks>,
    ) -> Result<Self, FsError> {
        options.check()?;
        let own = || identify(source.tree(), options);
        let mut identity = marks.map_or_else(own, |marks| marks.0.clone());
        let features = options.features;
        // Without the feature, checksums start from the UUID.
        if features.has_incompat(incompat::CSUM_SEED)
            && let Some(seed) = base.and_then(BaseVolume::checksum_seed)
        {
            identity.checksum_seed = seed;
        }
        let dir_format = DirFormat {
            block_size: options.block_size as usize,
            indexed: features.has_compat(crate::ondisk::compat::DIR_INDEX),
            checksums: features.has_ro_compat(ro_compat::METADATA_CSUM),
            large: features.has_incompat(incompat::LARGEDIR),
            typed: true,
            folds: false,
            hash_version: hash_version::HALF_MD4,
            hash_seed: identity.hash_seed,
        };
        let demand = TreeDemand::new(
            source,
            features,
            options.block_size,
            options.inode_size,
            dir_format,
            identity.checksum_seed,
            options.makes_lost_and_found,
        )?;
        demand.check_folded_names(options.has_strict_encoding)?;
        let (blocks, inodes) = demand.totals();
        let geometry = choose(Need { blocks, inodes })?;
        let fixed = Fixed::place(&geometry, blocks + blocks / 64, base)?;
        // As in mke2fs: the first number behind lost+found's.
        let orphan_ino = Ino::new(special::FIRST_ORDINARY + 1);
        Ok(Self {
            demand,
            geometry,
            identity,
            fixed,
            orphan_ino,
            copies: CopyCounts::Current,
            base,
            wanted: options.clone(),
            older_values: Vec::new(),
        })
    }

    /// Lets names keep the places that they have in the directories of older volumes, and large
    /// values of attributes their inodes. `files` says which file of which volume each node
    /// continues, `inodes` which files each volume has.
    ///
    /// # Errors
    /// Errors of the older volumes.
    pub fn continue_files(
        &mut self,
        images: &[Arc<ExtImage>],
        files: &[Option<OlderFile>],
        inodes: &[&[Ino]],
    ) -> Result<(), FsError> {
        self.older_values = older::values_of(images, inodes, &self.demand)?;
        self.demand.keep_directories(&|id, format| match files.get(id.index()) {
            Some(Some(file)) => older::names_of(&images[file.image], file.ino, format),
            _ => Ok(None),
        })?;
        let (blocks, inodes) = self.demand.totals();
        let need = Need { blocks, inodes };
        let chosen = match self.copies {
            CopyCounts::Of(base) => Geometry::on_base(&base.shape, &self.wanted, need),
            _ => Geometry::choose(&self.wanted, need),
        };
        match chosen {
            Ok(geometry) => {
                self.fixed = Fixed::place(&geometry, blocks + blocks / 64, self.base)?;
                self.geometry = geometry;
                Ok(())
            }
            // Blocks of directories that are full take less room.
            Err(FsError::NoSpace(_) | FsError::Unsupported(_)) => self.demand.pack_directories(),
            Err(error) => Err(error),
        }
    }

    /// Inodes in each group.
    #[must_use]
    pub fn inodes_per_group(&self) -> u32 {
        self.geometry.inodes_per_group
    }
}

impl NewVolume for Builder<'_> {
    fn demand(&self) -> &dyn Demand {
        &self.demand
    }

    fn space(&self) -> Space {
        let geometry = &self.geometry;
        let orphans = geometry.orphan_blocks > 0;
        let first = special::FIRST_ORDINARY + 1 + u32::from(orphans);
        let mut inodes = Vec::new();
        if !self.demand.makes_lost_and_found {
            inodes.push((Ino::new(special::FIRST_ORDINARY), 1));
        }
        inodes.push((Ino::new(first), (geometry.inodes() - u64::from(first) + 1) as u32));
        let tables = (0..geometry.groups)
            .map(|group| InodeTable {
                first: Ino::new(group * geometry.inodes_per_group + 1),
                count: geometry.inodes_per_group,
                blocks: geometry.inode_table(group),
                group: Extent::new(
                    BlockNo::new(geometry.group_start(group)),
                    geometry.group_blocks(group),
                ),
            })
            .collect();
        Space {
            inodes,
            free: self.fixed.free.clone(),
            tables,
            inodes_per_block: geometry.block_size / geometry.inode_size,
            counts_unused: geometry.features.has_group_checksums(),
        }
    }

    fn block_size(&self) -> u32 {
        self.geometry.block_size
    }

    fn size(&self) -> ByteLen {
        ByteLen::new(self.geometry.blocks * u64::from(self.geometry.block_size))
    }

    fn added_paths(&self) -> Vec<(Cow<'_, [u8]>, ObjectId)> {
        if !self.demand.makes_lost_and_found {
            return Vec::new();
        }
        vec![(Cow::Borrowed(demand::LOST_AND_FOUND), self.demand.lost_and_found_object())]
    }

    fn older_files(&self) -> &[(ObjectId, OlderFile)] {
        &self.older_values
    }

    fn clamped_times(&self) -> usize {
        let size = self.geometry.inode_size;
        let tree = self.demand.tree;
        let is_clamped = |node: &&Node| {
            let OtherTimes { atime, ctime, crtime } = tree.other_times(node);
            let all = [node.mtime, atime, ctime, crtime];
            all.into_iter().any(|time| inodes::storable(time, size) != time)
        };
        tree.nodes().iter().filter(is_clamped).count()
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        write::TreeWriter {
            demand: &self.demand,
            geometry: &self.geometry,
            identity: &self.identity,
            fixed: &self.fixed,
            orphan_ino: self.orphan_ino,
            copies: self.copies,
            plan,
            device,
            progress,
        }
        .run()
    }
}

/// Name and marks of a volume. Those not given follow from the tree, so that the same tree gives
/// the same bytes.
fn identify(tree: &Tree, options: &Options) -> Identity {
    let newest = || tree.nodes().iter().map(|node| node.mtime).max().unwrap_or_default();
    let made = options.made.unwrap_or_else(newest);
    let made = Timestamp { secs: made.secs.max(0), nanos: 0 };
    let uuid = options.uuid.unwrap_or_else(|| derive_uuid(tree, options));
    // The hashes of values in inodes of their own start from it as well.
    let seeded = options.features.has_ro_compat(ro_compat::METADATA_CSUM)
        || options.features.has_incompat(incompat::EA_INODE);
    let checksum_seed = if seeded { crc32c(!0, &uuid) } else { 0 };
    let digest = Sha256::new().chain_update(b"directory hash seed").chain_update(uuid).finalize();
    let seed = options.hash_seed.as_ref().map_or(&digest[..], |seed| &seed[..]);
    let mut hash_seed = [0; 4];
    for (word, bytes) in hash_seed.iter_mut().zip(seed.chunks(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Identity {
        uuid,
        label: options.label.clone(),
        hash_seed,
        made,
        checksum_seed,
        reserved: options.reserved,
        raid: (options.raid_stride, options.raid_stripe_width),
        has_strict_encoding: options.has_strict_encoding,
        is_test_filesystem: options.is_test_filesystem,
        root_owner: options.root_owner,
        root_perms: options.root_perms,
    }
}

/// A version 8 UUID (RFC 9562) from names, sizes and times of the whole tree.
fn derive_uuid(tree: &Tree, options: &Options) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(options.block_size.to_le_bytes());
    hash.update(&options.label);
    for id in tree.ids() {
        let node = tree.node(id);
        hash.update(node.size.to_le_bytes());
        hash.update(node.mtime.secs.to_le_bytes());
        hash.update(node.mtime.nanos.to_le_bytes());
        hash.update([node.uid.to_le_bytes(), node.gid.to_le_bytes()].as_flattened());
        hash.update((node.kind.mode_bits() | node.perm).to_le_bytes());
        if node.flags != 0 {
            hash.update(node.flags.to_le_bytes());
        }
        for entry in tree.children(id) {
            hash.update([tree.name(entry).len() as u8]);
            hash.update(tree.name(entry));
        }
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash.finalize()[..16]);
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
