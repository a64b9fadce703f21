//! Reading snapshots that were made by hand.

mod by_hand;
mod remove;
mod remove_some;
mod storm;
mod taken;

use crate::live::shapes::{Shape, options, through};
use crate::property::for_all;
use crate::replay::{Op, ops};
use by_hand::Raw;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive, MakeOptions, Version, make, open_snapshot, snapshots};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino, Lba};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const SHAPES: [Shape; 4] = [
    Shape { version: Version::Ufs1, block: 4096, fragment: 512, mebibytes: 24, big_endian: false },
    Shape { version: Version::Ufs2, block: 4096, fragment: 1024, mebibytes: 24, big_endian: true },
    Shape {
        version: Version::Ufs2,
        block: 16384,
        fragment: 2048,
        mebibytes: 32,
        big_endian: false,
    },
    Shape { version: Version::Ufs1, block: 8192, fragment: 8192, mebibytes: 24, big_endian: true },
];

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o640 };

type Files = BTreeMap<Vec<u8>, (FileKind, u32, Vec<u8>)>;

/// Files by path, with their kind, inode and contents.
fn tree(image: &dyn Inspect) -> Files {
    tree_without(image, &[])
}

/// All files but those whose paths begin so.
fn tree_without(image: &dyn Inspect, skipped: &[&[u8]]) -> Files {
    let mut found = Files::new();
    let mut pending = vec![(Vec::new(), image.root())];
    while let Some((path, dir)) = pending.pop() {
        let mut entries = Vec::new();
        let mut add = |name: &[u8], ino| entries.push(([&path, &b"/"[..], name].concat(), ino));
        image
            .read_dir(dir, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    add(entry.name, entry.ino);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        for (path, ino) in entries {
            if skipped.iter().any(|skipped| path.starts_with(skipped)) {
                continue;
            }
            let attr = image.attr(ino).unwrap();
            let contents = match attr.kind {
                FileKind::Regular => contents(image, ino),
                FileKind::Symlink => image.read_link(ino).unwrap(),
                _ => Vec::new(),
            };
            if attr.kind == FileKind::Directory {
                pending.push((path.clone(), ino));
            }
            found.insert(path, (attr.kind, ino.get(), contents));
        }
    }
    found
}

fn contents(image: &dyn Inspect, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; image.attr(ino).unwrap().size as usize];
    let mut done = 0;
    while done < bytes.len() {
        let read = image.read(ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
        assert!(read > 0, "the file ends early");
        done += read;
    }
    bytes
}

fn open(device: &Arc<MemoryDevice>) -> FfsImage {
    FfsImage::open(device.clone(), OpenOptions::default()).unwrap()
}

fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// Changes a volume: files are removed, written over and made; then files of whole blocks are made
/// in `/.snap`, which are to become snapshots. Returns their inodes.
fn change(device: &Arc<MemoryDevice>, names: &[&str], blocks: usize, block: usize) -> Vec<Ino> {
    let before = tree(&open(device));
    let config = Config::new(Discipline::SoftUpdates);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
    let root = live.root();
    let ordinary = before.iter().filter(|(path, _)| !path.starts_with(b"/.snap/"));
    for (n, (path, (kind, ino, _))) in ordinary.enumerate() {
        let (dir, name) = path.split_at(path.iter().rposition(|&byte| byte == b'/').unwrap());
        let mut at = root;
        for part in dir.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            at = live.lookup(at, part).unwrap().expect("a directory");
        }
        match (kind, n % 4) {
            (FileKind::Regular, 0 | 1) => live.unlink(at, &name[1..]).unwrap(),
            (FileKind::Regular, 2) if live.lookup(at, &name[1..]).unwrap().is_some() => {
                live.write(Ino::new(*ino), ByteLen::ZERO, &[n as u8; 700]).map(drop).unwrap();
            }
            _ => {}
        }
    }
    let mut prefix = format!("made-{}-", names.len());
    while before.contains_key(format!("/{prefix}3").as_bytes()) {
        prefix = format!("also-{prefix}");
    }
    for n in 0..20u8 {
        let name = format!("{prefix}{n}");
        let made = live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap();
        live.write(made.ino, ByteLen::ZERO, &vec![n; 1000 * usize::from(n)]).unwrap();
    }
    live.unmount().unwrap();
    write_files(device, names, blocks, block)
}

