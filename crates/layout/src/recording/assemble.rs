//! A trace made of touches.

use super::index::Owner;
use super::listings::{directories_in, in_place, listed, without_mere_opens};
use super::{Index, PageAccess, PageSet, Pages, RecordedTouch, TouchKind};
use crate::essential::compact;
use crate::trace::{Event, Op};
use seekless_fs::FileKind;
use seekless_units::{BlockNo, Extent, Ino, Lbn, Nanos};
use std::collections::{HashMap, HashSet};

/// Bytes in a page of memory.
const PAGE: u64 = 4096;

/// Facts known besides the touches.
pub struct EndState<'a> {
    /// Inodes that were in memory at the end: those that were loaded, if none
    /// was at the start.
    pub loaded: &'a HashSet<Ino>,
    /// The size of a file in bytes.
    pub size: &'a mut dyn FnMut(Ino, &[u8]) -> Option<u64>,
    /// Pages of a file that are in memory at the end.
    pub resident: &'a mut dyn FnMut(Ino, &[u8]) -> PageSet,
    /// The block of a directory that holds a name, where the format tells.
    pub holder: &'a mut dyn FnMut(Ino, &[u8]) -> Option<Lbn>,
}

/// Counts of unresolved touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unknown {
    /// Touches of files without a name: deleted since, or never had one.
    pub nameless: u64,
    /// Inodes that were read and could be several.
    pub inodes: u64,
}

/// A trace, and the touches missing from it.
#[derive(Clone, Debug, Default)]
pub struct Assembled {
    /// In order of time.
    pub events: Vec<Event>,
    /// Unresolved touches.
    pub unknown: Unknown,
}

impl Assembled {
    /// Leaves only the events that a layout depends on.
    pub fn compact(&mut self) {
        self.events = compact(std::mem::take(&mut self.events));
    }
}

/// Makes a trace of touches, which are in order of time.
pub fn assemble<'a>(
    touches: Vec<RecordedTouch>,
    index: &'a Index,
    pages: Pages,
    known: EndState<'a>,
) -> Assembled {
    let touches = without_mere_opens(in_place(touches, index), index);
    let mut work = Assembler {
        index,
        pages,
        first_seen: first_seen(&touches),
        listed: listed(&touches),
        known,
        threads: HashMap::new(),
        looked_up: HashSet::new(),
        blocks: HashSet::new(),
        searched: HashMap::new(),
        seen: HashMap::new(),
        fetched: HashMap::new(),
        requests: touches.iter().any(|touch| matches!(touch.what, TouchKind::Requested(_))),
        came: came(&touches, index),
        holders: HashMap::new(),
        last: None,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        out: Assembled::default(),
    };
    if pages == Pages::Fetched {
        work.note_fetched(&touches);
    }
    for touch in &touches {
        work.take(touch);
    }
    work.finish();
    work.look_up_rest();
    work.out.events.sort_by_key(|event| event.time);
    work.out
}

/// When each inode was first touched by number.
fn first_seen(touches: &[RecordedTouch]) -> HashMap<Ino, u64> {
    let mut first = HashMap::new();
    for touch in touches {
        let (TouchKind::Pages { ino, .. }
        | TouchKind::Inode(ino)
        | TouchKind::Opened(ino)
        | TouchKind::Executed(ino)
        | TouchKind::Listed(ino)) = touch.what
        else {
            continue;
        };
        first.entry(ino).or_insert(touch.time);
    }
    first
}

/// When each block of a directory came from the disk, and under `None` the first of them.
fn came(touches: &[RecordedTouch], index: &Index) -> HashMap<(Ino, Option<Lbn>), u64> {
    let mut came = HashMap::new();
    for touch in touches {
        let TouchKind::Requested(extent) = touch.what else { continue };
        for (dir, run) in directories_in(index, extent) {
            let blocks = (0..run.len).map(|at| Some(run.lbn + at));
            for block in blocks.chain([None]) {
                came.entry((dir, block)).or_insert(touch.time);
            }
        }
    }
    came
}

