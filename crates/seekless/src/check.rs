//! Whether an image is in order.

use crate::{Error, Stop};
use seekless_compose::check::{
    Examined, Mode, examine, examine_mounted, examine_until, preen_mounted,
};
use seekless_fs::Location;
use seekless_fs::check::{self, Finding as Found};
use seekless_images::Place as Where;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A check of an image, as fsck makes it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Check, Outcome};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
/// # std::fs::create_dir(&tree)?;
/// # Build::of([&tree]).write(&path)?;
/// let checked = Check::of(&path).run()?;
/// assert_eq!(checked.outcome, Outcome::Clean);
///
/// // The magic number of the superblock is damaged; a volume this small has no copy of it.
/// let mut bytes = std::fs::read(&path)?;
/// bytes[1024 + 0x38] = 0;
/// std::fs::write(&path, bytes)?;
/// assert!(Check::of(&path).run().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    path: PathBuf,
    place: Where,
    journal: Option<PathBuf>,
    stop: Stop,
}

/// How serious a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A crash may leave it.
    Expected,
    /// Only damage can explain it.
    Unexpected,
}

/// Where something was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// The structure, such as `inode`.
    pub structure: &'static str,
    /// Group of blocks.
    pub group: Option<u32>,
    /// Inode.
    pub inode: Option<u32>,
    /// Block.
    pub block: Option<u64>,
    /// Byte in the block, or in the structure.
    pub offset: Option<u32>,
}

impl Place {
    /// The place of the damage that an error is about, if it is about one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Place};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// Build::of([&tree]).write(&path)?;
    /// let mut bytes = std::fs::read(&path)?;
    /// // The label, which the checksum covers.
    /// bytes[1024 + 0x78] = b'x';
    /// std::fs::write(&path, bytes)?;
    /// let error = seekless::open(&path).err().expect("a damaged image");
    /// assert_eq!(Place::of(&error).map(|place| place.structure), Some("superblock"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        error.location().as_ref().map(Self::from)
    }
}

impl From<&Location> for Place {
    fn from(at: &Location) -> Self {
        Self {
            structure: at.structure,
            group: at.group.map(|group| group.get()),
            inode: at.ino.map(|ino| ino.get()),
            block: at.block.map(|block| block.get()),
            offset: at.offset,
        }
    }
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The code, which stays the same from version to version: `inode.block-count`.
    pub code: &'static str,
    /// How serious it is.
    pub class: Class,
    /// Description of the error.
    pub message: String,
    /// Where.
    pub place: Place,
    /// The value of the field that its repair sets, if it sets one number.
    pub values: Option<Values>,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// The value of a field before and after its repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Values {
    /// As it was found.
    pub old: u64,
    /// As the repair sets it.
    pub new: u64,
}

/// The state of an image after a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing is wrong.
    Clean,
    /// Something was wrong; it was repaired.
    Corrected,
    /// Something is wrong.
    Left,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The state of the image now.
    pub outcome: Outcome,
    /// The findings, up to a limit.
    pub findings: Vec<Finding>,
    /// Findings beyond that limit.
    pub more: u64,
}

impl Check {
    /// A check of an image file or block device, or [in the background](Self::background) of a
    /// mounted volume, whose directory is given.
    pub fn of(path: impl AsRef<Path>) -> Self {
        let (path, place) = (path.as_ref().to_path_buf(), Where::default());
        Self { path, place, journal: None, stop: Stop::new() }
    }

