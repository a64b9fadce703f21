//! FFS, the fast file system of BSD, in its two formats UFS1 and UFS2.
//!
//! Block numbers here count fragments, the unit in which FFS addresses the
//! disk; a block is `fs_frag` of them. Images of both
//! byte orders are read. On-disk structures stay inside the crate.
//!
//! Bytes of an image are never trusted: the lints below keep panics out of all
//! code that looks at them.
//!
//! # Example
//!
//! ```
//! use seekless_device::MemoryDevice;
//! use seekless_ffs::{FORMAT, MakeOptions, Version, check, make};
//! use seekless_fs::format::OpenOptions;
//! use seekless_units::ByteLen;
//! use std::sync::Arc;
//!
//! let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
//! make(device.as_ref(), &MakeOptions::new(Version::Ufs2, ByteLen::new(8 << 20)))?;
//! let image = (FORMAT.open)(device.clone(), OpenOptions::default())?;
//! assert_eq!(image.geometry().groups, 4);
//! assert!(check(device)?.findings.is_empty());
//! # Ok::<(), seekless_fs::FsError>(())
//! ```
//!
//! # Files
//!
//! `superblock.rs group.rs inode.rs bmap.rs entry.rs dir.rs xattr.rs` read, on top of `volume.rs`;
//! the code that parses an inode or a directory entry is shared by the reader, the check and the
//! engine; `snapshot/` reads the volume as its snapshots have kept it, takes and removes them;
//! `origin/` copies blocks for them before they are overwritten. `journal/` recovers a volume by
//! its journal of soft updates. `quotas.rs` reads, compares and changes the quotas of a volume that is
//! not in use, with the records of `quota_file.rs` and the counts of `quota_usage.rs`. `alloc/`
//! checks a group's bytes and changes them in place.
//!
//! `check/` finds errors and determines the repair (`fix.rs`); `check/repair/` writes repairs in
//! stages, each followed by a new check, so that a repair can be interrupted at any point. `grow/`
//! makes a volume larger. `operate/` is FFS as a format of `live`: `format.rs` answers for
//! directories and files, `blocks.rs` for block maps; `node.rs` and `encode.rs` convert inodes from
//! and to bytes; `groups.rs` has the bitmaps and counts of groups, `allocator.rs` allocates in them
//! where the policies choose (`zones.rs` describes a volume to the policies); `mount.rs` opens and
//! closes, `seal.rs` renews check hashes. `make/` and `compose/` write new images without a cache.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions
    )
)]

mod acl;
mod alloc;
mod bmap;
mod check;
mod checksum;
mod compose;
mod dir;
mod entry;
mod group;
mod grow;
mod image;
mod inode;
mod inode_edit;
mod journal;
mod make;
#[allow(dead_code, reason = "the full vocabulary of the format, used or not")]
mod ondisk;
mod operate;
mod origin;
mod quota_file;
mod quota_usage;
mod quotas;
mod snapshot;
mod snapshot_map;
mod snapshot_marks;
mod superblock;
mod superblock_edit;
pub mod tune;
mod volume;
mod words;
mod xattr;
mod zones;

pub use check::{Outcome, PROBLEMS, Repaired, check, corrections, preen, repair};
pub use compose::{BaseVolume, BuildOptions, Builder};
pub use grow::{grow, plan_growth};
pub use image::FfsImage;
pub use inode::KEPT_FLAGS;
pub use make::{CheckHashes, MakeOptions, Optimization, Version, make};
#[cfg(feature = "faults")]
pub use operate::LiveFault;
pub use operate::{Ffs, FfsLive, LiveOptions, QuotaFiles, Wall, keep_quotas};
pub use quotas::{change_quotas, compare_quotas, correct_quotas, quotas};
pub use snapshot::{
    open_snapshot, release_snapshots, remove_snapshots, snapshots, take_snapshot,
    take_snapshot_in_use,
};

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
use std::sync::Arc;

/// The row of FFS in the table of formats.
pub const FORMAT: Format = Format { name: "ffs", probe, open };

fn probe(device: &dyn BlockDevice) -> Probe {
    match superblock::find(device) {
        Some(_) => Probe::Yes,
        None => Probe::No,
    }
}

fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Arc<dyn Inspect>, FsError> {
    Ok(Arc::new(FfsImage::open(device, options)?))
}
