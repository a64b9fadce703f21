//! One boot: replays a trace on a mounted image, with its pauses, on a modelled disk.

use crate::images::file_system;
use crate::subject::{BootTrace, Subject, relative};
use crate::uninterrupted;
use seekless_capture::verify::Replayer;
use seekless_host::fiemap;
use seekless_images::{Error, ErrorKind};
use seekless_lab::boots::BootMachine;
use seekless_lab::boots::outcome::{Boot, BootId};
use seekless_layout::trace::{Event, Op};
use seekless_serve::testbed::{DiskControl, ServedDisk, Testbed};
use seekless_units::Nanos;
use signal_hook::iterator::Signals;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Events between two checks for signals.
const STEP: usize = 256;

/// Figures of a boot.
pub(crate) struct Counted {
    boot_ns: u64,
    think_ns: u64,
    busy_ns: u64,
    reads: u64,
    read_bytes: u64,
    seeks: u64,
    seek_bytes: u64,
    failed: u64,
}

/// Part of a file, and its location on the disk.
struct Piece {
    physical: u64,
    path: Vec<u8>,
    offset: u64,
    len: u64,
}

/// A boot of an image on a machine.
pub(crate) struct Replay<'a> {
    pub(crate) trace: &'a BootTrace,
    pub(crate) machine: &'a BootMachine,
    pub(crate) image: &'a Path,
    pub(crate) temp_dir: &'a Path,
    /// The command that serves a disk of a model.
    pub(crate) disk: &'a dyn Fn(&str, &ServedDisk<'_>) -> Result<Command, Error>,
}

impl Replay<'_> {
    /// Measures the boot.
    pub(crate) fn measure(
        &self,
        prefetched: bool,
        signals: &mut Signals,
    ) -> Result<Counted, Error> {
        let (trace, machine) = (self.trace, self.machine);
        let serve = |served: &ServedDisk<'_>| (self.disk)(&machine.drive.0, served);
        let testbed = Testbed::of(file_system(machine.fs), self.image, self.temp_dir, &serve)?;
        let read_ahead_kib = machine.read_ahead.0.get() >> 10;
        let ((think_ns, failed), report) =
            testbed.visit(read_ahead_kib, |root, device, control| {
                // Mapped before the phase begins: ureadahead, too, takes the extents from its pack
                // of an earlier boot.
                let pieces = if prefetched { pieces(trace, root)? } else { Vec::new() };
                let files = if prefetched { by_inode(trace, root) } else { Vec::new() };
                control.phase("boot")?;
                // A name that no directory contains, made unique by the offset.
                let absent = |_: &[u8], offset: u64| Some(format!("absent-{offset}").into_bytes());
                // All reads of the trace are fetches, which are never mapped: no executable
                // segments are needed.
                let mut replayer = Replayer::new(root, device, absent, |_| Vec::new())?;
                for path in files {
                    replayer.perform(&Event::new(Nanos::ZERO, Op::Open, path));
                }
                for piece in pieces {
                    let mut event = Event::new(Nanos::ZERO, Op::Read, piece.path);
                    event.fetched = true;
                    replayer.perform(&event.on(piece.offset, piece.len));
                }
                let think_ns = play(trace, &mut replayer, control, signals)?;
                control.phase("end")?;
                Ok::<_, Error>((think_ns, replayer.failed()))
            })?;
        if failed > 0 {
            let all = trace.events().len();
            let name = &machine.name;
            tracing::warn!("{name}: {failed} of {all} events of the trace could not be done");
        }
        Counted::read(&report, think_ns, failed)
    }
}

/// Performs the events with the recorded pauses between them; returns the sum of the pauses.
fn play(
    trace: &BootTrace,
    replayer: &mut Replayer<'_>,
    control: &DiskControl<'_>,
    signals: &mut Signals,
) -> Result<u64, Error> {
    let mut last = trace.events().first().map_or(Nanos::ZERO, |event| event.time);
    let mut think_ns = 0;
    for step in trace.events().chunks(STEP) {
        uninterrupted(signals)?;
        for event in step {
            let pause = event.time.saturating_since(last);
            if pause > 0 {
                control.wait(Nanos::new(pause))?;
                think_ns += pause;
            }
            last = last.max(event.time);
            replayer.perform(event);
        }
    }
    Ok(think_ns)
}

/// The parts of regular files that the boot reads, in disk order.
fn pieces(trace: &BootTrace, root: &Path) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    for (path, ranges) in trace.ranges() {
        let whole = root.join(relative(path));
        if !std::fs::symlink_metadata(&whole).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        for extent in fiemap::extents(&whole)? {
            if extent.flags & fiemap::flag::NOWHERE != 0 {
                continue;
            }
            for &(offset, len) in &ranges {
                let from = offset.max(extent.logical);
                let end = (offset + len).min(extent.logical + extent.len);
                if from < end {
                    let physical = extent.physical + (from - extent.logical);
                    let path = path.to_vec();
                    pieces.push(Piece { physical, path, offset: from, len: end - from });
                }
            }
        }
    }
    pieces.sort_by(|a, b| (a.physical, &a.path, a.offset).cmp(&(b.physical, &b.path, b.offset)));
    Ok(pieces)
}

/// The files that a boot reads, by inode number.
fn by_inode(trace: &BootTrace, root: &Path) -> Vec<Vec<u8>> {
    let numbered = |path: &&[u8]| {
        let meta = std::fs::symlink_metadata(root.join(relative(path))).ok()?;
        Some((meta.ino(), path.to_vec()))
    };
    let mut files: Vec<(u64, Vec<u8>)> = trace.ranges().keys().filter_map(numbered).collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

impl Counted {
    /// The disk's figures for the phase `boot`.
    fn read(report: &str, think_ns: u64, failed: u64) -> Result<Self, Error> {
        let report: serde_json::Value = serde_json::from_str(report).unwrap_or_default();
        let phases = report["phases"].as_array();
        let phase = phases.and_then(|all| all.iter().find(|phase| phase["name"] == "boot"));
        let count = |name: &str| {
            let number = phase.and_then(|phase| phase[name].as_u64());
            number.ok_or_else(|| Error::new(ErrorKind::System, format!("the disk tells no {name}")))
        };
        Ok(Self {
            boot_ns: count("elapsed_ns")?,
            think_ns,
            busy_ns: count("busy_ns")?,
            reads: count("reads")?,
            read_bytes: count("read_bytes")?,
            seeks: count("seeks")?,
            seek_bytes: count("seek_distance_bytes")?,
            failed,
        })
    }

    /// The boot as a result of the experiment.
    pub(crate) fn told(self, subject: &Subject, id: &BootId) -> Boot {
        Boot {
            experiment: subject.experiment().name.clone(),
            digest: subject.digest().into(),
            version: seekless_lab::run::VERSION.into(),
            kernel: seekless_host::kernel_release(),
            id: id.clone(),
            boot_ns: self.boot_ns,
            think_ns: self.think_ns,
            busy_ns: self.busy_ns,
            reads: self.reads,
            read_bytes: self.read_bytes,
            seeks: self.seeks,
            seek_bytes: self.seek_bytes,
            failed: self.failed,
        }
    }
}
