//! Every pair of policies for inodes fills a volume to the last one; blocks that are kept
//! for files are there for others when nothing else is.

use super::reserved::{OWNER, VOLUMES, open};
use super::shapes::{JOURNALLED, SHAPES, Shape, WITH_EXTENTS, fsck, image, options, replayed};
use crate::slice::some_or_all;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::VirtualClock;
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

/// Makes files and directories until there is no inode left; how many there were.
fn fill(live: &mut ExtLive, dirs: &mut Vec<Ino>, round: u32, chance: &mut Pcg64Mcg) -> u64 {
    for n in 0.. {
        let dir = dirs[chance.next_u64() as usize % dirs.len()];
        let kind = if n % 12 == 0 { NewFile::Directory } else { NewFile::Regular };
        match live.make(dir, format!("{round}-{n}").as_bytes(), kind, OWNER) {
            Ok(made) if n % 12 == 0 => dirs.push(made.ino),
            Ok(_) => {}
            Err(FsError::NoSpace(_)) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("inodes have numbers of 32 bits");
}

/// Whatever the policies, there is no free inode that cannot be had, and the next mount
/// may choose others.
#[test]
fn every_pair_of_policies_fills_a_volume() {
    let dirs =
        ["ext2-orlov", "find-group-dir", "linear", "linux-orlov", "ffs-orlov", "old-dirpref"];
    let inodes =
        ["parent", "dir-reserve", "find-group-other", "dir-reserve-hashed=32", "dir-reserve=7"];
    for (turn, (shape, discipline)) in [&VOLUMES[0], &VOLUMES[2]].into_iter().enumerate() {
        for (n, dirs) in dirs.iter().enumerate() {
            // Half of them on each volume, or a quarter.
            let other =
                inodes.iter().enumerate().filter(|(m, _)| (n + m) % some_or_all(4, 2) == turn);
            for (m, other) in other {
                let what = format!("{dirs} {other} {discipline} {shape:?}");
                let device = image(shape);
                let mut chance = Pcg64Mcg::seed_from_u64((n * 10 + m) as u64);
                let mut live = open(&device, *discipline, dirs, other);
                let mut made = vec![live.root()];
                let free = live.space().free_inodes;
                assert_eq!(fill(&mut live, &mut made, 0, &mut chance), free, "{what}");
                assert_eq!(live.space().free_inodes, 0, "{what}");
                // Some go.
                let mut gone = 0;
                for n in (1..free).filter(|n| n % 12 != 0 && n % 5 < 2) {
                    for &dir in &made {
                        let name = format!("0-{n}");
                        if live.lookup(dir, name.as_bytes()).unwrap().is_some() {
                            live.unlink(dir, name.as_bytes()).unwrap();
                            gone += 1;
                            break;
                        }
                    }
                }
                live.unmount().unwrap();
                fsck(&device, &what);
                let other = inodes[(m + 3) % inodes.len()];
                let mut live = open(&device, *discipline, dirs, other);
                assert_eq!(fill(&mut live, &mut made, 1, &mut chance), gone, "{what}, {other}");
                assert!(gone > 500, "{what}: {gone} went");
                live.unmount().unwrap();
                fsck(&device, &format!("{what}, {other}"));
            }
        }
    }
}

/// Operations on volumes that become full, with blocks kept for files and inodes for
/// directories.
#[test]
fn what_is_kept_changes_nothing_that_files_hold() {
    let shapes =
        [(&SHAPES[0], 3), (&WITH_EXTENTS[1], 5), (&JOURNALLED[7], 6), (&JOURNALLED[6], 12)];
    for (n, (shape, mebibytes)) in shapes.into_iter().enumerate() {
        let some = ["dir-reserve=8", "dir-reserve-hashed"].into_iter().enumerate();
        for (m, inodes) in some.skip(n % some_or_all(2, 1)).step_by(some_or_all(2, 1)) {
            let shape = Shape { mebibytes, ..*shape };
            let discipline = shape.disciplines().last().unwrap();
            let how = || LiveOptions {
                directories: "linux-orlov".into(),
                inodes: Some(inodes.into()),
                blocks: Some("ext4-goal=2".into()),
                ..options()
            };
            let full = replayed(n * 2 + m, (&shape, discipline), how, 4000);
            assert!(full > 20, "{inodes} {discipline} {shape:?}: the volume was never full");
        }
    }
}

/// A search for blocks to keep that looks at hundreds of groups changes only the one in
/// which it takes some: bitmaps that were never written are many more than a transaction
/// has room for.
#[test]
fn a_search_leaves_groups_that_were_never_used() {
    let how = &["-J", "size=1", "-O", "^flex_bg,^resize_inode", "-g", "512"];
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 192, how };
    let device = image(&shape);
    let how = LiveOptions { blocks: Some("ext4-goal".into()), ..options() };
    let discipline = Discipline::Journal(JournalMode::Ordered);
    let clock = Arc::new(VirtualClock::new());
    let mut live = ExtLive::open(device.clone(), clock, Config::new(discipline), how).unwrap();
    let root = live.root();
    let ino = live.make(root, b"file", NewFile::Regular, OWNER).unwrap().ino;
    assert_eq!(live.write(ino, ByteLen::ZERO, &[1; 5000]).unwrap(), 5000);
    live.unmount().unwrap();
    fsck(&device, "searched");
}
