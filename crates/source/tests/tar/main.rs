//! Archives of tar, compared with their extraction by GNU tar and bsdtar.
//!
//! If both agree on an archive's contents, our result must be the same. If they differ, it must
//! equal one of them, name by name and attribute by attribute. An archive that we refuse is also
//! refused, or warned of, by one of them, or docs/limits.md lists it.

mod corpora;
mod craft;
mod generate;
mod judge;
mod named;
mod random;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;

use judge::{Judges, differences, ours};
use std::fs;
use std::path::Path;

/// Number of archives in an ordinary run. `SEEKLESS_TARS` is another number, `SEEKLESS_TARS_FROM`
/// the first seed, `SEEKLESS_TARS_KEEP` a directory for the archives that fail.
const ARCHIVES: u64 = 100;

/// Refusals listed in docs/limits.md.
const LISTED: &[&str] = &[
    "not a path within the archive",
    "entry of type ",
    "entry of a multi-volume archive",
    "sparse file in the format of star",
    "contains a slash or a zero byte",
    "invalid map of a sparse file",
];

/// The outcome of a comparison, in words.
type Outcome = &'static str;

/// Compares one archive. The error describes the differences.
fn compare(judges: &Judges, archive: &Path) -> Result<Outcome, String> {
    let verdicts = judges.ask(archive);
    let complaints = verdicts.each_ref().map(|judge| judge.complaint.as_deref());
    let about = |what: String| {
        let [gnu, bsd] = complaints;
        format!("{what}\n    GNU tar: {gnu:?}\n    bsdtar: {bsd:?}")
    };
    // docs/limits.md: such an entry replaces the directory here.
    let [gnu, bsd] = complaints.map(Option::unwrap_or_default);
    if bsd.contains("replace existing directory with non") || gnu.contains(": File exists") {
        return Ok("a directory is replaced");
    }
    // docs/limits.md: symlinks on the way are followed within the root.
    if bsd.contains("extract through symlink") {
        return Ok("a symlink is followed");
    }
    match ours(archive) {
        Ok(listing) => {
            let found = differences(&listing, &verdicts);
            match complaints.iter().flatten().count() {
                _ if !found.is_empty() => Err(about(found.join("; "))),
                0 => Ok("taken by all"),
                1 => Ok("taken by one judge"),
                _ => Ok("taken by us"),
            }
        }
        Err(error) if !error.contains("byte ") => Err(about(format!("no place: {error}"))),
        Err(_) if complaints.iter().any(Option::is_some) => {
            let by_all = complaints.iter().all(Option::is_some);
            Ok(if by_all { "refused by all" } else { "refused by one judge" })
        }
        Err(error) if LISTED.iter().any(|listed| error.contains(listed)) => Ok("listed"),
        Err(error) => Err(about(format!("only we refuse: {error}"))),
    }
}

#[test]
fn random_archives() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("SEEKLESS_TARS").unwrap_or(ARCHIVES);
    let first = number("SEEKLESS_TARS_FROM").unwrap_or(0);
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !Judges::can_ask(temp.path()) {
        return;
    }
    let judges = Judges::new(temp.path());
    let archive = temp.path().join("archive");
    let mut outcomes = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in first..first + count {
        fs::write(&archive, generate::archive(seed)).unwrap();
        match compare(&judges, &archive) {
            Ok(outcome) => *outcomes.entry(outcome).or_insert(0) += 1,
            Err(what) => {
                wrong.push(format!("seed {seed}: {what}"));
                if let Some(dir) = std::env::var_os("SEEKLESS_TARS_KEEP") {
                    fs::copy(&archive, Path::new(&dir).join(format!("{seed}.tar"))).unwrap();
                }
            }
        }
    }
    println!("{outcomes:?}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    let agreed = outcomes.get("taken by all").copied().unwrap_or(0);
    assert!(agreed >= count / 4, "{agreed} of {count} archives were taken by all");
}
