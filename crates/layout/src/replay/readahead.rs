//! Linux's file read-ahead (`mm/readahead.c`, kernels 6.10 to 6.18): which
//! pages a read fetches besides its own.

use crate::pages::PageSet;
use std::collections::BTreeMap;

/// Bytes in a page of memory.
const PAGE: u64 = 4096;

/// Pages in a node of the page cache's tree (`XA_CHUNK_SIZE`).
const NODE: u64 = 64;

/// The largest folio of the page cache (`MAX_PAGECACHE_ORDER` with pages of
/// 4 KiB).
const ORDER_MAX: u32 = 9;

/// Faults that miss, more than others, after which nothing is read around them
/// (`MMAP_LOTSAMISS`), and as many as are counted.
const MISSES_MAX: u32 = 100;
const MISSES_COUNTED: u32 = 10 * MISSES_MAX;

/// Which pages of a file are in memory, and which folios carry the mark that
/// starts the next read-ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    held: PageSet,
    /// First page of a marked folio, and how many pages it has.
    marks: BTreeMap<u64, u64>,
}

impl PageCache {
    /// Whether a page is there.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.range_at(page).is_some()
    }

    /// Whether the first `pages` pages are there.
    pub(crate) fn has_all(&self, pages: u64) -> bool {
        pages == 0 || self.range_at(0).is_some_and(|(_, to)| to >= pages)
    }

    fn range_at(&self, page: u64) -> Option<(u64, u64)> {
        self.held.run_at(page)
    }

    /// Of pages `from..to`, the runs that are there and carry no mark.
    pub(crate) fn unmarked(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let marked = |page: u64| {
            let mark = self.marks.range(..=page).next_back();
            mark.is_some_and(|(start, len)| page < start + len)
        };
        let there = (from..to).filter(|page| self.has(*page) && !marked(*page));
        there.map(|page| (page, page + 1)).collect()
    }

    /// Adds pages `from..to` and returns the runs that were not there.
    pub(crate) fn add(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        self.held.add(from, to)
    }

    /// Takes the mark off the folio that holds a page: its first page and length.
    fn take_mark(&mut self, page: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.marks.range(..=page).next_back()?;
        if start + len <= page {
            return None;
        }
        self.marks.remove(&start);
        Some((start, len))
    }

    /// How many pages before `page` follow each other without a gap, up to `most`.
    fn history(&self, page: u64, most: u64) -> (u64, bool) {
        let Some(before) = page.checked_sub(1) else { return (0, true) };
        match self.range_at(before) {
            None => (0, false),
            Some((from, _)) if page - from <= most => (page - from, from == 0),
            Some(_) => (most, false),
        }
    }

    /// Whether any of pages `from..to` is there.
    fn overlaps(&self, from: u64, to: u64) -> bool {
        !self.held.within(from, to).is_empty()
    }

    /// The first page from `page` on that is not there, looking at `most`.
    fn next_missing(&self, page: u64, most: u64) -> u64 {
        match self.range_at(page) {
            None => page,
            Some((_, to)) => to.min(page + most),
        }
    }
}

/// Limits of a device and its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Pages fetched at once for one that reads little at a time
    /// (`read_ahead_kb`).
    pub(crate) read_ahead: u64,
    /// Pages in a request (`max_sectors_kb`), which one that reads more than
    /// `read_ahead` in one go is given.
    pub(crate) request: u64,
    /// Pieces of memory in a request (`max_segments`).
    pub(crate) segments: u64,
}

impl Limits {
    /// `ractl_max_pages`.
    fn window(&self, wanted: u64) -> u64 {
        if wanted > self.read_ahead && self.request > self.read_ahead {
            wanted.min(self.request)
        } else {
            self.read_ahead
        }
    }
}

/// The state of one open file (`struct file_ra_state`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAhead {
    start: u64,
    size: u64,
    async_size: u64,
    /// Power of two of the pages in a folio.
    order: u32,
    /// The page that the last read ended in, or before; none is [`u64::MAX`].
    previous: u64,
    /// Faults for pages that were not there, less those for pages that were
    /// (`mmap_miss`).
    faults_missed: u32,
    limits: Limits,
}

impl ReadAhead {
    pub(crate) fn new(limits: Limits) -> Self {
        let limits = Limits {
            read_ahead: limits.read_ahead,
            request: limits.request.max(1),
            segments: limits.segments.max(1),
        };
        Self {
            start: 0,
            size: 0,
            async_size: 0,
            order: 0,
            previous: u64::MAX,
            faults_missed: 0,
            limits,
        }
    }

