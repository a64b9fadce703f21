//! Quota files: damaged ones, ones in use, and when they are written.

use super::*;

/// Quota files that are damaged, or are no such files.
#[test]
fn damaged_quota_files() {
    let time = Time::new();
    let header = b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40";
    let mut draw = Pcg64Mcg::seed_from_u64(8);
    for shape in &SHAPES {
        for case in 0..60 {
            let device = image(shape);
            let mut live = time.open(device.clone(), Discipline::Normal, false);
            let mut bytes = vec![0; 64 * 40 + draw.next_u32() as usize % 64];
            draw.fill_bytes(&mut bytes);
            match case {
                0 => bytes.clear(),
                1 => bytes.truncate(40),
                2..10 => bytes[..20].copy_from_slice(header),
                // Another version, another length of records.
                10..13 => {
                    bytes[..20].copy_from_slice(header);
                    bytes[8 + 4 * (case - 10)] ^= 1;
                }
                _ => {}
            }
            put(&mut live, NAMES[0], &bytes);
            live.unmount().unwrap();
            let mut live = time.open(device.clone(), Discipline::Normal, false);
            let kept = keep_quotas(&mut live, &both());
            if (10..13).contains(&case) {
                assert!(matches!(kept, Err(FsError::Corrupt { .. })), "{kept:?}");
            } else {
                kept.unwrap();
                let root = live.root();
                let owner = Ownership { uid: 11, gid: 12, perm: 0o644 };
                live.spend_reserve(false);
                let _ = live.make(root, b"file", NewFile::Regular, owner);
                live.spend_reserve(true);
                live.sync().unwrap();
                let words = Words::of(shape, (2..10).contains(&case));
                let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
                let after = whole(&mut live, ino);
                let (skip, len) = if words == Words::Big64 { (64, 64) } else { (0, 32) };
                let [counted, _] = walk(&mut live, &[]);
                for (id, raw) in (0u32..).zip(after[skip.min(after.len())..].chunks_exact(len)) {
                    let word = |at: usize| {
                        let raw = &raw[at * len / 8..(at + 1) * len / 8];
                        let is_big = words != Words::Little32;
                        let big = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
                        match is_big {
                            true => raw.iter().fold(0, big),
                            false => raw.iter().rev().fold(0, big),
                        }
                    };
                    let expected = counted.get(&id).copied().unwrap_or_default();
                    assert_eq!([word(2), word(5)], expected, "{shape:?}, case {case}: id {id}");
                }
            }
            live.unmount().unwrap();
            let report = seekless_ffs::check(device.clone()).unwrap();
            assert!(report.is_clean(), "{:#?}", report.findings);
        }
    }
    let mut live = time.open(image(&SHAPES[1]), Discipline::Normal, false);
    let mut files = QuotaFiles::none();
    for (path, is_there) in [("", true), ("none/quota", false)] {
        files.keep(QuotaKind::User, Some(path));
        match keep_quotas(&mut live, &files) {
            Err(FsError::Invalid(_)) => assert!(is_there),
            Err(FsError::NotFound(_)) => assert!(!is_there),
            other => panic!("{path}: {other:?}"),
        }
    }
    files.keep(QuotaKind::User, Some("one"));
    files.keep(QuotaKind::Group, Some("/one"));
    assert!(matches!(keep_quotas(&mut live, &files), Err(FsError::Invalid(_))));
    live.unmount().unwrap();
}

