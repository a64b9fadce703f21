//! First touches, picked while a recording runs, so that its length does not count.

use super::listings::is_announcement;
use super::{PageAccess, PageSet, TouchKind};
use seekless_units::{BlockNo, Extent, Ino};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// How many uses of a block of metadata are kept if the thread used the same other block before: as
/// many as the inodes in 16 KiB of an inode table.
const USES: u8 = 64;

/// How many uses of a block of metadata are kept in all.
const ALL_USES: u16 = 1024;

/// How many threads have their listing of a directory kept, and how many starts of a program are.
const TIMES: usize = 64;

/// The longest chain of threads, each started by the one before, whose names wait until they are
/// needed.
const GENERATIONS: usize = 64;

/// How many of a thread's last uses of blocks and inodes, and of its last opens, are kept after all when
/// its next touch is kept.
const CONTEXT: usize = 4;

/// Picks from all touches, in order of time, those that [`assemble`](super::assemble) needs for a
/// trace. A touch of pages, a file or a block that was touched in the same way before is left out. A
/// thread's last touches that were left out are kept after all when its next touch is: they tell what
/// it means.
///
/// The events of the trace that a layout depends on ([`essential`](crate::essential::essential)) are
/// those of all touches, except
/// - where something was read from the disk again, as under memory pressure: ranges that would be
///   apart in time may be one event;
/// - where two blocks of metadata were used one after the other more than 64 times, or one of them
///   more than 1024 times: an inode that nothing was read for may be looked up later, or be among the
///   inodes that were not resolved;
/// - where more than 64 threads opened a directory before one of them listed it from memory;
/// - where a thread starts a program all of whose pages others have touched before: the start is not
///   placed before the thread's first page of it. The same holds for an open of a file that the thread
///   had open before;
/// - in about one of 2,000 random recordings, where of several inodes in a block of the table another
///   one is taken for the one that was looked up.
///
/// Memory grows with the pages, files and blocks that are touched, and with the threads that live, but
/// not with time: the names and origins of threads that touch nothing new are left out, too. `E` is the
/// caller's form of a touch.
///
/// ```
/// use seekless_layout::recording::{FirstTouches, PageAccess, TouchKind};
/// use seekless_units::Ino;
///
/// let pages = |first, last| {
///     TouchKind::Pages { ino: Ino::new(12), first, last, how: PageAccess::Asked }
/// };
/// let mut picked = Vec::new();
/// let mut touches = FirstTouches::default();
/// for (number, what) in [pages(0, 3), pages(1, 2), pages(3, 4)].into_iter().enumerate() {
///     touches.take(7, &what, number, &mut |number| picked.push(number));
/// }
/// // The second one is kept because it is the thread's last one before the third.
/// assert_eq!(picked, [0, 1, 2]);
/// touches.take(7, &pages(0, 0), 3, &mut |number| picked.push(number));
/// touches.take(7, &pages(2, 4), 4, &mut |number| picked.push(number));
/// assert_eq!(picked.len(), 3);
/// ```
#[derive(Debug)]
pub struct FirstTouches<E> {
    /// Pages that a read or a fault asked for.
    asked: HashMap<Ino, PageSet>,
    mapped: HashMap<Ino, PageSet>,
    fetched: HashMap<Ino, PageSet>,
    opened: HashSet<Ino>,
    /// The threads that listed a directory: one that has searches it for nothing.
    listed: HashMap<Ino, Vec<u32>>,
    /// How often a program was started.
    started: HashMap<Ino, usize>,
    loaded: HashSet<Ino>,
    requested: HashSet<(BlockNo, u64)>,
    /// How often a block was used after another one.
    used: HashMap<(Option<BlockNo>, BlockNo), u8>,
    /// How often a block was used.
    uses: HashMap<BlockNo, u16>,
    threads: HashMap<u32, LeftOut<E>>,
}

