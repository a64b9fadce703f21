//! The quotas of a volume.

use crate::check::outcome_name;
use crate::errors::usage;
use crate::paths::AnyPath;
use crate::records::{repr, to_dict};
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::{QuotaKind, QuotaLimits, QuotaOwner};
use serde::Serialize;

/// The quotas of an image that is not in use: usage and limits of users, groups and (on ext)
/// projects. `kinds` are those that are reported and checked, all that have a quota file by default.
/// `user_file` and `group_file` are the paths of quota files in a UFS volume, if these are not
/// `/quota.user` and `/quota.group`.
///
/// A change is completed before KeyboardInterrupt is raised.
#[pyclass(frozen, module = "seekless")]
pub(crate) struct Quotas(seekless::Quotas);

#[pymethods]
impl Quotas {
    #[new]
    #[pyo3(signature = (image, *, partition=None, kinds=Vec::new(), user_file=None, group_file=None))]
    fn new(
        py: Python<'_>,
        image: AnyPath,
        partition: Option<String>,
        kinds: Vec<String>,
        user_file: Option<String>,
        group_file: Option<String>,
    ) -> PyResult<Self> {
        let mut quotas = seekless::Quotas::of(image);
        if let Some(partition) = partition {
            quotas = quotas.partition(partition);
        }
        for kind in kinds {
            quotas = quotas.kind(kind_of(py, &kind)?);
        }
        if let Some(path) = user_file {
            quotas = quotas.user_file(path);
        }
        if let Some(path) = group_file {
            quotas = quotas.group_file(path);
        }
        Ok(Self(quotas))
    }

    /// Usage and limits, as the quota files have them.
    fn report(&self, py: Python<'_>) -> PyResult<Vec<QuotaReport>> {
        let quotas = self.0.clone();
        let found = work::run(py, Interrupted::IsLeft, move || quotas.report())?;
        Ok(found.into_iter().map(QuotaReport::from).collect())
    }

    /// Sets limits of an owner by its number, or by its name in the image, and returns the number.
    /// Limits of space are in bytes. Those that are not given stay; 0 removes one.
    #[pyo3(signature = (
        kind, owner, *, space_soft=None, space_hard=None, inodes_soft=None, inodes_hard=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords of Python")]
    fn set(
        &self,
        py: Python<'_>,
        kind: &str,
        owner: Account,
        space_soft: Option<u64>,
        space_hard: Option<u64>,
        inodes_soft: Option<u64>,
        inodes_hard: Option<u64>,
    ) -> PyResult<u32> {
        let (quotas, kind) = (self.0.clone(), kind_of(py, kind)?);
        let owner = match owner {
            Account::Id(id) => QuotaOwner::Id(id),
            Account::Name(name) => QuotaOwner::Name(name),
        };
        let limits =
            QuotaLimits::new().space(space_soft, space_hard).inodes(inodes_soft, inodes_hard);
        work::run(py, Interrupted::Completes, move || quotas.set(kind, owner, limits))
    }

    /// Sets the grace periods of all owners of a kind, in seconds. Those that are not given stay.
    #[pyo3(signature = (kind, *, space=None, inodes=None))]
    fn set_grace(
        &self,
        py: Python<'_>,
        kind: &str,
        space: Option<u64>,
        inodes: Option<u64>,
    ) -> PyResult<()> {
        let (quotas, kind) = (self.0.clone(), kind_of(py, kind)?);
        work::run(py, Interrupted::Completes, move || quotas.set_grace(kind, space, inodes))
    }

    /// Compares the quota files with the usage of all files. `correct` writes that usage; on UFS,
    /// missing quota files of the kinds that were given are made.
    #[pyo3(signature = (*, correct=false))]
    fn check(&self, py: Python<'_>, correct: bool) -> PyResult<QuotaCheck> {
        let quotas = self.0.clone();
        let checked = match correct {
            true => work::run(py, Interrupted::Completes, move || quotas.correct()),
            false => work::run(py, Interrupted::IsLeft, move || quotas.check()),
        }?;
        Ok(QuotaCheck::from(checked))
    }
}

/// An owner: its number or its name.
#[derive(FromPyObject)]
enum Account {
    Id(u32),
    Name(String),
}

fn kind_of(py: Python<'_>, name: &str) -> PyResult<QuotaKind> {
    let all = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
    let found = all.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| usage(py, "a kind of owners is \"user\", \"group\" or \"project\""))
}

/// The quotas of one kind of owners.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct QuotaReport {
    /// `user`, `group` or `project`.
    kind: &'static str,
    /// Grace periods of soft limits, in seconds.
    grace: QuotaUsage,
    /// The owners with usage or limits, in order of their numbers.
    owners: Vec<OwnerQuota>,
}

