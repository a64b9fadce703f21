//! Damage made by recipe, repaired.

use crate::check::{GOLDEN, Patient};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ffs::{Outcome, check, preen, repair};
use std::sync::Arc;

#[test]
fn a_preen_repairs_what_a_crash_may_leave_and_nothing_else() {
    for (what, recipe, _, after_a_crash) in GOLDEN {
        let mut patient = Patient::new();
        recipe(&mut patient);
        let device = Arc::new(MemoryDevice::new(patient.bytes.clone()));
        let repaired = preen(device.clone()).expect(what);
        if *after_a_crash {
            assert_eq!(repaired.outcome, Outcome::Corrected, "{what}: {repaired:#?}");
            assert!(repaired.report.findings.iter().all(|finding| finding.repaired), "{what}");
            assert!(check(device).expect(what).is_clean(), "{what}");
        } else {
            assert_eq!(repaired.outcome, Outcome::Left, "{what}: {repaired:#?}");
            let mut bytes = vec![0; patient.bytes.len()];
            device.read(seekless_units::Lba::ZERO, &mut bytes).expect(what);
            assert!(bytes == patient.bytes, "{what}: something was written");
        }
    }
}

#[test]
fn every_recipe_is_repaired() {
    let mut failures = Vec::new();
    for (what, recipe, _, _) in GOLDEN {
        let mut patient = Patient::new();
        recipe(&mut patient);
        let device = Arc::new(MemoryDevice::new(patient.bytes.clone()));
        let repaired = repair(device.clone()).expect(what);
        let left = check(device).expect(what);
        if repaired.outcome != Outcome::Corrected || !left.is_clean() {
            failures.push(format!("{what}: {repaired:#?}\nleft: {left:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
