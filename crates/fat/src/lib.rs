//! FAT12, FAT16 and FAT32 with long names.
//!
//! Block numbers here count sectors of the volume (`BPB_BytsPerSec` bytes); files
//! occupy whole clusters of them. FAT has no inodes: the reader numbers files in
//! the order of a walk over the directories, the root first, and an inode's place
//! is that of its directory entry. On-disk structures stay inside the crate.
//!
//! Source of the format: Microsoft, "FAT: General Overview of On-Disk Format"
//! (fatgen103), and ECMA-107; where implementations differ from it, a comment
//! names them.
//!
//! Bytes of an image are never trusted: the lints below keep panics out of all
//! code that looks at them.
//!
//! # Example
//!
//! ```
//! use seekless_device::MemoryDevice;
//! use seekless_fat::{FORMAT, MakeOptions, make};
//! use seekless_fs::format::OpenOptions;
//! use seekless_units::ByteLen;
//! use std::sync::Arc;
//!
//! let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
//! let made = make(device.as_ref(), &MakeOptions::new(None, ByteLen::new(8 << 20)))?;
//! assert_eq!(made.format, "fat12");
//! let image = (FORMAT.open)(device, OpenOptions::default())?;
//! assert_eq!(image.geometry().block_size, 512);
//! # Ok::<(), seekless_fs::FsError>(())
//! ```
//!
//! # Files
//!
//! `boot.rs table.rs chain.rs entry.rs directory.rs` read, with one module per on-disk structure,
//! on top of `volume.rs`; `files.rs` numbers all files by a walk, since FAT has no inodes, and
//! finds clusters that several files claim. `name.rs` has code page 850, UTF-16 and the rule by
//! which two names are the same, `time.rs` dates. `compose/objects.rs` is what a volume holds, with
//! the directory entries of each file; `compose/write.rs` writes it, placed by a plan whose inode
//! numbers are the order of directory entries; `compose/base.rs` is an older volume in whose shape
//! it is written.
//!
//! `relayout.rs` takes the entries of an image as they stand and writes them with
//! `compose/write.rs`. `check/` finds errors and notes how entries of directories and of the FAT
//! shall be; `check/repair.rs` writes that, in rounds.
//!
//! `operate/` is FAT as a format of `live`: `format.rs` answers, each time by a part of it.
//! `clusters.rs` takes runs of clusters where the policy begins and gives them back, with
//! `cluster_map.rs`, their use in memory, and `allocation_table.rs`, which writes entries of all
//! FATs; `inodes.rs` has the files, with their numbers (`numbers.rs`), which last as long as the
//! volume is open, and the directories in memory (`directories.rs`). `contents.rs` writes the
//! contents of files, `slots.rs` puts entries into directories and takes them out, in an order in
//! which no state shows a name that was never given, and `namespace/` has the operations on names,
//! for an entry is the file itself.

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

mod boot;
mod chain;
mod check;
mod compose;
mod describe;
mod directory;
mod entry;
mod files;
mod flags;
mod image;
mod make;
mod name;
#[allow(dead_code, reason = "the full vocabulary of the format, used or not")]
mod ondisk;
mod operate;
mod relayout;
mod table;
mod time;
mod volume;

pub use check::{LostChains, PROBLEMS, check, preen, repair};
pub use compose::{BaseVolume, BuildOptions, Builder, LossCounts, Losses};
pub use flags::KEPT_FLAGS;
pub use image::FatImage;
pub use make::{FatWidth, MadeVolume, MakeOptions, make};
pub use operate::{Fat, FatLive, LiveOptions};
pub use relayout::Relayout;

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, OpenOptions};
use seekless_fs::{FsError, Inspect};
use std::sync::Arc;

/// The row of FAT in the table of formats.
pub const FORMAT: Format = Format { name: "fat", probe: boot::probe, open };

fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Arc<dyn Inspect>, FsError> {
    Ok(Arc::new(FatImage::open(device, options)?))
}

/// A name in a form that is the same for all names that FAT takes for one: in upper case, as
/// UTF-16. `None` for a name that is not UTF-8.
#[must_use]
pub fn fold_name(name: &[u8]) -> Option<Vec<u16>> {
    Some(name::fold(&name::to_units(name)?))
}
