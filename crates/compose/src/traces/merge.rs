//! Traces merged in order of time, in bounded memory.
//!
//! Inputs that are in order of time are read side by side, a line of each at a time. An input that
//! is not, or that cannot be read twice, is sorted first, in parts that fit into memory, which are
//! written to temporary files.

use super::{failed, open};
use seekless_images::Error;
use seekless_layout::trace::{Reader, Steps, TraceLine, Writer};
use seekless_summary::MergeLimits;
use seekless_units::Nanos;
use serde_json::Map;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// Bytes of memory for each input that is read at the same time: its buffers, and the window of its
/// compression.
const PER_INPUT: u64 = 4 << 20;

/// The most inputs that are read at the same time: a process may have 1,024 files open.
const MOST_INPUTS: u64 = 256;

/// Bytes of memory for a line that waits to be sorted, besides itself.
const PER_LINE: usize = size_of::<(Nanos, usize, usize)>();

/// The number of inputs that are read at the same time.
fn inputs(limits: MergeLimits<'_>) -> usize {
    let inputs = (limits.memory.get() / PER_INPUT).clamp(2, MOST_INPUTS);
    usize::try_from(inputs).expect("at most MOST_INPUTS")
}

fn spill(limits: MergeLimits<'_>) -> Result<BufWriter<File>, Error> {
    let file = tempfile::tempfile_in(limits.temp_dir);
    file.map(BufWriter::new).map_err(|error| Error::io(limits.temp_dir.display(), &error))
}

/// Lines of a trace in order of time.
enum Input {
    File(PathBuf),
    /// Its beginning is read again.
    Spilled(File),
}

/// Traces that are merged in order of time; of events at the same time, those of the earlier trace
/// come first.
pub struct Merge {
    sources: Sources,
}

impl Merge {
    /// Prepares a merge: determines which traces are in order, and sorts those that are not.
    ///
    /// # Errors
    /// As [`super::load`]; [`ErrorKind::NoSpace`](seekless_images::ErrorKind) for the temporary
    /// files.
    pub fn new(traces: &[PathBuf], limits: MergeLimits<'_>) -> Result<Self, Error> {
        let merge = |inputs| spilled(inputs, limits).map(Input::Spilled);
        let mut steps = Steps::of(inputs(limits));
        for path in traces {
            if path.is_file() && is_in_order(path)? {
                steps.add(Input::File(path.clone()), merge)?;
            } else {
                sorted(path, limits, |part| steps.add(Input::Spilled(part), merge))?;
            }
        }
        Ok(Self { sources: Sources::open(steps.finish(merge)?)? })
    }

    /// Writes all events, and returns their number.
    ///
    /// # Errors
    /// The outer error is one of `out`, the inner one of a trace.
    pub fn write(self, out: &mut Writer<impl Write>) -> io::Result<Result<u64, Error>> {
        self.sources.write(out)
    }
}

/// Merges some inputs into a temporary file.
fn spilled(inputs: Vec<Input>, limits: MergeLimits<'_>) -> Result<File, Error> {
    let about = |error: io::Error| Error::io(limits.temp_dir.display(), &error);
    let mut file = spill(limits)?;
    let mut out = Writer::new(&mut file, &Map::new()).map_err(about)?;
    Sources::open(inputs)?.write(&mut out).map_err(about)??;
    rewound(file).map_err(about)
}

fn rewound(file: BufWriter<File>) -> io::Result<File> {
    let mut file = file.into_inner()?;
    file.rewind()?;
    Ok(file)
}

/// Whether the events of a trace are in order of time.
fn is_in_order(path: &Path) -> Result<bool, Error> {
    let about = |error| failed(path, &error);
    let mut reader = Reader::new(open(path)?).map_err(about)?;
    let mut last = Nanos::ZERO;
    while let Some(time) = reader.next_time().map_err(about)? {
        if time < last {
            return Ok(false);
        }
        last = time;
    }
    Ok(true)
}

/// Gives the events of a trace in order of time, in files that each have a part of the trace.
fn sorted(
    path: &Path,
    limits: MergeLimits<'_>,
    mut give: impl FnMut(File) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    let memory = usize::try_from(limits.memory.get()).unwrap_or(usize::MAX);
    let mut part = Part::default();
    while let Some(line) = reader.next_line().map_err(|error| failed(path, &error))? {
        part.add(&line);
        // Lists of lines grow to twice their length.
        if part.text.len() + part.lines.len() * PER_LINE >= memory / 2 {
            give(std::mem::take(&mut part).store(limits)?)?;
        }
    }
    if !part.lines.is_empty() {
        give(part.store(limits)?)?;
    }
    Ok(())
}

/// Lines that wait to be sorted.
#[derive(Default)]
struct Part {
    text: Vec<u8>,
    /// Times, and first and last bytes of the lines.
    lines: Vec<(Nanos, usize, usize)>,
}

impl Part {
    fn add(&mut self, line: &TraceLine<'_>) {
        let from = self.text.len();
        put(line, &mut self.text);
        self.lines.push((line.time(), from, self.text.len()));
    }

