//! Files and attributes that are selected: --include beside rsync, --xattr-policy beside GNU tar, and
//! owners mapped by /etc/subuid.

use crate::judges::{Scratch, can_mount, manifest, ready, run, same, seekless, text, timeless};
use std::fs;
use std::process::Command;

#[test]
fn included_files_are_those_of_rsync() {
    if !ready("rsync") {
        return;
    }
    let scratch = Scratch::new("include");
    let (tree, copy) = (scratch.join("tree"), scratch.join("copy"));
    for path in [
        "usr/lib/a.so",
        "usr/lib/a.txt",
        "usr/lib/deep/er/b.so",
        "usr/share/doc/p/copyright",
        "usr/share/doc/p/README",
        "usr/share/doc/q/README",
        "etc/x.so",
        "etc/conf",
        "var/empty/x",
    ] {
        let path = format!("{tree}/{path}");
        fs::create_dir_all(path.rsplit_once('/').expect("a slash").0).expect("mkdir");
        fs::write(&path, &path).expect("write");
    }
    let image = scratch.join("image");
    for (includes, excludes) in [
        (&["*.so"][..], &["*"][..]),
        (&["copyright"], &["/usr/share/doc/**"]),
        (&["/usr/lib/deep/"], &["/usr/**"]),
        (&["copyright", "a.*"], &["/usr/**"]),
        (&["/etc/conf"], &["*"]),
    ] {
        let _ = fs::remove_dir_all(&copy);
        let mut args: Vec<String> = ["-a", "--prune-empty-dirs"].map(str::to_string).to_vec();
        args.extend(["--include=*/".to_string()]);
        // A directory that is included takes along all below it.
        args.extend(
            includes
                .iter()
                .map(|it| format!("--include={it}{}", if it.ends_with('/') { "**" } else { "" })),
        );
        args.extend(excludes.iter().map(|it| format!("--exclude={it}")));
        args.extend([format!("{tree}/"), copy.clone()]);
        run("rsync", &args);
        let mut args = vec!["build", &tree, "-o", &image, "--force", "-q"];
        includes.iter().for_each(|it| args.extend(["--include", it]));
        excludes.iter().for_each(|it| args.extend(["--exclude", it]));
        text(&seekless(&args));
        let what = format!("{includes:?} {excludes:?}");
        let wanted = timeless(&manifest(&copy, &[]));
        same(&what, &wanted, &timeless(&manifest(&image, &[])));
        // An archive gives the same.
        let archive = scratch.join("archive");
        run("tar", &["-C", &tree, "-cf", &archive, "."]);
        args[1] = &archive;
        text(&seekless(&args));
        same(&what, &wanted, &timeless(&manifest(&image, &[])));
    }
    // Alone it would have no meaning.
    let refused = seekless(&["build", &tree, "-o", &image, "--force", "--include", "x"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--exclude"));
}

#[test]
fn attributes_are_kept_as_tar_keeps_them() {
    let scratch = Scratch::new("xattr-policy");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), "x").expect("write");
    let script = r#"cd "$0"; setfattr -n user.a -v 1 file; setfattr -n user.b.c -v 2 file
        setfattr -n trusted.t -v 3 file; setfattr -n user.d -v 4 .
        setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= file"#;
    run("sh", &["-e", "-c", script, &tree]);
    let (image, archive) = (scratch.join("image"), scratch.join("archive"));
    for (policy, tar) in [
        ("user", &["--xattrs-include=user.*"][..]),
        ("user.a,security", &["--xattrs-include=user.a", "--xattrs-include=security.*"]),
        ("^user", &["--xattrs-include=*", "--xattrs-exclude=user.*"]),
        ("all", &["--xattrs-include=*"]),
        ("none", &["--no-xattrs"]),
    ] {
        let args = ["--xattrs", "--format=pax", "-C", &tree, "-cf", &archive, "."];
        run("tar", &[tar, &args[if policy == "none" { 1 } else { 0 }..]].concat());
        let built = ["build", &tree, "-o", &image, "--force", "-q", "--xattr-policy", policy];
        text(&seekless(&built));
        let wanted = manifest(&archive, &[]);
        same(policy, &wanted, &manifest(&image, &[]));
        assert_eq!(wanted.contains("xattr."), policy != "none", "{wanted}");
    }
    let refused = seekless(&["build", &tree, "-o", &image, "--force", "--xattr-policy", "users"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("'users' is not user, trusted"));
}

#[test]
fn owners_are_those_that_a_rootless_container_shows() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("map-user");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    let script = r#"
        mkdir "$0/etc"; echo ann:x:1000:100::/: > "$0/etc/passwd"
        echo ann:100000:65536 > "$0/etc/subuid"; echo ann:200000:65536 > "$0/etc/subgid"
        touch "$1/own" "$1/other"; chown 1000:100 "$1/own" "$1"; chown 100032:200041 "$1/other"
        for name in passwd subuid subgid; do
            [ -e /etc/$name ] || continue
            mount --bind "$0/etc/$name" /etc/$name
        done
        "$2" build "$1" -o "$3" --map-user ann -q
    "#;
    if !fs::exists("/etc/subuid").expect("exists") || !fs::exists("/etc/subgid").expect("exists") {
        return crate::judges::skip("/etc/subuid is missing (package login)");
    }
    let program = env!("CARGO_BIN_EXE_seekless");
    let dir = scratch.path().to_str().expect("path");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-e", "-c", script, dir, &tree, program, &image])
        .output()
        .expect("unshare");
    text(&output);
    let listed = manifest(&image, &[]);
    for wanted in [
        ". type=dir mode=0755 uid=0 gid=0 ",
        "./own type=file mode=0644 uid=0 gid=0 ",
        "./other type=file mode=0644 uid=33 gid=42 ",
    ] {
        assert!(listed.contains(wanted), "{listed}");
    }
    let refused = seekless(&["build", &tree, "-o", &image, "--map-user", "none", "--force"]);
    assert_eq!(refused.status.code(), Some(2));
}
