//! Patterns of excludes, compared with the paths that `git check-ignore` ignores in the same tree.

#[path = "tar/random.rs"]
mod random;
#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use random::Random;
use seekless_fs::source::Source;
use seekless_source::{DirectorySource, Excludes, TreeOptions};
use skip::skip;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of lists of patterns in an ordinary run. `SEEKLESS_EXCLUDES` is another number.
const LISTS: u64 = 150;

fn pattern(random: &mut Random) -> String {
    let parts: &[&[u8]] = &[
        b"a",
        b"b",
        b"ab",
        b"c",
        b"*",
        b"**",
        b"?",
        b"/",
        b"/",
        b"/",
        b"[ab]",
        b"[!a]",
        b"[^b-]",
        b"[a-b]",
        b"[]a]",
        b"[[:alpha:]]",
        b"[[:upper:]c]",
        b"\\a",
        b"\\*",
        b"*/",
        b"**/",
        b"/**",
        b"a*",
        b"*b",
        b".",
        b"[a-]",
        b"[\\]a]",
        b"***",
        b"[[:x]",
        b"A",
        b" ",
        b"\\ ",
        b"#",
        b"!",
        b"[",
        b"\\",
    ];
    let mut text = Vec::new();
    if random.chance(15) {
        text.push(b'!');
    }
    for _ in 0..=random.next(4) {
        text.extend_from_slice(random.text(parts));
    }
    if random.chance(15) {
        text.push(b'/');
    }
    String::from_utf8(text).unwrap()
}

/// Creates some directories and files. Returns their paths.
fn tree(random: &mut Random, root: &Path) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = &[
        b"a", b"b", b"ab", b"c", b"a b", b"A", b"b ", b"*", b"]", b"-", b"#", b"!a", b"abc", b".",
    ];
    let mut paths = Vec::new();
    let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..12 {
        let mut path = random.pick(&dirs).clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(random.text(names));
        let at = root.join(std::ffi::OsStr::from_bytes(&path));
        if at.exists() {
            continue;
        }
        if random.chance(45) {
            fs::create_dir(at).unwrap();
            dirs.push(path.clone());
        } else {
            fs::write(at, b"").unwrap();
        }
        paths.push(path);
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

#[test]
fn random_patterns_as_git_has_them() {
    if !Command::new("git").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skip("git is not installed");
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("SEEKLESS_EXCLUDES").unwrap_or(LISTS);
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let git = temp.path().join("git");
    let made = Command::new("git").args(["init", "-q", "--bare"]).arg(&git).status();
    assert!(made.unwrap().success());
    let (mut compared, mut left_out, mut idle) = (0, 0, 0);
    let mut wrong = Vec::new();
    for seed in 0..count {
        let mut random = Random::new(seed);
        let root = temp.path().join("root");
        fs::create_dir(&root).unwrap();
        let paths = tree(&mut random, &root);
        let mut patterns: Vec<String> =
            (0..=random.next(4)).map(|_| pattern(&mut random)).collect();
        // `./` is the root here, and has no meaning for git.
        patterns.retain(|pattern| !pattern.trim_start_matches('!').starts_with("./"));
        for pattern in patterns.iter().filter(|it| !Excludes::new(&[it]).idle().is_empty()) {
            let found = ignored(&git, &root, std::slice::from_ref(pattern), &paths);
            idle += 1;
            if !found.is_empty() {
                wrong.push(format!("{seed}: {pattern:?} matches nothing, git: {found:?}"));
            }
        }
        let excludes = Excludes::new(&patterns);
        let options = TreeOptions { excludes, ..TreeOptions::default() };
        let source = DirectorySource::open(&root, &options).unwrap();
        let tree = source.tree();
        let kept: BTreeSet<Vec<u8>> = tree.ids().map(|id| tree.path(id)).collect();
        let ours: BTreeSet<Vec<u8>> =
            paths.iter().filter(|path| !kept.contains(*path)).cloned().collect();
        let theirs = ignored(&git, &root, &patterns, &paths);
        if ours != theirs {
            let shown = |set: &BTreeSet<Vec<u8>>, other: &BTreeSet<Vec<u8>>| -> Vec<String> {
                let only = set.difference(other);
                only.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
            };
            let (more, less) = (shown(&ours, &theirs), shown(&theirs, &ours));
            wrong.push(format!("{seed}: {patterns:?}: only ours {more:?}, only git's {less:?}"));
        }
        compared += paths.len();
        left_out += theirs.len();
        fs::remove_dir_all(&root).unwrap();
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(idle > 0, "no pattern that can match nothing");
    assert!(left_out * 10 > compared, "{left_out} of {compared} paths are ignored");
}
