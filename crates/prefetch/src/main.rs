//! `seekless-prefetch`: reads parts of a lazily fetched volume ahead of its user.

use lexopt::prelude::{Long, Short, Value, ValueExt};
use seekless_prefetch::{DeviceReads, FetchList, Prefetcher, open_volume};
use seekless_units::parse_size;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Read parts of a lazily fetched volume ahead of its user

Usage: seekless-prefetch [OPTIONS] LIST VOLUME

  -r, --readers N         Number of readers [default: 16]
  -u, --user DEVICE       Block device through which the user reads the volume: parts that it has
                          passed are left out
  -w, --window SIZE       With --user: read at most this size ahead of it
      --least-sure PERCENT  Leave out parts that fewer percent of the traces need
  -h, --help              Print this help
  -V, --version           Print the version

LIST is made by `seekless trace export --format chunks` or `--format ranges`.
Exit code: 0; 1 if parts could not be read; 2 if nothing was read.

Example:
  seekless-prefetch boot.chunks /dev/vdb --user /dev/vdb --window 64M
";

#[derive(Default)]
struct Arguments {
    paths: Vec<PathBuf>,
    readers: Option<usize>,
    user: Option<PathBuf>,
    window: Option<u64>,
    least_sure: u8,
}

/// The arguments; `None` if only a text was asked for, which is then printed.
fn arguments() -> Result<Option<Arguments>, Box<dyn Error>> {
    let mut given = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('r') | Long("readers") => given.readers = Some(parser.value()?.parse()?),
            Short('u') | Long("user") => given.user = Some(parser.value()?.into()),
            Short('w') | Long("window") => {
                given.window = Some(parse_size(&parser.value()?.string()?)?.get());
                if given.window == Some(0) {
                    return Err("--window has at least one byte".into());
                }
            }
            Long("least-sure") => {
                given.least_sure = parser.value()?.parse()?;
                if given.least_sure > 100 {
                    return Err("--least-sure has at most 100 percent".into());
                }
            }
            Short('h') | Long("help") => return text(HELP).map(|()| None),
            Short('V') | Long("version") => {
                return text(concat!("seekless-prefetch ", env!("CARGO_PKG_VERSION"), "\n"))
                    .map(|()| None);
            }
            Value(path) => given.paths.push(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(given))
}

fn text(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// An error with the file that it is about.
fn about(path: &Path, error: &dyn Error) -> Box<dyn Error> {
    format!("{}: {error}", path.display()).into()
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let Some(given) = arguments()? else { return Ok(ExitCode::SUCCESS) };
    let [list, path] = &given.paths[..] else {
        return Err("a LIST and a VOLUME are needed".into());
    };
    if given.window.is_some() && given.user.is_none() {
        return Err("--window needs --user".into());
    }
    let open = |path: &Path| File::open(path).map_err(|error| about(path, &error));
    let listed =
        FetchList::parse(BufReader::new(open(list)?)).map_err(|error| about(list, &error))?;
    let volume = open_volume(path).map_err(|error| about(path, &error))?;
    let user = match &given.user {
        Some(device) => {
            let reads = DeviceReads::of(&open(device)?, &volume);
            Some(reads.map_err(|error| about(device, &error))?)
        }
        None => None,
    };
    let mut prefetcher = Prefetcher::new(&listed).least_sure(given.least_sure);
    if let Some(readers) = given.readers {
        prefetcher = prefetcher.readers(readers);
    }
    if let Some(user) = &user {
        prefetcher = prefetcher.user(user);
    }
    if let Some(window) = given.window {
        prefetcher = prefetcher.window(window);
    }
    let fetched = prefetcher.run(&volume).map_err(|error| about(list, &error))?;
    let mut errors = std::io::stderr();
    for failed in &fetched.failed {
        let (offset, length) = (failed.fetch.offset, failed.fetch.length);
        writeln!(errors, "{}: {length} bytes at {offset}: {}", path.display(), failed.why)?;
    }
    Ok(if fetched.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // A failed write to standard error cannot be reported.
        let _ = writeln!(std::io::stderr(), "seekless-prefetch: {error}");
        ExitCode::from(2)
    })
}
