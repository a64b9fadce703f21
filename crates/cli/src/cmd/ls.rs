//! `seekless ls`: lists directories of an image.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::show;
use clap::Args;
use seekless_fs::inspect::{resolve, sorted_entries};
use seekless_fs::{Attr, FileKind, FsError, Inspect};
use seekless_units::Ino;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List a directory of an image
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless ls disk.img
  seekless ls -l disk.img /etc
  seekless ls -R --json disk.img /usr | jq .path")]
pub(crate) struct LsArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    /// Directory or file to list
    #[arg(default_value = "/")]
    path: OsString,
    /// Long format: mode, links, owner, group, size and modification time (UTC)
    #[arg(short, long)]
    long: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

/// A listing in progress.
struct Listing<'a, W: Write> {
    image: &'a dyn Inspect,
    args: &'a LsArgs,
    json: bool,
    out: W,
}

/// Reason for which a listing stopped.
enum Stop {
    Image(FsError),
    Output(io::Error),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Image(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Lists all paths of an image.
pub(crate) fn list_all(image: &Path) -> Result<(), Failure> {
    let args = LsArgs {
        image: image.to_path_buf(),
        path: "/".into(),
        long: false,
        recursive: true,
        place: PlaceArgs::default(),
        open: OpenArgs { ignore_checksums: false, skip_journal: false },
    };
    run(&args, &Global { json: false, quiet: false }).map(drop)
}

pub(crate) fn run(args: &LsArgs, global: &Global) -> Result<ExitCode, Failure> {
    let image = seekless_images::open(&args.image, &args.place.place(), args.open.options())?;
    let out = BufWriter::new(io::stdout().lock());
    let mut listing = Listing { image: image.as_ref(), args, json: global.json, out };
    match listing.run().and_then(|()| Ok(listing.out.flush()?)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader closed the pipe: that is no error.
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::SUCCESS)
        }
        Err(Stop::Output(error)) => Err(Failure::io("standard output", &error)),
        Err(Stop::Image(error)) => Err(Failure::from(error).about(args.image.display())),
    }
}

impl<W: Write> Listing<'_, W> {
    fn run(&mut self) -> Result<(), Stop> {
        let path = self.args.path.as_bytes();
        let ino = resolve(self.image, path)?;
        let attr = self.image.attr(ino)?;
        if attr.kind != FileKind::Directory {
            return self.entry(path, path, &attr);
        }
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let mut pending = vec![(trimmed.to_vec(), ino)];
        let mut seen = HashSet::new();
        let mut first = true;
        while let Some((path, dir)) = pending.pop() {
            if !seen.insert(dir) {
                continue;
            }
            if self.args.recursive && !self.json {
                let gap = if first { "" } else { "\n" };
                let shown = if path.is_empty() { "/".into() } else { show::name(&path) };
                writeln!(self.out, "{gap}{shown}:")?;
            }
            first = false;
            let below = self.directory(&path, dir)?;
            if self.args.recursive {
                pending.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Lists a directory, and returns its subdirectories.
    fn directory(&mut self, path: &[u8], dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Stop> {
        let mut below = Vec::new();
        for (name, ino) in sorted_entries(self.image, dir)? {
            let child = [path, b"/", &name].concat();
            let attr = self.image.attr(ino)?;
            self.entry(&child, &name, &attr)?;
            if attr.kind == FileKind::Directory {
                below.push((child, ino));
            }
        }
        Ok(below)
    }

    fn entry(&mut self, path: &[u8], name: &[u8], attr: &Attr) -> Result<(), Stop> {
        let target = match attr.kind {
            FileKind::Symlink => Some(self.image.read_link(attr.ino)?),
            _ => None,
        };
        if self.json {
            return self.entry_as_json(path, attr, target.as_deref());
        }
        if !self.args.long {
            return Ok(writeln!(self.out, "{}", show::name(name))?);
        }
        write!(
            self.out,
            "{} {:>3} {:>5} {:>5} {:>10} {} {}",
            show::mode(attr.kind, attr.perm),
            attr.nlink,
            attr.uid,
            attr.gid,
            show::size(attr),
            show::time(attr.mtime),
            show::name(name),
        )?;
        if let Some(target) = target {
            write!(self.out, " -> {}", show::name(&target))?;
        }
        Ok(writeln!(self.out)?)
    }

    /// Prints an entry as a JSON object on a line.
    fn entry_as_json(
        &mut self,
        path: &[u8],
        attr: &Attr,
        target: Option<&[u8]>,
    ) -> Result<(), Stop> {
        let value = serde_json::json!({
            "path": show::json_bytes(path),
            "ino": attr.ino.get(),
            "mode": format!("{:06o}", attr.kind.mode_bits() | attr.perm),
            "nlink": attr.nlink,
            "uid": attr.uid,
            "gid": attr.gid,
            "size": attr.size,
            "mtime": { "secs": attr.mtime.secs, "nanos": attr.mtime.nanos },
            "target": target.map(show::json_bytes),
        });
        Ok(writeln!(self.out, "{value}")?)
    }
}
