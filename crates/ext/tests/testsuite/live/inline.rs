//! Files and directories that have their contents in their inode.

use super::kernel::{Tree, mounted, open, shown};
use super::replay::ops;
use super::shapes::{INLINE, Shape, fsck, image, options, replay, replayed, run};
use crate::property::for_all;
use proptest::prelude::Just;
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

#[test]
fn random_operations_with_inline_data_do_what_the_model_does() {
    for (n, shape) in INLINE.iter().enumerate() {
        for discipline in shape.disciplines() {
            replayed(n, (shape, discipline), options, 3000);
        }
    }
}

/// `EXT4_INLINE_DATA_FL`.
const INSIDE: u32 = 0x1000_0000;

/// Files and directories below one that have their contents in their inodes.
fn inside(image: &ExtImage, dir: Ino) -> usize {
    let mut found = Vec::new();
    image
        .read_dir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                found.push(entry.ino);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let count = |ino: Ino| {
        let attr = image.attr(ino).unwrap();
        let below = if attr.kind == FileKind::Directory { inside(image, ino) } else { 0 };
        below + usize::from(attr.flags & INSIDE != 0)
    };
    found.into_iter().map(count).sum()
}

#[test]
fn small_files_stay_in_their_inodes_as_long_as_they_fit() {
    for (n, shape) in INLINE.iter().enumerate() {
        for discipline in shape.disciplines() {
            let most = Cell::new(0);
            let input = (Just((shape, discipline)), ops(3000, true));
            for_all((1, 20 + n), input, |((shape, discipline), ops)| {
                let mut replay = replay(shape, discipline);
                replay.run(&ops);
                let device = replay.finish();
                fsck(&device, "small files");
                let image = ExtImage::open(device, OpenOptions::default()).unwrap();
                most.update(|most| most.max(inside(&image, image.root())));
            });
            let most = most.get();
            assert!(most > 20, "{discipline} {shape:?}: {most} in their inodes");
        }
    }
}

#[test]
fn a_full_volume_with_inline_data_stays_whole() {
    for (n, mebibytes) in [(1, 5), (2, 5), (5, 3)] {
        let shape = Shape { mebibytes, ..INLINE[n] };
        for discipline in shape.disciplines() {
            let full = replayed(7, (&shape, discipline), options, 4000);
            assert!(full > 20, "the volume was never full");
        }
    }
}

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at * 7 + n) as u8 | 1).collect()
}

/// What the kernel has put into inodes is read, grows, and moves out when it must; the
/// kernel reads what is left, and goes on with it.
#[test]
fn what_the_kernel_has_in_inodes_is_changed_and_goes_back() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    for shape in &INLINE {
        for discipline in shape.disciplines() {
            there_and_back(shape, discipline);
        }
    }
}

