//! Each field of directory entries with several values in turn: a repair keeps as many names
//! and contents as `fsck.fat -a`, or its report says what is lost.

use super::patient::Patient;
use super::{Random, skip};
use crate::slice::some_or_all;
use seekless_device::MemoryDevice;
use seekless_fat::{FatImage, LostChains, repair};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Of how many damaged images an ordinary run takes one.
const SLICE: usize = 37;
/// Entries that are damaged, with the pieces of their long names.
const ENTRIES: [&str; 10] = [
    "/STAYS",
    "/pieces",
    "/dir",
    "/many",
    "/dir/SMALL.TXT",
    "/dir/empty",
    "/dir/snow ☃ Ünïcode.txt",
    "/dir/below",
    "/dir/below/a text with a long name.text",
    "/many/some-longer-name-120",
];
const DIRECTORIES: [&str; 3] = ["/dir", "/dir/below", "/many"];

/// A file of the sound image: the names of each part of its path, and what it holds; `None`
/// for a directory.
struct Known {
    path: Vec<[String; 2]>,
    contents: Option<Vec<u8>>,
}

/// The remains of a file in a repaired image; more is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Remains {
    Nothing,
    /// A name, and not all of its contents.
    Name,
    /// Its short name and its contents.
    Contents,
    /// Its long name and its contents.
    All,
}

fn open(bytes: &[u8]) -> Result<FatImage, FsError> {
    let options = OpenOptions { ignore_checksums: true, skip_journal: false };
    FatImage::open(Arc::new(MemoryDevice::new(bytes.to_vec())), options)
}

fn contents(image: &FatImage, ino: Ino) -> Option<Vec<u8>> {
    let attr = image.attr(ino).ok().filter(|attr| attr.kind == FileKind::Regular)?;
    let mut bytes = vec![0; (attr.size as usize).min(1 << 20)];
    let got = image.read(ino, ByteLen::ZERO, &mut bytes).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

/// Calls for each file of an image with its path.
fn walk(image: &FatImage, dir: Ino, path: &str, depth: u32, visit: &mut dyn FnMut(&str, Ino)) {
    let mut found = Vec::new();
    let _ = image.read_dir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        }
        ControlFlow::Continue(())
    });
    for (name, ino) in found {
        let path = format!("{path}/{name}");
        visit(&path, ino);
        let is_dir = image.attr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory);
        if is_dir && depth < 6 {
            walk(image, ino, &path, depth + 1, visit);
        }
    }
}

/// The files of a sound image.
fn known(patient: &Patient) -> Vec<Known> {
    let image = patient.opened();
    let mut paths = Vec::new();
    walk(&image, Ino::new(1), "", 0, &mut |path, ino| paths.push((path.to_string(), ino)));
    let short = |path: &str| {
        let at = patient.short(path);
        let name = &patient.bytes[at..at + 11];
        let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end().to_string();
        match text(&name[8..]).as_str() {
            "" => text(&name[..8]),
            extension => format!("{}.{extension}", text(&name[..8])),
        }
    };
    let parts = |path: &str| {
        let ends = path.char_indices().filter(|&(at, c)| at > 0 && c == '/').map(|(at, _)| at);
        let ends = ends.chain([path.len()]);
        ends.map(|end| {
            let long = path[..end].rsplit('/').next().unwrap_or_default().to_string();
            [long, short(&path[..end])]
        })
        .collect()
    };
    paths
        .iter()
        .map(|(path, ino)| Known { path: parts(path), contents: contents(&image, *ino) })
        .collect()
}

impl Known {
    fn kept(&self, image: &FatImage) -> Remains {
        let mut best = Remains::Nothing;
        for choice in 0..1u32 << self.path.len() {
            let names: Vec<&str> = (0..self.path.len())
                .map(|n| self.path[n][(choice >> n & 1) as usize].as_str())
                .collect();
            let Ok(ino) = resolve(image, format!("/{}", names.join("/")).as_bytes()) else {
                continue;
            };
            let is_whole = match &self.contents {
                Some(old) => contents(image, ino).is_some_and(|new| new.starts_with(old)),
                None => image.attr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory),
            };
            best = best.max(match (is_whole, choice) {
                (false, _) => Remains::Name,
                (true, 0) => Remains::All,
                (true, _) => Remains::Contents,
            });
        }
        best
    }
}

/// How many contents of files are somewhere in an image.
fn anywhere(image: &FatImage, known: &[Known]) -> usize {
    let mut all = Vec::new();
    walk(image, Ino::new(1), "", 0, &mut |_, ino| all.extend(contents(image, ino)));
    let has = |old: &Vec<u8>| !old.is_empty() && all.iter().any(|new| new.starts_with(old));
    known.iter().filter_map(|known| known.contents.as_ref()).filter(|old| has(old)).count()
}

/// What fsck.fat -a leaves of an image, in two runs; `None` where it gives up.
fn fsck(path: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
    std::fs::write(path, bytes).expect("write");
    for _ in 0..2 {
        let output = Command::new(program()).arg("-a").arg(path).output().expect("fsck.fat");
        if !matches!(output.status.code(), Some(0 | 1)) {
            return None;
        }
    }
    Some(std::fs::read(path).expect("read"))
}