/// Nobody changes a quota file but the file system, and records far behind the end of one are
/// written where they belong.
#[test]
fn quota_files_in_use() {
    let time = Time::new();
    for shape in &SHAPES {
        let device = image(shape);
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        keep_quotas(&mut live, &both()).unwrap();
        let root = live.root();
        let [ino, _] = NAMES.map(|name| live.lookup(root, name.as_bytes()).unwrap().unwrap());
        let attr = live.attr(ino).unwrap();
        assert_eq!((attr.uid, attr.gid, attr.perm), (0, 5, 0o640));
        let not_permitted = |done: Result<(), FsError>| {
            assert!(matches!(done, Err(FsError::NotPermitted(_))), "{done:?}");
        };
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        let again = |live: &mut FfsLive| {
            not_permitted(live.write(ino, ByteLen::ZERO, b"x").map(drop));
            not_permitted(live.set_attr(ino, &size).map(drop));
            not_permitted(live.unlink(root, NAMES[0].as_bytes()));
        };
        again(&mut live);
        live.set_file_flags(ino, 0).unwrap();
        again(&mut live);
        let far = 30_000_000;
        let owner = Ownership { uid: far, gid: far - 1, perm: 0o644 };
        let file = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
        live.write(file, ByteLen::ZERO, &[1; 5000]).unwrap();
        live.fsync(ino).unwrap();
        for (name, id) in NAMES.into_iter().zip([far, far - 1]) {
            let ino = live.lookup(root, name.as_bytes()).unwrap().unwrap();
            let mut raw = [0; 64];
            let at = ByteLen::new(64 + 64 * u64::from(id));
            assert_eq!(live.read(ino, at, &mut raw).unwrap(), 64);
            let word = |at: usize| u64::from_be_bytes(raw[at..at + 8].try_into().unwrap());
            assert_eq!([word(16), word(40)], [live.attr(file).unwrap().sectors, 1], "{shape:?}");
        }
        live.unmount().unwrap();
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        assert_eq!(live.stale_quota_files().unwrap(), NAMES);
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::Group, None);
        keep_quotas(&mut live, &files).unwrap();
        assert_eq!(live.stale_quota_files().unwrap(), [NAMES[0]]);
        live.unmount().unwrap();
        let report = seekless_ffs::check(device).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
}

/// Usage goes to the files at the intervals of FreeBSD's syncer, and the user of the volume is told
/// which files have changed.
#[test]
fn usage_is_written_at_intervals() {
    let (device, time, clock) = (image(&SHAPES[1]), Time::new(), Arc::new(VirtualClock::new()));
    let mut live = time.open_with(device.clone(), Discipline::SoftUpdates, false, clock.clone());
    assert_eq!(live.take_rewritten(), []);
    keep_quotas(&mut live, &both()).unwrap();
    let inos = NAMES.map(|name| live.lookup(live.root(), name.as_bytes()).unwrap().unwrap());
    assert_eq!(live.take_rewritten(), inos);
    assert_eq!(live.take_rewritten(), []);
    live.tick().unwrap();
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    live.make(root, b"file", NewFile::Regular, owner).unwrap();
    let mut begun = 0;
    let seconds = (1..=60).find(|_| {
        clock.sleep(Nanos::new(1_000_000_000));
        live.tick().unwrap();
        begun += 1;
        !live.take_rewritten().is_empty()
    });
    assert_eq!((seconds, begun), (Some(30), 30));
    let [users, _] = records(&mut live, Words::Big64);
    assert_eq!(users[&7].0, [0, 0, 0, 0, 0, 1]);
    // Nothing has changed since.
    for _ in 0..100 {
        clock.sleep(Nanos::new(1_000_000_000));
        live.tick().unwrap();
    }
    assert_eq!(live.take_rewritten(), []);
    live.unmount().unwrap();
}

