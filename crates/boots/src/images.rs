//! Images of boots: installed, aged and copied on file systems of the kernel.

use crate::{Programs, Subject, uninterrupted};
use rustix::mount::MountFlags;
use seekless_host::caches;
use seekless_host::loop_device::{LoopDevice, LoopOptions};
use seekless_host::scratch::{self, Mounted};
use seekless_images::Error;
use seekless_lab::boots::order::{listed_first, walk};
use seekless_lab::boots::system::Package;
use seekless_lab::boots::tree_writer::{TreeWriter, reinstallations};
use seekless_lab::boots::{BootMachine, KernelFs, State};
use seekless_serve::testbed::{self, FileSystem};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Prefix of temporary directories; the process's number follows.
const PREFIX: &str = "seekless-boots-";

/// UUID of every ext4 of an experiment. Copies keep it, and with it the hash order of names.
const UUID: &str = "5ee61e55-b007-4000-8000-000000000001";

/// The file system of a machine, for a testbed.
pub(crate) fn file_system(fs: KernelFs) -> FileSystem {
    match fs {
        KernelFs::Ext4 => FileSystem::Ext4,
        KernelFs::Xfs => FileSystem::Xfs,
        KernelFs::Btrfs => FileSystem::Btrfs,
    }
}

/// The images of a machine, made as needed.
pub(crate) struct Images<'a> {
    subject: &'a Subject,
    machine: &'a BootMachine,
    seed: u64,
    programs: Programs<'a>,
    dir: TempDir,
    /// State of the first image, which becomes the aged one.
    first: Option<State>,
}

/// An image, mounted for a change.
struct Open {
    mounted: Mounted,
    _device: LoopDevice,
}

impl Open {
    /// Mounts an image with options, or read-only without any.
    fn new(fs: FileSystem, image: &Path, dir: &Path, options: Option<&str>) -> Result<Self, Error> {
        let read_only = options.is_none();
        let device = LoopDevice::new(image, LoopOptions { read_only, ..LoopOptions::default() })?;
        let flags = MountFlags::NOATIME;
        let flags = if read_only { flags | MountFlags::RDONLY } else { flags };
        let options: Vec<&str> = [Some(fs.mount_options()), options]
            .into_iter()
            .flatten()
            .filter(|o| !o.is_empty())
            .collect();
        let mounted = Mounted::new(device.path(), dir, fs.name(), flags, &options.join(","))?;
        Ok(Self { mounted, _device: device })
    }

    /// Installs, reinstalls and copies files of the image.
    fn hand(&self) -> TreeWriter<impl FnMut() -> io::Result<()> + use<>> {
        let dir = self.mounted.dir().to_path_buf();
        TreeWriter::new(dir.clone(), move || {
            caches::write_back(&dir).map_err(|error| io::Error::other(error.to_string()))
        })
    }

    fn close(self) -> Result<(), Error> {
        Ok(self.mounted.unmount()?)
    }
}

impl<'a> Images<'a> {
    pub(crate) fn new(
        subject: &'a Subject,
        machine: &'a BootMachine,
        seed: u64,
        temp_dir: &Path,
        programs: Programs<'a>,
    ) -> Result<Self, Error> {
        scratch::private_mounts()?;
        for left in testbed::abandoned_dirs(temp_dir, PREFIX) {
            // Errors are ignored: directories of other users cannot be removed.
            let _ = std::fs::remove_dir_all(left);
        }
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(temp_dir);
        let dir = made.map_err(|error| Error::io(temp_dir.display(), &error))?;
        for name in ["from", "to"] {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).map_err(|error| Error::io(path.display(), &error))?;
        }
        Ok(Self { subject, machine, seed, programs, dir, first: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fs(&self) -> FileSystem {
        file_system(self.machine.fs)
    }

    /// The image of a state. States must be requested in their order: making one replaces the
    /// images of earlier states, except the one that later states are made from.
    pub(crate) fn of(&mut self, state: State, signals: &mut Signals) -> Result<PathBuf, Error> {
        let (first, copy) = (self.path("first"), self.path("copy"));
        if self.first.is_none() {
            self.make(&first, signals)?;
            let open = Open::new(self.fs(), &first, &self.path("to"), Some(&self.machine.options))?;
            open.hand().install(self.subject.system())?;
            open.close()?;
            self.first = Some(State::Fresh);
        }
        if state == State::Fresh {
            return Ok(first);
        }
        if self.first == Some(State::Fresh) {
            self.age(&first, signals)?;
            self.first = Some(State::Aged);
        }
        let _ = std::fs::remove_file(&copy);
        match state {
            State::Fresh | State::Aged => Ok(first),
            State::ReaddirOrder | State::ProfileOrder => {
                self.make(&copy, signals)?;
                self.copy(&first, &copy, state)?;
                Ok(copy)
            }
            State::Optimized => {
                self.relay(&first, &copy)?;
                Ok(copy)
            }
        }
    }

    fn make(&self, image: &Path, signals: &mut Signals) -> Result<(), Error> {
        let failed = |error| Error::io(image.display(), &error);
        let file = File::create(image).map_err(failed)?;
        file.set_len(self.machine.size.0.get()).map_err(failed)?;
        // XFS and Btrfs refuse to mount two file systems with one UUID.
        let args: Vec<OsString> = match self.machine.fs {
            KernelFs::Ext4 => {
                ["-U", UUID, "-E", &format!("hash_seed={UUID}")].map(OsString::from).into()
            }
            KernelFs::Xfs | KernelFs::Btrfs => Vec::new(),
        };
        testbed::make(self.fs(), &args, image, signals)
    }

    fn age(&self, image: &Path, signals: &mut Signals) -> Result<(), Error> {
        let (system, experiment) = (self.subject.system(), self.subject.experiment());
        let open = Open::new(self.fs(), image, &self.path("to"), Some(&self.machine.options))?;
        let mut hand = open.hand();
        for batch in reinstallations(system, experiment.reinstalls, self.seed) {
            uninterrupted(signals)?;
            let packages: Vec<&Package> = batch.iter().map(|&at| &system.packages[at]).collect();
            hand.reinstall(&packages, experiment.archive)?;
        }
        open.close()
    }

    fn copy(&self, from: &Path, to: &Path, state: State) -> Result<(), Error> {
        let source = Open::new(self.fs(), from, &self.path("from"), None)?;
        let target = Open::new(self.fs(), to, &self.path("to"), Some(&self.machine.options))?;
        let walked = walk(source.mounted.dir())?;
        let order = match state {
            State::ProfileOrder => listed_first(&walked, self.subject.trace().paths()),
            _ => walked,
        };
        target.hand().copy(source.mounted.dir(), &order)?;
        target.close()?;
        source.close()
    }

    fn relay(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let trace = self.path("trace");
        std::fs::write(&trace, self.subject.trace().text())
            .map_err(|error| Error::io(trace.display(), &error))?;
        (self.programs.relayout)(&trace, from, to)
    }
}
