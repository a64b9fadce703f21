//! Each word of superblock, group and inode, changed: what a check says, and what a repair
//! leaves, by the rules of FreeBSD's `fsck_ffs` ([`table`]).
//!
//! An ordinary run takes a part of all changes, others by each `WORDS_SEED`;
//! `WORDS_ALL=1 cargo test -p seekless-ffs words` takes them all.

#![allow(missing_docs)]
#![allow(clippy::cast_possible_truncation)]

#[allow(dead_code)]
mod garbage;
mod table;
pub(crate) mod volume;

use crate::rules::freebsd;
use crate::slice::some_or_all;
use freebsd::{Fs, Raw, Verdict};
use seekless_device::MemoryDevice;
use seekless_ffs::{FfsImage, Outcome, check, repair};
use seekless_fs::format::OpenOptions;
use seekless_fs::{FileKind, Inspect};
use seekless_units::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::Rule;
use volume::{FILES, File, SHAPES, Shape, bytes_of, tree};

/// Of so many changes an ordinary run takes one.
fn part() -> u64 {
    some_or_all(46, 23)
}

/// A small generator: every run meets the same values.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// Where a word stands, and the rules for it.
struct Spot {
    name: String,
    at: usize,
    len: usize,
    rule: Rule,
    what: Structure,
}

/// The structure that a word is in.
#[derive(Clone, PartialEq, Debug)]
enum Structure {
    Superblock,
    Group(i64),
    Summary,
    /// A file's inode, by its path; without one, an inode that is not in use. With the part
    /// of it that leads to blocks, if the word is of that.
    Inode(Option<&'static str>, Option<Pointer>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pointer {
    Direct,
    Indirect,
}

/// A sound volume, and the rule for each of its bytes.
struct Sound {
    bytes: Vec<u8>,
    files: BTreeMap<String, File>,
    fs: Fs,
    home: usize,
    /// Bytes that a repair has to restore.
    cares: Vec<bool>,
    spots: Vec<Spot>,
}

impl Sound {
    fn new(shape: Shape) -> Self {
        let bytes = volume::volume(shape);
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let verdict = freebsd::judge(device.as_ref(), false);
        assert!(verdict.wrong.is_empty(), "{shape:?}: {:#?}", verdict.wrong);
        let report = check(device.clone()).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
        let fs = Fs::find(device.as_ref());
        let image = FfsImage::open(device, OpenOptions::default()).unwrap();
        let home = if fs.ufs1 { 8192 } else { 65536 };
        let mut sound = Self {
            cares: vec![true; bytes.len()],
            files: tree(bytes.clone()),
            bytes,
            fs,
            home,
            spots: Vec::new(),
        };
        assert!(sound.fs.ncg() >= 3, "{}", sound.fs.ncg());
        sound.superblocks();
        for number in 0..sound.fs.ncg() {
            sound.group(number);
        }
        sound.summaries();
        sound.inodes(&image);
        sound
    }

    fn frag(&self, frag: i64) -> usize {
        (frag * self.fs.fsize()) as usize
    }

    /// A number of the undamaged volume.
    fn number(&self, at: usize, len: usize) -> u64 {
        let raw =
            Raw { bytes: self.bytes[at..at + len].to_vec(), big_endian: self.fs.raw.big_endian };
        raw.number(0, len)
    }

