//! Our own check of ext beside e2fsck, on the same states.

use super::{Operation, show};
use crate::holes;
use crate::order::case::Verdict;
use crate::order::judge::{Scratch, check, text};
use crate::order::tree::{Harm, Tree, judge};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_fs::check::Outcome;
use seekless_units::Lba;
use std::sync::Arc;

/// What is left when everything is repaired, and how bad that is.
fn harm_of(verdict: Verdict) -> Harm {
    match verdict {
        Verdict::Clean(_) | Verdict::Leak(_) | Verdict::Repaired(_) | Verdict::Twice => Harm::None,
        Verdict::Person(harm) => harm,
        Verdict::Unnamed => Harm::Unnamed,
        Verdict::Lost => Harm::Lost,
        Verdict::Foreign => Harm::Foreign,
    }
}

/// Repairs a state; what we did differently from e2fsck, if anything: whether `-p`
/// stops, whether e2fsck finds anything afterwards, whether more is lost.
pub(crate) fn compare(
    operation: &Operation,
    state: &[u8],
    trees: &[Tree],
    verdict: Verdict,
) -> Option<String> {
    let scratch = Scratch::new("own");
    let image = scratch.join("image");
    let device = Arc::new(MemoryDevice::new(holes::copy(state)));
    let preened = seekless_ext::preen(device.clone()).expect("preen");
    let bytes = || {
        let mut bytes = vec![0; state.len()];
        device.read(Lba::ZERO, &mut bytes).expect("memory");
        bytes
    };
    let stops = preened.outcome == Outcome::Left;
    let title = operation.case.operation;
    let told = |what: &str| {
        let found = preened.report.findings.iter();
        let found = found.map(|it| format!("  {} {:?} {}\n", it.code(), it.class, it.what));
        Some(format!("{title}: {what}: {verdict:?}\n{}", found.collect::<String>()))
    };
    if stops != matches!(verdict, Verdict::Person(_)) {
        return told(if stops { "-p stops" } else { "-p goes on" });
    }
    if stops {
        // What a round has repaired stays so where a later one stops.
        if preened.rounds == 1 && bytes() != state {
            return told("-p stops, after it has written");
        }
        let repaired = seekless_ext::repair(device.clone()).expect("repair");
        if repaired.outcome != Outcome::Corrected {
            return told("-y does not repair it");
        }
    }
    holes::put(&image, &bytes());
    let (code, left) = check("e2fsck", "-fn", &image);
    if code != 0 || left.contains("? no") {
        return told(&format!("e2fsck -fn finds {left}"));
    }
    let (harm, _) = judge(trees, &show(&scratch, &image, operation.format, trees));
    if harm > harm_of(verdict) {
        return told(&format!("leaves {harm:?} in {}", text(&image)));
    }
    None
}
