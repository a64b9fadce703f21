//! Hard and soft limits, and the time above soft ones.

use super::*;

/// A file system with a soft limit of 40 sectors and 3 inodes for user 7, and 60 and 600 seconds
/// above them.
fn with_soft_limits(time: &Time) -> FfsLive {
    let mut live = time.open(image(&SHAPES[0]), Discipline::SoftUpdates, false);
    let records = BTreeMap::from([(0, ([0; 6], [60, 600])), (7, ([106, 40, 0, 10, 3, 0], [0, 0]))]);
    put(&mut live, NAMES[0], &Words::Big64.file(&records));
    let mut files = QuotaFiles::none();
    files.keep(QuotaKind::User, Some("/quota.user"));
    keep_quotas(&mut live, &files).unwrap();
    live.spend_reserve(false);
    live
}

fn over_quota(done: Result<impl std::fmt::Debug, FsError>) {
    assert!(matches!(done, Err(FsError::OverQuota(_))), "{done:?}");
}

fn record_of(live: &mut FfsLive, id: u32) -> Record {
    live.sync().unwrap();
    let ino = live.lookup(live.root(), b"quota.user").unwrap().unwrap();
    Words::Big64.parse(&whole(live, ino))[&id]
}

#[test]
fn a_soft_limit_is_a_hard_one_after_its_time() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    // Fragments of a sector: 39 are below the limit.
    let put = |live: &mut FfsLive, at: u64| live.write(ino, ByteLen::new(at * 512), &[1; 512]);
    (0..40).for_each(|at| assert_eq!(put(&mut live, at).unwrap(), 512));
    let began = time.now();
    assert_eq!(live.attr(ino).unwrap().sectors, 40);
    time.pass(60);
    put(&mut live, 40).unwrap();
    assert_eq!(record_of(&mut live, 7), ([106, 40, 41, 10, 3, 1], [began + 60, began + 600]));
    time.pass(1);
    over_quota(put(&mut live, 41));
    // The superuser may, and below the limit anybody.
    live.spend_reserve(true);
    put(&mut live, 41).unwrap();
    live.spend_reserve(false);
    over_quota(put(&mut live, 42));
    let size = Some(39 * 512);
    live.set_attr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
    put(&mut live, 39).unwrap();
    assert_eq!(record_of(&mut live, 7).1, [time.now() + 60, began + 600]);

    // Inodes, whose time is another.
    let make = |live: &mut FfsLive, name: &str| {
        live.make(root, name.as_bytes(), NewFile::Special(FileKind::Fifo), owner).map(drop)
    };
    make(&mut live, "second").unwrap();
    make(&mut live, "third").unwrap();
    time.pass(600);
    make(&mut live, "fourth").unwrap();
    time.pass(1);
    over_quota(make(&mut live, "fifth"));
    assert_eq!(live.lookup(root, b"fifth").unwrap(), None);
    live.unlink(root, b"fourth").unwrap();
    live.unlink(root, b"third").unwrap();
    make(&mut live, "third").unwrap();
    // Times that have begun go on when the volume is mounted again.
    assert_eq!(record_of(&mut live, 7).1[1], time.now() + 600);
    live.unmount().unwrap();
}

#[test]
fn a_hard_limit_is_one_more_than_the_most() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let (root, owner) = (live.root(), Ownership { uid: 7, gid: 9, perm: 0o644 });
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    // Twelve blocks of eight sectors; a further one would do, if it did not need an indirect one.
    assert_eq!(live.write(ino, ByteLen::ZERO, &[1; 12 * 4096 + 1]).unwrap(), 12 * 4096);
    over_quota(live.write(ino, ByteLen::new(12 * 4096), &[1]));
    assert_eq!(live.attr(ino).unwrap().sectors, 96);
    let other = live.make(root, b"other", NewFile::Regular, owner).unwrap().ino;
    assert_eq!(live.write(other, ByteLen::ZERO, &[1; 9 * 512]).unwrap(), 9 * 512);
    over_quota(live.write(other, ByteLen::new(9 * 512), &[1]));
    // A file that somebody else gives away, and one of the group's alone.
    let foreign = Ownership { uid: 8, ..owner };
    let third = live.make(root, b"third", NewFile::Regular, foreign).unwrap().ino;
    live.write(third, ByteLen::ZERO, &[1]).unwrap();
    let give = |uid, gid| SetAttr { uid, gid, ..SetAttr::default() };
    over_quota(live.set_attr(third, &give(Some(7), None)));
    assert_eq!(live.attr(third).unwrap().uid, 8);
    live.set_attr(third, &give(None, Some(10))).unwrap();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    live.set_attr(other, &size(1024)).unwrap();
    live.set_attr(third, &give(Some(7), None)).unwrap();
    // Ten inodes are one too many.
    for n in 3..9 {
        live.make(root, format!("{n}").as_bytes(), NewFile::Symlink(b"x"), owner).unwrap();
    }
    over_quota(live.make(root, b"9", NewFile::Symlink(b"x"), owner));
    assert_eq!(record_of(&mut live, 7).0, [106, 40, 99, 10, 3, 9]);
    // Deleted files count until nobody has them open.
    live.hold(ino).unwrap();
    live.unlink(root, b"file").unwrap();
    over_quota(live.write(other, ByteLen::new(4096), &[1]));
    live.release(ino).unwrap();
    live.write(other, ByteLen::new(1024), &[1]).unwrap();
    assert_eq!(record_of(&mut live, 7).0, [106, 40, 4, 10, 3, 8]);
    live.unmount().unwrap();
}

/// One write may cross a soft limit and go on, also if a time above it was over once.
#[test]
fn a_write_that_crosses_a_soft_limit_is_whole() {
    let time = Time::new();
    let mut live = with_soft_limits(&time);
    let began = time.now();
    time.pass(1_000_000);
    let owner = Ownership { uid: 7, gid: 9, perm: 0o644 };
    let root = live.root();
    let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
    let len = 10 * 4096;
    assert_eq!(live.write(ino, ByteLen::ZERO, &vec![1; len]).unwrap(), len);
    assert_eq!(record_of(&mut live, 7), ([106, 40, 80, 10, 3, 1], [time.now() + 60, began + 600]));
    // A block that reaches the limit, and the index block that leads to it, are of one operation.
    let cut = SetAttr { size: Some(4 * 4096), ..SetAttr::default() };
    live.set_attr(ino, &cut).unwrap();
    time.pass(1_000_000);
    let behind = ByteLen::new(12 * 4096);
    assert_eq!(live.write(ino, behind, &[1; 4096]).unwrap(), 4096);
    assert_eq!(record_of(&mut live, 7), ([106, 40, 48, 10, 3, 1], [time.now() + 60, began + 600]));
    live.unmount().unwrap();
}
