//! FAT in use: seeded operations beside a model, judged by fsck.fat and mtools.

mod hostile;
mod in_use;
mod names;
mod placed;
mod replay;
mod shapes;

use crate::damage::images;
use crate::skip;
use crate::slice::some_or_all;
use replay::Replay;
use seekless_cache::Discipline;
use seekless_fat::{FatLive, LiveOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use shapes::{SHAPES, Shape, fsck, image, open_with, options};

/// Space that is about to become free is waited for; what there is none for changes nothing.
#[test]
fn full_volumes_lose_nothing() {
    let shapes = [
        Shape { how: &["-F", "12", "-s", "1"], kibibytes: 160 },
        Shape { how: &["-F", "12", "-s", "4", "-r", "32"], kibibytes: 240 },
        Shape { how: &["-F", "32", "-s", "1", "-f", "1"], kibibytes: 200 },
    ];
    for (n, shape) in (0..).zip(&shapes) {
        for discipline in Discipline::ALL {
            let Some(device) = image(shape) else { return };
            let mut replay = Replay::new(device, discipline, 50 + n);
            replay.run(900);
            assert!(replay.full > 3, "{discipline} {shape:?}: it was full {} times", replay.full);
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}

#[test]
fn operations_do_what_a_model_does() {
    for (n, shape) in (0..).zip(&SHAPES) {
        for discipline in Discipline::ALL {
            let Some(device) = image(shape) else { return };
            let mut replay = Replay::new(device, discipline, n);
            replay.run(some_or_all(200, 400));
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}

/// A cluster may be taken again before what its last file had there was written: what is left
/// of that behind the end of the next file is no part of it.
#[test]
fn a_file_is_synced_up_to_its_end() {
    let owner = Ownership { uid: 0, gid: 0, perm: 0o644 };
    let shape = Shape { how: &["-F", "16", "-s", "8"], kibibytes: 20_480 };
    let Some(device) = image(&shape) else { return };
    let how = LiveOptions { clusters: Some("first-fit".into()), ..options() };
    let mut live = open_with(&device, Discipline::SoftUpdates, how);
    let root = live.root();
    let make = |live: &mut FatLive, dir: Ino, name: &str, new| {
        live.make(dir, name.as_bytes(), new, owner).unwrap().ino
    };
    let outer = make(&mut live, root, "OUTER", NewFile::Directory);
    let inner = make(&mut live, outer, "INNER", NewFile::Directory);
    // Its first slots lie in the sector of the inner directory's name, its last in the next.
    let name = "gone".repeat(50);
    let gone = make(&mut live, outer, &name, NewFile::Regular);
    live.write(gone, ByteLen::ZERO, &[1; 4096]).unwrap();
    let was = live.data_runs(gone).unwrap();
    live.unlink(outer, name.as_bytes()).unwrap();
    // The name that is gone is written as such with that of the inner directory.
    let other = make(&mut live, inner, "OTHER", NewFile::Regular);
    live.fsync(other).unwrap();
    let file = make(&mut live, inner, "FILE", NewFile::Regular);
    live.write(file, ByteLen::ZERO, b"x").unwrap();
    assert_eq!(live.data_runs(file).unwrap(), was, "the cluster is taken again");
    live.fsync(file).unwrap();
    live.unmount().unwrap();
    fsck(&device, "a cluster taken again");
}
