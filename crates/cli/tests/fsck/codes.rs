//! Exit codes beside those of e2fsck, on volumes with a journal on another device, with shared blocks,
//! longer than their device, and with recorded errors.

use crate::judges::{self, Scratch, run, seekless};
use crate::{answer, changed, image, linked};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The exit codes of e2fsck and of the binary in its place on copies of a volume, each judged
/// afterwards by e2fsck where it was repaired.
fn codes(scratch: &Scratch, image: &str, options: &[&str], journal: Option<&str>) -> (i32, i32) {
    let copy = |of: &str, name: &str| {
        let to = scratch.join(name);
        fs::copy(of, &to).expect("copy");
        to
    };
    let run = |program: &mut Command| {
        let volume = copy(image, "volume");
        let device = journal.map(|of| (of, copy(of, "device")));
        let journal: Vec<&str> = device.iter().flat_map(|(_, it)| ["-j", it]).collect();
        let (code, said) = answer(program.args(options).args(&journal).arg(&volume));
        if options[0].contains('n') {
            let is_same = |one: &str, two: &str| {
                fs::read(one).expect("image") == fs::read(two).expect("image")
            };
            assert!(is_same(&volume, image), "{options:?}: written");
            assert!(device.as_ref().is_none_or(|(of, it)| is_same(of, it)), "{options:?}: written");
        } else if code < 2 {
            let (left, judged) =
                answer(Command::new("e2fsck").arg("-fn").args(&journal).arg(&volume));
            assert_eq!(left, 0, "{options:?}: {said}: {judged}");
        }
        code
    };
    let ours = run(&mut Command::new(linked(scratch, "e2fsck")));
    (run(&mut Command::new("e2fsck")), ours)
}

const MODES: [&str; 3] = ["-fn", "-fp", "-fy"];

#[test]
fn a_volume_longer_than_its_device_is_looked_at_but_not_repaired() {
    if !judges::ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("fsck-short");
    let image = image(&scratch);
    fs::File::options().write(true).open(&image).expect("image").set_len(15 << 20).expect("cut");
    for (options, code) in MODES.into_iter().zip([0, 4, 8]) {
        assert_eq!(codes(&scratch, &image, &[options], None), (code, code), "{options}");
    }
    let before = fs::read(&image).expect("image");
    for (options, code) in [("-n", 4), ("-p", 4), ("-y", 8)] {
        let check = seekless(&["check", options, &image]);
        assert_eq!(check.status.code(), Some(code), "{options}: {check:?}");
        let said = [check.stdout, check.stderr].concat();
        assert!(
            String::from_utf8_lossy(&said)
                .contains("the volume has 16384 blocks, the device 15360")
        );
    }
    assert!(fs::read(&image).expect("image") == before, "nothing is written");
}

#[test]
fn a_record_of_errors_alone_is_no_finding() {
    if !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-errors");
    let image = image(&scratch);
    let image = changed(&scratch, &image, "errors", &["ssv state 3", "ssv error_count 2"]);
    for options in MODES {
        assert_eq!(codes(&scratch, &image, &[options], None), (0, 0), "{options}");
    }
    let check = seekless(&["check", &image]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stderr).contains("records errors"), "{check:?}");
    // With other errors it is one of the findings.
    let image = changed(&scratch, &image, "damaged", &["sif /file links_count 7"]);
    let check = seekless(&["check", &image]);
    assert_eq!(check.status.code(), Some(4), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stdout).contains("superblock.errors"), "{check:?}");
}