impl<E> Default for FirstTouches<E> {
    fn default() -> Self {
        Self {
            asked: HashMap::new(),
            mapped: HashMap::new(),
            fetched: HashMap::new(),
            opened: HashSet::new(),
            listed: HashMap::new(),
            started: HashMap::new(),
            loaded: HashSet::new(),
            requested: HashSet::new(),
            used: HashMap::new(),
            uses: HashMap::new(),
            threads: HashMap::new(),
        }
    }
}

/// A touch that gave a thread its name, unless it was kept already, and those that named the thread
/// that it has its name from.
#[derive(Debug)]
struct Name<E> {
    touch: RefCell<Option<E>>,
    from: Option<Rc<Name<E>>>,
    generation: usize,
}

impl<E> Name<E> {
    fn give(&self, keep: &mut impl FnMut(E)) {
        let mut next = Some(self);
        while let Some(name) = next {
            if let Some(touch) = name.touch.take() {
                keep(touch);
            }
            next = name.from.as_deref();
        }
    }
}

/// A thread's touches that were left out since its last one that was kept.
#[derive(Debug)]
struct LeftOut<E> {
    /// The block that it used last.
    block: Option<BlockNo>,
    blocks: VecDeque<E>,
    opens: VecDeque<E>,
    /// A page that was asked for: it tells whether the next fetch is for a fault.
    page: Option<E>,
    fetch: Option<E>,
    request: Option<E>,
    name: Option<Rc<Name<E>>>,
    /// Its last touch, but for announcements, may be the search for an inode, which the next one
    /// tells.
    searches: bool,
}

impl<E> Default for LeftOut<E> {
    fn default() -> Self {
        Self {
            block: None,
            blocks: VecDeque::new(),
            opens: VecDeque::new(),
            page: None,
            fetch: None,
            request: None,
            name: None,
            searches: false,
        }
    }
}

impl<E> LeftOut<E> {
    /// Gives the touches that were left out last.
    fn give(&mut self, keep: &mut impl FnMut(E)) {
        if let Some(name) = self.name.take() {
            name.give(keep);
        }
        let Self { blocks, opens, page, fetch, request, .. } = self;
        let single = [page, fetch, request].into_iter().filter_map(Option::take);
        blocks.drain(..).chain(opens.drain(..)).chain(single).for_each(keep);
    }
}

/// Appends to the last few.
fn push<E>(last: &mut VecDeque<E>, touch: E) {
    if last.len() == CONTEXT {
        last.pop_front();
    }
    last.push_back(touch);
}

impl<E> FirstTouches<E> {
    /// Takes a touch, and gives those that are kept, in no particular order.
    pub fn take(&mut self, tid: u32, what: &TouchKind, touch: E, keep: &mut impl FnMut(E)) {
        let is_new = self.is_new(tid, what);
        let thread = self.threads.entry(tid).or_default();
        if let TouchKind::Block(block) = what {
            thread.block = Some(*block);
        }
        // Announcements are heard of late, except for starts of threads.
        let is_late = is_announcement(what) && !matches!(what, TouchKind::Forked(_));
        let is_next = thread.searches && !is_late;
        if !is_announcement(what) {
            thread.searches = is_new && matches!(what, TouchKind::Block(_));
        }
        if is_new || is_next {
            thread.give(keep);
            keep(touch);
            if let TouchKind::Forked(child) = what {
                self.threads.entry(*child).or_default().name = None;
            }
        } else {
            match what {
                // An inode that was read tells what the block before it was used for.
                TouchKind::Block(_) | TouchKind::Inode(_) => push(&mut thread.blocks, touch),
                TouchKind::Opened(_) | TouchKind::Listed(_) | TouchKind::Executed(_) => {
                    push(&mut thread.opens, touch)
                }
                TouchKind::Requested(_) => thread.request = Some(touch),
                TouchKind::Pages { how: PageAccess::Fetched, .. } => thread.fetch = Some(touch),
                TouchKind::Pages { how: PageAccess::Asked | PageAccess::Faulted, .. } => {
                    thread.page = Some(touch);
                }
                TouchKind::Pages { how: PageAccess::Mapped, .. } => {}
                TouchKind::Named(_) => {
                    let touch = RefCell::new(Some(touch));
                    thread.name = Some(Rc::new(Name { touch, from: None, generation: 0 }));
                }
                TouchKind::Forked(child) => self.forked(tid, *child, touch, keep),
            }
        }
    }

