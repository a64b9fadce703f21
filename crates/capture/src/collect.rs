//! Collection of a recording's events until its subject ends.

use super::Subject;
use super::compact::{Batch, Compacted};
use super::subject::End;
use rustix::io::Errno;
use seekless_fs::term::{Term, Text};
use seekless_host::caches::{self, Caches};
use seekless_host::fanotify::{Noticed, Scope, Watch};
use seekless_host::mounts::{DeviceNumber, Mount};
use seekless_host::read_ahead::{self, ReadAheadGuard};
use seekless_host::scratch::{self, KeptMounts};
use seekless_host::tracefs::{self, EventKind, Filter, Instance, Root, Threads, Traced};
use seekless_host::{HostError, program};
use seekless_images::{Error, ErrorKind};
use signal_hook::iterator::Signals;
use std::collections::HashSet;
use std::ffi::OsString;
use std::time::Duration;

/// Maximum wait for events after a pass without any, in milliseconds.
const IDLE: u16 = 10;

/// Time during which events may accumulate after a pass with some. Reading each one as it arrives
/// would keep a processor busy and serialize processes that run in parallel during a boot.
const PACE: Duration = Duration::from_millis(20);

/// The fraction of the kernel's buffer for events, in percent, above which they are read without a
/// pause.
const HURRY_PERCENT: usize = 10;

/// The source of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Trace events, and fanotify for opens
    Tracefs,
    /// Opens and accesses, and the pages in memory afterwards
    Fanotify,
}

impl Source {
    /// Name in traces and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracefs => "tracefs",
            Self::Fanotify => "fanotify",
        }
    }
}

/// The processes whose accesses are recorded.
pub enum Whose<'a> {
    /// A program and its descendants.
    Program(&'a [OsString]),
    /// A process and its descendants.
    Process(u32),
    /// All processes but ours, until an event ends the recording.
    Everybody(Subject),
}

/// The result of a recording.
pub struct Collected {
    /// The source of the events.
    pub source: Source,
    /// Start time, on the clock of the events.
    pub start: u64,
    /// The device's read-ahead, if it is known.
    pub read_ahead_kib: Option<u64>,
    /// The start of the file system's partition on its device.
    pub first_sector: u64,
    /// Trace events.
    pub traced: Vec<Traced>,
    /// Opens and accesses reported by fanotify.
    pub noticed: Vec<Noticed>,
    /// Number of events for which the kernel had no room, at least.
    pub lost: u64,
    /// Number of accesses by processes that ended before they could be identified.
    pub strangers: u64,
    /// The event that ended the recording.
    pub end: End,
}

/// A recording in progress.
pub struct Recorder<'a> {
    /// The recorded file system.
    pub mount: &'a Mount,
    /// The source of events.
    pub source: Source,
    /// Whether the caches are kept at the start, instead of dropped.
    pub keep_caches: bool,
    /// Size of the kernel's buffer for events, in KiB per processor.
    pub buffer_kib: usize,
    /// The read-ahead during the recording.
    pub read_ahead: ReadAhead,
    /// Whether only first touches are kept, so that memory does not grow with time
    /// ([`FirstTouches`](seekless_layout::recording::FirstTouches)).
    pub compact: bool,
}

/// The device's read-ahead during a recording, in KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAhead {
    /// Unchanged.
    Keep,
    /// This value, if it can be set.
    IfPossible(u64),
    /// This value.
    Set(u64),
}

impl ReadAhead {
    fn set(self, device: DeviceNumber) -> Result<Option<ReadAheadGuard>, HostError> {
        match self {
            Self::Keep => Ok(None),
            // The trace contains the actual value.
            Self::IfPossible(kib) => Ok(ReadAheadGuard::set(device, kib).ok()),
            Self::Set(kib) => ReadAheadGuard::set(device, kib).map(Some),
        }
    }
}