    /// The partition that is meant, as in [`Open::partition`](crate::Open::partition).
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// The journal of an ext volume that has it on another device, as `fsck.ext4 -j`. That of a block
    /// device is found by its UUID without this. [`Check::run`] replays it in memory; a repair writes
    /// to both devices. Without it, [`Check::preen`] refuses such a volume.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), seekless::Error> {
    /// let checked = seekless::Check::of("volume.img").journal("journal.img").run()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn journal(mut self, journal: impl AsRef<Path>) -> Self {
        self.journal = Some(journal.as_ref().to_path_buf());
        self
    }

    /// Lets another thread stop [`Check::run`], which is an error then. A repair is not stopped.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Check, ErrorKind, Stop};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.img"));
    /// # std::fs::create_dir(&tree)?;
    /// # Build::of([&tree]).write(&path)?;
    /// let stop = Stop::new();
    /// let check = Check::of(&path).stop(stop.clone());
    /// check.run()?;
    /// stop.stop();
    /// assert_eq!(check.run().unwrap_err().kind(), ErrorKind::System);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Checks the image, and changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a [journal](Self::journal) of another format,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for other files, and a journal that is not the
    /// volume's, [`ErrorKind::Corrupt`](crate::ErrorKind) where not even a superblock can be read,
    /// [`ErrorKind::System`](crate::ErrorKind), also where it was stopped.
    pub fn run(&self) -> Result<Checked, Error> {
        Ok(Checked::from(examine_until(
            &self.path,
            &self.place,
            self.journal.as_deref(),
            &self.stop,
        )?))
    }

    /// Checks a UFS volume that seekless has mounted for changes, as it is at this moment, while
    /// programs go on writing: takes a snapshot in `.snap`, which is made if there is none, checks
    /// that, and removes it. A partition does not count here.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a directory on which nothing is mounted,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for other mounts,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind) if there is no room for a snapshot,
    /// [`ErrorKind::System`](crate::ErrorKind), also while another check is under way.
    pub fn background(&self) -> Result<Checked, Error> {
        Ok(Checked::from(examine_mounted(&self.path)?))
    }

    /// Checks a mounted UFS volume as [`Check::background`] does, and has its server release what is
    /// lost, while programs work. Where anything else is wrong, nothing is corrected, and the volume is
    /// marked as one that must be checked when it is not in use. An interrupted one is completed by
    /// the next one.
    ///
    /// # Errors
    /// As [`Check::background`]; also a volume that is being recovered, or is marked for a check.
    pub fn preen_in_background(&self) -> Result<Checked, Error> {
        Ok(Checked::from(preen_mounted(&self.path, &|_, _| {})?))
    }

    /// Repairs errors that a crash may leave, as `fsck -p` does: where anything else is found,
    /// nothing is written. An interrupted repair is completed by the next one.
    ///
    /// # Errors
    /// As [`Check::run`]; an image that is mounted or in use, and a qcow2 image.
    pub fn preen(&self) -> Result<Checked, Error> {
        self.examine(Mode::Preen)
    }

    /// Repairs everything, as `fsck -y` does. An interrupted repair is completed by the next one.
    ///
    /// # Errors
    /// As [`Check::preen`].
    pub fn repair(&self) -> Result<Checked, Error> {
        self.examine(Mode::Repair)
    }

    fn examine(&self, mode: Mode) -> Result<Checked, Error> {
        Ok(Checked::from(examine(&self.path, &self.place, mode, &[], self.journal.as_deref())?))
    }
}

impl From<Examined> for Checked {
    fn from(examined: Examined) -> Self {
        let Examined { report, outcome, .. } = examined;
        let outcome = match outcome {
            check::Outcome::Clean => Outcome::Clean,
            check::Outcome::Corrected => Outcome::Corrected,
            check::Outcome::Left => Outcome::Left,
        };
        let findings = report.findings.iter().map(Finding::from).collect();
        Self { outcome, findings, more: report.more }
    }
}

impl From<&Found> for Finding {
    fn from(found: &Found) -> Self {
        Self {
            code: found.code(),
            class: match found.class {
                check::Class::Expected => Class::Expected,
                check::Class::Unexpected => Class::Unexpected,
            },
            message: found.what.clone(),
            place: Place::from(&found.location),
            values: found.values.map(|check::Values { old, new }| Values { old, new }),
            repaired: found.repaired,
        }
    }
}
