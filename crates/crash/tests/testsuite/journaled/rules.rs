//! Rules of a recovery, each with records and a volume for it alone.

use super::forged::{DIRECTORY, OWNER, made};
use super::unusable::not_used;
use super::volume::{Fields, Journaled, get, manifest, put};
use super::writer::{self, block, cut, reference, synced};
use super::{Seen, cut_off, findings, journal, look, preened};
use crate::slice::some_or_all;
use seekless_crash::script::parse;
use seekless_crash::workload::scheduled;
use seekless_ffs::Version;
use seekless_fs::check::Outcome;
use seekless_fs::operate::{NewFile, Operate};
use seekless_units::{ByteLen, Ino};

const BOTH: [Version; 2] = [Version::Ufs2, Version::Ufs1];

/// A volume after its recovery, in which a check finds nothing.
fn recovered(bytes: Vec<u8>) -> Vec<u8> {
    let (repaired, after) = preened(bytes);
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
    assert_eq!(findings(&after), Vec::<String>::new());
    after
}

fn file(operate: &mut dyn Operate, name: &[u8], len: usize) -> Ino {
    let root = operate.root();
    let ino = operate.make(root, name, NewFile::Regular, OWNER).unwrap().ino;
    operate.write(ino, ByteLen::ZERO, &vec![7; len]).unwrap();
    ino
}

/// A file that was cut is as long as its record says, unless it was made durable after that.
#[test]
fn files_that_were_cut_are_cut() {
    for version in BOTH {
        for len in [20_000, 90_000] {
            let mut ino = 0;
            let mut bytes = made(version, |operate| ino = file(operate, b"f", len).get());
            let fields = Fields::of(&bytes);
            let free = fields.totals(&bytes);
            journal(&mut bytes, &[cut(ino, 5000), synced(ino)]);
            let kept = recovered(bytes.clone());
            assert_eq!(fields.parse(&kept).nodes[&ino].size, len as u64);
            journal(&mut bytes, &[synced(ino), cut(ino, 5000)]);
            let after = recovered(bytes);
            assert_eq!(fields.parse(&after).nodes[&ino].size, 5000);
            assert!(fields.totals(&after)[1] > free[1], "blocks became free");
        }
    }
}

/// The number of sectors of a file is that of its blocks.
#[test]
fn sectors_of_files_with_records_are_counted() {
    for version in BOTH {
        let mut ino = 0;
        let mut bytes = made(version, |operate| ino = file(operate, b"f", 20_000).get());
        let fields = Fields::of(&bytes);
        let (start, frags) = fields.parse(&bytes).nodes[&ino].blocks[&1];
        let at = fields.inode_at(ino) + if fields.is_ufs2 { 24 } else { 104 };
        let sectors = get(&bytes, at, 4);
        put(&mut bytes, at, 4, sectors - 8);
        journal(&mut bytes, &[block(writer::NEW, ino, 1, (start, frags), 0)]);
        let after = recovered(bytes);
        assert_eq!(get(&after, at, 4), sectors);
    }
}

/// A volume with the directories `from`, `to` and `to/dir`, and their inode numbers.
fn with_directories(version: Version) -> (Vec<u8>, [u32; 3]) {
    let mut made_as = [0; 3];
    let bytes = made(version, |operate| {
        let root = operate.root();
        let mut mkdir =
            |at, name: &[u8]| operate.make(at, name, NewFile::Directory, OWNER).unwrap().ino;
        let (from, to) = (mkdir(root, b"from"), mkdir(root, b"to"));
        made_as = [from, to, mkdir(to, b"dir")].map(Ino::get);
    });
    (bytes, made_as)
}

/// `..` of a directory that was moved leads to where its name is.
#[test]
fn the_parent_of_a_moved_directory_is_that_of_its_name() {
    for version in BOTH {
        let (mut bytes, [from, to, dir]) = with_directories(version);
        let fields = Fields::of(&bytes);
        let parsed = fields.parse(&bytes);
        let is_name = |name: &(u32, u8, Vec<u8>)| name.0 == dir && name.2 == b"dir";
        let (slot, _) = parsed.names.iter().find(|(_, name)| is_name(name)).unwrap();
        // The name has moved, and neither `..` nor the links have.
        let (start, _) = parsed.nodes[&dir].blocks[&0];
        put(&mut bytes, start as usize * fields.fsize + 12, 4, u64::from(from));
        for (ino, links) in [(from, 3), (to, 2)] {
            put(&mut bytes, fields.inode_at(ino) + 2, 2, links);
        }
        journal(
            &mut bytes,
            &[
                reference(writer::ADD, dir, *slot, 2, DIRECTORY),
                reference(writer::ADD, to, (dir, 12), 2, DIRECTORY),
                reference(writer::REMOVE, from, (dir, 12), 3, DIRECTORY),
                reference(writer::REMOVE, dir, (from, 24), 3, DIRECTORY),
            ],
        );
        let after = recovered(bytes);
        assert_eq!(get(&after, start as usize * fields.fsize + 12, 4), u64::from(to));
        let nodes = fields.parse(&after).nodes;
        assert_eq!([from, to, dir].map(|ino| nodes[&ino].links), [2, 3, 2]);
    }
}

/// A volume with the directories `from`, `to` and `to/dir`, and a second name of the last in
/// another directory; all that a recovery needs to know of it.
struct Renamed {
    bytes: Vec<u8>,
    from: u32,
    to: u32,
    dir: u32,
    /// The place of the second name, and of the first.
    second: (u32, u64),
    first: (u32, u64),
    /// Where the contents of `dir` begin.
    contents: usize,
}