    /// Keeps a thread's start until something of the thread is kept.
    fn forked(&mut self, tid: u32, child: u32, touch: E, keep: &mut impl FnMut(E)) {
        let mut from = self.threads.get(&tid).and_then(|thread| thread.name.clone());
        if let Some(name) = from.take_if(|name| name.generation >= GENERATIONS) {
            name.give(keep);
        }
        let generation = from.as_ref().map_or(0, |name| name.generation) + 1;
        let name = Some(Rc::new(Name { touch: RefCell::new(Some(touch)), from, generation }));
        // The thread may have the number of another one that has ended.
        self.threads.entry(child).or_default().name = name;
    }

    /// Whether a touch is the first one of its kind.
    fn is_new(&mut self, tid: u32, what: &TouchKind) -> bool {
        match *what {
            TouchKind::Pages { ino, first, last, how } => self.has_new_pages(ino, first, last, how),
            TouchKind::Opened(ino) => self.opened.insert(ino),
            TouchKind::Listed(ino) => {
                let threads = self.listed.entry(ino).or_default();
                let is_new = threads.len() < TIMES && !threads.contains(&tid);
                if is_new {
                    threads.push(tid);
                }
                is_new
            }
            TouchKind::Inode(ino) => self.loaded.insert(ino),
            TouchKind::Requested(Extent { start, len }) => self.requested.insert((start, len)),
            TouchKind::Block(block) => {
                let uses = self.uses.entry(block).or_default();
                if *uses == ALL_USES {
                    return false;
                }
                let before = self.threads.get(&tid).and_then(|thread| thread.block);
                let used = self.used.entry((before, block)).or_default();
                let is_new = *used < USES;
                *used += u8::from(is_new);
                *uses += u16::from(is_new);
                is_new
            }
            TouchKind::Executed(ino) => {
                let started = self.started.entry(ino).or_default();
                let is_new = *started < TIMES;
                *started += usize::from(is_new);
                is_new
            }
            // They are kept with what the thread touches.
            TouchKind::Named(_) | TouchKind::Forked(_) => false,
        }
    }

    fn has_new_pages(&mut self, ino: Ino, first: u64, last: u64, how: PageAccess) -> bool {
        let end = last.saturating_add(1);
        let pages = match how {
            PageAccess::Fetched => &mut self.fetched,
            PageAccess::Asked | PageAccess::Faulted => &mut self.asked,
            PageAccess::Mapped => &mut self.mapped,
        };
        !pages.entry(ino).or_default().add(first, end).is_empty()
    }

    /// The number of threads that something is kept of.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Forgets threads that have ended, with the touches that were left out of them last.
    pub fn forget(&mut self, has_ended: impl Fn(u32) -> bool) {
        self.threads.retain(|tid, _| !has_ended(*tid));
    }

