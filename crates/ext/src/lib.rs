//! ext2, ext3 and ext4: reading, planning and writing images.
//!
//! One module per on-disk concept. On-disk structures stay inside the crate; its interface uses the
//! types of `seekless-fs`.
//!
//! Bytes of an image are never trusted: the lints below keep panics out of all
//! code that looks at them.
//!
//! # Example
//!
//! ```
//! use seekless_ext::Features;
//!
//! let features = Features::EXT4.apply("^has_journal,^orphan_file,inline_data")?;
//! assert!(features.names().contains(&"inline_data".to_string()));
//! // A feature goes with the one that it needs.
//! let (changed, left_out) = Features::EXT4.change("^has_journal")?;
//! assert!(!changed.has_journal() && left_out[0].feature == "orphan_file");
//! # Ok::<(), seekless_fs::FsError>(())
//! ```
//!
//! # Files
//!
//! `superblock.rs group.rs inode.rs bmap.rs extent.rs indirect.rs dir.rs htree.rs inline.rs
//! xattr.rs acl.rs journal/` read, with one module per on-disk structure, on top of `volume.rs`
//! (blocks by number) and the read cache of `fs`; `backup.rs` finds copies of the superblock and
//! of descriptors, `reserved.rs` the volume's own inodes, `quota.rs` the files of quotas, `quotas.rs` the quotas in them,
//! `orphans.rs` the files that the next mount deletes; `journal/fast_commit/` also writes, into an
//! overlay in memory. `journal/write/` makes new transactions, for the cache of a volume in
//! use; `journal/home.rs` is a recovery that is written to the image, for a repair and for a
//! mount. `compose/` makes images from trees, `relayout/` makes them from images; both write
//! through `fs::forward`. `relayout/in_place.rs` does the steps of a rearrangement within an
//! image, each as one transaction of its journal; `undo.rs` saves overwritten blocks for
//! e2undo. `encode/` is shared by all writers: extent trees and indirect blocks, directory
//! blocks, checksums.
//!
//! `check/` finds errors and determines the repair (`fix.rs`), `check/salvage.rs` reads what is
//! left of a damaged map, `check/features.rs` compares features with what inodes, descriptors and
//! copies of the superblock show; `journal/locate.rs` finds the journal of a damaged volume;
//! `check/repair/` writes repairs in stages, each followed by a new check, as for UFS, through
//! `fs::patches`.
//!
//! `hash.rs`, `checksum.rs`, `features.rs` are used by all of these; `systems.rs` has the features
//! that systems and boot loaders know. `operate/` is ext2, ext3 and ext4 as a format of `live`; its
//! own documentation names its parts.

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
mod backup;
mod bmap;
mod casefold;
mod check;
mod checksum;
mod compose;
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
mod mmp;
#[allow(dead_code, reason = "the full vocabulary of the format, used or not")]
mod ondisk;
mod operate;
mod orphans;
mod part;
mod quota;
mod quotas;
mod relayout;
mod reserved;
mod superblock;
mod systems;
mod undo;
mod volume;
mod xattr;

pub use image::ExtImage;

pub use check::{
    CheckOptions, Due, PROBLEMS, Start, VolumeState, block_size, check, check_with, corrections,
    is_passed_over, is_silent, is_uncounted, note_checked, preen, preen_with, repair, repair_with,
    replay, state,
};
pub use compose::base::BaseVolume;
pub use compose::inodes::kept_flags;
pub use compose::options::Options as BuildOptions;
pub use compose::{Builder, CommonMarks};
pub use features::{Features, LeftOut};
pub use journal::{JournalUuid, LogWriter};
pub use mmp::while_claimed;
pub use operate::{Ext, ExtLive, ListingOrder, LiveOptions};
pub use quotas::{change_quotas, compare_quotas, correct_quotas, quotas};
pub use relayout::{Mover, Relayout, recover};
pub use systems::{Common, SYSTEMS, System};
pub use undo::UndoDevice;

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::{FsError, Inspect};
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
