//! The quotas of a volume.

use crate::{Error, Outcome, Time};
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{
    Balance, LimitChange, OwnerKind, OwnerUsage, QuotaChange, QuotaComparison, QuotaSelection,
};
use seekless_images::Place;
use seekless_images::quota::{NamedQuotas, Owner, change, compare, correct, read};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The quotas of an image that is not in use: usage and limits of users, groups and (on ext)
/// projects. Volumes of ext keep them with the feature `quota`, UFS volumes in the files
/// `quota.user` and `quota.group` of their root.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Format, Outcome, QuotaKind, QuotaLimits, QuotaOwner, Quotas};
///
/// # let work = tempfile::tempdir()?;
/// # let (tree, path) = (work.path().join("tree"), work.path().join("disk.ufs"));
/// # std::fs::create_dir(&tree)?;
/// std::fs::write(tree.join("file"), "text")?;
/// Build::of([&tree]).format(Format::Ufs2).size(64 << 20).write(&path)?;
///
/// // The quota file of users is made.
/// let quotas = Quotas::of(&path).kind(QuotaKind::User);
/// assert_eq!(quotas.correct()?.outcome, Outcome::Corrected);
/// assert_eq!(quotas.check()?.outcome, Outcome::Clean);
///
/// let limits = QuotaLimits::new().space(1 << 30, 2 << 30).inodes(9000, 10_000);
/// quotas.set(QuotaKind::User, QuotaOwner::Id(1000), limits)?;
/// quotas.set_grace(QuotaKind::User, Some(7 * 86_400), None)?;
///
/// let report = quotas.report()?;
/// let owner = report[0].owners.iter().find(|owner| owner.id == 1000).expect("an owner");
/// assert_eq!((owner.space.soft, owner.inodes.hard), (1 << 30, 10_000));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Quotas {
    path: PathBuf,
    place: Place,
    selection: QuotaSelection,
    time: Option<Time>,
}

/// A kind of owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum QuotaKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects, which only ext has.
    Project,
}

impl QuotaKind {
    /// The name of one such owner: `user`, `group` or `project`.
    #[must_use]
    pub fn name(self) -> &'static str {
        OwnerKind::from(self).name()
    }
}

impl From<QuotaKind> for OwnerKind {
    fn from(kind: QuotaKind) -> Self {
        match kind {
            QuotaKind::User => Self::User,
            QuotaKind::Group => Self::Group,
            QuotaKind::Project => Self::Project,
        }
    }
}

impl From<OwnerKind> for QuotaKind {
    fn from(kind: OwnerKind) -> Self {
        match kind {
            OwnerKind::User => Self::User,
            OwnerKind::Group => Self::Group,
            OwnerKind::Project => Self::Project,
        }
    }
}

/// An owner whose limits are set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaOwner {
    /// By its number.
    Id(u32),
    /// By its name in the image's own `/etc/passwd`, `/etc/group` or `/etc/projid`.
    Name(String),
}

impl From<u32> for QuotaOwner {
    fn from(id: u32) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for QuotaOwner {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

/// New limits of an owner. Those that are not given stay; 0 removes one. On UFS a hard limit is one
/// more than the most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    space: LimitChange,
    inodes: LimitChange,
}

impl QuotaLimits {
    /// All limits stay.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The soft and the hard limit of space, in bytes; they are rounded up to the unit of the format,
    /// 512 bytes on UFS and 1 KiB on ext. `None` keeps one.
    #[must_use]
    pub fn space(mut self, soft: impl Into<Option<u64>>, hard: impl Into<Option<u64>>) -> Self {
        self.space = LimitChange { soft: soft.into(), hard: hard.into() };
        self
    }

    /// The soft and the hard limit of inodes. `None` keeps one.
    #[must_use]
    pub fn inodes(mut self, soft: impl Into<Option<u64>>, hard: impl Into<Option<u64>>) -> Self {
        self.inodes = LimitChange { soft: soft.into(), hard: hard.into() };
        self
    }
}

/// The quotas of one kind of owners.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaReport {
    /// The kind of owners.
    pub kind: QuotaKind,
    /// The grace periods of all owners.
    pub grace: QuotaGrace,
    /// The owners with usage or limits, in order of their numbers.
    pub owners: Vec<OwnerQuota>,
}

