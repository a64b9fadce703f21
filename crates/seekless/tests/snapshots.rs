//! Snapshots and growth of UFS images: typed errors, and volumes that stay as they were.

use seekless::{Build, Check, ErrorKind, Format, Grow, Outcome, Snapshots, compare, open};
use std::fs;
use std::path::{Path, PathBuf};

/// A UFS2 image with one file.
fn image(work: &Path) -> PathBuf {
    let (tree, path) = (work.join("tree"), work.join("disk.ufs"));
    fs::create_dir(&tree).expect("tree");
    fs::write(tree.join("file"), "text").expect("tree");
    Build::of([&tree]).format(Format::Ufs2).size(64 << 20).write(&path).expect("UFS");
    path
}

fn is_in_order(path: &Path) {
    assert_eq!(Check::of(path).run().expect("a check").outcome, Outcome::Clean);
}

#[test]
fn snapshots_that_stay_are_as_they_were() {
    let work = tempfile::tempdir().expect("directory");
    let path = image(work.path());
    let before = work.path().join("before.ufs");
    let snapshots = Snapshots::of(&path);
    snapshots.take("one").expect("a snapshot");
    fs::copy(&path, &before).expect("copy");
    let kind = |error: seekless::Error| error.kind();
    assert_eq!(snapshots.take("one").map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(snapshots.take("/none/one").map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(snapshots.remove(["two"]).map_err(kind), Err(ErrorKind::Usage));
    snapshots.take("two").expect("a snapshot");
    let at = |image: &Path, name: &str| open(format!("{}@{name}", image.display())).expect("UFS");
    assert_eq!(snapshots.remove(["two"]).expect("one"), 1);
    let changed = compare(&at(&before, "one"), &at(&path, "one")).expect("both");
    assert!(changed.is_empty(), "{changed:?}");
    is_in_order(&path);
    // Volumes with snapshots do not grow.
    let grow = Grow::of(&path).size(96 << 20);
    assert_eq!(grow.run().map_err(kind), Err(ErrorKind::Unsupported));
    assert_eq!(snapshots.remove_all().expect("all"), 1);
    assert_eq!(snapshots.list().expect("none"), []);
    assert_eq!(grow.run().expect("growth").bytes, 96 << 20);
    assert_eq!(Grow::of(&path).size(32 << 20).run().map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(open(&path).expect("UFS").read("/file").expect("file"), b"text");
    is_in_order(&path);
}

#[test]
fn other_formats_and_directories_are_refused() {
    let work = tempfile::tempdir().expect("directory");
    let (tree, ext) = (work.path().join("tree"), work.path().join("ext"));
    fs::create_dir(&tree).expect("tree");
    Build::of([&tree]).write(&ext).expect("ext4");
    let kind = |error: seekless::Error| error.kind();
    assert_eq!(Snapshots::of(&ext).list().map_err(kind), Err(ErrorKind::Unsupported));
    assert_eq!(Snapshots::of(&ext).take("one").map_err(kind), Err(ErrorKind::Unsupported));
    assert_eq!(Grow::of(&ext).size(1 << 30).plan().map_err(kind), Err(ErrorKind::Unsupported));
    assert_eq!(Snapshots::of(&tree).list().map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(Snapshots::of(&tree).remove_all().map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(Check::of(&tree).background().map_err(kind), Err(ErrorKind::Usage));
    assert_eq!(Check::of(&tree).preen_in_background().map_err(kind), Err(ErrorKind::Usage));
    let other = Path::new("/proc");
    assert_eq!(Check::of(other).preen_in_background().map_err(kind), Err(ErrorKind::Unsupported));
}
