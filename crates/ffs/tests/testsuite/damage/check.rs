//! What the check says of damage made by recipe.

use super::golden::CASES;
use super::images;
use super::patient::Patient;
use seekless_device::MemoryDevice;
use seekless_ffs::check;
use seekless_fs::check::Report;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn checked(bytes: Vec<u8>) -> Report {
    check(Arc::new(MemoryDevice::new(bytes))).expect("checked")
}

fn codes(report: &Report) -> BTreeSet<&'static str> {
    report.findings.iter().map(|finding| finding.code()).collect()
}

/// Every case with every image that it can be done to.
pub(crate) fn patients() -> impl Iterator<Item = (String, &'static super::golden::Case, Patient)> {
    images::IMAGES.iter().flat_map(|(image, _)| {
        let cases = CASES.iter().filter(|case| case.fits(image));
        cases.map(move |case| {
            let mut patient = Patient::new(image);
            (case.recipe)(&mut patient);
            (format!("{image}: {}", case.name), case, patient)
        })
    })
}

#[test]
fn sound_images_are_clean() {
    for (name, compressed) in images::IMAGES {
        let report = checked(images::unpack(compressed));
        assert!(report.is_clean(), "{name}: {:#?}", report.findings);
        assert!(report.tally.inodes > 5 && report.tally.directories >= 2, "{name}");
    }
}

#[test]
fn every_recipe_is_found_and_nothing_else() {
    assert!(CASES.len() >= 40);
    let mut failures = Vec::new();
    for (what, case, patient) in patients() {
        let report = checked(patient.bytes);
        let wanted: BTreeSet<&str> = case.codes.iter().copied().collect();
        if codes(&report) != wanted || (report.unexpected == 0) != case.after_a_crash {
            let found: Vec<_> = report
                .findings
                .iter()
                .map(|finding| format!("{} {}", finding.code(), finding.what))
                .collect();
            failures.push(format!("{what}: wanted {wanted:?}, found {found:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn hostile_bytes_are_looked_at_in_bounded_time() {
    let mut random = super::Random(3);
    for (_, compressed) in images::IMAGES {
        let sound = images::unpack(compressed);
        for _ in 0..150 {
            let mut bytes = sound.clone();
            for _ in 0..=random.below(6) {
                let at = random.below(bytes.len().min(400_000));
                bytes[at] = random.below(256) as u8;
            }
            // Any answer but a panic will do.
            let _ = check(Arc::new(MemoryDevice::new(bytes))).map(drop);
        }
    }
}
