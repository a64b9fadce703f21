//! States of FAT volumes. The images before and after each operation are made by
//! mtools, states are checked by fsck.fat and read by mtools again.

mod directories;
mod files;
mod marks;
mod names;
mod parts;

use crate::holes;
use crate::order::case::{Case, Verdict};
use crate::order::judge::{Scratch, check, output, text};
use crate::order::state::{Part, Recorded, Step, contents};
use crate::order::tree::{Harm, Kind, Node, Shows, Tree, judge};
use parts::Volume;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};

/// Commands of mtools, their arguments separated by blanks. `write NAME LEN` makes
/// a file with bytes of its own.
pub(crate) type Commands = &'static [&'static str];

/// All operations.
pub(crate) fn operations() -> impl Iterator<Item = &'static Operation> {
    let all = [files::OPERATIONS, names::OPERATIONS, directories::OPERATIONS, marks::OPERATIONS];
    all.into_iter().flatten()
}

/// What makes the next image of an operation.
pub(crate) enum Do {
    /// Commands on the last image.
    Then(Commands),
    /// Commands in place of those that prepared it: mtools cannot lengthen or
    /// shorten a file.
    Instead(Commands),
    /// Bytes that no tool here sets, by their place.
    Set(&'static [(usize, u8)]),
}

/// An operation on a FAT volume.
pub(crate) struct Operation {
    /// Bits of an entry of the table: 12, 16 or 32.
    pub(crate) bits: u32,
    pub(crate) prepare: Commands,
    pub(crate) steps: &'static [Do],
    pub(crate) case: Case,
}

/// Runs a program of mtools on an image. The time is fixed, so that the same
/// commands make the same bytes.
fn mtools(program: &str, image: &Path, args: &[&str]) {
    let output = try_mtools(program, image, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
}

fn try_mtools(program: &str, image: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["-i", text(image)]).args(args);
    output(command.env("SOURCE_DATE_EPOCH", "1700000000").env("MTOOLS_SKIP_CHECK", "1"))
}

fn perform(scratch: &Scratch, image: &Path, commands: Commands) {
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["write", name, len] => {
                let file = scratch.join("contents");
                fs::write(&file, contents(name, len.parse().expect("a length"))).expect("contents");
                mtools("mcopy", image, &["-D", "o", text(&file), &format!("::{name}")]);
            }
            _ => mtools(words[0], image, &words[1..]),
        }
    }
}

/// A new volume with what all volumes have, and what an operation needs.
fn make(scratch: &Scratch, image: &Path, bits: u32, commands: Commands) -> Vec<u8> {
    let len = match bits {
        12 => 1 << 20,
        16 => 2_300 << 10,
        _ => 35 << 20,
    };
    fs::File::create(image).and_then(|file| file.set_len(len)).expect("image");
    let bits = bits.to_string();
    let args = ["--invariant", "-a", "-s", "1", "-n", "NONAME", "-F", &bits, text(image)];
    crate::order::judge::run("mkfs.fat", &args);
    perform(scratch, image, &["write KEEP 1300", "mmd ::D ::E", "write D/IN 700"]);
    perform(scratch, image, commands);
    holes::take(image)
}

/// Gives the first free clusters, and what is behind the end of files, the bytes
/// of a file that was deleted.
fn soil(image: &mut [u8]) {
    let copy = image.to_vec();
    let volume = Volume::new(&copy);
    for cluster in volume.free().take(200) {
        let range = volume.bytes(cluster);
        let deleted = contents("DELETED", range.len());
        image[range].copy_from_slice(&deleted);
    }
    for (cluster, used) in volume.roles().ends {
        let range = volume.bytes(cluster);
        let deleted = contents("DELETED", range.len());
        image[range.start + used..range.end].copy_from_slice(&deleted[used..]);
    }
}

/// Gives what is free in an image the bytes it has in the one before.
fn keep_free(before: &[u8], image: &mut [u8]) {
    let copy = image.to_vec();
    let volume = Volume::new(&copy);
    let mut kept: Vec<Range<usize>> = volume.free().map(|cluster| volume.bytes(cluster)).collect();
    for (cluster, used) in volume.roles().ends {
        let range = volume.bytes(cluster);
        kept.push(range.start + used..range.end);
    }
    for range in kept {
        image[range.clone()].copy_from_slice(&before[range]);
    }
}

