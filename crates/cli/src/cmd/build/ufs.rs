//! `seekless build` for UFS images.

use super::{BuildArgs, Destination, Family, Room, flags, small, touches, write_built, wrong};
use crate::args::Global;
use crate::failure::Failure;
use crate::source::source_date_epoch;
use seekless_ffs::{self as ufs, Version};
use seekless_fs::plan::ObjectId;
use seekless_fs::source::Source;
use seekless_fs::{FsError, Timestamp};
use seekless_layout::planner::{self, Part, Touch};
use seekless_units::ByteLen;

impl BuildArgs {
    /// The options of a UFS image.
    pub(super) fn ufs_options(
        &self,
        version: Version,
        room: Room,
    ) -> Result<ufs::BuildOptions, Failure> {
        for (given, option) in [
            (self.inode_size.is_some(), "--inode-size"),
            (self.inodes.is_some(), "--inodes (--bytes-per-inode says how many a UFS image gets)"),
            (self.features.is_some(), "--features"),
            (!self.compat.is_empty(), "--compat"),
            (self.uuid.is_some(), "--uuid"),
            (self.journal_size.is_some(), "--journal-size"),
            (self.ext.has_journal_options(), "-J"),
            (self.ext.has_extended(), "-E"),
        ] {
            if given {
                return Err(Failure::usage(format!("{option} is not supported for UFS images")));
            }
        }
        let mut options = ufs::BuildOptions::new(version);
        self.ufs.apply(&mut options)?;
        options.make.bytes_per_inode = self.bytes_per_inode.map(small).transpose()?;
        let make = &mut options.make;
        if let Some(size) = self.block_size {
            make.block_size = small(size)?;
            // As newfs: an eighth of a block, unless something else is said.
            if self.ufs.fragment_size.is_none() {
                make.fragment_size = (make.block_size / 8).max(512);
            }
        }
        if let Some(reserved) = self.reserved {
            if !reserved.is_multiple_of(100) {
                return Err(Failure::usage("UFS images take whole percentages only"));
            }
            make.minfree = reserved / 100;
        }
        make.label = self.label.clone().into_bytes();
        make.size = room.whole().unwrap_or_default();
        options.is_fitted = room.whole().is_none();
        options.spare = room.spare();
        options.made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
        Ok(options)
    }

    pub(super) fn ufs_version(&self) -> Option<Version> {
        match self.format {
            Family::Ufs1 => Some(Version::Ufs1),
            Family::Ufs2 => Some(Version::Ufs2),
            _ => None,
        }
    }
}

pub(super) fn write_ufs(
    args: &BuildArgs,
    source: &dyn Source,
    options: &ufs::BuildOptions,
    place: Destination<'_>,
    global: &Global,
) -> Result<ByteLen, Failure> {
    let about = |error: FsError| wrong(error).about(args.shown_sources());
    flags::warn_of_lost(source, ufs::KEPT_FLAGS);
    let block_size = options.make.block_size;
    let mut touches = touches(args, source, block_size)?;
    let read = |touch: &Touch| matches!(touch.part, Part::Blocks(_)).then_some(touch.object);
    let hot: Vec<ObjectId> = touches.iter().filter_map(read).collect();
    let builder = ufs::Builder::new(source, options, &hot).map_err(about)?;
    touches = touches.into_iter().flat_map(|touch| with_shared(&builder, touch)).collect();
    let align = (args.chunk.get() / u64::from(block_size)).max(1);
    let plan = planner::plan(builder.demand(), &builder.space(), &touches, align).map_err(about)?;
    write_built(&builder, &plan, &args.shown_sources(), place, global)
}

/// A touch, and that of the block in which another file has its last fragments.
fn with_shared(builder: &ufs::Builder<'_>, touch: Touch) -> impl Iterator<Item = Touch> {
    let shared = match touch.part {
        Part::Blocks(run) => builder.shared_block(touch.object, run),
        _ => None,
    };
    let shared = shared.map(|(object, run)| Touch { object, part: Part::Blocks(run) });
    std::iter::once(touch).chain(shared)
}