impl From<seekless::QuotaReport> for QuotaReport {
    fn from(report: seekless::QuotaReport) -> Self {
        Self {
            kind: report.kind.name(),
            grace: QuotaUsage { space: report.grace.space, inodes: report.grace.inodes },
            owners: report.owners.into_iter().map(OwnerQuota::from).collect(),
        }
    }
}

#[pymethods]
impl QuotaReport {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("QuotaReport", self)
    }
}

/// The quota of one owner.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OwnerQuota {
    /// The number of the owner.
    id: u32,
    /// Its name in the image, if it has one.
    name: Option<String>,
    /// Space, in bytes.
    space: QuotaBalance,
    /// Inodes.
    inodes: QuotaBalance,
}

impl From<seekless::OwnerQuota> for OwnerQuota {
    fn from(quota: seekless::OwnerQuota) -> Self {
        let (space, inodes) = (quota.space.into(), quota.inodes.into());
        Self { id: quota.id, name: quota.name, space, inodes }
    }
}

#[pymethods]
impl OwnerQuota {
    fn __repr__(&self) -> String {
        repr("OwnerQuota", self)
    }
}

/// Usage of one resource and its limits, in bytes of space or in inodes. A limit of 0 is none.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaBalance {
    /// Usage.
    used: u64,
    /// The soft limit.
    soft: u64,
    /// The hard limit.
    hard: u64,
    /// Whether usage is above a limit; on UFS, at or above the soft one.
    over: bool,
    /// The end of the grace period, in seconds since 1970; `None` if it has not begun.
    expires: Option<i64>,
}

impl From<seekless::QuotaBalance> for QuotaBalance {
    fn from(balance: seekless::QuotaBalance) -> Self {
        Self {
            used: balance.used,
            soft: balance.soft,
            hard: balance.hard,
            over: balance.over,
            expires: balance.expires,
        }
    }
}

#[pymethods]
impl QuotaBalance {
    fn __repr__(&self) -> String {
        repr("QuotaBalance", self)
    }
}

/// Quota files compared with the usage of all files.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct QuotaCheck {
    /// The state of the quota files now: `clean`, `corrected` or `left`.
    outcome: &'static str,
    /// The kinds of owners whose files were compared.
    compared: Vec<&'static str>,
    /// Kinds of owners whose file was missing or damaged, with the reason.
    unusable: Vec<(&'static str, String)>,
    /// Owners whose usage in the file was wrong.
    differences: Vec<QuotaDifference>,
    /// Why the counted usage may be wrong, if the volume is not in order.
    caveat: Option<String>,
}

impl From<seekless::QuotaCheck> for QuotaCheck {
    fn from(checked: seekless::QuotaCheck) -> Self {
        Self {
            outcome: outcome_name(checked.outcome),
            compared: checked.compared.into_iter().map(QuotaKind::name).collect(),
            unusable: checked.unusable.into_iter().map(|it| (it.kind.name(), it.why)).collect(),
            differences: checked.differences.into_iter().map(QuotaDifference::from).collect(),
            caveat: checked.caveat,
        }
    }
}

#[pymethods]
impl QuotaCheck {
    /// Whether nothing is wrong, and nothing was.
    fn is_clean(&self) -> bool {
        self.outcome == "clean"
    }

    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("QuotaCheck", self)
    }
}

/// Usage in a quota file that was not the usage of the files.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaDifference {
    /// `user`, `group` or `project`.
    kind: &'static str,
    /// The number of the owner.
    id: u32,
    /// Usage in the quota file.
    recorded: QuotaUsage,
    /// Usage of the files.
    counted: QuotaUsage,
}

impl From<seekless::QuotaDifference> for QuotaDifference {
    fn from(found: seekless::QuotaDifference) -> Self {
        let usage =
            |usage: seekless::QuotaUsage| QuotaUsage { space: usage.space, inodes: usage.inodes };
        Self {
            kind: found.kind.name(),
            id: found.id,
            recorded: usage(found.recorded),
            counted: usage(found.counted),
        }
    }
}

#[pymethods]
impl QuotaDifference {
    fn __repr__(&self) -> String {
        repr("QuotaDifference", self)
    }
}

/// A number for space, and one for inodes: usage in bytes and in inodes, or seconds.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaUsage {
    /// For space.
    space: u64,
    /// For inodes.
    inodes: u64,
}

#[pymethods]
impl QuotaUsage {
    fn __repr__(&self) -> String {
        repr("QuotaUsage", self)
    }
}
