//! Images of any format, open for changes.

use crate::KnownFormat;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::BlockDevice;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Timestamp};
use seekless_live::{ListingKey, Live, Named};
use seekless_units::{Ino, Nanos};

/// The time of day.
pub type Wall = Box<dyn Fn() -> Timestamp + Send>;

/// Options for opening an image for changes. Names of policies are those of `mount -o`; the default
/// is the format's own policy.
#[derive(Clone, Debug)]
pub struct Mounting {
    /// The cache. Its discipline is ignored in favour of the next field.
    pub config: Config,
    /// The update discipline, if not the format's default.
    pub discipline: Option<Discipline>,
    /// The policy for directories.
    pub directories: Option<String>,
    /// The policy for all other inodes.
    pub inodes: Option<String>,
    /// The policy for blocks.
    pub blocks: Option<String>,
    /// The policy for clusters.
    pub clusters: Option<String>,
    /// Minutes by which times on a FAT volume are ahead of UTC.
    pub zone: i32,
    /// Whether all FATs of a FAT volume are loaded into memory at the start.
    pub loads_fats: bool,
    /// Seed of policies with random choices.
    pub seed: u64,
    /// Gather new blocks into clusters, if the format supports it.
    pub reallocblks: bool,
    /// Whether blocks are allocated at write-back (delayed allocation), if set.
    pub delays: Option<bool>,
    /// Whether directories may be given other names if no order of writes is safe.
    pub moves_dirs: bool,
    /// Open an image that is not clean.
    pub force: bool,
    /// Continue if a checksum does not match.
    pub ignore_checksums: bool,
}

impl Mounting {
    /// The format's defaults for everything.
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

    /// The discipline for an image: the requested one, or its format's default.
    ///
    /// # Errors
    /// As [`KnownFormat::default_discipline`].
    pub fn discipline_of(
        &self,
        known: &KnownFormat,
        device: &dyn BlockDevice,
    ) -> Result<Discipline, FsError> {
        self.discipline.map_or_else(|| (known.default_discipline)(device), Ok)
    }

    /// The cache for an image, under its discipline.
    pub(crate) fn config_of(
        &self,
        known: &KnownFormat,
        device: &dyn BlockDevice,
    ) -> Result<Config, FsError> {
        Ok(Config { discipline: self.discipline_of(known, device)?, ..self.config })
    }

    /// Refuses options that apply to FAT only.
    pub(crate) fn check_not_fat(&self) -> Result<(), FsError> {
        let given = [(self.clusters.is_some(), "clusters="), (self.zone != 0, "tz=")];
        refuse(&given, "on anything but FAT")
    }
}

/// Refuses the first given option.
pub(crate) fn refuse(given: &[(bool, &str)], on: &str) -> Result<(), FsError> {
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(FsError::Unsupported(format!("-o {option} {on}"))),
        None => Ok(()),
    }
}

/// A file system in use, of any format.
pub trait InUse: Operate {
    /// The counters of its cache.
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

    /// As [`Live::listing_key`].
    ///
    /// # Errors
    /// As there.
    fn listing_key(&mut self, dir: Ino) -> Result<Option<ListingKey>, FsError>;
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

    fn listing_key(&mut self, dir: Ino) -> Result<Option<ListingKey>, FsError> {
        Self::listing_key(self, dir)
    }
}

/// Sorts names of a directory in the listing order of the format's system: by their hashes, in
/// indexed directories of ext. For other directories the order is unchanged.
///
/// # Errors
/// [`FsError::Corrupt`]; [`FsError::Device`].
pub fn sort_as_listed<T>(
    live: &mut dyn InUse,
    dir: Ino,
    names: &mut [T],
    name: impl Fn(&T) -> &[u8],
) -> Result<(), FsError> {
    if let Some(key) = live.listing_key(dir)? {
        names.sort_by_cached_key(|one| key(name(one)));
    }
    Ok(())
}
