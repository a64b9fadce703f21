//! Options that users of mke2fs, newfs and tar expect, and refusals that name the option.

use crate::judges::{
    Scratch, check, command, failure, header, manifest, ready, run, seekless, text,
};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
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
    build(&["-E", "test_fs"]);
    let is_test = |image: &str| field(image, "Filesystem flags").contains("test_filesystem");
    assert!(is_test(&image));
    let next = scratch.join("next");
    text(&seekless(&["build", &tree, "-o", &next, "--like", &image]));
    assert!(is_test(&next));
    build(&[]);
    assert!(!is_test(&image));
    for (list, wanted) in [
        ("orphan_file_size=64", 64 * 4096),
        ("orphan_file_size=100K", 102_400),
        ("orphan_file_size=1", 4096),
    ] {
        build(&["-E", list, "--size", "64M"]);
        let ino = field(&image, "Orphan file inode");
        let shown = run("debugfs", &["-R", &format!("stat <{ino}>"), &image]);
        assert!(shown.contains(&format!("Size: {wanted}")), "{list}: {shown}");
    }
    build(&["-E", "root_owner=12:70000", "--size", "16M"]);
    let root = run("debugfs", &["-R", "stat /", &image]);
    assert!(root.contains("User:    12   Group: 70000"), "{root}");
    // As mke2fs 1.47.2 has it: the mode in octal digits, with those of set-id and sticky bits.
    for (mode, wanted) in [("700", "0700"), ("01777", "01777"), ("0", "0000")] {
        build(&["-E", &format!("root_perms={mode}"), "--size", "16M"]);
        let root = run("debugfs", &["-R", "stat /", &image]);
        assert!(root.contains(&format!("Mode:  {wanted} ")), "{mode}: {root}");
    }
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
        ("-E", "root_perms", 2),
        ("-E", "root_perms=", 2),
        ("-E", "root_perms=8", 2),
        ("-E", "root_perms=+7", 2),
        ("-E", "root_perms=17777", 2),
        ("-E", "offset=1000", 2),
        ("-E", "offset=18446744073709551104", 2),
        ("-E", "num_backup_sb=3", 2),
        ("-E", "packed_meta_blocks=2", 2),
        ("-E", "encoding=latin1", 2),
        ("-E", "orphan_file_size=0", 2),
        ("-E", "orphan_file_size=513", 2),
        ("-E", "desc_size=64", 4),
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

/// The lines of `dumpe2fs` for groups, of which each says where something is.
fn groups(image: &str, what: &str) -> Vec<String> {
    let listed = run("dumpe2fs", &[image]);
    let lines = listed.lines().map(str::trim).filter(|line| line.starts_with(what));
    lines.map(|line| line.split([',', '(']).next().expect("place").trim().to_string()).collect()
}

