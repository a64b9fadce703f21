//! Snapshots that are taken, and volumes that change afterwards.

use super::{Files, OWNER, SHAPES, bytes, open, tree};
use crate::live::shapes::{Shape, image, options, through};
use crate::property::for_all;
use crate::replay::{Op, ops};
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{
    FfsImage, FfsLive, Version, check, open_snapshot, release_snapshots, remove_snapshots,
    snapshots, take_snapshot_in_use,
};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

/// A snapshot, with the files and the image from when it was taken.
pub(super) struct Taken {
    pub(super) name: &'static [u8],
    pub(super) files: Files,
    pub(super) image: Vec<u8>,
}

pub(super) fn kept(device: &Arc<MemoryDevice>, name: &[u8]) -> Arc<dyn BlockDevice> {
    open_snapshot(device.clone(), name, OpenOptions::default()).unwrap()
}

/// The files, but for the snapshots.
pub(super) fn ordinary(mut files: Files) -> Files {
    files.retain(|path, _| !path.starts_with(b"/."));
    files
}

impl Taken {
    /// Compares the snapshot as a file of the volume in use with the image from when it was taken.
    fn check_in_use(&self, live: &mut FfsLive, shape: &Shape) {
        let ino = live.lookup(live.root(), &self.name[1..]).unwrap().unwrap();
        let size = live.attr(ino).unwrap().size;
        let mut seen = vec![9; size as usize];
        let mut at = 0;
        // In pieces that begin and end within blocks.
        while at < seen.len() {
            let end = seen.len().min(at + 50_001);
            at += live.read(ino, ByteLen::new(at as u64), &mut seen[at..end]).unwrap();
        }
        assert!(seen[..self.image.len()] == self.image, "{shape:?}: another image is read");
        // Behind it is the list, which begins with its number of entries.
        assert!(seen[self.image.len()..].iter().any(|&byte| byte != 0), "{shape:?}");
    }

    /// Compares a snapshot with the files and the image from when it was taken.
    pub(super) fn check(&self, device: &Arc<MemoryDevice>, shape: &Shape) {
        let kept = kept(device, self.name);
        assert!(bytes(kept.as_ref()) == self.image, "{shape:?}: the snapshot has changed");
        let report = check(kept.clone()).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
        let seen = tree(&FfsImage::open(kept, OpenOptions::default()).unwrap());
        assert!(ordinary(seen.clone()) == self.files, "{shape:?}: other files");
        // Snapshots are empty files there, this one too.
        let hidden = seen.iter().filter(|(path, _)| path.starts_with(b"/."));
        let is_empty = |(_, (kind, _, contents)): (_, &(FileKind, u32, Vec<u8>))| {
            *kind == FileKind::Regular && contents.is_empty()
        };
        assert!(hidden.clone().count() > 0 && hidden.into_iter().all(is_empty));
    }
}

/// Runs operations on a volume, with a snapshot before each list but the first.
fn run(shape: &Shape, lists: &[Vec<Op>]) {
    const NAMES: [&[u8]; 3] = [b"/.one", b"/.two", b"/.three"];
    let device = image(shape);
    let mut shaped = through(device.clone(), device.clone(), shape, Discipline::SoftUpdates);
    shaped.run(&lists[0]);
    let mut taken: Vec<Taken> = Vec::new();
    for (list, name) in lists[1..].iter().zip(NAMES) {
        shaped.live.sync().unwrap();
        let files = ordinary(tree(&open(&device)));
        take_snapshot_in_use(&mut shaped.live, name).unwrap();
        let image = bytes(kept(&device, name).as_ref());
        taken.push(Taken { name, files, image });
        for taken in &taken {
            taken.check(&device, shape);
        }
        shaped.run(list);
        for taken in &taken {
            taken.check_in_use(&mut shaped.live, shape);
        }
    }
    assert_eq!(shaped.full, 0, "{shape:?}: there is room enough");
    let device = shaped.finish();
    let report = check(device.clone()).unwrap();
    assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
    for taken in &taken {
        taken.check(&device, shape);
    }
    let found = snapshots(device.clone(), OpenOptions::default()).unwrap();
    assert_eq!(found.len(), taken.len());
    let removed = remove_snapshots(device.clone(), None, crate::replay::WALL).unwrap();
    assert_eq!(removed, taken.len() as u64);
    let report = check(device).unwrap();
    assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
}

