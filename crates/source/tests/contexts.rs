//! SELinux contexts by path, compared with those of `matchpathcon` (libselinux).

#[path = "../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use property::for_all;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::Strategy;
use proptest::sample::select;
use seekless_fs::FileKind;
use seekless_source::{FileContexts, ListError};
use skip::skip;
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Parts of expressions. The first ones are stems, with quirks of libselinux.
const PARTS: &[&str] = &[
    "/usr",
    "/usr",
    "/etc",
    r"/a\-b",
    r"/a\.b",
    "/x|/etc",
    "/",
    "/bin",
    "/lib(64)?",
    "/.*",
    "/[^/]+",
    "(/.*)?",
    "(/bin|/lib)",
    "/b",
    r"\.so",
    r"\.so\.[0-9]+",
    "/[ab]x?",
    "/a+",
    "/[[:alpha:]]{2}",
    "/?",
    "/(a|b)*",
    r"/\d",
    "/[a-]",
    r"/\Qa.b\E",
    "/(?:a)",
    "/a{1,2}",
    "$",
    "^",
    ".",
    "/bin.*?",
    r"\x2fetc",
    "/{",
    "/[^a[:digit:]]",
];

const NAMES: &[&str] = &[
    "usr", "usr", "etc", "etc", "a-b", "a.b", "bin", "bin", "lib", "lib64", "a", "b", "ax", "aa",
    "x.so.1", "7", "{",
];

const TYPES: &[(&str, &str, FileKind)] = &[
    ("--", "file", FileKind::Regular),
    ("-d", "dir", FileKind::Directory),
    ("-l", "lnk_file", FileKind::Symlink),
    ("-c", "chr_file", FileKind::CharDevice),
    ("-b", "blk_file", FileKind::BlockDevice),
    ("-p", "pipe", FileKind::Fifo),
    ("-s", "sock_file", FileKind::Socket),
];

#[derive(Clone, Debug)]
struct Line {
    regex: String,
    kind: Option<usize>,
    is_none: bool,
}

fn line() -> impl Strategy<Value = Line> {
    let below = weighted(0.5, 0..1);
    let regex = (vec(select(PARTS), 1..=3), below)
        .prop_map(|(parts, below)| parts.concat() + below.map_or("", |_| "(/.*)?"));
    // An expression that begins with nothing but a quantifier or brace is none.
    let regex = regex.prop_filter("begins with a slash", |regex| regex.starts_with('/'));
    (regex, weighted(0.3, 0..TYPES.len()), weighted(0.1, 0..1))
        .prop_map(|(regex, kind, none)| Line { regex, kind, is_none: none.is_some() })
}

fn paths() -> impl Strategy<Value = Vec<String>> {
    let path = vec(select(NAMES), 0..=4).prop_map(|names| match names.as_slice() {
        [] => "/".to_string(),
        names => names.iter().map(|name| format!("/{name}")).collect(),
    });
    vec(path, 8..=8)
}

/// The lines of a file; the number of each is in its context.
fn text(lines: &[Line], name: &str) -> String {
    let mut text = String::from("# a comment\n\n");
    for (number, line) in lines.iter().enumerate() {
        let kind = line.kind.map_or("", |at| TYPES[at].0);
        let context = format!("u:r:{name}{number}_t:s0");
        let context = if line.is_none { "<<none>>".into() } else { context };
        text.push_str(&format!("{}\t{kind}  {context}\n", line.regex));
    }
    text
}

/// The context by libselinux; `None` without one.
fn judged(file: &Path, path: &str, kind: &str) -> Option<String> {
    let mut judge = Command::new("matchpathcon");
    judge.args(["-n", "-m", kind, "-f"]).arg(file).arg(path);
    let output = judge.output().expect("matchpathcon");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && said != "<<none>>").then_some(said)
}

fn is_missing() -> bool {
    let found = Command::new("sh").args(["-c", "command -v matchpathcon"]).output();
    let is_missing = !found.is_ok_and(|output| output.status.success());
    if is_missing {
        skip("matchpathcon is not installed");
    }
    is_missing
}

