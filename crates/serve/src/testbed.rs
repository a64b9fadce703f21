//! A file system of the kernel on a modelled disk, for the duration of a script or of a
//! measurement.
//!
//! All mounts are in a namespace of its own, and the loop device is released with its last user, so
//! that nothing is left behind, however the process ends. Needs root.

mod disk_server;
mod mkfs;
mod process;
mod scratch_dir;

pub use disk_server::{DiskControl, ServedDisk, StartServer};
pub use mkfs::{FileSystem, make};
pub use scratch_dir::abandoned_dirs;

use crate::disk;
use disk_server::DiskServer;
use process::run_to_end;
use rustix::mount::MountFlags;
use scratch_dir::{DISK, IMAGE, MOUNT_POINT, ScratchDir};
use seekless_host::HostError;
use seekless_host::caches::{self, Caches};
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::scratch::Mounted;
use seekless_images::Error;
use seekless_units::ByteLen;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// A modelled disk, attached to a loop device, that is ready for a file system.
pub struct Testbed {
    fs: FileSystem,
    device: LoopDevice,
    server: DiskServer,
    scratch: ScratchDir,
}

impl Testbed {
    /// Serves a new disk of `size` bytes, all zeros, for a file system of kind `fs`. The image and
    /// the mount points are in a new directory in `temp_dir`; `start` makes the command that serves
    /// the disk.
    ///
    /// The calling thread gets mounts of its own, which it keeps.
    ///
    /// # Errors
    /// [`ErrorKind::System`](seekless_images::ErrorKind::System) without root, if `temp_dir` cannot
    /// be written, or if the disk does not appear within a minute;
    /// [`ErrorKind::NoSpace`](seekless_images::ErrorKind::NoSpace); errors of `start`.
    pub fn new(
        fs: FileSystem,
        size: ByteLen,
        temp_dir: &Path,
        start: StartServer<'_>,
    ) -> Result<Self, Error> {
        let scratch = ScratchDir::new(temp_dir)?;
        drop(disk::open_image(&scratch.join(IMAGE), Some(size))?);
        let title = format!("{} of {}", fs.name(), seekless_units::format_size(size));
        Self::serve(fs, scratch, &title, start)
    }

    /// As [`Testbed::new`], for a disk with the contents of the file `image`, which has a file
    /// system of kind `fs`. Writes change the file.
    ///
    /// # Errors
    /// As [`Testbed::new`], and [`ErrorKind::System`](seekless_images::ErrorKind::System) if there
    /// is no such file.
    pub fn of(
        fs: FileSystem,
        image: &Path,
        temp_dir: &Path,
        start: StartServer<'_>,
    ) -> Result<Self, Error> {
        let scratch = ScratchDir::new(temp_dir)?;
        let failed = |error| Error::io(image.display(), &error);
        let whole = image.canonicalize().map_err(failed)?;
        std::os::unix::fs::symlink(whole, scratch.join(IMAGE)).map_err(failed)?;
        Self::serve(fs, scratch, &image.display().to_string(), start)
    }

    /// Serves the file [`IMAGE`] of the scratch directory, which is unlinked.
    fn serve(
        fs: FileSystem,
        scratch: ScratchDir,
        title: &str,
        start: StartServer<'_>,
    ) -> Result<Self, Error> {
        let image = scratch.join(IMAGE);
        for name in [DISK, MOUNT_POINT] {
            let dir = scratch.join(name);
            std::fs::create_dir(&dir).map_err(|error| Error::io(dir.display(), &error))?;
        }
        let server = DiskServer::new(&scratch, title, start)?;
        // Unlinked now, so that a new image is freed even if this process is killed. For
        // [`Testbed::of`] it is only a symlink.
        std::fs::remove_file(&image).map_err(|error| Error::io(image.display(), &error))?;
        let options = LoopOptions { direct: true, ..LoopOptions::default() };
        let device = LoopDevice::new(&server.disk(), options)?;
        Ok(Self { fs, device, server, scratch })
    }

