//! The stored state: a directory for each volume.

use super::now;
use crate::relayout::Target;
use seekless_fs::Inspect;
use seekless_host::handle;
use seekless_host::mounts::DeviceNumber;
use seekless_images::output::{NO_INPUTS, Output};
use seekless_images::{Error, ErrorKind};
use seekless_layout::habits::{self, Habits, Rules, Seconds, StateError};
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The parent of all volumes' directories.
pub const ROOT: &str = "/var/lib/seekless";

/// Directory of lock files, one per device, locked by processes that work on a volume.
const RUN: &str = "/run/seekless";

/// The stored state of one volume.
pub struct Store {
    dir: PathBuf,
    uuid: String,
    /// The device of the volume's mount.
    device: DeviceNumber,
}

/// Locks that exclude processes that write the same state, and those that watch the same volume
/// with another state.
pub struct Lock {
    _state: File,
    _volume: File,
}

/// Creates a directory that only its owner can open, since any process that can open a file can
/// lock it.
fn private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

impl Store {
    /// The directory of a volume below `root`, created if necessary.
    ///
    /// # Errors
    /// As [`Target::look`]; `ErrorKind::System` if the directory cannot be created.
    pub fn new(root: &Path, target: &Target) -> Result<Self, Error> {
        let image = target.look().map_err(|error| target.about(error))?;
        let uuid = image.geometry().uuid_text();
        let dir = root.join(&uuid);
        private(&dir).map_err(|error| Error::io(dir.display(), &error))?;
        Ok(Self { dir, uuid, device: target.mount.device })
    }

    /// The device of the volume's mount.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// The UUID of the volume, as text.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The path of a file of this name in its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Excludes other processes that write here or work on the volume, until the lock is dropped;
    /// `None` if another process has it.
    ///
    /// # Errors
    /// `ErrorKind::System`.
    pub fn lock(&self) -> Result<Option<Lock>, Error> {
        let state = self.open()?;
        let DeviceNumber { major, minor } = self.device;
        let path = Path::new(RUN).join(format!("{major}:{minor}"));
        let volume = private(Path::new(RUN))
            .and_then(|()| File::options().create(true).append(true).open(&path));
        let volume = volume.map_err(|error| Error::io(path.display(), &error))?;
        let is_ours = handle::lock(&state)? && handle::lock(&volume)?;
        Ok(is_ours.then_some(Lock { _state: state, _volume: volume }))
    }

    pub(crate) fn open(&self) -> Result<File, Error> {
        File::open(&self.dir).map_err(|error| Error::io(self.dir.display(), &error))
    }

    /// The stored habits, with the time of saving; `None` if none were saved.
    ///
    /// # Errors
    /// A damaged state is an error with its line.
    pub fn read(&self, rules: Rules) -> Result<Option<(Habits, Seconds)>, Error> {
        let path = self.state();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| Error::io(path.display(), &error))?,
        };
        let read = habits::read(rules, &mut BufReader::new(file));
        read.map(Some).map_err(|error| match error {
            StateError::Io(error) => Error::io(path.display(), &error),
            error @ StateError::Version(_) => {
                Error::new(ErrorKind::Unsupported, error.to_string()).about(path.display())
            }
            error => Error::new(ErrorKind::Corrupt, error.to_string()).about(path.display()),
        })
    }

    /// The stored habits, for a process that will write them again: an unreadable state is renamed,
    /// with a warning.
    ///
    /// # Errors
    /// `ErrorKind::System`, also if the state cannot be renamed.
    pub fn load(&self, rules: Rules) -> Result<Habits, Error> {
        let failure = match self.read(rules.clone()) {
            Ok(known) => return Ok(known.map_or_else(|| Habits::new(rules), |(habits, _)| habits)),
            Err(failure) => failure,
        };
        let aside = self.path(&format!("state.damaged-{}", now()));
        std::fs::rename(self.state(), &aside)
            .map_err(|error| Error::io(aside.display(), &error))?;
        let kept = aside.display();
        tracing::warn!("{failure}; it is kept as {kept}, and learning begins anew");
        Ok(Habits::new(rules))
    }

    /// Saves the habits atomically and durably.
    ///
    /// # Errors
    /// `ErrorKind::System`, `ErrorKind::NoSpace`; the previous state stays then.
    pub fn save(&self, habits: &Habits) -> Result<(), Error> {
        let path = self.state();
        let failed = |error| Error::io(path.display(), &error);
        let output = Output::create(&path, true, NO_INPUTS)?;
        let mut file = BufWriter::new(output.file()?);
        habits::write(habits, &self.uuid, now(), &mut file).map_err(failed)?;
        file.flush().map_err(failed)?;
        file.get_ref().sync_all().map_err(failed)?;
        output.finish()?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }
}
