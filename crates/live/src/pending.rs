//! Changes that others may have to wait for, noted until the disk has them.

use crate::action::Action;
use hashbrown::HashMap;
use seekless_cache::{Cache, ChangeId};
use seekless_units::Ino;
use smallvec::SmallVec;

/// Changes that must all be on the disk for something to be.
pub type Ids = SmallVec<[ChangeId; 3]>;

/// Changes of one kind that are kept by themselves at least: a change that waits for all names of a
/// file but one waits for each of the others, and not for that one, as long as they are few.
const FEW: usize = 32;

/// A noted change, perhaps with its subject.
pub(crate) trait Noted: Copy + PartialEq {
    /// The change.
    fn change(self) -> ChangeId;
}

impl Noted for ChangeId {
    fn change(self) -> ChangeId {
        self
    }
}

impl<T: Copy + PartialEq> Noted for (T, ChangeId) {
    fn change(self) -> ChangeId {
        self.1
    }
}

/// Changes in the order in which they were noted.
///
/// There may be as many as a directory has names, or a file, and each is noted by itself:
/// those that the disk has are looked for where the list would need more memory, and not each
/// time, so that each is looked at twice or so.
#[derive(Clone, Debug)]
pub(crate) struct Pending<T: Noted>(SmallVec<[T; 2]>);

impl<T: Noted> Default for Pending<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T: Noted> Pending<T> {
    /// Notes one more, unless it was among the last two: changes come in pairs of which one often
    /// is the same each time: a change that makes a directory reachable, and a name in it.
    pub(crate) fn note(&mut self, cache: &Cache<Action>, noted: T) {
        if cache.is_committed(noted.change()) || self.0.iter().rev().take(2).any(|&at| at == noted)
        {
            return;
        }
        if self.0.len() == self.0.capacity() {
            self.prune(cache);
            self.make_room();
        }
        self.0.push(noted);
    }

    /// As many may come again as have stayed, before the list is looked through again.
    fn make_room(&mut self) {
        if self.0.len() > self.0.capacity() >> 1 {
            self.0.reserve(self.0.capacity());
        }
    }

    /// How many were noted, and not looked for since.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn prune(&mut self, cache: &Cache<Action>) {
        self.0.retain(|noted| !cache.is_committed(noted.change()));
    }

    /// Those that the disk does not have.
    pub(crate) fn left<'a>(&'a self, cache: &'a Cache<Action>) -> impl Iterator<Item = T> + 'a {
        self.0.iter().copied().filter(|noted| !cache.is_committed(noted.change()))
    }

    /// Whether the disk has all of them.
    pub(crate) fn is_on_disk(&self, cache: &Cache<Action>) -> bool {
        self.left(cache).next().is_none()
    }
}

impl Pending<(Ino, ChangeId)> {
    /// Notes the change that gives a file a name in a directory. Of many in one directory a join is
    /// kept: the name that goes waits for all others, and of `n` that go one after the other the
    /// graph would have to keep the square.
    pub(crate) fn note_name(&mut self, cache: &mut Cache<Action>, dir: Ino, id: ChangeId) {
        if self.0.len() == self.0.capacity() && self.0.len() > FEW {
            self.prune(cache);
            if self.0.len() > FEW {
                self.join(cache);
            }
            self.make_room();
        }
        self.note(cache, (dir, id));
    }

    fn join(&mut self, cache: &mut Cache<Action>) {
        let mut dirs: Vec<(Ino, Ids)> = Vec::new();
        let mut places: HashMap<Ino, usize> = HashMap::new();
        for &(dir, id) in &self.0 {
            let at = *places.entry(dir).or_insert(dirs.len());
            match dirs.get_mut(at) {
                Some((_, ids)) => ids.push(id),
                None => dirs.push((dir, Ids::from_slice(&[id]))),
            }
        }
        self.0.clear();
        for (dir, ids) in dirs {
            self.0.extend(cache.changes().join(&ids).into_iter().map(|id| (dir, id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_cache::{Config, Discipline, Role};
    use seekless_device::{MemoryDevice, VirtualClock};
    use seekless_units::{BlockNo, Extent};
    use std::cell::Cell;
    use std::sync::Arc;

    const BLOCKS: u64 = 4096;

    thread_local! {
        static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// A change that counts how often it is looked at.
    #[derive(Clone, Copy, PartialEq)]
    struct Counting(ChangeId);

    impl Noted for Counting {
        fn change(self) -> ChangeId {
            LOOKS.set(LOOKS.get() + 1);
            self.0
        }
    }

    fn cache() -> Cache<Action> {
        let device = Arc::new(MemoryDevice::new(vec![0; BLOCKS as usize * 512]));
        let config = Config::new(Discipline::SoftUpdates);
        let clock = Arc::new(VirtualClock::new());
        Cache::new(device, clock, 512, 512, config).unwrap()
    }

    fn change(cache: &mut Cache<Action>, at: u64) -> ChangeId {
        cache.changes().fill(BlockNo::new(at), 512, Role::Data, |_| Ok(())).unwrap().1
    }

    #[test]
    fn each_change_is_looked_at_a_few_times_however_many_there_are() {
        let mut cache = cache();
        let mut pending = Pending::default();
        for at in 0..BLOCKS {
            let id = change(&mut cache, at);
            pending.note(&cache, Counting(id));
        }
        assert!(LOOKS.get() <= 4 * BLOCKS as usize, "{} looks at {BLOCKS}", LOOKS.get());
        assert_eq!(pending.left(&cache).count(), BLOCKS as usize);
    }

    /// Of the names in a directory there are a few and a join, and all are waited for.
    #[test]
    fn many_names_in_one_directory_are_joined() {
        let mut cache = cache();
        let mut pending = Pending::default();
        for at in 0..2000 {
            let id = change(&mut cache, at);
            pending.note_name(&mut cache, Ino::new(2 + u32::from(at % 10 == 0)), id);
        }
        let left: Vec<_> = pending.left(&cache).collect();
        assert!(left.len() <= 2 * FEW, "{}", left.len());
        assert_eq!(left.iter().map(|(dir, _)| dir.get()).max(), Some(3));
        for at in 0..2000 {
            assert!(!pending.is_on_disk(&cache), "{at} of 2000 are on the disk");
            let id = cache.changes_in(Extent::new(BlockNo::new(at), 1));
            cache.settle(&id).unwrap();
        }
        assert!(pending.is_on_disk(&cache));
    }

    #[test]
    fn what_the_disk_has_is_forgotten_in_time() {
        let mut cache = cache();
        let mut pending = Pending::default();
        let ids: Vec<ChangeId> = (0..1000).map(|at| change(&mut cache, at)).collect();
        for &id in &ids {
            pending.note(&cache, id);
            pending.note(&cache, id);
        }
        assert!(pending.left(&cache).eq(ids.iter().copied()), "each once, in order");
        cache.settle(&ids[..900]).unwrap();
        pending.note(&cache, ids[0]);
        assert!(pending.left(&cache).eq(ids[900..].iter().copied()));
        let more: Vec<ChangeId> = (1000..1500).map(|at| change(&mut cache, at)).collect();
        more.iter().for_each(|&id| pending.note(&cache, id));
        assert!(pending.left(&cache).eq(ids[900..].iter().chain(&more).copied()));
        assert!(pending.0.len() < 1024 && pending.0.capacity() <= 1024, "{}", pending.0.len());
        assert!(!pending.is_on_disk(&cache));
        cache.sync().unwrap();
        assert!(pending.is_on_disk(&cache));
    }
}
