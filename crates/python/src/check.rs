//! Checks and repairs.

use crate::errors::usage;
use crate::paths::AnyPath;
use crate::records::{repr, to_dict};
use crate::work::{self, Interrupted};
use pyo3::prelude::*;
use seekless::{Check, Class, Outcome, Stop};
use serde::Serialize;
use std::borrow::Cow;

/// Checks an image as fsck does, and changes nothing, unless `preen` (`fsck -p`) repairs errors that a
/// crash may leave, or `repair` (`fsck -y`) all. `journal` is the journal of an ext volume that has it
/// on another device (`fsck.ext4 -j`).
///
/// A repair is completed before KeyboardInterrupt is raised.
#[pyfunction]
#[pyo3(signature = (image, *, partition=None, journal=None, preen=false, repair=false))]
pub(crate) fn check(
    py: Python<'_>,
    image: AnyPath,
    partition: Option<String>,
    journal: Option<AnyPath>,
    preen: bool,
    repair: bool,
) -> PyResult<Checked> {
    let stop = Stop::new();
    let mut check = Check::of(image).stop(stop.clone());
    if let Some(partition) = partition {
        check = check.partition(partition);
    }
    if let Some(journal) = journal {
        check = check.journal(journal);
    }
    let checked = match (preen, repair) {
        (false, false) => work::run(py, Interrupted::Stops(stop), move || check.run()),
        (true, false) => work::run(py, Interrupted::Completes, move || check.preen()),
        (false, true) => work::run(py, Interrupted::Completes, move || check.repair()),
        (true, true) => Err(usage(py, "preen=True and repair=True exclude each other")),
    }?;
    Ok(Checked::from(checked))
}

/// The result of a check.
#[pyclass(frozen, get_all, module = "seekless")]
#[derive(Serialize)]
pub(crate) struct Checked {
    /// The state of the image now: `clean`, `corrected` or `left`.
    outcome: &'static str,
    /// The findings, up to a limit.
    findings: Vec<Finding>,
    /// Findings beyond that limit.
    more: u64,
}

impl From<seekless::Checked> for Checked {
    fn from(checked: seekless::Checked) -> Self {
        let findings = checked.findings.into_iter().map(Finding::from).collect();
        Self { outcome: outcome_name(checked.outcome), findings, more: checked.more }
    }
}

/// The name of an outcome: `clean`, `corrected` or `left`.
pub(crate) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Clean => "clean",
        Outcome::Corrected => "corrected",
        Outcome::Left => "left",
    }
}

#[pymethods]
impl Checked {
    /// Whether nothing is wrong, and nothing was.
    fn is_clean(&self) -> bool {
        self.outcome == "clean"
    }

    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("Checked", self)
    }
}

/// Something that is wrong.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The code, which stays the same from version to version: `inode.block-count`.
    code: &'static str,
    /// `expected` where a crash may leave it, `unexpected` where only damage can explain it.
    #[pyo3(name = "class_")]
    class: &'static str,
    /// Description of the error.
    message: String,
    /// Where.
    place: Place,
    /// The value of the field that its repair sets, before and after, if it sets one number.
    values: Option<(u64, u64)>,
    /// Whether it was repaired.
    repaired: bool,
}

impl From<seekless::Finding> for Finding {
    fn from(found: seekless::Finding) -> Self {
        Self {
            code: found.code,
            class: match found.class {
                Class::Expected => "expected",
                Class::Unexpected => "unexpected",
            },
            message: found.message,
            place: found.place.into(),
            values: found.values.map(|values| (values.old, values.new)),
            repaired: found.repaired,
        }
    }
}

#[pymethods]
impl Finding {
    fn __repr__(&self) -> String {
        repr("Finding", self)
    }
}

type PlaceFields = (String, Option<u32>, Option<u32>, Option<u64>, Option<u32>);

/// Where something was found.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// The structure, such as `inode`.
    structure: Cow<'static, str>,
    /// Group of blocks.
    group: Option<u32>,
    /// Inode.
    inode: Option<u32>,
    /// Block.
    block: Option<u64>,
    /// Byte in the block, or in the structure.
    offset: Option<u32>,
}

impl From<seekless::Place> for Place {
    fn from(place: seekless::Place) -> Self {
        Self {
            structure: place.structure.into(),
            group: place.group,
            inode: place.inode,
            block: place.block,
            offset: place.offset,
        }
    }
}

#[pymethods]
impl Place {
    #[new]
    #[pyo3(signature = (structure, group=None, inode=None, block=None, offset=None))]
    fn new(
        structure: String,
        group: Option<u32>,
        inode: Option<u32>,
        block: Option<u64>,
        offset: Option<u32>,
    ) -> Self {
        Self { structure: structure.into(), group, inode, block, offset }
    }

    /// For `pickle`: errors are sent between processes.
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, PlaceFields)> {
        let Self { structure, group, inode, block, offset } = slf.get().clone();
        let made = slf.get_type().into_any().unbind();
        Ok((made, (structure.into_owned(), group, inode, block, offset)))
    }

    fn __repr__(&self) -> String {
        repr("Place", self)
    }
}
