//! What waits in a journal, written back: the same blocks as e2fsck's.

use crate::damage::images;
use crate::holes;
use crate::repair::judge::{Scratch, bytes_of, e2fsck, findings, is_there};
use seekless_device::MemoryDevice;
use seekless_ext::{ExtImage, preen, repair};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{DirEntry, Inspect};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Shapes of volumes, as options of mke2fs, with the size of a block.
const SHAPES: [(&str, usize, &[&str], &str); 5] = [
    ("plain", 1024, &["-t", "ext3"], "jo"),
    ("checksums", 1024, &["-t", "ext4", "-O", "^64bit"], "jo -c -v 3"),
    ("wide", 4096, &["-t", "ext4", "-O", "64bit"], "jo -c -v 3"),
    ("second", 4096, &["-t", "ext4", "-O", "64bit"], "jo -c -v 2"),
    ("meta", 1024, &["-t", "ext4", "-O", "meta_bg,^resize_inode"], "jo"),
];

/// What a recovery may write into the superblock that follows from the time: when it
/// was written and checked, how much, what failed last, and the checksum of these.
const TOLD: [std::ops::Range<usize>; 5] =
    [0x2C..0x34, 0x40..0x44, 0x178..0x180, 0x274..0x27C, 0x3FC..0x400];