/// The state of a thread.
#[derive(Default)]
struct Thread {
    comm: Option<Box<str>>,
    /// The directory whose blocks it looked at last.
    dir: Option<Ino>,
    /// Blocks of it that were new and of which no reason is known yet.
    blocks: Vec<(u64, Lbn)>,
    /// The block of it that it looked at last, if it has not looked for an inode since.
    holder: Option<Lbn>,
    /// A block of an inode table that it looked at just now.
    table: Option<(u64, BlockNo)>,
    /// A read that may go on.
    read: Option<(Ino, Event)>,
    /// Pages of files that it has made room for and not asked the device for yet.
    pending: u64,
    /// The file in which it touched a mapping last, if it has not read since.
    fault: Option<Ino>,
}

/// The place of a name that a thread looked up.
#[derive(Clone, Copy)]
struct LookupPlace {
    dir: Option<Ino>,
    /// The block of the directory, if that can be told.
    block: Option<Lbn>,
}

struct Assembler<'a> {
    index: &'a Index,
    pages: Pages,
    known: EndState<'a>,
    first_seen: HashMap<Ino, u64>,
    listed: HashSet<(u32, Ino)>,
    threads: HashMap<u32, Thread>,
    looked_up: HashSet<Ino>,
    blocks: HashSet<BlockNo>,
    /// When and by whom a directory was searched last.
    searched: HashMap<Ino, (u64, u32)>,
    /// Pages that are in the trace already.
    seen: HashMap<Ino, PageSet>,
    /// Pages that came from the disk.
    fetched: HashMap<Ino, PageSet>,
    /// Requests are known: fetched blocks of directories need not be guessed.
    requests: bool,
    /// When each block of a directory came from the disk, and under `None` the first of
    /// them.
    came: HashMap<(Ino, Option<Lbn>), u64>,
    /// The blocks of directories in which the names of inodes lie.
    holders: HashMap<Ino, Option<Lbn>>,
    /// The last fetch: thread, file, and end in bytes.
    last: Option<(u32, Ino, u64)>,
    paths: HashMap<Ino, Option<Vec<u8>>>,
    sizes: HashMap<Ino, u64>,
    out: Assembled,
}

