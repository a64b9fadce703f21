//! Where clusters are taken: mshowfat shows those of a model that was written from the
//! description of the policies alone.

use super::shapes::{Shape, image, open_with, options, ran, written};
use crate::slice::some_or_all;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::Discipline;
use seekless_fat::LiveOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership, SetAttr};
use seekless_placement::cluster::ClusterPlacement;
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

/// Where the search for a file without clusters begins, and for one that grows where the
/// clusters behind it are not all free.
#[derive(Clone, Copy)]
enum From {
    Zero,
    NextFree,
    Random,
    Start,
}

/// `fat_allocpolicy`, as its table says.
const TABLE: [(&str, From, From); 6] = [
    ("0", From::Zero, From::Start),
    ("1", From::NextFree, From::NextFree),
    ("2", From::Random, From::Start),
    ("3", From::Random, From::NextFree),
    ("4", From::Random, From::Random),
    ("5", From::NextFree, From::Start),
];

/// The map of clusters in use, with what FreeBSD remembers besides.
struct Model {
    used: Vec<bool>,
    next: usize,
    row: (From, From),
    dice: ClusterPlacement,
}

impl Model {
    fn free_at(&self, start: usize, most: usize) -> usize {
        (start..self.used.len()).take(most).take_while(|&at| !self.used[at]).count()
    }

    /// `clusteralloc`: a run of `count`, or what comes closest.
    fn run(&mut self, start: usize, count: usize) -> Option<(usize, usize)> {
        let behind = if start == 0 { 0 } else { self.free_at(start, count) };
        if behind == count {
            return Some((start, count));
        }
        let from = match if start == 0 { self.row.0 } else { self.row.1 } {
            From::Zero => 0,
            From::NextFree => self.next,
            From::Random => self.dice.begin(None) as usize,
            From::Start => start,
        };
        let mut best = (0, 0);
        for (mut at, end) in [(from, self.used.len()), (0, from)] {
            while at < end {
                let len = self.free_at(at, count);
                if len == count {
                    return Some((at, count));
                }
                if len > best.1 {
                    best = (at, len);
                }
                at += len + 1;
            }
        }
        if behind > 0 {
            return Some((start, behind));
        }
        (best.1 > 0).then_some(best)
    }

    /// What a call that needs `count` clusters more gets.
    fn take(&mut self, chain: &mut Vec<usize>, mut count: usize) {
        while count > 0 {
            let start = chain.last().map_or(0, |last| last + 1);
            let (at, len) = self.run(start, count).unwrap();
            self.used[at..at + len].fill(true);
            chain.extend(at..at + len);
            count -= len;
            self.next = if at + len < self.used.len() { at + len } else { 2 };
        }
    }

    fn give(&mut self, clusters: &[usize]) {
        clusters.iter().for_each(|&cluster| self.used[cluster] = false);
    }
}

/// The clusters of a file in what mshowfat prints.
fn shown(text: &str) -> Vec<usize> {
    let mut clusters = Vec::new();
    for part in text.split('<').skip(1) {
        let run = part.split('>').next().unwrap();
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        clusters.extend(first.parse::<usize>().unwrap()..=last.parse().unwrap());
    }
    clusters
}

