//! Volumes that become larger: they are those that newfs makes of the new size, files are as they
//! were, whatever lay behind the volume, and wherever the growth is cut off.

mod crash;
mod in_use;
mod refusals;
mod same;
mod storm;

use crate::live::recount::recount;
use crate::live::shapes::options;
use crate::replay::WALL;
use crate::rules::freebsd;
use crate::words::volume::{File, bytes_of, tree};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{CheckHashes, FfsLive, MakeOptions, Version, grow, make};
use seekless_fs::growth::Growth;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o755 };

/// The kind of a volume.
#[derive(Clone, Copy, Debug)]
struct Kind {
    version: Version,
    big_endian: bool,
    block: u32,
    fragment: u32,
    /// Most blocks in a group.
    group: Option<u32>,
    hashes: CheckHashes,
    /// Most blocks of a cluster.
    cluster: u32,
}

const fn kind(version: Version, big_endian: bool, sizes: (u32, u32), group: Option<u32>) -> Kind {
    let (block, fragment) = sizes;
    let hashes = CheckHashes::All;
    Kind { version, big_endian, block, fragment, group, hashes, cluster: 8 }
}

/// Both formats, both byte orders, all numbers of fragments in a block; groups as small as they can
/// be and as large as their heads allow.
const KINDS: [Kind; 10] = [
    kind(Version::Ufs1, false, (4096, 512), Some(180)),
    kind(Version::Ufs2, false, (4096, 512), Some(180)),
    kind(Version::Ufs2, true, (4096, 1024), Some(200)),
    kind(Version::Ufs1, true, (8192, 1024), Some(100)),
    Kind { hashes: CheckHashes::Groups, ..kind(Version::Ufs2, false, (16384, 8192), Some(90)) },
    Kind { hashes: CheckHashes::None, ..kind(Version::Ufs2, true, (16384, 2048), None) },
    Kind { cluster: 1, ..kind(Version::Ufs1, true, (8192, 8192), Some(300)) },
    Kind { cluster: 1, ..kind(Version::Ufs2, false, (4096, 4096), Some(150)) },
    kind(Version::Ufs1, false, (65536, 8192), Some(40)),
    kind(Version::Ufs2, false, (65536, 65536), None),
];

impl Kind {
    fn options(&self, len: u64) -> MakeOptions {
        let mut options = MakeOptions::new(self.version, ByteLen::new(len));
        (options.block_size, options.fragment_size) = (self.block, self.fragment);
        options.big_endian = self.big_endian;
        options.bytes_per_inode = Some(8192.max(self.fragment));
        options.blocks_per_group = self.group;
        options.check_hashes = self.hashes;
        options.maxcontig = Some(self.cluster);
        options.time = WALL;
        options
    }

    /// An empty volume, as long as its device.
    fn made(&self, len: u64) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(vec![0; len as usize]));
        make(device.as_ref(), &self.options(len)).unwrap();
        device
    }
}

/// The superblock's numbers.
fn numbers(device: &MemoryDevice) -> freebsd::Fs {
    freebsd::Fs::find(device)
}

/// A longer device with the same beginning, and with bytes that are no zeros behind it.
fn longer(device: &MemoryDevice, len: u64) -> Arc<MemoryDevice> {
    let mut bytes = bytes_of(device);
    bytes.resize(bytes.len().max(len as usize), 0xA5);
    Arc::new(MemoryDevice::new(bytes))
}

/// The volume grown to so many bytes, judged.
fn grown(device: &MemoryDevice, len: u64) -> (Arc<MemoryDevice>, Growth) {
    let device = longer(device, len);
    let growth = grow(device.clone(), ByteLen::new(len), WALL).unwrap();
    is_sound(&device, true);
    (device, growth)
}

/// Fails unless a volume satisfies our check, a recount, and the rules of FreeBSD.
fn is_sound(device: &Arc<MemoryDevice>, fresh: bool) {
    let report = seekless_ffs::check(device.clone()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    recount(device);
    let verdict = freebsd::judge(device.as_ref(), fresh);
    assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
}

/// All files of a volume, by path.
fn files(device: &MemoryDevice) -> BTreeMap<String, File> {
    tree(bytes_of(device))
}

/// Changes a volume with the engine: files of many lengths are made, and every third that is there is
/// removed. Ends early when the volume is full.
fn change(device: &Arc<MemoryDevice>, seed: u64, count: u64) {
    let mut live = in_use(device.clone(), Discipline::SoftUpdates);
    change_in_use(&mut live, seed, count);
    live.unmount().unwrap();
}

/// A volume open for changes.
fn in_use(device: Arc<dyn BlockDevice>, discipline: Discipline) -> FfsLive {
    let clock = Arc::new(VirtualClock::new());
    FfsLive::open(device, clock, Config::new(discipline), options()).unwrap()
}

/// As [`change`], of a volume in use.
fn change_in_use(live: &mut FfsLive, seed: u64, count: u64) {
    let root = live.root();
    let dir = format!("dir-{seed}-{count}");
    let Ok(dir) = live.make(root, dir.as_bytes(), NewFile::Directory, OWNER) else { return };
    let mut made: Vec<(Ino, String)> = Vec::new();
    let mut state = seed | 1;
    for n in 0..count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = format!("file-{n}");
        let Ok(file) = live.make(dir.ino, name.as_bytes(), NewFile::Regular, OWNER) else { break };
        let len = (state >> 33) % [700, 9000, 90_000][(state >> 20) as usize % 3];
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ state) as u8).collect();
        if live.write(file.ino, ByteLen::ZERO, &bytes).is_err() {
            break;
        }
        made.push((file.ino, name));
    }
    for (_, name) in made.iter().step_by(3) {
        live.unlink(dir.ino, name.as_bytes()).unwrap();
    }
}