    /// Mounts the file system read-only, with a device that reads ahead `read_ahead_kib` KiB, and
    /// calls `work` with the mount point, the loop device and the control of the disk. Returns the
    /// result of `work`, and the disk's report as JSON. Everything is unmounted and removed.
    ///
    /// # Errors
    /// [`ErrorKind::System`](seekless_images::ErrorKind::System) if the kernel cannot mount or
    /// unmount the file system, or the report cannot be read; errors of `work`.
    pub fn visit<T, E: From<Error>>(
        self,
        read_ahead_kib: u64,
        work: impl FnOnce(&Path, &Path, &DiskControl<'_>) -> Result<T, E>,
    ) -> Result<(T, String), E> {
        // Dropped in reverse order.
        let Self { scratch, server, device, fs } = self;
        let (dir, flags) = (scratch.join(MOUNT_POINT), MountFlags::RDONLY | MountFlags::NOATIME);
        let mounted =
            Mounted::new(device.path(), &dir, fs.name(), flags, "").map_err(Error::from)?;
        device.set_queue("read_ahead_kb", read_ahead_kib).map_err(Error::from)?;
        let done = work(mounted.dir(), device.path(), &DiskControl::new(&server));
        let unmounted = mounted.unmount().map_err(Error::from);
        let done = done?;
        unmounted?;
        let report = server.report("stats.json")?;
        drop(device);
        drop(server);
        drop(scratch);
        Ok((done, report))
    }

    /// Makes the file system, runs a script in it, and unmounts and removes everything. Returns the
    /// disk's file `report` (`stats` is text, `stats.json` JSON) and the status of the script.
    ///
    /// `mkfs_args` are more arguments of mkfs; `options` are mount options, separated by commas.
    /// `script` makes the command for a mount point, which becomes its working directory.
    /// `SEEKLESS_MOUNT` and `SEEKLESS_DISK` are set to the mount point and the directory of the
    /// disk. The phases `make`, `mount`, `run` and `unmount` are begun before the steps of these
    /// names. A signal is passed on to the script.
    ///
    /// # Errors
    /// [`ErrorKind::System`](seekless_images::ErrorKind::System) if mkfs, mounting or unmounting
    /// fails, the script cannot be started, or a signal arrives.
    pub fn run(
        self,
        mkfs_args: &[OsString],
        options: &str,
        script: impl FnOnce(&Path) -> Command,
        report: &str,
        signals: &mut Signals,
    ) -> Result<(String, ExitStatus), Error> {
        // Dropped in reverse order.
        let Self { scratch, server, device, fs } = self;
        // Excludes the kernel's probes of the new device from the statistics.
        server.control("begin make")?;
        make(fs, mkfs_args, device.path(), signals)?;
        server.control("phase mount")?;
        let dir = scratch.join(MOUNT_POINT);
        let options: Vec<&str> =
            [fs.mount_options(), options].into_iter().filter(|text| !text.is_empty()).collect();
        let mounted =
            Mounted::new(device.path(), &dir, fs.name(), MountFlags::empty(), &options.join(","))?;
        server.control("phase run")?;
        let mut command = script(mounted.dir());
        command.env("SEEKLESS_MOUNT", mounted.dir()).env("SEEKLESS_DISK", server.dir());
        command.current_dir(mounted.dir());
        let ended = run_to_end(&mut command, signals);
        server.control("phase unmount")?;
        let unmounted = mounted.unmount();
        let (status, signal) = ended?;
        unmounted?;
        let report = server.report(report)?;
        drop(device);
        drop(server);
        drop(scratch);
        match signal {
            Some(signal) => Err(Error::interrupted(signal)),
            None => Ok((report, status)),
        }
    }
}

/// Writes back dirty data if a file system is mounted on `dir`, and drops the caches.
///
/// # Errors
/// Without root, or if `dir` does not exist.
pub fn settle(dir: &Path) -> io::Result<()> {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev());
    let failed = |error: HostError| io::Error::other(error.to_string());
    if device(dir)? != device(&dir.join(".."))? {
        caches::write_back(dir).map_err(failed)?;
    }
    caches::drop_clean(Caches::All).map_err(failed)
}
