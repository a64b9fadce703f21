//! What the cache asks of the device: which requests, in what order, how many,
//! when; and whether it counts them as the device does.
//!
//! Blocks are 8 fragments of 1 KiB. A request is written `read 8+2` (two
//! fragments from fragment 8 on), `write 8+2` (somebody waits for it),
//! `behind 8+2` (nobody does) or `flush`. Time is that of a virtual clock.

mod clusters;
mod counting;
mod device;
mod flushing;
mod joins;
mod limits;
mod memory;
mod pieces;
mod settings;
mod syncer;
mod taking_back;

use device::Recorder;
use seekless_cache::{Cache, ChangeId, Config, Discipline, Piece, Role};
use seekless_device::{Clock, VirtualClock};
use seekless_units::{BlockNo, ByteLen, Extent, Nanos};
use std::sync::Arc;

const FRAGMENT: usize = 1024;
/// Fragments of a block.
const PER_BLOCK: u64 = 8;
const BLOCK: u64 = FRAGMENT as u64 * PER_BLOCK;
const SECOND: u64 = 1_000_000_000;

/// A cache on a device that records.
struct Rig {
    disk: Arc<Recorder>,
    clock: Arc<VirtualClock>,
    cache: Cache<u32>,
}

/// Soft updates without flushes, and room for everything.
fn soft_updates() -> Config {
    let mut config = Config::new(Discipline::SoftUpdates);
    config.barriers = false;
    config
}

fn blocks(n: u64) -> ByteLen {
    ByteLen::new(n * BLOCK)
}

impl Rig {
    fn new(config: Config) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let disk = Arc::new(Recorder::new(clock.clone()));
        let cache = Cache::new(disk.clone(), clock.clone(), BLOCK as u32, FRAGMENT as u32, config);
        Self { disk, clock, cache: cache.unwrap() }
    }

    /// Fills some fragments of a block with a byte.
    fn fill(&mut self, at: u64, fragments: u64, byte: u8, role: Role) -> ChangeId {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        let len = fragments as usize * FRAGMENT;
        self.cache.changes().fill(BlockNo::new(at), len, role, fill).unwrap().1
    }

    /// Fills a whole block with a byte.
    fn fill_block(&mut self, block: u64, byte: u8, role: Role) -> ChangeId {
        self.fill(block * PER_BLOCK, PER_BLOCK, byte, role)
    }

    /// Changes a byte at some offset from a fragment, after other changes.
    fn put(&mut self, at: u64, offset: u32, byte: u8, role: Role, after: &[ChangeId]) -> ChangeId {
        let piece = [Piece { offset, bytes: &[byte] }];
        self.cache.changes().change(BlockNo::new(at), &piece, role, after).unwrap()
    }

    fn read(&mut self, at: u64, fragments: u64) -> Vec<u8> {
        self.cache
            .blocks_mut()
            .read(BlockNo::new(at), 0, fragments as usize * FRAGMENT)
            .unwrap()
            .to_vec()
    }

    fn read_run(&mut self, at: u64, fragments: u64) -> Vec<u8> {
        let mut bytes = vec![0; fragments as usize * FRAGMENT];
        self.cache.blocks_mut().read_run(BlockNo::new(at), 0, &mut bytes).unwrap();
        bytes
    }

    /// The requests since this was asked last.
    fn requests(&self) -> Vec<String> {
        self.disk.take().into_iter().map(|(_, request)| request).collect()
    }

    /// Lets seconds pass, one tick in each; gives each request with the second
    /// it came in.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, String)> {
        for _ in 0..seconds {
            self.clock.sleep(Nanos::new(SECOND));
            self.cache.tick().unwrap();
        }
        self.disk.take()
    }

    fn second(&self) -> u64 {
        self.clock.now().get() / SECOND
    }
}

fn run(at: u64, fragments: u64) -> Extent {
    Extent::new(BlockNo::new(at), fragments)
}
