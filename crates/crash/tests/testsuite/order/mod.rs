//! Which write must reach the disk before which other.
//!
//! Each row of the tables is a state that a crash may leave: an image made by
//! another implementation, with some of the writes of an operation and without the
//! others. Checks that are not ours repair it, and readers that are not ours show
//! what is left. The rules that follow are in `docs/order-of-writes.md`; that page
//! is written with
//!
//! ```sh
//! SEEKLESS_ORDER_PAGE=write cargo test -p seekless-crash order::page
//! ```

mod case;
mod ext;
mod fat;
mod judge;
mod page;
mod state;
mod tree;

use crate::slice::some_or_all;
use case::{Case, Verdict};
use rayon::prelude::*;
use state::{Fields, Recorded};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

/// Compares the rows of an operation with what the judges say, and the rules with
/// the rows; returns what differs.
fn compare(case: &Case, said: &BTreeMap<u32, (Verdict, String)>) -> String {
    let mut wrong = String::new();
    let claims = case.claims();
    for (&bits, (verdict, text)) in said {
        let claim = claims.get(&bits);
        if claim.is_some_and(|claim| claim != verdict) {
            let names = case.names(bits);
            let _ = writeln!(wrong, "{} [{names}]: {verdict:?}, not {claim:?}", case.operation);
            let _ = writeln!(wrong, "{text}");
        }
    }
    let verdicts = said.iter().map(|(bits, (verdict, _))| (*bits, *verdict)).collect();
    for fault in case.faults(&verdicts) {
        let _ = writeln!(wrong, "{fault}");
    }
    wrong
}

/// States to look at: those of the rows, or all that there are.
fn states(case: &Case, all: bool) -> Vec<u32> {
    if all { (0..=case.all()).collect() } else { case.claims().into_keys().collect() }
}

/// Judges some states of an operation.
fn judged(
    case: &Case,
    recorded: &Recorded,
    fields: Fields,
    all: bool,
    verdict: impl Fn(&[u8]) -> (Verdict, String) + Sync,
) -> String {
    let judge = |bits: u32| (bits, verdict(&case.state(recorded, bits, fields)));
    compare(case, &states(case, all).into_par_iter().map(judge).collect())
}

/// The operations that are judged: the verdicts of these programs change only with their version.
fn every() -> usize {
    some_or_all(8, 4)
}

fn judge_ext(all: bool, every: usize) {
    if !judge::ready(&["mke2fs", "e2fsck", "debugfs", "mount", "setfattr"], true) {
        return;
    }
    let operations: Vec<_> = ext::operations().step_by(every).collect();
    let differs: Mutex<String> = Mutex::default();
    let each = |operation: &ext::Operation| {
        let (recorded, trees) = ext::record(operation);
        judged(&operation.case, &recorded, ext::fields, all, |state| {
            let (verdict, says) = ext::verdict(operation.format, state, &trees);
            let ours = ext::own::compare(operation, state, &trees, verdict);
            if let Some(what) = ours {
                differs.lock().expect("no panic").push_str(&format!("{what}\n{says}\n"));
            }
            (verdict, says)
        })
    };
    let wrong: Vec<String> = operations.into_par_iter().map(each).collect();
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong}");
    let differs = differs.into_inner().expect("no panic");
    assert!(differs.is_empty(), "{differs}");
}

fn judge_fat(all: bool, every: usize) {
    if !judge::ready(&["mkfs.fat", "fsck.fat", "mcopy"], false) {
        return;
    }
    let operations: Vec<_> = fat::operations().step_by(every).collect();
    let each = |operation: &fat::Operation| {
        let (recorded, trees) = fat::record(operation);
        judged(&operation.case, &recorded, fat::fields, all, |state| fat::verdict(state, &trees))
    };
    let wrong: Vec<String> = operations.into_par_iter().map(each).collect();
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn ext_rows() {
    judge_ext(false, every());
}

#[test]
fn fat_rows() {
    judge_fat(false, every());
}

/// Every set of writes of every operation, so that the rules leave nothing out.
#[test]
#[ignore = "a minute"]
fn every_state_that_keeps_the_rules_is_acceptable() {
    judge_ext(true, 1);
    judge_fat(true, 1);
}

/// The tables prove their rules by themselves, whatever judges are here.
#[test]
fn each_rule_has_a_row_that_needs_it() {
    let ext = ext::operations().map(|operation| &operation.case);
    let fat = fat::operations().map(|operation| &operation.case);
    let (mut rows, mut faults) = (0, Vec::new());
    for case in ext.chain(fat) {
        rows += case.rows.len();
        faults.extend(case.faults(&case.claims()));
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(rows > 400, "only {rows} rows");
}

#[test]
fn page() {
    page::compare();
}
