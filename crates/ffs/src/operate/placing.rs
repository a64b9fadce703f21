//! Checks the engine's input to a policy for inodes, and that its answers are obeyed.

use super::{Ffs, FfsLive, LiveOptions};
use crate::{MakeOptions, Version, make};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Discipline};
use seekless_device::{MemoryDevice, VirtualClock};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Timestamp};
use seekless_placement::Groups;
use seekless_placement::inode::{InodePlace, InodePlacement, NewInode};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

/// An empty file system in which inodes run out before blocks do.
fn open(version: Version, discipline: Discipline) -> FfsLive {
    let size = ByteLen::new(8 << 20);
    let device = Arc::new(MemoryDevice::new(vec![0; 8 << 20]));
    let mut options = MakeOptions::new(version, size);
    (options.block_size, options.fragment_size) = (4096, 512);
    options.bytes_per_inode = Some(32768);
    options.blocks_per_group = Some(256);
    make(device.as_ref(), &options).unwrap();
    let options = LiveOptions {
        directories: "depth".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        reallocblks: true,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    };
    FfsLive::open(device, Arc::new(VirtualClock::new()), Config::new(discipline), options).unwrap()
}

fn place(format: &Ffs, ino: Ino) -> InodePlace {
    let (group, slot) = format.sb.inode_slot(ino).unwrap();
    InodePlace { group, slot }
}

/// The recorded input of a policy for inodes.
#[derive(Default)]
struct PolicyInput {
    /// The inodes taken and not given back, and whether they are directories.
    held: BTreeMap<InodePlace, bool>,
    /// The name of the inode that was taken last.
    last: Option<(Vec<u8>, InodePlace)>,
    given_back: u32,
    /// Searches that found nothing.
    in_vain: u32,
}

/// Wraps a policy for inodes and records its input.
struct RecordingPolicy {
    policy: Box<dyn InodePlacement>,
    told: Arc<Mutex<PolicyInput>>,
}

impl InodePlacement for RecordingPolicy {
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace {
        self.policy.goal(groups, new)
    }

    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>> {
        self.policy.order(groups, goal)
    }

    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, at: Option<InodePlace>) {
        let mut told = self.told.lock().unwrap();
        match at {
            Some(at) => {
                assert_eq!(told.held.insert(at, new.is_directory), None, "{at:?} is taken twice");
                told.last = Some((new.name.to_vec(), at));
            }
            None => told.in_vain += 1,
        }
        self.policy.taken(new, goal, at);
    }

    fn given_back(&mut self, at: InodePlace, is_directory: bool) {
        let mut told = self.told.lock().unwrap();
        assert_eq!(told.held.remove(&at), Some(is_directory), "{at:?} was not taken");
        told.given_back += 1;
        self.policy.given_back(at, is_directory);
    }
}

/// The last group first, and in each the last slot; then the groups downwards.
struct Backwards;

impl InodePlacement for Backwards {
    fn goal(&mut self, groups: &Groups, _: &NewInode<'_>) -> InodePlace {
        let shape = groups.shape();
        InodePlace { group: GroupNo::new(shape.ncg - 1), slot: shape.ipg - 1 }
    }

    fn order(&self, _: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>> {
        Box::new((0..=goal.group.get()).rev().map(GroupNo::new))
    }

    fn taken(&mut self, _: &NewInode<'_>, _: InodePlace, _: Option<InodePlace>) {}
}

/// Every inode in use except the first three, and whether it is a directory.
fn in_use(live: &mut FfsLive) -> BTreeMap<InodePlace, bool> {
    let mut used = BTreeMap::new();
    let first = live.root().get() + 1;
    let end = live.parts().0.sb.inodes();
    for ino in (first..end).map(Ino::new) {
        let (format, core) = live.parts();
        let at = place(format, ino);
        if format.allocator.groups_mut().inode_in_use(core, at.group, at.slot).unwrap() {
            let kind = live.attr(ino).unwrap().kind;
            used.insert(at, kind == seekless_fs::FileKind::Directory);
        }
    }
    used
}

#[test]
fn the_policy_hears_of_every_inode_that_is_taken_or_given_back() {
    for (version, discipline) in [
        (Version::Ufs1, Discipline::SoftUpdates),
        (Version::Ufs2, Discipline::SoftUpdates),
        (Version::Ufs2, Discipline::Async),
    ] {
        let mut live = open(version, discipline);
        let told = Arc::new(Mutex::new(PolicyInput::default()));
        let inodes = &mut live.parts().0.allocator.policies_mut().inodes;
        let policy = std::mem::replace(inodes, Box::new(Backwards));
        *inodes = Box::new(RecordingPolicy { policy, told: Arc::clone(&told) });
        let mut draw = Pcg64Mcg::seed_from_u64(5);
        let mut below = |limit: usize| draw.next_u32() as usize % limit;
        let mut directories = vec![live.root()];
        let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
        for n in 0..3000 {
            if below(100) < 70 || files.is_empty() {
                let dir = directories[below(directories.len())];
                let name = format!("file {n}").into_bytes();
                let (new, is_directory) = match below(4) {
                    0 => (NewFile::Directory, true),
                    1 => (NewFile::Symlink(&[b'x'; 300]), false),
                    _ => (NewFile::Regular, false),
                };
                match live.make(dir, &name, new, OWNER) {
                    Ok(attr) => {
                        let expected = (name.clone(), place(live.parts().0, attr.ino));
                        assert_eq!(told.lock().unwrap().last.as_ref(), Some(&expected));
                        if is_directory {
                            directories.push(attr.ino);
                        } else {
                            files.push((dir, name));
                        }
                    }
                    Err(FsError::NoSpace(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            } else {
                let (dir, name) = files.swap_remove(below(files.len()));
                live.unlink(dir, &name).unwrap();
            }
        }
        live.write_everything().unwrap();
        let used = in_use(&mut live);
        let told = told.lock().unwrap();
        assert_eq!(told.held, used, "{version:?} {discipline}");
        assert!(told.in_vain > 10, "inodes never ran out");
        assert!(told.given_back > 100, "{} were given back", told.given_back);
        let directories = used.values().filter(|&&is_directory| is_directory).count() as u64;
        assert_eq!(live.parts().0.allocator.groups().counts().totals().ndir, directories + 1);
    }
}

#[test]
fn inodes_go_where_the_policy_says() {
    let mut live = open(Version::Ufs2, Discipline::Async);
    live.parts().0.allocator.policies_mut().inodes = Box::new(Backwards);
    let (root, shape) = (live.root(), *live.parts().0.allocator.groups().counts().shape());
    assert!(shape.ncg > 2, "{shape:?}");
    let mut made = Vec::new();
    for n in 0..2 * shape.ipg {
        let name = format!("{n}").into_bytes();
        made.push(live.make(root, &name, NewFile::Regular, OWNER).unwrap().ino);
    }
    // The slot is heeded in the goal's group, as long as it is free.
    assert_eq!(made[0].get(), shape.ncg * shape.ipg - 1);
    let groups: Vec<u32> = made.iter().map(|&ino| place(live.parts().0, ino).group.get()).collect();
    let (first, second) = groups.split_at(shape.ipg as usize);
    assert!(first.iter().all(|&group| group == shape.ncg - 1), "{first:?}");
    assert!(second.iter().all(|&group| group == shape.ncg - 2), "{second:?}");
}
