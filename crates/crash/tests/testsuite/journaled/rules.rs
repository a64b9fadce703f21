//! Rules of a recovery, each with records and a volume for it alone.

use super::forged::{DIRECTORY, OWNER, made};
use super::volume::{Fields, Journaled, get, manifest, put};
use super::writer::{self, block, cut, reference, synced};
use super::{Seen, cut_off, findings, journal, look, preened};
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

/// `..` of a directory that was moved leads to where its name is.
#[test]
fn the_parent_of_a_moved_directory_is_that_of_its_name() {
    for version in BOTH {
        let mut made_as = [0; 3];
        let mut bytes = made(version, |operate| {
            let root = operate.root();
            let mut mkdir =
                |at, name: &[u8]| operate.make(at, name, NewFile::Directory, OWNER).unwrap().ino;
            let (from, to) = (mkdir(root, b"from"), mkdir(root, b"to"));
            made_as = [from, to, mkdir(to, b"dir")].map(Ino::get);
        });
        let [from, to, dir] = made_as;
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
            look(&Journaled::of(version), &script, (16, 2), 11, &mut seen).unwrap();
        }
    }
    assert!(seen.homeless > 0 && seen.states > 20, "{seen:?}");
}
