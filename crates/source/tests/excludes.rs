//! Patterns of excludes, compared with the paths that `git check-ignore` ignores in the same tree.

#[path = "../../fs/tests/shared/list.rs"]
mod list;
#[path = "../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use list::list;
use property::for_all;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use seekless_fs::source::Source;
use seekless_source::{DirectorySource, Excludes, TreeOptions};
use skip::skip;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Parts of patterns.
const PARTS: &[&str] = &[
    "a",
    "",
    "a",
    "c",
    "*",
    "**",
    "?",
    "/",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[^b-]",
    "[a-b]",
    "[]a]",
    "[[:alpha:]]",
    "[[:upper:]c]",
    "\\a",
    "\\*",
    "*/",
    "**/",
    "/**",
    "a*",
    "*",
    ".",
    "[a-]",
    "[\\]a]",
    "***",
    "[[:x]",
    "A",
    " ",
    "\\ ",
    "#",
    "!",
    "[",
    "\\",
];

const NAMES: &[&str] =
    &["a", "b", "ab", "c", "a b", "A", "b ", "*", "]", "-", "#", "!a", "abc", "."];

fn pattern() -> impl Strategy<Value = String> {
    let rarely = || weighted(0.15);
    (rarely(), vec(select(PARTS), 1..=4), rarely()).prop_map(|(again, parts, directory)| {
        let (before, after) = (if again { "!" } else { "" }, if directory { "/" } else { "" });
        format!("{before}{}{after}", parts.concat())
    })
}

/// A directory or file in a directory before it, by a number that is taken modulo theirs.
#[derive(Clone, Debug)]
struct Entry {
    parent: u8,
    name: &'static str,
    is_dir: bool,
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u8>(), select(NAMES), weighted(0.45)).prop_map(|(parent, name, is_dir)| Entry {
        parent,
        name,
        is_dir,
    })
}

/// Creates some directories and files. Returns their paths.
fn tree(entries: &[Entry], root: &Path) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    let mut dirs = vec![PathBuf::new()];
    for entry in entries {
        let path = dirs[usize::from(entry.parent) % dirs.len()].join(entry.name);
        let at = root.join(&path);
        if at.exists() {
            continue;
        }
        paths.push(path.as_os_str().as_bytes().to_vec());
        if entry.is_dir {
            fs::create_dir(at).unwrap();
            dirs.push(path);
        } else {
            fs::write(at, b"").unwrap();
        }
    }
    paths
}

/// The paths that git ignores, by a list of patterns for the root.
fn ignored(git: &Path, root: &Path, patterns: &[String], paths: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    fs::write(git.join("info/exclude"), patterns.join("\n") + "\n").unwrap();
    let mut asked = Command::new("git")
        .arg(format!("--git-dir={}", git.display()))
        .arg("--work-tree=.")
        .args(["check-ignore", "--no-index", "--stdin", "-z"])
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A name such as `:` would be magic otherwise.
    let lines: Vec<u8> = paths.iter().flat_map(|path| [b"./", &path[..], b"\0"].concat()).collect();
    asked.stdin.take().unwrap().write_all(&lines).unwrap();
    let output = asked.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let found = output.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    found.map(|path| path.strip_prefix(b"./").unwrap_or(path).to_vec()).collect()
}

/// How many paths there were, how many of them are ignored, and how many patterns match nothing.
#[derive(Default)]
struct Counts {
    paths: Cell<usize>,
    ignored: Cell<usize>,
    idle: Cell<usize>,
}

/// Compares the paths that a list of patterns leaves out of a tree.
fn compare(git: &Path, entries: &[Entry], patterns: &[String], counts: &Counts) {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = temp.path();
    let paths = tree(entries, root);
    for pattern in patterns.iter().filter(|it| !Excludes::new(&[it]).idle().is_empty()) {
        let found = ignored(git, root, std::slice::from_ref(pattern), &paths);
        counts.idle.update(|idle| idle + 1);
        assert!(found.is_empty(), "{pattern:?} matches nothing, git: {}", shown(&found));
    }
    let excludes = Excludes::new(patterns);
    let options = TreeOptions { excludes, ..TreeOptions::default() };
    let source = DirectorySource::open(root, &options).unwrap();
    let tree = source.tree();
    let kept: BTreeSet<Vec<u8>> = tree.ids().map(|id| tree.path(id)).collect();
    let ours = paths.iter().filter(|path| !kept.contains(*path)).cloned().collect();
    let theirs = ignored(git, root, patterns, &paths);
    assert!(ours == theirs, "ours {}, git's {}", shown(&ours), shown(&theirs));
    counts.paths.update(|all| all + paths.len());
    counts.ignored.update(|ignored| ignored + theirs.len());
}

fn shown(paths: &BTreeSet<Vec<u8>>) -> String {
    format!("{:?}", paths.iter().map(|path| String::from_utf8_lossy(path)).collect::<Vec<_>>())
}

#[test]
fn random_patterns_as_git_has_them() {
    if !Command::new("git").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skip("git is not installed");
    }
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let git = temp.path().join("git");
    let made = Command::new("git").args(["init", "-q", "--bare"]).arg(&git).status();
    assert!(made.unwrap().success());
    let counts = Counts::default();
    // `./` is the root here, and has no meaning for git.
    let pattern = pattern().prop_filter("begins with ./", |pattern| {
        !pattern.trim_start_matches('!').starts_with("./")
    });
    for_all(150, (list(entry(), 12..=12), vec(pattern, 1..=5)), |(entries, patterns)| {
        compare(&git, &entries, &patterns, &counts);
    });
    let Counts { paths, ignored, idle } = counts;
    assert!(idle.get() > 0, "no pattern that can match nothing");
    assert!(ignored.get() * 10 > paths.get(), "{ignored:?} of {paths:?} paths are ignored");
}
