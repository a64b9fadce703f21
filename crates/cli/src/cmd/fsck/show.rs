//! The result of a check, in the lines of e2fsck.

use super::exit::{CORRECTED, LEFT};
use crate::say::{error_line, say};
use seekless_compose::check::{Examined, Mode};
use seekless_compose::fsck::Fscked;
use seekless_ext::{VolumeState, is_passed_over, is_silent, is_uncounted};
use seekless_fs::check::{Finding, Outcome};

/// The passes, as a check that is no preen heads them.
const PASSES: [&str; 5] = [
    "Checking inodes, blocks, and sizes",
    "Checking directory structure",
    "Checking directory connectivity",
    "Checking reference counts",
    "Checking group summary information",
];

/// Mounts before the next check from which on they are printed.
const SOON: u16 = 5;

/// Prints a result, and returns the exit code.
pub(super) fn print(name: &str, mode: Mode, fscked: &Fscked, verbose: bool) -> u8 {
    let Some(examined) = &fscked.examined else {
        if let Some(state) = fscked.state.as_ref().filter(|_| !fscked.is_journal_only) {
            clean(name, state);
        }
        return 0;
    };
    // Without further findings, an unclean mark is no error that is left.
    let is_clean = mode == Mode::Check && examined.report.findings.iter().all(is_passed_over);
    let outcome = if is_clean { Outcome::Clean } else { examined.outcome };
    if mode == Mode::Preen {
        preened(name, examined);
    } else {
        passes(mode, examined);
    }
    if outcome == Outcome::Left && mode == Mode::Preen {
        // Nothing was finished that could be counted.
        error_line(&format!(
            "\n\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\
             \t(i.e., without -a or -p options)"
        ));
        return LEFT;
    }
    if examined.writes > 0 && mode == Mode::Repair {
        say!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****");
    }
    if outcome == Outcome::Left {
        say!("\n{name}: ********** WARNING: Filesystem still has errors **********\n");
    }
    if let Some(state) = &fscked.state {
        totals(name, examined, state, verbose);
    }
    match outcome {
        Outcome::Clean => 0,
        Outcome::Corrected if examined.report.findings.iter().all(is_uncounted) => 0,
        Outcome::Corrected => CORRECTED,
        Outcome::Left => LEFT,
    }
}

/// The line for a volume that needs no check.
fn clean(name: &str, state: &VolumeState) {
    let next = match state.mounts_left {
        Some(1) => " (check after next mount)".to_string(),
        Some(mounts @ 2..=SOON) => format!(" (check in {mounts} mounts)"),
        _ => String::new(),
    };
    let ((inodes, all_inodes), (blocks, all_blocks)) = (state.inodes, state.blocks);
    say!("{name}: clean, {inodes}/{all_inodes} files, {blocks}/{all_blocks} blocks{next}");
}

fn preened(name: &str, examined: &Examined) {
    for finding in examined.report.findings.iter().filter(|finding| !is_silent(finding)) {
        let done = if finding.repaired { "  FIXED." } else { "" };
        say!("{name}: {}: {}.{done}", finding.location, finding.what);
    }
    more(examined);
}

fn passes(mode: Mode, examined: &Examined) {
    let of = |phase: usize| {
        let findings = examined.report.findings.iter();
        findings.filter(move |it| usize::from(it.problem.phase) == phase && !is_silent(it))
    };
    of(0).for_each(|finding| asked(mode, finding));
    for (number, pass) in (1..).zip(PASSES) {
        say!("Pass {number}: {pass}");
        of(number).for_each(|finding| asked(mode, finding));
    }
    more(examined);
}

/// A finding, with the question for its repair and the answer.
fn asked(mode: Mode, finding: &Finding) {
    let answer = match (finding.problem.question, mode, finding.repaired) {
        (None, ..) => String::new(),
        (Some(question), Mode::Check, _) => format!("  {question} no"),
        (Some(question), _, true) => format!("  {question} yes"),
        (Some(question), _, false) => format!("  {question} yes: not possible"),
    };
    say!("{}: {}.{answer}", finding.location, finding.what);
}

fn more(examined: &Examined) {
    if examined.report.more > 0 {
        say!("... and {} more findings", examined.report.more);
    }
}

/// A part of a whole in per cent.
fn per_cent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn totals(name: &str, examined: &Examined, state: &VolumeState, verbose: bool) {
    let ((inodes, all_inodes), (blocks, all_blocks)) = (state.inodes, state.blocks);
    let tally = &examined.report.tally;
    if verbose {
        say!(
            "\n{inodes:12} inodes used ({:.2}%, out of {all_inodes})",
            per_cent(inodes, all_inodes)
        );
        say!("{:12} non-contiguous files and directories", tally.fragmented);
        say!("{blocks:12} blocks used ({:.2}%, out of {all_blocks})", per_cent(blocks, all_blocks));
        say!("{:12} directories", tally.directories);
        return;
    }
    let fragmented = per_cent(tally.fragmented, inodes);
    say!(
        "{name}: {inodes}/{all_inodes} files ({fragmented:.1}% non-contiguous), \
         {blocks}/{all_blocks} blocks"
    );
}