/// The second name is in `from`, or in `to`.
fn renamed(version: Version, is_same: bool) -> Renamed {
    let (mut bytes, [from, to, dir]) = with_directories(version);
    let fields = Fields::of(&bytes);
    let parsed = fields.parse(&bytes);
    let begin = |ino: u32| parsed.nodes[&ino].blocks[&0].0 as usize * fields.fsize;
    // The last entry of a unit of 512 bytes ends with it.
    let (holder, before) = if is_same { (to, 24) } else { (from, 12) };
    let at = before + 12;
    put(&mut bytes, begin(holder) + before + 4, 2, 12);
    let entry = begin(holder) + at;
    put(&mut bytes, entry, 4, u64::from(dir));
    put(&mut bytes, entry + 4, 2, 512 - at as u64);
    bytes[entry + 6..entry + 12].copy_from_slice(b"\x04\x03old\0");
    put(&mut bytes, fields.inode_at(dir) + 2, 2, 3);
    let (second, first) = ((holder, at as u64), (to, 24));
    Renamed { bytes, from, to, dir, second, first, contents: begin(dir) }
}

/// The new name of a directory that was moved is older than the journal, which has only the removal
/// of the old one: the new one stays.
#[test]
fn a_directory_that_was_moved_before_the_journal_keeps_its_new_name() {
    for version in BOTH {
        for (is_same, is_old_parent) in [(false, false), (false, true), (true, false)] {
            let Renamed { mut bytes, from, to, dir, second, contents, .. } =
                renamed(version, is_same);
            let fields = Fields::of(&bytes);
            let mut records = vec![reference(writer::REMOVE, dir, second, 3, DIRECTORY)];
            if is_old_parent {
                // `..` has not reached the disk, and its records are in the journal.
                put(&mut bytes, contents + 12, 4, u64::from(from));
                put(&mut bytes, fields.inode_at(from) + 2, 2, 3);
                records.push(reference(writer::ADD, to, (dir, 12), 2, DIRECTORY));
                records.push(reference(writer::REMOVE, from, (dir, 12), 3, DIRECTORY));
            }
            journal(&mut bytes, &records);
            let after = recovered(bytes.clone());
            let parsed = fields.parse(&after);
            assert!(!parsed.names.contains_key(&second), "the old name is removed");
            assert_eq!(get(&after, contents + 12, 4), u64::from(to));
            assert_eq!([from, to, dir].map(|ino| parsed.nodes[&ino].links), [2, 3, 2]);
            cut_off(&bytes, &after, &mut Seen::default()).unwrap();
        }
    }
}

/// Neither records nor names tell where a directory belongs: the whole volume is checked.
#[test]
fn a_directory_without_a_parent_that_names_it_leads_to_a_full_check() {
    for version in BOTH {
        let Renamed { mut bytes, from, to, dir, second, first, .. } = renamed(version, false);
        let fields = Fields::of(&bytes);
        // All links that there may be are counted: a preen lowers them.
        put(&mut bytes, fields.inode_at(from) + 2, 2, 3);
        let (start, _) = fields.parse(&bytes).nodes[&first.0].blocks[&0];
        put(&mut bytes, start as usize * fields.fsize + first.1 as usize, 4, 0);
        journal(&mut bytes, &[reference(writer::REMOVE, dir, second, 3, DIRECTORY)]);
        let found = findings(&bytes);
        let expected = format!(
            "journal.unusable journal: it does not tell where the name of directory {dir} is"
        );
        assert_eq!(found[0], expected, "{found:?}");
        let after = not_used(&bytes, "journal.unusable");
        let parsed = fields.parse(&after);
        assert!(parsed.names.contains_key(&second), "its one name stays");
        assert_eq!([from, to, dir].map(|ino| parsed.nodes[&ino].links), [3, 2, 2]);
    }
}

/// The index block of a freed tree and the blocks below it lie in different groups: wherever a
/// recovery is cut off, the next one finds them.
#[test]
fn blocks_below_a_freed_index_block_are_free() {
    for version in BOTH {
        let mut ino = 0;
        let mut bytes = made(version, |operate| ino = file(operate, b"f", 3000).get());
        let fields = Fields::of(&bytes);
        let (files, free) = (manifest(&bytes), fields.free_blocks(&bytes));
        let (root, below) = (free[0], free[free.len() - 1]);
        let width = if fields.is_ufs2 { 8 } else { 4 };
        for start in [root, below] {
            (start..start + 8).for_each(|fragment| fields.set_used(&mut bytes, fragment));
            bytes[start as usize * fields.fsize..][..fields.bsize].fill(0);
        }
        put(&mut bytes, root as usize * fields.fsize, width, below);
        journal(&mut bytes, &[block(writer::FREE, ino, -12, (root, 8), 0)]);
        let after = recovered(bytes.clone());
        assert_eq!(manifest(&after), files);
        cut_off(&bytes, &after, &mut Seen::default()).unwrap();
    }
}

/// Directories that never had a name on the disk: `..` of one in another is not counted there.
#[test]
fn directories_without_a_name_are_released_with_all_in_them() {
    let text = "mkdir d\nmkdir d/e\ncreate d/e/f\nwrite d/e/f 0 3000\nmkdir d/e/g\nsync";
    let script = parse("nested", &format!("create x\nbegin\n{text}")).unwrap();
    let mut seen = Seen::default();
    for version in BOTH {
        for schedule in 0..2 {
            let script = scheduled(&script, schedule, 3);
            look(&Journaled::of(version), &script, (some_or_all(6, 16), 2), 11, &mut seen).unwrap();
        }
    }
    assert!(seen.homeless > 0 && seen.states > some_or_all(8, 20), "{seen:?}");
}