    /// Reads pages `from..to` of a file of `pages` pages, of the last up to byte
    /// `end` of the file: the runs that have to be fetched, in the order in which
    /// they are asked for.
    pub(crate) fn read(
        &mut self,
        cache: &mut PageCache,
        (from, to): (u64, u64),
        end: u64,
        pages: u64,
    ) -> Vec<(u64, u64)> {
        let mut fetched = Vec::new();
        let to = to.min(pages);
        for page in from..to {
            if !cache.has(page) {
                self.missed(cache, page, to - page, pages, &mut fetched);
            }
            if let Some(folio) = cache.take_mark(page) {
                self.marked(cache, folio, to - folio.0, pages, &mut fetched);
            }
        }
        if from < to {
            self.previous = end / PAGE;
        }
        fetched
    }

    /// `pages` resident pages were mapped by fault-around (`filemap_map_pages`).
    pub(crate) fn mapped(&mut self, pages: u32) {
        self.faults_missed = self.faults_missed.saturating_sub(pages);
    }

    /// A page of a mapped file of `pages` pages is touched that is not mapped yet, in an
    /// executable segment up to page `within` or in any other mapping: the runs that
    /// have to be fetched.
    pub(crate) fn fault(
        &mut self,
        cache: &mut PageCache,
        page: u64,
        within: Option<u64>,
        pages: u64,
    ) -> Vec<(u64, u64)> {
        let mut fetched = Vec::new();
        let most = self.limits.read_ahead;
        if page >= pages {
            return fetched;
        }
        if cache.has(page) {
            self.faults_missed = self.faults_missed.saturating_sub(1);
            if let Some(folio) = cache.take_mark(page).filter(|_| most > 0) {
                self.marked(cache, folio, most, pages, &mut fetched);
            }
            return fetched;
        }
        self.faults_missed = (self.faults_missed + 1).min(MISSES_COUNTED);
        if most > 0 && self.faults_missed <= MISSES_MAX {
            (self.start, self.size, self.async_size) = match within {
                Some(end) => (page, most.min(end - page), 0),
                None => (page.saturating_sub(most / 2), most, most / 4),
            };
            self.order = 0;
            self.submit(cache, pages, &mut fetched);
        }
        // Without read-ahead just this one.
        fetched.extend(cache.add(page, page + 1));
        fetched
    }

    /// A block of a directory is listed, which is in page `page` of a device of
    /// `pages` pages (`ext4_readdir`, `fs/ext4/dir.c`): the runs that are fetched
    /// ahead. Whether the page is in memory is not asked before.
    pub(crate) fn list(&mut self, cache: &mut PageCache, page: u64, pages: u64) -> Vec<(u64, u64)> {
        let mut fetched = Vec::new();
        if !(self.start..self.start + self.size).contains(&page) {
            self.missed(cache, page, 1, pages, &mut fetched);
        }
        self.previous = page;
        fetched
    }

