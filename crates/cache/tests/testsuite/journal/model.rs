//! A model of a log: a superblock, and a ring of transactions, each a table, copies
//! and a commit record of one sector with a sum of all.

use seekless_cache::{Log, LogTransaction, Stable, Stage};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::Lba;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(crate) const BLOCK: usize = 1024;
/// Blocks that are logged.
pub(crate) const HOME: usize = 64;
/// Blocks of the ring, behind the superblock of the log.
const RING: usize = 96;
pub(crate) const DEVICE: usize = (HOME + 1 + RING) * BLOCK;

const MARK: u64 = 0x4d41_524b;
const TABLE: u64 = 0x5441_424c;
const COMMIT: u64 = 0x434f_4d4d;

pub(crate) struct Model {
    device: Arc<dyn BlockDevice>,
    head: usize,
    next: u64,
    /// Start, number and length of each transaction.
    live: VecDeque<(usize, u64, usize)>,
}

fn word(bytes: &[u8], n: usize) -> u64 {
    u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap())
}

fn words(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(14_695_981_039_346_656_037, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    })
}

fn place(at: usize) -> usize {
    (HOME + 1 + at % RING) * BLOCK
}

fn sector(byte: usize) -> Lba {
    Lba::new(byte as u64 / 512)
}

fn table_blocks(copies: usize, revokes: usize) -> usize {
    ((4 + copies + revokes) * 8).div_ceil(BLOCK)
}

impl Model {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        let mut head = [0; 512];
        device.read(sector(HOME * BLOCK), &mut head).unwrap();
        assert_eq!(word(&head, 0), 0, "something waits");
        Self {
            device,
            head: word(&head, 1) as usize,
            next: word(&head, 2) + 1,
            live: VecDeque::new(),
        }
    }

    fn superblock(&self, mark: u64) -> Stage {
        let (start, tid) = self.live.front().map_or((self.head, self.next), |l| (l.0, l.1));
        let mut stage = Stage { stable: Stable::Own, ..Stage::default() };
        stage.push(sector(HOME * BLOCK), &words(&[mark, start as u64, tid]), BLOCK);
        stage
    }
}

impl Log for Model {
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }

    fn capacity(&self) -> u64 {
        RING as u64
    }

    fn free(&self) -> u64 {
        (RING - self.live.iter().map(|live| live.2).sum::<usize>()) as u64
    }

    fn most(&self) -> u64 {
        RING as u64 / 4
    }

    fn cost(&self, copies: u64, revokes: u64) -> u64 {
        table_blocks(copies as usize, revokes as usize) as u64 + copies + 1
    }

    fn start(&mut self) -> Result<Vec<Stage>, FsError> {
        Ok(vec![self.superblock(MARK)])
    }

    fn encode(&mut self, transaction: &LogTransaction<'_>) -> Result<Vec<Stage>, FsError> {
        let (copies, revokes) = (transaction.copies, transaction.revokes);
        assert!(copies.windows(2).all(|pair| pair[0].home < pair[1].home), "in order");
        assert!(revokes.windows(2).all(|pair| pair[0] < pair[1]), "in order");
        assert!(!copies.iter().any(|copy| revokes.contains(&copy.home)), "both");
        let cost = self.cost(copies.len() as u64, revokes.len() as u64);
        if cost > self.most() || cost > self.free() {
            return Err(FsError::NoSpace(format!("{cost} blocks of {}", self.free())));
        }
        let mut table = vec![TABLE, self.next, copies.len() as u64, revokes.len() as u64];
        table.extend(copies.iter().map(|copy| copy.home.get()));
        table.extend(revokes.iter().map(|revoked| revoked.get()));
        let mut bytes = words(&table);
        bytes.resize(table_blocks(copies.len(), revokes.len()) * BLOCK, 0);
        for copy in copies {
            bytes.extend_from_slice(copy.bytes);
        }
        let mut body = Stage { stable: Stable::All, ..Stage::default() };
        let mut at = self.head;
        for block in bytes.chunks(BLOCK) {
            body.push(sector(place(at)), block, 4 * BLOCK);
            at += 1;
        }
        let mut commit = Stage { stable: Stable::Own, ..Stage::default() };
        commit.push(sector(place(at)), &words(&[COMMIT, self.next, sum(&bytes)]), BLOCK);
        self.live.push_back((self.head, self.next, cost as usize));
        self.head = (at + 1) % RING;
        self.next += 1;
        Ok(vec![body, commit])
    }

    fn retire(&mut self, oldest: usize) -> Vec<Stage> {
        self.live.drain(..oldest);
        vec![Stage::flush(), self.superblock(MARK)]
    }

    fn close(&mut self) -> Result<Vec<Stage>, FsError> {
        assert!(self.live.is_empty());
        assert!(self.device.len().get() > 0);
        Ok(vec![Stage::flush(), self.superblock(0)])
    }
}

pub(crate) fn is_marked(bytes: &[u8]) -> bool {
    word(&bytes[HOME * BLOCK..], 0) == MARK
}

pub(crate) fn next_tid(bytes: &[u8]) -> u64 {
    word(&bytes[HOME * BLOCK..], 2)
}

/// Brings home what was committed. Returns how many transactions that were.
pub(crate) fn recover(bytes: &mut [u8]) -> usize {
    let head = &bytes[HOME * BLOCK..];
    if word(head, 0) != MARK {
        return 0;
    }
    let (mut at, mut tid) = (word(head, 1) as usize, word(head, 2));
    let mut found = Vec::new();
    let mut revoked = BTreeMap::new();
    loop {
        let table = &bytes[place(at)..place(at) + BLOCK];
        if word(table, 0) != TABLE || word(table, 1) != tid {
            break;
        }
        let (copies, revokes) = (word(table, 2) as usize, word(table, 3) as usize);
        if copies + revokes > 2 * HOME {
            break;
        }
        let blocks = table_blocks(copies, revokes);
        let mut body = Vec::new();
        for n in 0..blocks + copies {
            body.extend_from_slice(&bytes[place(at + n)..place(at + n) + BLOCK]);
        }
        let commit = &bytes[place(at + blocks + copies)..];
        if word(commit, 0) != COMMIT || word(commit, 1) != tid {
            break;
        }
        // Not a way to find out: what is committed was flushed before.
        assert_eq!(word(commit, 2), sum(&body), "transaction {tid} was committed too early");
        for n in 0..revokes {
            revoked.insert(word(&body, 4 + copies + n), tid);
        }
        for n in 0..copies {
            let from = (blocks + n) * BLOCK;
            found.push((tid, word(&body, 4 + n), body[from..from + BLOCK].to_vec()));
        }
        at += blocks + copies + 1;
        tid += 1;
    }
    for (of, home, copy) in &found {
        if revoked.get(home).is_none_or(|revoke| revoke < of) {
            bytes[*home as usize * BLOCK..][..BLOCK].copy_from_slice(copy);
        }
    }
    (tid - word(&bytes[HOME * BLOCK..], 2)) as usize
}
