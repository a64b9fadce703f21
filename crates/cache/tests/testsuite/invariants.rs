//! The invariants of docs/design/order.md hold after every call, in whatever
//! sequence: changes of all roles to overlapping places, changes that take the
//! place of others or make them void, changes taken back, contents forgotten.

use crate::late::Late;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Cache, ChangeId, Config, Discipline, Kind, Piece, Role};
use seekless_device::{BlockDevice, Clock, SparseDevice, VirtualClock};
use seekless_units::{BlockNo, ByteLen, Extent, Nanos};
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

struct Run {
    rng: Pcg64Mcg,
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
    /// `late`: on a device whose writes complete late, in any order.
    fn new(seed: u64, discipline: Discipline, barriers: bool, late: bool) -> Self {
        let sparse = Arc::new(SparseDevice::new(ByteLen::new(BLOCKS * PER_BLOCK * 1024)));
        let disk: Arc<dyn BlockDevice> =
            if late { Arc::new(Late::new(sparse, seed, Box::new(|_, _| {}))) } else { sparse };
        let clock = Arc::new(VirtualClock::new());
        let mut config = Config::new(discipline);
        config.barriers = barriers;
        let cache = Cache::new(disk, clock.clone(), 8192, FRAGMENT, config).unwrap();
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Self {
            rng,
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

    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u32() as usize) % n
    }

    fn fragment(&mut self) -> BlockNo {
        BlockNo::new(self.below((BLOCKS * PER_BLOCK) as usize) as u64)
    }

    /// Some changes made lately.
    fn some(&mut self, most: usize) -> Vec<ChangeId> {
        let count = if self.recent.is_empty() { 0 } else { self.below(most + 1) };
        let ids: Vec<ChangeId> = self.recent.iter().map(|&(_, _, id)| id).collect();
        let some: Vec<ChangeId> = (0..count).map(|_| ids[self.below(ids.len())]).collect();
        if self.below(4) != 0 {
            return some;
        }
        // Joins that others wait for, joins in joins, and joins that nobody waits for.
        let joined = self.cache.changes().join(&[&some[..], &self.joined].concat()).to_vec();
        self.joins += joined.len() as u32;
        self.joined = if self.below(8) == 0 { Vec::new() } else { joined.clone() };
        joined
    }

    /// A place that was changed before, twice in three times.
    fn place(&mut self) -> (BlockNo, u32) {
        if self.recent.is_empty() || self.below(3) == 0 {
            return (self.fragment(), self.below(16) as u32 * 8);
        }
        let at = self.below(self.recent.len());
        (self.recent[at].0, self.recent[at].1)
    }

    fn note(&mut self, at: BlockNo, offset: u32, id: ChangeId) {
        self.recent.push((at, offset, id));
        if self.recent.len() > 40 {
            self.recent.remove(0);
        }
        if self.below(6) == 0 {
            let others = self.some(2);
            self.cache.changes().defer(
                &[&[id][..], &others].concat(),
                Kind::FreeInode,
                self.actions.0,
            );
            self.actions.0 += 1;
        }
    }

    fn change(&mut self) {
        let (at, offset) = self.place();
        let role = ROLES[self.below(ROLES.len())];
        let bytes = [self.rng.next_u32() as u8; 24];
        // One piece or two, of 8 to 24 bytes: they overlap those of others.
        let len = 8 * (1 + self.below(3));
        let mut pieces = vec![Piece { offset, bytes: &bytes[..len] }];
        if self.below(3) == 0 {
            pieces.push(Piece { offset: offset + 200, bytes: &bytes[..8] });
        }
        let after = self.some(3);
        let id = self.cache.changes().change(at, &pieces, role, &after).unwrap();
        self.note(at, offset, id);
    }

    /// A pointer to something that has moved: it waits for what was made just now.
    fn replace(&mut self) {
        let (at, offset) = self.place();
        let fresh = self.fragment();
        let set = |to: &mut [u8]| {
            to.fill(7);
            Ok(())
        };
        let (_, bitmap) = self.cache.changes().edit(fresh, 900, 8, Role::BitmapSet, set).unwrap();
        let dropped = self.some(2);
        let pieces = [Piece { offset, bytes: &[9; 8] }];
        let changed = self
            .cache
            .changes()
            .replace(at, &pieces, Role::PointerSet, &[bitmap], &dropped)
            .unwrap();
        self.replaced += u32::from(changed.replaced);
        self.note(at, offset, changed.id);
    }

    fn forget(&mut self) {
        let start = self.fragment();
        let until = self.recent.last().map_or(ChangeId::COMMITTED, |last| last.2);
        let len = 1 + self.below(4) as u64;
        let end = BLOCKS * PER_BLOCK;
        let run = Extent::new(start, len.min(end - start.get()));
        self.cache.changes().forget(run, until);
    }

    fn step(&mut self) {
        match self.below(30) {
            0 => drop(self.cache.sync_round().unwrap()),
            1 => drop(self.cache.write_some(|block| block % 3 == 0).unwrap()),
            2 => self
                .cache
                .settle(&self.recent.last().map(|r| r.2).into_iter().collect::<Vec<_>>())
                .unwrap(),
            3..=4 => {
                self.clock.sleep(Nanos::new(4_000_000_000));
                self.cache.begin().unwrap();
            }
            5..=6 => self.forget(),
            7..=9 => {
                let at = self.below(self.recent.len().max(1));
                if let Some(&(_, _, id)) = self.recent.get(at) {
                    let gone = self.cache.changes().revert(id) || self.cache.changes().discard(id);
                    self.discarded += u32::from(gone);
                }
            }
            10..=13 => self.replace(),
            _ => self.change(),
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

#[test]
fn every_call_leaves_the_invariants() {
    let (mut replaced, mut discarded, mut rollbacks, mut joins) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut run = Run::new(seed, Discipline::SoftUpdates, seed % 3 != 0, seed % 2 == 0);
        for _ in 0..800 {
            run.step();
        }
        run.finish();
        replaced += run.replaced;
        discarded += run.discarded;
        rollbacks += run.cache.blocks().counters().rollbacks;
        joins += run.joins;
    }
    assert!(
        replaced > 100 && discarded > 300 && rollbacks > 5_000 && joins > 3_000,
        "{replaced} {discarded} {rollbacks} {joins}"
    );
}

#[test]
fn without_an_order_nothing_is_held() {
    for discipline in [Discipline::Sync, Discipline::Normal, Discipline::Async] {
        for late in [false, true] {
            let mut run = Run::new(3, discipline, late, late);
            for _ in 0..600 {
                run.step();
            }
            run.finish();
        }
    }
}
