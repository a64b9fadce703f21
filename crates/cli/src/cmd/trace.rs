//! `seekless trace`: access traces in, out and side by side.

use crate::args::Global;
use crate::failure::{Failure, Kind};
use clap::{Args, Subcommand, ValueEnum};
use seekless_layout::trace::{self, Event, Reader, StraceOptions, TraceError, Writer};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Import, show, export and merge access traces
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  strace -f -ttt -y -o boot.strace chroot /srv/root /bin/job
  seekless trace import --strace boot.strace --root /srv/root -o job.trace
  seekless trace import --paths hot-files.txt -o hot.trace
  seekless trace show job.trace
  seekless trace export --format squashfs-sort job.trace -o job.sort
  seekless trace merge monday.trace tuesday.trace -o week.trace")]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Create a trace from the output of another tool
    Import(ImportArgs),
    /// Print a trace in readable form
    Show {
        /// The trace
        trace: PathBuf,
    },
    /// Convert a trace for other tools
    Export {
        /// The trace
        trace: PathBuf,
        /// Output format
        #[arg(long, value_enum, default_value_t = Form::Paths)]
        format: Form,
        /// Include files that were only looked up or listed (paths format only)
        #[arg(long)]
        all: bool,
        /// Output file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Merge several traces in order of time
    Merge {
        /// The traces
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// Output file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
struct ImportArgs {
    /// List of paths, one per line; each file is opened and read completely
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "strace",
        conflicts_with = "strace"
    )]
    paths: Option<PathBuf>,
    /// Output of strace -f -tt (or -ttt), preferably with -y
    #[arg(long, value_name = "FILE")]
    strace: Option<PathBuf>,
    /// Directory that corresponds to the root of the image; other files are left
    /// out
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Working directory in which the traced program was started
    #[arg(long, value_name = "DIR", requires = "strace")]
    cwd: Option<PathBuf>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One path per line, in the order of first access
    Paths,
    /// Priorities for mksquashfs -sort
    SquashfsSort,
}

pub(crate) fn run(args: &TraceArgs, global: &Global) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Import(import) => self::import(import)?,
        What::Show { trace } => show(trace, global)?,
        What::Export { trace, format, all, output } => {
            export(trace, *format, *all, output.as_deref())?;
        }
        What::Merge { traces, output } => merge(traces, output.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A trace's failure with the file it is in.
fn failed(path: &Path, error: &TraceError) -> Failure {
    match error {
        TraceError::Io(error) => Failure::io(path.display(), error),
        TraceError::Version(_) => {
            Failure::new(Kind::Unsupported, format!("{}: {error}", path.display()))
        }
        TraceError::Line { .. } => {
            Failure::new(Kind::Corrupt, format!("{}: {error}", path.display()))
        }
    }
}

fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    File::open(path).map(BufReader::new).map_err(|error| Failure::io(path.display(), &error))
}

/// All events of a trace.
pub(crate) fn load(path: &Path) -> Result<Vec<Event>, Failure> {
    let reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    reader.collect::<Result<_, _>>().map_err(|error| failed(path, &error))
}

/// Runs `write` on a file or standard output.
fn write_to(
    output: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = output else {
        let mut out = BufWriter::new(io::stdout().lock());
        return match write(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::io("standard output", &error))
            }
            _ => Ok(()),
        };
    };
    let io = |error| Failure::io(path.display(), &error);
    let mut out = BufWriter::new(File::create(path).map_err(io)?);
    write(&mut out).and_then(|()| out.flush()).map_err(io)
}

fn store(output: Option<&Path>, origin: &str, events: &[Event]) -> Result<(), Failure> {
    let mut header = Map::new();
    header.insert("recorder".into(), Value::from(origin));
    write_to(output, |out| {
        let mut writer = Writer::new(out, &header)?;
        events.iter().try_for_each(|event| writer.write(event))
    })
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let root = args.root.as_ref().map(bytes);
    let output = args.output.as_deref();
    if let Some(list) = &args.paths {
        let events = trace::read_paths(open(list)?, root.as_deref());
        return store(output, "paths", &events.map_err(|error| failed(list, &error))?);
    }
    let Some(file) = &args.strace else {
        return Err(Failure::usage("nothing to import (use --paths or --strace)"));
    };
    let options = StraceOptions { root, cwd: args.cwd.as_ref().map(bytes) };
    let events = trace::read_strace(open(file)?, &options).map_err(|error| failed(file, &error))?;
    store(output, "strace", &events)
}

fn show(path: &Path, global: &Global) -> Result<(), Failure> {
    let mut reader = Reader::new(open(path)?).map_err(|error| failed(path, &error))?;
    let header = reader.header().clone();
    let mut broken = None;
    let mut sound = reader.by_ref().map_while(|event| match event {
        Ok(event) => Some(event),
        Err(error) => {
            broken = Some(error);
            None
        }
    });
    write_to(None, |out| {
        if !global.json {
            return sound.try_for_each(|event| show_event(&event, out));
        }
        let mut writer = Writer::new(out, &header)?;
        sound.try_for_each(|event| writer.write(&event))
    })?;
    broken.map_or(Ok(()), |error| Err(failed(path, &error)))
}

fn show_event(event: &Event, out: &mut dyn Write) -> io::Result<()> {
    let seconds = event.time.get() as f64 / 1e9;
    let who = event.comm.as_deref().unwrap_or("-");
    let path = String::from_utf8_lossy(&event.path);
    write!(
        out,
        "{seconds:12.6} {:>7} {who:<15} {:<8} {}",
        event.pid,
        event.op.name(),
        path.escape_debug()
    )?;
    match event.length {
        Some(length) => write!(out, " {}+{length}", event.offset)?,
        None if event.op == trace::Op::Read => write!(out, " {}+all", event.offset)?,
        None => {}
    }
    writeln!(out, "{}", if event.missing { " (missing)" } else { "" })
}

fn export(path: &Path, form: Form, all: bool, output: Option<&Path>) -> Result<(), Failure> {
    let events = load(path)?;
    let paths = trace::first_touches(&events, all && form == Form::Paths);
    let mut left_out = 0;
    write_to(output, |out| match form {
        Form::Paths => trace::write_paths(&paths, out),
        Form::SquashfsSort => {
            left_out = trace::write_squashfs_sort(&paths, out)?;
            Ok(())
        }
    })?;
    if left_out > 0 {
        eprintln!("seekless: {left_out} paths that contain a newline were left out");
    }
    Ok(())
}

fn merge(traces: &[PathBuf], output: Option<&Path>) -> Result<(), Failure> {
    let loaded = traces.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    store(output, "merge", &trace::merge(loaded))
}