/// Grace periods, in seconds: after these a soft limit that is exceeded counts as a hard one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaGrace {
    /// Of soft limits of space.
    pub space: u64,
    /// Of soft limits of inodes.
    pub inodes: u64,
}

/// The quota of one owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct OwnerQuota {
    /// The number of the owner.
    pub id: u32,
    /// Its name in the image, if it has one.
    pub name: Option<String>,
    /// Space, in bytes.
    pub space: QuotaBalance,
    /// Inodes.
    pub inodes: QuotaBalance,
}

/// Usage of one resource and its limits, in bytes of space or in inodes. A limit of 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaBalance {
    /// Usage.
    pub used: u64,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
    /// Whether usage is above a limit; on UFS, at or above the soft one.
    pub over: bool,
    /// The end of the grace period, in seconds since 1970; `None` if it has not begun.
    pub expires: Option<i64>,
}

impl From<Balance> for QuotaBalance {
    fn from(balance: Balance) -> Self {
        let Balance { used, soft, hard, over, expires } = balance;
        Self { used, soft, hard, over, expires: (expires != 0).then_some(expires) }
    }
}

/// Quota files compared with the usage of all files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaCheck {
    /// The state of the quota files now.
    pub outcome: Outcome,
    /// The kinds of owners whose files were compared.
    pub compared: Vec<QuotaKind>,
    /// Kinds of owners whose file was missing or damaged.
    pub unusable: Vec<UnusableQuotas>,
    /// Owners whose usage in the file was wrong, by kind and number.
    pub differences: Vec<QuotaDifference>,
    /// A reason for which the counted usage may be wrong: the volume is not in order.
    pub caveat: Option<String>,
}

/// A kind of owners whose quota file was missing or damaged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UnusableQuotas {
    /// The kind of owners.
    pub kind: QuotaKind,
    /// The reason.
    pub why: String,
}

/// Usage in a quota file that was not the usage of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaDifference {
    /// The kind of owner.
    pub kind: QuotaKind,
    /// The number of the owner.
    pub id: u32,
    /// Usage in the quota file.
    pub recorded: QuotaUsage,
    /// Usage of the files.
    pub counted: QuotaUsage,
}

/// Usage of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QuotaUsage {
    /// Space, in bytes.
    pub space: u64,
    /// Inodes.
    pub inodes: u64,
}

impl From<OwnerUsage> for QuotaUsage {
    fn from(usage: OwnerUsage) -> Self {
        Self { space: usage.space, inodes: usage.inodes }
    }
}

