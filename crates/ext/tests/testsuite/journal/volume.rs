//! Volumes with a file whose blocks stand for anything that is logged.

use crate::holes;
use crate::repair::judge::{Random, Scratch, bytes_of};
use seekless_cache::{Log, LogCopy, LogTransaction, Stage};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ext::{ExtImage, LogWriter};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{Inspect, Timestamp};
use seekless_units::{BlockNo, ByteLen, Lba};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Blocks of the file.
pub(crate) const BLOCKS: usize = 300;

/// A kind of volume and of journal.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) block: usize,
    /// Options of mke2fs.
    pub(crate) options: &'static [&'static str],
    /// How debugfs opens the journal once, to give it features.
    pub(crate) features: Option<&'static str>,
    /// What `dumpe2fs` says of the journal's features when it is in use.
    pub(crate) shown: &'static str,
}

/// All of them: each form of tags, block maps and extents, blocks of 1 and 4 KiB.
pub(crate) const SHAPES: [Shape; 6] = [
    Shape {
        name: "plain",
        block: 1024,
        options: &["-t", "ext3"],
        features: None,
        shown: "journal_incompat_revoke",
    },
    Shape {
        name: "whole",
        block: 1024,
        options: &["-t", "ext3"],
        features: Some("jo -c -v 1"),
        shown: "journal_checksum journal_incompat_revoke",
    },
    Shape {
        name: "wide",
        block: 4096,
        options: &["-t", "ext4", "-O", "64bit,^metadata_csum"],
        features: None,
        shown: "journal_incompat_revoke journal_64bit",
    },
    Shape {
        name: "second",
        block: 1024,
        options: &["-t", "ext4", "-O", "64bit"],
        features: Some("jo -c -v 2"),
        shown: "journal_incompat_revoke journal_64bit journal_checksum_v2",
    },
    Shape {
        name: "third",
        block: 1024,
        options: &["-t", "ext4", "-O", "^64bit"],
        features: None,
        shown: "journal_incompat_revoke journal_checksum_v3",
    },
    Shape {
        name: "today",
        block: 4096,
        options: &["-t", "ext4", "-O", "64bit,meta_bg,^resize_inode"],
        features: None,
        shown: "journal_incompat_revoke journal_64bit journal_checksum_v3",
    },
];

pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env("LC_ALL", "C").output().expect(program);
    assert!(out.status.success(), "{program} {args:?}: {out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A volume in use, with what the blocks of the file hold.
pub(crate) struct Volume {
    pub(crate) shape: &'static Shape,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) log: LogWriter,
    /// Where the blocks of the file lie.
    pub(crate) homes: Vec<BlockNo>,
    /// What a recovery makes of each, by the first word behind the magic.
    pub(crate) committed: BTreeMap<BlockNo, Vec<u8>>,
    /// Blocks in the log, by transaction, that are not at home.
    pub(crate) waiting: Vec<BTreeMap<BlockNo, Vec<u8>>>,
    pub(crate) random: Random,
    /// Blocks of the log that were written.
    pub(crate) logged: u64,
}

/// The bytes of a new volume, and the blocks of its file.
pub(crate) fn make(shape: &Shape) -> (Vec<u8>, Vec<BlockNo>) {
    let scratch =
        Scratch::new(&format!("journal-{}-{:?}", shape.name, std::thread::current().id()));
    let image = scratch.path().to_str().expect("path");
    let tree = Scratch::new(&format!("tree-{}-{:?}", shape.name, std::thread::current().id()));
    fs::create_dir_all(tree.path()).expect("tree");
    fs::write(tree.path().join("file"), vec![b'a'; BLOCKS * shape.block]).expect("file");
    let (size, root) = (shape.block.to_string(), tree.path().to_str().expect("path"));
    let journal = format!("size={}", shape.block / 1024);
    let mut args = vec!["-q", "-F", "-b", &size, "-d", root, "-J", &journal];
    args.extend_from_slice(shape.options);
    args.extend_from_slice(&[image, if shape.block > 1024 { "16M" } else { "4M" }]);
    run("mke2fs", &args);
    if let Some(open) = shape.features {
        let list = Scratch::new(&format!("list-{}-{:?}", shape.name, std::thread::current().id()));
        fs::write(list.path(), format!("{open}\njc\n")).expect("list");
        run("debugfs", &["-w", "-f", list.path().to_str().expect("path"), image]);
        run("debugfs", &["-w", "-R", "feature -needs_recovery", image]);
        run("e2fsck", &["-fy", image]);
    }
    let blocks = run("debugfs", &["-R", "blocks /file", image]);
    let mut homes: Vec<BlockNo> =
        blocks.split_whitespace().map(|n| BlockNo::new(n.parse().expect("block"))).collect();
    // Those that map the file are among them.
    let bytes = holes::take(scratch.path());
    homes.retain(|home| {
        let at = home.get() as usize * shape.block;
        bytes[at..at + shape.block].iter().all(|&byte| byte == b'a')
    });
    assert_eq!(homes.len(), BLOCKS, "{}", shape.name);
    (bytes, homes)
}

impl Volume {
    /// Opens a volume on a device that holds the bytes of [`make`].
    pub(crate) fn open(
        shape: &'static Shape,
        device: Arc<dyn BlockDevice>,
        homes: Vec<BlockNo>,
        seed: u64,
    ) -> Self {
        // A clock that stands still: times of commits grow all the same.
        let wall = Box::new(|| Timestamp { secs: 1_000_000_000, nanos: 0 });
        let log = LogWriter::open(device.clone(), wall).expect(shape.name);
        let committed = homes.iter().map(|&home| (home, vec![b'a'; shape.block])).collect();
        let random = Random(seed);
        let mut volume =
            Self { shape, device, log, homes, committed, waiting: Vec::new(), random, logged: 0 };
        let stages = volume.log.start().expect("start");
        volume.perform(&stages);
        volume
    }

    pub(crate) fn perform(&self, stages: &[Stage]) {
        for stage in stages {
            stage.perform(self.device.as_ref(), true).expect("device");
        }
    }

    /// What a block has at home.
    pub(crate) fn at_home(&self, home: BlockNo) -> Vec<u8> {
        let mut bytes = vec![0; self.shape.block];
        let at = ByteLen::new(home.get() * self.shape.block as u64);
        self.device.read(Lba::containing(at), &mut bytes).expect("home");
        bytes
    }

    fn put_home(&self, home: BlockNo, bytes: &[u8]) {
        let at = ByteLen::new(home.get() * self.shape.block as u64);
        self.device.write(Lba::containing(at), bytes).expect("home");
    }

    /// New contents; some begin as a block of the log does.
    fn contents(&mut self) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..self.shape.block).map(|_| self.random.below(256) as u8).collect();
        if self.random.below(4) == 0 {
            bytes[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        }
        bytes
    }

    /// A transaction of up to so many blocks, some of which are those of the last
    /// ones, and some that are revoked and changed at home afterwards. Returns its
    /// stages, and what the file's blocks hold once they are done.
    pub(crate) fn transaction(
        &mut self,
        most: usize,
    ) -> (Vec<Stage>, BTreeMap<BlockNo, Vec<u8>>, Vec<BlockNo>) {
        let mut copies = BTreeMap::new();
        for _ in 0..=self.random.below(most) {
            let home = self.homes[self.random.below(BLOCKS)];
            let bytes = self.contents();
            copies.insert(home, bytes);
        }
        let in_log: Vec<BlockNo> =
            self.waiting.iter().flat_map(|transaction| transaction.keys().copied()).collect();
        let mut revokes = std::collections::BTreeSet::new();
        if !in_log.is_empty() {
            for _ in 0..self.random.below(6) {
                let home = in_log[self.random.below(in_log.len())];
                if !copies.contains_key(&home) {
                    revokes.insert(home);
                }
            }
        }
        let revokes: Vec<BlockNo> = revokes.into_iter().collect();
        let blocks: Vec<LogCopy<'_>> =
            copies.iter().map(|(&home, bytes)| LogCopy { home, bytes }).collect();
        let cost = self.log.cost(blocks.len() as u64, revokes.len() as u64);
        assert!(cost <= self.log.most(), "{cost}");
        while self.log.free() < cost {
            let oldest = 1 + self.random.below(self.waiting.len());
            self.retire(oldest);
        }
        // What went home just now needs no record, and may have one.
        let before = self.log.free();
        let stages = self
            .log
            .encode(&LogTransaction { revokes: &revokes, copies: &blocks })
            .expect("transaction");
        assert_eq!(before - self.log.free(), cost);
        self.logged += cost;
        for revoked in &revokes {
            for transaction in &mut self.waiting {
                transaction.remove(revoked);
            }
        }
        let mut after = self.committed.clone();
        after.extend(copies.clone());
        self.waiting.push(copies);
        (stages, after, revokes)
    }

    /// Writes the blocks of the oldest transactions home and leaves them out.
    pub(crate) fn retire(&mut self, oldest: usize) {
        let gone: Vec<_> = self.waiting.drain(..oldest).collect();
        // Only the newest copy of each goes home, whatever transaction has it: as a
        // cache does, which has only that.
        for home in gone.iter().flat_map(BTreeMap::keys) {
            self.put_home(*home, &self.committed[home]);
        }
        let stages = self.log.retire(oldest);
        self.perform(&stages);
    }

    /// A whole transaction, and new contents for what it revokes.
    pub(crate) fn commit(&mut self, most: usize) {
        let (stages, after, revokes) = self.transaction(most);
        self.perform(&stages);
        self.committed = after;
        for revoked in revokes {
            let bytes = self.contents();
            self.put_home(revoked, &bytes);
            self.committed.insert(revoked, bytes);
        }
    }

    /// Everything home, and nothing in the log.
    pub(crate) fn close(&mut self) {
        self.retire(self.waiting.len());
        let stages = self.log.close().expect("close");
        self.perform(&stages);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes_of(self.device.as_ref())
    }

    /// What the file shall hold, in its order.
    pub(crate) fn file(&self) -> Vec<u8> {
        let blocks: Vec<&[u8]> = self.homes.iter().map(|home| &self.committed[home][..]).collect();
        blocks.concat()
    }
}

/// What the file of an image holds, recovered in memory by our own reader.
pub(crate) fn read_file(bytes: Vec<u8>) -> Vec<u8> {
    let image =
        ExtImage::open(Arc::new(MemoryDevice::new(bytes)), OpenOptions::default()).expect("open");
    let ino = resolve(&image, b"/file").expect("file");
    let len = image.attr(ino).expect("file").size as usize;
    let mut contents = vec![0; len];
    image.read(ino, ByteLen::ZERO, &mut contents).expect("file");
    contents
}

/// What the file of an image holds as debugfs reads it, which recovers nothing.
pub(crate) fn dump(image: &Path) -> Vec<u8> {
    let out = Command::new("debugfs").args(["-R", "cat /file"]).arg(image).output().expect("cat");
    out.stdout
}
