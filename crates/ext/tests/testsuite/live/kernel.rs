//! The kernel and the engine change an image in turn: each finds what the other has
//! left, and e2fsck finds nothing. Only root mounts images; says so and passes
//! otherwise.

use super::shapes::{
    INLINE, JOURNALLED, SHAPES, Shape, WITH_EXTENTS, fsck, image, options, run, scratch, written,
};
use crate::holes;
use crate::slice::some_or_all;
use crate::unmount::unmount;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, XattrMode};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

/// Mounts an image for as long as something takes; what the kernel has made of it is
/// returned.
pub(crate) fn mounted(device: &MemoryDevice, then: impl FnOnce(&Path)) -> Arc<MemoryDevice> {
    mounted_with(device, "rw", then)
}

/// As [`mounted`], with other options for the mount.
pub(crate) fn mounted_with(
    device: &MemoryDevice,
    options: &str,
    then: impl FnOnce(&Path),
) -> Arc<MemoryDevice> {
    let (image, at) = (written(device), scratch());
    fs::create_dir_all(&at).unwrap();
    let loop_device = attached(&image);
    run("mount", &["-t", "ext4", "-o", options, &loop_device, at.to_str().unwrap()]);
    // It is detached when it is unmounted.
    run("losetup", &["--detach", &loop_device]);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| then(&at)));
    unmount(&at, &image);
    done.unwrap_or_else(|why| std::panic::resume_unwind(why));
    let bytes = holes::take(&image);
    fs::remove_file(&image).unwrap();
    fs::remove_dir(&at).unwrap();
    Arc::new(MemoryDevice::new(bytes))
}

