//! A format's interface for exploring its crash states.

use crate::workload::Features;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_fs::check::Report;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// A file system in use, whose writes can be directed.
pub trait Live: Send {
    /// Its operations.
    fn operate(&mut self) -> &mut dyn Operate;

    /// Writes those of the blocks that may be written which are picked, by
    /// number. Any of them may be written at any time. False when there were
    /// none.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] after a write has failed.
    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError>;

    /// Its cache's counters.
    fn counters(&self) -> &Counters;
}

/// The result of a recovery.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Its findings.
    pub report: Report,
    /// Whether it says that it changed the image.
    pub changed: bool,
}

/// A format, seen from here.
pub trait Target: Send + Sync {
    /// Its name, as the command line has it.
    fn name(&self) -> &str;

    /// Whether its files have extended attributes.
    fn has_xattrs(&self) -> bool;

    /// Whether names lead to inodes, which keep their numbers. Else a file is its entry in a
    /// directory: it has one name, and is identified by its contents. By default, they do.
    fn has_inodes(&self) -> bool {
        true
    }

    /// The features that workloads may use.
    fn has(&self) -> Features {
        Features { xattrs: self.has_xattrs(), inodes: self.has_inodes() }
    }

    /// Length of the images that are made.
    fn image_len(&self) -> ByteLen;

    /// Makes an empty file system on a device of that length, all zeros.
    ///
    /// # Errors
    /// As any change.
    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError>;

    /// The discipline under which a workload's initial image is made: all of it is on the disk in
    /// the end. By default, `async`.
    fn prepared_under(&self) -> Discipline {
        Discipline::Async
    }

    /// Opens a file system for changes.
    ///
    /// # Errors
    /// As any operation.
    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError>;

    /// Checks the whole file system.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where it cannot be read, [`FsError::Device`].
    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError>;

    /// Repairs all that may be repaired unasked, as is done before a file system is mounted after a
    /// crash.
    ///
    /// # Errors
    /// As [`Target::check`].
    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError>;

    /// Whether a finding of the check says that an inode or block in use is marked as free.
    /// Disciplines that write bitmaps in any order rebuild them.
    fn is_used_but_free(&self, code: &str) -> bool;

    /// Whether the name of a file that takes another's in one directory leads to the
    /// other for a while. By default, it does not.
    fn swaps_names(&self) -> bool {
        false
    }

    /// Whether a finding of the check is one of directories that were being moved,
    /// with which no order of writes could have saved it from asking. By default,
    /// there are no such.
    fn asks_of_moves(&self, _code: &str) -> bool {
        false
    }

    /// Whether a recovery that is cut off in one of its writes is one of the format's.
    /// By default, it is.
    fn recovery_can_be_cut(&self) -> bool {
        true
    }

    /// Sectors that the device is taken to write together, by their first and their number: no
    /// recovery succeeds when these are torn, whatever wrote them. By default, none.
    fn whole(&self) -> Option<(Lba, u64)> {
        None
    }

    /// Repairs everything without asking, as is done for states with such findings.
    ///
    /// # Errors
    /// As [`Target::check`].
    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.preen(device)
    }

    /// Opens a file system for reading.
    ///
    /// # Errors
    /// As any operation.
    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError>;
}
