//! Tables of devices: `build -D` beside genext2fs, `build --makedevs` beside what its help says.

use crate::judges::{
    Scratch, check, command, failure, manifest, ready, run, same, seekless, text, timeless,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    for dir in ["dev", "dir/sub", "etc"] {
        fs::create_dir_all(format!("{tree}/{dir}")).expect("mkdir");
    }
    for (name, contents) in [
        ("dir/file", "file"),
        ("dir/sub/deep", "deep"),
        ("etc/passwd", "root:x:0:0::/:\ndaemon:x:7:8::/:\nuser:x:1000:1000::/:\nuser:x:1:1::/:\n"),
        ("etc/group", "root:x:0:\nstaff:x:50:user\n"),
    ] {
        fs::write(format!("{tree}/{name}"), contents).expect("write");
    }
    for path in ["", "/dev", "/dir", "/dir/sub", "/etc"] {
        fs::set_permissions(format!("{tree}{path}"), fs::Permissions::from_mode(0o755))
            .expect("chmod");
    }
    tree
}

/// A table of genext2fs.
fn table(seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut text = String::from("# name type mode uid gid major minor start inc count\n\n");
    for line in 0..12 {
        let (mode, uid, gid) = (numbers.below(0o10000), numbers.below(65536), numbers.below(300));
        let (major, minor) = (numbers.below(250), numbers.below(100));
        let name = match numbers.below(3) {
            0 => format!("/dev/n{line}x"),
            1 => format!("/dir/sub/n{line}x"),
            _ => format!("n{line}x"),
        };
        let (start, step) = (numbers.below(4), 1 + numbers.below(3));
        let series = match numbers.below(3) {
            0 => format!("{start} {step} {}", start + 1 + numbers.below(9)),
            1 => "0 0 -".to_string(),
            _ => "- - -".to_string(),
        };
        let entry = match numbers.below(8) {
            0 => format!("/dir/file f {mode:o} {uid} {gid} - - - - -"),
            1 => format!("/dir d {mode:o} {uid} {gid} - - - - -"),
            2 => format!("{name} d {mode:o} {uid} {gid} - - - - -"),
            3 => format!("{name} f {mode:o} {uid} {gid} - - - - -"),
            4 => format!("{name}\tp {mode:o} {uid} {gid} - - {series}"),
            5 => format!("{name} c {mode:o} {uid} {gid} {major} {minor} {series}"),
            6 => format!("{name} b {mode:o} {uid} {gid} {major} {minor} {series}"),
            _ => format!("{name} b {mode:o} {uid} {gid} {major} {minor}"),
        };
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

#[test]
fn tables_of_genext2fs_give_its_tree() {
    if !ready("genext2fs") {
        return;
    }
    let scratch = Scratch::new("device-table");
    let (tree, list) = (tree(&scratch), scratch.join("table"));
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    for seed in 0..40 {
        fs::write(&list, table(seed)).expect("write");
        text(&seekless(&["build", &tree, "-o", &ours, "-D", &list, "--force", "-q"]));
        check(&ours);
        let made = Command::new("genext2fs")
            .args(["-b", "4096", "-N", "1000", "-d", &tree, "-D", &list, &theirs])
            .output()
            .expect("genext2fs");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success() && !said.contains("skipped"), "seed {seed}: {said}");
        let listed = |image: &str| timeless(&manifest(image, &[]));
        same(&format!("seed {seed}"), &listed(&theirs), &listed(&ours));
    }
    // Files that only the table has have its time.
    run("touch", &["-d", "@1000000000", &list]);
    fs::remove_file(&theirs).expect("remove");
    text(&seekless(&["build", "-D", &list, &tree, "-o", &theirs, "-q"]));
    assert!(manifest(&theirs, &[]).contains("time=1000000000.000000000"));
    let limited = command(&["build", &tree, "-o", &theirs, "-D", &list, "--force", "-q"])
        .env("SOURCE_DATE_EPOCH", "5")
        .output();
    text(&limited.expect("seekless"));
    assert!(!manifest(&theirs, &[]).contains("time=1000000000"));
}

#[test]
fn tables_of_makedevs_give_what_its_help_says() {
    let scratch = Scratch::new("makedevs");
    let (tree, list, image) = (tree(&scratch), scratch.join("table"), scratch.join("image"));
    let lines = "\
/dev/console c 666 0 0 5 1 - - -
/dev/hda b 640 0 0 3 0 0 0 -
/dev/hda b 640 0 0 3 1 1 1 15
/dev/rtp b 640 0 0 250 0 0 1 5
/dev/uio b 640 0 0 252 0 1 2 5
/dev/uio b 640 0 0 252 1 6 2 5
/dev/one c 600 0 0 9 7 3 1 1
/dev/pipe p 600 daemon staff - - - - -
/new/deep d 750 user staff - - - - -
/etc/passwd f -1 3 4 - - - - -
/etc/lacking F 644 3 4 - - - - -
/dir r -1 5 6 - - - - -
/dir/sub r 700 user 9 - - - - -
/dir/file f 755 0 0 - - - - -
|xattr cap_sys_admin+eip
|xattr cap_net_admin+eip
";
    fs::write(&list, lines).expect("write");
    text(&seekless(&["build", &tree, "-o", &image, "--makedevs", &list, "-q"]));
    check(&image);
    let listed = manifest(&image, &[]);
    let has = |wanted: &str| assert!(listed.contains(wanted), "{wanted}\n{listed}");
    has("./dev/console type=char mode=0666 uid=0 gid=0 nlink=1 device=linux,5,1 ");
    has("./dev/hda type=block mode=0640 uid=0 gid=0 nlink=1 device=linux,3,0 ");
    for number in 1..=15 {
        has(&format!(
            "./dev/hda{number} type=block mode=0640 uid=0 gid=0 nlink=1 device=linux,3,{number} "
        ));
    }
    has("./dev/rtp4 type=block mode=0640 uid=0 gid=0 nlink=1 device=linux,250,4 ");
    for (number, minor) in [(1, 0), (2, 2), (5, 8), (6, 1), (10, 9)] {
        has(&format!(
            "./dev/uio{number} type=block mode=0640 uid=0 gid=0 nlink=1 device=linux,252,{minor} "
        ));
    }
    assert!(!listed.contains("./dev/uio11") && !listed.contains("./dev/rtp5"), "{listed}");
    has("./dev/one type=char mode=0600 uid=0 gid=0 nlink=1 device=linux,9,7 ");
    has("./dev/pipe type=fifo mode=0600 uid=7 gid=50 ");
    has("./new type=dir mode=0750 uid=0 gid=0 ");
    has("./new/deep type=dir mode=0750 uid=1000 gid=50 ");
    has("./etc/passwd type=file mode=0644 uid=3 gid=4 ");
    assert!(!listed.contains("lacking"));
    has("./dir type=dir mode=0755 uid=5 gid=6 ");
    has("./dir/sub type=dir mode=0700 uid=1000 gid=9 ");
    has("./dir/sub/deep type=file mode=0700 uid=1000 gid=9 ");
    has("./dir/file type=file mode=0755 uid=0 gid=0 ");
    // Base64 of revision 2, effective, and the bits 21 and 12 twice.
    has("xattr.security.capability=AQAAAgAQIAAAECAAAAAAAAAAAAA=");
}

#[test]
fn wrong_tables_are_refused_with_their_line() {
    let scratch = Scratch::new("wrong-tables");
    let (tree, list, image) = (tree(&scratch), scratch.join("table"), scratch.join("image"));
    for (option, lines, wanted) in [
        ("-D", "/a d 755 0\n", "table, line 1: not a line NAME TYPE MODE"),
        ("-D", "# x\n/a q 755 0 0\n", "table, line 2: 'q' is not a type"),
        ("-D", "/a l 755 0 0\n", "line 1: type 'l': a table has no targets"),
        ("-D", "/a r 755 0 0\n", "line 1: 'r' is not a type"),
        ("-D", "/a c 888 0 0 1 1\n", "line 1: '888' is not a mode in octal"),
        ("-D", "/a c 644 0 0 1 x\n", "line 1: 'x' is not a number"),
        ("-D", "/a c 644 0 0 1 1 5 1 5\n", "line 1: COUNT is the end of the series"),
        ("-D", "/a c 644 0 0 1 1 0 1 5 6\n", "line 1: more than ten fields"),
        ("-D", "/a c 644 0 0 1 1 0 4294967295 5\n", "line 1: a minor number is out of range"),
        ("-D", "/x/a c 644 0 0 1 1\n", "line 1: the directory /x is missing"),
        ("-D", "/../a c 644 0 0 1 1\n", "line 1: /../a: a path with .."),
        ("-D", "/dir/file d 755 0 0\n", "line 1: /dir/file is not a directory"),
        ("-D", "/dir f 755 0 0\n", "line 1: /dir is not a regular file"),
        ("-D", "/dir c 755 0 0 1 1\n", "line 1: /dir is a file of another type"),
        ("--makedevs", "/a f 644 0 0\n", "line 1: the regular file /a is missing"),
        ("--makedevs", "/a r 644 0 0\n", "line 1: /a is missing"),
        (
            "--makedevs",
            "/dir d 755 nobody 0\n",
            "line 1: user 'nobody' is not in the tree's /etc/passwd",
        ),
        (
            "--makedevs",
            "/dir d 755 0 wheel\n",
            "line 1: group 'wheel' is not in the tree's /etc/group",
        ),
        ("--makedevs", "|xattr cap_chown+ep\n", "line 1: a line |xattr follows that of its file"),
        (
            "--makedevs",
            "/dir/file f 755 0 0\n|xattr cap_x+ep\n",
            "line 2: 'cap_x+ep' is not a capability",
        ),
    ] {
        fs::write(&list, lines).expect("write");
        let (code, message) = failure(&seekless(&["build", &tree, "-o", &image, option, &list]));
        assert!(code == 3 && message.contains(wanted), "{lines}: {code} {message}");
    }
    fs::write(&list, "/dev d 755 0 0\n").expect("write");
    let shared = seekless(&["build", &tree, &tree, "-o", &image, "-D", &list, "--share"]);
    let (code, message) = failure(&shared);
    assert!(code == 2 && message.contains("--share"), "{message}");
    assert!(!fs::exists(&image).expect("exists"));
}