/// A volume that fills up and empties again: what each file has, by mshowfat.
fn try_policy(shape: &Shape, row: (&str, From, From), seed: u64) {
    let Some(device) = image(shape) else { return };
    let how = LiveOptions { clusters: Some(row.0.into()), seed, ..options() };
    let mut live = open_with(&device, Discipline::Normal, how);
    let (root, space) = (live.root(), live.space());
    let cluster = u64::from(space.file_block);
    let count = (space.blocks * u64::from(space.block_size) / cluster) as usize;
    let mut used = vec![false; count + 2];
    used[..2].fill(true);
    let is_fat32 = shape.how.contains(&"32");
    used[2] = is_fat32;
    let dice = ClusterPlacement::by_name("random", count as u32 + 1, None, seed).unwrap();
    let mut model = Model { used, next: 2, row: (row.1, row.2), dice };
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut below = move |limit: u64| rng.next_u64() % limit;
    // Files by number: the inode, the length, the clusters.
    let mut files: BTreeMap<u64, (Ino, u64, Vec<usize>)> = BTreeMap::new();
    let name = |number: u64| format!("F{number}.DAT");
    for step in 0..700 {
        let number = below(14);
        let free = model.used.iter().filter(|used| !**used).count() as u64;
        match (files.contains_key(&number), below(12)) {
            (false, _) => {
                let made = live.make(root, name(number).as_bytes(), NewFile::Regular, OWNER);
                files.insert(number, (made.unwrap().ino, 0, Vec::new()));
            }
            (true, 0) => {
                let (_, _, chain) = files.remove(&number).unwrap();
                model.give(&chain);
                live.unlink(root, name(number).as_bytes()).unwrap();
            }
            (true, 1) => {
                let (ino, len, chain) = files.get_mut(&number).unwrap();
                *len = below(*len + 1);
                let set = SetAttr { size: Some(*len), ..SetAttr::default() };
                live.set_attr(*ino, &set).unwrap();
                let gone = chain.split_off(len.div_ceil(cluster) as usize);
                model.give(&gone);
            }
            (true, 2) => {
                // A directory that is gone again has moved the next free cluster on.
                let dir = format!("D{step}");
                if free > 0 {
                    live.make(root, dir.as_bytes(), NewFile::Directory, OWNER).unwrap();
                    live.rmdir(root, dir.as_bytes()).unwrap();
                    let mut chain = Vec::new();
                    model.take(&mut chain, 1);
                    model.give(&chain);
                }
            }
            (true, _) => {
                let (ino, len, chain) = files.get_mut(&number).unwrap();
                let more = 1 + below(if step % 9 == 0 { 90 } else { 7 } * cluster);
                let needed = (*len + more).div_ceil(cluster) - chain.len() as u64;
                if needed <= free {
                    let written = live.write(*ino, ByteLen::new(*len), &vec![7; more as usize]);
                    assert_eq!(written.unwrap(), more as usize);
                    *len += more;
                    model.take(chain, needed as usize);
                }
            }
        }
    }
    live.unmount().unwrap();
    let path = written(&device);
    for (&number, (_, _, chain)) in &files {
        let file = format!("::{}", name(number));
        let arguments = ["-i", path.to_str().unwrap(), &file];
        let Some((found, text)) = ran("mshowfat", &arguments) else { break };
        assert!(found, "{text}");
        assert_eq!(shown(&text), *chain, "policy {} {shape:?}: {file}: {text}", row.0);
    }
    assert!(files.values().any(|(_, _, chain)| chain.len() > 40));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn clusters_are_those_of_the_description() {
    let shapes = [
        Shape { how: &["-F", "12", "-s", "1"], kibibytes: 720 },
        Shape { how: &["-F", "16", "-s", "1"], kibibytes: 4096 },
        // mtools takes a volume of fewer clusters for another width.
        Shape { how: &["-F", "32", "-s", "1"], kibibytes: 34816 },
    ];
    for shape in &shapes {
        for row in TABLE {
            for seed in 1..some_or_all(2, 4) {
                try_policy(shape, row, seed);
            }
        }
    }
}

/// The hint of FSINFO is where a mount goes on.
#[test]
fn the_hint_is_carried_over_mounts() {
    let shape = Shape { how: &["-F", "32", "-s", "1"], kibibytes: 2048 };
    let Some(device) = image(&shape) else { return };
    let mut ends = Vec::new();
    for n in 0..3u8 {
        let mut live = open_with(&device, Discipline::Normal, options());
        let made = live.make(live.root(), &[b'A' + n], NewFile::Regular, OWNER).unwrap();
        live.write(made.ino, ByteLen::ZERO, &[n; 3000]).unwrap();
        let runs = live.data_runs(made.ino).unwrap();
        ends.push((runs[0].extent.start, runs[0].extent.end()));
        live.unlink(live.root(), &[b'A' + n]).unwrap();
        live.unmount().unwrap();
    }
    assert_eq!(ends[0].1, ends[1].0);
    assert_eq!(ends[1].1, ends[2].0);
}
