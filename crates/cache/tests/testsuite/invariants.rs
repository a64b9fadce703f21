//! The invariants of docs/design/order.md hold after every call, in whatever
//! sequence: changes of all roles to overlapping places, changes that take the
//! place of others or make them void, changes taken back, contents forgotten.

use crate::late::Late;
use crate::property::for_all;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use seekless_cache::{Cache, ChangeId, Config, Discipline, Kind, Piece, Role};
use seekless_device::{BlockDevice, Clock, SparseDevice, VirtualClock};
use seekless_units::{BlockNo, ByteLen, Extent, Nanos};
use std::cell::Cell;
use std::sync::Arc;

const BLOCKS: u64 = 12;
const FRAGMENT: u32 = 1024;
const PER_BLOCK: u64 = 8;

/// Roles that wait for something, and those that make what lies under them void.
const ROLES: [Role; 8] = [
    Role::EntryAdd,
    Role::PointerSet,
    Role::InodeInit,
    Role::IndirectSet,
    Role::LinkCount,
    Role::PointerClear,
    Role::InodeClear,
    Role::IndirectClear,
];

/// Some of the changes made lately, each by a number that is taken modulo theirs.
#[derive(Clone, Debug)]
struct Picked {
    picks: Vec<u8>,
    join: Option<Join>,
}

/// They are joined, with the last join; it is forgotten, or the next one has this one in it.
#[derive(Clone, Debug)]
struct Join {
    is_last: bool,
}

fn some(most: usize) -> impl Strategy<Value = Picked> {
    let join = weighted(1.0 / 8.0).prop_map(|is_last| Join { is_last });
    (vec(any::<u8>(), 0..=most), option::weighted(0.25, join))
        .prop_map(|(picks, join)| Picked { picks, join })
}

/// A fragment and an offset in it: new ones, or those of a change made lately.
#[derive(Clone, Copy, Debug)]
enum Place {
    New(u64, u32),
    Again(u8),
}

fn fragment() -> impl Strategy<Value = u64> {
    0..BLOCKS * PER_BLOCK
}

/// A place that was changed before, twice in three times.
fn place() -> impl Strategy<Value = Place> {
    let new = (fragment(), 0..16u32).prop_map(|(at, word)| Place::New(at, word * 8));
    prop_oneof![1 => new, 2 => any::<u8>().prop_map(Place::Again)]
}

/// A change of one piece or two, of 8 to 24 bytes: they overlap those of others.
#[derive(Clone, Debug)]
struct Change {
    place: Place,
    role: Role,
    byte: u8,
    len: usize,
    has_second: bool,
    after: Picked,
    /// An action is deferred until it, and these, are on the disk.
    deferred: Option<Picked>,
}

fn deferred() -> impl Strategy<Value = Option<Picked>> {
    option::weighted(1.0 / 6.0, some(2))
}

fn change() -> impl Strategy<Value = Change> {
    let pieces = (any::<u8>(), (1..=3usize).prop_map(|words| 8 * words), weighted(1.0 / 3.0));
    (place(), select(&ROLES[..]), pieces, some(3), deferred()).prop_map(
        |(place, role, (byte, len, has_second), after, deferred)| Change {
            place,
            role,
            byte,
            len,
            has_second,
            after,
            deferred,
        },
    )
}

/// A pointer that is set to the new place of its target: it waits for the write of `fresh`.
#[derive(Clone, Debug)]
struct Replace {
    place: Place,
    fresh: u64,
    dropped: Picked,
    deferred: Option<Picked>,
}

fn replace() -> impl Strategy<Value = Replace> {
    (place(), fragment(), some(2), deferred())
        .prop_map(|(place, fresh, dropped, deferred)| Replace { place, fresh, dropped, deferred })
}

#[derive(Clone, Debug)]
enum Op {
    SyncRound,
    WriteSome,
    Settle,
    Sleep,
    Forget { start: u64, len: u64 },
    TakeBack(u8),
    Replace(Replace),
    Change(Change),
}

fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        1 => Just(Op::SyncRound),
        1 => Just(Op::WriteSome),
        1 => Just(Op::Settle),
        2 => Just(Op::Sleep),
        2 => (fragment(), 1..=4u64).prop_map(|(start, len)| Op::Forget { start, len }),
        3 => any::<u8>().prop_map(Op::TakeBack),
        4 => replace().prop_map(Op::Replace),
        16 => change().prop_map(Op::Change),
    ];
    vec(op, 0..=most)
}

struct Run {
    clock: Arc<VirtualClock>,
    cache: Cache<u64>,
    /// What was changed lately, and where.
    recent: Vec<(BlockNo, u32, ChangeId)>,
    /// The last join.
    joined: Vec<ChangeId>,
    joins: u32,
    /// Actions deferred, and done.
    actions: (u64, u64),
    /// How often each kind of call had an effect.
    replaced: u32,
    discarded: u32,
}

impl Run {
    /// `late`: on a device whose writes complete late, in an order of this seed.
    fn new(discipline: Discipline, barriers: bool, late: Option<u64>) -> Self {
        let sparse = Arc::new(SparseDevice::new(ByteLen::new(BLOCKS * PER_BLOCK * 1024)));
        let disk: Arc<dyn BlockDevice> = match late {
            Some(seed) => Arc::new(Late::new(sparse, seed, Box::new(|_, _| {}))),
            None => sparse,
        };
        let clock = Arc::new(VirtualClock::new());
        let mut config = Config::new(discipline);
        config.barriers = barriers;
        let cache = Cache::new(disk, clock.clone(), 8192, FRAGMENT, config).unwrap();
        Self {
            clock,
            cache,
            recent: Vec::new(),
            joined: Vec::new(),
            joins: 0,
            actions: (0, 0),
            replaced: 0,
            discarded: 0,
        }
    }

    /// One of the changes made lately.
    fn pick(&self, at: u8) -> Option<(BlockNo, u32, ChangeId)> {
        self.recent.get(usize::from(at) % self.recent.len().max(1)).copied()
    }

    fn some(&mut self, some: &Picked) -> Vec<ChangeId> {
        let picked = some.picks.iter().filter_map(|&at| self.pick(at));
        let picked: Vec<ChangeId> = picked.map(|(_, _, id)| id).collect();
        let Some(Join { is_last }) = some.join else { return picked };
        // Joins that others wait for, joins in joins, and joins that nobody waits for.
        let joined = self.cache.changes().join(&[&picked[..], &self.joined].concat()).to_vec();
        self.joins += joined.len() as u32;
        self.joined = if is_last { Vec::new() } else { joined.clone() };
        joined
    }

    fn place(&self, place: Place) -> (BlockNo, u32) {
        match place {
            Place::New(at, offset) => (BlockNo::new(at), offset),
            Place::Again(at) => self.pick(at).map_or((BlockNo::ZERO, 0), |(at, to, _)| (at, to)),
        }
    }

    fn note(&mut self, (at, offset): (BlockNo, u32), id: ChangeId, deferred: Option<&Picked>) {
        self.recent.push((at, offset, id));
        if self.recent.len() > 40 {
            self.recent.remove(0);
        }
        if let Some(others) = deferred {
            let others = self.some(others);
            self.cache.changes().defer(
                &[&[id][..], &others].concat(),
                Kind::FreeInode,
                self.actions.0,
            );
            self.actions.0 += 1;
        }
    }

    fn change(&mut self, change: &Change) {
        let (at, offset) = self.place(change.place);
        let bytes = [change.byte; 24];
        let mut pieces = vec![Piece { offset, bytes: &bytes[..change.len] }];
        if change.has_second {
            pieces.push(Piece { offset: offset + 200, bytes: &bytes[..8] });
        }
        let after = self.some(&change.after);
        let id = self.cache.changes().change(at, &pieces, change.role, &after).unwrap();
        self.note((at, offset), id, change.deferred.as_ref());
    }

