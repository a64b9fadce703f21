//! A cache over a journal of a real volume: operations on blocks of a file that stand
//! for metadata, cut off anywhere.

use super::crash::{Recorder, cut, state};
use super::volume::{BLOCKS, SHAPES, Shape, dump, make, read_file};
use crate::holes;
use crate::repair::judge::{Random, Scratch, bytes_of, findings, is_there};
use seekless_cache::{Cache, CommitReason, Config, Discipline, JournalMode, Role};
use seekless_device::{Clock, VirtualClock};
use seekless_ext::LogWriter;
use seekless_fs::Timestamp;
use seekless_units::{BlockNo, ByteLen, Nanos};
use std::fs;
use std::process::Command;
use std::sync::Arc;

struct Volume {
    shape: &'static Shape,
    device: Arc<Recorder>,
    clock: Arc<VirtualClock>,
    cache: Cache<()>,
    homes: Vec<BlockNo>,
    /// The last operation that changed each block.
    file: Vec<u32>,
}

/// What a block holds that an operation changed; some begin as a block of the log does.
fn contents(shape: &Shape, number: u32) -> Vec<u8> {
    if number == 0 {
        return vec![b'a'; shape.block];
    }
    let mut bytes = number.to_be_bytes().repeat(shape.block / 4);
    if number.is_multiple_of(5) {
        bytes[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    }
    bytes
}

impl Volume {
    fn open(shape: &'static Shape) -> Self {
        let (bytes, homes) = make(shape);
        let device = Arc::new(Recorder::new(bytes));
        let clock = Arc::new(VirtualClock::new());
        let mut config = Config::new(Discipline::Journal(JournalMode::Ordered));
        config.capacity = ByteLen::new((100 * shape.block) as u64);
        let block = shape.block as u32;
        let mut cache =
            Cache::new(device.clone(), clock.clone(), block, block, config).expect("cache");
        let wall = Box::new(|| Timestamp { secs: 1_000_000_000, nanos: 0 });
        let log = LogWriter::open(device.clone(), wall).expect("log");
        cache.transactions().open_log(Box::new(log)).expect("log");
        Self { shape, device, clock, cache, homes, file: vec![0; BLOCKS] }
    }

    fn asked(&self) -> usize {
        self.device.log.lock().expect("log").len()
    }

    fn operation(&mut self, number: u32, random: &mut Random) {
        let count = 1 + random.below(12);
        self.cache.begin_with(count as u64).expect("begin");
        for _ in 0..count {
            let at = random.below(BLOCKS);
            let bytes = contents(self.shape, number);
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(&bytes);
                Ok(())
            };
            let (home, len) = (self.homes[at], self.shape.block);
            self.cache.changes().edit(home, 0, len, Role::IndirectSet, fill).expect("edit");
            self.file[at] = number;
        }
        self.cache.end().expect("end");
        assert_eq!(self.cache.broken_invariant(), None);
    }

    /// What follows an operation. Whether all is durable then.
    fn follow(&mut self, random: &mut Random) -> bool {
        match random.below(10) {
            0 => {
                self.cache.transactions().commit(CommitReason::Asked).expect("commit");
                return true;
            }
            1 => self.clock.sleep(Nanos::new(3_000_000_000)),
            2 => {
                self.cache.transactions().begin_commit(CommitReason::Asked).expect("commit");
            }
            3..=6 => {
                if let Some(work) = self.cache.transactions().commit_work().expect("commit") {
                    work.perform();
                }
            }
            _ => {}
        }
        false
    }
}

fn whole(shape: &Shape, file: &[u32]) -> Vec<u8> {
    let blocks: Vec<Vec<u8>> = file.iter().map(|&number| contents(shape, number)).collect();
    blocks.concat()
}

fn crash(shape: &'static Shape, seed: u64, operations: u32, states: usize) {
    let mut volume = Volume::open(shape);
    let base = bytes_of(volume.device.as_ref());
    volume.device.log.lock().expect("log").clear();
    let mut random = Random(seed);
    let mut files = vec![(0, volume.file.clone())];
    let mut durable = vec![(0, 0)];
    for number in 1..=operations {
        files.push((volume.asked(), volume.file.clone()));
        volume.operation(number, &mut random);
        files.last_mut().expect("one").1.clone_from(&volume.file);
        if volume.follow(&mut random) {
            durable.push((volume.asked(), number as usize));
        }
    }
    volume.cache.transactions().commit(CommitReason::Asked).expect("commit");
    let counted = volume.cache.blocks().counters().journal;
    assert!(counted.checkpoints > 1 && counted.frozen > 0, "{}: {counted:?}", shape.name);
    let requests = volume.device.log.lock().expect("log").clone();
    for n in 0..states {
        let cut = cut(&requests, &mut random);
        let bytes = state(&base, &requests[..cut], &mut random);
        let place = format!("{} seed {seed} after {cut} of {}", shape.name, requests.len());
        let least = durable.iter().rev().find(|(asked, _)| *asked <= cut).expect("one").1;
        let most = files.iter().rposition(|(asked, _)| *asked <= cut).expect("one");
        let file = read_file(bytes.clone());
        let found = (least..=most).rev().find(|&n| whole(shape, &files[n].1) == file);
        assert!(found.is_some(), "{place}: none of the states after {least} to {most}");
        if n % 10 == 0 {
            let scratch = Scratch::new(&format!("cached-{}", shape.name));
            holes::put(scratch.path(), &bytes);
            let said = Command::new("e2fsck")
                .args(["-E", "journal_only", "-p"])
                .arg(scratch.path())
                .output()
                .expect("e2fsck");
            assert!(said.status.code().is_some_and(|code| code <= 1), "{place}: {said:?}");
            assert!(dump(scratch.path()) == file, "{place}: e2fsck");
            assert_eq!(findings(scratch.path()), None, "{place}");
        }
    }
    // Closed there is nothing to recover.
    volume.cache.transactions().close_log().expect("close");
    let scratch = Scratch::new(&format!("cached-{}", shape.name));
    fs::write(scratch.path(), bytes_of(volume.device.as_ref())).expect("image");
    assert!(dump(scratch.path()) == whole(shape, &volume.file), "{}", shape.name);
    assert_eq!(findings(scratch.path()), None, "{}", shape.name);
}

#[test]
fn a_prefix_of_the_operations_is_recovered() {
    if !is_there() {
        return;
    }
    for (seed, shape) in SHAPES.iter().enumerate() {
        crash(shape, seed as u64, 300, 20);
    }
}
