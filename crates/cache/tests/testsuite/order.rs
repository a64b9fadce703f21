//! Nothing is ever on the disk before what it waits for: random changes with
//! random orders between them, and a disk that looks at every sector written.
//!
//! A cell is eight bytes that hold the number of the last change to it. Each
//! change remembers which cells it wants to see, at which number at least. The
//! disk checks it for every sector of every write against what had been flushed
//! before: so every order of the writes between two flushes, and every torn
//! write, has been checked as well.

use crate::late::Late;
use crate::property::for_all;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use seekless_cache::{Cache, ChangeId, CommitWork, Commits, Config, Discipline, Kind, Piece, Role};
use seekless_device::{BlockDevice, Clock, DeviceError, VirtualClock};
use seekless_fs::FsError;
use seekless_units::{BlockNo, ByteLen, Extent, Lba, Nanos};
use std::cell::Cell as Total;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const FRAGMENT: usize = 1024;
const BLOCK: usize = 8192;
const BLOCKS: usize = 48;
/// Cells of a sector that are used; they overlap none.
const CELLS: usize = 6;

/// Sector and cell in it.
type Cell = (usize, usize);

#[derive(Default)]
struct Law {
    /// What each change wants to see: cells, and their numbers at least.
    wants: HashMap<u64, Vec<(Cell, u64)>>,
    /// Cells whose order matters no more.
    free: Vec<Cell>,
}

struct Watched {
    flushed: Mutex<Vec<u8>>,
    pending: Mutex<Vec<(usize, Vec<u8>)>>,
    law: Mutex<Law>,
    writes: Mutex<usize>,
    faults: Mutex<Option<usize>>,
    /// What was written is safe once it is flushed, not when it has completed.
    volatile: bool,
    /// The flush that is under way covers this many of the pending sectors, no later ones.
    covered: Mutex<Option<usize>>,
}

fn number(bytes: &[u8], cell: usize) -> u64 {
    u64::from_le_bytes(bytes[cell * 8..cell * 8 + 8].try_into().unwrap())
}

impl Watched {
    fn new() -> Self {
        Self {
            flushed: Mutex::new(vec![0; BLOCKS * BLOCK]),
            pending: Mutex::default(),
            law: Mutex::default(),
            writes: Mutex::default(),
            faults: Mutex::default(),
            volatile: true,
            covered: Mutex::default(),
        }
    }

    /// A flush begins: it covers the writes that have completed, and is performed later.
    fn begin_flush(&self) {
        *self.covered.lock().unwrap() = Some(self.pending.lock().unwrap().len());
    }

