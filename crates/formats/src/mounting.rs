//! Images of any format, open for changes.

use crate::Known;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::BlockDevice;
use seekless_ext::ExtLive;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Timestamp};
use seekless_live::{Live, Named};
use seekless_units::{Ino, Nanos};
use std::any::Any;

/// The time of day.
pub type Wall = Box<dyn Fn() -> Timestamp + Send>;

/// How an image is opened for changes. Names of policies are those of `mount -o`; a format's
/// own policy is taken where there is none.
#[derive(Clone, Debug)]
pub struct Mounting {
    /// The cache. Its discipline counts for nothing: the next one does.
    pub config: Config,
    /// The update discipline, if not the one that the format has by default.
    pub discipline: Option<Discipline>,
    /// The policy for directories.
    pub directories: Option<String>,
    /// The policy for all other inodes.
    pub inodes: Option<String>,
    /// The policy for blocks.
    pub blocks: Option<String>,
    /// The policy for clusters.
    pub clusters: Option<String>,
    /// Minutes by which the times on a FAT volume are ahead of UTC.
    pub zone: i32,
    /// All FATs of a FAT volume are in memory from the beginning.
    pub loads_fats: bool,
    /// What policies that draw at random begin with.
    pub seed: u64,
    /// Gather new blocks into clusters, where the format does.
    pub reallocblks: bool,
    /// Whether contents get their place when they are written back, if that was said.
    pub delays: Option<bool>,
    /// Give directories other names where no order of writes is safe.
    pub moves_dirs: bool,
    /// Open an image that is not clean.
    pub force: bool,
    /// Go on where a checksum does not match.
    pub ignore_checksums: bool,
}

impl Mounting {
    /// Everything as the format has it by default.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            discipline: None,
            directories: None,
            inodes: None,
            blocks: None,
            clusters: None,
            zone: 0,
            loads_fats: false,
            seed: 1,
            reallocblks: true,
            delays: None,
            moves_dirs: true,
            force: false,
            ignore_checksums: false,
        }
    }

    /// The discipline for an image: the one that was asked for, or the default of its format.
    ///
    /// # Errors
    /// As [`Known::default_discipline`].
    pub fn discipline_of(
        &self,
        known: &Known,
        device: &dyn BlockDevice,
    ) -> Result<Discipline, FsError> {
        self.discipline.map_or_else(|| (known.default_discipline)(device), Ok)
    }

    /// The cache for an image, under its discipline.
    pub(crate) fn config_of(
        &self,
        known: &Known,
        device: &dyn BlockDevice,
    ) -> Result<Config, FsError> {
        Ok(Config { discipline: self.discipline_of(known, device)?, ..self.config })
    }

    /// Refuses options that say something on FAT alone.
    pub(crate) fn check_not_fat(&self) -> Result<(), FsError> {
        let given = [(self.clusters.is_some(), "clusters="), (self.zone != 0, "tz=")];
        refuse(&given, "on anything but FAT")
    }
}

/// Refuses the first option that is given.
pub(crate) fn refuse(given: &[(bool, &str)], on: &str) -> Result<(), FsError> {
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(FsError::Unsupported(format!("-o {option} {on}"))),
        None => Ok(()),
    }
}

/// A file system in use, whatever its format.
pub trait InUse: Operate + Any {
    /// What its cache counted.
    fn counters(&self) -> &Counters;

    /// As [`Live::next_due`].
    fn next_due(&self) -> Option<Nanos>;

    /// As [`Live::write_some`].
    ///
    /// # Errors
    /// As there.
    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError>;

    /// As [`Live::commit_beside`].
    fn commit_beside(&mut self);
}

impl<F: Named + 'static> InUse for Live<F> {
    fn counters(&self) -> &Counters {
        Self::counters(self)
    }

    fn next_due(&self) -> Option<Nanos> {
        Self::next_due(self)
    }

    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError> {
        Self::write_some(self, pick)
    }

    fn commit_beside(&mut self) {
        Self::commit_beside(self);
    }
}

/// Sorts names of a directory as the system lists them whose format it is: by their
/// hashes, in indexed directories of ext. Elsewhere they stay as they are.
///
/// # Errors
/// [`FsError::Corrupt`]; [`FsError::Device`].
pub fn sort_as_listed<T>(
    live: &mut dyn InUse,
    dir: Ino,
    names: &mut [T],
    name: impl Fn(&T) -> &[u8],
) -> Result<(), FsError> {
    let Some(live) = (live as &mut dyn Any).downcast_mut::<ExtLive>() else { return Ok(()) };
    let (format, core) = live.parts();
    if let Some(order) = format.listing_order(core, dir)? {
        names.sort_by_cached_key(|one| order.key(name(one)));
    }
    Ok(())
}