    /// Gives the touches that were left out last of each thread, when the recording ends.
    pub fn finish(mut self, keep: &mut impl FnMut(E)) {
        self.threads.values_mut().for_each(|thread| thread.give(keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::essential::compact;
    use crate::recording::{EndState, Index, Pages, RecordedTouch, assemble};
    use crate::trace::Event;
    use seekless_fs::FileKind;

    /// A generator of numbers: Knuth's MMIX.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % limit
        }

        fn ino(&mut self) -> Ino {
            Ino::new(FIRST + u32::try_from(self.below(u64::from(FILES))).unwrap())
        }
    }

    const DIRS: u32 = 3;
    const FIRST: u32 = 20;
    const FILES: u32 = 24;
    const PAGES: u64 = 12;

    /// The inodes of eight files share a block.
    fn index() -> Index {
        let names: Vec<String> = (0..FILES).map(|at| format!("f{at}")).collect();
        let mut parts: Vec<_> = names
            .iter()
            .zip(0..)
            .map(|(name, at)| {
                let table = 50 + u64::from(at / 8);
                (FIRST + at, 12 + at % DIRS, &**name, FileKind::Regular, table)
            })
            .collect();
        parts.extend(
            [(12, "a"), (13, "b"), (14, "c")]
                .map(|(ino, name)| (ino, 2, name, FileKind::Directory, 49)),
        );
        Index::of_parts(4096, &parts, &[(2, 100, 1), (12, 101, 2), (13, 103, 2), (14, 105, 2)])
    }

    /// Touches of threads that do the same again and again. With `again`, ranges are fetched again.
    fn touches(random: &mut Random, count: u64, again: bool) -> Vec<RecordedTouch> {
        let mut fetched: HashMap<Ino, PageSet> = HashMap::new();
        let mut requested = HashSet::new();
        // Files are opened before they are read; programs do not open themselves.
        let (mut opened, mut executed) = (HashSet::new(), HashSet::new());
        let mut touches = Vec::new();
        let mut time = 0;
        while (touches.len() as u64) < count {
            time += 1 + random.below(5);
            let tid = 7 + u32::try_from(random.below(6)).unwrap();
            let (ino, first) = (random.ino(), random.below(PAGES));
            let last = (first + random.below(4)).min(PAGES - 1);
            let pages = |how| TouchKind::Pages { ino, first, last, how };
            let dir = Ino::new(12 + u32::try_from(random.below(u64::from(DIRS))).unwrap());
            let what = match random.below(24) {
                0..6 => pages(PageAccess::Asked),
                6..8 => pages(PageAccess::Faulted),
                8 => pages(PageAccess::Mapped),
                9..12 => {
                    let new = fetched.entry(ino).or_default().add(first, last + 1);
                    if !again && new != [(first, last + 1)] {
                        continue;
                    }
                    pages(PageAccess::Fetched)
                }
                12 => {
                    let extent = Extent::new(BlockNo::new(100 + random.below(8)), 1);
                    if !requested.insert(extent.start) && !again {
                        continue;
                    }
                    TouchKind::Requested(extent)
                }
                13..16 => TouchKind::Block(BlockNo::new(100 + random.below(7))),
                16..18 => TouchKind::Block(BlockNo::new(49 + random.below(4))),
                18..20 if !executed.contains(&(tid, ino)) && opened.insert((tid, ino)) => {
                    TouchKind::Opened(ino)
                }
                20 => TouchKind::Inode(ino),
                21 if !opened.contains(&(tid, ino)) => TouchKind::Executed(ino),
                22 => TouchKind::Listed(dir),
                23 => match random.below(8) {
                    0 | 1 => TouchKind::Named(format!("p{time}").into()),
                    // A number may be given to another thread.
                    2 => TouchKind::Forked(7 + u32::try_from(random.below(6)).unwrap()),
                    _ => continue,
                },
                _ => continue,
            };
            let is_start = matches!(what, TouchKind::Executed(_));
            if is_start {
                executed.insert((tid, ino));
            }
            let is_of_file = is_start || matches!(what, TouchKind::Pages { .. });
            if is_of_file && opened.insert((tid, ino)) && !is_start {
                touches.push(RecordedTouch { time, tid, what: TouchKind::Opened(ino) });
                time += 1;
            }
            touches.push(RecordedTouch { time, tid, what });
        }
        touches
    }

    /// The touches that are kept, in order of time.
    fn kept(touches: &[RecordedTouch]) -> Vec<RecordedTouch> {
        let (mut first, mut kept) = (FirstTouches::default(), Vec::new());
        for touch in touches {
            first.take(touch.tid, &touch.what, touch.clone(), &mut |touch| kept.push(touch));
        }
        first.finish(&mut |touch| kept.push(touch));
        kept.sort_by_key(|touch| touch.time);
        kept
    }

    fn trace(touches: Vec<RecordedTouch>, pages: Pages) -> Vec<Event> {
        let loaded = (FIRST..FIRST + FILES).map(Ino::new).collect();
        let mut resident =
            |ino: Ino, _: &[u8]| [(u64::from(ino.get()) % 5, 9)].into_iter().collect();
        let known = EndState {
            loaded: &loaded,
            size: &mut |_, _| Some(PAGES * 4096),
            resident: &mut resident,
            holder: &mut |_, _| None,
        };
        compact(assemble(touches, &index(), pages, known).events)
    }

    #[test]
    fn the_trace_has_the_same_events_that_count() {
        let more = std::env::var("SEEKLESS_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
        for seed in 0..more.unwrap_or(100) {
            let mut random = Random(seed);
            // So few that no two blocks are used together more often than is kept.
            let all = touches(&mut random, 2000, false);
            let kept = kept(&all);
            assert!(kept.len() < all.len());
            for pages in [Pages::Fetched, Pages::Touched] {
                let (whole, first) = (trace(all.clone(), pages), trace(kept.clone(), pages));
                if let Some(at) = whole.iter().zip(&first).position(|(one, other)| one != other) {
                    panic!(
                        "seed {seed}, {pages:?}: event {at} of {}: {:#?} {:#?}",
                        whole.len(),
                        whole[at],
                        first[at]
                    );
                }
                assert_eq!(whole.len(), first.len(), "seed {seed}, {pages:?}");
            }
        }
    }

    /// An inode that is read again and again is what its block is used for.
    #[test]
    fn blocks_that_are_left_out_lead_to_the_same_inodes() {
        let again = [100, 50].map(|block| TouchKind::Block(BlockNo::new(block)));
        let again = again.into_iter().chain([TouchKind::Inode(Ino::new(FIRST))]);
        let page = |how| TouchKind::Pages { ino: Ino::new(FIRST + 9), first: 0, last: 1, how };
        let all = std::iter::repeat_n(again, 2 * usize::from(USES)).flatten();
        let all = all.chain([page(PageAccess::Fetched)]).zip(1..);
        let all: Vec<_> = all.map(|(what, time)| RecordedTouch { time, tid: 7, what }).collect();
        let kept = kept(&all);
        assert!(kept.len() < all.len() * 2 / 3);
        assert_eq!(trace(kept, Pages::Fetched), trace(all, Pages::Fetched));
    }

    /// Programs that touch nothing new, and blocks that are used in any order.
    #[test]
    fn what_more_and_more_threads_do_is_kept_a_limited_number_of_times() {
        let kept = |threads: u32| {
            let (mut first, mut kept) = (FirstTouches::default(), 0);
            let mut random = Random(1);
            for tid in 100..100 + threads {
                let ino = Ino::new(FIRST);
                let mut take = |tid, what| first.take(tid, &what, (), &mut |()| kept += 1);
                // Each is started by the one before.
                take(tid, TouchKind::Named(format!("p{tid}").into()));
                take(tid, TouchKind::Forked(tid + 1));
                take(tid + 1, TouchKind::Executed(ino));
                take(tid + 1, TouchKind::Opened(ino));
                take(tid + 1, TouchKind::Listed(Ino::new(12)));
                (0..50).for_each(|_| {
                    take(tid + 1, TouchKind::Block(BlockNo::new(100 + random.below(30))));
                });
            }
            first.forget(|_| true);
            assert_eq!(first.threads(), 0);
            first.finish(&mut |()| unreachable!());
            kept
        };
        let all = kept(5000);
        assert!(all < 2 * 30 * usize::from(ALL_USES), "{all}");
        assert_eq!(kept(6000), all);
    }

    /// A day in which the same is done again and again is as long as an hour.
    #[test]
    fn what_is_done_again_and_again_is_kept_once() {
        let hour = touches(&mut Random(1), 3000, true);
        let day = |hours: u64| {
            let length = hour.last().unwrap().time;
            let again = |at| hour.iter().map(move |touch| (at * length + touch.time, touch));
            let all: Vec<RecordedTouch> = (0..hours)
                .flat_map(again)
                .map(|(time, touch)| RecordedTouch { time, ..touch.clone() })
                .collect();
            kept(&all).len()
        };
        let all = day(100);
        assert!(all < 100 * hour.len() / 5, "{all} of {}", 100 * hour.len());
        assert_eq!(day(200), all);
    }
}
