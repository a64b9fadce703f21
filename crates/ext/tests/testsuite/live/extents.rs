//! Trees of extents of several levels: files changed in many places, against plain
//! bytes, and looked at by e2fsprogs.

use super::known_files::{FilledVolume, OWNER, Op, WITHOUT_GRAPH, op, open};
use super::shapes::{SHAPES, Shape, WITH_EXTENTS, fsck, written};
use crate::holes;
use crate::list::list;
use crate::property::for_all;
use crate::slice::some_or_all;
use proptest::prelude::{Just, Strategy};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ext::{ExtImage, ExtLive};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, RenameMode, SetAttr};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;

fn ops(shape: &Shape, count: usize, blocks: usize) -> impl Strategy<Value = Vec<Op>> {
    list(op(shape.block as usize, blocks * 1024 / shape.block as usize), count..=count)
}

fn scattered(cases: u32, count: usize) {
    for (m, discipline) in WITHOUT_GRAPH.into_iter().enumerate() {
        for (n, shape) in
            WITH_EXTENTS.iter().enumerate().skip(m % some_or_all(2, 1)).step_by(some_or_all(2, 1))
        {
            let deepest = Cell::new(0);
            let input = (Just((discipline, shape)), ops(shape, count, 6000));
            for_all((cases, n), input, |((discipline, shape), ops)| {
                let mut volume = FilledVolume::new(shape, discipline, 3);
                ops.iter().for_each(|op| volume.one(op));
                let depth = volume.finish(&format!("{discipline} {shape:?}"));
                deepest.update(|deepest| depth.max(deepest));
            });
            let depth = deepest.get();
            assert!(shape.block > 1024 || depth >= 2, "{discipline} {shape:?}: depth {depth}");
        }
    }
}

#[test]
fn files_changed_in_many_places_hold_what_was_written() {
    scattered(1, 2000);
}

#[test]
#[ignore = "minutes: cargo test -p seekless-ext live -- --ignored"]
fn files_changed_in_very_many_places_hold_what_was_written() {
    scattered(3, 20_000);
}

#[test]
fn a_full_volume_loses_nothing() {
    for (n, discipline) in WITHOUT_GRAPH.into_iter().enumerate() {
        for block in [1024, 4096] {
            let shape = Shape { block, mebibytes: 3, ..WITH_EXTENTS[0] };
            let full = Cell::new(0);
            let input = (Just((discipline, shape)), ops(&shape, 3000, 1500));
            for_all((1, n), input, |((discipline, shape), ops)| {
                let mut volume = FilledVolume::new(&shape, discipline, 3);
                ops.iter().for_each(|op| volume.one(op));
                full.update(|full| full.max(volume.full));
                volume.finish(&format!("{discipline} {shape:?}"));
            });
            assert!(full.get() > 20, "the volume was never full");
        }
    }
}

#[test]
fn every_block_can_be_used() {
    for discipline in WITHOUT_GRAPH {
        let shape = Shape { mebibytes: 3, ..WITH_EXTENTS[1] };
        let mut volume = FilledVolume::new(&shape, discipline, 2);
        let free = volume.live.space().free;
        let mut written = 0;
        while volume.full == 0 {
            volume.write(0, written, 30_000);
            written = volume.files[0].1.len();
        }
        // All in a few extents: the tree takes none, or one block.
        assert_eq!(volume.live.space().free, 0, "{discipline}");
        assert!(written as u64 / 1024 + 1 >= free, "{discipline}: {written} of {free} blocks");
        volume.truncate(0, 5000);
        assert_eq!(volume.live.space().free, free - 5);
        // What was allocated can be written when nothing else is left.
        volume.allocate(0, 5000, 400_000, false);
        volume.full = 0;
        while volume.full == 0 {
            let at = volume.files[1].1.len();
            volume.write(1, at, 10_000);
        }
        let full = volume.full;
        for n in (0..400).step_by(2) {
            volume.write(0, 5000 + n * 1000, 500);
        }
        assert_eq!(volume.full, full, "{discipline}: what was allocated is there");
        volume.finish(&format!("{discipline}"));
    }
}

