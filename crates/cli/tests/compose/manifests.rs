//! Manifests of mtree: `build --manifest` beside bsdtar.

use crate::judges::{Scratch, check, command, failure, manifest, ready, run, same, seekless, text};
use std::fs;
use std::process::{Command, Output};

/// A tree with all types of files, in a directory `tree`.
fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    let script = r#"
        mkdir -p "$0/d/sub" "$0/etc"; cd "$0"
        printf hello > d/file; ln d/file d/hard; ln -s 'target with space' 'd/a link'
        printf x > "d/na\\me #1=
"; printf z > "$(printf 'd/\303\244\377')"; mkfifo d/fifo
        printf 'user:x:1000:1000::/:\n' > etc/passwd; printf 'staff:x:50:\n' > etc/group
        truncate -s 1M d/sparse; printf end >> d/sparse; mknod d/dev c 4 65; mknod d/block b 259 3
        chown 12:34 d/sub d/file; chown -h 5:6 'd/a link'; chmod 1777 d/sub; chmod 4751 d/file; touch -d @1234567890.000000005 d/file
        touch -h -d @77 'd/a link'; touch -d @1700000000.5 d etc .; setfattr -n user.note -v text etc/group
    "#;
    run("sh", &["-e", "-c", script, &tree]);
    tree
}

/// Runs seekless in a directory: paths in a manifest are relative to it.
fn within(dir: &str, args: &[&str]) -> Output {
    command(args).current_dir(dir).output().expect("seekless")
}

