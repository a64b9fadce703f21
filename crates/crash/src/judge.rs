//! A crash state, recovered and judged.

use crate::history::History;
use crate::oracle::{self, Promises, Violation, Window};
use crate::target::Target;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_fs::check::{Class, Finding, Report};
use std::sync::Arc;

/// Recovers what a crash left, as is done before it is mounted again, and says
/// what is wrong: before the recovery, what no crash may leave; after it,
/// anything that is left; and what the workload misses. The device is changed.
///
/// # Errors
/// [`DeviceError::Io`] when the device itself fails: that says nothing of the
/// state.
pub fn recover_and_judge(
    target: &dyn Target,
    promises: Promises,
    workload: Option<(&History, &Window<'_>)>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Vec<Violation>, DeviceError> {
    let before = match target.preen(Arc::clone(device)) {
        Ok(report) => report,
        Err(error) => return unreadable("preen", error),
    };
    let wrong = not_allowed(target, promises, &before);
    if !wrong.is_empty() {
        return Ok(wrong);
    }
    match target.check(Arc::clone(device)) {
        Ok(report) if report.is_clean() => {}
        Ok(report) => return Ok(report.findings.iter().map(left).collect()),
        Err(error) => return unreadable("check", error),
    }
    let Some((history, window)) = workload else { return Ok(Vec::new()) };
    match target.open(Arc::clone(device)) {
        Ok(image) => Ok(oracle::judge(history, window, image.as_ref(), promises)),
        Err(error) => unreadable("opening it", error),
    }
}

fn unreadable(what: &str, error: FsError) -> Result<Vec<Violation>, DeviceError> {
    match error {
        FsError::Device(error @ DeviceError::Io { .. }) => Err(error),
        error => Ok(vec![Violation::new("unreadable", format!("{what}: {error}"))]),
    }
}

fn left(finding: &Finding) -> Violation {
    let what = format!("{} ({})", finding.what, finding.location);
    Violation::new(&format!("left.{}", finding.code), what)
}

/// What the check found that the discipline does not let happen.
fn not_allowed(target: &dyn Target, promises: Promises, report: &Report) -> Vec<Violation> {
    let bad = |finding: &&Finding| {
        let bitmap = target.is_used_but_free(finding.code);
        if bitmap { promises.order } else { finding.class == Class::Unexpected }
    };
    let violation = |finding: &Finding| {
        let what = format!("{} ({})", finding.what, finding.location);
        Violation::new(&format!("check.{}", finding.code), what)
    };
    report.findings.iter().filter(bad).take(20).map(violation).collect()
}