/// Records for which there is no room are left out, the others are written.
#[test]
fn records_on_a_full_volume() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let (device, time) = (image(shape), Time::new());
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        keep_quotas(&mut live, &both()).unwrap();
        let root = live.root();
        // Each of these ids needs a block of its own, and more of them than are written at once.
        let ids = (0..150u32).map(|n| 1_000_000 + n * 4096);
        let mut draw = Pcg64Mcg::seed_from_u64(n as u64);
        let big = live.make(root, b"big", NewFile::Regular, OWNER_OF_7).unwrap().ino;
        for id in ids.clone() {
            let owner = Ownership { uid: id, gid: 9, perm: 0o644 };
            live.make(root, format!("{id}").as_bytes(), NewFile::Regular, owner).unwrap();
        }
        let mut at = 0;
        loop {
            let len = 1 + draw.next_u32() as usize % 100_000;
            match live.write(big, ByteLen::new(at), &vec![1; len]) {
                Ok(written) if written > 0 => at += written as u64,
                Ok(_) => break,
                Err(FsError::NoSpace(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        live.sync().unwrap();
        let written = |live: &mut FfsLive| {
            let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
            let has = |live: &mut FfsLive, id: u32| {
                let mut raw = [0; 64];
                live.read(ino, ByteLen::new(64 + 64 * u64::from(id)), &mut raw).unwrap();
                raw[47]
            };
            (has(live, 7), ids.clone().filter(|&id| has(live, id) == 1).count())
        };
        let (of_7, others) = written(&mut live);
        assert!(of_7 == 1 && others < 150, "{shape:?}: {of_7}, {others}");
        // Nothing is lost of what is in memory.
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        live.set_attr(big, &size).unwrap();
        live.sync().unwrap();
        assert_eq!(written(&mut live), (1, 150), "{shape:?}");
        live.unmount().unwrap();
        let report = seekless_ffs::check(device).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
}

const OWNER_OF_7: Ownership = Ownership { uid: 7, gid: 9, perm: 0o644 };

/// A device of which a part cannot be read.
struct Unreadable {
    memory: Arc<MemoryDevice>,
    bad: Mutex<Range<u64>>,
}

impl BlockDevice for Unreadable {
    fn len(&self) -> ByteLen {
        self.memory.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let first = at.get() * 512;
        let bad = self.bad.lock().unwrap();
        if first < bad.end && first + buf.len() as u64 > bad.start {
            return Err(DeviceError::Io { at, source: std::io::Error::other("unreadable") });
        }
        self.memory.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A quota file that cannot be written keeps nothing else from the disk.
#[test]
fn an_unreadable_quota_file_loses_nothing_else() {
    for unmounts in [false, true] {
        let (memory, time) = (image(&SHAPES[0]), Time::new());
        let device = Arc::new(Unreadable { memory: memory.clone(), bad: Mutex::new(0..0) });
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        let far = Ownership { uid: 1_000_000, gid: 1_000_000, perm: 0o600 };
        let root = live.root();
        let file = live.make(root, b"file", NewFile::Regular, far).unwrap().ino;
        keep_quotas(&mut live, &both()).unwrap();
        let quotas = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
        let runs = live.data_runs(quotas).unwrap();
        let last = runs.last().unwrap().extent;
        // Its blocks leave the cache.
        let other = live.make(root, b"other", NewFile::Regular, far).unwrap().ino;
        for at in 0..64 {
            live.write(other, ByteLen::new(at << 16), &[at as u8; 1 << 16]).unwrap();
        }
        live.write(file, ByteLen::ZERO, b"contents").unwrap();
        *device.bad.lock().unwrap() = last.start.get() * 512..last.end().get() * 512;
        let done = if unmounts { live.unmount() } else { live.sync() };
        assert!(matches!(done, Err(FsError::Device(_) | FsError::Io { .. })), "{done:?}");
        if !unmounts {
            *device.bad.lock().unwrap() = 0..0;
            live.unmount().unwrap();
        }
        let report = seekless_ffs::check(memory.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let mut live = time.open(memory, Discipline::SoftUpdates, false);
        let file = live.lookup(root, b"file").unwrap().unwrap();
        assert_eq!(whole(&mut live, file), b"contents");
        live.unmount().unwrap();
    }
}

/// Files that cannot have quotas, and names that lead to one that does.
#[test]
fn other_files_as_quota_files() {
    let (device, time) = (image(&SHAPES[0]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let root = live.root();
    live.make(root, b"dir", NewFile::Directory, OWNER_OF_7).unwrap();
    live.make(root, b"link", NewFile::Symlink(b"file"), OWNER_OF_7).unwrap();
    live.make(root, b"pipe", NewFile::Special(FileKind::Fifo), OWNER_OF_7).unwrap();
    let file = live.make(root, b"file", NewFile::Regular, OWNER_OF_7).unwrap().ino;
    let keep = |live: &mut FfsLive, path: &str| {
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::User, Some(path));
        keep_quotas(live, &files)
    };
    for path in ["dir", "dir/", "link", "pipe", "dir/..", "/"] {
        let kept = keep(&mut live, path);
        assert!(matches!(kept, Err(FsError::Invalid(_))), "{path}: {kept:?}");
    }
    for path in ["link/file", "file/x"] {
        let kept = keep(&mut live, path);
        assert!(matches!(kept, Err(FsError::NotDirectory(_))), "{path}: {kept:?}");
    }
    // Neither file is made where the other one cannot be used, or where both would be one.
    for (user, group) in [("new", "dir"), ("dir", "new"), ("new", "/new")] {
        let mut files = QuotaFiles::none();
        files.keep(QuotaKind::User, Some(user));
        files.keep(QuotaKind::Group, Some(group));
        let kept = keep_quotas(&mut live, &files);
        assert!(matches!(kept, Err(FsError::Invalid(_))), "{user}, {group}: {kept:?}");
        assert_eq!(live.lookup(root, b"new").unwrap(), None, "{user}, {group}");
    }
    // A second name.
    live.link(file, root, b"second").unwrap();
    keep(&mut live, "second").unwrap();
    for name in [&b"file"[..], b"second"] {
        let removed = live.unlink(root, name);
        assert!(matches!(removed, Err(FsError::NotPermitted(_))), "{removed:?}");
        let moved = live.rename((root, name), (root, b"moved"), RenameMode::Replace);
        assert!(matches!(moved, Err(FsError::NotPermitted(_))), "{moved:?}");
        let replaced = live.rename((root, b"pipe"), (root, name), RenameMode::Replace);
        assert!(matches!(replaced, Err(FsError::NotPermitted(_))), "{replaced:?}");
    }
    live.unmount().unwrap();
    let report = seekless_ffs::check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Records of the highest ids, and more of them than are kept.
#[test]
fn large_quota_files() {
    let time = Time::new();
    let header = Words::Big64.file(&BTreeMap::new());
    let sparse = |live: &mut FfsLive, ids: &[u32]| {
        let ino = put(live, NAMES[0], &header);
        for &id in ids {
            let at = ByteLen::new(64 + 64 * u64::from(id));
            assert_eq!(live.write(ino, at, &[1; 64]).unwrap(), 64);
        }
    };
    let mut live = time.open(image(&SHAPES[2]), Discipline::Async, false);
    let highest = i32::MAX as u32;
    sparse(&mut live, &[5, highest, highest + 1, u32::MAX]);
    keep_quotas(&mut live, &both()).unwrap();
    let root = live.root();
    let ino = live.lookup(root, NAMES[0].as_bytes()).unwrap().unwrap();
    live.sync().unwrap();
    for (id, is_counted) in [(5, true), (highest, true), (highest + 1, false), (u32::MAX, false)] {
        let mut raw = [0; 64];
        live.read(ino, ByteLen::new(64 + 64 * u64::from(id)), &mut raw).unwrap();
        assert_eq!(raw[16..24] == [0; 8], is_counted, "{id}: {raw:?}");
    }
    live.unmount().unwrap();

    // Of 32 bits, as many records as fit in 33 MiB.
    let shape = Shape { mebibytes: 64, ..SHAPES[2] };
    let mut live = time.open(image(&shape), Discipline::Async, false);
    let ino = put(&mut live, NAMES[0], &[1; 512]);
    for at in 0..33 {
        live.write(ino, ByteLen::new(at << 20), &[1; 1 << 20]).unwrap();
    }
    let kept = keep_quotas(&mut live, &both());
    assert!(matches!(&kept, Err(FsError::Unsupported(why)) if why.contains("records")), "{kept:?}");
    live.unmount().unwrap();
}

/// Snapshots are not charged, and a file is again once it is none.
#[test]
fn snapshots_come_and_go() {
    let (device, time) = (image(&SHAPES[1]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    keep_quotas(&mut live, &both()).unwrap();
    let root = live.root();
    let file = live.make(root, b"file", NewFile::Regular, OWNER_OF_7).unwrap().ino;
    live.write(file, ByteLen::ZERO, &[1; 70_000]).unwrap();
    for round in 0..3 {
        let snap = live.make(root, b"snap", NewFile::Regular, OWNER_OF_7).unwrap().ino;
        live.take_snapshot(snap).unwrap();
        live.write(file, ByteLen::ZERO, &[2; 70_000]).unwrap();
        live.sync().unwrap();
        assert_eq!(usage(&records(&mut live, Words::Big64)), walk(&mut live, &[]), "{round}");
        live.release_snapshot(snap).unwrap();
        live.sync().unwrap();
        let counted = walk(&mut live, &[]);
        assert_eq!(counted[0][&7][1], 2);
        assert_eq!(usage(&records(&mut live, Words::Big64)), counted, "{round}");
        live.unlink(root, b"snap").unwrap();
        live.sync().unwrap();
        let counted = walk(&mut live, &[]);
        assert_eq!(counted[0][&7][1], 1);
        assert_eq!(usage(&records(&mut live, Words::Big64)), counted, "{round}");
    }
    live.unmount().unwrap();
    let report = seekless_ffs::check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}