#[test]
fn snapshots_stay_as_they_were_taken() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let some = || ops(250, false);
        for_all((some_or_all(2, 6), n), (some(), some(), some()), |(first, second, third)| {
            run(shape, &[first, second, third]);
        });
    }
}

pub(super) fn live(device: &Arc<dyn BlockDevice>) -> FfsLive {
    let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
    FfsLive::open(device.clone(), clock, config, options()).unwrap()
}

/// Makes a file of so many blocks with these contents, as far as there is room.
pub(super) fn put(live: &mut FfsLive, name: &str, blocks: usize, with: u8) -> Result<Ino, FsError> {
    let block = vec![with; 4096];
    let ino = live.make(live.root(), name.as_bytes(), NewFile::Regular, OWNER)?.ino;
    for n in 0..blocks {
        live.write(ino, ByteLen::new((n * block.len()) as u64), &block)?;
    }
    Ok(ino)
}

/// The bytes that only a snapshot has.
pub(super) fn held(device: &Arc<MemoryDevice>) -> u64 {
    snapshots(device.clone(), OpenOptions::default()).unwrap()[0].held.get()
}

pub(super) fn is_in_order(device: &Arc<MemoryDevice>) {
    let report = check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn a_snapshot_gets_the_blocks_of_removed_files() {
    let memory = image(&SHAPES[1]);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    put(&mut volume, "large", 500, 7).unwrap();
    take_snapshot_in_use(&mut volume, b"/.one").unwrap();
    volume.unmount().unwrap();
    let (before, image) = (held(&memory), bytes(kept(&memory, b"/.one").as_ref()));
    let mut volume = live(&device);
    volume.discard_freed(Some(true));
    volume.unlink(volume.root(), b"large").unwrap();
    volume.sync().unwrap();
    let room = volume.space().free;
    while volume.discard_some().unwrap() {}
    put(&mut volume, "other", 100, 8).unwrap();
    volume.unmount().unwrap();
    let got = held(&memory) - before;
    assert!((500 * 4096..520 * 4096).contains(&got), "{got} bytes, {room} fragments are free");
    assert!(bytes(kept(&memory, b"/.one").as_ref()) == image);
    is_in_order(&memory);
}

/// Whatever is written on a volume without room for copies: snapshots stay as they are.
#[test]
fn a_full_volume_keeps_its_snapshots() {
    for shape in &SHAPES[..2] {
        let memory = image(shape);
        let device: Arc<dyn BlockDevice> = memory.clone();
        let mut volume = live(&device);
        let old: Vec<Ino> =
            (0..40).map(|n| put(&mut volume, &format!("old{n}"), 60, n).unwrap()).collect();
        take_snapshot_in_use(&mut volume, b"/.one").unwrap();
        let image = bytes(kept(&memory, b"/.one").as_ref());
        let mut refused = 0;
        let mut no_space = |done: Result<(), FsError>| match done {
            Err(FsError::NoSpace(_)) => refused += 1,
            done => done.unwrap(),
        };
        no_space(put(&mut volume, "filler", 6000, 1).map(drop));
        for (n, &ino) in old.iter().enumerate() {
            let over = vec![99; 60 * 4096];
            no_space(volume.write(ino, ByteLen::ZERO, &over).map(drop));
            no_space(volume.sync());
            if n % 4 == 0 {
                no_space(volume.unlink(volume.root(), format!("old{n}").as_bytes()));
            }
        }
        // There is room again when a file goes that no snapshot has.
        volume.unlink(volume.root(), b"filler").unwrap();
        volume.sync().unwrap();
        put(&mut volume, "more", 300, 5).unwrap();
        volume.unmount().unwrap();
        assert!(refused > 10, "{shape:?}: {refused} refused");
        assert!(bytes(kept(&memory, b"/.one").as_ref()) == image, "{shape:?}");
        is_in_order(&memory);
    }
}

#[test]
fn snapshots_that_cannot_be_taken_leave_nothing() {
    let memory = image(&SHAPES[1]);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    for n in 0..20 {
        take_snapshot_in_use(&mut volume, format!("/.{n}").as_bytes()).unwrap();
    }
    let why = take_snapshot_in_use(&mut volume, b"/.more").unwrap_err();
    assert!(matches!(why, FsError::NoSpace(_)), "{why}");
    volume.unmount().unwrap();
    is_in_order(&memory);
    assert_eq!(release_snapshots(memory.clone()).unwrap(), 20);
    is_in_order(&memory);

    let memory = image(&SHAPES[1]);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    let why = put(&mut volume, "filler", 6000, 1).unwrap_err();
    assert!(matches!(why, FsError::NoSpace(_)), "{why}");
    for name in [&b"/.one"[..], b"one", b"/none/one", b"/", b"filler/one"] {
        let why = take_snapshot_in_use(&mut volume, name).unwrap_err();
        println!("{}: {why}", String::from_utf8_lossy(name));
    }
    assert!(volume.lookup(volume.root(), b".one").unwrap().is_none());
    // With room for some more blocks each time, until there are enough.
    let mut tries = 0;
    let cut = volume.lookup(volume.root(), b"filler").unwrap().unwrap();
    while let Err(why) = take_snapshot_in_use(&mut volume, b"/.one") {
        assert!(matches!(why, FsError::NoSpace(_)), "{why}");
        assert!(volume.lookup(volume.root(), b".one").unwrap().is_none(), "{tries}");
        tries += 1;
        let size = volume.attr(cut).unwrap().size - 4096;
        volume.set_attr(cut, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        volume.sync().unwrap();
    }
    println!("{tries} tries");
    assert!(tries > 20, "{tries} tries");
    let kept_one = bytes(kept(&memory, b"/.one").as_ref());
    // Whole files: each block that is overwritten needs a copy, for which there is no room.
    for n in 0..80u8 {
        let over = volume.write(cut, ByteLen::new(u64::from(n) << 14), &[n; 4096]);
        assert!(matches!(over, Ok(_) | Err(FsError::NoSpace(_))), "{over:?}");
        let synced = volume.sync();
        assert!(synced.is_ok(), "{synced:?}");
    }
    volume.unmount().unwrap();
    assert!(bytes(kept(&memory, b"/.one").as_ref()) == kept_one);
    assert_eq!(release_snapshots(memory.clone()).unwrap(), 1);
    assert_eq!(snapshots(memory.clone(), OpenOptions::default()).unwrap(), []);
    is_in_order(&memory);
    let clock = Arc::new(VirtualClock::new());
    let mut volume =
        FfsLive::open(device, clock, Config::new(Discipline::Normal), options()).unwrap();
    let why = take_snapshot_in_use(&mut volume, b"/.one").unwrap_err();
    assert!(matches!(why, FsError::Unsupported(_)), "{why}");
}

/// Files that are in use without a name do not exist in a snapshot, and their blocks are free there.
#[test]
fn a_snapshot_has_no_nameless_files() {
    for shape in &SHAPES {
        let memory = image(shape);
        let device: Arc<dyn BlockDevice> = memory.clone();
        let mut volume = live(&device);
        let root = volume.root();
        let mut inodes = Vec::new();
        for (name, blocks) in [("large", 300), ("small", 1), ("empty", 0)] {
            inodes.push(put(&mut volume, name, blocks, 3).unwrap());
        }
        // Its last fragments share a block with those of a file that stays.
        volume.write(inodes[1], ByteLen::new(4096), &[5; 700]).unwrap();
        let stays = put(&mut volume, "stays", 0, 0).unwrap();
        volume.write(stays, ByteLen::ZERO, &[6; 900]).unwrap();
        let long = NewFile::Symlink(&[b'l'; 900]);
        inodes.push(volume.make(root, b"link", long, OWNER).unwrap().ino);
        let dir = volume.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
        if shape.version == Version::Ufs2 {
            volume.set_xattr(inodes[0], b"user.a", &[1; 700], XattrMode::Any).unwrap();
        }
        for &ino in inodes.iter().chain([&dir]) {
            volume.hold(ino).unwrap();
        }
        for name in [&b"large"[..], b"small", b"empty", b"link"] {
            volume.unlink(root, name).unwrap();
        }
        volume.rmdir(root, b"dir").unwrap();
        // Nor does one become a snapshot; nor do files with contents, and directories.
        for ino in inodes.iter().copied().chain([dir, stays, root]) {
            let why = volume.take_snapshot(ino).unwrap_err();
            assert!(matches!(why, FsError::Invalid(_)), "{shape:?}: {why}");
        }
        take_snapshot_in_use(&mut volume, b"/.one").unwrap();
        let image = bytes(kept(&memory, b"/.one").as_ref());
        let report = check(kept(&memory, b"/.one")).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
        volume.write(inodes[0], ByteLen::new(7 << 12), &[8; 4096]).unwrap();
        for ino in inodes.into_iter().chain([dir]) {
            volume.release(ino).unwrap();
        }
        put(&mut volume, "other", 400, 9).unwrap();
        volume.unmount().unwrap();
        is_in_order(&memory);
        assert!(bytes(kept(&memory, b"/.one").as_ref()) == image, "{shape:?}");
        // Nothing of the large file was copied or claimed.
        assert!(held(&memory) < 300 * 4096, "{shape:?}: {} bytes", held(&memory));
    }
}

/// A file without a name is deleted when the volume is unmounted, also where no other change has room
/// for the copies that it may need.
#[test]
fn a_nameless_file_is_deleted_from_a_full_volume() {
    let memory = image(&SHAPES[1]);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let mut volume = live(&device);
    let old = put(&mut volume, "old", 3000, 1).unwrap();
    let held = put(&mut volume, "held", 3, 2).unwrap();
    let small: Vec<Ino> =
        (0..800).map(|n| put(&mut volume, &format!("small{n}"), 0, 0).unwrap()).collect();
    take_snapshot_in_use(&mut volume, b"/.one").unwrap();
    let image = bytes(kept(&memory, b"/.one").as_ref());
    volume.hold(held).unwrap();
    volume.unlink(volume.root(), b"held").unwrap();
    volume.sync().unwrap();
    let full = put(&mut volume, "filler", 6000, 3).unwrap_err();
    assert!(matches!(full, FsError::NoSpace(_)), "{full}");
    // Each overwritten block takes one of the reserve, until no change has room.
    let mut n = 0;
    while volume.write(old, ByteLen::new(n << 12), &[9; 4096]).is_ok() {
        volume.sync().unwrap();
        n += 1;
        assert!(n < 3000, "there is always room");
    }
    // Such a change needs less: each one copies another block of inodes.
    let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    let mut inodes = small.iter().step_by(16);
    let refused = inodes.find_map(|&ino| {
        let set = volume.set_attr(ino, &set);
        volume.sync().unwrap();
        set.err()
    });
    assert!(matches!(refused, Some(FsError::NoSpace(_))), "{refused:?}");
    volume.unmount().unwrap();
    is_in_order(&memory);
    assert!(bytes(kept(&memory, b"/.one").as_ref()) == image, "the snapshot has changed");
}