/// Makes files of whole blocks in `/.snap`, and returns their inodes.
fn write_files(
    device: &Arc<MemoryDevice>,
    names: &[&str],
    blocks: usize,
    block: usize,
) -> Vec<Ino> {
    let config = Config::new(Discipline::SoftUpdates);
    let clock = Arc::new(VirtualClock::new());
    let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
    let root = live.root();
    let mut made = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let home = match live.lookup(root, b".snap").unwrap() {
            Some(home) => home,
            None => live.make(root, b".snap", NewFile::Directory, OWNER).unwrap().ino,
        };
        let ino = live.make(home, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
        for at in 0..blocks {
            let offset = ByteLen::new((at * block) as u64);
            let contents = vec![0xA5 + (n + at) as u8 % 64; block];
            assert_eq!(live.write(ino, offset, &contents).unwrap(), block);
        }
        made.push(ino);
    }
    live.unmount().unwrap();
    made
}

/// A volume with two snapshots, and the states that they have kept.
struct Volume {
    device: Arc<MemoryDevice>,
    states: [Vec<u8>; 2],
    inos: [Ino; 2],
}

fn volume(shape: &Shape, kind: usize) -> Volume {
    let made = RefCell::new(None);
    for_all((1, kind), ops(700, false), |ops| {
        made.replace(Some(volume_after(shape, &ops)));
    });
    made.into_inner().expect("one case at least")
}

fn volume_after(shape: &Shape, ops: &[Op]) -> Volume {
    let size = ByteLen::new((shape.mebibytes << 20) + u64::from(shape.fragment));
    let device = Arc::new(MemoryDevice::new(vec![0; size.get() as usize]));
    let mut made = MakeOptions::new(shape.version, size);
    (made.block_size, made.fragment_size) = (shape.block, shape.fragment);
    (made.big_endian, made.bytes_per_inode) = (shape.big_endian, Some(4096));
    make(device.as_ref(), &made).unwrap();
    let mut shaped = through(device.clone(), device, shape, Discipline::SoftUpdates);
    shaped.run(ops);
    let device = shaped.finish();
    let block = shape.block as usize;
    let blocks = (3 << 20) / block;
    // Large files, of which a change removes half, so that snapshots take their blocks over.
    let large = ["large-0", "large-1", "large-2", "large-3"];
    write_files(&device, &large, blocks / 6, block);
    let mut states = [bytes(device.as_ref()), Vec::new()];
    change(&device, &[], 0, block);
    states[1] = bytes(device.as_ref());
    let inos: Vec<Ino> = change(&device, &["daily", "weekly"], blocks, block);
    let mut now = bytes(device.as_ref());
    let mut raw = Raw::new(&mut now);
    for ((state, &ino), free) in states.iter_mut().zip(&inos).zip([1, 2]) {
        let (taken, copied) = raw.keep(ino.get().into(), state, free);
        println!("{shape:?}: {taken} blocks taken over, {copied} copied");
        assert!(copied > 10, "{shape:?}: {copied} copied");
    }
    Volume { device: Arc::new(MemoryDevice::new(now)), states, inos: [inos[0], inos[1]] }
}

const NAMES: [&str; 2] = ["daily", "weekly"];

#[test]
fn a_snapshot_is_the_volume_as_it_was() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let volume = volume(shape, n);
        let now = tree(&open(&volume.device));
        for (name, state) in NAMES.iter().zip(&volume.states) {
            let options = OpenOptions::default();
            let kept = open_snapshot(volume.device.clone(), name.as_bytes(), options).unwrap();
            assert_eq!(kept.len(), volume.device.len());
            let (image, mut state) = (bytes(kept.as_ref()), state.clone());
            let then = tree(&open(&Arc::new(MemoryDevice::new(state.clone()))));
            for used in Raw::new(&mut state).used().collect::<Vec<_>>() {
                assert!(image[used.clone()] == state[used.clone()], "{shape:?}: bytes {used:?}");
            }
            let seen = FfsImage::open(kept.clone(), options).unwrap();
            assert!(tree(&seen) == then, "{shape:?}: {name}");
            assert!(then.len() > 20 && now.keys().ne(then.keys()), "{shape:?}: nothing changed");
            let report = seekless_ffs::check(kept).unwrap();
            assert!(report.is_clean(), "{shape:?}, {name}: {:#?}", report.findings);
        }
    }
}

