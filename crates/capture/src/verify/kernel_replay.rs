//! Counts the kernel's requests for the operations of a trace.

use super::attached::{AttachedImage, Requests};
use super::replayer::Replayer;
use super::reread::least_reread;
use super::uninterrupted;
use seekless_fs::Inspect;
use seekless_images::Error;
use seekless_layout::replay::executable_segments;
use seekless_layout::trace::Events;
use seekless_report::disk::Usage;
use seekless_units::ByteLen;
use signal_hook::iterator::Signals;

/// Result of a replay by the kernel.
pub struct TraceReplay {
    /// The requests in order, with the class of their blocks.
    pub requests: Requests,
    /// Number of events that failed.
    pub failed: u64,
}

/// Events between two reads of the kernel's buffer and checks for signals.
const STEP: usize = 256;

/// Number of names to try for one that leads to a block.
const NAMES_TRIED: u32 = 4096;

/// Mounts an image, replays a trace on it in the order of `events`, and counts the kernel's
/// requests to the device. A replay in which blocks are read twice is repeated up to twice. `usage`
/// is the use of the blocks of the image.
///
/// # Errors
/// [`ErrorKind::System`](seekless_images::ErrorKind::System) if the kernel cannot mount the image,
/// has no trace events or loses some, or if a signal arrives.
pub fn replay_trace(
    attached: &AttachedImage<'_>,
    usage: &Usage,
    events: &Events,
    signals: &mut Signals,
) -> Result<TraceReplay, Error> {
    least_reread(|| replay(attached, usage, events, signals), |seen| &seen.requests)
}

fn replay(
    attached: &AttachedImage<'_>,
    usage: &Usage,
    events: &Events,
    signals: &mut Signals,
) -> Result<TraceReplay, Error> {
    let image = attached.image();
    let mounted = attached.mount()?;
    let (failed, requests) = attached.count(usage, |counter| {
        let absent = |dir: &[u8], at| absent_name(image, dir, at);
        let segments = |path: &[u8]| segments(image, path);
        let mut replayer = Replayer::new(mounted.dir(), attached.device(), absent, segments)?;
        let mut rest = events.iter();
        while rest.len() > 0 {
            rest.by_ref().take(STEP).for_each(|event| replayer.perform(&event.to_event()));
            counter.take()?;
            uninterrupted(signals)?;
        }
        counter.stop()?;
        Ok(replayer.failed())
    })?;
    mounted.unmount()?;
    Ok(TraceReplay { requests, failed })
}

/// The executable segments of a program or library; none for other files.
fn segments(image: &dyn Inspect, path: &[u8]) -> Vec<(u64, u64)> {
    let mut head = vec![0; 4096];
    let read = seekless_fs::inspect::resolve(image, path)
        .and_then(|ino| image.read(ino, ByteLen::ZERO, &mut head));
    read.map_or_else(|_| Vec::new(), |len| executable_segments(&head[..len]))
}

/// A name absent from a directory, whose lookup reads the block at an offset.
fn absent_name(image: &dyn Inspect, dir: &[u8], offset: u64) -> Option<Vec<u8>> {
    let dir = seekless_fs::inspect::resolve(image, dir).ok()?;
    let wanted = offset / u64::from(image.geometry().block_size);
    (0..NAMES_TRIED).map(|number| format!("absent-{number}").into_bytes()).find(|name| {
        let blocks = image.lookup_blocks(dir, name).unwrap_or_default();
        // In an indexed directory the last block read is the leaf that would contain the name.
        blocks.last().is_some_and(|last| last.get() == wanted)
            || (blocks.len() == 1 || wanted == 0) && blocks.iter().any(|lbn| lbn.get() == wanted)
    })
}
