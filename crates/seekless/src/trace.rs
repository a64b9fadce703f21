//! Traces: accesses in their order.

use crate::Error;
use seekless_compose::traces;
use seekless_images::output::{NO_INPUTS, Output};
use seekless_layout::trace::{Event, Events, Op, Program, Writer, merge, write_packed};
use seekless_units::Nanos;
use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The accesses of a program or a boot, in order.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::Trace;
///
/// let work = tempfile::tempdir()?;
/// let path = work.path().join("boot.trace");
/// Trace::of_paths(["/bin/sh", "/etc/profile"]).save(&path)?;
/// let trace = Trace::load(&path)?;
/// // Each file is opened and read.
/// assert_eq!(trace.len(), 4);
/// assert_eq!(trace.paths().next(), Some("/bin/sh".as_ref()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) program: Program,
    pub(crate) events: Events,
}

impl Trace {
    /// Loads a trace as `seekless record` and `seekless trace import` make it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a file that is no trace, or of a later
    /// version, [`ErrorKind::Corrupt`](crate::ErrorKind) with the number of a line that is none,
    /// [`ErrorKind::System`](crate::ErrorKind).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (program, events) = traces::load_completely(path.as_ref())?;
        Ok(Self { program, events })
    }

    /// A trace in which files are read from beginning to end, one after the other.
    pub fn of_paths<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        let events = |(n, path): (u64, P)| {
            let path = path.as_ref().as_os_str().as_bytes().to_vec();
            // Only their order counts.
            let at = Nanos::new(n * 1000);
            [Event::new(at, Op::Open, path.clone()), Event::new(at, Op::Read, path)]
        };
        let events = (0..).zip(paths).flat_map(events).collect();
        Self { program: Program::default(), events }
    }

    /// Several traces as one, in order of time; of accesses at the same time, those of the earlier
    /// trace come first. It is of the program of the first.
    ///
    /// ```
    /// use seekless::Trace;
    ///
    /// let merged = Trace::merge([Trace::of_paths(["/a"]), Trace::of_paths(["/b"])]);
    /// let paths: Vec<_> = merged.paths().map(|path| path.to_str().unwrap()).collect();
    /// assert_eq!(paths, ["/a", "/a", "/b", "/b"]);
    /// ```
    #[must_use]
    pub fn merge(traces: impl IntoIterator<Item = Self>) -> Self {
        let mut program = None;
        let mut each = Vec::new();
        for trace in traces {
            program.get_or_insert(trace.program);
            each.push(trace.events);
        }
        Self { program: program.unwrap_or_default(), events: merge(&each) }
    }

    /// Stores it, compressed with zstd if the name ends in `.zst`. A file that is there is replaced
    /// when the trace is complete.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind), [`ErrorKind::NoSpace`](crate::ErrorKind).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let io = |error| Error::io(path.display(), &error);
        let output = Output::create(path, true, NO_INPUTS)?;
        let mut out = BufWriter::new(output.file()?);
        write_packed(path, &mut out, |out| {
            let mut writer = Writer::new(out, &self.program.fields())?;
            self.events.to_events().try_for_each(|event| writer.write(&event))
        })
        .and_then(|()| out.flush())
        .map_err(io)?;
        drop(out);
        output.finish()
    }

    /// The number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing was accessed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The path of each access, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.events.iter().map(|event| Path::new(OsStr::from_bytes(event.path)))
    }
}