/// Performs an operation; returns its images, and what each of them shows.
pub(crate) fn record(operation: &Operation) -> (Recorded, Vec<Tree>) {
    let scratch = Scratch::new("record");
    let image = scratch.join("image");
    let mut before = make(&scratch, &image, operation.bits, operation.prepare);
    soil(&mut before);
    holes::put(&image, &before);
    let mut trees = vec![walk(&scratch, &image).expect("a volume before")];
    let mut steps: Vec<Step> = Vec::new();
    for step in operation.steps {
        let last = steps.last().map_or(&before, |step| &step.image);
        let after = match step {
            Do::Then(commands) => {
                perform(&scratch, &image, commands);
                holes::take(&image)
            }
            Do::Instead(commands) => {
                let mut after = make(&scratch, &image, operation.bits, commands);
                keep_free(last, &mut after);
                after
            }
            Do::Set(bytes) => {
                let mut after = last.clone();
                for &(at, byte) in *bytes {
                    after[at] = byte;
                }
                after
            }
        };
        holes::put(&image, &after);
        trees.push(walk(&scratch, &image).expect("a volume after"));
        let parts: Vec<Part> = parts::parts(last, &after);
        steps.push(Step { image: after, parts });
    }
    let recorded = Recorded { before, steps };
    operation.case.assert_complete(&recorded, fields);
    (recorded, trees)
}

/// The bytes of a field of a part.
pub(crate) fn fields(part: &Part, field: &str) -> Option<Vec<Range<usize>>> {
    parts::fields(part, field)
}

/// What mtools reads from an image, if it can read all of it.
fn walk(scratch: &Scratch, image: &Path) -> Option<Tree> {
    let root = scratch.join("tree");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir(&root).expect("directory");
    let output = try_mtools("mcopy", image, &["-s", "-n", "::*", text(&root)]);
    let mut tree = Tree::new();
    descend(&root, &root, &mut tree);
    output.status.success().then_some(tree)
}

fn descend(root: &Path, dir: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        let (kind, data) = if path.is_dir() {
            descend(root, &path, tree);
            (Kind::Directory, Vec::new())
        } else {
            (Kind::File, fs::read(&path).expect("file"))
        };
        let name = path.strip_prefix(root).expect("a path below the root");
        let name = format!("/{}", name.to_str().expect("a name of characters"));
        tree.insert(name, Node { kind, data, attributes: String::new() });
    }
}

/// What fsck.fat makes of a state, and what is left of it.
pub(crate) fn verdict(state: &[u8], trees: &[Tree]) -> (Verdict, String) {
    let scratch = Scratch::new("state");
    let image = scratch.join("image");
    holes::put(&image, state);
    let (code, says) = check("fsck.fat", "-n", &image);
    assert!(code <= 1, "fsck.fat -n: {code}: {says}");
    let (repaired, text) = check("fsck.fat", "-a", &image);
    assert!(repaired <= 1, "fsck.fat -a: {repaired}: {text}");
    let (again, _) = check("fsck.fat", "-n", &image);
    let unrepaired = again == 1 && {
        check("fsck.fat", "-a", &image);
        check("fsck.fat", "-n", &image).0 == 1
    };
    let shown = walk(&scratch, &image);
    assert!(shown.is_some() || unrepaired, "unreadable, but fsck.fat finds nothing");
    let (harm, shows) = match shown {
        Some(shown) => judge(trees, &shown),
        None => (Harm::Lost, Shows::Part),
    };
    let verdict = match (code, again, harm) {
        (_, 1, harm) if unrepaired => Verdict::Person(harm),
        (_, 1, Harm::None) => Verdict::Twice,
        (_, _, Harm::Unnamed) => Verdict::Unnamed,
        (_, _, Harm::Lost) => Verdict::Lost,
        (_, _, Harm::Foreign) => Verdict::Foreign,
        (0, ..) => Verdict::Clean(shows),
        _ if says.lines().filter(|line| finding(line)).all(leak) => Verdict::Leak(shows),
        _ => Verdict::Repaired(shows),
    };
    (verdict, says)
}

/// Whether a line of fsck.fat's is a finding.
fn finding(line: &str) -> bool {
    let progress = ["fsck.fat ", "Leaving filesystem unchanged.", "  "];
    !line.trim().is_empty()
        && !progress.iter().any(|start| line.starts_with(start))
        && !line.contains(" files, ")
}

/// Whether it is no more than clusters that no file has, or their count.
fn leak(line: &str) -> bool {
    line.contains("Reclaimed ") || line.contains("Free cluster summary")
}
