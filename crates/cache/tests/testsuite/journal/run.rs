//! A small file system over a cache with a journal: files of one block that maps them
//! and one of contents, in a table that is spread over blocks.

use crate::journal::disk::{Disk, crashed, cut};
use crate::journal::model::{BLOCK, DEVICE, HOME, Model, recover};
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use seekless_cache::{
    Cache, ChangeId, CommitReason, Commits, Config, Discipline, JournalMode, Kind, Piece, Role,
};
use seekless_device::Clock;
use seekless_device::VirtualClock;
use seekless_fs::FsError;
use seekless_units::{BlockNo, ByteLen, Extent, Nanos};
use std::collections::HashMap;
use std::sync::Arc;

const FILES: usize = 16;
/// Blocks of the table.
const TABLE: usize = 8;

/// What the table says of a file: all zero where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct File {
    /// The last operation that changed what maps it: its block is full of that number.
    version: u64,
    map: u64,
    contents: u64,
    /// The last operation that changed what it holds; not on the disk.
    written: u64,
}

type State = [File; FILES];

/// A file is created, or changed where there is one.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    file: usize,
    /// Blocks for a new one: by numbers that are taken modulo those that are free.
    map: u8,
    contents: u8,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Map,
    Contents,
    Removal,
}

/// A call of the cache, or the passing of time.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Operation(Operation),
    Commit,
    Sync,
    /// An operation that is waited for.
    Settled(Operation),
    Sleep,
    BeginCommit,
    PartOfCommit,
    /// One block of eight goes home, by its number.
    WriteSome(u64),
    SetCommits(Commits),
    /// A file is waited for, and the power is lost: some sectors are, by a seed.
    MakeDurable(usize, u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let change = prop_oneof![2 => Just(Change::Map), 1 => Just(Change::Contents), 1 => Just(Change::Removal)];
    (0..FILES, any::<u8>(), any::<u8>(), change)
        .prop_map(|(file, map, contents, change)| Operation { file, map, contents, change })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let commits = vec![Commits::AtOnce, Commits::Beside, Commits::Apart];
    prop_oneof![
        43 => operation().prop_map(Step::Operation),
        1 => Just(Step::Commit),
        1 => Just(Step::Sync),
        1 => operation().prop_map(Step::Settled),
        1 => Just(Step::Sleep),
        1 => Just(Step::BeginCommit),
        8 => Just(Step::PartOfCommit),
        1 => (0..8u64).prop_map(Step::WriteSome),
        1 => select(commits).prop_map(Step::SetCommits),
        2 => (0..FILES, any::<u64>()).prop_map(|(file, seed)| Step::MakeDurable(file, seed)),
    ]
}

pub(crate) struct Run {
    pub(crate) mode: JournalMode,
    pub(crate) disk: Arc<Disk>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) cache: Cache<u64>,
    /// After each operation: what the disk had been asked when it began, and the state.
    states: Vec<(usize, State)>,
    /// What the disk had been asked when so many operations were known to be durable.
    durable: Vec<(usize, usize)>,
    /// As above, with all contents.
    synced: Vec<(usize, usize)>,
    /// Which file an operation wrote the contents of, and when that was created.
    writers: HashMap<u64, (usize, u64)>,
    created: [u64; FILES],
}

/// Where a file stands in the table: across two sectors.
fn cell(file: usize) -> (BlockNo, u32) {
    (BlockNo::new((file % TABLE) as u64), 500 + 24 * (file / TABLE) as u32)
}

fn config(mode: JournalMode) -> Config {
    let mut config = Config::new(Discipline::Journal(mode));
    config.capacity = ByteLen::new((HOME * BLOCK / 2) as u64);
    config.home_after = Some(7);
    config
}

impl Run {
    pub(crate) fn new(mode: JournalMode) -> Self {
        let disk = Arc::new(Disk::new(vec![0; DEVICE]));
        let clock = Arc::new(VirtualClock::new());
        let cache = Self::open(mode, &disk, &clock);
        disk.restart();
        Self {
            mode,
            disk,
            clock,
            cache,
            states: vec![(0, State::default())],
            durable: vec![(0, 0)],
            synced: vec![(0, 0)],
            writers: HashMap::new(),
            created: [0; FILES],
        }
    }