    fn check(&self, sector: usize, bytes: &[u8]) {
        let law = self.law.lock().unwrap();
        let flushed = self.flushed.lock().unwrap();
        for cell in 0..CELLS {
            let Some(wants) = law.wants.get(&number(bytes, cell)) else { continue };
            for &((other, at), least) in wants {
                if law.free.contains(&(other, at)) {
                    continue;
                }
                let seen = if other == sector {
                    number(bytes, at)
                } else {
                    number(&flushed[other * 512..], at)
                };
                assert!(
                    seen >= least,
                    "sector {sector} has change {} in cell {cell}, which waits for change {least} \
                     in cell {at} of sector {other}, where {seen} is",
                    number(bytes, cell)
                );
            }
        }
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> ByteLen {
        ByteLen::new((BLOCKS * BLOCK) as u64)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = at.get() as usize * 512;
        buf.copy_from_slice(&self.flushed.lock().unwrap()[start..start + buf.len()]);
        for (sector, bytes) in self.pending.lock().unwrap().iter() {
            let begin = sector * 512;
            if begin >= start && begin < start + buf.len() {
                buf[begin - start..begin - start + 512].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        if let Some(left) = self.faults.lock().unwrap().as_mut() {
            if *left == 0 {
                let source = std::io::Error::other("worn out");
                return Err(DeviceError::Io { at, source });
            }
            *left -= 1;
        }
        *self.writes.lock().unwrap() += 1;
        for (n, sector) in buf.chunks(512).enumerate() {
            let place = at.get() as usize + n;
            self.check(place, sector);
            self.pending.lock().unwrap().push((place, sector.to_vec()));
        }
        if !self.volatile {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut flushed = self.flushed.lock().unwrap();
        let mut pending = self.pending.lock().unwrap();
        let covered = self.covered.lock().unwrap().take().unwrap_or(pending.len());
        for (sector, bytes) in pending.drain(..covered) {
            flushed[sector * 512..sector * 512 + 512].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// A cell: any, or that of a recent change, by a number that is taken modulo theirs.
#[derive(Clone, Copy, Debug)]
enum Place {
    New(Cell),
    Again(u8),
}

#[derive(Clone, Debug)]
struct Change {
    place: Place,
    /// The recent changes that it wants to see.
    wants: Vec<u8>,
    /// Before it, the join grows by two recent changes.
    joins: Option<(u8, u8)>,
    /// Whether it wants to see all that are joined.
    sees_joined: bool,
    /// Whether it is an edit, where it wants to see nothing.
    is_edit: bool,
    /// Whether an action waits for it.
    is_awaited: bool,
}

fn change() -> impl Strategy<Value = Change> {
    let new = (0..BLOCKS * BLOCK / 512, 0..CELLS).prop_map(Place::New);
    // Few cells, so that many changes meet.
    let place = prop_oneof![1 => new, 2 => any::<u8>().prop_map(Place::Again)];
    let joins = option::weighted(1.0 / 6.0, any::<(u8, u8)>());
    let eighth = || weighted(1.0 / 8.0);
    (place, vec(any::<u8>(), 0..4), joins, eighth(), any::<bool>(), eighth()).prop_map(
        |(place, wants, joins, sees_joined, is_edit, is_awaited)| Change {
            place,
            wants,
            joins,
            sees_joined,
            is_edit,
            is_awaited,
        },
    )
}

#[derive(Clone, Debug)]
enum Op {
    SyncRound,
    SettleLast,
    SettleAll,
    SettleBlock(u64),
    Sleep,
    Revert,
    Change(Change),
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        1 => Just(Op::SyncRound),
        1 => Just(Op::SettleLast),
        3 => Just(Op::Sleep),
        1 => (0..BLOCKS as u64).prop_map(Op::SettleBlock),
        3 => Just(Op::Revert),
        31 => change().prop_map(Op::Change),
    ];
    vec(op, 0..=most)
}

struct Run {
    disk: Arc<Watched>,
    /// Before the disk, where writes complete late.
    late: Option<Arc<Late>>,
    clock: Arc<VirtualClock>,
    cache: Cache<u64>,
    /// What each cell shall hold in the end.
    cells: HashMap<Cell, u64>,
    recent: Vec<(Cell, u64, ChangeId)>,
    /// A join of ever more changes, and what all of them want to see: themselves.
    joined: (Vec<(Cell, u64)>, Vec<ChangeId>),
    next: u64,
    /// Deferred actions that are out, and what they wait for.
    deferred: HashMap<u64, Vec<(Cell, u64)>>,
}

impl Run {
    fn new(config: Config) -> Self {
        Self::over(config, Arc::new(Watched::new()), None)
    }

    /// On a disk whose writes complete late, in an order of the seed. A submitted write may be on
    /// the disk at once: it is checked then, and again when it has completed.
    fn late(seed: u64, config: Config) -> Self {
        let disk = Arc::new(Watched { volatile: config.barriers, ..Watched::new() });
        let watch = disk.clone();
        let submitted = move |at: Lba, bytes: &[u8]| {
            let sectors = bytes.chunks(512).zip(at.get() as usize..);
            sectors.for_each(|(sector, place)| watch.check(place, sector));
        };
        let late = Arc::new(Late::new(disk.clone(), seed, Box::new(submitted)));
        Self::over(config, disk, Some(late))
    }

    fn over(config: Config, disk: Arc<Watched>, late: Option<Arc<Late>>) -> Self {
        let device: Arc<dyn BlockDevice> = match &late {
            Some(late) => late.clone(),
            None => disk.clone(),
        };
        let clock = Arc::new(VirtualClock::new());
        let cache =
            Cache::new(device, clock.clone(), BLOCK as u32, FRAGMENT as u32, config).unwrap();
        Self {
            disk,
            late,
            clock,
            cache,
            cells: HashMap::new(),
            recent: Vec::new(),
            joined: Default::default(),
            next: 1,
            deferred: HashMap::new(),
        }
    }

    /// One of the recent changes.
    fn pick(&self, at: u8) -> Option<(Cell, u64, ChangeId)> {
        self.recent.get(usize::from(at) % self.recent.len().max(1)).copied()
    }

    fn place(cell: Cell) -> (BlockNo, u32) {
        let byte = cell.0 * 512 + cell.1 * 8;
        (BlockNo::new((byte / FRAGMENT) as u64), (byte % FRAGMENT) as u32)
    }

    fn change(&mut self, change: &Change) {
        let cell = match change.place {
            Place::New(cell) => cell,
            Place::Again(at) => self.pick(at).map_or((0, 0), |(cell, _, _)| cell),
        };
        let seen = change.wants.iter().filter_map(|&at| self.pick(at));
        let (mut wants, mut after): (Vec<_>, Vec<_>) =
            seen.map(|(cell, number, id)| ((cell, number), id)).unzip();
        if let Some(joins) = change.joins {
            self.grow_join(joins);
        }
        if change.sees_joined {
            wants.extend_from_slice(&self.joined.0);
            after.extend_from_slice(&self.joined.1);
        }
        let number = self.next;
        self.next += 1;
        self.disk.law.lock().unwrap().wants.insert(number, wants);
        let (at, offset) = Self::place(cell);
        let bytes = number.to_le_bytes();
        let id = if after.is_empty() && change.is_edit {
            let write = |to: &mut [u8]| {
                to.copy_from_slice(&bytes);
                Ok(())
            };
            self.cache.changes().edit(at, offset as usize, 8, Role::EntryRemove, write).unwrap().1
        } else {
            let pieces = [Piece { offset, bytes: &bytes }];
            self.cache.changes().change(at, &pieces, Role::EntryAdd, &after).unwrap()
        };
        self.cells.insert(cell, number);
        self.recent.push((cell, number, id));
        if self.recent.len() > 60 {
            self.recent.remove(0);
        }
        if change.is_awaited {
            self.deferred.insert(number, vec![(cell, number)]);
            self.cache.changes().defer(&[id], Kind::NameRemoved, number);
        }
    }

    /// Two changes more are joined with those that are; now and then the join begins anew.
    fn grow_join(&mut self, (first, second): (u8, u8)) {
        if self.joined.0.len() > 30 {
            self.joined = Default::default();
        }
        let mut ids = std::mem::take(&mut self.joined.1);
        for (cell, number, id) in [self.pick(first), self.pick(second)].into_iter().flatten() {
            self.joined.0.push((cell, number));
            ids.push(id);
        }
        self.joined.1 = self.cache.changes().join(&ids).to_vec();
        assert!(self.joined.1.len() <= 1, "soft updates have one name for all");
        let all = ids.iter().all(|&id| self.cache.is_committed(id));
        assert_eq!(self.joined.1.iter().all(|&id| self.cache.is_committed(id)), all);
    }

    fn do_ready(&mut self) {
        while let Some(number) = self.cache.changes().next_ready() {
            let wants = self.deferred.remove(&number).expect("deferred once, done once");
            let law = self.disk.law.lock().unwrap();
            let flushed = self.disk.flushed.lock().unwrap();
            for ((sector, cell), least) in wants {
                let seen = super_number(&flushed, sector, cell);
                let waived = law.free.contains(&(sector, cell));
                assert!(waived || seen >= least, "an action came before what it waits for");
            }
        }
    }

    fn revert(&mut self) {
        let Some(&(cell, number, id)) = self.recent.last() else { return };
        let before = self.cells[&cell];
        if before != number || !self.cache.changes().revert(id) {
            return;
        }
        // Whatever wants to see it sees what is there instead.
        self.disk.law.lock().unwrap().free.push(cell);
        self.deferred.remove(&number).inspect(|_| {
            self.deferred.insert(number, Vec::new());
        });
        let (at, offset) = Self::place(cell);
        let held = self.cache.blocks_mut().read(at, offset as usize, 8).unwrap();
        let now = u64::from_le_bytes(held.try_into().unwrap());
        assert_ne!(now, number, "reverted, and still there");
        self.cells.insert(cell, now);
        self.recent.pop();
    }

    fn step(&mut self, op: &Op) {
        self.attempt(op).unwrap();
        self.do_ready();
        assert_eq!(self.cache.broken_invariant(), None);
    }

    /// As [`Run::step`] on a disk that may fail.
    fn attempt(&mut self, op: &Op) -> Result<(), FsError> {
        match op {
            Op::SyncRound => self.cache.sync_round().map(drop)?,
            Op::SettleLast => {
                let wanted = self.recent.last().map(|&(_, _, id)| id);
                self.cache.settle(wanted.as_slice())?;
                assert!(wanted.is_none_or(|id| self.cache.is_committed(id)));
            }
            Op::SettleAll => {
                self.cache.settle(&self.recent.iter().map(|last| last.2).collect::<Vec<_>>())?;
            }
            Op::Sleep => {
                self.clock.sleep(Nanos::new(3_000_000_000));
                self.cache.begin()?;
            }
            Op::SettleBlock(block) => {
                let run = Extent::new(BlockNo::new(block * 8), 8);
                self.cache.settle_runs(&[run])?;
                assert!(self.cache.waiting_in(run).is_empty());
            }
            Op::Revert => self.revert(),
            Op::Change(change) => {
                self.cache.begin()?;
                self.change(change);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Cache<u64> {
        loop {
            self.cache.sync().unwrap();
            self.do_ready();
            if !self.cache.is_dirty() {
                break;
            }
        }
        self.disk.flush().unwrap();
        assert!(self.deferred.is_empty(), "{} actions were never done", self.deferred.len());
        assert_eq!(self.cache.blocks().softdeps(), 0);
        assert_eq!(self.cache.blocks().counters().live, [0; Kind::ALL.len()]);
        let flushed = self.disk.flushed.lock().unwrap();
        for (&(sector, cell), &number) in &self.cells {
            assert_eq!(super_number(&flushed, sector, cell), number, "sector {sector} cell {cell}");
        }
        drop(flushed);
        self.cache
    }
}

fn super_number(bytes: &[u8], sector: usize, cell: usize) -> u64 {
    number(&bytes[sector * 512..], cell)
}

fn soft_updates() -> Config {
    let mut config = Config::new(Discipline::SoftUpdates);
    config.capacity = ByteLen::new((BLOCKS * BLOCK / 3) as u64);
    config
}

#[test]
fn soft_updates_keep_every_order_at_every_write() {
    let rolled_back = Total::new(0);
    for_all(60, ops(3000), |ops| {
        let mut run = Run::new(soft_updates());
        ops.iter().for_each(|op| run.step(op));
        let counted = run.finish().blocks().counters().rolled_back_writes;
        rolled_back.update(|total| total + counted);
    });
    let rolled_back = rolled_back.get();
    assert!(rolled_back > 1000, "only {rolled_back} writes had something to undo");
}

/// A change is on the disk when its write has completed and, with barriers, been
/// flushed; not when it is submitted.
#[test]
fn soft_updates_keep_every_order_when_writes_complete_late() {
    for barriers in [true, false] {
        let (rolled_back, most) = (Total::new(0), Total::new(0));
        for_all(40, (any::<u64>(), ops(2000)), |(seed, ops)| {
            let mut config = soft_updates();
            config.barriers = barriers;
            let mut run = Run::late(seed, config);
            ops.iter().for_each(|op| run.step(op));
            let late = run.late.clone().unwrap();
            let counted = run.finish().blocks().counters().rolled_back_writes;
            rolled_back.update(|total| total + counted);
            most.update(|most: usize| most.max(late.most_under_way()));
        });
        let (rolled_back, most) = (rolled_back.get(), most.get());
        assert!(rolled_back > 500, "only {rolled_back} writes had something to undo");
        assert!(most > 5, "no more than {most} writes were under way at once");
    }
}

/// A change while a flush may be under way, perhaps some seconds later.
#[derive(Clone, Debug)]
struct Beside {
    sleeps: bool,
    change: Change,
}

fn beside(most: usize) -> impl Strategy<Value = Vec<Beside>> {
    let beside = (weighted(1.0 / 6.0), change());
    vec(beside.prop_map(|(sleeps, change)| Beside { sleeps, change }), 0..most)
}

/// Changes, and then a flush.
#[derive(Clone, Debug)]
struct Round {
    before: Vec<Beside>,
    flush: Flush,
}

#[derive(Clone, Debug)]
enum Flush {
    /// With these changes beside it.
    Once(Vec<Beside>),
    /// In passes, until all recent changes are durable, with changes beside each.
    Passes(Vec<Vec<Beside>>),
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let flush = prop_oneof![
        3 => beside(12).prop_map(Flush::Once),
        1 => vec(beside(5), 0..6).prop_map(Flush::Passes),
    ];
    let round = (beside(12), flush).prop_map(|(before, flush)| Round { before, flush });
    vec(round, 0..=120)
}

impl Run {
    /// A flush performed apart begins, if there is something to flush.
    fn begin_flush(&mut self) -> Option<CommitWork> {
        let work = self.cache.blocks_mut().flush_work().unwrap()?;
        self.disk.begin_flush();
        Some(work)
    }

    /// A step while a flush may be under way: nothing that would have to wait for it.
    fn step_beside(&mut self, beside: &Beside) {
        if beside.sleeps {
            self.clock.sleep(Nanos::new(3_000_000_000));
        }
        self.cache.begin().unwrap();
        self.change(&beside.change);
        self.do_ready();
        assert_eq!(self.cache.broken_invariant(), None);
    }

    /// Makes some changes durable in passes, with other changes beside each flush.
    fn settle_in_passes(&mut self, beside: &[Vec<Beside>]) {
        let mut beside = beside.iter();
        let ids: Vec<ChangeId> = self.recent.iter().map(|&(_, _, id)| id).collect();
        loop {
            self.cache.begin_pass();
            self.cache.settle(&ids).unwrap();
            let is_incomplete = self.cache.end_pass();
            assert_eq!(self.cache.broken_invariant(), None);
            if let Some(flush) = self.begin_flush() {
                beside.next().into_iter().flatten().for_each(|step| self.step_beside(step));
                flush.perform();
            }
            self.do_ready();
            if !is_incomplete {
                break;
            }
        }
        self.cache.begin().unwrap();
        assert!(ids.iter().all(|&id| self.cache.is_committed(id)), "not on the disk");
    }
}

/// A flush beside other operations makes durable the writes that had completed when it began. No
/// write that completed later counts as durable.
#[test]
fn flushes_beside_operations_keep_every_order() {
    for late in [false, true] {
        let (rolled_back, overtaken) = (Total::new(0), Total::new(0));
        for_all(40, (any::<u64>(), rounds()), |(seed, rounds)| {
            let mut config = soft_updates();
            // Nothing has to leave memory, which would wait for the flush.
            config.capacity = ByteLen::new((4 * BLOCKS * BLOCK) as u64);
            let mut run = if late { Run::late(seed, config) } else { Run::new(config) };
            run.cache.transactions().set_commits(Commits::Apart);
            for round in &rounds {
                round.before.iter().for_each(|step| run.step_beside(step));
                match &round.flush {
                    Flush::Passes(beside) => run.settle_in_passes(beside),
                    Flush::Once(beside) => {
                        let Some(flush) = run.begin_flush() else { continue };
                        beside.iter().for_each(|step| run.step_beside(step));
                        let completed = run.disk.pending.lock().unwrap().len();
                        let covered = run.disk.covered.lock().unwrap().unwrap_or(completed);
                        overtaken.update(|total| total + usize::from(covered < completed));
                        flush.perform();
                    }
                }
            }
            let counted = run.finish().blocks().counters().rolled_back_writes;
            rolled_back.update(|total| total + counted);
        });
        let (rolled_back, overtaken) = (rolled_back.get(), overtaken.get());
        assert!(rolled_back > 200, "only {rolled_back} writes had something to undo");
        assert!(overtaken > 100, "writes completed during {overtaken} flushes only");
    }
}

/// A write fails after it was taken: what it should have written never counts as
/// being on the disk, nor what waits for it; and whoever asks is told.
#[test]
fn a_write_that_fails_late_stops_all_changes() {
    let stopped = Total::new(0);
    let op = prop_oneof![
        1 => Just(Op::SyncRound),
        1 => Just(Op::SettleAll),
        1 => Just(Op::Sleep),
        3 => change().prop_map(Op::Change),
    ];
    let input = (any::<bool>(), any::<u64>(), 0..60u64, vec(op, 0..=800));
    for_all(60, input, |(barriers, seed, completions, ops)| {
        let mut config = soft_updates();
        config.barriers = barriers;
        let mut run = Run::late(seed, config);
        run.late.as_ref().unwrap().fail_after(completions);
        let failed = ops.iter().find_map(|op| {
            let done = run.attempt(op);
            run.do_ready();
            assert_eq!(run.cache.broken_invariant(), None);
            done.err()
        });
        let Some(error) = failed else { return };
        stopped.update(|total| total + 1);
        assert!(error.to_string().contains("failed late"), "{error}");
        assert!(matches!(run.cache.begin(), Err(FsError::ReadOnly(_))));
        // The others complete, and nothing waits for ever.
        let left: Vec<ChangeId> = run.recent.iter().map(|last| last.2).collect();
        assert!(run.cache.settle(&left).is_err(), "what has failed is not on the disk");
        assert!(run.cache.sync().is_err());
        assert!(left.iter().any(|&id| !run.cache.is_committed(id)));
        assert_eq!(run.cache.broken_invariant(), None);
    });
    let stopped = stopped.get();
    assert!(stopped > 40, "{stopped}");
}

/// A block may be changed while it is being written; what goes out later does not
/// overtake what went out before.
#[test]
fn a_block_is_not_written_while_it_is_being_written() {
    let mut config = soft_updates();
    config.discipline = Discipline::Async;
    config.barriers = false;
    let mut run = Run::late(5, config);
    let set = |cache: &mut Cache<u64>, byte: u8| {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        cache.changes().edit(BlockNo::ZERO, 0, 8, Role::Data, fill).unwrap();
    };
    let disk = run.disk.clone();
    let byte = move || disk.flushed.lock().unwrap()[0];
    for round in 1..=50u8 {
        set(&mut run.cache, round);
        run.cache.write_some(|_| true).unwrap();
        set(&mut run.cache, round + 100);
        assert!(byte() == round - 1 + if round > 1 { 100 } else { 0 } || byte() == round);
        // Left out while it is under way, it stays dirty.
        run.cache.write_some(|_| true).unwrap();
        run.cache.sync().unwrap();
        assert_eq!(byte(), round + 100, "the newest bytes come last");
    }
    assert!(!run.cache.is_dirty());
}

#[test]
fn a_small_graph_stays_under_its_cap() {
    let mut config = soft_updates();
    config.capacity = ByteLen::new((2 * BLOCKS * BLOCK) as u64);
    config.limits.max_softdeps = 200;
    for_all(1, vec(change(), 6000), |changes| {
        let mut run = Run::new(config);
        for change in &changes {
            run.cache.begin().unwrap();
            run.change(change);
            run.do_ready();
        }
        let cache = run.finish();
        let counters = cache.blocks().counters();
        assert!(counters.most_softdeps <= 200, "{} in the graph", counters.most_softdeps);
        assert!(counters.most_softdeps > 100, "{} in the graph", counters.most_softdeps);
        assert!(counters.rush_requests > 0, "nobody asked the syncer to hurry");
        assert!(counters.max_limit_hit > 0, "nobody had to sleep");
    });
}

#[test]
fn a_device_that_fails_stops_all_changes() {
    for_all(1, vec(change(), 200), |changes| {
        let mut run = Run::new(soft_updates());
        changes.iter().for_each(|change| run.change(change));
        *run.disk.faults.lock().unwrap() = Some(3);
        let dirty = run.cache.sync().expect_err("the fourth write fails");
        assert!(dirty.to_string().contains("worn out"), "{dirty}");
        let piece = [Piece { offset: 0, bytes: &[1; 8] }];
        let refused = run.cache.changes().change(BlockNo::new(0), &piece, Role::EntryAdd, &[]);
        assert!(matches!(refused, Err(FsError::ReadOnly(_))), "{refused:?}");
        assert!(run.cache.begin().is_err());
    });
}

#[test]
fn disciplines_write_when_they_say() {
    let names = Discipline::ALL.map(|discipline| {
        let mut config = soft_updates();
        config.discipline = discipline;
        let mut run = Run::new(config);
        for role in [Role::BitmapSet, Role::InodeInit, Role::EntryAdd, Role::Data] {
            let (at, _) = Run::place((role as usize * 16, 0));
            let fill = |bytes: &mut [u8]| {
                bytes.fill(1);
                Ok(())
            };
            run.cache.changes().edit(at, 0, 8, role, fill).unwrap();
        }
        let before = run.cache.blocks().counters().sync_writes;
        run.cache.sync().unwrap();
        let counters = run.cache.blocks().counters();
        (discipline.name(), before, counters.async_writes)
    });
    assert_eq!(names, [("sync", 4, 0), ("normal", 2, 2), ("async", 0, 4), ("softdep", 0, 4)]);
}

#[test]
fn a_replaced_pointer_waits_only_for_the_new_place() {
    let mut run = Run::new(soft_updates());
    let cache = &mut run.cache;
    let at = |block: u64| BlockNo::new(block * 8);
    let fill = |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let (_, old) = cache.changes().fill(at(1), 1024, Role::Data, fill).unwrap();
    // A length that goes before the number, wherever that leads.
    let (_, length) = cache.changes().fill(at(3), 512, Role::SizeExtend, fill).unwrap();
    let pointer = [Piece { offset: 8, bytes: &1u64.to_le_bytes() }];
    let first = cache.changes().change(at(0), &pointer, Role::PointerSet, &[old, length]).unwrap();
    let (_, new) = cache.changes().fill(at(2), 2048, Role::Data, fill).unwrap();
    let pointer = [Piece { offset: 8, bytes: &2u64.to_le_bytes() }];
    let moved = cache.changes().replace(at(0), &pointer, Role::PointerSet, &[new], &[old]).unwrap();
    assert!(moved.replaced);
    assert_eq!(moved.id, first);
    cache.changes().forget(Extent::new(at(1), 1), moved.id);
    assert!(cache.is_committed(old), "nobody waits for what is forgotten");
    assert!(!cache.is_committed(moved.id));
    let mut shown = [0; 8];
    run.disk.read(Lba::new(0), &mut [0; 512]).unwrap();
    cache.settle(&[moved.id]).unwrap();
    run.disk.flush().unwrap();
    let mut sector = [0; 512];
    run.disk.read(Lba::new(0), &mut sector).unwrap();
    shown.copy_from_slice(&sector[8..16]);
    assert_eq!(u64::from_le_bytes(shown), 2);
    assert!(cache.is_committed(length), "what is not dropped is waited for");
    run.disk.read(Lba::new(16), &mut sector).unwrap();
    assert_eq!(sector, [0; 512], "the old place was never written");
}

#[test]
fn a_pointer_replaced_among_others_waits_for_what_they_wait_for() {
    let mut run = Run::new(soft_updates());
    let cache = &mut run.cache;
    let at = |block: u64| BlockNo::new(block * 8);
    let fill = |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    let (_, bitmap) = cache.changes().fill(at(3), 1024, Role::BitmapSet, fill).unwrap();
    let (_, old) = cache.changes().fill(at(1), 1024, Role::Data, fill).unwrap();
    // A pointer and a length in one change, and a length upon that.
    let pieces =
        [Piece { offset: 8, bytes: &1u64.to_le_bytes() }, Piece { offset: 32, bytes: &[1] }];
    let first = cache.changes().change(at(0), &pieces, Role::PointerSet, &[bitmap, old]).unwrap();
    let (_, more) = cache.changes().fill(at(4), 1024, Role::Data, fill).unwrap();
    let length = [Piece { offset: 32, bytes: &[2] }];
    let longer = cache.changes().change(at(0), &length, Role::PointerSet, &[more]).unwrap();
    let (_, new) = cache.changes().fill(at(2), 2048, Role::Data, fill).unwrap();
    let pointer = [Piece { offset: 8, bytes: &2u64.to_le_bytes() }];
    let moved = cache.changes().replace(at(0), &pointer, Role::PointerSet, &[new], &[old]).unwrap();
    assert_eq!((moved.id, moved.replaced), (first, true));
    cache.changes().forget(Extent::new(at(1), 1), moved.id);
    cache.settle(&[longer]).unwrap();
    assert!(cache.is_committed(bitmap) && cache.is_committed(new));
    let mut sector = [0; 512];
    run.disk.read(Lba::new(0), &mut sector).unwrap();
    assert_eq!((sector[8], sector[32]), (2, 2));
    run.disk.read(Lba::new(16), &mut sector).unwrap();
    assert_eq!(sector, [0; 512], "the old place was never written");
}

/// An edit over a part of what may have to be undone is as much undone.
#[test]
fn an_edit_over_what_waits_waits_with_it() {
    let (waiting, fragment) = (8..16usize, |byte: u8, len: usize| vec![byte; len]);
    for (start, end) in [(4, 12), (12, 20), (6, 18), (10, 12), (8, 16), (0, 8), (16, 24)] {
        let mut run = Run::new(soft_updates());
        let cache = &mut run.cache;
        let fill = |bytes: &mut [u8]| {
            bytes.fill(7);
            Ok(())
        };
        let (_, data) = cache.changes().fill(BlockNo::new(8), FRAGMENT, Role::Data, fill).unwrap();
        let pointer = [Piece { offset: waiting.start as u32, bytes: &fragment(1, 8) }];
        let first =
            cache.changes().change(BlockNo::ZERO, &pointer, Role::PointerSet, &[data]).unwrap();
        let write = |bytes: &mut [u8]| {
            bytes.fill(2);
            Ok(())
        };
        let (_, second) = cache
            .changes()
            .edit(BlockNo::ZERO, start, end - start, Role::EntryRemove, write)
            .unwrap();
        cache.settle(&[second]).unwrap();
        let mut sector = [0; 512];
        run.disk.read(Lba::new(0), &mut sector).unwrap();
        assert_eq!(sector[start..end], fragment(2, end - start), "settled: {start}..{end}");
        let apart = end <= waiting.start || start >= waiting.end;
        assert_eq!(run.cache.is_committed(first), !apart, "{start}..{end}");
    }
}

#[test]
fn a_walk_that_only_reads_stays_in_bounds() {
    let mut config = soft_updates();
    config.capacity = ByteLen::new(8 * BLOCK as u64);
    let mut run = Run::new(config);
    for block in 0..BLOCKS as u64 {
        run.cache.blocks_mut().read(BlockNo::new(block * 8), 0, 8).unwrap();
    }
    let again = run.cache.blocks().counters().reads;
    for block in (0..BLOCKS as u64).rev().take(4) {
        run.cache.blocks_mut().read(BlockNo::new(block * 8), 0, 8).unwrap();
    }
    assert_eq!(run.cache.blocks().counters().reads, again, "the latest are kept");
    run.cache.blocks_mut().read(BlockNo::new(0), 0, 8).unwrap();
    assert_eq!(run.cache.blocks().counters().reads, again + 1, "the oldest are not");
    assert!(
        run.cache.blocks().bytes() <= config.capacity.get() + BLOCK as u64,
        "{}",
        run.cache.blocks().bytes()
    );
}