/// The file itself has the bytes of the image, then the list, also by its map.
#[test]
fn a_snapshot_is_read_as_a_file() {
    let volume = volume(&SHAPES[1], 7);
    let image = open(&volume.device);
    for (name, &ino) in NAMES.iter().zip(&volume.inos) {
        let kept = open_snapshot(volume.device.clone(), name.as_bytes(), OpenOptions::default());
        let kept = bytes(kept.unwrap().as_ref());
        let file = contents(&image, ino);
        assert!(file.starts_with(&kept) && file.len() > kept.len(), "{name}");
        let mut mapped = vec![0; file.len()];
        let all = bytes(volume.device.as_ref());
        for run in image.contents_map(ino).unwrap().runs {
            let (to, from) =
                (run.lbn.get() as usize * 1024, run.extent.start.get() as usize * 1024);
            let len = (run.extent.len as usize * 1024).min(file.len() - to);
            mapped[to..to + len].copy_from_slice(&all[from..from + len]);
        }
        assert!(mapped == file, "{name}: by its map");
        // Only its own blocks are the file's.
        let held = image.block_map(ino).unwrap();
        let index: u64 = held.index.iter().map(|index| index.len).sum();
        let held: u64 = held.runs.iter().map(|run| run.extent.len).sum::<u64>() + index;
        assert_eq!(held * 2, image.attr(ino).unwrap().sectors, "{name}");
    }
}

#[test]
fn snapshots_are_listed_and_the_volume_is_in_order() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let volume = volume(shape, 20 + n);
        let report = seekless_ffs::check(volume.device.clone()).unwrap();
        let is_hash = |code: &str| code.ends_with("hash");
        let others = report.findings.iter().filter(|it| !is_hash(it.code()));
        assert_eq!(others.count(), 0, "{shape:?}: {:#?}", report.findings);
        let found = snapshots(
            volume.device.clone(),
            OpenOptions { ignore_checksums: true, ..OpenOptions::default() },
        )
        .unwrap();
        let paths: Vec<_> = found.iter().map(|it| it.path.clone().unwrap()).collect();
        assert_eq!(paths, [b"/.snap/daily".to_vec(), b"/.snap/weekly".to_vec()]);
        for (snapshot, ino) in found.iter().zip(volume.inos) {
            let held = open(&volume.device).attr(ino).unwrap().sectors * 512;
            assert_eq!((snapshot.ino, snapshot.held.get()), (ino, held));
            assert_eq!(snapshot.made, crate::replay::WALL.secs);
        }
    }
}

/// The error of reading all of a snapshot, after its volume was changed.
fn refused(name: &str, harm: impl Fn(&mut Raw<'_>, u64)) -> String {
    let volume = volume(&SHAPES[2], 40);
    let mut now = bytes(volume.device.as_ref());
    harm(&mut Raw::new(&mut now), volume.inos[0].get().into());
    let device = Arc::new(MemoryDevice::new(now));
    let options = OpenOptions::default();
    let read = open_snapshot(device.clone(), name.as_bytes(), options).and_then(|kept| {
        let mut all = vec![0; kept.len().get() as usize];
        Ok(kept.read(Lba::ZERO, &mut all)?)
    });
    let listed = snapshots(device, options).map(|found| format!("{} listed", found.len()));
    format!("{}; {}", shown(read.map(|()| "read".into())), shown(listed))
}

fn shown(result: Result<String, FsError>) -> String {
    result.unwrap_or_else(|error| error.to_string())
}

#[test]
fn damaged_snapshots_are_refused() {
    let is = |name: &str, harm: &dyn Fn(&mut Raw<'_>, u64), says: [&str; 2]| {
        let said = refused(name, harm);
        let (read, listed) = said.split_once("; ").unwrap();
        assert!(read.contains(says[0]) && listed.contains(says[1]), "{said}");
    };
    is("daily", &|_, _| {}, ["read", "2 listed"]);
    is("monthly", &|_, _| {}, ["/.snap/monthly", "2 listed"]);
    is("/made-2-3", &|_, _| {}, ["is not a snapshot", "2 listed"]);
    is("daily", &|raw, ino| raw.set_number(ino, 3, u64::MAX / 2), ["block map", "2 listed"]);
    is("daily", &|raw, ino| raw.set_number(ino, 12, 1 << 40), ["indirect block", "2 listed"]);
    is("daily", &|raw, ino| raw.list(2, ino), ["read", "2 listed"]);
    is("daily", &|raw, _| raw.list(0, 0), ["is not a snapshot", "0 listed"]);
    is("daily", &|raw, _| raw.list(0, 1 << 30), ["is not a snapshot", "1 listed"]);
    let short = |raw: &mut Raw<'_>, ino: u64| {
        let at = raw.inode(ino) + 16;
        raw.put(at, 8, 5000);
        raw.seal(ino);
    };
    is("daily", &short, ["di_size", "di_size"]);
    let unmarked = |raw: &mut Raw<'_>, ino: u64| {
        let at = raw.inode(ino) + 88;
        raw.put(at, 4, 0);
        raw.seal(ino);
    };
    is("daily", &unmarked, ["is not a snapshot", "1 listed"]);
}

