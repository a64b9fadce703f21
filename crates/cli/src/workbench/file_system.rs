//! Makes file systems of the kernel.

use super::programs::run_program;
use crate::failure::{Failure, Kind};
use crate::interrupt::interrupted;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

/// A file system of the kernel's.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl FileSystem {
    pub(crate) fn name(self) -> &'static str {
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

    /// Mount options. ext4 must not initialize inode tables in the background during the script.
    pub(crate) fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 => "noinit_itable",
            Self::Xfs | Self::Btrfs => "",
        }
    }
}

/// Makes a file system on a device or in a file.
pub(crate) fn make(
    fs: FileSystem,
    args: &[OsString],
    device: &Path,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (program, package) = fs.maker();
    let mut command = Command::new(program);
    command.args(fs.maker_args()).args(args).arg(device).stdin(Stdio::null());
    // Output is shown only on failure: the programs print hints even with -q.
    let said =
        tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file.try_clone()?, file)));
    let (out, err, mut said) = said.map_err(|error| Failure::io(program, &error))?;
    command.stdout(out).stderr(err);
    let (status, signal) = run_program(&mut command, signals)
        .map_err(|failure| failure.about(format!("{program} (of the package {package})")))?;
    if let Some(signal) = signal {
        return Err(interrupted(signal));
    }
    if status.success() {
        return Ok(());
    }
    let mut why = String::new();
    let _ = said.rewind().and_then(|()| said.read_to_string(&mut why));
    Err(Failure::new(Kind::System, format!("{program}: {status}: {}", why.trim())))
}