#[test]
fn shared_blocks_are_copied_where_there_is_room() {
    if !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-shared");
    let tree = scratch.join("tree");
    fs::create_dir_all(&tree).expect("tree");
    for name in ["one", "two", "three"] {
        fs::write(format!("{tree}/{name}"), vec![name.as_bytes()[0]; 30_000]).expect("file");
    }
    let image = scratch.join("image");
    run("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024", "-d", &tree, &image, "1M"]);
    let blocks = |name: &str| {
        let said =
            answer(Command::new("debugfs").args(["-R", &format!("blocks {name}"), &image])).1;
        said.split_whitespace().map(String::from).collect::<Vec<_>>()
    };
    let (one, two, three) = (blocks("/one"), blocks("/two"), blocks("/three"));
    let share = [
        format!("sif /two block[3] {}", one[3]),
        // A file may have a block in two places, and the blocks may be in its indirect block.
        format!("sif /two block[4] {}", one[3]),
        format!("sif /three block[5] {}", one[20]),
        "feature shared_blocks".to_string(),
        format!("freeb {}", two[3]),
        format!("freeb {}", two[4]),
        format!("freeb {}", three[5]),
    ];
    let share: Vec<&str> = share.iter().map(String::as_str).collect();
    let image = changed(&scratch, &image, "shared", &share);
    assert!(answer(Command::new("e2fsck").args(["-fy", &image])).0 <= 1);
    for options in MODES {
        let unshare = [options, "-E", "unshare_blocks"];
        assert_eq!(codes(&scratch, &image, &unshare, None), (0, 0), "{options}");
    }
    let contents = |image: &str| {
        ["/one", "/two", "/three"].map(|name| {
            answer(Command::new("debugfs").args(["-R", &format!("cat {name}"), image])).1
        })
    };
    let copy = scratch.join("copied");
    fs::copy(&image, &copy).expect("copy");
    let check = seekless(&["check", "-p", "-E", "unshare_blocks", &copy]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert_eq!(contents(&copy), contents(&image));
    let said = answer(Command::new("dumpe2fs").args(["-h", &copy])).1;
    assert!(!said.contains("shared_blocks"), "{said}");
    // No two files have a block now.
    assert_eq!(answer(Command::new("e2fsck").args(["-fn", &copy])).0, 0);
    // All but two of the three blocks that the copies take.
    let free = said_free(&image);
    let fill = scratch.join("fill");
    fs::write(&fill, vec![1; (free - 2 - free.div_ceil(256) - 1) * 1024]).expect("fill");
    let full = changed(&scratch, &image, "full", &[&format!("write {fill} fill")]);
    assert!(answer(Command::new("e2fsck").args(["-fy", &full])).0 <= 1);
    assert!(said_free(&full) < 3, "{} blocks are free", said_free(&full));
    for options in MODES {
        let unshare = [options, "-E", "unshare_blocks"];
        assert_eq!(codes(&scratch, &full, &unshare, None), (4, 4), "{options}");
    }
    let before = fs::read(&full).expect("image");
    for options in ["-p", "-y"] {
        let check = seekless(&["check", options, "-E", "unshare_blocks", &full]);
        assert_eq!(check.status.code(), Some(4), "{check:?}");
    }
    assert!(fs::read(&full).expect("image") == before, "something was copied");
}

/// Free blocks of a volume.
fn said_free(image: &str) -> usize {
    let said = answer(Command::new("dumpe2fs").args(["-h", image])).1;
    let line = said.lines().find_map(|line| line.strip_prefix("Free blocks:")).expect("dumpe2fs");
    line.trim().parse().expect("number")
}