fn there_and_back(shape: &Shape, discipline: Discipline) {
    let what = format!("{discipline} {shape:?}");
    let name = |n: usize| format!("f{n}");
    let target = |n: usize| "t".repeat(60 + n);
    let device = mounted(&image(shape), |at| {
        for n in 0..6 {
            let dir = at.join(format!("d{n}"));
            fs::create_dir(&dir).unwrap();
            for file in 0..=n {
                fs::write(dir.join(name(file)), bytes(file * 30)).unwrap();
            }
        }
        fs::create_dir(at.join("d5/sub")).unwrap();
        for n in [1, 30, 90] {
            std::os::unix::fs::symlink(target(n), at.join(format!("link{n}"))).unwrap();
        }
        let path = at.join("d5/f2");
        run("setfattr", &["-n", "user.one", "-v", "1", path.to_str().unwrap()]);
    });
    fsck(&device, &what);
    let mut live = open(&device, discipline);
    let root = live.root();
    let mut dirs = Vec::new();
    for n in 0..6 {
        let dir = live.lookup(root, format!("d{n}").as_bytes()).unwrap().unwrap();
        let inside = live.attr(dir).unwrap().flags & INSIDE != 0;
        assert!(inside || n > 3, "{what}: names of d{n} are in its inode");
        dirs.push(dir);
    }
    let sub = live.lookup(dirs[5], b"sub").unwrap().unwrap();
    let mut trees: Vec<Tree> = (0..5).map(|n| shown(&mut live, dirs[n])).collect();
    for (n, tree) in trees.iter().enumerate() {
        let theirs: Tree = (0..=n).map(|file| (name(file), bytes(file * 30))).collect();
        assert!(tree == &theirs, "{what}: d{n}");
    }
    for n in [1, 30, 90] {
        let link = live.lookup(root, format!("link{n}").as_bytes()).unwrap().unwrap();
        assert_eq!(live.read_link(link).unwrap(), target(n).into_bytes(), "{what}");
    }
    live.unlink(root, b"link1").unwrap();
    live.rename((root, b"link30"), (dirs[0], b"link"), RenameMode::Replace).unwrap();
    // Within an inode, over its end, and behind a hole.
    let file =
        |live: &mut ExtLive, dir: Ino, n| live.lookup(dir, name(n).as_bytes()).unwrap().unwrap();
    for (dir, n, at, len) in
        [(1, 1, 5, 10), (2, 2, 40, 40), (3, 3, 50, 900), (4, 4, 9000, 3), (4, 0, 0, 20)]
    {
        let ino = file(&mut live, dirs[dir], n);
        let new = vec![b'n'; len];
        assert_eq!(live.write(ino, ByteLen::new(at as u64), &new).unwrap(), len, "{what}");
        let held = trees[dir].get_mut(&name(n)).unwrap();
        held.resize(held.len().max(at + len), 0);
        held[at..at + len].copy_from_slice(&new);
    }
    // Shorter, longer, and far longer; space allocated.
    for (dir, n, len) in [(2, 1, 5), (3, 2, 80), (4, 3, 70_000)] {
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        let ino = file(&mut live, dirs[dir], n);
        live.set_attr(ino, &set).unwrap();
        trees[dir].get_mut(&name(n)).unwrap().resize(len as usize, 0);
    }
    let ino = file(&mut live, dirs[4], 2);
    let by_extents = !shape.how.iter().any(|how| how.contains("^extent"));
    live.allocate(ino, ByteLen::ZERO, ByteLen::new(20_000), by_extents).unwrap();
    if !by_extents {
        trees[4].get_mut(&name(2)).unwrap().resize(20_000, 0);
    }
    // Beside other attributes, as many as make the contents of an inode go.
    for (n, len) in [(1, 8), (2, 50), (2, 3)] {
        let ino = file(&mut live, dirs[2], n);
        live.set_xattr(ino, b"user.ours", &vec![b'a'; len], XattrMode::Any).unwrap();
        assert_eq!(live.xattrs(ino).unwrap()[0].value.len(), len, "{what}");
    }
    let ino = file(&mut live, dirs[5], 2);
    live.remove_xattr(ino, b"user.one").unwrap();
    let refused = live.set_xattr(ino, b"system.data", b"x", XattrMode::Any);
    assert!(matches!(refused, Err(FsError::Unsupported(_))), "{what}: {refused:?}");
    // More names than an inode has room for, and fewer again.
    for n in 0..80 {
        let made = live.make(dirs[3], format!("more{n}").as_bytes(), NewFile::Regular, OWNER);
        made.unwrap();
        trees[3].insert(format!("more{n}"), Vec::new());
    }
    assert_eq!(live.attr(dirs[3]).unwrap().flags & INSIDE, 0, "{what}: it has a block now");
    // An inline directory goes to another parent and comes back, over an empty one.
    let empty = live.make(dirs[1], b"empty", NewFile::Directory, OWNER).unwrap().ino;
    assert_ne!(live.attr(empty).unwrap().flags & INSIDE, 0, "{what}");
    let full = live.rmdir(root, b"d1");
    assert!(matches!(full, Err(FsError::NotEmpty(_))), "{what}: {full:?}");
    live.rename((dirs[5], b"sub"), (dirs[1], b"empty"), RenameMode::Replace).unwrap();
    assert_eq!(live.lookup(dirs[1], b"empty").unwrap(), Some(sub));
    assert_eq!(live.lookup(sub, b"..").unwrap(), Some(dirs[1]), "{what}: its parent");
    live.make(sub, b"below", NewFile::Regular, OWNER).unwrap();
    // Removed while open, and still written to.
    let held = file(&mut live, dirs[0], 0);
    live.hold(held).unwrap();
    live.unlink(dirs[0], b"f0").unwrap();
    live.write(held, ByteLen::ZERO, b"still there").unwrap();
    let mut read = [0; 20];
    assert_eq!(live.read(held, ByteLen::new(6), &mut read).unwrap(), 5);
    live.release(held).unwrap();
    live.unmount().unwrap();
    fsck(&device, &what);
    let device = mounted(&device, |at| {
        for (n, tree) in trees.iter().enumerate().skip(2) {
            let found: Tree = fs::read_dir(at.join(format!("d{n}")))
                .unwrap()
                .map(|entry| {
                    let entry = entry.unwrap();
                    let name = entry.file_name().into_string().unwrap();
                    (name, fs::read(entry.path()).unwrap())
                })
                .collect();
            assert!(&found == tree, "{what}: the kernel finds another d{n}");
        }
        let link = fs::read_link(at.join("d0/link")).unwrap();
        assert_eq!(link.to_str().unwrap(), target(30), "{what}");
        assert!(at.join("d1/empty/below").exists() && !at.join("link1").exists());
        // It goes on with what is in inodes.
        fs::write(at.join("d1/empty/another"), bytes(70)).unwrap();
        fs::remove_file(at.join("d1/empty/below")).unwrap();
        fs::write(at.join("d2/f1"), bytes(100)).unwrap();
    });
    fsck(&device, &what);
    let mut live = open(&device, discipline);
    let sub = live.lookup(dirs[1], b"empty").unwrap().unwrap();
    let tree = shown(&mut live, sub);
    assert_eq!(tree, Tree::from([("another".into(), bytes(70))]), "{what}");
    live.unmount().unwrap();
}

/// Without a journal only what promises nothing.
#[test]
fn disciplines_that_order_writes_are_refused_with_inline_data() {
    for discipline in [Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates] {
        for how in [&["-I", "256", "-O", "inline_data"][..], INLINE[4].how] {
            let shape = Shape { kind: "ext2", how, ..INLINE[4] };
            let clock = Arc::new(VirtualClock::new());
            let config = Config::new(discipline);
            let opened = ExtLive::open(image(&shape), clock, config, options());
            let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(&discipline.to_string()), "{error}");
            assert!(error.contains("inline_data") || error.contains("metadata_csum"), "{error}");
        }
    }
}