    /// `page_cache_sync_ra`: a page that is not there.
    fn missed(
        &mut self,
        cache: &mut PageCache,
        page: u64,
        wanted: u64,
        pages: u64,
        fetched: &mut Vec<(u64, u64)>,
    ) {
        if self.limits.read_ahead == 0 {
            fetched.extend(cache.add(page, page + 1));
            return;
        }
        let most = self.limits.window(wanted);
        let steps = page.wrapping_sub(self.previous);
        if page == 0 || wanted > most || steps <= 1 {
            // The start of a file, a large read, or one that goes on.
            self.start = page;
            self.size = initial_size(wanted, most);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size >> 1 };
        } else {
            let (mut before, from_start) = cache.history(page, most);
            if before <= wanted {
                // Small and random: just the wanted pages.
                let single = |(from, to)| (from..to).map(|page| (page, page + 1));
                let folios =
                    cache.add(page, (page + wanted).min(pages)).into_iter().flat_map(single);
                self.requests(folios, fetched);
                return;
            }
            if from_start {
                before *= 2;
            }
            self.start = page;
            self.size = (before + wanted).min(most);
            self.async_size = 1;
        }
        self.order = 0;
        self.submit(cache, pages, fetched);
    }

    /// `page_cache_async_ra`: a folio with the mark.
    fn marked(
        &mut self,
        cache: &mut PageCache,
        (page, len): (u64, u64),
        wanted: u64,
        pages: u64,
        fetched: &mut Vec<(u64, u64)>,
    ) {
        let most = self.limits.window(wanted);
        let expected = (self.start + self.size).saturating_sub(self.async_size);
        if page == expected - expected % len {
            self.start += self.size;
            self.size = self.size.max(next_size(self.size, most));
        } else {
            let start = counted_miss(page, len, cache.next_missing(page + 1, most));
            if start - page > most {
                return;
            }
            self.start = start;
            self.size = next_size(start - page + wanted, most);
        }
        self.align(most);
        self.async_size = self.size;
        self.submit(cache, pages, fetched);
    }

    /// Makes folios larger as the reading goes on, and ends the window with one.
    fn align(&mut self, most: u64) {
        self.order += 2;
        let unit = 1u64 << self.order.min(most.trailing_zeros());
        let end = self.start + self.size;
        let aligned = end - end % unit;
        if aligned > self.start {
            self.size -= end - aligned;
        }
    }

    /// `page_cache_ra_order`: fetches the window, in folios of the order that has
    /// been reached where they fit, and marks the one that starts the next window.
    fn submit(&mut self, cache: &mut PageCache, pages: u64, fetched: &mut Vec<(u64, u64)>) {
        let end = (self.start + self.size).min(pages);
        if self.start >= end {
            return;
        }
        self.order = self.order.min(self.size.max(1).ilog2()).min(ORDER_MAX);
        let mark = (self.start + self.size).saturating_sub(self.async_size);
        let mut folios = Vec::new();
        let mut order = self.order;
        let mut page = self.start;
        while page < end {
            let len = 1u64 << order.min(page.trailing_zeros()).min((end - page).ilog2());
            if cache.overlaps(page, page + len) {
                // The folios so far are submitted; from here on page by page, past those in memory.
                self.requests(folios.drain(..), fetched);
                if len == 1 {
                    page += 1;
                }
                order = 0;
                continue;
            }
            if page == mark - mark % len {
                cache.marks.insert(page, len);
            }
            folios.push((page, page + len));
            cache.add(page, page + len);
            page += len;
        }
        self.requests(folios.into_iter(), fetched);
    }

    /// Joins folios that follow each other to requests that the device takes.
    fn requests(&self, folios: impl Iterator<Item = (u64, u64)>, fetched: &mut Vec<(u64, u64)>) {
        let mut run: Option<(u64, u64)> = None;
        let mut segments = 0;
        for (from, to) in folios {
            let fits = |run: &(u64, u64)| {
                run.1 == from
                    && segments < self.limits.segments
                    && to - run.0 <= self.limits.request
            };
            match run.filter(fits) {
                Some((start, _)) => {
                    run = Some((start, to));
                    segments += 1;
                }
                None => {
                    fetched.extend(run.replace((from, to)));
                    segments = 1;
                }
            }
        }
        fetched.extend(run);
    }
}

