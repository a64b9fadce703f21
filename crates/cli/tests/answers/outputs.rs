//! Outputs that exist already: the same message and exit code in all commands.

use super::{errors, run, said, workshop};
use std::fs;
use std::os::unix::fs::symlink;

/// Exit codes of system errors and of wrong arguments.
const SYSTEM: i32 = 6;
const USAGE: i32 = 2;

#[test]
fn what_exists_already_is_refused_alike() {
    let scratch = workshop("outputs");
    let dir = scratch.path();
    fs::write(dir.join("there"), "kept").expect("file");
    let parameters = said(dir, &["model", "show", "gp3"]);
    fs::write(dir.join("gp3.toml"), parameters).expect("file");
    let writers: [&[&str]; 4] = [
        &["build", "tree", "-o", "there"],
        &["mkfs", "--format", "ufs2", "--size", "8M", "there"],
        &["optimize", "disk.img", "--trace", "job.trace", "-o", "there"],
        &["age", "ufs.img", "-o", "there", "--ops", "5"],
    ];
    for args in writers {
        let output = run(dir, args);
        assert_eq!(output.status.code(), Some(SYSTEM), "{args:?}");
        let wanted = "seekless: there: already exists (use --force to replace it)\n";
        assert_eq!(errors(&output), wanted, "{args:?}");
        assert_eq!(fs::read(dir.join("there")).expect("file"), b"kept");
        said(dir, &[args, &["--force"]].concat());
        fs::write(dir.join("there"), "kept").expect("file");
    }
    // `disk --create` has no --force: an existing disk must never be lost.
    let disk = ["disk", "there", "tree", "--model", "gp3", "--create", "--size", "1M"];
    let output = run(dir, &disk);
    assert_eq!(output.status.code(), Some(SYSTEM));
    let wanted = "seekless: there: already exists (without --create it is served as it is)\n";
    assert_eq!(errors(&output), wanted);
}

/// An output that --force cannot replace is refused at once, without a useless hint.
#[test]
fn what_is_no_file_is_never_replaced() {
    let scratch = workshop("outputs-kinds");
    let dir = scratch.path();
    symlink("nowhere", dir.join("dangling")).expect("link");
    for name in ["tree", "dangling"] {
        for force in [&[][..], &["--force"]] {
            let output = run(dir, &[&["build", "disk.img", "-o", name], force].concat());
            assert_eq!(output.status.code(), Some(USAGE), "{name} {force:?}");
            assert_eq!(
                errors(&output),
                format!("seekless: {name}: not a regular file\n"),
                "{force:?}"
            );
        }
    }
    for args in [
        &["trace", "import", "--paths", "list", "-o", "tree"][..],
        &["manifest", "disk.img", "-o", "tree"],
    ] {
        let output = run(dir, args);
        assert_eq!(output.status.code(), Some(USAGE), "{args:?}");
        assert_eq!(errors(&output), "seekless: tree: not a regular file\n", "{args:?}");
    }
}

/// A failed write leaves the old trace unchanged, and a symlink remains one.
#[test]
fn lists_and_traces_appear_whole_or_not_at_all() {
    let scratch = workshop("outputs-whole");
    let dir = scratch.path();
    let old = fs::metadata(dir.join("job.trace")).expect("trace");
    symlink("job.trace", dir.join("link.trace")).expect("link");
    fs::copy(dir.join("job.trace"), dir.join("one.trace")).expect("copy");
    said(dir, &["trace", "merge", "one.trace", "one.trace", "-o", "link.trace"]);
    assert!(dir.join("link.trace").is_symlink());
    symlink("disk.img", dir.join("link.img")).expect("link");
    said(dir, &["build", "tree", "-o", "link.img", "--format", "ufs2", "--force"]);
    assert!(dir.join("link.img").is_symlink());
    assert!(said(dir, &["info", "disk.img"]).contains("ufs2"));
    let new = fs::metadata(dir.join("job.trace")).expect("trace");
    assert!(new.len() > old.len());
    // The new trace is another file: readers of the old one still see all of it.
    use std::os::unix::fs::MetadataExt;
    assert_ne!(new.ino(), old.ino());
    let text = said(dir, &["trace", "import", "--paths", "list", "-o", "/dev/stdout"]);
    assert!(text.starts_with("{\"seekless_trace\":1"), "{text}");
}

