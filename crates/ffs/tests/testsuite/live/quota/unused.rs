//! Quotas of volumes that are not in use: reported, compared, corrected and set. Usage is counted by
//! a walk of the tree, records are read here from the bytes of the files.

use super::*;
use crate::damage::cut::writes_of;
use seekless_ffs::{Outcome, change_quotas, compare_quotas, correct_quotas, quotas};
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{
    Balance, LimitChange, OwnerKind, OwnerQuota, OwnerUsage, QuotaBook, QuotaChange, QuotaSelection,
};

const KINDS: [OwnerKind; 2] = [OwnerKind::User, OwnerKind::Group];

/// Limits that were set, by id: hard and soft ones of space and of inodes.
type Limits = BTreeMap<u32, [u64; 4]>;

fn all() -> QuotaSelection {
    QuotaSelection::default()
}

fn moment(time: &Time) -> Timestamp {
    Timestamp { secs: time.now(), nanos: 0 }
}

fn report(device: &Arc<MemoryDevice>) -> Vec<QuotaBook> {
    quotas(device.clone(), &all(), OpenOptions::default()).unwrap()
}

/// Works on a volume without keeping its quotas, and returns the usage that it has then.
fn work_unseen(device: &Arc<MemoryDevice>, time: &Time, users: &mut Users) -> [Counted; 2] {
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    users.work(&mut live, 40);
    for ino in std::mem::take(&mut users.held) {
        live.release(ino).unwrap();
    }
    let counted = walk(&mut live, &[]);
    live.unmount().unwrap();
    counted
}

fn stored(device: &Arc<MemoryDevice>, time: &Time, words: Words) -> [BTreeMap<u32, Record>; 2] {
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let records = records(&mut live, words);
    live.unmount().unwrap();
    records
}

/// The differences that a comparison has to find.
fn differences(
    records: &[BTreeMap<u32, Record>; 2],
    counted: &[Counted; 2],
) -> Vec<(OwnerKind, u32, [u64; 2], [u64; 2])> {
    let recorded = usage(records);
    let mut found = Vec::new();
    for ((kind, recorded), counted) in KINDS.into_iter().zip(&recorded).zip(counted) {
        let ids: BTreeSet<u32> = recorded.keys().chain(counted.keys()).copied().collect();
        for id in ids {
            let [recorded, counted] =
                [recorded, counted].map(|all| all.get(&id).copied().unwrap_or_default());
            if recorded != counted {
                found.push((kind, id, recorded, counted));
            }
        }
    }
    found
}

fn compared(device: &Arc<MemoryDevice>) -> Vec<(OwnerKind, u32, [u64; 2], [u64; 2])> {
    let comparison = compare_quotas(device.clone(), &all()).unwrap();
    assert_eq!((comparison.compared, comparison.caveat), (KINDS.to_vec(), None));
    assert_eq!(comparison.unusable, []);
    let usage = |it: OwnerUsage| [it.space / 512, it.inodes];
    let found = comparison.differences.into_iter();
    found.map(|it| (it.kind, it.id, usage(it.recorded), usage(it.counted))).collect()
}