#[derive(Default)]
struct Ears {
    instance: Option<Instance>,
    watch: Option<Watch>,
    /// The program's mounts, for naming its accesses after it ends.
    mounts: Option<KeptMounts>,
    /// Start time of the instance.
    started: u64,
    /// Number of events lost earlier.
    lost: u64,
    /// Requests of the boot to the device before the recorder started, if they were recorded.
    early: Vec<Traced>,
}

impl Recorder<'_> {
    /// Records until the subject ends or a signal arrives.
    ///
    /// # Errors
    /// `ErrorKind::Unsupported` if the kernel has neither trace events nor fanotify,
    /// `ErrorKind::System` without root, or if the program cannot be started.
    pub fn run(&self, whose: Whose<'_>, signals: &mut Signals) -> Result<Collected, Error> {
        let device = self.mount.device;
        let _read_ahead = self.read_ahead.set(device)?;
        let read_ahead_kib = read_ahead::of(device);
        if !self.keep_caches {
            caches::write_back(&self.mount.dir)?;
            caches::drop_clean(Caches::All)?;
        }
        let start = seekless_host::now();
        let mut ears = Ears::default();
        let (mut subject, mut ours) = self.begin(whose, &mut ears)?;
        let mut all = Batch { traced: std::mem::take(&mut ears.early), ..Batch::default() };
        let start = all.traced.iter().map(|event| event.time).fold(start, u64::min);
        let mut compacted = self.compact.then(|| Compacted::of(self.source));
        let end = loop {
            let until = seekless_host::now();
            let heard = ears.listen(&mut all)?;
            if let Some(compacted) = &mut compacted {
                compacted.take(std::mem::take(&mut all), until, subject.helpers(), ours.as_mut());
            }
            let any = heard != Heard::Nothing;
            if let Some(end) = subject.poll(signals, any)? {
                break end;
            }
            match heard {
                Heard::Nothing => ears.wait(),
                Heard::Some(bytes) if bytes / 1024 * 100 > self.buffer_kib * HURRY_PERCENT => {}
                Heard::Some(_) => std::thread::sleep(PACE),
            }
        };
        if let End::Signal(signal) = end {
            subject.end(signal);
        }
        if let Some(instance) = &ears.instance {
            instance.stop()?;
        }
        while ears.listen(&mut all)? != Heard::Nothing {}
        let (Batch { mut traced, mut noticed }, mut strangers) = match compacted {
            Some(mut compacted) => {
                compacted.take(all, u64::MAX, subject.helpers(), ours.take().as_mut());
                compacted.finish(subject.helpers())
            }
            None => (all, 0),
        };
        traced.sort_by_key(|event| event.time);
        leave_out(subject.helpers(), &mut traced, &mut noticed);
        if let Some(ours) = &mut ours {
            strangers += ours.keep(&traced, &mut noticed);
        }
        let lost = ears.lost
            + ears.instance.as_ref().map_or(0, |instance| instance.lost)
            + u64::from(ears.watch.as_ref().is_some_and(|watch| watch.overflowed));
        Ok(Collected {
            source: self.source,
            start,
            read_ahead_kib,
            first_sector: device.first_sector(),
            traced,
            noticed,
            lost,
            strangers,
            end,
        })
    }

    /// Starts the event sources, and then the program.
    fn begin(&self, whose: Whose<'_>, ears: &mut Ears) -> Result<(Subject, Option<Ours>), Error> {
        match whose {
            Whose::Program(command) => {
                let mut ours = None;
                let child = program::spawn_from(command, |thread| {
                    ours = self.listen_to_program(thread, ears)?;
                    Ok::<(), Error>(())
                })?;
                Ok((Subject::Program(child), ours))
            }
            Whose::Process(pid) => {
                let threads = program::threads_of(pid)?;
                self.open(ears, Threads::With(threads.clone()), Scope::FileSystem)?;
                Ok((
                    Subject::Process(pid),
                    Some(Ours::new(threads, self.source == Source::Tracefs)),
                ))
            }
            Whose::Everybody(subject) => {
                let ours = program::threads_of(std::process::id())?;
                self.open(ears, Threads::AllBut(ours), Scope::FileSystem)?;
                if matches!(subject, Subject::Boot(_)) && ears.instance.is_some() {
                    self.adopt_early(ears)?;
                }
                Ok((subject, None))
            }
        }
    }

    /// Reads the requests to the device recorded before there was a root.
    fn adopt_early(&self, ears: &mut Ears) -> Result<(), Error> {
        let early = Instance::adopt_early(&Root::find()?, self.mount.device)?;
        let Some(mut early) = early else { return Ok(()) };
        early.read(&mut ears.early)?;
        // Later events are in both instances.
        ears.early.retain(|event| event.time < ears.started);
        ears.lost += early.lost;
        Ok(())
    }

    /// Called on the thread that will start the program.
    fn listen_to_program(&self, thread: u32, ears: &mut Ears) -> Result<Option<Ours>, Error> {
        if self.source == Source::Fanotify {
            // In a namespace of its own, only the program's accesses are reported.
            scratch::own_mounts()?;
            ears.mounts = Some(KeptMounts::of_this_thread()?);
            self.open(ears, Threads::With(vec![thread]), Scope::Mount)?;
            return Ok(None);
        }
        self.open(ears, Threads::With(vec![thread]), Scope::FileSystem)?;
        Ok(Some(Ours::new(vec![thread], true)))
    }

    fn open(&self, ears: &mut Ears, who: Threads, scope: Scope) -> Result<(), Error> {
        let watch = Watch::new(&self.mount.dir, scope, self.source == Source::Fanotify);
        match (watch, self.source) {
            (Ok(watch), _) => ears.watch = Some(watch),
            // Opens are then known only by their consequences.
            (Err(error), Source::Tracefs) => {
                tracing::warn!("opens are not recorded: {error}")
            }
            (Err(error), Source::Fanotify) => return Err(without_fanotify(error)),
        }
        if self.source == Source::Tracefs {
            let filter = Filter {
                sources: self.events(),
                device: Some(self.mount.device),
                who,
                buffer_kib: self.buffer_kib,
            };
            let instance = Instance::new(&Root::find()?, &filter)?;
            let taken: Vec<tracefs::Source> = instance.taken().collect();
            if !taken.contains(&tracefs::Source::Fetched)
                && !taken.contains(&tracefs::Source::Asked)
            {
                let what = Text::from("this kernel has no filemap events: use ");
                let message = what.then(Term::EventSource).then(" fanotify");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            ears.started = seekless_host::now();
            instance.start()?;
            ears.instance = Some(instance);
        }
        Ok(())
    }

    fn events(&self) -> Vec<tracefs::Source> {
        use tracefs::Source as S;
        let mut events = vec![S::Asked, S::Faulted, S::Mapped, S::Fetched, S::Renamed, S::Forked];
        if self.mount.fs_type.starts_with("ext") {
            events.extend([S::Buffer, S::Loaded, S::Queued]);
        }
        events
    }
}