impl Quotas {
    /// The quotas of the file system in an image file or block device.
    pub fn of(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            place: Place::default(),
            selection: QuotaSelection::default(),
            time: None,
        }
    }

    /// The partition that is meant, as in [`Open::partition`](crate::Open::partition).
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// Adds a kind of owners to those that are reported and checked; without any, these are all that
    /// have a quota file.
    #[must_use]
    pub fn kind(mut self, kind: QuotaKind) -> Self {
        self.selection.kinds.push(kind.into());
        self
    }

    /// The path of the users' quota file in a UFS volume, in place of `/quota.user`.
    #[must_use]
    pub fn user_file(mut self, path: impl Into<String>) -> Self {
        self.selection.user_file = Some(path.into());
        self
    }

    /// The path of the groups' quota file in a UFS volume, in place of `/quota.group`.
    #[must_use]
    pub fn group_file(mut self, path: impl Into<String>) -> Self {
        self.selection.group_file = Some(path.into());
        self
    }

    /// The time of changed quota files and of grace periods that begin, in place of the present.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }

    /// Usage and limits, as the quota files have them.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a quota file that is not there, [`ErrorKind::Unsupported`](crate::ErrorKind) for a format
    /// or a volume without quotas, [`ErrorKind::Corrupt`](crate::ErrorKind), [`ErrorKind::System`](crate::ErrorKind).
    pub fn report(&self) -> Result<Vec<QuotaReport>, Error> {
        let options = OpenOptions::default();
        let books = read(&self.path, &self.place, &self.selection, true, options)?;
        Ok(books.iter().map(QuotaReport::of).collect())
    }

    /// Sets limits of an owner, and returns its number. The image must be in order and not in use.
    /// On UFS a missing quota file is made, and usage is counted again.
    ///
    /// # Errors
    /// As [`Quotas::report`]; [`ErrorKind::Usage`](crate::ErrorKind) for a name that the image does not have and for
    /// numbers that the quota file cannot have, [`ErrorKind::NoSpace`](crate::ErrorKind), [`ErrorKind::Unsupported`](crate::ErrorKind) for
    /// a volume that cannot be changed.
    pub fn set(
        &self,
        kind: QuotaKind,
        owner: impl Into<QuotaOwner>,
        limits: QuotaLimits,
    ) -> Result<u32, Error> {
        let owner = match owner.into() {
            QuotaOwner::Id(id) => Owner::Id(id),
            QuotaOwner::Name(name) => Owner::Name(name.into_bytes()),
        };
        let QuotaLimits { space, inodes } = limits;
        self.change(kind, Some(&owner), &|id| QuotaChange::Limits { id, space, inodes })
    }

    /// Sets the grace periods of all owners of a kind, in seconds; `None` keeps one. Periods that have
    /// begun go on.
    ///
    /// # Errors
    /// As [`Quotas::set`].
    pub fn set_grace(
        &self,
        kind: QuotaKind,
        space: Option<u64>,
        inodes: Option<u64>,
    ) -> Result<(), Error> {
        self.change(kind, None, &|_| QuotaChange::Grace { space, inodes }).map(drop)
    }

    /// Compares the quota files with the usage of all files, and changes nothing.
    ///
    /// # Errors
    /// As [`Quotas::report`], but for a quota file that is not there.
    pub fn check(&self) -> Result<QuotaCheck, Error> {
        let compared = compare(&self.path, &self.place, &self.selection)?;
        Ok(QuotaCheck::of(compared, Outcome::Left))
    }

    /// Compares the quota files with the usage of all files, and writes that usage; limits stay. On
    /// UFS, missing quota files of the kinds that are given are made. The image must not be in use.
    ///
    /// # Errors
    /// As [`Quotas::check`]; [`ErrorKind::NoSpace`](crate::ErrorKind) if there is no room for some records (all others
    /// are written), [`ErrorKind::Unsupported`](crate::ErrorKind) for a volume that has to be checked first and
    /// for damage in the way of some records (all others are written).
    pub fn correct(&self) -> Result<QuotaCheck, Error> {
        let compared = correct(&self.path, &self.place, &self.selection, self.now())?;
        Ok(QuotaCheck::of(compared, Outcome::Corrected))
    }

    fn change(
        &self,
        kind: QuotaKind,
        owner: Option<&Owner>,
        with: &dyn Fn(u32) -> QuotaChange,
    ) -> Result<u32, Error> {
        change(&self.path, &self.place, &self.selection, (kind.into(), owner), with, self.now())
    }

    fn now(&self) -> seekless_fs::Timestamp {
        self.time.map_or_else(seekless_serve::now, Time::into_timestamp)
    }
}

impl QuotaReport {
    fn of(named: &NamedQuotas) -> Self {
        let book = &named.book;
        let owners = book.quotas.iter().map(|quota| OwnerQuota {
            id: quota.id,
            name: named.names.name(quota.id).map(|name| String::from_utf8_lossy(name).into_owned()),
            space: quota.space.into(),
            inodes: quota.inodes.into(),
        });
        Self {
            kind: book.kind.into(),
            grace: QuotaGrace { space: book.grace.space, inodes: book.grace.inodes },
            owners: owners.collect(),
        }
    }
}

impl QuotaCheck {
    /// `wrong` is the outcome if there are differences.
    fn of(compared: QuotaComparison, wrong: Outcome) -> Self {
        let outcome = if compared.is_clean() { Outcome::Clean } else { wrong };
        let unusable = compared.unusable.into_iter();
        let differences = compared.differences.into_iter();
        Self {
            outcome,
            compared: compared.compared.into_iter().map(QuotaKind::from).collect(),
            unusable: unusable
                .map(|(kind, why)| UnusableQuotas { kind: kind.into(), why })
                .collect(),
            differences: differences
                .map(|found| QuotaDifference {
                    kind: found.kind.into(),
                    id: found.id,
                    recorded: found.recorded.into(),
                    counted: found.counted.into(),
                })
                .collect(),
            caveat: compared.caveat,
        }
    }
}