    /// As [`Run::new`], on a disk whose writes complete late and in an order of the seed.
    pub(crate) fn late(mode: JournalMode, seed: u64) -> Self {
        let run = Self::new(mode);
        run.disk.complete_late(seed);
        run
    }

    fn open(mode: JournalMode, disk: &Arc<Disk>, clock: &Arc<VirtualClock>) -> Cache<u64> {
        let block = BLOCK as u32;
        let mut cache =
            Cache::new(disk.clone(), clock.clone(), block, block, config(mode)).unwrap();
        cache.transactions().open_log(Box::new(Model::new(disk.clone()))).unwrap();
        cache
    }

    pub(crate) fn reopen(&mut self) {
        self.cache = Self::open(self.mode, &self.disk, &self.clock);
        self.disk.restart();
        self.states.iter_mut().for_each(|(asked, _)| *asked = 0);
        self.durable = vec![(0, self.states.len() - 1)];
        self.synced.clone_from(&self.durable);
    }

    fn state(&self) -> State {
        self.states.last().expect("one").1
    }

    /// A block that nobody has, if there is one that may be used now.
    fn take(&self, taken: &[u64], pick: u8) -> Option<u64> {
        let state = self.state();
        let free: Vec<u64> = (TABLE as u64..HOME as u64)
            .filter(|block| state.iter().all(|file| file.map != *block && file.contents != *block))
            .filter(|block| !taken.contains(block))
            .filter(|&block| self.cache.may_reuse(Extent::new(BlockNo::new(block), 1)))
            .collect();
        free.get(usize::from(pick) % free.len().max(1)).copied()
    }

    fn fill(&mut self, block: u64, role: Role, number: u64) -> ChangeId {
        let fill = |bytes: &mut [u8]| {
            bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
            Ok(())
        };
        // Of what is there all is changed; a block that is new is not read.
        let at = BlockNo::new(block);
        if self.cache.blocks().peek(at, 0, BLOCK).is_some() {
            self.cache.changes().edit(at, 0, BLOCK, role, fill).unwrap().1
        } else {
            self.cache.changes().fill(at, BLOCK, role, fill).unwrap().1
        }
    }

    fn put(&mut self, file: usize, to: File, role: Role, after: &[ChangeId]) -> ChangeId {
        let (at, offset) = cell(file);
        let bytes: Vec<u8> =
            [to.version, to.map, to.contents].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.cache.changes().change(at, &[Piece { offset, bytes: &bytes }], role, after).unwrap()
    }