#[test]
fn extents_behind_the_end_of_a_file_stop_a_check() {
    let mut volume = FilledVolume::new(&WITH_EXTENTS[1], Discipline::Async, 2);
    for (file, pieces) in [(0, 40), (1, 200)] {
        (0..pieces).for_each(|n| volume.write(file, n * 2048, 1024));
    }
    volume.live.unmount().unwrap();
    // In the only leaf; in front of the last one, and in it.
    for (file, size, code) in [
        (0, 5000, 4),
        (0, 78_848, 4),
        (0, 80_000, 1),
        (1, 5000, 1),
        (1, 350_000, 4),
        (1, 408_500, 1),
    ] {
        let path = written(&volume.device);
        let name = path.to_str().unwrap();
        let change = format!("sif <{}> size {size}", volume.files[file].0.get());
        for what in [&*change, "ssv state 0"] {
            Command::new("debugfs").args(["-w", "-R", what, name]).output().unwrap();
        }
        let ours = Arc::new(MemoryDevice::new(holes::take(&path)));
        let stops = seekless_ext::preen(ours.clone()).unwrap().report.unexpected > 0;
        let theirs = Command::new("e2fsck").args(["-p", name]).output().unwrap();
        assert_eq!(theirs.status.code(), Some(code), "{file}, {size}");
        assert_eq!(stops, code == 4, "{file}, {size}");
        std::fs::remove_file(&path).unwrap();
        if !stops {
            fsck(&ours, &format!("{file}, {size}"));
        }
    }
}

#[test]
fn directories_of_many_extents() {
    for discipline in WITHOUT_GRAPH {
        let shape = &WITH_EXTENTS[1];
        let mut volume = FilledVolume::new(shape, discipline, 0);
        let root = volume.live.root();
        let live = &mut volume.live;
        let make = |live: &mut ExtLive, dir: Ino, name: &str, new| {
            live.make(dir, name.as_bytes(), new, OWNER).unwrap().ino
        };
        let dirs = ["one", "other"].map(|name| make(live, root, name, NewFile::Directory));
        let files = dirs.map(|dir| make(live, dir, "file", NewFile::Regular));
        let long = "n".repeat(200);
        for n in 0..2000 {
            for (dir, file) in dirs.into_iter().zip(files) {
                // A block of each in its turn.
                make(live, dir, &format!("{long}{n}"), NewFile::Special(FileKind::Fifo));
                live.write(file, ByteLen::new(n * 256), &[7; 256]).unwrap();
            }
        }
        for n in (0..2000).step_by(3) {
            volume.live.unlink(dirs[0], format!("{long}{n}").as_bytes()).unwrap();
            volume
                .live
                .rename(
                    (dirs[1], format!("{long}{n}").as_bytes()),
                    (dirs[0], format!("{n}").as_bytes()),
                    RenameMode::Replace,
                )
                .unwrap();
        }
        volume.live.unmount().unwrap();
        let device: Arc<dyn BlockDevice> = volume.device.clone();
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        for dir in dirs {
            let map = image.block_map(dir).unwrap();
            assert!(
                map.index.iter().any(|node| node.depth == 2),
                "{discipline}: {}",
                map.runs.len()
            );
        }
        for n in 0..2000 {
            let name = if n % 3 == 0 { format!("{n}") } else { format!("{long}{n}") };
            assert!(image.lookup(dirs[0], name.as_bytes()).unwrap().is_some(), "{n}");
        }
        fsck(&volume.device, &format!("{discipline}"));
        // And all goes again.
        let mut live = open(volume.device.clone(), discipline);
        for n in 0..2000 {
            let name = if n % 3 == 0 { format!("{n}") } else { format!("{long}{n}") };
            live.unlink(dirs[0], name.as_bytes()).unwrap();
        }
        live.unlink(dirs[0], b"file").unwrap();
        live.rmdir(root, b"one").unwrap();
        live.unmount().unwrap();
        fsck(&volume.device, &format!("{discipline}, removed"));
    }
}

#[test]
fn files_with_block_maps_keep_them() {
    let shape = &SHAPES[0];
    for_all(1, (ops(shape, 400, 3000), ops(shape, 800, 3000)), |(before, after)| {
        let mut volume = FilledVolume::new(shape, Discipline::Async, 3);
        before.iter().for_each(|op| volume.one(op));
        volume.live.unmount().unwrap();
        let path = written(&volume.device);
        let tuned = Command::new("tune2fs").args(["-O", "extent"]).arg(&path).output().unwrap();
        assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
        volume.device = Arc::new(MemoryDevice::new(holes::take(&path)));
        std::fs::remove_file(&path).unwrap();
        volume.live = open(volume.device.clone(), Discipline::Normal);
        both_kinds(volume, &after);
    });
}

