//! `seekless cat`: prints files of an image.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use clap::Args;
use seekless_fs::Inspect;
use seekless_fs::inspect::resolve;
use seekless_units::{ByteLen, Ino};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Write files of an image to standard output
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless cat disk.img /etc/os-release
  seekless cat disk.img /boot/vmlinuz | file -")]
pub(crate) struct CatArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// Files to write
    #[arg(required = true)]
    paths: Vec<OsString>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &CatArgs, global: &Global) -> Result<ExitCode, Failure> {
    if global.json {
        let why = "cat prints the contents of files as they are, which is not JSON";
        return Err(Failure::usage(why).hint("leave --json out"));
    }
    let image = seekless_images::open(&args.image, &args.place.place(), args.open.options())?;
    let mut out = io::stdout().lock();
    for path in &args.paths {
        let about = |failure: Failure| failure.about(path.display());
        let ino = resolve(image.as_ref(), path.as_bytes()).map_err(Failure::from)?;
        match copy(image.as_ref(), ino, &mut out).map_err(about)? {
            Ok(()) => {}
            // The reader closed the pipe: that is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::io("standard output", &error)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies a file. The outer result is that of reading, the inner one that of writing.
fn copy(image: &dyn Inspect, ino: Ino, out: &mut dyn Write) -> Result<io::Result<()>, Failure> {
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let len = image.read(ino, ByteLen::new(at), &mut buf)?;
        if len == 0 {
            return Ok(out.flush());
        }
        if let Err(error) = out.write_all(&buf[..len]) {
            return Ok(Err(error));
        }
        at += len as u64;
    }
}