#[test]
fn reports_equal_counts_and_limits_stay() {
    let mut stale = 0;
    for (seed, shape) in (1..).zip(&SHAPES) {
        for long in [true, false] {
            let (device, time, words) = (image(shape), Time::new(), Words::of(shape, long));
            if long {
                correct_quotas(
                    device.clone(),
                    &QuotaSelection { kinds: KINDS.to_vec(), ..all() },
                    moment(&time),
                )
                .unwrap();
            } else {
                let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
                for name in NAMES {
                    put(&mut live, name, &[]);
                }
                live.unmount().unwrap();
            }
            let mut users = Users::new(seed, shape, Discipline::SoftUpdates);
            let mut limits = [Limits::new(), Limits::new()];
            for round in 0..5 {
                let counted = work_unseen(&device, &time, &mut users);
                let expected = differences(&stored(&device, &time, words), &counted);
                stale += expected.len();
                assert_eq!(compared(&device), expected, "{shape:?}, round {round}");
                if round % 2 == 0 {
                    correct_quotas(device.clone(), &all(), moment(&time)).unwrap();
                    assert_eq!(compared(&device), [], "{shape:?}, round {round}");
                }
                for _ in 0..4 {
                    let at = users.below(2);
                    let id = IDS[users.below(4)];
                    let mut draw = |unit: u64| match users.below(4) {
                        0 => None,
                        1 => Some(0),
                        _ => Some((1 + users.below(4000) as u64) * unit),
                    };
                    // Limits of space between two sectors are rounded up.
                    let space = LimitChange { soft: draw(500), hard: draw(512) };
                    let inodes = LimitChange { soft: draw(1), hard: draw(1) };
                    let change = QuotaChange::Limits { id, space, inodes };
                    change_quotas(device.clone(), &all(), KINDS[at], &change, moment(&time))
                        .unwrap();
                    let one = limits[at].entry(id).or_default();
                    let sectors = |bytes: u64| bytes.div_ceil(512);
                    let new = [
                        space.hard.map(sectors),
                        space.soft.map(sectors),
                        inodes.hard,
                        inodes.soft,
                    ];
                    for (limit, new) in one.iter_mut().zip(new) {
                        *limit = new.unwrap_or(*limit);
                    }
                }
                let records = stored(&device, &time, words);
                let books = report(&device);
                for (at, (book, kind)) in books.iter().zip(KINDS).enumerate() {
                    assert_eq!(book.kind, kind);
                    let mut expected: BTreeMap<u32, [u64; 6]> = BTreeMap::new();
                    for (&id, &[sectors, inodes]) in &counted[at] {
                        let one = expected.entry(id).or_default();
                        (one[2], one[5]) = (sectors, inodes);
                    }
                    for (&id, limits) in &limits[at] {
                        let one = expected.entry(id).or_default();
                        [one[0], one[1], one[3], one[4]] = *limits;
                    }
                    expected.retain(|_, numbers| *numbers != [0; 6]);
                    let written = records[at].iter().map(|(&id, record)| (id, record.0));
                    let written: BTreeMap<_, _> =
                        written.filter(|(_, numbers)| *numbers != [0; 6]).collect();
                    assert_eq!(written, expected, "{shape:?}, round {round}, {kind:?}");
                    let in_units =
                        |one: Balance, unit| [one.hard / unit, one.soft / unit, one.used / unit];
                    let reported = book.quotas.iter().map(|quota| {
                        let ([a, b, c], [d, e, f]) =
                            (in_units(quota.space, 512), in_units(quota.inodes, 1));
                        (quota.id, [a, b, c, d, e, f])
                    });
                    assert_eq!(
                        reported.collect::<BTreeMap<_, _>>(),
                        expected,
                        "{shape:?}, round {round}"
                    );
                    for quota in &book.quotas {
                        for (one, end) in [(quota.space, 0), (quota.inodes, 1)] {
                            assert_eq!(one.over, one.soft > 0 && one.used >= one.soft);
                            let end = records[at][&quota.id].1[end];
                            let expires = if one.over && quota.id != 0 { end } else { 0 };
                            assert_eq!(one.expires, expires);
                            assert!(!one.over || quota.id == 0 || end > time.now());
                        }
                    }
                }
                let found = seekless_ffs::check(device.clone()).unwrap();
                assert!(found.is_clean(), "{:#?}", found.findings);
            }
        }
    }
    assert!(stale > 100, "{stale} differences");
}

