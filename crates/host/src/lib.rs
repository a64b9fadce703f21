//! All access to the running Linux kernel.
//!
//! - [`tracefs`]: the kernel's own trace events, read in binary;
//! - [`fanotify`]: opens and accesses where there is no tracefs;
//! - [`opens`]: opens of regular files, by inode number;
//! - [`pressure`]: the load of the machine;
//! - [`residency`]: which pages of a file are in memory;
//! - [`fiemap`]: where a file lies on the disk;
//! - [`move_extent`], [`donor`]: blocks of files moved under the running ext4;
//! - [`xfs`]: ranges of files exchanged under the running XFS;
//! - [`handle`]: files opened by inode number;
//! - [`block_device`]: a device's users, zeros on it, its partition table;
//! - [`mounts`], [`scratch`], [`loop_device`], [`caches`]: mounts that vanish
//!   with their process, loop devices that vanish with their last user, and
//!   cold caches;
//! - [`initramfs`]: surviving the switch to the root file system;
//! - [`read_ahead`]: a device's read-ahead, changed temporarily;
//! - [`reflink`]: blocks shared between files;
//! - [`program`]: commands that are traced from their first instruction;
//! - [`family`]: a command with all its descendants;
//! - [`running`]: running programs;
//! - [`preloaded`]: metadata as fakeroot and pseudo show it;
//! - [`snapshot_request`], [`check_request`], [`tuning_request`], [`growth_request`]: ioctls to the servers of mounts.
//!
//! It contains no format, no trace file and no figure. It is the only crate that may contain
//! `unsafe` code.
//!
//! # Example
//!
//! ```
//! use seekless_host::mounts::holding;
//! use std::path::Path;
//!
//! let mount = holding(Path::new("/proc/self"))?;
//! assert_eq!(mount.inside(Path::new("/proc/self/status")).as_deref(), Some(&b"/self/status"[..]));
//! # Ok::<(), seekless_host::HostError>(())
//! ```
//!
//! # Files
//!
//! The crate has the sources of events, one file each (`tracefs/`, `fanotify.rs`), calls through
//! libc for trees under fakeroot (`preloaded.rs`), and the settings that a measurement changes and
//! restores: `caches.rs`, `read_ahead.rs` (also if the process is killed), `mapping.rs` (a file
//! touched in memory), `scratch.rs` (private mounts), `loop_device.rs`, `family.rs` (a program with
//! all its descendants), `initramfs.rs` (a process that survives the switch of the root).
//!
//! `donor.rs` owns free blocks of a mounted ext4 and exchanges them for those of files
//! (`move_extent.rs`, `handle.rs`).
//!
//! `opens` reports opens by inode number, `pressure` the load of the machine.

pub mod block_device;
pub mod caches;
pub mod check_request;
pub mod donor;
mod error;
pub mod family;
pub mod fanotify;
pub mod fiemap;
pub mod growth_request;
pub mod handle;
pub mod inherited;
pub mod initramfs;
pub mod loop_device;
pub mod mapping;
pub mod mounts;
pub mod move_extent;
pub mod opens;
pub mod preloaded;
pub mod pressure;
pub mod program;
pub mod read_ahead;
pub mod reflink;
pub mod residency;
pub mod running;
pub mod scratch;
pub mod snapshot_request;
pub mod tracefs;
pub mod tuning_request;
pub mod xfs;

pub use error::HostError;

/// The kernel's release, as `uname -r` prints it.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Nanoseconds of the monotonic clock: the clock of all events here.
#[must_use]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