pub(super) fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env("LC_ALL", "C").output().expect(program);
    assert!(out.status.success(), "{program} {args:?}: {out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A volume with transactions that wait: two blocks of a file changed, one of them
/// twice, one that begins with the journal's own magic, one that is revoked. The
/// journal is opened as `open` says; the places of the blocks are returned.
fn waiting(path: &Path, block: usize, options: &[&str], open: &str) -> Vec<usize> {
    let image = path.to_str().expect("path");
    let named = path.file_name().and_then(|name| name.to_str()).expect("name");
    let tree = Scratch::new(&format!("tree-{named}"));
    fs::create_dir_all(tree.path()).expect("tree");
    fs::write(tree.path().join("file"), vec![b'a'; 20 * block]).expect("file");
    let (size, root) = (block.to_string(), tree.path().to_str().expect("path"));
    let mut args = vec!["-q", "-F", "-b", &size, "-d", root];
    args.extend_from_slice(options);
    args.extend_from_slice(&[image, if block > 1024 { "16M" } else { "8M" }]);
    run("mke2fs", &args);
    let blocks = run("debugfs", &["-R", "blocks /file", image]);
    let blocks: Vec<&str> = blocks.split_whitespace().collect();
    let contents = Scratch::new(&format!("blocks-{named}"));
    fs::create_dir_all(contents.path()).expect("blocks");
    let put = |name: &str, bytes: Vec<u8>| {
        let at = contents.path().join(name);
        fs::write(&at, bytes).expect("block");
        at.to_str().expect("path").to_string()
    };
    let (one, two) = (put("one", vec![b'1'; block]), put("two", vec![b'2'; block]));
    let mut magic = vec![b'm'; block];
    magic[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    let magic = put("magic", magic);
    let commands = format!(
        "{open}\njw -b {0} {one}\njw -b {1} {one}\njw -b {2} {magic}\njw -r {1}\njw -b {0} {two}\njc\n",
        blocks[0], blocks[1], blocks[2]
    );
    let list = put("commands", commands.into_bytes());
    run("debugfs", &["-w", "-f", &list, image]);
    run("debugfs", &["-w", "-R", "feature needs_recovery", image]);
    blocks.iter().take(3).map(|number| number.parse().expect("block")).collect()
}

/// The bytes at which two volumes differ, in blocks of 1,024, but for what is
/// [`TOLD`] of the volume in its superblock.
pub(super) fn differences(ours: &[u8], theirs: &[u8]) -> Vec<usize> {
    let pairs = ours.chunks(1024).zip(theirs.chunks(1024)).enumerate();
    pairs
        .filter(|&(number, (one, two))| {
            let told = |at: usize| number == 1 && TOLD.iter().any(|range| range.contains(&at));
            one.iter().zip(two).enumerate().any(|(at, (a, b))| a != b && !told(at))
        })
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn a_journal_is_written_back_as_e2fsck_does() {
    if !is_there() {
        return;
    }
    let shapes = SHAPES.into_iter().map(|shape| (shape, ""));
    // A number of a device beside that of the journal's inode, which counts.
    let with_device = SHAPES.into_iter().take(2).map(|shape| (shape, "ssv journal_dev 0x12345"));
    for ((name, block, options, open), command) in shapes.chain(with_device) {
        let scratch = Scratch::new(&format!("replay-{name}"));
        waiting(scratch.path(), block, options, open);
        if !command.is_empty() {
            run("debugfs", &["-w", "-R", command, scratch.path().to_str().expect("path")]);
        }
        let before = holes::take(scratch.path());
        let device = Arc::new(MemoryDevice::new(holes::copy(&before)));
        let repaired = preen(device.clone()).expect(name);
        assert_eq!(repaired.outcome, Outcome::Corrected, "{name}: {repaired:#?}");
        let ours = bytes_of(device.as_ref());
        let said = Command::new("e2fsck")
            .args(["-E", "journal_only", "-y"])
            .arg(scratch.path())
            .output()
            .expect("e2fsck");
        assert!(said.status.code().is_some_and(|code| code <= 1), "{name}: {said:?}");
        let theirs = holes::take(scratch.path());
        assert_ne!(before, theirs, "{name}: nothing waited");
        assert!(
            theirs.windows(block).step_by(1024).any(|at| at.iter().all(|&b| b == b'2')),
            "{name}"
        );
        assert_eq!(differences(&ours, &theirs), [0usize; 0], "{name}: of 1,024 bytes each");
        holes::put(scratch.path(), &ours);
        assert_eq!(findings(scratch.path()), None, "{name}");
        assert_eq!(e2fsck("-p", scratch.path()).0, 0, "{name}");
    }
}

/// What is wrong in a journal.
enum Wrong {
    /// A block with a header of this type, by number.
    Header(u32, usize),
    /// The first copy of a block filled with this byte.
    Copy(u8),
    /// Nothing: a transaction that only revokes has a checksum of the first version
    /// that e2fsck does not share.
    Nothing,
}

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;

impl Wrong {
    fn apply(&self, bytes: &mut [u8]) {
        let mut blocks = bytes.chunks_mut(1024);
        let found = match *self {
            Self::Header(kind, number) => {
                let header = [0xC03B_3998u32.to_be_bytes(), kind.to_be_bytes()].concat();
                blocks.filter(|block| block.starts_with(&header)).nth(number)
            }
            Self::Copy(byte) => blocks.find(|block| block.iter().all(|&at| at == byte)),
            Self::Nothing => return,
        };
        found.expect("a block")[60] ^= 0x10;
    }
}

/// A damaged transaction is a finding. A preen and a repair write back the same blocks as e2fsck.
#[test]
fn damage_in_a_journal_is_never_written_home() {
    if !is_there() {
        return;
    }
    let sums: &[&str] = &["-t", "ext4"];
    let recipes = [
        ("copy", sums, "jo -c -v 3", Wrong::Copy(b'1')),
        ("late copy", sums, "jo -c -v 3", Wrong::Copy(b'2')),
        ("descriptor", sums, "jo -c -v 3", Wrong::Header(DESCRIPTOR, 1)),
        ("commit", sums, "jo -c -v 3", Wrong::Header(COMMIT, 2)),
        ("revoked", &["-t", "ext3"], "jo -c -v 1", Wrong::Nothing),
    ];
    for (name, options, open, wrong) in recipes {
        let scratch = Scratch::new("replay-damaged");
        let homes = waiting(scratch.path(), 1024, options, open);
        let mut bytes = holes::take(scratch.path());
        wrong.apply(&mut bytes);
        holes::put(scratch.path(), &bytes);
        let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let preened = preen(device.clone()).expect(name);
        assert!(
            preened.report.findings.iter().any(|found| found.code() == "journal.corrupt"),
            "{name}"
        );
        let by_preen = bytes_of(device.as_ref());
        let (code, said) = e2fsck("-fp", scratch.path());
        assert_eq!(preened.outcome != Outcome::Left, code <= 1, "{name}: {said}");
        holes::put(scratch.path(), &bytes);
        let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
        let repaired = repair(device.clone()).expect(name);
        assert_eq!(repaired.outcome, Outcome::Corrected, "{name}: {repaired:#?}");
        let ours = bytes_of(device.as_ref());
        let (code, said) = e2fsck("-fy", scratch.path());
        assert!(code <= 1, "{name}: {said}");
        let theirs = holes::take(scratch.path());
        let first = |bytes: &[u8]| -> String {
            homes.iter().map(|&home| char::from(bytes[home * 1024 + 100])).collect()
        };
        assert_eq!(first(&bytes), "aaa", "{name}: they wait");
        assert_eq!(first(&by_preen), first(&ours), "{name}: a preen brings the same home");
        // Where a descriptor is damaged e2fsck drops what was committed before it too.
        if name == "descriptor" {
            assert_eq!((&*first(&ours), &*first(&theirs)), ("1aa", "aaa"), "{name}");
        } else {
            assert_eq!(first(&ours), first(&theirs), "{name}");
        }
        holes::put(scratch.path(), &ours);
        assert_eq!(findings(scratch.path()), None, "{name}");
    }
}

/// A fast commit of which a byte is wrong is as if it had not been made: a name in it
/// never comes to be, whatever is looked past otherwise.
#[test]
fn a_damaged_fast_commit_is_never_written_home() {
    let mut bytes = images::named("fastcommit");
    let places: Vec<usize> = bytes
        .windows(7)
        .enumerate()
        .filter(|(_, window)| window == b"renamed")
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "a fast commit has the name");
    let names = |bytes: &[u8]| {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let repaired = repair(device.clone()).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{repaired:#?}");
        let image = ExtImage::open(device, OpenOptions::default()).expect("open");
        let dir = resolve(&image, b"/dir").expect("dir");
        let mut names = Vec::new();
        let mut note = |entry: DirEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        };
        image.read_dir(dir, 0, &mut note).expect("dir");
        names.sort();
        names
    };
    let sound = names(&bytes);
    assert!(sound.contains(&"renamed".to_string()), "{sound:?}");
    for at in places {
        bytes[at + 1] = b'f';
    }
    let damaged = names(&bytes);
    assert!(!damaged.iter().any(|name| name == "rfnamed"), "{damaged:?}");
    // What was committed before it is there.
    assert!(damaged.contains(&"created".to_string()), "{damaged:?}");
}