    fn store(mut self, limits: MergeLimits<'_>) -> Result<File, Error> {
        // Places in the text ascend: the order of equal times stays.
        self.lines.sort_unstable();
        let mut file = spill(limits)?;
        let mut write = || {
            Writer::new(&mut file, &Map::new())?;
            self.lines.iter().try_for_each(|&(_, from, to)| file.write_all(&self.text[from..to]))
        };
        let about = |error: io::Error| Error::io(limits.temp_dir.display(), &error);
        write().map_err(about)?;
        rewound(file).map_err(about)
    }
}

/// Appends a line with its line feed.
fn put(line: &TraceLine<'_>, text: &mut Vec<u8>) {
    Writer::continued(text).write_line(line).expect("memory takes all");
}

/// A trace, and its next event.
struct Source {
    reader: Reader<Box<dyn BufRead>>,
    name: PathBuf,
    line: Vec<u8>,
}

impl Source {
    fn open(input: Input) -> Result<Self, Error> {
        let (name, text): (_, Box<dyn BufRead>) = match input {
            Input::File(path) => {
                let text = open(&path)?;
                (path, text)
            }
            Input::Spilled(file) => ("temporary file".into(), Box::new(BufReader::new(file))),
        };
        let reader = Reader::new(text).map_err(|error| failed(&name, &error))?;
        Ok(Self { reader, name, line: Vec::new() })
    }

    /// Reads the next line; its time.
    fn advance(&mut self) -> Result<Option<Nanos>, Error> {
        self.line.clear();
        let line = self.reader.next_line().map_err(|error| failed(&self.name, &error))?;
        Ok(line.map(|line| {
            put(&line, &mut self.line);
            line.time()
        }))
    }
}

/// Sources with the times of their next events, the earliest first.
struct Sources {
    all: Vec<Source>,
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Sources {
    fn open(inputs: Vec<Input>) -> Result<Self, Error> {
        let (mut all, mut next) = (Vec::new(), BinaryHeap::new());
        for input in inputs {
            let mut source = Source::open(input)?;
            if let Some(time) = source.advance()? {
                next.push(Reverse((time, all.len())));
                all.push(source);
            }
        }
        Ok(Self { all, next })
    }

    fn write(mut self, out: &mut Writer<impl Write>) -> io::Result<Result<u64, Error>> {
        let mut events = 0;
        while let Some(mut first) = self.next.peek_mut() {
            let Reverse((time, at)) = &mut *first;
            let source = &mut self.all[*at];
            out.write_text(&source.line)?;
            events += 1;
            match source.advance() {
                Ok(Some(next)) => *time = next,
                Ok(None) => drop(PeekMut::pop(first)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_layout::trace::{Event, Op};
    use seekless_units::ByteLen;

    /// A trace with events at some times, each with its number as its path.
    fn trace(dir: &Path, name: &str, times: &[u64]) -> PathBuf {
        let path = dir.join(name);
        let text = times.iter().enumerate().map(|(at, time)| {
            format!("{{\"time\":{time},\"op\":\"open\",\"path\":\"/{name}/{at}\",\"cpu\":1}}\n")
        });
        let text: String = text.collect();
        std::fs::write(&path, format!("{{\"seekless_trace\":1}}\n{text}")).unwrap();
        path
    }

    fn merged(traces: &[PathBuf], memory: u64, dir: &Path) -> Result<Vec<u8>, Error> {
        let limits = MergeLimits { memory: ByteLen::new(memory), temp_dir: dir };
        let mut text = Vec::new();
        let mut out = Writer::new(&mut text, &Map::new()).unwrap();
        let events = Merge::new(traces, limits)?.write(&mut out).unwrap()?;
        assert_eq!(events, std::str::from_utf8(&text).unwrap().lines().count() as u64 - 1);
        Ok(text)
    }

    #[test]
    fn any_memory_gives_the_same_trace() {
        let dir = tempfile::tempdir().unwrap();
        let mixed: Vec<u64> = (0..3000).map(|n| n * 7919 % 1000).collect();
        let ordered: Vec<u64> = (0..3000).map(|n| n / 3).collect();
        let names: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
        let traces: Vec<PathBuf> = names
            .iter()
            .enumerate()
            .map(|(n, name)| trace(dir.path(), name, if n % 3 == 0 { &mixed } else { &ordered }))
            .collect();
        let mut wanted: Vec<Event> = Vec::new();
        for path in &traces {
            let file = BufReader::new(File::open(path).unwrap());
            wanted.extend(Reader::new(file).unwrap().map(Result::unwrap));
        }
        wanted.sort_by_key(|event| event.time);
        let whole = merged(&traces, 1 << 30, dir.path()).unwrap();
        let read: Vec<Event> = Reader::new(&*whole).unwrap().map(Result::unwrap).collect();
        assert!(read == wanted, "as sorted in memory, with unknown fields");
        assert_eq!(read[0].op, Op::Open);
        // Parts of a few lines, and two inputs at a time.
        assert!(merged(&traces, 20_000, dir.path()).unwrap() == whole);
    }

    #[test]
    fn a_trace_cut_short_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let sound = trace(dir.path(), "sound", &[1, 2, 3]);
        let cut = trace(dir.path(), "cut", &[1, 2, 3]);
        let text = std::fs::read(&cut).unwrap();
        std::fs::write(&cut, &text[..text.len() - 9]).unwrap();
        let error = merged(&[sound, cut.clone()], 1 << 20, dir.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: line 4: cut short", cut.display()));
    }
}
