//! Ageing an image through the live engine.

use super::show::FreeExtents;
use super::{Outcome, Run};
use crate::progress;

use crate::failure::{Failure, Kind};
use seekless_device::{BlockDevice, Clock, VirtualClock};
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Timestamp};
use seekless_images::targets::{Target, copy_of_table, copy_range};
use seekless_images::{FORMATS, Place};
use seekless_lab::age::image::ImageSubject;
use seekless_lab::age::{Aged, End};
use seekless_serve::{LiveMountOptions, Volume};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// 1980-01-01: no image that is aged was in use before.
const EARLIEST: Timestamp = Timestamp { secs: 315_532_800, nanos: 0 };

/// Ages an image, or a copy of it.
pub(super) fn run(run: &Run<'_>, path: &Path) -> Result<Outcome, Failure> {
    let about = |failure: Failure| failure.about(path.display());
    let options = engine_options(run)?;
    let place = &run.args.place.place();
    let Some(new) = &run.args.output else {
        seekless_images::refuse_converted(path, "which is only read: age a copy, -o NEW")?;
        check_format(path, seekless_images::device_in_use(path, place)?.as_ref())?;
        return on_device(run, &options, &seekless_images::device_locked(path, place)?)
            .map_err(about);
    };
    let target = Target::create(new, run.args.force, None, [path])?;
    let target = target.with_reflink(run.args.reflink.mode())?;
    seekless_images::in_use::refuse(path)?;
    let old = seekless_images::device(path, &Place::default())?;
    let part = seekless_images::part(path, old.clone(), place)?;
    check_format(path, part.as_ref())?;
    let image = seekless_fs::format::open(FORMATS, part, OpenOptions::default());
    let block = image.map_err(|error| about(fs(error)))?.geometry().block_size;
    target.refuse_blocks(block, "age an image with larger blocks for it")?;
    let device = target.device(old.len(), &progress::shown(run.global))?;
    let (from, to) = ((old.as_ref(), path), (device.as_ref(), &**new));
    // The copy of the partition table at the end of the disk comes last: with it, an incomplete
    // image would look like a whole disk.
    let (start, len) = seekless_images::partition::range(path, &old, place)?;
    let rest = copy_of_table(old.as_ref(), start.get() + len.get());
    copy_range(from, to, 0, rest)?;
    let part = seekless_images::part(new, device.clone(), place)?;
    let outcome = on_device(run, &options, &part).map_err(about)?;
    // An interrupted run has figures, but its image is no output.
    if outcome.aged.end != End::Interrupted {
        drop(part);
        copy_range(from, to, rest, old.len().get())?;
        target.finish()?;
    }
    Ok(outcome)
}

/// Refuses formats that the engine cannot write, before anything is locked or copied.
fn check_format(path: &Path, device: &dyn BlockDevice) -> Result<(), Failure> {
    seekless_images::refuse_others(path, device, FORMATS, "")?;
    let format = seekless_fs::format::claim(FORMATS, device);
    match format.map_err(|error| fs(error).about(path.display()))?.name {
        "ffs" | "ext" | "fat" => Ok(()),
        other => Err(Failure::new(
            Kind::Unsupported,
            format!(
                "{}: ageing {other} images (mount it, and age it with --mounted DIR)",
                path.display()
            ),
        )),
    }
}

fn fs(error: FsError) -> Failure {
    error.into()
}

/// Options of a mount. Barriers are off: the run is lost in a crash of this machine anyway.
fn engine_options(run: &Run<'_>) -> Result<LiveMountOptions, Failure> {
    let mut all = vec![format!("rw,nobarriers,seed={}", run.args.seed)];
    all.extend_from_slice(&run.args.mount_options);
    let options = LiveMountOptions::parse(&all)?;
    if !options.writable {
        return Err(Failure::usage("--mount-options ro: a read-only file system cannot be aged"));
    }
    Ok(options)
}

fn on_device(
    run: &Run<'_>,
    options: &LiveMountOptions,
    device: &Arc<dyn BlockDevice>,
) -> Result<Outcome, Failure> {
    let image = seekless_fs::format::open(FORMATS, device.clone(), OpenOptions::default())?;
    // The root directory of a FAT volume has no time; FAT times begin in 1980.
    let began = image.attr(image.root())?.mtime.max(EARLIEST);
    let before = FreeExtents::of(image.as_ref())?;
    let clock = Arc::new(VirtualClock::new());
    // Virtual time continues from the last change of the root directory.
    let wall = {
        let clock = Arc::clone(&clock);
        move || later(began, clock.now().get())
    };
    let volume = Volume::unqueued(device.clone(), clock.clone(), options, false, Box::new(wall))?;
    let mut live = volume.lock();
    let into = run.args.into.as_deref();
    let aged = ImageSubject::new(&mut *live, clock, run.profile, into)
        .map_err(super::occupied)
        .and_then(|mut subject| run.age(&mut subject).map_err(Failure::from));
    // Unmounts after a failed run too, so that its changes are written.
    let unmounted = live.unmount();
    let (aged, took): (Aged, Duration) = aged?;
    unmounted?;
    device.flush().map_err(FsError::from)?;
    let image = seekless_fs::format::open(FORMATS, device.clone(), OpenOptions::default())?;
    let free = [before, FreeExtents::of(image.as_ref())?];
    Ok(Outcome { aged, free: Some(free), took })
}

fn later(began: Timestamp, nanos: u64) -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    let nanos = nanos + u64::from(began.nanos);
    let secs = i64::try_from(nanos / SECOND).unwrap_or(i64::MAX);
    Timestamp { secs: began.secs + secs, nanos: (nanos % SECOND) as u32 }
}
