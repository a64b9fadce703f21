//! Recording the reads of a program.

use crate::{Error, Trace};
use seekless_capture::{End, ReadAhead, Recorder, Source, Whose, assemble};
use seekless_host::mounts;
use seekless_host::tracefs::{Root, Source as Events};
use seekless_layout::recording::Pages;
use seekless_layout::trace::Program;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Memory of the kernel for events, in KiB for each processor.
const BUFFER_KIB: usize = 16 << 10;

/// The read-ahead of a disk, in KiB.
const READ_AHEAD_KIB: u64 = 128;

/// A recording of the reads of programs on a mounted file system. Needs root.
///
/// ```no_run
/// # fn main() -> Result<(), seekless::Error> {
/// let recorded = seekless::Record::on("/").program(["sh", "-c", "gcc --version"])?;
/// recorded.trace.save("gcc.trace")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    path: PathBuf,
    keeps_caches: bool,
    is_compact: bool,
}

/// A recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// The accesses, in order.
    pub trace: Trace,
    /// How the program ended; `None` where a signal ended the recording.
    pub status: Option<ExitStatus>,
    /// Events that the kernel dropped: with any, the trace is not whole.
    pub lost: u64,
}

impl Record {
    /// A recording on the file system that a path is on.
    pub fn on(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_path_buf(), keeps_caches: false, is_compact: false }
    }

    /// Does not drop the caches first: pages in memory are not read, and not recorded.
    #[must_use]
    pub fn keep_caches(mut self) -> Self {
        self.keeps_caches = true;
        self
    }

    /// Records only first touches. Memory and the trace do not grow with the time of the recording,
    /// and layouts by the trace stay the same.
    #[must_use]
    pub fn compact(mut self) -> Self {
        self.is_compact = true;
        self
    }

    /// Runs a program, found in `PATH`, with its arguments, and records the reads from the
    /// disk by it and the programs that it starts: with trace events, or with fanotify where the
    /// kernel has none.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) without a program,
    /// [`ErrorKind::System`](crate::ErrorKind) without root or where the program cannot be started.
    pub fn program<S: Into<OsString>>(
        &self,
        command: impl IntoIterator<Item = S>,
    ) -> Result<Recorded, Error> {
        let command: Vec<OsString> = command.into_iter().map(Into::into).collect();
        if command.is_empty() {
            return Err(Error::usage("no program to record"));
        }
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Error::io("signals", &error))?;
        let mount = mounts::holding(&self.path)?;
        let has_events =
            Root::find().is_ok_and(|root| root.has(Events::Fetched) || root.has(Events::Asked));
        let recorder = Recorder {
            mount: &mount,
            source: if has_events { Source::Tracefs } else { Source::Fanotify },
            keep_caches: self.keeps_caches,
            buffer_kib: BUFFER_KIB,
            read_ahead: ReadAhead::IfPossible(READ_AHEAD_KIB),
            compact: self.is_compact,
        };
        let collected = recorder.run(Whose::Program(&command), &mut signals)?;
        let status = match collected.end {
            End::Exit(status) => Some(status),
            End::Done | End::Signal(_) => None,
        };
        let lost = collected.lost;
        let mut assembled = assemble(collected, &mount, Pages::Fetched, self.keeps_caches)?;
        if self.is_compact {
            assembled.compact();
        }
        let program = Program::of_command(command.iter().map(OsString::as_os_str));
        Ok(Recorded {
            trace: Trace { program, events: assembled.events.into_iter().collect() },
            status,
            lost,
        })
    }
}
