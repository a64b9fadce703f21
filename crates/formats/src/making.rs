//! Empty volumes of any format.

use crate::parameter::{Argument, Parameter};
use seekless_device::BlockDevice;
use seekless_fs::plan::{Demand, Plan, Space};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Lba};

/// A version of a format.
#[derive(Debug)]
pub struct Version {
    /// Its name, as command lines and experiments have it.
    pub name: &'static str,
    /// Whether its files have extended attributes.
    pub has_xattrs: bool,
    /// Whether it has a journal, unless its features say otherwise.
    pub has_journal: bool,
    /// Whether files have maps of direct and indirect blocks.
    pub has_block_maps: bool,
    /// A volume for searches of crash states.
    pub small: SmallVolume,
}

/// A volume that is small, so that each of very many states is checked quickly.
#[derive(Debug)]
pub struct SmallVolume {
    /// Its length.
    pub size: ByteLen,
    /// Arguments for the parameters of empty volumes, by name.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Sectors that the device is taken to write together, by their first and their number: no
    /// recovery succeeds where they are torn.
    pub whole: Option<(Lba, u64)>,
}

/// An empty volume that is to be made.
#[derive(Clone, Debug)]
pub struct EmptyVolume {
    /// Its length.
    pub size: ByteLen,
    /// The time at which it is made.
    pub time: Timestamp,
    /// Arguments for the parameters of empty volumes of its format.
    pub arguments: Vec<Argument>,
}

impl EmptyVolume {
    /// Refuses arguments that are not for `parameters`, which `owner` has.
    ///
    /// # Errors
    /// [`FsError::Invalid`] with the first such, or the first with an invalid value.
    pub(crate) fn check(&self, parameters: &[Parameter], owner: &str) -> Result<(), FsError> {
        for argument in &self.arguments {
            let name = argument.name();
            let found = parameters.iter().find(|parameter| parameter.name == name);
            let stray = || FsError::Invalid(format!("{name} is not an option of {owner}"));
            let invalid = |why| FsError::Invalid(format!("{argument}: {why}"));
            found.ok_or_else(stray)?.check(argument).map_err(invalid)?;
        }
        Ok(())
    }

    /// The value of a parameter.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.arguments.iter().rfind(|argument| argument.name() == name)?.value()
    }

    /// A number of bytes.
    pub(crate) fn bytes(&self, name: &str) -> Option<ByteLen> {
        self.text(name)?.parse().ok().map(ByteLen::new)
    }

    /// A number that the format has 32 bits for.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is larger.
    pub(crate) fn small(&self, name: &str) -> Result<Option<u32>, FsError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().map_err(|_| FsError::Invalid(format!("{text} is too large")));
        number.map(Some)
    }
}

/// Decides where the parts of an empty volume lie.
pub type Planner<'a> = &'a dyn Fn(&dyn Demand, &Space) -> Result<Plan, FsError>;

/// Makes an empty volume, with options that were found valid.
pub trait Maker {
    /// Whether the volume has a journal. By default, it has none.
    fn has_journal(&self) -> bool {
        false
    }

    /// Inodes in each group, where placement policies depend on it. By default, none do.
    fn inodes_per_group(&self) -> Option<u32> {
        None
    }

    /// Makes the volume on a device that reads as zeros.
    ///
    /// # Errors
    /// Those of the device, and [`FsError::NoSpace`].
    fn make(&self, device: &dyn BlockDevice, planner: Planner<'_>) -> Result<(), FsError>;
}

/// The behaviour of a format in a crash, which a search for crash states has to know.
#[derive(Debug)]
pub struct CrashTraits {
    /// Whether names lead to inodes, which keep their numbers. Else a file is its entry in a
    /// directory.
    pub has_inodes: bool,
    /// Whether the name of a file that takes another's in one directory leads to the other for a
    /// while.
    pub swaps_names: bool,
    /// Codes of findings which say that an inode or block in use is marked as free.
    pub used_but_free: &'static [&'static str],
    /// Codes of findings of directories that were being moved, which no order of writes could have
    /// saved from being asked about.
    pub asks_of_moves: &'static [&'static str],
}