/// The time above a soft limit begins when a limit is set below usage, and goes on while it stays so.
#[test]
fn times_begin_with_limits_that_are_exceeded() {
    let (device, time) = (image(&SHAPES[0]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    for name in [&b"a"[..], b"b", b"c"] {
        live.make(root, name, NewFile::Regular, owner).unwrap();
    }
    live.unmount().unwrap();
    let set = |soft: u64| {
        let inodes = LimitChange { soft: Some(soft), hard: None };
        let change = QuotaChange::Limits { id: 7, space: LimitChange::default(), inodes };
        change_quotas(device.clone(), &all(), OwnerKind::User, &change, moment(&time)).unwrap();
        let books = report(&device);
        let quota = books[0].quotas.iter().find(|quota| quota.id == 7).unwrap();
        (quota.inodes.over, quota.inodes.expires)
    };
    let grace = |space: Option<u64>, inodes: Option<u64>| {
        let change = QuotaChange::Grace { space, inodes };
        change_quotas(device.clone(), &all(), OwnerKind::User, &change, moment(&time)).unwrap();
        let grace = report(&device)[0].grace;
        (grace.space, grace.inodes)
    };
    let begin = time.now();
    const WEEK: i64 = 7 * 24 * 3600;
    assert_eq!(set(4), (false, 0));
    assert_eq!(set(3), (true, begin + WEEK));
    time.pass(100);
    assert_eq!(set(2), (true, begin + WEEK));
    assert_eq!(grace(None, Some(60)), (WEEK as u64, 60));
    assert_eq!(set(1), (true, begin + WEEK));
    assert_eq!(set(10), (false, 0));
    assert_eq!(set(1), (true, begin + 160));
    assert_eq!(grace(Some(5), None), (5, 60));
    // The file of the other kind was not made.
    assert_eq!(report(&device).len(), 1);
}

/// Changes and selections that are refused change nothing.
#[test]
fn refused_changes() {
    let (device, time) = (image(&SHAPES[0]), Time::new());
    let bytes = |device: &Arc<MemoryDevice>| {
        let mut bytes = vec![0; device.len().get() as usize];
        device.read(Lba::ZERO, &mut bytes).unwrap();
        bytes
    };
    let missing = compare_quotas(device.clone(), &all());
    assert!(matches!(missing, Err(FsError::Unsupported(_))), "{missing:?}");
    let named = QuotaSelection { user_file: Some("none/at/all".into()), ..all() };
    let found = quotas(device.clone(), &named, OpenOptions::default());
    assert!(matches!(found, Err(FsError::NotFound(_))), "{found:?}");
    let comparison = compare_quotas(device.clone(), &named).unwrap();
    assert_eq!(comparison.unusable.len(), 1);
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    put(&mut live, NAMES[0], &[]);
    let mut other = b"QUOTA64\0\x20\x08\x11\x05\0\0\0\x40\0\0\0\x40".to_vec();
    other.resize(64, 1);
    put(&mut live, "far", &other);
    live.unmount().unwrap();
    let before = bytes(&device);
    let limits = |id, limit| QuotaChange::Limits {
        id,
        space: LimitChange { soft: None, hard: Some(limit) },
        inodes: LimitChange::default(),
    };
    let change = |selection: &QuotaSelection, kind, change| {
        change_quotas(device.clone(), selection, kind, &change, moment(&time))
    };
    let refused = change(&all(), OwnerKind::Project, limits(1, 1));
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    let version = QuotaSelection { user_file: Some("far".into()), ..all() };
    let refused = change(&version, OwnerKind::User, limits(1, 1));
    assert!(matches!(refused, Err(FsError::Corrupt { .. })), "{refused:?}");
    let twice = QuotaSelection { group_file: Some(NAMES[0].into()), ..all() };
    let refused = change(&twice, OwnerKind::User, limits(1, 1));
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    // Projects beside users: those are not changed either.
    let projects = QuotaSelection { kinds: vec![OwnerKind::User, OwnerKind::Project], ..all() };
    let grace = QuotaChange::Grace { space: Some(60), inodes: None };
    let refused = change(&projects, OwnerKind::User, grace);
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    assert!(bytes(&device) == before);
    // A directory with the name of a quota file is refused, unless others are meant.
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let owner = Ownership { uid: 0, gid: 0, perm: 0o755 };
    let root = live.root();
    live.make(root, NAMES[1].as_bytes(), NewFile::Directory, owner).unwrap();
    live.unmount().unwrap();
    let read = |selection: &QuotaSelection| {
        quotas(device.clone(), selection, OpenOptions::default()).map(|books| books.len())
    };
    assert!(matches!(read(&all()), Err(FsError::Invalid(_))));
    let users = QuotaSelection { kinds: vec![OwnerKind::User], ..all() };
    assert_eq!(read(&users).unwrap(), 1);
    let refused = change(&users, OwnerKind::Group, grace);
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    // Too large for 32 bits, and a number that is not counted.
    for (id, limit) in [(1, u64::MAX), (1 << 31, 1)] {
        let refused = change(&users, OwnerKind::User, limits(id, limit));
        assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    }
    let grace = QuotaChange::Grace { space: Some(1 << 31), inodes: None };
    let refused = change(&users, OwnerKind::User, grace);
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    let books = quotas(device.clone(), &users, OpenOptions::default()).unwrap();
    assert!(books[0].quotas.iter().all(|quota| quota.space.hard == 0));
    let found = seekless_ffs::check(device).unwrap();
    assert!(found.is_clean(), "{:#?}", found.findings);
}

/// A change that is cut off after any of its writes leaves the limits of all other owners, those of
/// the new one or none of them, and a volume that a preen repairs.
#[test]
fn a_change_that_was_cut_off_leaves_other_limits() {
    const NEW: u32 = 1_000_000;
    for shape in &SHAPES {
        let (device, time) = (image(shape), Time::new());
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        let root = live.root();
        for n in 0..20 {
            let owner = Ownership { uid: n * 30, gid: 0, perm: 0o644 };
            live.make(root, format!("f{n}").as_bytes(), NewFile::Regular, owner).unwrap();
        }
        live.unmount().unwrap();
        let set = |device: Arc<dyn BlockDevice>, id: u32| {
            let limit = |n: u32| LimitChange { soft: None, hard: Some(u64::from(n) * 512) };
            let change = QuotaChange::Limits { id, space: limit(id + 1), inodes: limit(id + 2) };
            change_quotas(device, &all(), OwnerKind::User, &change, moment(&time)).unwrap();
        };
        (0..20).for_each(|n| set(device.clone(), n * 30));
        let limits = |device: &Arc<MemoryDevice>| -> BTreeMap<u32, [u64; 2]> {
            let books = report(device);
            let of = |quota: &OwnerQuota| (quota.id, [quota.space.hard, quota.inodes.hard]);
            books[0].quotas.iter().map(of).collect()
        };
        let mut bytes = vec![0; device.len().get() as usize];
        device.read(Lba::ZERO, &mut bytes).unwrap();
        let before = limits(&device);
        let writes = writes_of(|device| set(device, NEW), &bytes);
        set(device.clone(), NEW);
        let after = limits(&device);
        assert!(before.len() == 20 && after.len() == 21 && writes.len() > 5, "{writes:?}");
        for (n, (at, data)) in writes.iter().enumerate() {
            let start = at.to_bytes().get() as usize;
            bytes[start..start + data.len()].copy_from_slice(data);
            let device = Arc::new(MemoryDevice::new(bytes.clone()));
            let repaired = seekless_ffs::preen(device.clone()).unwrap();
            let findings = &repaired.report.findings;
            assert_ne!(repaired.outcome, Outcome::Left, "{shape:?}, write {n}: {findings:#?}");
            let found = limits(&device);
            assert!(found == before || found == after, "{shape:?}, write {n}: {found:?}");
        }
    }
}

/// Where there is no room for all records, a correction fails, and limits of a new owner do.
#[test]
fn a_full_volume_is_not_called_corrected() {
    let (device, time) = (image(&SHAPES[0]), Time::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let root = live.root();
    for n in 0..40 {
        let owner = Ownership { uid: n * 50_000, gid: 0, perm: 0o644 };
        live.make(root, format!("f{n}").as_bytes(), NewFile::Regular, owner).unwrap();
    }
    let ino = put(&mut live, "filling", &[]);
    let (mut at, mut len) = (0, 1 << 16);
    while len > 0 {
        match live.write(ino, ByteLen::new(at), &vec![1; len]) {
            Ok(written) => at += written as u64,
            Err(FsError::NoSpace(_)) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    live.unmount().unwrap();
    let users = QuotaSelection { kinds: vec![OwnerKind::User], ..all() };
    let found = correct_quotas(device.clone(), &users, moment(&time));
    assert!(matches!(found, Err(FsError::NoSpace(_))), "{found:?}");
    let hard = LimitChange { soft: None, hard: Some(9) };
    let change = |id| {
        let change = QuotaChange::Limits { id, space: LimitChange::default(), inodes: hard };
        change_quotas(device.clone(), &users, OwnerKind::User, &change, moment(&time))
    };
    let found = change(i32::MAX as u32);
    assert!(matches!(found, Err(FsError::NoSpace(_))), "{found:?}");
    let found = seekless_ffs::check(device.clone()).unwrap();
    assert!(found.is_clean(), "{:#?}", found.findings);
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    live.unlink(root, b"filling").unwrap();
    live.unmount().unwrap();
    change(i32::MAX as u32).unwrap();
    assert!(compare_quotas(device, &users).unwrap().is_clean());
}

/// Records far apart, ones cut off by the end of the file, and more of them than are kept in memory.
#[test]
fn large_and_truncated_quota_files() {
    let time = Time::new();
    let (device, highest) = (image(&SHAPES[2]), i32::MAX as u32);
    let header = Words::Big64.file(&BTreeMap::new());
    let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
    let ino = put(&mut live, NAMES[0], &header);
    let at = |id: u32| 64 + 64 * u64::from(id);
    for id in [5, 6, highest, highest + 1, u32::MAX] {
        assert_eq!(live.write(ino, ByteLen::new(at(id)), &[1; 64]).unwrap(), 64);
    }
    live.unmount().unwrap();
    let ids = |device: &Arc<MemoryDevice>| -> Vec<u32> {
        report(device)[0].quotas.iter().map(|quota| quota.id).collect()
    };
    assert_eq!(ids(&device), [5, 6, highest]);
    let truncated = |size: u64| {
        let mut live = time.open(device.clone(), Discipline::SoftUpdates, false);
        let size = SetAttr { size: Some(size), ..SetAttr::default() };
        live.set_attr(ino, &size).unwrap();
        live.unmount().unwrap();
        let found = ids(&device);
        correct_quotas(device.clone(), &all(), moment(&time)).unwrap();
        assert!(compare_quotas(device.clone(), &all()).unwrap().is_clean());
        found
    };
    assert_eq!(truncated(at(6) + 63), [5]);
    // Of the header only a part, which makes it a file of 32 bits.
    assert_eq!(truncated(63), [0]);
    assert_eq!(ids(&device), [0], "the root is counted");

    let device = image(&Shape { mebibytes: 64, ..SHAPES[2] });
    let mut live = time.open(device.clone(), Discipline::Async, false);
    let ino = put(&mut live, NAMES[0], &[1; 512]);
    for at in 0..33 {
        live.write(ino, ByteLen::new(at << 20), &[1; 1 << 20]).unwrap();
    }
    live.unmount().unwrap();
    for found in [
        quotas(device.clone(), &all(), OpenOptions::default()).map(drop),
        compare_quotas(device.clone(), &all()).map(drop),
        correct_quotas(device.clone(), &all(), moment(&time)),
    ] {
        let is_refused =
            matches!(&found, Err(FsError::Unsupported(why)) if why.contains("records"));
        assert!(is_refused, "{found:?}");
    }
}