/// The result of a read of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Nothing,
    /// Events, with the number of bytes that they used of the kernel's buffer of one processor.
    Some(usize),
}

impl Ears {
    /// Reads the pending events.
    fn listen(&mut self, batch: &mut Batch) -> Result<Heard, HostError> {
        let Batch { traced, noticed } = batch;
        let before = traced.len();
        let (mut any, mut bytes) = (false, 0);
        if let Some(watch) = &mut self.watch {
            while watch.read(noticed)? {
                any = true;
            }
        }
        if let Some(instance) = &mut self.instance {
            bytes = instance.read(traced)?;
        }
        any |= traced.len() > before;
        Ok(if any { Heard::Some(bytes) } else { Heard::Nothing })
    }

    fn wait(&self) {
        match &self.watch {
            Some(watch) => watch.wait(IDLE),
            None => std::thread::sleep(Duration::from_millis(u64::from(IDLE))),
        }
    }
}

/// Removes events of this process and its helpers. Exception: if other processes open the file too,
/// a helper may have fetched its pages first, which the others would have fetched anyway.
fn leave_out(helpers: &[u32], traced: &mut Vec<Traced>, noticed: &mut Vec<Noticed>) {
    let helpers: HashSet<u32> = helpers.iter().copied().chain([std::process::id()]).collect();
    noticed.retain(|event| !helpers.contains(&event.tid));
    let opened: HashSet<u64> = noticed.iter().map(|event| event.ino).collect();
    traced.retain(|event| match event.what {
        _ if !helpers.contains(&event.tid) => true,
        EventKind::Asked { ino, .. }
        | EventKind::Faulted { ino, .. }
        | EventKind::Mapped { ino, .. }
        | EventKind::Fetched { ino, .. }
        | EventKind::Loaded { ino } => opened.contains(&ino),
        _ => false,
    });
}