/// `get_init_ra_size`.
fn initial_size(wanted: u64, most: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// The result of `page_cache_next_miss` for a miss, if called from the second page of a folio on.
/// It counts from the folio's start, and so gives one page too far, until it comes to another node
/// of the tree, where it finds its place again. A folio that fills a node has no place within one.
fn counted_miss(page: u64, len: u64, miss: u64) -> u64 {
    let next_node = (page / NODE + 1) * NODE;
    if (2..NODE).contains(&len) && miss <= next_node { miss + 1 } else { miss }
}

/// `get_next_ra_size`.
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        size * 4
    } else if size <= most / 2 {
        size * 2
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn state_of(read_ahead: u64) -> ReadAhead {
        ReadAhead::new(Limits { read_ahead, request: 320, segments: 128 })
    }

    fn read(
        state: &mut ReadAhead,
        cache: &mut PageCache,
        pages: Range<u64>,
        of: u64,
    ) -> Vec<(u64, u64)> {
        state.read(cache, (pages.start, pages.end), pages.end.min(of) * PAGE, of)
    }

    #[test]
    fn a_sequential_reader_gets_windows_that_grow() {
        // 4 KiB reads of a 1 MiB file: the requests of a kernel with 128 KiB of read-ahead.
        let (mut cache, mut state) = (PageCache::default(), state_of(32));
        let mut windows = Vec::new();
        for page in 0..256 {
            windows.extend(read(&mut state, &mut cache, page..page + 1, 256));
        }
        let sizes: Vec<u64> = windows.iter().map(|(from, to)| to - from).collect();
        assert_eq!(sizes[..9], [4, 8, 4, 8, 8, 16, 16, 32, 32]);
        assert_eq!(sizes.iter().sum::<u64>(), 256);
    }

    #[test]
    fn the_first_window_grows_with_what_is_wanted() {
        // get_init_ra_size of the kernel, of a window of 32 pages and of 512.
        let sizes = |most| [1, 2, 3, 5, 8, 9, 16, 17, 100].map(|wanted| initial_size(wanted, most));
        assert_eq!(sizes(32), [4, 4, 8, 16, 16, 32, 32, 32, 32]);
        assert_eq!(sizes(512), [4, 8, 16, 32, 32, 64, 64, 64, 256]);
        assert_eq!(initial_size(129, 512), 512);
        let first = |wanted: u64, most: u64| {
            let (mut cache, mut state) = (PageCache::default(), state_of(most));
            read(&mut state, &mut cache, 0..wanted, 10_000)[0]
        };
        for (wanted, most) in [(1, 32), (3, 32), (9, 32), (1, 512), (5, 512), (17, 512)] {
            assert_eq!(first(wanted, most), (0, initial_size(wanted, most)), "{wanted} of {most}");
        }
        // get_next_ra_size: four times, twice, and all there is.
        let next = [1, 2, 16, 17, 32].map(|size| next_size(size, 32));
        assert_eq!(next, [4, 4, 32, 32, 32]);
        assert_eq!([1, 31, 32, 256, 257].map(|size| next_size(size, 512)), [4, 124, 64, 512, 512]);
    }

    #[test]
    fn a_random_reader_gets_what_it_asks_for() {
        let (mut cache, mut state) = (PageCache::default(), state_of(32));
        assert_eq!(read(&mut state, &mut cache, 100..101, 1000), [(100, 101)]);
        assert_eq!(read(&mut state, &mut cache, 500..502, 1000), [(500, 502)]);
    }

    #[test]
    fn a_small_file_is_read_to_its_end_and_not_beyond() {
        let (mut cache, mut state) = (PageCache::default(), state_of(32));
        assert_eq!(read(&mut state, &mut cache, 0..3, 3), [(0, 3)]);
    }

    #[test]
    fn the_mark_starts_the_next_window_before_it_is_needed() {
        let (mut cache, mut state) = (PageCache::default(), state_of(32));
        // Window 0..4 with 3 pages of it ahead: the mark is on page 1.
        assert_eq!(read(&mut state, &mut cache, 0..1, 100), [(0, 4)]);
        assert_eq!(cache.marks.keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(read(&mut state, &mut cache, 1..2, 100), [(4, 12)]);
        assert!(read(&mut state, &mut cache, 2..4, 100).is_empty());
        assert_eq!(read(&mut state, &mut cache, 4..5, 100), [(12, 16)]);
    }

    #[test]
    fn a_large_read_is_fetched_in_requests_that_the_device_takes() {
        let (mut cache, mut state) = (PageCache::default(), state_of(32));
        let fetched = read(&mut state, &mut cache, 0..256, 256);
        assert_eq!(fetched.iter().map(|(from, to)| to - from).max(), Some(128));
        assert_eq!(fetched.first(), Some(&(0, 128)));
        assert_eq!(cache.held.runs(), [(0, 256)]);
        assert!(read(&mut state, &mut cache, 0..256, 256).is_empty(), "nothing is read twice");
    }

    #[test]
    fn a_stream_found_by_its_history_goes_on() {
        // Another descriptor has read the first pages: a fresh state finds them in the cache before
        // the page, and so treats the file as read in order.
        let mut cache = PageCache::default();
        cache.add(0, 8);
        let mut state = state_of(32);
        assert_eq!(read(&mut state, &mut cache, 8..9, 1000), [(8, 25)]);
    }

    #[test]
    fn two_readers_of_one_file_share_what_is_cached() {
        let mut cache = PageCache::default();
        let (mut one, mut two) = (state_of(32), state_of(32));
        assert_eq!(read(&mut one, &mut cache, 0..4, 100), [(0, 8)]);
        let again = read(&mut two, &mut cache, 0..4, 100);
        assert!(again.iter().all(|&(from, _)| from >= 8), "{again:?}");
    }

    #[test]
    fn a_miss_is_counted_one_too_far_until_the_next_node() {
        assert_eq!(counted_miss(8, 4, 20), 21);
        assert_eq!(counted_miss(8, 1, 20), 20, "a folio of one page has no second");
        assert_eq!(counted_miss(8, 4, 64), 65, "the first page of a node is passed over");
        assert_eq!(counted_miss(8, 4, 65), 65);
        assert_eq!(counted_miss(1344, 64, 1400), 1400);
    }

    #[test]
    fn without_read_ahead_a_page_is_fetched_at_a_time() {
        let (mut cache, mut state) = (PageCache::default(), state_of(0));
        assert_eq!(read(&mut state, &mut cache, 7..9, 100), [(7, 8), (8, 9)]);
    }
}
