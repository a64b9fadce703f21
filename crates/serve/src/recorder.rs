//! Recording of accesses to a mounted image.

use rustix::fs::{FlockOperation, flock};
use seekless_layout::trace::{Event, Op, Packed, Writer};
use seekless_units::Nanos;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time before an event is written to the file.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// The root in FUSE's numbering.
const ROOT: u64 = 1;

/// Limit of names on the way to the root, above that of any path.
const DEPTH_MAX: usize = 4096;

/// A read-ahead of one page means none.
const ONE_PAGE: u64 = 4096;

/// A trace being written.
pub struct Recorder {
    start: Instant,
    /// Reads are those of a disk, including read-ahead.
    fetched: bool,
    state: Mutex<State>,
}

struct State {
    out: Writer<Packed<BufWriter<File>>>,
    /// Results of lookups: inode to (directory, name).
    names: HashMap<u64, (u64, Box<[u8]>)>,
    comms: HashMap<u32, Option<String>>,
    /// The last event, if it is a read that the next one may continue.
    pending: Option<(u64, Event)>,
    flushed: Instant,
    failed: Option<io::Error>,
}

impl Recorder {
    /// Starts a trace in a new file, compressed with zstd if its name ends in `.zst`. It is written
    /// when an event comes more than a second after it was written last. If the server is killed, all
    /// events up to then can be read.
    ///
    /// # Errors
    /// I/O errors, also for a trace that another process writes.
    pub fn create(path: &Path, image: &Path, read_ahead: u64) -> io::Result<Self> {
        let mut header = Map::new();
        header.insert("recorder".into(), Value::from("mount"));
        header.insert("image".into(), Value::from(image.to_string_lossy()));
        header.insert("kernel".into(), seekless_host::kernel_release().into());
        header.insert("read_ahead_kb".into(), (read_ahead >> 10).into());
        let fetched = read_ahead > ONE_PAGE;
        let pages = if fetched { "fetched" } else { "touched" };
        header.insert("pages".into(), pages.into());
        let file = File::create(path)?;
        // For processes that wait for the whole trace. A lock held already is that of one of them.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let out = Writer::new(Packed::named(path, BufWriter::new(file))?, &header)?;
        let start = Instant::now();
        let state = State {
            out,
            names: HashMap::new(),
            comms: HashMap::new(),
            pending: None,
            flushed: start,
            failed: None,
        };
        Ok(Self { start, fetched, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Records the lookup of a name in a directory, with its inode if it exists.
    pub fn lookup(&self, pid: u32, parent: u64, name: &[u8], child: Option<u64>) {
        let time = self.now();
        let mut state = self.lock();
        if let Some(child) = child.filter(|&child| child != ROOT) {
            state.names.insert(child, (parent, name.into()));
        }
        let mut path = state.path(parent);
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let mut event = Event::new(time, Op::Lookup, path).by(pid);
        event.missing = child.is_none();
        state.write(event);
    }

    /// Records an operation on a file as a whole.
    pub fn touch(&self, pid: u32, op: Op, ino: u64) {
        let time = self.now();
        let mut state = self.lock();
        let path = state.path(ino);
        state.write(Event::new(time, op, path).by(pid));
    }

    /// Records the read of a range. Adjacent ranges are joined.
    pub fn read(&self, pid: u32, ino: u64, offset: u64, length: u64) {
        let time = self.now();
        let mut state = self.lock();
        if let Some((of, event)) = &mut state.pending {
            let end = event.offset + event.length.unwrap_or(0);
            if (*of, event.pid, end) == (ino, pid, offset) {
                event.length = Some(end - event.offset + length);
                return;
            }
        }
        let path = state.path(ino);
        let mut event = Event::new(time, Op::Read, path).by(pid).on(offset, length);
        event.comm = state.comm(pid);
        event.fetched = self.fetched;
        state.write_pending();
        state.pending = Some((ino, event));
    }

    /// Writes all events to the file.
    ///
    /// # Errors
    /// The first error since the start.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.write_pending();
        state.flush();
        state.failed.take().map_or(Ok(()), Err)
    }
}

impl State {
    fn path(&self, ino: u64) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while let Some((parent, name)) = self.names.get(&at) {
            names.push(name);
            at = *parent;
            if at == ROOT || names.len() > DEPTH_MAX {
                break;
            }
        }
        names.reverse();
        [b"/", names.join(&b'/').as_slice()].concat()
    }

    /// The name of a process, cached.
    fn comm(&mut self, pid: u32) -> Option<String> {
        let read = || {
            let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
            Some(String::from_utf8_lossy(comm.trim_ascii_end()).into_owned())
        };
        self.comms.entry(pid).or_insert_with(read).clone()
    }

    fn write(&mut self, mut event: Event) {
        if event.op == Op::Open {
            // The process may run another program since it was last read.
            self.comms.remove(&event.pid);
        }
        event.comm = self.comm(event.pid);
        self.write_pending();
        self.put(&event);
    }

    fn write_pending(&mut self) {
        if let Some((_, event)) = self.pending.take() {
            self.put(&event);
        }
    }

    fn put(&mut self, event: &Event) {
        if let Err(error) = self.out.write(event) {
            self.failed.get_or_insert(error);
        }
        if self.flushed.elapsed() > FLUSH_AFTER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error);
        }
        self.flushed = Instant::now();
    }
}