/// The threads whose accesses are recorded.
pub(super) struct Ours {
    threads: HashSet<u32>,
    /// Whether the creation of each of their threads was seen.
    complete: bool,
}

impl Ours {
    fn new(threads: Vec<u32>, complete: bool) -> Self {
        Self { threads: threads.into_iter().collect(), complete }
    }

    /// Keeps only their accesses. Returns the number of accesses by unidentified threads.
    pub(super) fn keep(&mut self, traced: &[Traced], noticed: &mut Vec<Noticed>) -> u64 {
        for event in traced {
            if let EventKind::Forked { child } = event.what {
                self.threads.insert(child);
            }
        }
        let mut strangers = 0;
        noticed.retain(|event| {
            let known = self.threads.contains(&event.tid);
            if known || self.complete {
                return known;
            }
            let ours = self.adopt(event.tid);
            strangers +=
                u64::from(!ours && !std::path::Path::new(&format!("/proc/{}", event.tid)).exists());
            ours
        });
        strangers
    }

    /// Whether a thread whose creation was not seen descends from one of ours.
    fn adopt(&mut self, tid: u32) -> bool {
        let mut line = vec![tid];
        while let Some(parent) = line.last().and_then(|tid| parent_of(*tid)) {
            if self.threads.contains(&parent) {
                self.threads.extend(line);
                return true;
            }
            line.push(parent);
        }
        false
    }
}

/// The parent of a thread's process, or the process itself for a thread that does not lead it.
fn parent_of(tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    let leader: u32 = field("Tgid:")?;
    if leader != tid { Some(leader) } else { field("PPid:").filter(|parent| *parent != 0) }
}

/// The error of a recording by fanotify, with the other source where the kernel has none.
fn without_fanotify(error: HostError) -> Error {
    let is_lacking = Errno::from_io_error(&error.source) == Some(Errno::NOSYS);
    let error = Error::from(error);
    if !is_lacking {
        return error;
    }
    let hint = Text::from("this kernel has no fanotify (CONFIG_FANOTIFY): use ");
    error.hint(hint.then(Term::EventSource).then(" tracefs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_host::fanotify::AccessKind;

    #[test]
    fn of_a_helper_only_what_others_use_too_is_kept() {
        let fetched =
            |tid, ino| Traced { time: 0, tid, what: EventKind::Fetched { ino, first: 0, last: 3 } };
        let opened = |tid, ino| Noticed {
            time: 0,
            tid,
            did: AccessKind::Open,
            ino,
            directory: false,
            comm: None,
            path: None,
        };
        let (helper, other) = (u32::MAX, u32::MAX - 1);
        let mut traced = vec![fetched(helper, 20), fetched(helper, 21), fetched(other, 22)];
        traced.push(Traced {
            time: 0,
            tid: helper,
            what: EventKind::Buffer { block: 9, size: 4096 },
        });
        let mut noticed = vec![opened(helper, 20), opened(helper, 21), opened(other, 21)];
        leave_out(&[helper], &mut traced, &mut noticed);
        assert_eq!(traced, [fetched(helper, 21), fetched(other, 22)]);
        assert_eq!(noticed, [opened(other, 21)]);
    }
}