/// As with those of FreeBSD, which have copies of the groups' heads from the start.
#[test]
fn the_volume_of_a_snapshot_can_be_changed() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let volume = volume(shape, 41 + n);
        let kept = |name: &str| {
            let kept =
                open_snapshot(volume.device.clone(), name.as_bytes(), OpenOptions::default());
            kept.unwrap()
        };
        let before = NAMES.map(|name| bytes(kept(name).as_ref()));
        let files = tree(&open(&volume.device));
        change(&volume.device, &[], 0, shape.block as usize);
        change(&volume.device, &[], 0, shape.block as usize);
        assert!(tree(&open(&volume.device)) != files, "{shape:?}: nothing changed");
        for (name, before) in NAMES.iter().zip(&before) {
            assert!(bytes(kept(name).as_ref()) == *before, "{shape:?}: {name}");
            let written = kept(name).write(Lba::ZERO, &[0; 512]);
            assert!(matches!(written, Err(DeviceError::ReadOnly)), "{written:?}");
        }
        let report = seekless_ffs::check(volume.device.clone()).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
    }
}

/// A snapshot without its whole map, or without the copies that it has from the start.
#[test]
fn volumes_of_incomplete_snapshots_are_not_changed() {
    let sound = volume(&SHAPES[2], 41);
    let mut raw = bytes(sound.device.as_ref());
    let (group, ino) = (Raw::new(&mut raw).head_block(), sound.inos[1].get().into());
    let harmed = |harm: &dyn Fn(&mut Raw<'_>)| {
        let mut now = bytes(sound.device.as_ref());
        harm(&mut Raw::new(&mut now));
        let device = Arc::new(MemoryDevice::new(now.clone()));
        let (clock, config) = (Arc::new(VirtualClock::new()), Config::new(Discipline::SoftUpdates));
        let opened = FfsLive::open(device.clone(), clock, config, options());
        assert!(bytes(device.as_ref()) == now, "something was written");
        opened.err().expect("a refusal").to_string()
    };
    let is = |said: String, with: &str| assert!(said.contains(with), "{said}");
    is(harmed(&|raw| raw.set_number(ino, 3, 0)), "copies of the first blocks");
    is(harmed(&|raw| raw.set_number(ino, 12, 0)), "complete map");
    is(harmed(&|raw| raw.set_number(ino, 12, 1 << 40)), "block number");
    is(harmed(&|raw| raw.set_numbered(ino, group, 0)), "copies of the groups");
}

/// The image in a snapshot lists older snapshots, which are empty files there.
#[test]
fn an_older_snapshot_in_the_image_of_a_newer_one() {
    let volume = volume(&SHAPES[3], 42);
    let check = |state: &[u8]| {
        let device = Arc::new(MemoryDevice::new(state.to_vec()));
        let listed = snapshots(device.clone(), OpenOptions::default()).unwrap();
        assert_eq!(listed, []);
        seekless_ffs::check(device).unwrap()
    };
    let mut state = volume.states[1].clone();
    let files = tree(&open(&Arc::new(MemoryDevice::new(state.clone()))));
    let ino = |path: &str| files[path.as_bytes()].1.into();
    Raw::new(&mut state).list(0, ino("/made-0-0"));
    assert!(check(&state).is_clean(), "{:#?}", check(&state).findings);
    Raw::new(&mut state).list(0, ino("/made-0-5"));
    let codes: Vec<_> = check(&state).findings.iter().map(|it| it.code()).collect();
    assert_eq!(codes, ["superblock.tuning"]);
}
