//! Options that users of mke2fs, newfs and tar expect, and refusals that name the option.

use crate::judges::{Scratch, check, command, failure, header, manifest, run, seekless, text};
use std::fs;
use std::process::{Command, Stdio};

fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), vec![7; 100_000]).expect("write");
    tree
}

/// A field of `dumpe2fs -h`.
fn field(image: &str, name: &str) -> String {
    let fields = header(image);
    let found = fields.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{name}: {fields:?}")).1.clone()
}

#[test]
fn images_go_to_standard_output() {
    let scratch = Scratch::new("stream");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    for options in [
        &["--size", "16M"][..],
        &["--format", "fat32", "--size", "40M", "--drop", "owners,modes"],
        &["--format", "ufs2"],
        &["--disk"],
        &["--verity"],
    ] {
        text(&seekless(&[&["build", &tree, "-o", &image, "--force"], options].concat()));
        let to_pipe = [&["build", &tree, "-o", "-"], options].concat();
        let streamed = seekless(&to_pipe);
        assert!(streamed.status.success(), "{streamed:?}");
        let wanted = fs::read(&image).expect("read");
        assert!(streamed.stdout == wanted, "{options:?}: {} bytes", streamed.stdout.len());
        let said = String::from_utf8_lossy(&streamed.stderr);
        assert!(said.contains("standard output: "), "{options:?}: {said}");
        let quiet = seekless(&[&to_pipe[..], &["--quiet"]].concat());
        assert!(quiet.stdout == wanted && quiet.stderr.is_empty(), "{options:?}");
        let json = seekless(&[&to_pipe[..], &["--json"]].concat());
        let said: serde_json::Value = serde_json::from_slice(&json.stderr).expect("JSON");
        assert!(json.stdout == wanted && said["path"] == "-", "{said}");
        assert_eq!(said["bytes"], wanted.len() as u64);
    }
    let (code, message) =
        failure(&seekless(&["build", &tree, "-o", "-", "--output-format", "qcow2"]));
    assert!(code == 2 && message.contains("raw images"), "{message}");
    // An archive from standard input to an image on standard output.
    let archive = scratch.join("archive");
    run("tar", &["-C", &tree, "-cf", &archive, "."]);
    let piped = command(&["build", "-", "-o", "-", "-q"])
        .stdin(fs::File::open(&archive).expect("open"))
        .output()
        .expect("seekless");
    text(&seekless(&["build", &archive, "-o", &image, "--force"]));
    assert!(piped.stdout == fs::read(&image).expect("read"), "{:?}", piped.status);
    // A closed pipe leaves the image incomplete, which is an error.
    let mut cut = command(&["build", &tree, "-o", "-", "-q", "--size", "64M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("seekless");
    drop(cut.stdout.take());
    let (code, message) = failure(&cut.wait_with_output().expect("wait"));
    assert!(code == 6 && message.contains("standard output"), "{message}");
}

#[test]
fn images_are_not_written_to_a_terminal() {
    let scratch = Scratch::new("terminal");
    let tree = tree(&scratch);
    let line = format!("{} build {tree} -o -", env!("CARGO_BIN_EXE_seekless"));
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output is a terminal") && said.lines().count() == 1, "{said}");
}

#[test]
fn help_and_tips() {
    for command in ["mkfs", "build"] {
        let help = text(&seekless(&[command, "-h"]));
        assert!(help.contains("Usage: seekless") && help.contains("--format"), "{help}");
    }
    for (args, tip) in [
        (&["build", "tree", "--chown"][..], None),
        (&["build", "tree", "--group-by"], None),
        (&["build", "tree", "--uid", "0"], None),
        (&["build", "tree", "--group", "0"], None),
        (&["mkfs", "--force-it"], Some("--force")),
        (&["build", "tree", "--lable"], Some("--label")),
        (&["build", "tree", "--formt=ext4"], Some("--format")),
        (&["biuld"], Some("build")),
        (&["optimum"], None),
    ] {
        let output = seekless(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        match tip {
            Some(tip) => assert!(said.contains(&format!("'{tip}'")), "{args:?}: {said}"),
            None => {
                assert!(!said.contains("tip:") && !said.contains("--owner"), "{args:?}: {said}")
            }
        }
    }
}

#[test]
fn numbers_have_no_sign() {
    let scratch = Scratch::new("numbers");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    for (option, value) in [
        ("-N", "+100"),
        ("-N", "-1"),
        ("-N", ""),
        ("-i", "+4096"),
        ("-b", "+4K"),
        ("--owner", "+1:+2"),
        ("--uid-map", "+1:2:3"),
        ("-m", "+5"),
        ("--free", "+5"),
    ] {
        let option = format!("{option}={value}").replacen("-N=", "-N", 1).replacen("-i=", "-i", 1);
        let option = option.replacen("-b=", "-b", 1).replacen("-m=", "-m", 1);
        let output = seekless(&["build", &tree, "-o", &image, &option]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option}: {said}");
    }
    let made = seekless(&["mkfs", "--format", "ufs2", "--size", "16M", "--maxbpg=+5", &image]);
    assert_eq!(made.status.code(), Some(2));
}

#[test]
fn uuids_as_for_mke2fs() {
    let scratch = Scratch::new("uuids");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    let build = |uuid: &str| {
        text(&seekless(&["build", &tree, "-o", &image, "--force", "-U", uuid]));
        check(&image);
        field(&image, "Filesystem UUID")
    };
    assert_eq!(build("clear"), "<none>");
    let given = "63bc8b11-4843-81ae-a346-8b6923d02608";
    assert_eq!(build(given), given);
    let (first, second) = (build("time"), build("time"));
    assert!(first != second && first.as_bytes()[14] == b'1', "{first} {second}");
    assert_eq!(build("random").as_bytes()[14], b'4');
    let (code, _) = failure_of(&["build", &tree, "-o", &image, "--force", "-U", "never"]);
    assert_eq!(code, 2);
}

/// Exit code and standard error.
fn failure_of(args: &[&str]) -> (i32, String) {
    let output = seekless(args);
    assert!(!output.status.success(), "{args:?}");
    (output.status.code().expect("code"), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn inodes_journal_and_extended_options() {
    let scratch = Scratch::new("mke2fs-options");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(format!("{tree}/file"), "user.x", b"1", flags).expect("setxattr");
    let build = |options: &[&str]| {
        let args = [&["build", &tree, "-o", &image, "--force"], options].concat();
        text(&seekless(&args));
        check(&image);
    };
    let number = |name: &str| field(&image, name).parse::<u64>().expect("number");
    for (ratio, wanted) in [("4096", 16384), ("8K", 8192)] {
        build(&["--size", "64M", "-i", ratio]);
        assert_eq!(number("Inode count"), wanted);
    }
    // Applies also to an image of the smallest size for its contents.
    build(&["-i", "2048"]);
    let wanted = number("Block count") * 4096 / 2048;
    assert!(number("Inode count") >= wanted && number("Inode count") < wanted + 64);
    for (size, wanted) in [("size=8", "8M"), ("size=8M", "8M"), ("size=4096K", "4096k")] {
        build(&["--size", "128M", "-J", size]);
        let found = field(&image, "Total journal size");
        assert_eq!(found, wanted, "{size}");
    }
    let seed = "12345678-9abc-def0-1234-56789abcdef0";
    let list = format!("stride=16,stripe_width=64,hash_seed={seed},nodiscard,lazy_itable_init=0");
    build(&["-E", &list]);
    assert_eq!((number("RAID stride"), number("RAID stripe width")), (16, 64));
    assert_eq!(field(&image, "Directory Hash Seed"), seed);
    assert!(manifest(&image, &[]).contains("xattr.user.x"));
    build(&["-E", "no_copy_xattrs"]);
    assert!(!manifest(&image, &[]).contains("xattr.user.x"));
    build(&["-E", "root_owner=12:70000", "--size", "16M"]);
    let root = run("debugfs", &["-R", "stat /", &image]);
    assert!(root.contains("User:    12   Group: 70000"), "{root}");
    // Descriptors of 32768 groups are in 512 blocks, of which the first is in use.
    let limit = format!("resize={}", 32768 * 32768u64);
    // A limit that needs no more descriptors leaves the default room.
    for (options, wanted) in [("resize=8388608", 3), (limit.as_str(), 511), ("resize=10000", 1)] {
        build(&["-E", options, "--size", "16M"]);
        assert_eq!(number("Reserved GDT blocks"), wanted, "{options}");
    }
    let fails = |options: &[&str]| {
        failure_of(&[&["build", &tree, "-o", &image, "--force"], options].concat())
    };
    let (code, message) = fails(&["-O", "^resize_inode", "-E", "resize=8388608"]);
    assert!(code == 2 && message.contains("resize_inode"), "{message}");
    let (code, message) = fails(&["--like", &image, "-E", "resize=8388608"]);
    assert!(code == 2 && message.contains("older image"), "{message}");
    // Of so many blocks no room for more can be listed. e2fsck would take minutes. No file of ext4
    // is longer.
    const SIZE: &str = "17592186040320";
    let args = ["build", &tree, "-o", &image, "--force", "--size", SIZE, "-N", "300000"];
    text(&seekless(&args));
    assert!(!field(&image, "Filesystem features").contains("resize_inode"));
    assert_eq!(number("Block count"), u64::from(u32::MAX));
    for (option, list, code) in [
        ("-E", "resize=1000", 2),
        ("-E", "resize=1G", 2),
        ("-E", "root_owner=1", 2),
        ("-E", "offset=1024", 4),
        ("-E", "packed_meta_blocks", 4),
        ("-E", "quotatype=usrquota", 4),
        ("-E", "stride=x", 2),
        ("-E", "nonsense", 2),
        ("-J", "device=/dev/null", 4),
        ("-J", "fast_commit_size=1M", 4),
        ("-J", "nonsense=1", 2),
    ] {
        let (found, message) = failure_of(&["build", &tree, "-o", &image, "--force", option, list]);
        let name = list.split('=').next().expect("name");
        assert!(found == code && message.contains(name), "{option} {list}: {found}: {message}");
    }
    for format in ["ufs2", "fat32"] {
        for (option, list) in [("-E", "stride=1"), ("-J", "size=8M"), ("-U", "clear")] {
            let args = ["build", &tree, "-o", &image, "--force", "--format", format, option, list];
            assert_eq!(failure_of(&args).0, 2, "{format} {option}");
        }
    }
}

/// All names of features in e2fsprogs 1.47 (`lib/e2p/feature.c`).
const FEATURES: &[&str] = &[
    "dir_prealloc",
    "imagic_inodes",
    "has_journal",
    "ext_attr",
    "resize_inode",
    "dir_index",
    "lazy_bg",
    "snapshot_bitmap",
    "sparse_super2",
    "fast_commit",
    "stable_inodes",
    "orphan_file",
    "sparse_super",
    "large_file",
    "btree_dir",
    "huge_file",
    "uninit_bg",
    "uninit_groups",
    "gdt_csum",
    "dir_nlink",
    "extra_isize",
    "snapshot",
    "quota",
    "bigalloc",
    "metadata_csum",
    "replica",
    "read-only",
    "project",
    "shared_blocks",
    "verity",
    "orphan_present",
    "compression",
    "filetype",
    "needs_recovery",
    "journal_dev",
    "extent",
    "extents",
    "meta_bg",
    "64bit",
    "mmp",
    "flex_bg",
    "ea_inode",
    "dirdata",
    "metadata_csum_seed",
    "large_dir",
    "inline_data",
    "encrypt",
    "casefold",
];

#[test]
fn features_that_are_asked_for_are_there_or_refused() {
    let scratch = Scratch::new("asked-features");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    let (mut built, mut refused) = (0, 0);
    for format in ["ext2", "ext3", "ext4"] {
        for feature in FEATURES {
            let shown = match *feature {
                "extents" => "extent",
                "gdt_csum" | "uninit_groups" => "uninit_bg",
                name => name,
            };
            let args = ["build", &tree, "-o", &image, "--force", "--size", "64M"];
            let output = seekless(&[&args[..], &["--format", format, "-O", feature]].concat());
            if output.status.success() {
                let said = String::from_utf8_lossy(
                    &run("debugfs", &["-R", "features", &image]).into_bytes(),
                )
                .into_owned();
                let has = said.split_whitespace().any(|name| name == shown);
                assert!(has, "{format} -O {feature}: {said}");
                run("e2fsck", &["-fn", &image]);
                built += 1;
            } else {
                let (code, message) = failure(&output);
                let is_named = message.contains(feature) || message.contains(shown);
                assert!(matches!(code, 2 | 4) && is_named, "{format} -O {feature}: {message}");
                refused += 1;
            }
        }
    }
    assert!(built > 50 && refused > 50, "{built} built, {refused} refused");
}
