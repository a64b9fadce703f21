//! What is refused is refused before anything has changed, and as often as it is
//! asked for.

use super::recount::recount;
use super::shapes::{Shape, image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive, Version};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Ino, Lba};
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };
/// What `di_nlink` counts to.
const LINK_MAX: u32 = 32_767;
const FRAGMENT: u32 = 512;

const SHAPE: Shape = Shape {
    version: Version::Ufs2,
    block: 4096,
    fragment: FRAGMENT,
    mebibytes: 160,
    big_endian: false,
};

fn open(device: &Arc<MemoryDevice>, discipline: Discipline) -> FfsLive {
    let clock = Arc::new(VirtualClock::new());
    FfsLive::open(device.clone(), clock, Config::new(discipline), options()).unwrap()
}

fn directory(live: &mut FfsLive, dir: Ino, name: &str) -> Ino {
    live.make(dir, name.as_bytes(), NewFile::Directory, OWNER).unwrap().ino
}

#[test]
fn a_directory_full_of_directories_takes_no_other_in_place_of_one() {
    let device = image(&SHAPE);
    let mut live = open(&device, Discipline::Async);
    let root = live.root();
    let (full, moved) = (directory(&mut live, root, "full"), directory(&mut live, root, "moved"));
    for n in 0..LINK_MAX - 2 {
        directory(&mut live, full, &n.to_string());
    }
    let counts = |live: &mut FfsLive| [root, full, moved].map(|ino| live.attr(ino).unwrap().nlink);
    let before = counts(&mut live);
    assert_eq!(before, [4, LINK_MAX, 2]);
    for (to, mode) in [("new", RenameMode::Replace), ("7", RenameMode::Replace)] {
        let refused = live.rename((root, b"moved"), (full, to.as_bytes()), mode);
        assert!(matches!(refused, Err(FsError::TooManyLinks(ino)) if ino == full), "{refused:?}");
        assert_eq!(counts(&mut live), before, "{to}");
    }
    let refused = live.make(full, b"another", NewFile::Directory, OWNER);
    assert!(matches!(refused, Err(FsError::TooManyLinks(_))), "{refused:?}");
    assert_eq!(counts(&mut live), before);
    assert_eq!(live.lookup(root, b"moved").unwrap(), Some(moved));
    live.unmount().unwrap();
    drop(live);
    recount(&device);
    let report = seekless_ffs::check(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn an_inode_with_a_wrong_check_hash_is_refused_each_time() {
    let device = image(&Shape { mebibytes: 24, ..SHAPE });
    let mut live = open(&device, Discipline::SoftUpdates);
    let root = live.root();
    let file = live.make(root, b"file", NewFile::Regular, OWNER).unwrap().ino;
    live.write(file, ByteLen::ZERO, b"contents").unwrap();
    live.unmount().unwrap();
    let place = FfsImage::open(device.clone(), OpenOptions::default())
        .unwrap()
        .inode_location(file)
        .unwrap();
    // A bit of di_uid.
    let at = Lba::new((place.block.get() * u64::from(FRAGMENT) + u64::from(place.offset)) / 512);
    let within = (place.block.get() * u64::from(FRAGMENT) + u64::from(place.offset)) % 512 + 4;
    let mut sector = [0; 512];
    device.read(at, &mut sector).unwrap();
    sector[within as usize] ^= 1;
    device.write(at, &sector).unwrap();
    let mut live = open(&device, Discipline::SoftUpdates);
    for _ in 0..3 {
        let refused = live.attr(file);
        assert!(matches!(refused, Err(FsError::Corrupt { .. })), "{refused:?}");
        let refused = live.write(file, ByteLen::ZERO, b"new");
        assert!(matches!(refused, Err(FsError::Corrupt { .. })), "{refused:?}");
    }
}

/// To see that a directory is not moved into itself its way up is followed, and
/// nothing of what lies beside that way is read.
#[test]
fn a_move_reads_little_of_the_directories_above() {
    let device = image(&Shape { mebibytes: 48, ..SHAPE });
    let mut live = open(&device, Discipline::Async);
    let root = live.root();
    let moved = directory(&mut live, root, "moved");
    let mut deepest = root;
    for _ in 0..10 {
        deepest = directory(&mut live, deepest, "below");
        for n in 0..200 {
            let name = format!("{n}{}", "x".repeat(200));
            live.make(deepest, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
        }
    }
    let target = directory(&mut live, deepest, "target");
    live.unmount().unwrap();
    let mut live = open(&device, Discipline::Async);
    // What is at both ends is looked into.
    assert_eq!(live.lookup(root, b"moved").unwrap(), Some(moved));
    assert_eq!(live.lookup(target, b"moved").unwrap(), None);
    let before = live.counters().read_bytes;
    live.rename((root, b"moved"), (target, b"moved"), RenameMode::Replace).unwrap();
    let read = live.counters().read_bytes - before;
    // An inode block and a fragment of each, the bitmaps; each holds 43 KiB.
    assert!(read <= 14 * (4096 + 4096), "{read} bytes");
    let round = live.rename((root, b"below"), (target, b"below"), RenameMode::Replace);
    assert!(matches!(round, Err(FsError::Invalid(_))), "{round:?}");
}
