//! The live engine on ext2 against a plain model of a file system in memory, for
//! every discipline and several shapes; after unmounting, the image is read anew,
//! and e2fsck finds nothing in it.

#![allow(missing_docs)]

mod ahead;
mod behind_end;
mod beside_kernel;
mod delayed;
mod errors;
mod extents;
mod filled;
mod held;
mod hostile;
mod indexed;
mod inline;
mod interrupted;
mod kernel;
mod known_files;
mod next_free;
mod orphan_file;
mod placed;
mod read_faults;
mod recover;
mod reserved;
mod shapes;
mod statfs;
mod sums;
mod worked;

use crate::many;
use crate::replay;
use crate::slice::some_or_all;
use known_files::WITHOUT_GRAPH;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::VirtualClock;
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use shapes::{JOURNALLED, SHAPES, WITH_EXTENTS, fsck, image, options, replay, replayed};
use std::sync::Arc;

#[test]
fn random_operations_do_what_the_model_does() {
    for (n, shape) in SHAPES.iter().enumerate() {
        for discipline in shape.disciplines() {
            replayed(n, (shape, discipline), options, some_or_all(1000, 2000));
        }
    }
}

#[test]
fn random_operations_with_extents_do_what_the_model_does() {
    for discipline in WITHOUT_GRAPH {
        for (n, shape) in WITH_EXTENTS.iter().enumerate() {
            replayed(n, (shape, discipline), options, 2000);
        }
    }
}

#[test]
fn random_operations_over_a_journal_do_what_the_model_does() {
    for mode in JournalMode::ALL {
        for (n, shape) in JOURNALLED.iter().enumerate() {
            replayed(n, (shape, Discipline::Journal(mode)), options, some_or_all(1000, 2000));
        }
    }
}

#[test]
fn the_last_of_many_names_waits_for_no_more_than_the_first() {
    for shape in &SHAPES[..2] {
        let device = image(shape);
        let config = Config::new(Discipline::SoftUpdates);
        let clock = Arc::new(VirtualClock::new());
        let mut live = ExtLive::open(device.clone(), clock, config, options()).unwrap();
        many::names_wait_for_no_more(&mut live, |live| live.counters().orders);
        live.unmount().unwrap();
        fsck(&device, "many names");
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for discipline in [Discipline::Async, Discipline::Normal] {
        for block in [1024, 4096] {
            let shape = shapes::Shape { block, mebibytes: 3, ..SHAPES[0] };
            let full = replayed(7, (&shape, discipline), options, 4000);
            assert!(full > 20, "the volume was never full");
        }
    }
}

#[test]
fn a_full_volume_with_a_journal_stays_whole() {
    for mode in JournalMode::ALL {
        for (shape, mebibytes) in [(&JOURNALLED[0], 5), (&JOURNALLED[1], 10)] {
            let shape = shapes::Shape { mebibytes, ..*shape };
            let full = replayed(7, (&shape, Discipline::Journal(mode)), options, 4000);
            assert!(full > 20, "the volume was never full");
        }
    }
}

#[test]
fn a_tree_removed_from_below_leaves_nothing() {
    for (n, shape) in SHAPES.iter().enumerate().step_by(some_or_all(2, 1)) {
        for discipline in shape.disciplines() {
            let some = [0, 2, 40];
            let first = if n < 2 { 0 } else { 2 };
            for &seconds in &some[first..] {
                let mut replay = replay(shape, discipline);
                replay.nest_and_remove(12, seconds);
                fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
            }
        }
    }
}

/// Where a crash could leave two names of a directory, it is not given another one.
#[test]
fn directories_stay_where_no_order_is_safe() {
    for discipline in [Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates] {
        let device = image(&SHAPES[0]);
        let how = LiveOptions { moves_dirs: false, ..options() };
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(discipline);
        let mut live = ExtLive::open(device.clone(), clock, config, how).unwrap();
        let owner = Ownership { uid: 0, gid: 0, perm: 0o755 };
        let root = live.root();
        let mut make = |dir, name: &[u8]| live.make(dir, name, NewFile::Directory, owner).unwrap();
        let (one, other) = (make(root, b"one").ino, make(root, b"other").ino);
        let below = make(one, b"below").ino;
        make(other, b"empty");
        let (below_one, empty) = ((one, &b"below"[..]), (other, &b"empty"[..]));
        let replace = RenameMode::Replace;
        let moved = live.rename(below_one, (other, b"moved"), replace);
        assert!(matches!(moved, Err(FsError::CrossDevice(_))), "{discipline}: {moved:?}");
        let replaced = live.rename(below_one, empty, replace);
        let is_refused = matches!(replaced, Err(FsError::CrossDevice(_) | FsError::NotEmpty(_)));
        assert!(is_refused, "{discipline}: {replaced:?}");
        let exchanged = live.rename(below_one, empty, RenameMode::Exchange);
        assert!(matches!(exchanged, Err(FsError::Unsupported(_))), "{discipline}: {exchanged:?}");
        // Both names lie in one sector, which one write changes.
        live.rename((root, b"one"), (root, b"other"), RenameMode::Exchange).unwrap();
        assert_eq!(live.lookup(root, b"other").unwrap(), Some(one));
        assert_eq!(live.lookup(one, b"below").unwrap(), Some(below));
        live.rename((one, b"below"), (one, b"again"), replace).unwrap();
        live.unmount().unwrap();
        fsck(&device, &format!("{discipline}"));
    }
}
