//! ext2, ext3 and ext4: reading, planning and writing images.
//!
//! One module per on-disk concept. On-disk structures stay inside the crate; its interface uses the
//! types of `seekless-fs`.
//!
//! Bytes of an image are never trusted: the lints below keep panics out of all
//! code that looks at them.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions, clippy::arithmetic_side_effects)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod acl;
mod backup;
mod bmap;
mod build;
mod casefold;
mod check;
mod checksum;
mod dir;
mod encode;
mod extent;
mod features;
mod group;
mod hash;
mod htree;
mod image;
mod indirect;
mod inline;
mod inode;
mod journal;
#[allow(dead_code, reason = "the full vocabulary of the format, used or not")]
mod ondisk;
mod operate;
mod orphans;
mod part;
mod relayout;
mod reserved;
mod superblock;
mod systems;
mod undo;
mod volume;
mod xattr;

pub use image::ExtImage;

pub use build::Builder;
pub use build::inodes::kept_flags;
pub use build::options::Options as BuildOptions;
pub use check::{CODES, check, phase_of, preen, repair};
pub use features::{Features, LeftOut};
pub use journal::LogWriter;
pub use operate::{Ext, ExtLive, ListingOrder, LiveOptions};
pub use relayout::{Mover, Relayout, recover};
pub use systems::{Common, SYSTEMS, System};
pub use undo::UndoDevice;

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
use seekless_fs::{field, read_cache as cache};
use std::sync::Arc;

/// The row of the ext family in the table of formats.
pub const FORMAT: Format = Format { name: "ext", probe, open };

fn probe(device: &dyn BlockDevice) -> Probe {
    if superblock::has_magic(device) {
        Probe::Yes
    } else if let Some((_, block)) = backup::superblock(device) {
        Probe::Damaged(format!("no superblock, but a copy of it in block {block}"))
    } else if superblock::lacks_only_magic(device) {
        Probe::Damaged("a superblock without its magic number".into())
    } else {
        Probe::No
    }
}

fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Arc<dyn Inspect>, FsError> {
    Ok(Arc::new(ExtImage::open(device, options)?))
}