    /// The words of a structure whose fields have these rules.
    fn words(
        &mut self,
        base: usize,
        fields: &[(&'static str, usize, usize, Rule)],
        what: &Structure,
    ) {
        let end = fields.iter().map(|field| field.1 + field.2).max().unwrap();
        for at in (0..end).step_by(4) {
            let of = |at: usize| {
                fields.iter().find(|(_, from, len, _)| (*from..from + len).contains(&at))
            };
            let Some(field) = of(at) else { continue };
            for byte in at..(at + 4).min(end) {
                let rule = of(byte).expect("a field").3;
                // Where a search begins is no loss.
                let bounds = rule == Rule::Bounds && *what == Structure::Superblock;
                self.cares[base + byte] = rule == Rule::Rebuilds || bounds;
            }
            // Fields of two bytes have their own changes; of four of one byte each, the
            // strictest counts.
            let step = if field.2 == 2 { 2 } else { 4 };
            for at in (at..at + 4).step_by(step) {
                let fields: Vec<_> = (at..at + step).filter_map(of).collect();
                let order =
                    [Rule::Ignores, Rule::Rebuilds, Rule::OnlyWe, Rule::Bounds, Rule::Unique];
                let strict = |rule: Rule| order.iter().position(|one| *one == rule);
                let field = fields.iter().max_by_key(|field| strict(field.3)).expect("a field");
                let (name, rule) = (format!("{} +{at}", field.0), field.3);
                self.spots.push(Spot { name, at: base + at, len: step, rule, what: what.clone() });
            }
        }
    }

    fn of_format(&self, fields: &[table::Field]) -> Vec<(&'static str, usize, usize, Rule)> {
        let ufs1 = self.fs.ufs1;
        fields
            .iter()
            .map(|&(name, at, len, one, two)| (name, at, len, if ufs1 { one } else { two }))
            .collect()
    }

    fn superblocks(&mut self) {
        let fields = self.of_format(table::SUPERBLOCK);
        assert_eq!(fields.iter().map(|field| field.2).sum::<usize>(), 1376, "fields are missing");
        self.cares[self.home..self.home + 8192].fill(false);
        self.words(self.home, &fields, &Structure::Superblock);
        for number in 0..self.fs.ncg() {
            let copy = self.frag(number * self.fs.fpg() + self.fs.sblkno());
            self.cares[copy..copy + 8192].fill(false);
        }
    }

    fn group(&mut self, number: i64) {
        let fields = self.of_format(table::GROUP);
        assert_eq!(fields.iter().map(|field| field.2).sum::<usize>(), 168, "fields are missing");
        let base = self.frag(number * self.fs.fpg() + self.fs.cblkno());
        self.cares[base..base + self.fs.bsize() as usize].fill(false);
        self.words(base, &fields, &Structure::Group(number));
        let (maps, end) = (self.number(base + 92, 4) as usize, self.number(base + 100, 4) as usize);
        self.cares[base + maps..base + end].fill(true);
        for at in (168..self.fs.cgsize() as usize).step_by(4) {
            let of_maps = (at..at + 4).any(|at| (maps..end).contains(&at));
            let rule = if of_maps { Rule::Rebuilds } else { Rule::Ignores };
            let name = format!("byte {at} of the maps");
            self.spots.push(Spot {
                name,
                at: base + at,
                len: 4,
                rule,
                what: Structure::Group(number),
            });
        }
    }

    fn summaries(&mut self) {
        let base = self.frag(self.fs.csaddr());
        let end = 16 * self.fs.ncg() as usize;
        for at in (0..end).step_by(4) {
            let name = format!("byte {at} of the summary area");
            let spot = Spot {
                name,
                at: base + at,
                len: 4,
                rule: Rule::Rebuilds,
                what: Structure::Summary,
            };
            self.spots.push(spot);
        }
        self.cares[base + end..base + self.fs.cssize() as usize].fill(false);
    }

    fn inodes(&mut self, image: &FfsImage) {
        let size = self.fs.inode() as usize;
        let fields = if self.fs.ufs1 { table::INODE1 } else { table::INODE2 };
        let place = |ino: Ino| {
            let at = image.inode_location(ino).unwrap();
            (at.block.get() * 512) as usize + at.offset as usize
        };
        // All are of no concern but for what is looked at.
        let kept: Vec<usize> = self.spots.iter().map(|spot| spot.at).collect();
        for ino in 0..(self.fs.ipg() * self.fs.ncg()) as u32 {
            let base = place(Ino::new(ino));
            self.words(base, fields, &Structure::Inode(None, None));
        }
        self.spots.truncate(kept.len());
        for path in FILES {
            let base = place(self.files[path].ino);
            let special = matches!(self.files[path].kind, FileKind::Fifo | FileKind::CharDevice);
            let fields: Vec<_> = fields
                .iter()
                .map(|&(name, at, len, rule)| {
                    (
                        name,
                        at,
                        len,
                        if special && name == "di_size" { Rule::Rebuilds } else { rule },
                    )
                })
                .collect();
            self.words(base, &fields, &Structure::Inode(Some(path), None));
            self.pointers(base, Some(path));
        }
        // One that is not in use, among those that are.
        let free = (3..)
            .find(|&ino| self.bytes[place(Ino::new(ino))..][..size].iter().all(|&byte| byte == 0))
            .unwrap();
        let base = place(Ino::new(free));
        let fields: Vec<_> = fields
            .iter()
            .map(|&(name, at, len, _)| {
                let rule = match name {
                    "di_mode" | "di_size" => Rule::Rebuilds,
                    _ => Rule::Ignores,
                };
                (name, at, len, rule)
            })
            .collect();
        self.words(base, &fields, &Structure::Inode(None, None));
        self.pointers(base, None);
    }

    /// The words of an inode's block numbers.
    fn pointers(&mut self, base: usize, path: Option<&'static str>) {
        let (first, width) = if self.fs.ufs1 { (40, 4) } else { (112, 8) };
        let file = path.map(|path| self.files[path].clone());
        for n in 0..15 {
            let used = match &file {
                None => 0,
                Some(file) => match file.kind {
                    FileKind::Fifo => 0,
                    FileKind::CharDevice => 1,
                    FileKind::Symlink if file.contents.len() < width * 15 => {
                        file.contents.len().div_ceil(width)
                    }
                    _ => (file.len.div_ceil(4096) as usize).min(13),
                },
            };
            let rule = if n < used { Rule::Unique } else { Rule::Rebuilds };
            let kind = if n < 12 { Pointer::Direct } else { Pointer::Indirect };
            for at in (0..width).step_by(4) {
                let at = base + first + n * width + at;
                let what = Structure::Inode(path, Some(kind));
                let name = format!("block number {n}");
                self.spots.push(Spot { name, at, len: 4, rule, what });
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, len: usize, value: u32, big_endian: bool) {
    let number = if big_endian {
        value.to_be_bytes()[4 - len..].to_vec()
    } else {
        value.to_le_bytes()[..len].to_vec()
    };
    bytes[at..at + len].copy_from_slice(&number);
}

/// What FreeBSD finds in a volume without counting anything, but for check hashes.
fn judged(sound: &Sound, bytes: &[u8]) -> Verdict {
    let device = MemoryDevice::new(bytes.to_vec());
    let raw = Raw::read(&device, sound.home as u64, 8192, sound.fs.raw.big_endian);
    let fs = Fs { raw, ufs1: sound.fs.ufs1 };
    let mut verdict = Verdict::default();
    let magic = if fs.ufs1 { 0x0001_1954 } else { 0x1954_0119 };
    if fs.magic() != magic {
        verdict.wrong.push("fs_magic".into());
        return verdict;
    }
    fs.validate(false, &mut verdict);
    if verdict.wrong.iter().all(|wrong| wrong.contains("ckhash")) {
        for number in 0..sound.fs.ncg() {
            sound.fs.group(&device, number, &mut verdict);
        }
    }
    verdict.wrong.retain(|wrong| !is_of_mkfs(wrong));
    verdict.wrong.retain(|wrong| {
        !wrong.starts_with("fs_ckhash")
            && !wrong.starts_with("cg_ckhash")
            && !wrong.starts_with("di_ckhash")
    });
    verdict
}

/// What `mkfs` keeps to, but `fsck_ffs` does not ask: numbers for kernels from before 2002,
/// and a flag without anything it stands for.
fn is_of_mkfs(wrong: &str) -> bool {
    ["fs_old_size", "fs_old_dsize", "fs_old_csaddr", "fs_old_cstotal", "FS_METACKHASH", "fs_dsize"]
        .iter()
        .any(|name| wrong.starts_with(name))
}

/// Whether a hash covers a word, of which every change is seen.
fn is_hashed(sound: &Sound, spot: &Spot) -> bool {
    sound.fs.has_hash(match spot.what {
        Structure::Superblock => freebsd::SUPERBLOCK,
        Structure::Group(_) => freebsd::GROUPS,
        Structure::Inode(Some(_), _) => freebsd::INODES,
        Structure::Summary | Structure::Inode(None, _) => return false,
    })
}

/// One change: what of it is otherwise than the rules have it.
fn change(sound: &Sound, spot: &Spot, value: u32) -> Result<(), String> {
    let mut bytes = sound.bytes.clone();
    put(&mut bytes, spot.at, spot.len, value, sound.fs.raw.big_endian);
    if bytes == sound.bytes {
        return Ok(());
    }
    let within = |at: &usize| bytes[*at] != sound.bytes[*at] && sound.cares[*at];
    let rule = match spot.rule {
        // Only what lies behind the maps was changed.
        Rule::Rebuilds if !(spot.at..spot.at + spot.len).any(|at| within(&at)) => Rule::Ignores,
        rule => rule,
    };
    let by_freebsd = judged(sound, &bytes);
    // The table is by the same rules, where they are about single words.
    let counted = spot.name.starts_with("fs_cstotal");
    if spot.what == Structure::Superblock && !counted {
        match rule {
            Rule::Ignores if !by_freebsd.wrong.is_empty() => {
                return Err(format!("the table lets be what is wrong: {:?}", by_freebsd.wrong));
            }
            Rule::Rebuilds if by_freebsd.wrong.is_empty() => {
                return Err("the table has as wrong what FreeBSD does not look at".into());
            }
            _ => {}
        }
    }
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let report = check(device.clone()).map_err(|error| format!("check: {error}"))?;
    let noticed = !report.is_clean();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| format!("{} {}", finding.code(), finding.what))
        .collect();
    let must = match rule {
        Rule::Rebuilds => true,
        Rule::Bounds => !by_freebsd.wrong.is_empty(),
        Rule::Ignores | Rule::OnlyWe | Rule::Unique => false,
    } || is_hashed(sound, spot);
    if must && !noticed {
        return Err("the check finds nothing".into());
    }
    if rule == Rule::Ignores && noticed && !is_hashed(sound, spot) {
        return Err(format!("the check finds {found:?}"));
    }
    let repaired = repair(device.clone()).map_err(|error| format!("repair: {error}"))?;
    if repaired.outcome == Outcome::Left {
        return Err(format!("the repair leaves {:?}", repaired.report.findings));
    }
    let left = check(device.clone()).map_err(|error| format!("check after repair: {error}"))?;
    if !left.is_clean() {
        return Err(format!("after the repair: {:?}", left.findings));
    }
    let mut verdict = freebsd::judge(device.as_ref(), false);
    verdict.wrong.retain(|wrong| !is_of_mkfs(wrong));
    if !verdict.wrong.is_empty() {
        return Err(format!("FreeBSD finds after the repair: {:?}", verdict.wrong));
    }
    let after = bytes_of(&device);
    if rule == Rule::Unique {
        return bystanders(sound, spot, &bytes, after);
    }
    let is_wrong = rule == Rule::Rebuilds
        || spot.what == Structure::Superblock && !by_freebsd.wrong.is_empty();
    let own = spot.at..spot.at + spot.len;
    let of_inode = matches!(spot.what, Structure::Inode(..));
    // What a file has of attributes goes with the words that tell of them.
    let exact = !(of_inode && rule == Rule::OnlyWe);
    let hashes = |at: usize| is_hash(sound, at);
    let differs = |&at: &usize| {
        after[at] != sound.bytes[at]
            && sound.cares[at]
            && !hashes(at)
            && (is_wrong || !own.contains(&at))
    };
    let sectors = (0..after.len()).step_by(512).map(|from| from..(from + 512).min(after.len()));
    let changed = sectors.filter(|sector| after[sector.clone()] != sound.bytes[sector.clone()]);
    if let Some(at) = changed.flatten().filter(|_| exact).find(differs) {
        return Err(format!(
            "byte {at} is {}, not {}; found {found:?}",
            after[at], sound.bytes[at]
        ));
    }
    let now = tree(after);
    for (path, file) in &sound.files {
        if now.get(path).is_none_or(|other| !file.is(other)) {
            return Err(format!("{path} is lost; found {found:?}"));
        }
    }
    if now.len() != sound.files.len() {
        return Err("there are new names".into());
    }
    Ok(())
}

/// Whether a byte is one of a check hash, which the judge has compared.
fn is_hash(sound: &Sound, at: usize) -> bool {
    let within = |base: usize, len: usize| (base..base + len).contains(&at);
    let group = (0..sound.fs.ncg()).any(|number| {
        let base = sound.frag(number * sound.fs.fpg());
        within(base + sound.frag(sound.fs.cblkno()) + 132, 4)
            || within(
                base + sound.frag(sound.fs.iblkno()),
                (sound.fs.ipg() * sound.fs.inode()) as usize,
            ) && !sound.fs.ufs1
                && (244..248).contains(&((at - base - sound.frag(sound.fs.iblkno())) % 256))
    });
    within(sound.home + 1304, 4) || sound.fs.has_hash(freebsd::GROUPS | freebsd::INODES) && group
}

/// Files that the changed word does not concern have the contents they had, in their place or
/// in `lost+found`.
fn bystanders(sound: &Sound, spot: &Spot, damaged: &[u8], after: Vec<u8>) -> Result<(), String> {
    let Structure::Inode(Some(path), pointer) = &spot.what else { return Ok(()) };
    if *pointer == Some(Pointer::Indirect) {
        // Anything may be a tree of block numbers.
        return Ok(());
    }
    let victim = &sound.files[*path];
    let width = if sound.fs.ufs1 { 4 } else { 8 };
    let start = spot.at - spot.at % width;
    let raw =
        Raw { bytes: damaged[start..start + width].to_vec(), big_endian: sound.fs.raw.big_endian };
    // Whatever lies in a block with it may be claimed twice.
    let mut blocks: Vec<u64> = victim.frags.iter().map(|frag| frag / 8).collect();
    blocks.push(raw.number(0, width) / 8);
    let now = tree(after);
    for (other, file) in &sound.files {
        let shares = file.frags.iter().any(|frag| blocks.contains(&(frag / 8)));
        if file.ino == victim.ino || shares {
            continue;
        }
        let stays = now.get(other).is_some_and(|found| file.is(found));
        let moved = now.iter().any(|(at, found)| at.starts_with("/lost+found/") && file.is(found));
        if !stays && !moved {
            return Err(format!("{other} is lost"));
        }
    }
    Ok(())
}

#[test]
fn each_word_is_found_and_mended_as_by_fsck_ffs() {
    let all = std::env::var_os("WORDS_ALL").is_some();
    let seed = std::env::var("WORDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let (mut failures, mut done) = (Vec::new(), 0);
    for shape in SHAPES {
        let sound = Sound::new(shape);
        for (n, spot) in sound.spots.iter().enumerate() {
            for (kind, value) in [0, 1, u32::MAX, random.next()].into_iter().enumerate() {
                let turn = (n * 4 + kind) as u64;
                // Consecutive words and the four values take turns.
                if !all && !(turn * 7 + seed).is_multiple_of(part()) {
                    continue;
                }
                done += 1;
                if let Err(why) = change(&sound, spot, value) {
                    let Spot { name, what, rule, .. } = spot;
                    failures
                        .push(format!("{shape:?} {what:?} {name} {rule:?} <- {value:#x}: {why}"));
                }
            }
        }
        assert!(sound.spots.len() > 1000, "{}", sound.spots.len());
    }
    println!("{done} changes");
    assert!(done > some_or_all(500, 1000), "{done}");
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {done}:\n{shown}", failures.len());
}
