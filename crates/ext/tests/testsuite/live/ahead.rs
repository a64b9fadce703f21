//! `blocks=ext2-next=8`: blocks that are taken before files need them, given back, and
//! leaked by a crash.

use super::placed::copy;
use super::shapes::{SHAPES, Shape, fsck, image, options, replayed, written};
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use std::process::Command;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn how() -> LiveOptions {
    LiveOptions { blocks: Some("ext2-next=8".into()), ..options() }
}

fn open(device: &Arc<MemoryDevice>, discipline: Discipline) -> Result<ExtLive, FsError> {
    ExtLive::open(device.clone(), Arc::new(VirtualClock::new()), Config::new(discipline), how())
}

/// Runs of a file: which block of it, where from the first block of another, how many.
fn runs(live: &mut ExtLive, ino: Ino, first: u64) -> Vec<(u64, u64, u64)> {
    let runs = live.data_runs(ino).unwrap();
    runs.iter().map(|r| (r.lbn.get(), r.extent.start.get() - first, r.extent.len)).collect()
}

#[test]
fn files_written_in_turn_have_eight_blocks_each_in_turn() {
    for discipline in [Discipline::Async, Discipline::SoftUpdates, Discipline::Normal] {
        let device = image(&SHAPES[0]);
        let mut live = open(&device, discipline).unwrap();
        let root = live.root();
        let mut make = |name: &[u8]| live.make(root, name, NewFile::Regular, OWNER).unwrap().ino;
        let files = [make(b"one"), make(b"other")];
        files.iter().for_each(|&ino| live.hold(ino).unwrap());
        live.sync().unwrap();
        let before = live.space().free;
        for n in 0..20u64 {
            for ino in files {
                live.write(ino, ByteLen::new(n * 1024), &[7; 1024]).unwrap();
            }
        }
        // The thirteenth block needs a table, which is the next of those taken ahead.
        let first = live.data_runs(files[0]).unwrap()[0].extent.start.get();
        let expected = [(0, 0, 8), (8, 16, 4), (12, 21, 3), (15, 32, 5)];
        assert_eq!(runs(&mut live, files[0], first), expected, "{discipline}");
        let other = expected.map(|(lbn, at, len)| (lbn, at + 8, len));
        assert_eq!(runs(&mut live, files[1], first), other, "{discipline}");
        assert_eq!(before - live.space().free, 48, "{discipline}");
        live.sync().unwrap();
        // After a crash nobody has the last three of each: the check finds them.
        let path = written(&copy(&device));
        let preened = Command::new("e2fsck").arg("-fp").arg(&path).output().unwrap();
        assert_eq!(preened.status.code(), Some(1), "{discipline}: {preened:?}");
        let checked = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
        assert!(checked.status.success(), "{discipline}: {checked:?}");
        std::fs::remove_file(&path).unwrap();
        // A file that is not held any more has what it needs; the others go at the end.
        live.release(files[0]).unwrap();
        live.sync().unwrap();
        assert_eq!(before - live.space().free, 21 + 24, "{discipline}");
        live.unmount().unwrap();
        fsck(&device, &format!("{discipline}"));
        let mut live = open(&device, discipline).unwrap();
        assert_eq!(before - live.space().free, 42, "{discipline}");
    }
}

#[test]
fn what_is_taken_ahead_is_there_for_others() {
    for (n, block) in [(1, 1024), (2, 4096)] {
        for discipline in [Discipline::Async, Discipline::SoftUpdates, Discipline::Sync] {
            let shape = Shape { block, mebibytes: 3, ..SHAPES[0] };
            let full = replayed(n, (&shape, discipline), how, 3000);
            assert!(full > 20, "the volume was never full");
        }
    }
}

#[test]
fn where_nobody_looks_for_leaks_it_is_refused() {
    let ext3 = Shape { kind: "ext3", how: &["-J", "size=1"], ..SHAPES[0] };
    let refused = open(&image(&ext3), Discipline::Journal(seekless_cache::JournalMode::Ordered));
    assert!(matches!(refused, Err(FsError::Unsupported(why)) if why.contains("ext2-next")));
}