fn program() -> &'static str {
    let paths = ["/usr/sbin/fsck.fat", "/sbin/fsck.fat"];
    paths.into_iter().find(|path| Path::new(path).exists()).unwrap_or("fsck.fat")
}

/// Where and with which bytes an image is damaged.
fn damages(patient: &Patient, seed: u64) -> Vec<(String, usize, Vec<u8>)> {
    let mut random = Random(seed);
    let mut slots: Vec<(String, usize)> = Vec::new();
    for path in DIRECTORIES {
        let at = patient.cluster(patient.first(path));
        slots.extend([(format!("{path}/."), at), (format!("{path}/.."), at + 32)]);
    }
    for path in ENTRIES {
        let mut at = patient.short(path);
        slots.push((path.to_string(), at));
        while !at.is_multiple_of(512) && patient.bytes[at - 32 + 11] == 0x0F {
            at -= 32;
            slots.push((format!("a piece of {path}"), at));
        }
    }
    let mut all = Vec::new();
    for (what, at) in &slots {
        for n in 0..32 {
            let old = patient.bytes[at + n];
            let values = [old ^ 1, old ^ 8, old ^ 0x10, old ^ 0x80, 0, 0x20, 0xFF, 0xE5];
            let mut values: Vec<u8> = values.to_vec();
            values.push(random.below(256) as u8);
            values.retain(|&value| value != old);
            values.sort_unstable();
            values.dedup();
            all.extend(values.iter().map(|&value| (format!("{what}: {n}"), at + n, vec![value])));
        }
    }
    // Clusters of others, free ones and none; lengths.
    let clusters: Vec<u16> = ["/STAYS", "/pieces", "/dir", "/many", "/dir/below"]
        .map(|path| patient.first(path) as u16)
        .into_iter()
        .chain([patient.chain("/pieces")[5] as u16, 0, 1, 2, 300, 20_000, 0xFFF7, 0xFFFF])
        .collect();
    for (what, at) in &slots {
        for cluster in &clusters {
            all.push((format!("{what}: cluster"), at + 26, cluster.to_le_bytes().to_vec()));
        }
        for len in [0u32, 1, 511, 512, 513, 2048, 5000, 70_000, u32::MAX] {
            all.push((format!("{what}: length"), at + 28, len.to_le_bytes().to_vec()));
        }
    }
    all.retain(|(_, at, bytes)| patient.bytes[*at..*at + bytes.len()] != bytes[..]);
    all
}

/// `SWEEP_SEED=n` takes all damaged images, with values drawn from n among them.
#[test]
fn a_repair_keeps_what_fsck_keeps() {
    if !Path::new(program()).exists() {
        skip::skip("fsck.fat is not installed");
        return;
    }
    let seed: Option<u64> = std::env::var("SWEEP_SEED").ok().and_then(|seed| seed.parse().ok());
    let step = if seed.is_some() { 1 } else { some_or_all(3 * SLICE, SLICE) };
    let file = tempfile::NamedTempFile::new().expect("file");
    let (mut judged, mut less) = (0, Vec::new());
    for (nth, patient) in Patient::all().enumerate() {
        let files = known(&patient);
        assert!(files.len() >= 50, "only {} files", files.len());
        let damages = damages(&patient, seed.unwrap_or(1));
        for (what, at, bytes) in damages.into_iter().skip(nth * 7).step_by(step) {
            let what = format!("fat{}, {what}, {at:#x} = {bytes:x?}", patient.bits);
            let mut damaged = patient.copy();
            damaged.put(at, &bytes);
            let target = Arc::new(MemoryDevice::new(damaged.bytes.clone()));
            let repaired = repair(target.clone(), LostChains::Kept).expect(&what);
            assert_ne!(repaired.outcome, Outcome::Left, "{what}: {:#?}", repaired.report);
            let Some(theirs) = fsck(file.path(), &damaged.bytes) else { continue };
            judged += 1;
            let ours = super::check::bytes_of(target.as_ref());
            let (ours, theirs) = (open(&ours).expect(&what), open(&theirs).expect(&what));
            let mut lost: Vec<String> = Vec::new();
            for file in &files {
                let (our, their) = (file.kept(&ours), file.kept(&theirs));
                if our < their {
                    let path: Vec<&str> = file.path.iter().map(|names| &*names[0]).collect();
                    lost.push(format!("{}: {our:?}, by fsck.fat {their:?}", path.join("/")));
                }
            }
            let (our, their) = (anywhere(&ours, &files), anywhere(&theirs, &files));
            if our < their {
                lost.push(format!("{our} contents, by fsck.fat {their}"));
            }
            let says = |what: &str| what.contains("lost") || what.contains("loses");
            let is_told = repaired.report.findings.iter().any(|found| says(&found.what));
            if !lost.is_empty() && !is_told {
                let said: Vec<_> = repaired.report.findings.iter().map(|f| &f.what).collect();
                println!("{what}: {lost:?}; {said:?}");
                less.push(what);
            }
        }
    }
    println!("{judged} damaged images");
    assert!(judged > some_or_all(130, 400), "only {judged} judged");
    assert!(less.is_empty(), "{} of {judged} (told above): {less:#?}", less.len());
}
