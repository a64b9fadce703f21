//! Makes file systems of the kernel by their mkfs programs.

use super::process::run_to_end;
use rustix::fs::MemfdFlags;
use seekless_images::{Error, ErrorKind};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

/// A file system of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl FileSystem {
    /// Name of the file system in `mount -t`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The mkfs program, and its package.
    fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// Options against questions and chatter.
    fn maker_args(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-q", "-F"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Mount options, separated by commas, needed for reproducible measurements: ext4 must not
    /// initialize inode tables in the background.
    #[must_use]
    pub fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 => "noinit_itable",
            Self::Xfs | Self::Btrfs => "",
        }
    }
}

/// Makes a file system on a device or in a file, with `args` as more arguments of mkfs. A signal is
/// passed on to mkfs.
///
/// # Errors
/// [`ErrorKind::System`] if mkfs is not installed or fails, or a signal arrives.
pub fn make(
    fs: FileSystem,
    args: &[OsString],
    device: &Path,
    signals: &mut Signals,
) -> Result<(), Error> {
    let (program, package) = fs.maker();
    let mut command = Command::new(program);
    command.args(fs.maker_args()).args(args).arg(device).stdin(Stdio::null());
    // Output is shown only on failure: the programs print hints even with -q.
    let output = rustix::fs::memfd_create(program, MemfdFlags::CLOEXEC).map_err(Into::into);
    let clones = output.map(File::from).and_then(|file| {
        let (out, errors) = (file.try_clone()?, file.try_clone()?);
        Ok((out, errors, file))
    });
    let (out, errors, mut output) = clones.map_err(|error| Error::io(program, &error))?;
    command.stdout(out).stderr(errors);
    let (status, signal) = run_to_end(&mut command, signals)
        .map_err(|error| error.about(format!("{program} (of the package {package})")))?;
    if let Some(signal) = signal {
        return Err(Error::interrupted(signal));
    }
    if status.success() {
        return Ok(());
    }
    let mut why = String::new();
    let _ = output.rewind().and_then(|()| output.read_to_string(&mut why));
    Err(Error::new(ErrorKind::System, format!("{program}: {status}: {}", why.trim())))
}
