//! File-system images, laid out by recorded access.
//!
//! Files that are used together drift apart on a disk. This library makes images of ext2/3/4,
//! UFS and FAT in which the blocks that a [`Trace`] reads lie together, in the order of access,
//! and it reads, compares, checks and repairs such images. It needs no kernel that knows the
//! format, and root only to [`Record`].
//!
//! | | |
//! |---|---|
//! | [`open()`] | read the files of an image |
//! | [`Build`] | make an image of directories, archives, container images and images |
//! | [`Optimize`] | lay an image out anew |
//! | [`Image::score`] | count the requests, seeks and chunks of a trace on an image |
//! | [`Image::replay`] | list these requests |
//! | [`Image::stored_bytes`] | count the bytes that a store of compressed chunks sends for them |
//! | [`Check`] | check an image, and repair it |
//! | [`Grow`] | make a UFS image larger |
//! | [`Snapshots`] | take, list and remove snapshots of a UFS volume |
//! | [`Quotas`] | report, set and check the quotas of an image |
//! | [`compare`] | tell in which files two images differ |
//! | [`LayoutList`] | write a small file that stands for an image in [`Build::like`] |
//! | [`sharing()`] | count the chunks that images share |
//! | [`Mount`] | mount an image read-only, and record its reads |
//! | [`Record`] | record the reads of a program on a file system that the kernel has mounted |
//!
//! ```
//! use seekless::{Build, Format, Trace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let work = tempfile::tempdir()?;
//! let tree = work.path().join("tree");
//! std::fs::create_dir_all(tree.join("etc"))?;
//! std::fs::write(tree.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
//!
//! // The blocks that are read first lie first.
//! let trace = Trace::of_paths(["/etc/passwd"]);
//! let path = work.path().join("disk.img");
//! let built = Build::of([&tree]).format(Format::Ext4).label("root").trace(trace).write(&path)?;
//! assert_eq!(built.files, 3);
//!
//! let image = seekless::open(&path)?;
//! assert_eq!(image.read("/etc/passwd")?, b"root:x:0:0::/:/bin/sh\n");
//! # Ok(())
//! # }
//! ```
//!
//! Results are structs that serde serializes. Long work tells a [`Progress`] how far it is, and a
//! [`Stop`] ends it before it is complete.
//! An [`Error`] that names a parameter does so by a [`Term`], which [`Error::in_terms`] writes as the
//! program calls it; a match on terms has a wildcard, since minor versions add some.
//! Warnings are events of `tracing`. Nothing is printed, and the environment is not read: not
//! `TMPDIR`, not `SOURCE_DATE_EPOCH`. All that is random comes from a seed, so that the same input
//! and the same version give the same bytes.
//!
//! This is the one crate of the project whose interface is kept from one minor version to the
//! next; those it is made of may change at any time.

mod build;
mod check;
mod compare;
mod file;
mod grow;
mod image;
mod layout_list;
mod metadata;
mod mount;
mod optimize;
mod quotas;
mod record;
mod replay;
mod sharing;
mod snapshots;
mod summary;
mod trace;
mod walk;

pub use build::{
    Architecture, Build, Built, BuiltDisk, BuiltLayer, BuiltPartition, Format, LaidOutFor,
    OutputFormat, Reflink, Whiteouts,
};
pub use check::{Check, Checked, Class, Finding, Outcome, Place, Values};
pub use compare::{Change, Difference, compare};
pub use file::File;
pub use grow::{Grow, Growth};
pub use image::{Image, Open, Store, Volume, open};
pub use layout_list::{LayoutList, Listed};
pub use metadata::{Entry, Kind, Metadata, Time};
pub use mount::Mount;
pub use optimize::{Gain, Optimize, Optimized, OtherRun};
pub use quotas::{
    OwnerQuota, QuotaBalance, QuotaCheck, QuotaDifference, QuotaGrace, QuotaKind, QuotaLimits,
    QuotaOwner, QuotaReport, QuotaUsage, Quotas, UnusableQuotas,
};
pub use record::{Record, Recorded};
pub use replay::{Purpose, Replay, Request};
pub use seekless_fs::term::{Term, Text};
pub use seekless_images::{Error, ErrorKind, Progress, Stop};
pub use seekless_layout::score::{Prefetch, Score, Seeks};
pub use seekless_units::ByteLen;
pub use sharing::{Chunks, sharing};
pub use snapshots::{Snapshot, Snapshots};
pub use summary::{Summarized, merge_summaries, merge_summaries_until, summarize, summarize_until};
pub use trace::Trace;
pub use walk::Walk;