impl Assembler<'_> {
    fn take(&mut self, touch: &RecordedTouch) {
        let RecordedTouch { time, tid, ref what } = *touch;
        self.settle_inode(tid, what);
        match *what {
            TouchKind::Block(block) => self.block(time, tid, block),
            TouchKind::Requested(extent) => self.requested(time, tid, extent),
            TouchKind::Inode(ino) => self.look_up(time, tid, ino),
            TouchKind::Pages { ino, first, last, how } => {
                if how == PageAccess::Fetched {
                    self.thread(tid).pending += last + 1 - first;
                }
                self.touch_pages(time, tid, ino, (first, last + 1), how)
            }
            TouchKind::Opened(ino) => self.whole(time, tid, Op::Open, ino),
            TouchKind::Executed(ino) => self.whole(time, tid, Op::Exec, ino),
            TouchKind::Listed(ino) => self.whole(time, tid, Op::Readdir, ino),
            TouchKind::Named(ref comm) => self.thread(tid).comm = Some(comm.clone()),
            TouchKind::Forked(child) => {
                let comm = self.thread(tid).comm.clone();
                self.thread(child).comm = comm;
            }
        }
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    fn path(&mut self, ino: Ino) -> Option<Vec<u8>> {
        let index = self.index;
        let path = self.paths.entry(ino).or_insert_with(|| index.path(ino)).clone();
        self.out.unknown.nameless += u64::from(path.is_none());
        path
    }

    fn event(&mut self, time: u64, tid: u32, op: Op, ino: Ino) -> Option<Event> {
        let path = self.path(ino)?;
        let mut event = Event::new(Nanos::new(time), op, path).by(tid);
        event.comm = self.thread(tid).comm.as_deref().map(String::from);
        Some(event)
    }

    fn whole(&mut self, time: u64, tid: u32, op: Op, ino: Ino) {
        self.end_read(tid);
        // The head of a program is among the pages that it reads or maps.
        let is_exec = op == Op::Exec;
        let event = self.event(time, tid, op, ino);
        self.out.events.extend(event.map(|event| if is_exec { event.on(0, 0) } else { event }));
    }

    /// Blocks were requested from the device: directories and blocks of no file have no other sign
    /// of it. The thread's next fetch is another request, even if it goes on in the same file: a
    /// stream is fetched in windows.
    fn requested(&mut self, time: u64, tid: u32, extent: Extent) {
        if self.last.is_some_and(|(of, ..)| of == tid) {
            self.last = None;
        }
        let size = u64::from(self.index.block_size());
        for (dir, run) in directories_in(self.index, extent) {
            self.last = None;
            self.end_read(tid);
            // The kernel does not tell of a block that it used a moment ago.
            self.searches(time, tid, dir);
            // The kernel reads one block for a name, and several ahead.
            self.thread(tid).holder = (run.len == 1).then_some(run.lbn);
            self.reached(Some(dir));
            let event = self.event(time, tid, Op::Read, dir);
            self.out.events.extend(event.map(|event| Event {
                fetched: true,
                ..event.on(run.lbn.get() * size, run.len * size)
            }));
        }
        // Reads of blocks that are free by now were a file's if a file's pages were to be filled.
        let pages = (extent.len * size).div_ceil(PAGE);
        let thread = self.thread(tid);
        let of_file = thread.pending >= pages;
        thread.pending = thread.pending.saturating_sub(pages);
        for part in self.index.fixed_in(extent, !of_file) {
            self.last = None;
            self.end_read(tid);
            let mut event = Event::new(Nanos::new(time), Op::Device, b"/".to_vec()).by(tid);
            event.comm = self.thread(tid).comm.as_deref().map(String::from);
            event.fetched = true;
            self.out.events.push(event.on(part.start.get() * size, part.len * size));
        }
    }

    /// A metadata block was used.
    fn block(&mut self, time: u64, tid: u32, block: BlockNo) {
        match self.index.owner(block) {
            Some(&Owner::Directory(dir, lbn)) => {
                self.searches(time, tid, dir);
                self.thread(tid).holder = Some(lbn);
                let is_new = self.blocks.insert(block) && !self.requests;
                if is_new && !self.listed.contains(&(tid, dir)) {
                    self.thread(tid).blocks.push((time, lbn));
                }
            }
            Some(Owner::Table(_)) => self.thread(tid).table = Some((time, block)),
            None => {}
        }
    }

    /// A thread looks at blocks of a directory.
    fn searches(&mut self, time: u64, tid: u32, dir: Ino) {
        self.searched.insert(dir, (time, tid));
        if self.thread(tid).dir != Some(dir) {
            self.end_directory(tid);
            self.thread(tid).dir = Some(dir);
        }
    }

    /// A thread that reads a directory, or finds a name in it, has looked it up, and the
    /// directories above it. If no lookup was seen, it is added here.
    fn reached(&mut self, mut dir: Option<Ino>) {
        while let Some(ino) = dir.filter(|ino| self.looked_up.insert(*ino)) {
            dir = self.index.parent(ino);
        }
    }

    /// Finds out which inode a thread looked for, now that its next touch is known.
    fn settle_inode(&mut self, tid: u32, next: &TouchKind) {
        let thread = self.thread(tid);
        let Some((time, block)) = thread.table.take() else { return };
        let found = LookupPlace { dir: thread.dir, block: thread.holder.take() };
        if matches!(next, TouchKind::Inode(ino) if self.index.lies_in(*ino, block)) {
            return;
        }
        match self.candidate(time, found, block) {
            Ok(Some(ino)) => self.look_up(time, tid, ino),
            Ok(None) => {}
            Err(()) => self.out.unknown.inodes += 1,
        }
    }

    /// The inode in `block` that is looked up now: one in the directory that was
    /// just searched, not in memory yet. Of several one whose name lies in the block that
    /// was just looked at; of these the one that is used next, then one that is known to
    /// have been loaded. An error when none is known to have been loaded.
    fn candidate(
        &mut self,
        time: u64,
        found: LookupPlace,
        block: BlockNo,
    ) -> Result<Option<Ino>, ()> {
        let index = self.index;
        let in_dir = found.dir.map_or(&[][..], |dir| index.children(dir, block));
        let anywhere = match index.owner(block) {
            Some(Owner::Table(inodes)) => inodes.as_slice(),
            _ => &[],
        };
        let (near, all) = (self.reachable(in_dir, time), self.reachable(anywhere, time));
        let beside = near.iter().copied();
        let beside: Vec<Ino> = match found.block {
            Some(_) => beside.filter(|ino| self.holder(*ino) == found.block).collect(),
            None => Vec::new(),
        };
        for inodes in [&beside, &near, &all] {
            let used = inodes.iter().filter_map(|ino| {
                Some((self.first_seen.get(ino).filter(|first| **first >= time)?, ino))
            });
            let used = used.min().map(|(_, ino)| *ino);
            let loaded = || inodes.iter().copied().find(|ino| self.known.loaded.contains(ino));
            if let Some(ino) = used.or_else(loaded) {
                return Ok(Some(ino));
            }
        }
        // Inodes in memory already are looked at again: when they are written, say.
        let again = in_dir.len() > near.len() || anywhere.len() > all.len();
        if again || anywhere.is_empty() { Ok(None) } else { Err(()) }
    }

    /// Of some inodes those that are not in memory yet and whose names can be known:
    /// before the block of its directory has come no name in it has been found.
    fn reachable(&mut self, inodes: &[Ino], time: u64) -> Vec<Ino> {
        let mut reachable = inodes.to_vec();
        reachable.retain(|ino| !self.looked_up.contains(ino) && self.has_come(*ino, time));
        reachable
    }

    /// Whether the block with the inode's name had come by then, if it ever came from the
    /// disk; where the block is not known, whether any of the directory had.
    fn has_come(&mut self, ino: Ino, time: u64) -> bool {
        let Some(dir) = self.index.parent(ino) else { return true };
        let holder = self.holder(ino);
        self.came.get(&(dir, holder)).is_none_or(|came| *came <= time)
    }

    /// The block of its directory that holds the inode's name.
    fn holder(&mut self, ino: Ino) -> Option<Lbn> {
        if let Some(&lbn) = self.holders.get(&ino) {
            return lbn;
        }
        let index = self.index;
        let lbn = index.name(ino).and_then(|(dir, name)| (self.known.holder)(dir, name));
        self.holders.insert(ino, lbn);
        lbn
    }

    fn look_up(&mut self, time: u64, tid: u32, ino: Ino) {
        if !self.looked_up.insert(ino) {
            return;
        }
        if let Some(dir) = self.index.parent(ino) {
            self.searched.insert(dir, (time, tid));
            self.reached(Some(dir));
        }
        if self.index.kind(ino) == Some(FileKind::Directory) {
            self.searched.entry(ino).or_insert((time, tid));
        }
        self.end_read(tid);
        let thread = self.thread(tid);
        // The search of the directory led here.
        let since = thread.blocks.first().map_or(time, |(at, _)| *at);
        thread.blocks.clear();
        let event = self.event(since.min(time), tid, Op::Lookup, ino);
        self.out.events.extend(event);
    }

    /// Inodes that were loaded without a trace of it, because their block was in
    /// memory but not among the last few that the processor had used: if they are
    /// in a directory that was searched, they are taken to have been looked up
    /// then.
    fn look_up_rest(&mut self) {
        let mut rest: Vec<Ino> = self.known.loaded.difference(&self.looked_up).copied().collect();
        rest.retain(|ino| !self.first_seen.contains_key(ino));
        rest.sort_unstable();
        for ino in rest {
            let Some(dir) = self.index.parent(ino) else { continue };
            let Some(&(time, tid)) = self.searched.get(&dir) else { continue };
            self.looked_up.insert(ino);
            let event = self.event(time, tid, Op::Lookup, ino);
            self.out.events.extend(event);
        }
    }

    /// Blocks of a directory that were read and led to nothing new: a name that
    /// is not there, or that is in memory.
    fn end_directory(&mut self, tid: u32) {
        let thread = self.thread(tid);
        let (dir, blocks) = (thread.dir.take(), std::mem::take(&mut thread.blocks));
        let Some(dir) = dir else { return };
        let size = u64::from(self.index.block_size());
        for (time, lbn) in blocks {
            let event = self.event(time, tid, Op::Read, dir);
            self.out.events.extend(event.map(|event| event.on(lbn.get() * size, size)));
        }
    }

    fn note_fetched(&mut self, touches: &[RecordedTouch]) {
        for touch in touches {
            if let TouchKind::Pages { ino, first, last, how: PageAccess::Fetched } = touch.what {
                self.fetched.entry(ino).or_default().add(first, last + 1);
            }
        }
    }

    fn touch_pages(
        &mut self,
        time: u64,
        tid: u32,
        ino: Ino,
        (from, to): (u64, u64),
        how: PageAccess,
    ) {
        if self.index.kind(ino) == Some(FileKind::Symlink) {
            if self.seen.entry(ino).or_default().add(0, 1).len() == 1 {
                self.whole(time, tid, Op::Readlink, ino);
            }
            return;
        }
        match how {
            PageAccess::Faulted => self.thread(tid).fault = Some(ino),
            PageAccess::Asked => self.thread(tid).fault = None,
            PageAccess::Mapped | PageAccess::Fetched => {}
        }
        let runs = match (how, self.pages) {
            (PageAccess::Fetched, Pages::Touched) => return,
            (PageAccess::Mapped, _) => self.mapped(ino, from, to),
            // Pages that were never fetched were in memory before.
            (PageAccess::Asked | PageAccess::Faulted, Pages::Fetched) => {
                self.never_fetched(ino, from, to)
            }
            _ => vec![(from, to)],
        };
        let by_fault = matches!(how, PageAccess::Faulted | PageAccess::Mapped)
            || how == PageAccess::Fetched && self.thread(tid).fault == Some(ino);
        let op = if by_fault { Op::Fault } else { Op::Read };
        for (from, to) in runs {
            let fresh = self.seen.entry(ino).or_default().add(from, to);
            for (from, to) in fresh {
                self.read(
                    (time, tid),
                    (op.clone(), how == PageAccess::Fetched),
                    ino,
                    from * PAGE,
                    to * PAGE,
                );
            }
        }
    }

    /// Of some pages those that did not come from the disk.
    fn never_fetched(&self, ino: Ino, from: u64, to: u64) -> Vec<(u64, u64)> {
        let came = self.fetched.get(&ino).map_or_else(Vec::new, |set| set.within(from, to));
        let mut came: PageSet = came.into_iter().collect();
        came.add(from, to)
    }

    /// Of pages around a fault, those that were in memory before anything was
    /// recorded: they are at the end, and never came from the disk.
    fn mapped(&mut self, ino: Ino, from: u64, to: u64) -> Vec<(u64, u64)> {
        let Some(path) = self.paths.entry(ino).or_insert_with(|| self.index.path(ino)).clone()
        else {
            return Vec::new();
        };
        let mut here =
            (self.known.resident)(ino, &path).within(from, to).into_iter().collect::<PageSet>();
        if self.pages == Pages::Touched {
            return here.runs().to_vec();
        }
        let runs = std::mem::take(&mut here);
        runs.runs().iter().flat_map(|&(from, to)| self.never_fetched(ino, from, to)).collect()
    }

    fn size(&mut self, ino: Ino) -> u64 {
        if let Some(&size) = self.sizes.get(&ino) {
            return size;
        }
        let path = self.index.path(ino).unwrap_or_default();
        let size =
            self.index.size(ino).or_else(|| (self.known.size)(ino, &path)).unwrap_or(u64::MAX);
        self.sizes.insert(ino, size);
        size
    }

    /// A range was touched. A range that begins where the thread's last one ended joins it; a
    /// fetched range only if no thread has fetched anything since, so that the trace has the order
    /// of the disk's work.
    fn read(
        &mut self,
        (time, tid): (u64, u32),
        (op, fetched): (Op, bool),
        ino: Ino,
        from: u64,
        to: u64,
    ) {
        let to = to.min(self.size(ino));
        if from >= to {
            return;
        }
        let goes_on = !fetched || self.last == Some((tid, ino, from));
        if fetched {
            self.last = Some((tid, ino, to));
        }
        if let Some((of, event)) = &mut self.thread(tid).read {
            let end = event.offset + event.length.unwrap_or(0);
            if goes_on && (*of, end, &event.op, event.fetched) == (ino, from, &op, fetched) {
                event.length = Some(to - event.offset);
                return;
            }
        }
        self.end_read(tid);
        if let Some(event) = self.event(time, tid, op, ino) {
            let event = Event { fetched, ..event.on(from, to - from) };
            self.thread(tid).read = Some((ino, event));
        }
    }

    fn end_read(&mut self, tid: u32) {
        let read = self.thread(tid).read.take();
        self.out.events.extend(read.map(|(_, event)| event));
    }

    fn finish(&mut self) {
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            // Nothing comes next: the last inode looked for is settled as it is.
            self.settle_inode(tid, &TouchKind::Forked(0));
            self.end_directory(tid);
            self.end_read(tid);
        }
    }
}

#[cfg(test)]
mod tests;