    fn replace(&mut self, replace: &Replace) {
        let (at, offset) = self.place(replace.place);
        let fresh = BlockNo::new(replace.fresh);
        let set = |to: &mut [u8]| {
            to.fill(7);
            Ok(())
        };
        let (_, bitmap) = self.cache.changes().edit(fresh, 900, 8, Role::BitmapSet, set).unwrap();
        let dropped = self.some(&replace.dropped);
        let pieces = [Piece { offset, bytes: &[9; 8] }];
        let changed = self
            .cache
            .changes()
            .replace(at, &pieces, Role::PointerSet, &[bitmap], &dropped)
            .unwrap();
        self.replaced += u32::from(changed.replaced);
        self.note((at, offset), changed.id, replace.deferred.as_ref());
    }

    fn forget(&mut self, start: u64, len: u64) {
        let until = self.recent.last().map_or(ChangeId::COMMITTED, |last| last.2);
        let run = Extent::new(BlockNo::new(start), len.min(BLOCKS * PER_BLOCK - start));
        self.cache.changes().forget(run, until);
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::SyncRound => drop(self.cache.sync_round().unwrap()),
            Op::WriteSome => drop(self.cache.write_some(|block| block % 3 == 0).unwrap()),
            Op::Settle => self
                .cache
                .settle(&self.recent.last().map(|r| r.2).into_iter().collect::<Vec<_>>())
                .unwrap(),
            Op::Sleep => {
                self.clock.sleep(Nanos::new(4_000_000_000));
                self.cache.begin().unwrap();
            }
            Op::Forget { start, len } => self.forget(*start, *len),
            Op::TakeBack(at) => {
                if let Some((_, _, id)) = self.pick(*at) {
                    let gone = self.cache.changes().revert(id) || self.cache.changes().discard(id);
                    self.discarded += u32::from(gone);
                }
            }
            Op::Replace(replace) => self.replace(replace),
            Op::Change(change) => self.change(change),
        }
        while self.cache.changes().next_ready().is_some() {
            self.actions.1 += 1;
        }
        assert_eq!(self.cache.broken_invariant(), None);
    }

    fn finish(&mut self) {
        while self.cache.is_dirty() {
            self.cache.sync().unwrap();
            while self.cache.changes().next_ready().is_some() {
                self.actions.1 += 1;
            }
        }
        assert_eq!(self.cache.broken_invariant(), None);
        assert_eq!(self.actions.0, self.actions.1, "each action is done once");
        assert_eq!(
            (self.cache.blocks().softdeps(), self.cache.blocks().undo_bytes().get()),
            (0, 0)
        );
    }
}

fn judged(ops: &[Op], mut run: Run) -> Run {
    ops.iter().for_each(|op| run.step(op));
    run.finish();
    run
}

#[test]
fn every_call_leaves_the_invariants() {
    let effects = Cell::new([0u64; 4]);
    let late = option::of(any::<u64>());
    for_all(60, (weighted(2.0 / 3.0), late, ops(1600)), |(barriers, late, ops)| {
        let run = judged(&ops, Run::new(Discipline::SoftUpdates, barriers, late));
        let rollbacks = run.cache.blocks().counters().rollbacks;
        let [replaced, discarded, rolled_back, joins] = effects.get();
        effects.set([
            replaced + u64::from(run.replaced),
            discarded + u64::from(run.discarded),
            rolled_back + rollbacks,
            joins + u64::from(run.joins),
        ]);
    });
    let [replaced, discarded, rollbacks, joins] = effects.get();
    assert!(
        replaced > 100 && discarded > 300 && rollbacks > 5_000 && joins > 3_000,
        "{replaced} {discarded} {rollbacks} {joins}"
    );
}

#[test]
fn without_an_order_nothing_is_held() {
    for discipline in [Discipline::Sync, Discipline::Normal, Discipline::Async] {
        for late in [None, Some(3)] {
            for_all(1, ops(1200), |ops| {
                judged(&ops, Run::new(discipline, late.is_some(), late));
            });
        }
    }
}
