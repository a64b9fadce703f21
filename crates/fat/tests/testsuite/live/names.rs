//! Names: short and long ones, without case, as many as there can be.

use super::shapes::{SHAPES, Shape, WALL, fsck, image, open, open_with, options, ran, written};
use crate::slice::some_or_all;
use seekless_cache::Discipline;
use seekless_device::MemoryDevice;
use seekless_fat::{FatLive, FatWidth, LiveOptions, MakeOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn make(live: &mut FatLive, dir: Ino, name: &str) -> Result<Ino, FsError> {
    live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).map(|attr| attr.ino)
}

fn names(live: &mut FatLive, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    live.read_dir(dir, 2, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

#[test]
fn names_are_the_same_without_case() {
    let Some(device) = image(&SHAPES[3]) else { return };
    let mut live = open(&device, Discipline::SoftUpdates);
    let root = live.root();
    let file = make(&mut live, root, "A long name é.text").unwrap();
    for same in ["a LONG name É.TEXT", "ALONGN~1.TEX", "alongn~1.tex", "A long name é.text. ."] {
        assert_eq!(live.lookup(root, same.as_bytes()).unwrap(), Some(file), "{same}");
        assert!(matches!(make(&mut live, root, same), Err(FsError::Exists(_))), "{same}");
    }
    make(&mut live, root, "UPPER.TXT").unwrap();
    make(&mut live, root, "lower.txt").unwrap();
    make(&mut live, root, "trailing. .").unwrap();
    let replace = RenameMode::Replace;
    live.rename((root, b"lower.txt"), (root, b"LOWER.TXT"), replace).unwrap();
    live.rename((root, b"UPPER.TXT"), (root, b"Upper.txt"), replace).unwrap();
    let mut shown = names(&mut live, root);
    shown.sort();
    assert_eq!(shown, ["A long name é.text", "LOWER.TXT", "Upper.txt", "trailing"]);
    for wrong in ["a:b", "a*b", "a?b", "a\"b", "a<b", "a>b", "a|b", "a\\b", "a\u{7}", "...", " "] {
        assert!(matches!(make(&mut live, root, wrong), Err(FsError::Invalid(_))), "{wrong:?}");
    }
    let long = "é".repeat(255);
    make(&mut live, root, &long).unwrap();
    let longer = "é".repeat(256);
    assert!(matches!(make(&mut live, root, &longer), Err(FsError::NameTooLong { .. })));
    live.unmount().unwrap();
    fsck(&device, "names");
    let path = written(&device);
    if let Some((_, text)) = ran("mdir", &["-i", path.to_str().unwrap(), "-b", "::"]) {
        for name in ["::/A long name é.text", "::/LOWER.TXT", "::/Upper.txt", "::/trailing"] {
            assert!(text.lines().any(|line| line == name), "{name}: {text}");
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// A name waits for a few changes, however many wait already: for what leads to the end of
/// its directory, and for what has no slot in front of it be the end, not for each cluster of
/// the one and each sector of the other. In a directory that grows by clusters of a sector, and
/// in a root of 2,048 sectors.
#[test]
fn the_last_of_many_names_waits_for_no_more_than_the_first() {
    let shapes = [
        Shape { how: &["-F", "32", "-s", "1"], kibibytes: 40_960 },
        Shape { how: &["-F", "16", "-s", "4", "-r", "32768"], kibibytes: 16_384 },
    ];
    for shape in shapes {
        let Some(device) = image(&shape) else { return };
        let mut live = open(&device, Discipline::SoftUpdates);
        let mut dir = live.root();
        if shape.how.contains(&"32") {
            dir = live.make(dir, b"many", NewFile::Directory, OWNER).unwrap().ino;
        }
        let mut before = live.counters().orders;
        let mut asked = Vec::new();
        for n in 0..8_000 {
            make(&mut live, dir, &format!("a long beginning {n}.text")).unwrap();
            if n % 1000 == 999 {
                asked.push(live.counters().orders - before);
                before = live.counters().orders;
            }
        }
        let most = asked.iter().max().unwrap();
        assert!(*most <= 6 * 1000, "orders of each thousand: {asked:?}");
        live.unmount().unwrap();
        fsck(&device, "many names");
    }
}

/// Files that move into a directory and back wait for no more with each time.
#[test]
fn the_last_of_many_moves_waits_for_no_more_than_the_first() {
    let shape = Shape { how: &["-F", "16", "-s", "4"], kibibytes: 16_384 };
    let Some(device) = image(&shape) else { return };
    let mut live = open(&device, Discipline::SoftUpdates);
    let root = live.root();
    let dirs = ["one", "other"]
        .map(|name| live.make(root, name.as_bytes(), NewFile::Directory, OWNER).unwrap().ino);
    make(&mut live, dirs[0], "FILE").unwrap();
    let mut before = live.counters().orders;
    let mut asked = Vec::new();
    for n in 0..4_000 {
        let (from, to) = (dirs[n % 2], dirs[(n + 1) % 2]);
        live.rename((from, b"FILE"), (to, b"FILE"), RenameMode::Replace).unwrap();
        if n % 1000 == 999 {
            asked.push(live.counters().orders - before);
            before = live.counters().orders;
        }
    }
    assert!(asked.iter().all(|&orders| orders <= 12 * 1000), "of each thousand: {asked:?}");
    live.unmount().unwrap();
    fsck(&device, "many moves");
}

/// How long that takes, `benches/names.rs` tells.
#[test]
fn ten_thousand_names_of_one_beginning_are_made() {
    let shape = Shape { how: &["-F", "32", "-s", "8"], kibibytes: 16384 };
    let Some(device) = image(&shape) else { return };
    let mut live = open(&device, Discipline::SoftUpdates);
    let dir = live.make(live.root(), b"many", NewFile::Directory, OWNER).unwrap().ino;
    for n in 0..10_000 {
        make(&mut live, dir, &format!("a long beginning {n}.text")).unwrap();
    }
    live.unmount().unwrap();
    fsck(&device, "many names");
}

#[test]
fn directories_and_files_end_where_the_format_does() {
    // 128 entries in the root.
    let shape = Shape { how: &["-F", "16", "-s", "1", "-r", "128"], kibibytes: 8192 };
    let Some(device) = image(&shape) else { return };
    let mut live = open(&device, Discipline::Async);
    let root = live.root();
    let full = (0..200).find_map(|n| make(&mut live, root, &format!("F{n}")).err()).unwrap();
    assert!(matches!(full, FsError::NoSpace(_)), "{full}");
    assert_eq!(names(&mut live, root).len(), 128);
    live.unlink(root, b"F3").unwrap();
    // A long name needs more than the one slot that is free.
    assert!(matches!(make(&mut live, root, "a long name"), Err(FsError::NoSpace(_))));
    let dir = live.make(root, b"DIR", NewFile::Directory, OWNER).unwrap().ino;
    // `.` and `..` are two of 65,536.
    for n in 0..65_534 {
        make(&mut live, dir, &format!("F{n}")).unwrap();
    }
    let full = make(&mut live, dir, "ONEMORE").unwrap_err();
    assert!(full.to_string().contains("65,536"), "{full}");
    live.unmount().unwrap();
    // It compares each name with all others.
    if some_or_all(false, true) {
        fsck(&device, "full directories");
    }
    let report = seekless_fat::check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let mut live = open(&device, Discipline::Async);
    let file = live.lookup(root, b"F0").unwrap().unwrap();
    let beyond = live.write(file, ByteLen::new(u64::from(u32::MAX)), b"x").unwrap_err();
    assert!(matches!(beyond, FsError::TooLarge(_)), "{beyond}");
    let set = seekless_fs::operate::SetAttr { size: Some(1 << 32), ..Default::default() };
    assert!(matches!(live.set_attr(file, &set), Err(FsError::TooLarge(_))));
    live.unmount().unwrap();
}

/// What FAT does not have is refused by name; what it has is one bit.
#[test]
fn what_cannot_be_kept_is_refused() {
    use seekless_fs::operate::{SetAttr, XattrMode};
    let Some(device) = image(&SHAPES[6]) else { return };
    let mut live = open(&device, Discipline::SoftUpdates);
    let root = live.root();
    let file = make(&mut live, root, "file").unwrap();
    let permitted = |error| !matches!(error, Err(FsError::NotPermitted(_)));
    assert!(!permitted(live.make(root, b"s", NewFile::Symlink(b"x"), OWNER)));
    let pipe = NewFile::Special(seekless_fs::FileKind::Fifo);
    assert!(!permitted(live.make(root, b"p", pipe, OWNER)));
    assert!(!permitted(live.link(file, root, b"l")));
    let xattr = live.set_xattr(file, b"user.x", b"y", XattrMode::Any);
    assert!(matches!(xattr, Err(FsError::Unsupported(_))));
    let none = SetAttr::default();
    assert!(!permitted(live.set_attr(file, &SetAttr { uid: Some(5), ..none })));
    assert!(!permitted(live.set_attr(file, &SetAttr { perm: Some(0o4755), ..none })));
    let owner = SetAttr { uid: Some(0), gid: Some(0), ..none };
    assert!(permitted(live.set_attr(file, &owner)));
    let shown = live.set_attr(file, &SetAttr { perm: Some(0o400), ..none }).unwrap();
    assert_eq!(shown.perm, 0o444);
    live.unmount().unwrap();
    let mut live = open(&device, Discipline::Sync);
    let file = live.lookup(root, b"FILE").unwrap().unwrap();
    assert_eq!(live.attr(file).unwrap().perm, 0o444);
    let shown = live.set_attr(file, &SetAttr { perm: Some(0o777), ..none }).unwrap();
    assert_eq!(shown.perm, 0o644);
    live.unmount().unwrap();
    fsck(&device, "attributes");
}

/// Entries have local time: an hour more where that is ahead by an hour.
#[test]
fn times_are_local() {
    let Some(device) = image(&SHAPES[3]) else { return };
    let how = seekless_fat::LiveOptions { zone: 60, ..options() };
    let mut live = open_with(&device, Discipline::SoftUpdates, how);
    let root = live.root();
    let file = make(&mut live, root, "FILE").unwrap();
    let shown = live.attr(file).unwrap();
    assert_eq!((shown.mtime.secs, shown.mtime.nanos), (WALL.secs, 0));
    assert_eq!(shown.crtime, Some(WALL));
    live.unmount().unwrap();
    let path = written(&device);
    if let Some((_, text)) = ran("mdir", &["-i", path.to_str().unwrap(), "::"]) {
        // date -u -d @1700003600
        assert!(text.contains("2023-11-14  23:13"), "{text}");
    }
    std::fs::remove_file(path).unwrap();
}

/// `ATTR_ARCHIVE` is set when a file is written to, cut or renamed; nothing sets it on
/// directories.
#[test]
fn what_is_changed_is_to_be_archived() {
    const ARCHIVE: u8 = 0x20;
    let Some(device) = image(&SHAPES[3]) else { return };
    let mut live = open(&device, Discipline::SoftUpdates);
    let root = live.root();
    for name in ["READ", "WRITTEN", "CUT", "LONGER", "RENAMED", "OVER", "TARGET"] {
        let file = make(&mut live, root, name).unwrap();
        live.write(file, ByteLen::ZERO, b"twelve bytes").unwrap();
    }
    live.make(root, b"MOVED", NewFile::Directory, OWNER).unwrap();
    live.unmount().unwrap();
    let path = written(&device);
    let mut bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let attribute = |bytes: &[u8], name: &str| {
        let name = format!("{name:<11}");
        bytes.chunks(32).position(|slot| slot.starts_with(name.as_bytes())).unwrap() * 32 + 11
    };
    for name in ["READ", "WRITTEN", "CUT", "LONGER", "RENAMED", "OVER", "TARGET"] {
        let at = attribute(&bytes, name);
        assert_eq!(bytes[at], ARCHIVE, "{name}");
        bytes[at] = 0;
    }
    let device = std::sync::Arc::new(seekless_device::MemoryDevice::new(bytes));
    let mut live = open(&device, Discipline::SoftUpdates);
    let mut found = |name: &str| live.lookup(root, name.as_bytes()).unwrap().unwrap();
    let [read, wrote, cut, longer] = ["READ", "WRITTEN", "CUT", "LONGER"].map(&mut found);
    live.read(read, ByteLen::ZERO, &mut [0; 5]).unwrap();
    live.write(wrote, ByteLen::ZERO, b"x").unwrap();
    let cut_to = |size| seekless_fs::operate::SetAttr { size: Some(size), ..Default::default() };
    live.set_attr(cut, &cut_to(3)).unwrap();
    live.set_attr(longer, &cut_to(9000)).unwrap();
    let replace = RenameMode::Replace;
    live.rename((root, b"RENAMED"), (root, b"RENAMED2"), replace).unwrap();
    live.rename((root, b"OVER"), (root, b"TARGET"), replace).unwrap();
    live.rename((root, b"MOVED"), (root, b"MOVED2"), replace).unwrap();
    live.unmount().unwrap();
    fsck(&device, "attributes");
    let path = written(&device);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    for (name, wanted) in [
        ("READ", 0),
        ("WRITTEN", ARCHIVE),
        ("CUT", ARCHIVE),
        ("LONGER", ARCHIVE),
        ("RENAMED2", ARCHIVE),
        ("TARGET", ARCHIVE),
        ("MOVED2", 0x10),
    ] {
        assert_eq!(bytes[attribute(&bytes, name)], wanted, "{name}");
    }
}

/// A system that knows short names alone removes a file and leaves the slots of its long name.
#[test]
fn a_name_is_not_what_slots_in_front_of_it_were() {
    for behind in [0xE5, 0] {
        let Some(device) = image(&SHAPES[3]) else { return };
        let mut live = open(&device, Discipline::SoftUpdates);
        let root = live.root();
        make(&mut live, root, "long file name.txt").unwrap();
        live.unmount().unwrap();
        let path = written(&device);
        let mut bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let slot = bytes.chunks(32).position(|slot| slot.starts_with(b"LONGFI~1TXT")).unwrap();
        bytes[slot * 32] = behind;
        let device = std::sync::Arc::new(seekless_device::MemoryDevice::new(bytes));
        for _ in 0..2 {
            let mut live = open(&device, Discipline::SoftUpdates);
            if live.lookup(root, b"LONGFI~1.TXT").unwrap().is_none() {
                make(&mut live, root, "LONGFI~1.TXT").unwrap();
            }
            assert_eq!(names(&mut live, root), ["LONGFI~1.TXT"], "{behind:#x}");
            live.unmount().unwrap();
        }
        fsck(&device, "slots that belong to nothing");
    }
}

/// Links are counted in 16 bits, and a root directory of FAT32 has room for more subdirectories.
#[test]
fn a_root_of_more_directories_than_links_can_be_counted() {
    const ALL: u64 = 65_536;
    let device = Arc::new(MemoryDevice::new(vec![0; 48 << 20]));
    let mut how = MakeOptions::new(Some(FatWidth::Fat32), ByteLen::new(48 << 20));
    how.cluster = Some(1);
    seekless_fat::make(device.as_ref(), &how).unwrap();
    let mut live = open(&device, Discipline::Async);
    let root = live.root();
    let make = |live: &mut FatLive, n: u64| {
        live.make(root, format!("D{n:07}").as_bytes(), NewFile::Directory, OWNER).map(drop)
    };
    let links = |live: &mut FatLive| u64::from(live.attr(root).unwrap().nlink);
    for n in 0..ALL {
        make(&mut live, n).unwrap();
    }
    assert!(matches!(make(&mut live, ALL), Err(FsError::NoSpace(_))));
    assert_eq!(links(&mut live), 65_535);
    for n in 0..10 {
        live.rmdir(root, format!("D{n:07}").as_bytes()).unwrap();
    }
    // Each has its `..`, and the root a name and a `.`.
    assert_eq!(links(&mut live), ALL - 10 + 2);
    live.unmount().unwrap();
}

/// A time beyond those of an entry becomes the first or the last of them.
#[test]
fn times_of_any_age_can_be_set() {
    for zone in [-720, 0, 840] {
        let Some(device) = image(&SHAPES[3]) else { return };
        let how = LiveOptions { zone, ..options() };
        let mut live = open_with(&device, Discipline::Async, how);
        let root = live.root();
        let file = make(&mut live, root, "FILE").unwrap();
        // 1980-01-01 and 2107-12-31.
        for (secs, day) in [(i64::MIN, 3652), (i64::MAX, 50_402)] {
            let time = Timestamp { secs, nanos: 0 };
            let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
            live.set_attr(file, &set).unwrap();
            live.sync().unwrap();
            let local = live.attr(file).unwrap().mtime.secs + i64::from(zone) * 60;
            assert_eq!(local / 86_400, day);
        }
        live.unmount().unwrap();
    }
}
