//! Requests for reading a file: page cache, read-ahead, and the blocks behind them.

use super::readahead::{Limits, ReadAhead};
use super::{LARGE_HOLE, PAGE, Purpose, Replay, Request};
use crate::trace::{EventRef, Op};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Extent, Ino, Lbn};

impl Replay<'_> {
    pub(super) fn read_file(&mut self, event: &EventRef<'_>, ino: Ino) -> Result<(), FsError> {
        let (offset, end) = (event.offset, event.end());
        let Some(file) = self.files.get(&ino) else { return Ok(()) };
        if file.attr.kind == FileKind::Directory {
            return self.read_directory_range(ino, offset, end);
        }
        if file.attr.kind != FileKind::Regular {
            return Ok(());
        }
        let size = file.attr.size;
        let end = end.map_or(size, |end| end.min(size));
        if self.read.insert(ino) {
            self.out.files.push(ino);
        }
        if offset >= end {
            return Ok(());
        }
        if event.fetched {
            return self.fetch(ino, offset / PAGE, end.div_ceil(PAGE));
        }
        if *event.op == Op::Fault {
            return self.fault(event.pid, ino, offset / PAGE, end.div_ceil(PAGE));
        }
        self.read_bytes(event.pid, ino, offset, end)
    }

    /// Fetches pages that the kernel was seen to fetch: those that are not in memory, and no
    /// others. Its read-ahead is among them.
    fn fetch(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        let most = (self.machine.max_request.get() / PAGE).max(1);
        for (from, to) in self.spans(ino, from, to)? {
            self.map(ino)?;
            let Some(file) = self.files.get_mut(&ino) else { return Ok(()) };
            let missing = file.pages.add(from, to);
            self.touch_data(ino, from, to)?;
            for (first, end) in missing {
                for start in (first..end).step_by(usize::try_from(most).unwrap_or(usize::MAX)) {
                    self.read_data(ino, start, end.min(start + most))?;
                }
            }
        }
        Ok(())
    }

    /// Blocks of a directory that were searched for a name that is not known.
    fn read_directory_range(
        &mut self,
        dir: Ino,
        offset: u64,
        end: Option<u64>,
    ) -> Result<(), FsError> {
        let bs = self.block_size;
        let end = end.map_or(u64::MAX, |end| end.div_ceil(bs));
        let within = |lbn: &Lbn| (offset / bs..end).contains(&lbn.get());
        let blocks: Vec<Lbn> = self.image.listing_blocks(dir)?.into_iter().filter(within).collect();
        self.read_directory(dir, &blocks)
    }

    pub(super) fn read_bytes(
        &mut self,
        pid: u32,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<(), FsError> {
        for (from, to) in self.spans(ino, offset / PAGE, end.div_ceil(PAGE))? {
            self.read_span(pid, ino, (from, to), end.min(to * PAGE))?;
        }
        Ok(())
    }

    /// The parts of a range of pages that hold data. Small holes are read with the data around
    /// them; large ones would only take time.
    pub(super) fn spans(
        &mut self,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<Vec<(u64, u64)>, FsError> {
        let bs = self.block_size;
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (lbn, extent) in self.extents(ino, from, to)? {
            let first = (lbn.get() * bs / PAGE).max(from);
            let end = ((lbn.get() + extent.len) * bs).div_ceil(PAGE).min(to);
            match spans.last_mut() {
                Some(last) if first <= last.1 + LARGE_HOLE => last.1 = last.1.max(end),
                _ => spans.push((first, end)),
            }
        }
        Ok(spans)
    }

    fn read_span(
        &mut self,
        pid: u32,
        ino: Ino,
        (from, to): (u64, u64),
        end: u64,
    ) -> Result<(), FsError> {
        self.map(ino)?;
        let limits = self.limits();
        let Some(file) = self.files.get_mut(&ino) else { return Ok(()) };
        let pages = file.attr.size.div_ceil(PAGE).max(1);
        let state = self.states.entry((pid, ino)).or_insert_with(|| ReadAhead::new(limits));
        let fetched = state.read(&mut file.pages, (from, to), end, pages);
        self.touch_data(ino, from, to.min(pages))?;
        for (first, end) in fetched {
            self.read_data(ino, first, end)?;
        }
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            read_ahead: self.machine.read_ahead.get() / PAGE,
            request: self.machine.max_request.get() / PAGE,
            segments: self.machine.max_segments,
        }
    }

    /// Counts the blocks asked for, read-ahead aside.
    pub(super) fn touch_data(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        for extent in self.extents(ino, from, to)? {
            for at in 0..extent.1.len {
                self.touched.insert(extent.1.start + at);
            }
        }
        Ok(())
    }

    /// The disk's runs under pages `from..to`, in logical order, holes and
    /// unwritten blocks left out.
    fn extents(&mut self, ino: Ino, from: u64, to: u64) -> Result<Vec<(Lbn, Extent)>, FsError> {
        let bs = self.block_size;
        let (first, end) = (from * PAGE / bs, (to * PAGE).div_ceil(bs));
        let map = self.map(ino)?;
        let start = map.runs.partition_point(|run| run.lbn.get() + run.extent.len <= first);
        let mut extents = Vec::new();
        for run in map.runs.iter().skip(start) {
            let (low, high) = (run.lbn.get(), run.lbn.get() + run.extent.len);
            if low >= end {
                break;
            }
            if run.unwritten {
                continue;
            }
            let (low_cut, high_cut) = (low.max(first), high.min(end));
            let start = run.extent.start + (low_cut - low);
            extents.push((Lbn::new(low_cut), Extent::new(start, high_cut - low_cut)));
        }
        Ok(extents)
    }

    /// Reads a window. It is submitted at once, and so runs that follow each other on the disk are
    /// one request, be there a hole between in the file; reading a block of the map in between
    /// submits the requests so far (`blk_start_plug`).
    pub(super) fn read_data(&mut self, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        let most = (self.machine.max_request.get() / self.block_size).max(1);
        for (lbn, extent) in self.extents(ino, from, to)? {
            let before = self.out.requests.len();
            self.read_map(ino, lbn)?;
            let is_next = |last: &&mut Request| {
                (last.event, last.ino, last.purpose) == (self.event, ino, Purpose::Data)
                    && last.lbn.get() >= from * PAGE / self.block_size
                    && last.extent.end() == extent.start
                    && last.extent.len + extent.len <= most
            };
            let may_merge = self.machine.merges && self.out.requests.len() == before;
            match self.out.requests.last_mut().filter(is_next).filter(|_| may_merge) {
                Some(last) => last.extent.len += extent.len,
                None => self.request(extent, Purpose::Data, ino, lbn),
            }
        }
        Ok(())
    }
}
