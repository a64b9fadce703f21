//! A crash state, recovered and judged.

use crate::history::History;
use crate::oracle::{self, Promises, Violation, Window};
use crate::recovery::Watched;
use crate::target::{Recovered, Target};
use seekless_device::{BlockDevice, DeviceError, Overlay};
use seekless_fs::FsError;
use seekless_fs::check::{Class, Finding, Report};
use std::sync::Arc;

/// The expectations that a state is compared with.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The format.
    pub target: &'a dyn Target,
    /// The discipline's promises.
    pub promises: Promises,
    /// The workload's history, and the part of it that may be on the disk; `None` when only the
    /// check can judge.
    pub workload: Option<(&'a History, &'a Window<'a>)>,
}

/// The verdict on a state.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Its violations.
    pub wrong: Vec<Violation>,
    /// A directory was being moved, and a check does not go on by itself: it was
    /// judged once everything had been repaired.
    pub needs_y: bool,
}

impl Judge<'_> {
    /// Recovers the state after a crash, as is done before it is mounted again, and returns its
    /// violations: before the recovery, damage that no crash may leave; in the recovery, unreported
    /// writes and damage left to the next one; and after it, files that the workload misses. The
    /// device is changed.
    ///
    /// With a number to draw from, the recovery of a copy is cut off in one of its writes, and the
    /// resulting state is recovered and judged as well.
    ///
    /// # Errors
    /// [`DeviceError::Io`] when the device itself fails: that says nothing of the
    /// state.
    pub fn state(
        &self,
        device: &Arc<dyn BlockDevice>,
        cut: Option<u64>,
    ) -> Result<Verdict, DeviceError> {
        let state: Arc<dyn BlockDevice> = Arc::clone(device);
        let whole: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&state), 512));
        let (writes, wrong) = self.recovered(&whole, "")?;
        let asks = !wrong.is_empty() && wrong.iter().all(|violation| self.asks(violation));
        if asks && self.is_moving() {
            let whole: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(&state), 512));
            let wrong = self.repaired(&whole)?;
            return Ok(Verdict { wrong, needs_y: true });
        }
        let wrong = match cut {
            Some(draw) if wrong.is_empty() && writes > 0 && self.target.recovery_can_be_cut() => {
                self.interrupted(&state, draw, writes)?
            }
            _ => wrong,
        };
        Ok(Verdict { wrong, needs_y: false })
    }

    /// Whether the check asks of directories that were being moved.
    fn asks(&self, violation: &Violation) -> bool {
        violation.code.strip_prefix("check.").is_some_and(|code| self.target.asks_of_moves(code))
    }

    /// Whether a directory was being given another name when it crashed.
    fn is_moving(&self) -> bool {
        let Some((history, window)) = self.workload else { return false };
        let mut deeds = history.deeds.iter().take(window.upto).skip(window.of_all());
        deeds.any(|deed| deed.passing.asks.is_some())
    }

    /// Repairs everything, as a user who is asked does; returns the violations then.
    fn repaired(&self, device: &Arc<dyn BlockDevice>) -> Result<Vec<Violation>, DeviceError> {
        if let Err(error) = self.target.repair(Arc::clone(device)) {
            return unreadable("repair", error);
        }
        let wrong = self.again(device)?;
        let has_inodes = self.target.has_inodes();
        match (wrong.is_empty(), self.workload) {
            (true, Some((history, window))) => match self.target.open(Arc::clone(device)) {
                Ok(image) => {
                    let promises = Promises { one_name: true, ..self.promises };
                    Ok(oracle::judge(history, window, image.as_ref(), promises, has_inodes))
                }
                Err(error) => unreadable("opening the image", error),
            },
            _ => Ok(wrong),
        }
    }

    /// Recovers a device; returns the number of writes, and the violations.
    fn recovered(
        &self,
        device: &Arc<dyn BlockDevice>,
        when: &str,
    ) -> Result<(u64, Vec<Violation>), DeviceError> {
        let watched = Arc::new(Watched::new(Arc::clone(device)));
        let said = match self.target.preen(watched.clone()) {
            Ok(said) => said,
            Err(error) => return Ok((0, unreadable("preen", error)?)),
        };
        let writes = watched.writes();
        let has_inodes = self.target.has_inodes();
        let mut wrong = self.not_allowed(&said.report);
        wrong.extend(untrue(&said, writes, "preen"));
        if wrong.is_empty() {
            wrong = self.again(device)?;
        }
        if let (true, Some((history, window))) = (wrong.is_empty(), self.workload) {
            wrong = match self.target.open(Arc::clone(device)) {
                Ok(image) => {
                    oracle::judge(history, window, image.as_ref(), self.promises, has_inodes)
                }
                Err(error) => unreadable("opening the image", error)?,
            };
        }
        for violation in &mut wrong {
            violation.what.push_str(when);
        }
        Ok((writes, wrong))
    }

    /// A second recovery finds nothing, and writes nothing.
    fn again(&self, device: &Arc<dyn BlockDevice>) -> Result<Vec<Violation>, DeviceError> {
        let watched = Arc::new(Watched::new(Arc::clone(device)));
        match self.target.preen(watched.clone()) {
            Ok(said) => {
                let mut wrong: Vec<Violation> = said.report.findings.iter().map(left).collect();
                if watched.writes() > 0 {
                    let what = format!("a second preen made {} writes", watched.writes());
                    wrong.push(Violation::new("preen.not-at-rest", what));
                }
                wrong.extend(untrue(&said, watched.writes(), "a second preen"));
                Ok(wrong)
            }
            Err(error) => unreadable("a second preen", error),
        }
    }

    /// The recovery is cut off in one of its writes, and the next one has to do.
    fn interrupted(
        &self,
        state: &Arc<dyn BlockDevice>,
        draw: u64,
        writes: u64,
    ) -> Result<Vec<Violation>, DeviceError> {
        let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(state), 512));
        let (write, sectors) = (draw % writes, draw / writes);
        let cut = Arc::new(Watched::cut(Arc::clone(&device), write, sectors, self.target.whole()));
        if self.target.preen(cut).is_ok() {
            let what = format!("write {write} of {writes} failed, and the preen did not report it");
            return Ok(vec![Violation::new("preen.silent", what)]);
        }
        let when = format!(" (the first preen was cut off in write {write} of {writes})");
        Ok(self.recovered(&device, &when)?.1)
    }

    /// The check's findings that the discipline does not allow.
    fn not_allowed(&self, report: &Report) -> Vec<Violation> {
        let bad = |finding: &&Finding| {
            let bitmap = self.target.is_used_but_free(finding.code());
            if bitmap { self.promises.order } else { finding.class == Class::Unexpected }
        };
        let violation = |finding: &Finding| {
            let what = format!("{} ({})", finding.what, finding.location);
            Violation::new(&format!("check.{}", finding.code()), what)
        };
        report.findings.iter().filter(bad).take(20).map(violation).collect()
    }
}

/// Whether a recovery wrote although it says that it did not, or the reverse.
fn untrue(said: &Recovered, writes: u64, who: &str) -> Option<Violation> {
    (said.changed != (writes > 0)).then(|| {
        let says = if said.changed { "changed" } else { "did not change" };
        let what = format!("{who} reports that it {says} the image, but made {writes} writes");
        Violation::new("preen.untrue", what)
    })
}

fn unreadable(what: &str, error: FsError) -> Result<Vec<Violation>, DeviceError> {
    match error {
        FsError::Device(error @ DeviceError::Io { .. }) => Err(error),
        error => Ok(vec![Violation::new("unreadable", format!("{what}: {error}"))]),
    }
}

fn left(finding: &Finding) -> Violation {
    let what = format!("{} ({})", finding.what, finding.location);
    Violation::new(&format!("left.{}", finding.code()), what)
}
