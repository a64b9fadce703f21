//! `blocks=next-free` against the rule itself: each block is the first free one behind
//! the last that was taken, all over the volume.

use super::shapes::{Shape, fsck, image, options};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_units::{BlockNo, ByteLen, GroupNo, Ino};
use std::sync::Arc;

const BLOCK: usize = 1024;
const PER_GROUP: usize = 1024;

/// Blocks in use, by the bitmaps; and where the data of the first group begin.
fn in_use(device: &Arc<MemoryDevice>) -> (Vec<bool>, usize) {
    let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
    // The first block, of the boot sector, is in no group.
    let mut used = vec![true];
    let mut first = 0;
    let blocks = image.geometry().blocks as usize;
    for group in 0..(blocks - 1).div_ceil(PER_GROUP) {
        let desc = image.group_desc(GroupNo::new(group as u32)).unwrap();
        let field = |at: usize| u32::from_le_bytes(desc[at..at + 4].try_into().unwrap());
        let bitmap = image.read_block(BlockNo::new(u64::from(field(0)))).unwrap();
        used.extend((0..PER_GROUP).map(|bit| bitmap[bit / 8] & 1 << (bit % 8) != 0));
        if group == 0 {
            let table = image.geometry().inodes_per_group as usize * 128 / BLOCK;
            first = field(8) as usize + table;
        }
    }
    used.truncate(blocks);
    (used, first)
}

#[test]
fn each_block_is_the_next_free_one() {
    let how = &["-g", "1024", "-I", "128", "-m", "0"];
    let shape = Shape { kind: "ext2", block: BLOCK as u32, mebibytes: 6, how };
    let device = image(&shape);
    let open = |blocks: Option<&str>| {
        let how = LiveOptions { blocks: blocks.map(Into::into), ..options() };
        let clock = Arc::new(VirtualClock::new());
        ExtLive::open(device.clone(), clock, Config::new(Discipline::Async), how).unwrap()
    };
    // The names are there before: directories take blocks too.
    let mut live = open(None);
    let owner = Ownership { uid: 0, gid: 0, perm: 0o644 };
    let root = live.root();
    for n in 0..500 {
        live.make(root, format!("{n}").as_bytes(), NewFile::Regular, owner).unwrap();
    }
    live.unmount().unwrap();
    let (mut used, first) = in_use(&device);
    let mut live = open(Some("next-free"));
    let found = |n: usize| live.lookup(root, format!("{n}").as_bytes()).unwrap().unwrap();
    // Files, and how many blocks each has: no more than need no indirect block.
    let mut files: Vec<(Ino, usize)> = (0..500).map(found).map(|ino| (ino, 0)).collect();
    let mut chance = Pcg64Mcg::seed_from_u64(5);
    let mut below = |limit: usize| chance.next_u64() as usize % limit;
    let mut last = None;
    let (mut wrapped, mut skipped) = (0, 0);
    for n in 0..30_000 {
        let which = below(files.len());
        let (ino, count) = files[which];
        if count == 12 || below(12) == 0 {
            for run in live.data_runs(ino).unwrap() {
                let start = run.extent.start.get() as usize;
                used[start..start + run.extent.len as usize].fill(false);
            }
            live.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            live.sync().unwrap();
            files[which].1 = 0;
            continue;
        }
        let from = last.map_or(first, |last| last + 1);
        let expected = (from..used.len()).chain(0..from).find(|&at| !used[at]);
        let written = live.write(ino, ByteLen::new((count * BLOCK) as u64), &[7; BLOCK]);
        let expected = expected.expect("the files do not fill the volume");
        written.unwrap();
        let runs = live.data_runs(ino).unwrap();
        let end = runs.last().unwrap().extent;
        assert_eq!(end.end().get() as usize - 1, expected, "write {n} behind {last:?}");
        used[expected] = true;
        wrapped += usize::from(expected < from);
        skipped += usize::from(expected > from);
        last = Some(expected);
        files[which].1 += 1;
    }
    assert!(wrapped > 2 && skipped > 500, "{wrapped} {skipped}");
    live.unmount().unwrap();
    fsck(&device, "next-free");
}
