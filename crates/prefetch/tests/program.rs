//! The program itself.

use std::fs;
use std::process::{Command, Output};

fn program(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekless-prefetch")).args(args).output().expect("start")
}

/// Its exit code and standard error.
fn outcome(args: &[&str]) -> (Option<i32>, String) {
    let output = program(args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_list_is_read_and_faults_name_their_file() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string();
    let (list, volume) = (path("list"), path("volume"));
    fs::write(&volume, vec![1; 100_000]).expect("write");
    fs::write(&list, "0 4096\n65536 100\n").expect("write");
    assert_eq!(outcome(&[&list, &volume]), (Some(0), String::new()));
    assert_eq!(outcome(&["--readers=2", "--least-sure", "100", &list, &volume]).0, Some(0));

    let missing = path("missing");
    let cases: [(&[&str], &str); 10] = [
        (&[], "a LIST and a VOLUME"),
        (&[&list], "a LIST and a VOLUME"),
        (&[&missing, &volume], &missing),
        (&[&list, &missing], &missing),
        (&["--window", "1M", &list, &volume], "needs --user"),
        (&["--user", &volume, "--window", "0", &list, &volume], "at least one byte"),
        (&["--user", &volume, &list, &volume], "no block device"),
        (&["--least-sure", "101", &list, &volume], "percent"),
        (&["--none", &list, &volume], "--none"),
        (&[&volume, &list], &volume),
    ];
    for (args, says) in cases {
        let (code, why) = outcome(args);
        assert!(code == Some(2) && why.contains(says), "{args:?}: {code:?} {why}");
    }
    fs::write(&list, "99000 4096\n").expect("write");
    let (code, why) = outcome(&[&list, &volume]);
    assert!(code == Some(2) && why.contains("another volume") && why.contains(&list), "{why}");
}

#[test]
fn help_has_all_options() {
    let output = program(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for option in ["--readers", "--user", "--window", "--least-sure", "--version"] {
        assert!(output.status.success() && text.contains(option), "{option}: {text}");
    }
    let version = program(&["-V"]);
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    assert_eq!(text, format!("seekless-prefetch {}\n", env!("CARGO_PKG_VERSION")));
}
