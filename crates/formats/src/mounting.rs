//! Images of any format, open for changes.

use crate::parameter::Argument;
use crate::table::{KnownFormat, formats_with};
use seekless_cache::{Config, Counters, Discipline, Limits};
use seekless_device::BlockDevice;
use seekless_fs::corrections::Correction;
use seekless_fs::growth::Growth;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Timestamp};
use seekless_live::{ListingKey, Live, Named, Recovery, tuning};
use seekless_placement::inode::LinkedAreas;
use seekless_units::{ByteLen, Ino, Nanos};

/// The time of day.
pub type Wall = Box<dyn Fn() -> Timestamp + Send>;

/// Options for opening an image for changes: those of every format, and arguments for the
/// parameters of its own ([`KnownFormat::mount_parameters`]).
#[derive(Clone, Debug)]
pub struct Mounting {
    /// The cache. Its discipline is ignored in favour of the next field.
    pub config: Config,
    /// The update discipline, if not the format's default.
    pub discipline: Option<Discipline>,
    /// Seed of policies with random choices.
    pub seed: u64,
    /// Open an image that is not clean.
    pub force: bool,
    /// Whether the device is told of blocks that are freed; if the volume asks for it, when `None`.
    pub discards: Option<bool>,
    /// Continue if a checksum does not match.
    pub ignore_checksums: bool,
    /// Arguments for the parameters of the format; of several for one parameter, the last one
    /// counts.
    pub arguments: Vec<Argument>,
    /// Second areas of directories, of ext with `inodes=dir-reserve-hashed`: mounts of one volume
    /// with clones of these continue to use the areas of the mounts before. Forgotten with each
    /// mount when `None`.
    pub areas: Option<LinkedAreas>,
}

impl Mounting {
    /// The format's defaults for everything.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            discipline: None,
            seed: 1,
            force: false,
            discards: None,
            ignore_checksums: false,
            arguments: Vec::new(),
            areas: None,
        }
    }

    /// The discipline for an image: the requested one, or its format's default. An image that is
    /// recovered while it is in use is so under soft updates.
    ///
    /// # Errors
    /// As [`KnownFormat::default_discipline`].
    pub fn discipline_of(
        &self,
        known: &KnownFormat,
        device: &dyn BlockDevice,
    ) -> Result<Discipline, FsError> {
        if let Some(requested) = self.discipline {
            return Ok(requested);
        }
        let usual = (known.default_discipline)(device)?;
        let is_ordered = self.recovers() && usual.journal_mode().is_none();
        Ok(if is_ordered { Discipline::SoftUpdates } else { usual })
    }

    /// The cache for an image, under its discipline.
    pub(crate) fn config_of(
        &self,
        known: &KnownFormat,
        device: &dyn BlockDevice,
    ) -> Result<Config, FsError> {
        Ok(Config { discipline: self.discipline_of(known, device)?, ..self.config })
    }

    /// Whether an image that a crash has left is to be recovered while it is in use.
    #[must_use]
    pub fn recovers(&self) -> bool {
        self.arguments.iter().any(|argument| argument.name() == "recover")
    }

    /// The arguments, all of which a format has a parameter for.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] with the first that it has none for, or whose value is invalid.
    pub(crate) fn arguments_of(&self, known: &KnownFormat) -> Result<&[Argument], FsError> {
        for argument in &self.arguments {
            let Some(parameter) = known.mount_parameter(argument.name()) else {
                let formats = formats_with(argument.name());
                let family = known.family;
                let mut why = format!("option {argument} on {family}");
                if !formats.is_empty() {
                    why += &format!(": it is an option of {}", formats.join(" and "));
                }
                return Err(FsError::Unsupported(why));
            };
            let invalid = |why| FsError::Unsupported(format!("option {argument}: {why}"));
            parameter.check(argument).map_err(invalid)?;
        }
        Ok(&self.arguments)
    }
}

/// A file system in use, of any format.
pub trait InUse: Operate {
    /// The counters of its cache.
    fn counters(&self) -> &Counters;

    /// As [`tuning::config`].
    fn config(&self) -> &Config;

    /// As [`tuning::adjust`].
    ///
    /// # Errors
    /// As [`tuning::adjust`].
    fn adjust(&mut self, limits: Limits, capacity: ByteLen) -> Result<(), FsError>;

    /// As [`tuning::zero_counters`].
    fn zero_counters(&mut self);

    /// As [`seekless_live::plan_growth`].
    ///
    /// # Errors
    /// As there.
    fn plan_growth(&mut self, size: Option<ByteLen>) -> Result<Growth, FsError>;

    /// As [`seekless_live::grow`].
    ///
    /// # Errors
    /// As there.
    fn grow(&mut self, size: Option<ByteLen>) -> Result<Growth, FsError>;

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

    /// Whether it is being recovered: it was opened for that, and that has not ended.
    fn is_recovering(&mut self) -> bool;

    /// As [`Live::correct`].
    ///
    /// # Errors
    /// As there.
    fn correct(&mut self, correction: &Correction) -> Result<(), FsError>;

    /// As [`Live::end_recovery`].
    ///
    /// # Errors
    /// As there.
    fn end_recovery(&mut self, sound: bool) -> Result<(), FsError>;

    /// As [`seekless_live::correct_in_use`].
    ///
    /// # Errors
    /// As there.
    fn correct_in_use(&mut self, correction: &Correction) -> Result<(), FsError>;

    /// As [`seekless_live::end_check_in_use`].
    ///
    /// # Errors
    /// As there.
    fn end_check_in_use(&mut self, sound: bool) -> Result<(), FsError>;
}

impl<F: Named + 'static> InUse for Live<F> {
    fn counters(&self) -> &Counters {
        Self::counters(self)
    }

    fn config(&self) -> &Config {
        tuning::config(self)
    }

    fn adjust(&mut self, limits: Limits, capacity: ByteLen) -> Result<(), FsError> {
        tuning::adjust(self, limits, capacity)
    }

    fn zero_counters(&mut self) {
        tuning::zero_counters(self);
    }

    fn plan_growth(&mut self, size: Option<ByteLen>) -> Result<Growth, FsError> {
        seekless_live::plan_growth(self, size)
    }

    fn grow(&mut self, size: Option<ByteLen>) -> Result<Growth, FsError> {
        seekless_live::grow(self, size)
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

    fn is_recovering(&mut self) -> bool {
        self.recovery().is_some_and(|recovery| recovery.is_under_way())
    }

    fn correct(&mut self, correction: &Correction) -> Result<(), FsError> {
        Self::correct(self, correction)
    }

    fn end_recovery(&mut self, sound: bool) -> Result<(), FsError> {
        Self::end_recovery(self, sound)
    }

    fn correct_in_use(&mut self, correction: &Correction) -> Result<(), FsError> {
        seekless_live::correct_in_use(self, correction)
    }

    fn end_check_in_use(&mut self, sound: bool) -> Result<(), FsError> {
        seekless_live::end_check_in_use(self, sound)
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