#[test]
fn metadata_at_the_beginning() {
    let scratch = Scratch::new("packed");
    let (tree, image, theirs) = (tree(&scratch), scratch.join("image"), scratch.join("theirs"));
    for options in [
        &["-b", "4096"][..],
        &["-b", "1024", "-N", "40000"],
        &["-b", "1024", "-O", "^resize_inode"],
        &["-b", "1024", "-O", "sparse_super2"],
    ] {
        let size = "600M";
        let given = [options, &["-E", "packed_meta_blocks"]].concat();
        text(&seekless(
            &[&["build", &tree, "-o", &image, "--force", "--size", size], &given[..]].concat(),
        ));
        check(&image);
        let end = |line: &String| -> u64 {
            let place = line.rsplit([' ', '-']).next().expect("place");
            place.parse().unwrap_or_else(|_| panic!("{line}"))
        };
        let last = groups(&image, "Inode table at").iter().map(end).max().expect("tables");
        let bitmaps = groups(&image, "Block bitmap at").iter().map(end).max().expect("bitmaps");
        let journal = run("debugfs", &["-R", "blocks <8>", &image]);
        let journal = journal.split_whitespace().map(|block| block.parse::<u64>().expect("block"));
        let (end, whole) = (journal.max().expect("journal"), number_of(&image, "Block count"));
        assert!(bitmaps < last && last < whole / 4, "{options:?}: {bitmaps} {last} of {whole}");
        assert!(end < whole / 4, "{options:?}: the journal ends at {end} of {whole}");
        // mke2fs packs the groups of each flexible group: one, if that has all.
        if options == ["-b", "4096"] {
            let _ = fs::remove_file(&theirs);
            let inodes = field(&image, "Inode count");
            let args = ["-q", "-t", "ext4", "-b", "4096", "-N", &inodes];
            run("mke2fs", &[&args[..], &["-E", "packed_meta_blocks=1", &theirs, size]].concat());
            for what in ["Block bitmap at", "Inode bitmap at", "Inode table at"] {
                assert_eq!(groups(&image, what), groups(&theirs, what), "{what}");
            }
        }
    }
    let with = |options: &[&str]| {
        let args = ["build", &tree, "-o", &image, "--force", "-E", "packed_meta_blocks"];
        failure_of(&[&args[..], options].concat())
    };
    let older = scratch.join("older");
    text(&seekless(&["build", &tree, "-o", &older]));
    for (options, named) in [
        (&["-O", "^flex_bg"][..], "flex_bg"),
        (&["--like", &older], "--like"),
        (&["--share"], "--share"),
    ] {
        let (code, message) = with(options);
        assert!(code == 2 && message.contains(named), "{options:?}: {message}");
    }
}

/// A number of `dumpe2fs -h`.
fn number_of(image: &str, name: &str) -> u64 {
    field(image, name).parse().expect("number")
}

#[test]
fn copies_of_the_superblock() {
    let scratch = Scratch::new("copies");
    let (tree, image, theirs) = (tree(&scratch), scratch.join("image"), scratch.join("theirs"));
    // Of 1, 2, 3 and 11 groups.
    for size in ["100M", "200M", "300M", "1400M"] {
        for copies in ["0", "1", "2"] {
            let copies = format!("num_backup_sb={copies}");
            let given = ["-b", "4096", "-O", "sparse_super2", "-E", &copies];
            text(&seekless(
                &[&["build", &tree, "-o", &image, "--force", "--size", size], &given[..]].concat(),
            ));
            check(&image);
            let _ = fs::remove_file(&theirs);
            run("mke2fs", &[&["-q", "-t", "ext4"], &given[..], &[&theirs, size]].concat());
            let copies_of = |image: &str| {
                (groups(image, "Backup superblock at"), groups(image, "Backup block groups"))
            };
            assert_eq!(copies_of(&image), copies_of(&theirs), "{size} {copies}");
            // An image on the base of this one has as many.
            let next = scratch.join("next");
            text(&seekless(&[
                "build",
                &tree,
                "-o",
                &next,
                "--force",
                "--like",
                &image,
                "--like-strict",
            ]));
            check(&next);
            assert_eq!(copies_of(&next), copies_of(&image), "{size} {copies}: --like");
            // A larger one has the second copy in its own last group.
            text(&seekless(&[
                "build", &tree, "-o", &next, "--force", "--like", &image, "--size", "2000M",
            ]));
            check(&next);
        }
    }
    let args = ["build", &tree, "-o", &image, "--force", "-E", "num_backup_sb=1"];
    let (code, message) = failure_of(&args);
    assert!(code == 2 && message.contains("sparse_super2"), "{message}");
}