/// The listing without extended attributes and the link counts, which bsdtar's manifests lack.
fn plain(listing: &str) -> String {
    let is_kept = |word: &&str| {
        !word.starts_with("xattr.") && !word.starts_with("nlink=") && !word.starts_with("hardlink=")
    };
    let line = |line: &str| line.split(' ').filter(is_kept).collect::<Vec<_>>().join(" ");
    listing.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_whole_tree_is_that_of_bsdtar() {
    if !ready("bsdtar") {
        return;
    }
    let scratch = Scratch::new("mtree-whole");
    let tree = tree(&scratch);
    let (list, image, archive) =
        (scratch.join("list"), scratch.join("image"), scratch.join("archive"));
    for options in [
        "mtree:device",
        "mtree:sha256,mtree:sha512",
        "mtree:use-set,mtree:indent,mtree:sha256",
        "mtree:!uname,mtree:!gname,mtree:sha384",
    ] {
        let args = ["--format=mtree", "--options", options, "-C", &tree, "-cf", &list, "."];
        run("bsdtar", &args);
        let built = within(&tree, &["build", "--manifest", &list, "-o", &image, "--force", "-q"]);
        text(&built);
        check(&image);
        let made = Command::new("bsdtar")
            .args(["--format=pax", "-cf", &archive, &format!("@{list}")])
            .current_dir(&tree)
            .output()
            .expect("bsdtar");
        assert!(made.status.success(), "{made:?}");
        same(options, &plain(&manifest(&archive, &[])), &plain(&manifest(&image, &[])));
    }
    // With inodes, names of one file are one file again.
    run("bsdtar", &["--format=mtree", "--options", "mtree:all", "-C", &tree, "-cf", &list, "."]);
    let built = within(&tree, &["build", "--manifest", &list, "-o", &image, "--force"]);
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    text(&built);
    assert!(
        said.contains("keywords without effect: cksum, md5digest, rmd160digest, sha1digest"),
        "{said}"
    );
    assert!(manifest(&image, &[]).contains("./d/hard type=file mode=4751 uid=12 gid=34 nlink=2"));
}

#[test]
fn our_own_manifest_restores_what_a_copy_lost() {
    let scratch = Scratch::new("mtree-own");
    let tree = tree(&scratch);
    let (list, image, copy) = (scratch.join("list"), scratch.join("image"), scratch.join("copy"));
    let wanted = manifest(&tree, &[]);
    fs::write(&list, &wanted).expect("write");
    // The copy has contents and nothing else, and a file more.
    let script = r#"
        mkdir "$1" "$1/d" "$1/etc"; cd "$0"; umask 077
        find . -type f | while IFS= read -r file; do cat "$file" > "$1/$file" || true; done
        cat "d/na\\me #1=
" > "$1/d/na\\me #1=
"; printf more > "$1/more"; chown 1:1 "$1/d"
    "#;
    run("sh", &["-e", "-c", script, &tree, &copy]);
    let build = ["build", &copy, "-o", &image, "-q", "--force", "--manifest", &list];
    text(&seekless(&build));
    check(&image);
    let found = manifest(&image, &[]);
    assert!(found.contains("./more type=file"));
    text(&seekless(&[&build[..], &["--only-listed"]].concat()));
    check(&image);
    same("the copy", &wanted, &manifest(&image, &[]));
    // The other way: the tree alone.
    text(&within(&tree, &["build", "--manifest", &list, "-o", &image, "-q", "--force"]));
    same("whole", &wanted, &manifest(&image, &[]));
}

#[test]
fn keywords_say_what_happens() {
    let scratch = Scratch::new("mtree-keywords");
    let tree = tree(&scratch);
    let (list, image) = (scratch.join("list"), scratch.join("image"));
    fs::write(scratch.join("outside"), "from outside").expect("write");
    let contents = scratch.join("outside");
    let lines = format!(
        "#mtree\n/set uname=user gname=staff mode=0640\n. type=dir mode=0700 uid=0 gid=0 time=9.7\n\
         /unset mode\n    new type=file contents={contents} time=8.000000001\n    gone type=file optional\n\
         etc type=dir\n    passwd nochange\n    group flags=nodump,schg mode=0600\n    ..\n\
         ./d/made/deep type=dir uid=3\n./d/null type=char device=0x103\n./d/file link type=file \n"
    )
    .replace("./d/file link type=file \n", "./d/file uid=1 hardlink=./d/file\n");
    fs::write(&list, lines).expect("write");
    text(&seekless(&["build", &tree, "-o", &image, "-q", "--manifest", &list]));
    check(&image);
    let listed = manifest(&image, &[]);
    let has = |wanted: &str| assert!(listed.contains(wanted), "{wanted}\n{listed}");
    has(". type=dir mode=0700 uid=0 gid=0 time=9.000000007\n");
    has("./new type=file mode=0644 uid=1000 gid=50 nlink=1 size=12 time=8.000000001 ");
    has("./etc/passwd type=file mode=0644 uid=0 gid=0 ");
    has("./etc/group type=file mode=0600 uid=1000 gid=50 ");
    has("./d/made type=dir mode=0755 uid=0 gid=0 ");
    has("./d/made/deep type=dir mode=0755 uid=3 gid=50 ");
    has("./d/null type=char mode=0644 uid=1000 gid=50 nlink=1 device=linux,1,3 ");
    has("./d/file type=file mode=4751 uid=1 ");
    assert!(!listed.contains("./gone"));
    let flags = run("debugfs", &["-R", "stat /etc/group", &image]);
    assert!(flags.contains("Flags: 0x80050") || flags.contains("Flags: 0x50"), "{flags}");
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    let scratch = Scratch::new("mtree-wrong");
    let tree = tree(&scratch);
    let (list, image) = (scratch.join("list"), scratch.join("image"));
    let zeros = "0".repeat(64);
    for (lines, wanted) in [
        ("./none type=file\n".to_string(), "list, line 1: none: is missing"),
        ("\n./none nochange\n".to_string(), "line 2: none: is missing"),
        ("./d type=file\n".to_string(), "line 1: d: is a directory, not a file"),
        ("./d/file size=6\n".to_string(), "line 1: d/file: has 5 bytes, not 6"),
        (
            format!("./d/file sha256={zeros}\n"),
            "line 1: d/file: its contents do not have this sha256digest",
        ),
        ("./l type=link\n".to_string(), "line 1: l: a symlink needs link="),
        ("./c type=char\n".to_string(), "line 1: c: a device needs device="),
        ("./d uname=nobody\n".to_string(), "line 1: d: user 'nobody' is not in the tree's"),
        (
            "./x type=file contents=/none/x\n".to_string(),
            "line 1: x: its contents, /none/x, are missing",
        ),
        ("./x type=file contents=/\n".to_string(), "line 1: x: / is not a regular file"),
        ("./d/file mode=u+x\n".to_string(), "line 1: mode=u+x: not a mode in octal"),
    ] {
        fs::write(&list, &lines).expect("write");
        let build = ["build", &tree, "-o", &image, "--manifest", &list];
        let (code, message) = failure(&seekless(&build));
        assert!(code == 3 && message.contains(wanted), "{lines}: {code} {message}");
    }
    fs::write(&list, "./none type=file\n").expect("write");
    let (code, message) = failure(&within(&tree, &["build", "-o", &image, "--manifest", &list]));
    assert!(code == 3 && message.contains("its contents, none, are missing"), "{message}");
    // Without a source there are no files that these could select or change.
    fs::write(&list, "./d type=dir\n").expect("write");
    for options in [
        &["--owner", "1:1"][..],
        &["--root-mode", "700"],
        &["--root-owner", "1:1"],
        &["--exclude", "x"],
        &["--uid-map", "0:1:1"],
        &["--xattr-policy", "none"],
        &["--one-file-system"],
        &["--tag", "x"],
        &["--platform", "linux/arm64"],
    ] {
        let build = ["build", "-o", &image, "--manifest", &list];
        let (code, message) = failure(&within(&tree, &[&build[..], options].concat()));
        assert!(code == 2 && message.contains("need a source"), "{options:?}: {message}");
    }
    for (args, wanted) in [
        (&["build", &tree, "-o", &image, "--only-listed"][..], "--manifest"),
        (&["build", "-o", &image], "<SOURCE>"),
    ] {
        let refused = seekless(args);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && message.contains(wanted), "{message}");
    }
    assert!(!fs::exists(&image).expect("exists"));
}
