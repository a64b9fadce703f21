//! The two worked examples of Coly Li's proposal (directory inode reservation, 2007): which
//! blocks of the inode table each removal changes, one after the other and before
//! any writes are merged. Blocks of 1 KB, inodes of 128 bytes: eight in a block.

use super::shapes::{Shape, fsck, image, options, written};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::Timestamp;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{Ino, Lba};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const SHAPE: Shape = Shape { kind: "ext2", block: 1024, mebibytes: 24, how: &["-I", "128"] };
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
/// Inodes in a block.
const PER_BLOCK: u32 = 8;

/// A volume on which every change is written at once.
struct Watched {
    device: Arc<MemoryDevice>,
    live: ExtLive,
    /// The first sector of the inode table of the first group.
    table: Lba,
    before: Vec<u8>,
}

impl Watched {
    fn new(inodes: Option<&str>) -> Self {
        let device = image(&SHAPE);
        let file = written(&device);
        let found = Command::new("debugfs").args(["-R", "imap <1>"]).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        let block = text.split("block ").nth(2).and_then(|rest| rest.split(',').next()).unwrap();
        let table = Lba::new(block.parse::<u64>().unwrap() * 2);
        let seconds = AtomicI64::new(1_700_000_000);
        let wall = move || Timestamp { secs: seconds.fetch_add(1, Ordering::Relaxed), nanos: 0 };
        // All in the first group.
        let (directories, inodes) = ("linear".into(), inodes.map(Into::into));
        let options = LiveOptions { directories, inodes, wall: Box::new(wall), ..options() };
        let config = Config::new(Discipline::Sync);
        let clock = Arc::new(VirtualClock::new());
        let live = ExtLive::open(device.clone(), clock, config, options).unwrap();
        Self { device, live, table, before: Vec::new() }
    }

    fn make(&mut self, dir: Ino, name: &str, new: NewFile<'_>) -> Ino {
        self.live.make(dir, name.as_bytes(), new, OWNER).unwrap().ino
    }

    /// Makes files until the next one is the first inode of a block.
    fn fill(&mut self, dir: Ino) {
        for n in 0.. {
            let last = self.make(dir, &format!("fill{n}"), NewFile::Regular);
            if last.get().is_multiple_of(PER_BLOCK) {
                return;
            }
        }
    }

    fn table(&self) -> Vec<u8> {
        let mut bytes = vec![0; 32 << 10];
        self.device.read(self.table, &mut bytes).unwrap();
        bytes
    }

    /// The blocks of the table that something changes, of those of some inodes.
    fn changed(&mut self, of: &[u32], work: impl FnOnce(&mut ExtLive)) -> Vec<u32> {
        self.before = self.table();
        work(&mut self.live);
        let after = self.table();
        let differs = |&block: &u32| {
            let bytes = block as usize * 1024..(block as usize + 1) * 1024;
            self.before[bytes.clone()] != after[bytes]
        };
        of.iter().copied().filter(differs).collect()
    }

    fn finish(mut self, what: &str) {
        self.live.unmount().unwrap();
        fsck(&self.device, what);
    }
}

fn block_of(ino: Ino) -> u32 {
    (ino.get() - 1) / PER_BLOCK
}

/// How many writes a cache that merges what follows on each other leaves.
fn merged(mut writes: Vec<u32>) -> usize {
    writes.dedup();
    writes.len()
}

/// 24 files in three blocks: in the order of their names, which stands for that of their
/// hashes, each removal changes another block than the one before.
#[test]
fn twenty_four_files_take_twenty_four_writes_or_three() {
    let order = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    let made = order("a d g j m p s v b e h k n q t w c f i l o r u x");
    let mut listed = made.clone();
    listed.sort();
    let mut counted = Vec::new();
    for made in [made, listed.clone()] {
        let mut watched = Watched::new(None);
        let root = watched.live.root();
        let dir = watched.make(root, "dir", NewFile::Directory);
        watched.fill(dir);
        let inodes: Vec<Ino> =
            made.iter().map(|name| watched.make(dir, name, NewFile::Regular)).collect();
        let mut blocks: Vec<u32> = inodes.iter().map(|&ino| block_of(ino)).collect();
        blocks.dedup();
        assert_eq!(blocks.len(), 3, "{inodes:?}");
        let first = blocks[0];
        let mut writes = Vec::new();
        for name in &listed {
            let unlink = |live: &mut ExtLive| live.unlink(dir, name.as_bytes()).unwrap();
            writes.extend(watched.changed(&blocks, unlink));
        }
        let relative: Vec<u32> = writes.iter().map(|block| block - first).collect();
        assert_eq!(relative.len(), 24);
        if made != listed {
            assert_eq!(relative[..7], [0, 1, 2, 0, 1, 2, 0]);
        }
        counted.push(merged(relative));
        watched.finish("24 files");
    }
    assert_eq!(counted, [24, 3]);
}

/// Eight directories with two files each: a removal of a file changes its inode and that
/// of its directory. Made level by level, they lie in three blocks; reserved, each
/// directory has its files in a block with it.
#[test]
fn eight_directories_take_thirty_two_writes_or_eight() {
    let names = ["A", "B", "C", "D", "E", "F", "H", "I"];
    let mut counted = Vec::new();
    for policy in [None, Some("dir-reserve=8")] {
        let mut watched = Watched::new(policy);
        let root = watched.live.root();
        let top = watched.make(root, "top", NewFile::Directory);
        if policy.is_none() {
            watched.fill(root);
        }
        let dirs = names.map(|name| watched.make(top, name, NewFile::Directory));
        let files =
            ["one", "two"].map(|file| dirs.map(|dir| watched.make(dir, file, NewFile::Regular)));
        let all = dirs.iter().chain(files.as_flattened());
        let mut blocks: Vec<u32> = all.map(|&ino| block_of(ino)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut writes = Vec::new();
        for (n, &dir) in dirs.iter().enumerate() {
            for (file, inodes) in ["one", "two"].iter().zip(&files) {
                // The file's own first, then that of its directory.
                let of = [block_of(inodes[n]), block_of(dir)];
                let unlink = |live: &mut ExtLive| live.unlink(dir, file.as_bytes()).unwrap();
                writes.extend(watched.changed(&of, unlink));
            }
            watched.live.rmdir(top, names[n].as_bytes()).unwrap();
        }
        if policy.is_none() {
            assert_eq!(blocks.len(), 3, "{blocks:?}");
            let relative: Vec<u32> = writes.iter().map(|block| block - blocks[0]).collect();
            assert_eq!(relative[..8], [1, 0, 2, 0, 1, 0, 2, 0]);
        }
        assert_eq!(writes.len(), 32);
        counted.push(merged(writes));
        watched.finish("8 directories");
    }
    assert_eq!(counted, [32, 8]);
}