#[test]
fn directories_that_ignore_case() {
    let scratch = Scratch::new("encoding");
    let (tree, old, image) = (scratch.join("tree"), scratch.join("old"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/folds")).expect("mkdir");
    for n in 0..1000 {
        fs::write(format!("{tree}/folds/Größe-{n}"), n.to_string()).expect("write");
    }
    let encoding = |image: &str| field(image, "Character encoding");
    let build = |from: &str, options: &[&str]| {
        text(&seekless(&[&["build", from, "-o", &image, "--force"], options].concat()));
        run("e2fsck", &["-fn", &image]);
    };
    for options in [&["-O", "casefold"][..], &["-E", "encoding=utf8"], &["-E", "encoding"]] {
        build(&tree, options);
        assert_eq!(encoding(&image), "utf8-12.1", "{options:?}");
        let strict = run("debugfs", &["-R", "show_super_stats -h", &image]);
        assert!(!strict.contains("strict"), "{strict}");
    }
    // The flag of a directory stays, with hashes of folded names.
    build(&tree, &["-b", "1024", "-O", "casefold", "--size", "16M"]);
    fs::rename(&image, &old).expect("rename");
    run("debugfs", &["-w", "-R", "set_inode_field /folds flags 0x40080000", &old]);
    let _ = Command::new("e2fsck").args(["-fyD", &old]).output();
    for options in [
        &["-b", "1024", "-O", "casefold"][..],
        &["-b", "1024", "-E", "encoding=utf8,encoding_flags=strict"],
    ] {
        build(&old, options);
        let shown = run("debugfs", &["-R", "stat /folds", &image]);
        assert!(shown.contains("Flags: 0x40081000"), "{shown}");
        let tree = run("debugfs", &["-R", "htree_dump /folds", &image]);
        assert!(tree.contains("Root node dump"), "{tree}");
        for n in (0..1000).step_by(37) {
            let found = text(&seekless(&["cat", &image, &format!("/folds/GRÖßE-{n}")]));
            assert_eq!(found, n.to_string());
        }
    }
    // Without the feature it goes, which is said.
    let plain = seekless(&["build", &old, "-o", &image, "--force"]);
    assert!(String::from_utf8_lossy(&plain.stderr).contains("casefold"), "{plain:?}");
    // Two spellings of one name, and bytes that are no text.
    for (options, name, named) in [
        (&["-O", "casefold"][..], "GRÖßE-7".as_bytes(), "one name"),
        (&["-E", "encoding=utf8,encoding_flags=strict"], &b"bad-\xFF"[..], "UTF-8"),
    ] {
        let path = Path::new(&tree).join("folds").join(OsStr::from_bytes(name));
        fs::write(&path, "").expect("write");
        text(&seekless(&[
            "build", &tree, "-o", &old, "--force", "-O", "casefold", "--size", "16M",
        ]));
        run("debugfs", &["-w", "-R", "set_inode_field /folds flags 0x40081000", &old]);
        let args = ["build", &old, "-o", &image, "--force"];
        let (_, message) = failure_of(&[&args[..], options].concat());
        assert!(message.contains("folds") && message.contains(named), "{message}");
        fs::remove_file(&path).expect("remove");
    }
    for (options, named) in [
        (&["-O", "^casefold", "-E", "encoding=utf8"][..], "excluded"),
        (&["-E", "encoding_flags=strict"], "casefold"),
    ] {
        let args = ["build", &tree, "-o", &image, "--force"];
        let (code, message) = failure_of(&[&args[..], options].concat());
        assert!(code == 2 && message.contains(named), "{message}");
    }
}

#[test]
fn a_file_system_at_an_offset() {
    let scratch = Scratch::new("offset");
    let (tree, image, part) = (tree(&scratch), scratch.join("image"), scratch.join("part"));
    const MIB: usize = 1 << 20;
    let cut = |bytes: &[u8], from: usize| {
        fs::write(&part, &bytes[from..]).expect("write");
        check(&part);
    };
    // A new file has zeros in front.
    text(&seekless(&["build", &tree, "-o", &image, "-E", "offset=1M", "--size", "8M"]));
    let bytes = fs::read(&image).expect("read");
    assert_eq!(bytes.len(), 9 * MIB);
    assert!(bytes[..MIB].iter().all(|byte| *byte == 0));
    cut(&bytes, MIB);
    let listed = text(&seekless(&["ls", &image, "--offset", "1M"]));
    assert!(listed.contains("file"), "{listed}");
    // The bytes around it stay in a file that exists, holes among them, its odd end as well.
    for len in [300_000, 4 * MIB, 20 * MIB + 17] {
        let mut around: Vec<u8> = (0..len).map(|at| (at * 7 + at / 512) as u8 | 1).collect();
        around.chunks_mut(MIB).skip(2).step_by(5).for_each(|hole| hole.fill(0));
        fs::write(&image, &around).expect("write");
        let args = ["build", &tree, "-o", &image, "-E", "offset=2M", "--size", "8M"];
        let (code, message) = failure_of(&args);
        assert!(code == 6 && message.contains("exists"), "{code}: {message}");
        assert!(fs::read(&image).expect("read") == around);
        text(&seekless(&[&args[..], &["--force"]].concat()));
        let bytes = fs::read(&image).expect("read");
        assert_eq!(bytes.len(), len.max(10 * MIB));
        let front = len.min(2 * MIB);
        assert!(bytes[..front] == around[..front], "{len}: the bytes in front");
        if len > 10 * MIB {
            assert!(bytes[10 * MIB..] == around[10 * MIB..], "{len}: the bytes behind");
        }
        cut(&bytes[..10 * MIB], 2 * MIB);
    }
    let mut refusals = vec![(&["--disk"][..], 2), (&["--verity"], 2)];
    let qcow2 = scratch.join("image.qcow2");
    if ready("qemu-img") {
        text(&seekless(&["build", &tree, "-o", &qcow2, "-E", "offset=1M"]));
        refusals.push((&["--output-format", "qcow2"], 4));
    }
    for (options, wanted) in refusals {
        let args = ["build", &tree, "-o", &qcow2, "--force", "-E", "offset=1M"];
        let (code, message) = failure_of(&[&args[..], options].concat());
        assert!(code == wanted && message.contains("offset"), "{options:?}: {code}: {message}");
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

/// A kernel reads all of the orphan file when it mounts a volume for writing.
#[test]
fn the_orphan_file_lies_before_the_data() {
    if !ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("orphan-file");
    let (source, image) = (tree(&scratch), scratch.join("image"));
    text(&seekless(&["build", &source, "-o", &image, "--size", "64M"]));
    check(&image);
    let orphans = field(&image, "Orphan file inode");
    let blocks = |file: &str| -> Vec<u64> {
        let listed = run("debugfs", &["-R", &format!("blocks {file}"), &image]);
        listed.split_whitespace().map(|block| block.parse().expect("block")).collect()
    };
    let (own, root, journal) = (blocks(&format!("<{orphans}>")), blocks("/"), blocks("<8>"));
    assert!(own.len() >= 32 && !root.is_empty() && journal.len() >= 1024);
    assert_eq!(own[own.len() - 1] - own[0], own.len() as u64 - 1, "{own:?}");
    assert!(own[0] < root[0] && root[0] < journal[0], "{} {} {}", own[0], root[0], journal[0]);
}

/// The root directory of any source has the owner and the mode that are asked for, and no other file.
#[test]
fn the_root_has_the_owner_that_is_asked_for() {
    let scratch = Scratch::new("root-owner");
    let [tree, archive, image, made] =
        ["tree", "a.tar", "a.img", "made"].map(|name| scratch.join(name));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    fs::write(format!("{tree}/file"), "text").expect("write");
    run("tar", &["-C", &tree, "--owner=7", "--group=8", "-cf", &archive, "."]);
    let upper = scratch.join("upper");
    fs::create_dir(&upper).expect("mkdir");
    fs::write(format!("{upper}/above"), "text").expect("write");
    text(&seekless(&["build", &tree, "-o", &image, "--owner", "7:8"]));
    let asked = ["--root-owner", "12:70000", "--root-mode", "1750"];
    for (sources, format) in [
        (&[tree.as_str()][..], "ext4"),
        (&[&archive], "ext4"),
        (&[&image], "ufs2"),
        (&[&archive, &upper], "ufs1"),
        (&[&image, &upper], "ext2"),
    ] {
        let build = [&["build"][..], sources, &["-o", &made, "--force", "--format", format]];
        // The Sleuth Kit does not take volumes of 256 KiB for UFS.
        let build = [&build.concat()[..], &["--owner", "7:8", "--size", "16M"]].concat();
        text(&seekless(&build));
        let before = manifest(&made, &["lost+found"]);
        text(&seekless(&[&build[..], &asked].concat()));
        let after = manifest(&made, &["lost+found"]);
        let mut changed = before.lines().zip(after.lines()).filter(|(old, new)| old != new);
        let (old, new) = changed.next().expect("the root");
        assert!(old.starts_with(". ") || old.starts_with("/ "), "{sources:?}: {old}");
        for word in ["uid=12", "gid=70000", "mode=1750"] {
            assert!(new.contains(word) && !old.contains(word), "{sources:?}: {new}");
        }
        assert_eq!(changed.next(), None, "{sources:?}");
        if format.starts_with("ext") && ready("debugfs") {
            let root = run("debugfs", &["-R", "stat /", &made]);
            assert!(root.contains("User:    12   Group: 70000"), "{root}");
            assert!(root.contains("Mode:  01750"), "{root}");
            run("e2fsck", &["-fn", &made]);
        } else if ready("istat") {
            let root = run("istat", &[&made, "2"]);
            assert!(root.contains("uid / gid: 12 / 70000"), "{root}");
            assert!(root.contains("rwxr-x--"), "{root}");
        }
    }
    for mode in ["8", "10000", "-1", "rwx"] {
        let build = ["build", &tree, "-o", &made, "--force", "--root-mode", mode];
        assert_eq!(seekless(&build).status.code(), Some(2), "{mode}");
    }
}

/// Without `lost+found` an image is in order, also when it is built on one that has it.
#[test]
fn lost_and_found_is_left_out() {
    if !ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("no-lost-found");
    let [tree, image, with, again] =
        ["tree", "a.img", "with.img", "again.img"].map(|name| scratch.join(name));
    fs::create_dir(&tree).expect("mkdir");
    let build = |made: &str, options: &[&str]| {
        text(&seekless(&[&["build", &tree, "-o", made, "--force"], options].concat()));
        run("e2fsck", &["-fn", made]);
        run("debugfs", &["-R", "ls -p /", made]).contains("/lost+found/")
    };
    for files in [0, 3, 900] {
        for file in 0..files {
            fs::write(format!("{tree}/file-{file}"), "text").expect("write");
        }
        for format in ["ext2", "ext4"] {
            let left_out = ["--format", format, "--no-lost-found"];
            assert!(!build(&image, &left_out), "{format}");
            assert_eq!(manifest(&image, &[]).lines().count(), manifest(&tree, &[]).lines().count());
            assert!(build(&with, &["--format", format]), "{format}");
            assert!(!build(&again, &["--no-lost-found", "--like", &with]), "{format}");
            assert!(build(&again, &["--like", &image]), "{format}");
        }
    }
    fs::create_dir(format!("{tree}/lost+found")).expect("mkdir");
    assert!(build(&image, &["--no-lost-found"]), "that of the source");
    let other = ["build", &tree, "-o", &image, "--force", "--format", "ufs2", "--no-lost-found"];
    assert_eq!(failure(&seekless(&other)).0, 2);
}

/// e2fsck takes the times of 2310 to 2378 for times before 1970, as old kernels wrote them.
#[test]
fn times_that_checks_take_for_others_are_replaced() {
    let scratch = Scratch::new("times");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    let (first, end, last) = (10_737_418_240_i64, 12_884_901_888, 15_032_385_535);
    let cases = [
        (first - 1, first - 1),
        (first, first - 1),
        (first + 1000, first - 1),
        (end - 1000, end),
        (end - 1, end),
        (end, end),
        (last, last),
        (last + 1, last),
    ];
    for (time, _) in cases {
        run("touch", &["-d", &format!("@{time}"), &format!("{tree}/{time}")]);
    }
    let output = seekless(&["build", &tree, "-o", &image]);
    text(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("5 files have timestamps"), "{said}");
    run("e2fsck", &["-fn", &image]);
    let listed = manifest(&image, &[]);
    for (time, wanted) in cases {
        let line = listed.lines().find(|line| line.starts_with(&format!("./{time} ")));
        let line = line.unwrap_or_else(|| panic!("{time}: {listed}"));
        assert!(line.contains(&format!("time={wanted}.0")), "{time}: {line}");
    }
}