    /// An operation. Returns what it changed, to be waited for.
    fn operation(&mut self, operation: &Operation) -> Option<ChangeId> {
        let number = self.states.len() as u64;
        let asked = self.disk.asked();
        let file = operation.file;
        let mut state = self.state();
        let found = state[file];
        self.cache.begin_with(6).unwrap();
        let id = if found == File::default() {
            let map = self.take(&[], operation.map);
            let contents = self.take(map.as_slice(), operation.contents);
            let (Some(map), Some(contents)) = (map, contents) else {
                self.cache.end().unwrap();
                // What was given back is free once that is committed.
                self.cache.transactions().commit(CommitReason::Asked).unwrap();
                return None;
            };
            let data = self.fill(contents, Role::Data, number);
            let init = self.fill(map, Role::IndirectInit, number);
            let to = File { version: number, map, contents, written: number };
            state[file] = to;
            self.created[file] = number;
            self.writers.insert(number, (file, number));
            self.put(file, to, Role::PointerSet, &[data, init])
        } else {
            match operation.change {
                Change::Removal => {
                    let cleared = self.put(file, File::default(), Role::PointerClear, &[]);
                    for block in [found.map, found.contents] {
                        let run = Extent::new(BlockNo::new(block), 1);
                        self.cache.changes().forget(run, cleared);
                        assert!(!self.cache.may_reuse(run), "before that is committed");
                        assert!(self.cache.quarantined().iter().any(|r| r.contains(run.start)));
                    }
                    self.cache.changes().defer(&[cleared], Kind::FreeBlocks, number);
                    state[file] = File::default();
                    cleared
                }
                Change::Contents => {
                    self.writers.insert(number, (file, self.created[file]));
                    state[file].written = number;
                    self.fill(found.contents, Role::Data, number)
                }
                Change::Map => {
                    self.fill(found.map, Role::IndirectSet, number);
                    state[file].version = number;
                    self.put(file, state[file], Role::PointerSet, &[])
                }
            }
        };
        // Half of an operation is never committed.
        self.cache.settle(&[id]).unwrap();
        while let Some(done) = self.cache.changes().next_ready() {
            assert_eq!(done, number, "in the same operation");
        }
        self.cache.end().unwrap();
        self.states.push((asked, state));
        Some(id)
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Operation(operation) => drop(self.operation(operation)),
            Step::Commit => self.cache.transactions().commit(CommitReason::Asked).unwrap(),
            Step::Sync => {
                self.cache.sync().unwrap();
                assert!(!self.cache.is_dirty());
                self.note_durable();
                self.synced.push((self.disk.asked(), self.states.len() - 1));
            }
            Step::Settled(operation) => {
                if let Some(id) = self.operation(operation) {
                    self.cache.settle(&[id]).unwrap();
                    assert!(self.cache.is_committed(id));
                    // Where contents alone were asked for nothing else need be durable.
                    let (before, after) = (self.states[self.states.len() - 2].1, self.state());
                    if shown(&after) != shown(&before) || self.mode == JournalMode::Data {
                        self.note_durable();
                    }
                }
            }
            Step::Sleep => self.clock.sleep(Nanos::new(6_000_000_000)),
            Step::BeginCommit => {
                self.cache.transactions().begin_commit(CommitReason::Asked).unwrap();
            }
            Step::PartOfCommit => {
                if let Some(work) = self.cache.transactions().commit_work().unwrap() {
                    // Operations go on between a part and the next.
                    work.perform();
                }
            }
            Step::WriteSome(some) => {
                self.cache.write_some(|block| block % 8 == *some).unwrap();
            }
            Step::SetCommits(commits) => {
                self.cache.transactions().set_commits(*commits);
                self.cache.tick().unwrap();
            }
            Step::MakeDurable(file, seed) => self.make_durable(*file, *seed),
        }
    }

    /// As `fsync`: of one file all is there if the power is lost now.
    fn make_durable(&mut self, file: usize, seed: u64) {
        let known = self.state()[file];
        let table = cell(file).0;
        let runs = [table, BlockNo::new(known.map), BlockNo::new(known.contents)];
        let runs = runs.map(|block| Extent::new(block, 1));
        self.cache.settle_runs(&runs).unwrap();
        assert!(!runs.iter().any(|&run| self.cache.is_unsettled(run)));
        let (base, requests) = self.disk.requests();
        let mut bytes = crashed(&base, &requests, &mut Pcg64Mcg::seed_from_u64(seed));
        recover(&mut bytes);
        let shown = |block: u64| &bytes[block as usize * BLOCK..][..BLOCK];
        let (at, offset) = cell(file);
        let entry = &shown(at.get())[offset as usize..][..24];
        let words = [known.version, known.map, known.contents].map(u64::to_le_bytes);
        assert_eq!(entry, words.concat(), "file {file}");
        if known.map != 0 {
            let is_full = |block, number: u64| {
                shown(block).chunks(8).all(|word| word == number.to_le_bytes())
            };
            assert!(is_full(known.map, known.version), "the map of file {file}: {known:?}");
            assert!(is_full(known.contents, known.written), "file {file}: {known:?}");
        }
    }

    fn note_durable(&mut self) {
        self.durable.push((self.disk.asked(), self.states.len() - 1));
    }

    /// Everything is at home.
    pub(crate) fn check_closed(&self, bytes: &[u8]) {
        let last = self.states.len() - 1;
        assert_eq!(self.find(bytes, last, last, "closed"), last);
        self.check_synced(bytes, last, last, "closed");
    }

    /// Which of the operations the state on a disk is that after, as of `least` and
    /// `most`.
    fn find(&self, bytes: &[u8], least: usize, most: usize, place: &str) -> usize {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let mut found = State::default();
        for (file, to) in found.iter_mut().enumerate() {
            let (block, offset) = cell(file);
            let at = block.get() as usize * BLOCK + offset as usize;
            (to.version, to.map, to.contents) = (word(at), word(at + 8), word(at + 16));
            if to.map == 0 {
                continue;
            }
            for at in (0..BLOCK).step_by(8) {
                let seen = word(to.map as usize * BLOCK + at);
                assert_eq!(seen, to.version, "{place}: the map of file {file}: {to:?}");
            }
        }
        let fits = |n: &usize| {
            let state = &self.states[*n].1;
            shown(state) == shown(&found)
                && (self.mode != JournalMode::Data || self.holds(bytes, state))
        };
        let number = (least..=most).rev().find(fits).unwrap_or_else(|| {
            let other = (0..self.states.len()).rev().find(fits);
            panic!("{place}: the state after {other:?}, not of {least} to {most}: {found:?}")
        });
        if self.mode == JournalMode::Ordered {
            self.check_owners(bytes, &self.states[number].1, place);
        }
        number
    }

    /// Files that are what they were at some state hold what they held, or more.
    fn check_synced(&self, bytes: &[u8], synced: usize, number: usize, place: &str) {
        let (then, now) = (&self.states[synced].1, &self.states[number].1);
        for (file, (then, now)) in then.iter().zip(now).enumerate() {
            let since = |known: &File| self.writers.get(&known.written).map(|writer| writer.1);
            if then.map == 0 || now.map == 0 || since(then) != since(now) {
                continue;
            }
            let from = then.contents as usize * BLOCK;
            for word in bytes[from..from + BLOCK].chunks(8) {
                let number = u64::from_le_bytes(word.try_into().unwrap());
                assert!(number >= then.written, "{place}: file {file} shows {number}: {then:?}");
            }
        }
    }

    /// All contents are those of a state.
    fn holds(&self, bytes: &[u8], state: &State) -> bool {
        state.iter().filter(|file| file.map != 0).all(|file| {
            let from = file.contents as usize * BLOCK;
            bytes[from..from + BLOCK].chunks(8).all(|word| word == file.written.to_le_bytes())
        })
    }

    /// No file shows what it never held.
    fn check_owners(&self, bytes: &[u8], state: &State, place: &str) {
        for (file, known) in state.iter().enumerate().filter(|(_, known)| known.map != 0) {
            let from = known.contents as usize * BLOCK;
            for word in bytes[from..from + BLOCK].chunks(8) {
                let number = u64::from_le_bytes(word.try_into().unwrap());
                let writer = self.writers.get(&number);
                let created = self.states[known.written as usize].1[file];
                let ours = writer.is_some_and(|&(of, since)| {
                    of == file
                        && since <= created.written
                        && created.contents == known.contents
                        && since == self.writers[&known.written].1
                });
                assert!(ours, "{place}: file {file} shows {number}, written by {writer:?}");
            }
        }
    }
}

