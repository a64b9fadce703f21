//! Recording of the files that programs and boots read on a file system that the kernel has
//! mounted, and measurement of the requests that predictions are compared with.
//!
//! - `collect`: events of a program, a process or everybody ([`Recorder`])
//! - `compact`: only first touches, for long recordings
//! - `subject`, [`boot`]: the end of a recording of everybody
//! - `naming`: names for the inodes of events
//! - [`install`]: the recorder in an initramfs
//! - `destination`: the destination of a trace
//! - [`verify`]: predicted requests compared with the kernel's
//!
//! Warnings are events of `tracing`. Needs root.
//!
//! # Example
//!
//! ```
//! use seekless_capture::is_stdout;
//! use std::path::Path;
//!
//! assert!(is_stdout(Path::new("-")) && !is_stdout(Path::new("boot.trace")));
//! ```
//!
//! # Files
//!
//! `boot.rs` records a boot, `install/` puts the recorder into an initramfs.
//!
//! `verify/` compares predictions of the score with the requests of a kernel: `attached.rs`
//! attaches an image to a loop device, mounts it and counts the requests, with mount points of
//! `scratch_dir.rs`; `kernel_replay.rs` replays a trace there by the system calls of `replayer.rs`,
//! `program.rs` runs a program; `reread.rs` repeats runs in which blocks are read twice.
//! `comparison.rs` has the figures of both sides, `spread.rs` medians and ranges of several runs,
//! `difference.rs` the first request that differs, and costs by file.

pub mod boot;
mod collect;
mod compact;
mod destination;
pub mod install;
mod naming;
mod subject;
pub mod verify;

pub use collect::{Collected, ReadAhead, Recorder, Source, Whose};
pub use destination::{is_stdout, store};
pub use naming::Names;
pub use subject::{End, Subject};

use seekless_host::caches::{self, Caches};
use seekless_host::mounts::Mount;
use seekless_host::tracefs::{self, Filter, Instance, Root, Threads};
use seekless_images::Error;
use seekless_layout::recording::{Assembled, Pages};
use seekless_units::Ino;
use std::collections::HashSet;

/// The inodes of a file system that are in memory, found by dropping them.
///
/// # Errors
/// `ErrorKind::System`, also without trace events.
pub fn loaded(mount: &Mount) -> Result<HashSet<Ino>, Error> {
    let filter = Filter {
        sources: vec![tracefs::Source::Evicted],
        device: Some(mount.device),
        who: Threads::AllBut(Vec::new()),
        buffer_kib: 16 << 10,
    };
    let mut instance = Instance::new(&Root::find()?, &filter)?;
    instance.start()?;
    caches::drop_clean(Caches::Names)?;
    instance.stop()?;
    let mut events = Vec::new();
    instance.read(&mut events)?;
    let evicted = |event: tracefs::Traced| match event.what {
        tracefs::EventKind::Evicted { ino } => u32::try_from(ino).ok().map(Ino::new),
        _ => None,
    };
    Ok(events.into_iter().filter_map(evicted).collect())
}

/// Resolves the names of collected events.
///
/// # Errors
/// `ErrorKind::Corrupt` for a damaged directory, `ErrorKind::System`.
pub fn assemble(
    collected: Collected,
    mount: &Mount,
    pages: Pages,
    kept_caches: bool,
) -> Result<Assembled, Error> {
    let loaded = match collected.source {
        Source::Tracefs if !kept_caches && mount.fs_type.starts_with("ext") => loaded(mount)?,
        _ => HashSet::new(),
    };
    let mut names = Names::new(mount, &collected)?;
    Ok(names.assemble(collected, pages, &loaded, kept_caches))
}