#[test]
fn a_journal_on_another_device_is_replayed() {
    if !judges::ready("debugfs") {
        return;
    }
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    let scratch = Scratch::new("fsck-journal");
    let (volume, journal) = (scratch.join("clean"), scratch.join("journal"));
    run("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "1024", "-U", UUID, &journal, "2M"]);
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", "1024", &volume, "4M"]);
    let piece = scratch.join("piece");
    fs::write(&piece, [7; 1024]).expect("piece");
    let has = ["feature has_journal".to_string(), format!("ssv journal_uuid {UUID}")];
    let has: Vec<&str> = has.iter().map(String::as_str).collect();
    let clean = changed(&scratch, &volume, "with-journal", &has);
    let waits = [format!("jo -f {journal}"), format!("jw -b 3000 {piece}"), "jc".to_string()];
    let waits: Vec<&str> =
        waits.iter().map(String::as_str).chain(["feature needs_recovery"]).collect();
    let pending = changed(&scratch, &clean, "pending", &waits);
    for options in ["-n", "-p", "-fp", "-fy"] {
        // e2fsck counts that the free blocks in the superblock are those of an older moment.
        let (theirs, ours) = codes(&scratch, &pending, &[options], Some(&journal));
        assert!(theirs == ours || (theirs, ours) == (1, 0), "{options}: {theirs} {ours}");
        // e2fsck adds 4, errors that are left, to 8 where it gives up.
        let none = codes(&scratch, &pending, &[options], Some(&volume));
        assert_eq!(none, (12, 8), "{options}: not a journal");
        let none = codes(&scratch, &pending, &[options], None);
        assert_eq!(none, (12, 8), "{options}: no journal");
    }
    // Nothing waits there: `check` goes on without it.
    assert_eq!(codes(&scratch, &clean, &["-fn"], None), (12, 8));
    assert_eq!(seekless(&["check", "-n", &clean]).status.code(), Some(0));
    let check = seekless(&["check", "-y", "-j", &journal, &pending]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    let check = seekless(&["check", "-j", &journal, &pending]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    let end = &fs::read(&pending).expect("image")[3000 << 10..3001 << 10];
    assert!(end == [7; 1024], "the block was not written back");
}

/// A loop device, detached on drop.
struct Loop(String);

impl Loop {
    fn of(image: &str) -> Self {
        Self(judges::attach(image, false))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        judges::detach(&self.0);
    }
}

/// The journal of a block device is found among the devices of the machine, as libblkid finds it for
/// e2fsck.
#[test]
fn a_journal_is_found_by_its_uuid() {
    if !judges::ready("debugfs") || !judges::can_mount() {
        return;
    }
    const UUID: &str = "11111111-2222-3333-4444-66666666abcd";
    let scratch = Scratch::new("fsck-journal-found");
    let [volume, journal, other] = ["clean", "journal", "other"].map(|name| scratch.join(name));
    run("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "1024", "-U", UUID, &journal, "2M"]);
    run("mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "1024", &other, "2M"]);
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", "1024", &volume, "4M"]);
    let has = ["feature has_journal".to_string(), format!("ssv journal_uuid {UUID}")];
    let has: Vec<&str> = has.iter().map(String::as_str).collect();
    let clean = changed(&scratch, &volume, "with-journal", &has);
    let piece = scratch.join("piece");
    fs::write(&piece, [7; 1024]).expect("piece");
    let write = |journal: &str| {
        let waits = [format!("jo -f {journal}"), format!("jw -b 3000 {piece}"), "jc".to_string()];
        let waits = waits.iter().map(String::as_str).chain(["feature needs_recovery"]);
        changed(&scratch, &clean, "pending", &waits.collect::<Vec<_>>())
    };
    let empty = scratch.join("empty");
    fs::copy(&journal, &empty).expect("copy");
    let pending = write(&journal);
    let check = |program: &Path, options: &str, image: &str| {
        let copy = scratch.join("volume");
        fs::copy(image, &copy).expect("copy");
        let device = Loop::of(&copy);
        // libblkid trusts an entry of its cache for two seconds: no cache.
        let mut command = Command::new(program);
        command.env("BLKID_FILE", "/dev/null").args([options, &device.0]);
        let code = answer(&mut command).0;
        drop(device);
        (code, fs::read(&copy).expect("image")[3000 << 10..3001 << 10] == [7; 1024])
    };
    let (ours, theirs) = (linked(&scratch, "e2fsck"), Path::new("e2fsck"));
    let _other = Loop::of(&other);
    for (options, image, journal) in [
        ("-fp", &clean, &empty),
        ("-p", &clean, &empty),
        ("-fp", &pending, &journal),
        ("-fy", &pending, &journal),
    ] {
        let found = [&*ours, theirs].map(|program| {
            fs::copy(journal, scratch.join("device")).expect("copy");
            let _journal = Loop::of(&scratch.join("device"));
            check(program, options, image)
        });
        let written = image == &pending;
        assert!(found.iter().all(|(code, is)| *code < 2 && *is == written), "{options}: {found:?}");
        // e2fsck adds 4 to 8.
        let missing = [&*ours, theirs].map(|program| check(program, options, image));
        assert_eq!(missing, [(8, false), (12, false)], "{options}: the device is not there");
    }
    for options in ["-n", "-fn", "-y", "-fy"] {
        let missing = [&*ours, theirs].map(|program| check(program, options, &clean).0 & 8);
        assert_eq!(missing, [8, 8], "{options}: the device is not there");
    }
    assert_eq!(seekless(&["check", "-y", &clean]).status.code(), Some(0));
    let preen = seekless(&["check", "-p", &clean]);
    assert_eq!(preen.status.code(), Some(8), "{preen:?}");
    assert!(String::from_utf8_lossy(&preen.stderr).contains(UUID), "{preen:?}");
    // The journal of an image is not taken from the machine.
    let _journal = Loop::of(&journal);
    assert_eq!(seekless(&["check", "-y", &pending]).status.code(), Some(8));
    let device = Loop::of(&pending);
    assert_eq!(seekless(&["check", "-n", &device.0]).status.code(), Some(4));
    assert_eq!(seekless(&["check", "-y", &device.0]).status.code(), Some(1));
}