#[test]
fn random_contexts_as_libselinux_has_them() {
    if is_missing() {
        return;
    }
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = temp.path().join("file_contexts");
    let (asked, labelled, refused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let aliases = vec((select(NAMES), select(NAMES)), 0..=2);
    let inputs = (vec(line(), 1..=6), vec(line(), 0..=2), aliases, paths(), 0..TYPES.len());
    for_all(150, inputs, |(lines, local, aliases, paths, kind)| {
        fs::write(&base, text(&lines, "base")).unwrap();
        let beside = |suffix: &str, text: String| {
            fs::write(temp.path().join(format!("file_contexts{suffix}")), text).unwrap();
        };
        beside(".local", text(&local, "local"));
        let aliased = |from: &str, to: &str| format!("/{from} {to}\n");
        let subs: String =
            aliases.iter().map(|(from, to)| aliased(from, &format!("/{to}"))).collect();
        beside(".subs_dist", subs);
        beside(".subs", aliases.iter().take(1).map(|(from, _)| aliased(from, "/")).collect());
        let contexts = match FileContexts::read(&base) {
            Ok(contexts) => contexts,
            // Such as `(/.*)?` behind `$`, or a quantifier behind an assertion.
            Err(ListError::Line { .. }) => return refused.update(|refused| refused + 1),
            Err(error) => panic!("{error}"),
        };
        let (_, name, kind) = TYPES[kind];
        for path in &paths {
            let ours = contexts.of(path.as_bytes(), kind);
            let ours = ours.map(|context| String::from_utf8_lossy(context).into_owned());
            let theirs = judged(&base, path, name);
            assert_eq!(ours, theirs, "{path} {name}");
            asked.update(|asked| asked + 1);
            labelled.update(|labelled| labelled + usize::from(theirs.is_some()));
        }
    });
    let (asked, labelled, refused) = (asked.get(), labelled.get(), refused.get());
    assert!(asked >= 200 && labelled * 6 > asked, "{labelled} of {asked} paths have a context");
    assert!(refused * 4 < asked / 8, "{refused} files are refused");
}

#[test]
fn the_order_of_lines_and_files_decides() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = temp.path().join("fc");
    let beside = |suffix: &str, text: &str| {
        fs::write(temp.path().join(format!("fc{suffix}")), text).unwrap();
    };
    beside(
        "",
        "/etc/passwd\texact\n/.*\tall\n/etc/.*\t--\tetc\n/home/[^/]+/x\tbase\n/none\t-d\t<<none>>\n\
         /one|/two\talternative\n",
    );
    beside(".homedirs", "/home/[^/]+/x\thomedirs\n/home/[^/]+/y\thomedirs\n");
    beside(".local", "/home/[^/]+/y\tlocal\n");
    beside(".subs", "/export/home /home\n");
    beside(".subs_dist", "# comment\n/home2 /export/home\n/home2 /home\n/run/etc /etc\n/top /\n");
    let contexts = FileContexts::read(&base).unwrap();
    for (path, kind, wanted) in [
        ("/etc/passwd", FileKind::Regular, Some("exact")),
        ("/etc/group", FileKind::Regular, Some("etc")),
        ("/etc/group", FileKind::Directory, Some("all")),
        ("/home/a/x", FileKind::Regular, Some("homedirs")),
        ("/home/a/y", FileKind::Regular, Some("local")),
        ("/none", FileKind::Directory, None),
        ("/none", FileKind::Regular, Some("all")),
        ("/export/home/a/y", FileKind::Regular, Some("local")),
        ("/home2/a/y", FileKind::Regular, Some("local")),
        ("/run/etc/passwd", FileKind::Regular, Some("exact")),
        ("/run/etcx", FileKind::Regular, Some("all")),
        ("/top/etc/passwd", FileKind::Regular, Some("exact")),
        // `^` and `$` belong to one alternative each.
        ("/ones", FileKind::Regular, Some("alternative")),
        ("/a/two", FileKind::Regular, Some("alternative")),
        ("/a/twos", FileKind::Regular, Some("all")),
    ] {
        let found = contexts.of(path.as_bytes(), kind).map(String::from_utf8_lossy);
        assert_eq!(found.as_deref(), wanted, "{path} {kind:?}");
    }
}

#[test]
fn errors_name_file_and_line() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = temp.path().join("fc");
    for (text, wanted) in [
        ("/a u:r:t:s0\n/b -x u:r:t:s0\n", "fc, line 2: '-x' is not a file type, such as -d"),
        ("/a\n", "fc, line 1: not a line REGEX [TYPE] CONTEXT"),
        ("/a -- u:r:t:s0 more\n", "fc, line 1: not a line REGEX [TYPE] CONTEXT"),
        ("\n/a(b u:r:t:s0\n", "fc, line 2: /a(b: missing closing parenthesis"),
        ("/a(?=b) u:r:t:s0\n", "fc, line 1: /a(?=b): look-ahead is not supported"),
    ] {
        fs::write(&base, text).unwrap();
        let error = FileContexts::read(&base).expect_err(text);
        assert!(error.to_string().ends_with(wanted), "{error}");
        let is_unsupported = matches!(error, ListError::Unsupported { .. });
        assert_eq!(is_unsupported, wanted.contains("not supported"), "{error}");
    }
    fs::write(&base, "/a u:r:t:s0\n").unwrap();
    fs::write(temp.path().join("fc.subs"), "/a\n").unwrap();
    let error = FileContexts::read(&base).expect_err("subs");
    assert!(error.to_string().ends_with("fc.subs, line 1: not a line PATH OTHER-PATH"), "{error}");
    let error = FileContexts::read(&temp.path().join("none")).expect_err("missing");
    assert!(matches!(error, ListError::Io { .. }), "{error}");
}