/// Goes on with three files of block maps, and two others.
fn both_kinds(mut volume: FilledVolume, ops: &[Op]) {
    let root = volume.live.root();
    for name in ["new", "newer"] {
        let made = volume.live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
        volume.files.push((made.ino, Vec::new()));
    }
    ops.iter().for_each(|op| volume.one(op));
    for (n, &(ino, _)) in volume.files.iter().enumerate() {
        let by_extents = volume.live.attr(ino).unwrap().flags & 0x8_0000 != 0;
        assert_eq!(by_extents, n >= 3, "file {n}");
    }
    for (ino, bytes) in volume.files.drain(..3).collect::<Vec<_>>() {
        let mut read = vec![0; bytes.len()];
        volume.live.read(ino, ByteLen::ZERO, &mut read).unwrap();
        assert!(read == bytes);
    }
    volume.finish("both kinds");
}

#[test]
fn the_longest_files() {
    for shape in [&WITH_EXTENTS[0], &WITH_EXTENTS[3]] {
        let volume = FilledVolume::new(shape, Discipline::Normal, 2);
        let (FilledVolume { mut live, device, files, .. }, block) =
            (volume, u64::from(shape.block));
        // Blocks are counted in 32 bits, or sectors are.
        let blocks = if shape.kind == "ext4" { u32::MAX } else { u32::MAX / 4 };
        let most = u64::from(blocks) * block;
        let (one, other) = (files[0].0, files[1].0);
        let end = ByteLen::new(most - 10);
        assert_eq!(live.write(one, end, &[7; 10]).unwrap(), 10);
        for done in [
            live.write(one, end, &[7; 11]).map(drop),
            live.allocate(one, end, ByteLen::new(11), true),
            live.set_attr(other, &SetAttr { size: Some(most + 1), ..SetAttr::default() }).map(drop),
        ] {
            assert!(matches!(done, Err(FsError::TooLarge(_))), "{done:?}");
        }
        live.set_attr(other, &SetAttr { size: Some(most), ..SetAttr::default() }).unwrap();
        live.allocate(other, ByteLen::new(most - 30 * block), ByteLen::new(9 * block), true)
            .unwrap();
        live.write(other, ByteLen::new(most - 25 * block), &[9; 100]).unwrap();
        assert_eq!(live.data_runs(other).unwrap().len(), 3);
        live.unmount().unwrap();
        fsck(&device, &format!("{shape:?}"));
        let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
        let mut read = [1; 20];
        assert_eq!(image.read(one, ByteLen::new(most - 20), &mut read).unwrap(), 20);
        assert_eq!(read[5..15], [0, 0, 0, 0, 0, 7, 7, 7, 7, 7]);
        let mut live = open(device.clone(), Discipline::Sync);
        live.set_attr(other, &SetAttr { size: Some(most - 24 * block), ..SetAttr::default() })
            .unwrap();
        live.set_attr(one, &SetAttr { size: Some(5), ..SetAttr::default() }).unwrap();
        assert_eq!(live.data_runs(one).unwrap(), []);
        live.unmount().unwrap();
        fsck(&device, &format!("{shape:?}, cut"));
    }
}

#[test]
fn the_longest_extents() {
    // Groups without anything of their own lie behind each other.
    const HOW: [&str; 2] =
        ["-O", "^has_journal,^metadata_csum,^orphan_file,^resize_inode,sparse_super2"];
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 80, how: &HOW };
    let mut volume = FilledVolume::new(&shape, Discipline::Async, 1);
    let ino = volume.files[0].0;
    volume.live.allocate(ino, ByteLen::ZERO, ByteLen::new(70 << 20), false).unwrap();
    for at in 0..70 {
        volume.live.write(ino, ByteLen::new(at << 20), &vec![3; 1 << 20]).unwrap();
        if at == 35 {
            volume.live.sync().unwrap();
        }
    }
    volume.files[0].1 = vec![3; 70 << 20];
    volume.live.unmount().unwrap();
    let path = written(&volume.device);
    let said = Command::new("debugfs")
        .args(["-R", &format!("ex <{}>", ino.get())])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    // The first line is a heading, the second the index.
    let last = |line: &str| line.split_whitespace().last().and_then(|word| word.parse().ok());
    let longest = said.lines().skip(2).filter_map(last);
    assert_eq!(longest.max(), Some(32_768u64), "{said}");
    volume.finish("long");
}
