//! Manual pages, judged by mandoc and man.

use crate::judges::{Scratch, ready, run, seekless, text};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Sections that every page of a command has, in their order.
const SECTIONS: &[&str] =
    &["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"];

/// The title of a section.
fn title(line: &str) -> Option<&str> {
    line.strip_prefix(".SH ").map(|title| title.trim_matches('"'))
}

#[test]
fn pages_have_the_usual_sections_and_no_faults() {
    if !ready("mandoc") || !ready("man") {
        return;
    }
    let scratch = Scratch::new("manual");
    let dir = scratch.join("man");
    text(&seekless(&["generate", "man", &dir]));
    let entries = fs::read_dir(&dir).expect("pages").map(|entry| entry.expect("entry").file_name());
    let names: BTreeSet<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in &names {
        let path = format!("{dir}/{name}");
        let page = fs::read_to_string(&path).expect("read");
        let linted = Command::new("mandoc").args(["-T", "lint", &path]).output().expect("mandoc");
        let said = String::from_utf8_lossy(&linted.stdout);
        // Examples are not divided.
        let faults: Vec<&str> =
            said.lines().filter(|line| !line.contains("line longer than 80 bytes")).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
        let mut shown = Command::new("man");
        shown.args(["--warnings", "-l", &path]).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let shown = shown.output().expect("man");
        assert!(shown.status.success() && shown.stderr.is_empty(), "{name}: {shown:?}");
        // Every reference to a page of ours leads to one.
        for line in page.lines().filter_map(|line| line.strip_prefix(".BR seekless")) {
            let (rest, section) = line.split_once(" (").expect("a section");
            let section = section.trim_end_matches([',', ')', ' ']);
            let file = format!("seekless{}.{section}", rest.replace("\\-", "-"));
            assert!(names.contains(&file) || file == "seekless-prefetch.1", "{name}: {file}");
        }
        if name.ends_with(".5") {
            continue;
        }
        let titles: Vec<&str> = page.lines().filter_map(title).collect();
        let known: Vec<&str> =
            titles.iter().copied().filter(|title| SECTIONS.contains(title)).collect();
        assert_eq!(known, SECTIONS, "{name}: {titles:?}");
    }
}

#[test]
fn pages_have_what_help_has() {
    let scratch = Scratch::new("manual-build");
    let dir = scratch.join("man");
    text(&seekless(&["generate", "man", &dir]));
    let page = fs::read_to_string(format!("{dir}/seekless-build.1")).expect("read");
    for wanted in [
        ".SS \"Changes to the tree\"",
        "\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIIMG\\fR",
        "\\fBfat32\\fR",
        "[default: 512K]",
        "\\fB2\\fR\nwrong arguments\n",
        "\\fISOURCE_DATE_EPOCH\\fR",
        "seekless build rootfs/ \\-o disk.img \\-\\-verity\n",
        ".BR mke2fs (8),",
        ".BR seekless\\-formats (5),",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let page = fs::read_to_string(format!("{dir}/seekless-check.1")).expect("read");
    assert!(page.contains("\\fB4\\fR\nerrors were left as they are\n"));
    let page = fs::read_to_string(format!("{dir}/seekless-lab-run.1")).expect("read");
    assert!(page.contains(".BR seekless\\-lab (1)"), "{page}");
    // The date can be given.
    let dated = crate::judges::command(&["generate", "man", &dir, "-q"])
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output();
    text(&dated.expect("seekless"));
    let page = fs::read_to_string(format!("{dir}/seekless-formats.5")).expect("read");
    assert!(page.starts_with(".TH SEEKLESS-FORMATS 5 2023-11-14 \"seekless "), "{page}");
    if ready("man") {
        let shown = run("man", &["-l", &format!("{dir}/seekless-formats.5")]);
        assert!(shown.contains("sha256digest"), "{shown}");
    }
}
