//! Records that are older than the files they name, and records that no kernel writes.

use super::unusable::{not_used, revision};
use super::volume::{Fields, Journaled, manifest, put};
use super::writer::{self, block, cut, reference};
use super::{apply, contents, findings, journal, preened, with_files};
use crate::ufs::Ufs;
use seekless_cache::{Config, Discipline};
use seekless_crash::Target;
use seekless_crash::recorder::{Completion, Recorder};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_ffs::Version;
use seekless_fs::FsError;
use seekless_fs::check::Outcome;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use std::sync::Arc;

pub(super) const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };
const FILE: u16 = 0o100_755;
pub(super) const DIRECTORY: u16 = 0o40_755;

/// A volume with some files that was not unmounted, and has a journal without records.
pub(super) fn made(version: Version, with: impl FnOnce(&mut dyn Operate)) -> Vec<u8> {
    made_on(&Journaled::of(version), with)
}

/// As [`made`], on a target.
pub(super) fn made_on(target: &Journaled, with: impl FnOnce(&mut dyn Operate)) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(vec![0; target.image_len().get() as usize]));
    target.make(device.as_ref()).unwrap();
    let config = Config::new(Discipline::SoftUpdates);
    let mut live = target.mount(device.clone(), Arc::new(VirtualClock::new()), config).unwrap();
    with(live.operate());
    live.operate().unmount().unwrap();
    drop(live);
    let mut bytes = contents(device.as_ref());
    let fields = Fields::of(&bytes);
    bytes[fields.at + 209] = 0;
    journal(&mut bytes, &[]);
    bytes
}

#[test]
fn a_cut_of_an_earlier_file_does_not_change_a_symlink() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let mut ino = 0;
        let mut bytes = made(version, |operate| {
            let link = operate.make(operate.root(), b"link", NewFile::Symlink(&[b'x'; 40]), OWNER);
            ino = link.unwrap().ino.get();
        });
        journal(&mut bytes, &[cut(ino, 5000)]);
        let files = manifest(&bytes);
        let (repaired, after) = preened(bytes);
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
        assert_eq!(findings(&after), Vec::<String>::new());
        assert_eq!(manifest(&after), files);
    }
}

#[test]
fn records_of_the_journal_itself_are_damage() {
    let mut bytes = with_files(Version::Ufs2);
    let fields = Fields::of(&bytes);
    let (ino, places) = fields.journal(&bytes);
    let start = (places[64] / fields.fsize) as u64;
    for record in [
        block(writer::FREE, 3, 20, (start, 1), 0),
        reference(writer::REMOVE, ino, (2, 400), 1, 0o100_400),
    ] {
        journal(&mut bytes, &[record]);
        not_used(&bytes, "journal.damaged");
    }
}

/// The index block below a freed one is free already, and has contents of another file.
#[test]
fn index_blocks_that_were_freed_before_are_not_followed() {
    let mut bytes = with_files(Version::Ufs2);
    let fields = Fields::of(&bytes);
    let parsed = fields.parse(&bytes);
    let (journal_ino, _) = fields.journal(&bytes);
    let others = parsed.nodes.iter().filter(|(ino, _)| **ino != journal_ino);
    let (ino, victim) = others
        .filter_map(|(ino, node)| Some((*ino, *node.blocks.get(&0)?)))
        .find(|(_, run)| run.1 == 8)
        .expect("a file with a block");
    let files = manifest(&bytes);
    let free = fields.free_blocks(&bytes);
    let (root, below) = (free[0], free[1]);
    (root..root + 8).for_each(|fragment| fields.set_used(&mut bytes, fragment));
    for block in [root, below] {
        bytes[block as usize * fields.fsize..][..fields.bsize].fill(0);
    }
    put(&mut bytes, root as usize * fields.fsize, 8, below);
    put(&mut bytes, below as usize * fields.fsize, 8, victim.0);
    let first = 12 + fields.bsize as i64 / 8;
    journal(&mut bytes, &[block(writer::FREE, ino, -first - 1, (root, 8), 0)]);
    let (repaired, after) = preened(bytes);
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
    assert_eq!(findings(&after), Vec::<String>::new());
    assert_eq!(manifest(&after), files);
}