/// A loop device for an image, a rotational one wherever the image lies: for others the kernel
/// chooses other groups of blocks (`bdev_nonrot` in `fs/ext4/mballoc.c`).
fn attached(image: &Path) -> String {
    let args: [&OsStr; 3] = ["--find".as_ref(), "--show".as_ref(), image.as_os_str()];
    // Another test may take the free device first.
    let device = (0..50).find_map(|_| {
        let output = Command::new("losetup").args(args).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    let device = device.expect("a loop device").trim().to_owned();
    let name = device.strip_prefix("/dev/").unwrap();
    fs::write(format!("/sys/block/{name}/queue/rotational"), "1").unwrap();
    device
}

pub(crate) fn open(device: &Arc<MemoryDevice>, discipline: Discipline) -> ExtLive {
    let clock = Arc::new(VirtualClock::new()) as Arc<dyn Clock>;
    ExtLive::open(device.clone(), clock, Config::new(discipline), options()).unwrap()
}

/// Contents by names.
pub(crate) type Tree = BTreeMap<String, Vec<u8>>;

fn contents(n: usize) -> Vec<u8> {
    (0..n * 37 % 9000).map(|at| (at * n) as u8).collect()
}

pub(crate) fn shown(live: &mut ExtLive, dir: Ino) -> Tree {
    let mut found = Vec::new();
    live.read_dir(dir, 0, &mut |entry| {
        found.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
        ControlFlow::Continue(())
    })
    .unwrap();
    found.retain(|(name, _)| name != "." && name != "..");
    let read = |(name, ino): (String, Ino)| {
        let mut bytes = vec![0; live.attr(ino).unwrap().size as usize];
        let mut done = 0;
        while done < bytes.len() {
            done += live.read(ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
        }
        (name, bytes)
    };
    found.into_iter().map(read).collect()
}

fn listed(at: &Path) -> Tree {
    let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
}

/// All shapes, with the disciplines that each may have.
fn all() -> Vec<(&'static Shape, Vec<Discipline>)> {
    let plain = SHAPES.iter().map(|shape| (shape, shape.disciplines().collect::<Vec<_>>()));
    let free = [Discipline::Async, Discipline::Sync, Discipline::Normal];
    let mapped = WITH_EXTENTS.iter().map(|shape| (shape, free.to_vec()));
    let modes = JournalMode::ALL.map(Discipline::Journal);
    let logged = JOURNALLED.iter().map(|shape| (shape, modes.to_vec()));
    let inline = INLINE[..4].iter().map(|shape| (shape, modes.to_vec()));
    plain.chain(mapped).chain(logged).chain(inline).collect()
}

#[test]
fn the_kernel_and_the_engine_change_an_image_in_turn() {
    for (n, (shape, disciplines)) in all().into_iter().enumerate() {
        let is_newest = shape == &JOURNALLED[6] || shape == &JOURNALLED[7];
        if n % some_or_all(6, 3) == 0 || is_newest || shape == &SHAPES[5] || shape == &INLINE[0] {
            in_turn(shape, disciplines[n % 3]);
        }
    }
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext live -- --ignored"]
fn the_kernel_and_the_engine_change_all_images_in_turn() {
    for (shape, disciplines) in all() {
        for discipline in disciplines {
            in_turn(shape, discipline);
        }
    }
}

fn in_turn(shape: &Shape, discipline: Discipline) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    let what = format!("{discipline} {shape:?}");
    let device = image(shape);
    let mut live = open(&device, discipline);
    let root = live.root();
    let ours = live.make(root, b"ours", NewFile::Directory, OWNER).unwrap().ino;
    for n in 0..700 {
        let name = format!("a name of ours, number {n}");
        let file = live.make(ours, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
        live.write(file, ByteLen::ZERO, &contents(n)).unwrap();
        if n % 50 == 0 {
            let value = vec![b'v'; n];
            live.set_xattr(file, b"user.label", &value, XattrMode::Any).unwrap();
        }
    }
    let mut tree = shown(&mut live, ours);
    assert_eq!(tree.len(), 700);
    live.unmount().unwrap();
    fsck(&device, &what);
    let mut theirs = Tree::new();
    let device = mounted(&device, |at| {
        assert!(listed(&at.join("ours")) == tree, "{what}: what the kernel finds");
        for n in (0..700).step_by(3) {
            let name = format!("a name of ours, number {n}");
            fs::remove_file(at.join("ours").join(&name)).unwrap();
            tree.remove(&name);
        }
        fs::create_dir(at.join("theirs")).unwrap();
        for n in 0..600 {
            let name = format!("a name of theirs, number {n}");
            fs::write(at.join("theirs").join(&name), contents(n + 5)).unwrap();
            theirs.insert(name, contents(n + 5));
            let name = format!("another, {n}");
            fs::write(at.join("ours").join(&name), contents(n)).unwrap();
            tree.insert(name, contents(n));
        }
    });
    fsck(&device, &what);
    let mut live = open(&device, discipline);
    let ours = live.lookup(root, b"ours").unwrap().unwrap();
    let dir = live.lookup(root, b"theirs").unwrap().unwrap();
    assert!(shown(&mut live, ours) == tree, "{what}: what the engine finds");
    assert!(shown(&mut live, dir) == theirs, "{what}: what the engine finds");
    for n in 0..400 {
        let name = format!("a name of theirs, number {n}");
        live.unlink(dir, name.as_bytes()).unwrap();
        theirs.remove(&name);
        let name = format!("of ours among theirs, number {n}");
        let file = live.make(dir, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
        live.write(file, ByteLen::ZERO, &contents(n)).unwrap();
        theirs.insert(name, contents(n));
    }
    live.unmount().unwrap();
    fsck(&device, &what);
    let device = mounted(&device, |at| {
        assert!(listed(&at.join("ours")) == tree, "{what}: what the kernel finds again");
        assert!(listed(&at.join("theirs")) == theirs, "{what}: what the kernel finds again");
        for name in theirs.keys() {
            fs::remove_file(at.join("theirs").join(name)).unwrap();
        }
        fs::remove_dir(at.join("theirs")).unwrap();
    });
    fsck(&device, &what);
}

/// Blocks of attributes that the kernel lets files share are counted: who changes his
/// gets one of his own, and the last one gives it back.
#[test]
fn shared_attributes_stay_those_of_the_others() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    let small = Shape { how: &["-I", "128"], ..JOURNALLED[7] };
    let ordered = Discipline::Journal(JournalMode::Ordered);
    for (shape, discipline) in
        [(&SHAPES[0], Discipline::SoftUpdates), (&SHAPES[7], Discipline::Async), (&small, ordered)]
    {
        let what = format!("{discipline} {shape:?}");
        let device = mounted(&image(shape), |at| {
            for n in 0..5 {
                let path = at.join(format!("file {n}"));
                fs::write(&path, b"some").unwrap();
                let path = path.to_str().unwrap();
                run("setfattr", &["-n", "user.label", "-v", "the same for all of them", path]);
            }
        });
        let reader = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
        let ino = |n: usize| reader.lookup(reader.root(), format!("file {n}").as_bytes());
        let files: Vec<Ino> = (0..5).map(|n| ino(n).unwrap().unwrap()).collect();
        let used = |device: &Arc<MemoryDevice>| {
            let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
            image.geometry().blocks - image.geometry().free_blocks
        };
        let before = used(&device);
        let mut live = open(&device, discipline);
        let root = live.root();
        live.set_xattr(files[1], b"user.label", b"another", XattrMode::Any).unwrap();
        live.unlink(root, b"file 0").unwrap();
        live.remove_xattr(files[2], b"user.label").unwrap();
        let label = |live: &mut ExtLive, n: usize| live.xattrs(files[n]).unwrap().pop();
        let value = |n: usize, live: &mut ExtLive| label(live, n).map(|xattr| xattr.value);
        assert_eq!(value(1, &mut live).unwrap(), b"another");
        assert_eq!(value(2, &mut live), None);
        for n in [3, 4] {
            assert_eq!(value(n, &mut live).unwrap(), b"the same for all of them", "{what}");
        }
        live.unmount().unwrap();
        fsck(&device, &what);
        // One block of contents less, one of attributes more.
        assert_eq!(used(&device), before, "{what}: two files share one still");
        let mut live = open(&device, discipline);
        live.unlink(root, b"file 3").unwrap();
        live.unlink(root, b"file 4").unwrap();
        live.unmount().unwrap();
        fsck(&device, &what);
        assert_eq!(used(&device), before - 3, "{what}: nobody has it any more");
    }
}

/// The kernel lists directories with an index, and those of one block, by the hashes of
/// names; others as the names lie.
#[test]
fn names_are_listed_in_the_order_of_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    let mut compared = [0, 0];
    for (n, (shape, disciplines)) in all().into_iter().enumerate() {
        if n % 2 == 0 {
            continue;
        }
        let device = image(shape);
        let mut live = open(&device, disciplines[0]);
        let root = live.root();
        let mut orders = Vec::new();
        for (dir, count) in [("many", 700), ("few", 12), ("some", 3), ("one", 1)] {
            let ino = live.make(root, dir.as_bytes(), NewFile::Directory, OWNER).unwrap().ino;
            for n in 0..count {
                let name = format!("entry {}", n * 7919 % 1000);
                live.make(ino, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
            }
            let mut names: Vec<String> = shown(&mut live, ino).into_keys().collect();
            let (format, core) = live.parts();
            let order = format.listing_order(core, ino).unwrap();
            if let Some(order) = order {
                names.sort_by_key(|name| order.key(name.as_bytes()));
            }
            // Those that have their names in the inode are listed so too.
            let is_inside = live.attr(ino).unwrap().flags & 0x1000_0000 != 0;
            let is_plain = shape.how.iter().any(|how| how.contains("^dir_index"));
            assert!(order.is_some() || is_plain || !is_inside, "{shape:?} {dir}");
            compared[usize::from(order.is_some())] += 1;
            orders.push((dir, order.is_some(), names));
        }
        live.unmount().unwrap();
        mounted(&device, |at| {
            for (dir, hashed, names) in &orders {
                let entries = fs::read_dir(at.join(dir)).unwrap().map(Result::unwrap);
                let listed: Vec<String> =
                    entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
                let mut sorted = (listed.clone(), names.clone());
                sorted.0.sort();
                sorted.1.sort();
                assert!(sorted.0 == sorted.1, "{shape:?} {dir}");
                assert_eq!(listed == *names, *hashed || *dir == "one", "{shape:?} {dir}");
            }
        });
    }
    assert!(compared[0] > 2 && compared[1] > 10, "{compared:?}");
}