/// What the table has of a state.
fn shown(state: &State) -> [(u64, u64, u64); FILES] {
    state.map(|file| (file.version, file.map, file.contents))
}

/// Cuts a run off after any request, by a seed, recovers, and looks.
pub(crate) fn judge_crashes(run: &Run, states: usize, seed: u64) {
    let (base, requests) = run.disk.requests();
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..states {
        let cut = cut(&requests, &mut rng);
        let mut bytes = crashed(&base, &requests[..cut], &mut rng);
        let replayed = recover(&mut bytes);
        let least = run.durable.iter().rev().find(|(asked, _)| *asked <= cut).expect("one").1;
        let most = run.states.iter().rposition(|(asked, _)| *asked <= cut).expect("one");
        let place = format!(
            "{:?} after {cut} of {} requests, {replayed} replayed",
            run.mode,
            requests.len()
        );
        let number = run.find(&bytes, least, most, &place);
        let synced = run.synced.iter().rev().find(|(asked, _)| *asked <= cut).expect("one").1;
        run.check_synced(&bytes, synced, number, &place);
    }
}

/// A run whose device fails at some write.
pub(crate) fn until_it_fails(mut run: Run, writes: usize) -> (Run, FsError) {
    run.disk.fail_after(writes);
    let mut files = (0..FILES).cycle();
    loop {
        if let Err(error) = run.cache.begin_with(6) {
            return (run, error);
        }
        let (at, offset) = cell(files.next().expect("without an end"));
        let piece = Piece { offset, bytes: &[1; 24] };
        run.cache.changes().change(at, &[piece], Role::PointerSet, &[]).unwrap();
        run.cache.end().unwrap();
        if let Err(error) = run.cache.transactions().commit(CommitReason::Asked) {
            return (run, error);
        }
    }
}