/// No command replaces a file that it reads, whatever it writes.
#[test]
fn no_command_replaces_what_it_reads() {
    let scratch = workshop("outputs-inputs");
    let dir = scratch.path();
    said(dir, &["trace", "summarize", "job.trace", "-o", "sum.parquet"]);
    fs::write(dir.join("script"), said(dir, &["crash", "list", "create"])).expect("script");
    fs::write(dir.join("profile.svg"), said(dir, &["age", "--show-profile", "mail"]))
        .expect("profile");
    fs::write(dir.join("listed"), "#mtree\n. type=dir\nfile type=file contents=tree/same\n")
        .expect("manifest");
    let crash = ["crash", "run", "--workload", "./script", "-d", "softdep", "-f", "ufs2"];
    let crash = [&crash[..], &["--sample", "2", "--log-out"]].concat();
    let image = ["trace", "export", "job.trace", "--format", "ranges", "--image", "disk.img"];
    let build = ["build", "tree", "-o", "new.img"];
    let verity = [&build[..], &["--force", "--verity"]].concat();
    let listed = ["build", "--manifest", "listed", "--force", "--verity"];
    let to = |args: &[&'static str], more: &[&'static str]| [args, more].concat();
    let disk = ["disk", "disk.img", "tree", "--model", "gp3", "--io-log"];
    let cases: [(Vec<&str>, &str); 18] = [
        (to(&disk, &["disk.img"]), "disk.img"),
        (to(&["trace", "export", "job.trace", "-o"], &["job.trace"]), "job.trace"),
        (to(&image, &["-o", "disk.img"]), "disk.img"),
        (to(&["trace", "summarize", "job.trace", "-o"], &["job.trace"]), "job.trace"),
        (to(&["trace", "merge", "job.trace", "job.trace", "-o"], &["job.trace"]), "job.trace"),
        (to(&["trace", "merge", "sum.parquet", "-o"], &["sum.parquet"]), "sum.parquet"),
        (to(&crash, &["./script"]), "script"),
        (
            to(
                &["age", "ufs.img", "--ops", "5", "--profile", "./profile.svg"],
                &["--plot", "profile.svg"],
            ),
            "profile.svg",
        ),
        (to(&["manifest", "tree", "-o"], &["tree/same"]), "tree/same"),
        (to(&["manifest", "tree", "-o"], &["link"]), "tree/same"),
        (to(&["build", "tree", "--force", "-o"], &["link"]), "tree/same"),
        (to(&verity, &["--root-hash-file", "tree/same"]), "tree/same"),
        (to(&verity, &["--root-hash-file", "tree/new"]), "tree/same"),
        (to(&build, &["--force", "--verity-tree", "tree/same"]), "tree/same"),
        (to(&build, &["--force", "--verity-tree", "link"]), "tree/same"),
        (to(&listed, &["-o", "tree/same"]), "tree/same"),
        (to(&listed, &["-o", "link"]), "tree/same"),
        (to(&listed, &["-o", "new.img", "--root-hash-file", "tree/same"]), "tree/same"),
    ];
    symlink("tree/same", dir.join("link")).expect("link");
    for (args, input) in cases {
        let before = fs::read(dir.join(input)).expect("input");
        let output = run(dir, &args);
        let told = errors(&output);
        let is_told = told.contains("over an input") || told.contains("inside its source");
        let is_plot = args.contains(&"--plot") && told.contains("would overwrite");
        assert!(output.status.code() == Some(USAGE) && (is_told || is_plot), "{args:?}: {told}");
        assert!(fs::read(dir.join(input)).expect("input") == before, "{args:?}");
        assert!(!dir.join("tree/new").exists() && !dir.join("new.img").exists(), "{args:?}");
    }
    // The state of a campaign is continued: a file that is none stays, also one without a whole line.
    for text in ["kept", "kept\n", "{\"campaign\":"] {
        fs::write(dir.join("there"), text).expect("file");
        let state =
            ["crash", "run", "-w", "create", "-d", "softdep", "-f", "ufs2", "--sample", "2"];
        let output = run(dir, &[&state[..], &["-o", "there"]].concat());
        let is_cut_short = text.starts_with('{');
        assert_eq!(output.status.success(), is_cut_short, "{text}: {}", errors(&output));
        let is_kept = fs::read_to_string(dir.join("there")).expect("file") == text;
        assert_eq!(is_kept, !is_cut_short, "{text}");
    }
    // Without --force, no file is replaced.
    fs::write(dir.join("there"), "kept").expect("file");
    let output = run(dir, &[&build[..], &["--verity", "--root-hash-file", "there"]].concat());
    assert_eq!(output.status.code(), Some(SYSTEM));
    assert_eq!(fs::read(dir.join("there")).expect("file"), b"kept");
}

/// A file that another process has locked, as all do that change an image, is not replaced.
#[test]
fn an_image_in_use_is_not_replaced() {
    let scratch = workshop("outputs-in-use");
    let dir = scratch.path();
    let writers: [&[&str]; 4] = [
        &["build", "tree", "--force", "-o", "there"],
        &["mkfs", "--format", "ufs2", "--size", "8M", "--force", "there"],
        &["optimize", "disk.img", "--trace", "job.trace", "--force", "-o", "there"],
        &["age", "ufs.img", "--force", "--ops", "5", "-o", "there"],
    ];
    for args in writers {
        fs::write(dir.join("there"), "kept").expect("file");
        let file = fs::File::open(dir.join("there")).expect("open");
        file.lock().expect("lock");
        let output = run(dir, args);
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(SYSTEM), "{args:?}: {told}");
        assert!(told.starts_with("seekless: there: the image is in use"), "{args:?}: {told}");
        assert_eq!(fs::read(dir.join("there")).expect("file"), b"kept");
        file.unlock().expect("unlock");
        // One that is only read may be.
        file.lock_shared().expect("lock");
        said(dir, args);
    }
}

/// An error of a full disk names the file that did not fit.
#[test]
fn a_full_disk_is_told_with_the_file() {
    let scratch = workshop("outputs-full");
    let dir = scratch.path();
    // A file may have 1 MiB: the limit stands for a disk that is full.
    let limited = |args: &str| {
        let shell = format!("trap '' XFSZ; ulimit -f 1024; exec \"$0\" {args}");
        let program = env!("CARGO_BIN_EXE_seekless");
        let mut command = std::process::Command::new("bash");
        let command = command.args(["-c", &shell, program]).current_dir(dir);
        let output = command.env("TMPDIR", dir).output().expect("bash");
        assert_eq!(output.status.code(), Some(SYSTEM), "{args}: {}", errors(&output));
        errors(&output)
    };
    let told = limited("mkfs --format ufs2 --size 8M new.img");
    assert!(told.starts_with("seekless: new.img: "), "{told}");
    let told = limited("build tree --size 8M -o -");
    assert!(told.contains("temporary file in "), "{told}");
}