/// The names in a directory that is released are counted once, wherever the recovery is cut off.
#[test]
fn names_without_records_are_counted_once() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let (mut dir, mut file) = (0, 0);
        let mut bytes = made(version, |operate| {
            let root = operate.root();
            let made = operate.make(root, b"dir", NewFile::Directory, OWNER).unwrap().ino;
            let x = operate.make(made, b"x", NewFile::Regular, OWNER).unwrap().ino;
            operate.link(x, root, b"y").unwrap();
            (dir, file) = (made.get(), x.get());
        });
        assert!(dir < file, "the directory is written first");
        let fields = Fields::of(&bytes);
        let parsed = fields.parse(&bytes);
        let (slot, _) =
            parsed.names.iter().find(|(slot, name)| slot.0 == 2 && name.0 == dir).unwrap();
        let (start, _) = parsed.nodes[&2].blocks[&0];
        put(&mut bytes, start as usize * fields.fsize + slot.1 as usize, 4, 0);
        let root = &parsed.nodes[&2];
        let records = [
            reference(writer::REMOVE, dir, *slot, 2, DIRECTORY),
            reference(writer::REMOVE, dir, (dir, 0), 1, DIRECTORY),
            reference(writer::REMOVE, 2, (dir, 12), root.links, root.mode),
            // A name that did not reach the disk.
            reference(writer::ADD, file, (2, 508), 2, FILE),
        ];
        journal(&mut bytes, &records);
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let recorder = Arc::new(Recorder::new(device.clone(), Completion::AtOnce));
        let repaired = seekless_ffs::preen(recorder.clone()).unwrap();
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
        let after = contents(device.as_ref());
        assert_eq!(findings(&after), Vec::<String>::new());
        assert_eq!(fields.parse(&after).nodes[&file].links, 1);
        let log = recorder.take();
        for end in 1..log.steps.len() {
            let mut bytes = bytes.clone();
            apply(&log, 0..end, &mut bytes);
            let (repaired, again) = preened(bytes);
            let found = findings(&again);
            assert!(repaired.outcome == Outcome::Left || found.is_empty(), "{end}: {found:?}");
        }
    }
}

/// A repair that begins with a copy of the superblock, too, retires the journal before anything
/// else is changed.
#[test]
fn a_repair_retires_the_journal_first() {
    for version in [Version::Ufs2, Version::Ufs1] {
        let mut bytes = with_files(version);
        let fields = Fields::of(&bytes);
        let (journal_ino, _) = fields.journal(&bytes);
        let mut nodes = fields.parse(&bytes).nodes.into_iter();
        let is_file = |ino, mode| mode >> 12 == 8u16 && ino != journal_ino;
        let (ino, _) = nodes.find(|&(ino, ref node)| is_file(ino, node.mode)).unwrap();
        // Nothing has more names removed.
        journal(&mut bytes, &[reference(writer::REMOVE, ino, (2, 508), 0, FILE)]);
        let copy = fields.last_copy(&bytes);
        bytes[copy..copy + 1376].fill(0);
        let sectors = fields.inode_at(ino) + if fields.is_ufs2 { 24 } else { 104 };
        put(&mut bytes, sectors, 4, 7777);
        let found = findings(&bytes);
        assert!(found.iter().any(|it| it.starts_with("superblock.copy")), "{found:?}");
        assert!(found[0].starts_with("journal.damaged"), "{found:?}");
        let device = Arc::new(MemoryDevice::new(bytes.clone()));
        let recorder = Arc::new(Recorder::new(device.clone(), Completion::AtOnce));
        let repaired = seekless_ffs::repair(recorder.clone()).unwrap();
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:?}", repaired.report.findings);
        let log = recorder.take();
        let superblocks = [fields.at..fields.at + 8192, copy..copy + 8192];
        let mut checked = 0;
        for end in 1..=log.steps.len() {
            let mut state = bytes.clone();
            apply(&log, 0..end, &mut state);
            let places = state.iter().zip(&bytes).enumerate();
            let mut changed = places.filter(|(_, (now, before))| now != before);
            if changed.any(|(at, _)| !superblocks.iter().any(|range| range.contains(&at))) {
                assert_ne!(fields.mount_time(&state), revision(&state), "{end}");
                checked += 1;
            }
        }
        assert!(checked > 1, "{checked} states with repairs");
    }
}

/// A snapshot has blocks of removed files, for which there are no records.
#[test]
fn the_journal_is_not_used_without_the_snapshots_of_its_volume() {
    let mut bytes = with_files(Version::Ufs2);
    let fields = Fields::of(&bytes);
    put(&mut bytes, fields.at + 1116, 4, 4);
    let device = Arc::new(MemoryDevice::new(bytes));
    seekless_ffs::release_snapshots(device.clone()).unwrap();
    not_used(&contents(device.as_ref()), "journal.unusable");
}

#[test]
fn a_volume_with_a_damaged_journal_is_not_used_before_a_repair() {
    let mut bytes = with_files(Version::Ufs2);
    journal(&mut bytes, &[block(writer::FREE, 2, 0, (16, 8), 0)]);
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let clock = Arc::new(VirtualClock::new());
    let refused = Ufs::of(Version::Ufs2).recovering(device.clone(), clock).err();
    assert!(matches!(refused, Some(FsError::Refused(_))), "{refused:?}");
    assert!(contents(device.as_ref()) == bytes);
}
