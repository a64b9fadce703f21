//! Linux's file read-ahead (`mm/readahead.c`, kernels 6.10 to 6.18): which
//! pages a read fetches besides its own.

use crate::pages::PageSet;

/// Which pages of a file are in memory, and which carry the mark that starts
/// the next read-ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    held: PageSet,
    marks: std::collections::HashSet<u64>,
}

impl PageCache {
    /// Whether a page is there.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.range_at(page).is_some()
    }

    fn range_at(&self, page: u64) -> Option<(u64, u64)> {
        self.held.run_at(page)
    }

    /// Adds pages `from..to` and returns the runs that were not there.
    pub(crate) fn add(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        self.held.add(from, to)
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

    /// The first page from `page` on that is not there, looking at `most`.
    fn next_missing(&self, page: u64, most: u64) -> u64 {
        match self.range_at(page) {
            None => page,
            Some((_, to)) => to.min(page + most),
        }
    }
}

/// The state of one open file (`struct file_ra_state`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAhead {
    start: u64,
    size: u64,
    async_size: u64,
    /// The page read last; none is [`u64::MAX`].
    previous: u64,
    /// The most pages fetched at once (`read_ahead_kb`).
    most: u64,
}

impl ReadAhead {
    pub(crate) fn new(most: u64) -> Self {
        Self { start: 0, size: 0, async_size: 0, previous: u64::MAX, most: most.max(1) }
    }

    /// Reads pages `from..to` of a file of `pages` pages: the runs that have to
    /// be fetched, in the order in which they are asked for.
    pub(crate) fn read(
        &mut self,
        cache: &mut PageCache,
        from: u64,
        to: u64,
        pages: u64,
    ) -> Vec<(u64, u64)> {
        let mut fetched = Vec::new();
        let to = to.min(pages);
        let mut page = from;
        while page < to {
            if !cache.has(page) {
                self.missed(cache, page, to - page, pages, &mut fetched);
            }
            if cache.marks.remove(&page) {
                self.marked(cache, page, to - page, pages, &mut fetched);
            }
            page += 1;
        }
        if from < to {
            self.previous = to - 1;
        }
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
        let steps = page.wrapping_sub(self.previous);
        if page == 0 || wanted > self.most || steps <= 1 {
            // The start of a file, a large read, or one that goes on.
            self.start = page;
            self.size = initial_size(wanted, self.most);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size >> 1 };
        } else {
            let (mut before, from_start) = cache.history(page, self.most);
            if before <= wanted {
                // Small and random: just what is asked for.
                fetched.extend(cache.add(page, (page + wanted).min(pages)));
                return;
            }
            if from_start {
                before *= 2;
            }
            self.start = page;
            self.size = (before + wanted).min(self.most);
            self.async_size = 1;
        }
        // A large request is fetched whole, in windows.
        self.submit(cache, pages, fetched);
    }

    /// `page_cache_async_ra`: a page with the mark.
    fn marked(
        &mut self,
        cache: &mut PageCache,
        page: u64,
        wanted: u64,
        pages: u64,
        fetched: &mut Vec<(u64, u64)>,
    ) {
        if page == (self.start + self.size).saturating_sub(self.async_size) {
            self.start += self.size;
            self.size = next_size(self.size, self.most);
        } else {
            let start = cache.next_missing(page + 1, self.most);
            if start - page > self.most {
                return;
            }
            self.start = start;
            self.size = next_size(start - page + wanted, self.most);
        }
        self.async_size = self.size;
        self.submit(cache, pages, fetched);
    }

    /// Fetches the window and sets the mark for the next one.
    fn submit(&mut self, cache: &mut PageCache, pages: u64, fetched: &mut Vec<(u64, u64)>) {
        let end = (self.start + self.size).min(pages);
        if self.start >= end {
            return;
        }
        let mark = (self.start + self.size).saturating_sub(self.async_size);
        let missing = cache.add(self.start, end);
        if missing.iter().any(|&(from, to)| (from..to).contains(&mark)) {
            cache.marks.insert(mark);
        }
        fetched.extend(missing);
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

    #[test]
    fn a_sequential_reader_gets_windows_that_double() {
        // 4 KiB reads of a 1 MiB file: what a kernel with 128 KiB of read-ahead
        // asks a disk for.
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(32));
        let mut windows = Vec::new();
        for page in 0..256 {
            windows.extend(state.read(&mut cache, page, page + 1, 256));
        }
        let sizes: Vec<u64> = windows.iter().map(|(from, to)| to - from).collect();
        assert_eq!(sizes[..5], [4, 8, 16, 32, 32]);
        assert_eq!(sizes.iter().sum::<u64>(), 256);
    }

    #[test]
    fn a_random_reader_gets_what_it_asks_for() {
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(32));
        assert_eq!(state.read(&mut cache, 100, 101, 1000), [(100, 101)]);
        assert_eq!(state.read(&mut cache, 500, 502, 1000), [(500, 502)]);
    }

    #[test]
    fn a_small_file_is_read_to_its_end_and_not_beyond() {
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(32));
        assert_eq!(state.read(&mut cache, 0, 3, 3), [(0, 3)]);
    }

    #[test]
    fn the_mark_starts_the_next_window_before_it_is_needed() {
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(32));
        // Window 0..4 with 3 pages of it ahead: the mark is on page 1.
        assert_eq!(state.read(&mut cache, 0, 1, 100), [(0, 4)]);
        assert_eq!(cache.marks.iter().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(state.read(&mut cache, 1, 2, 100), [(4, 12)]);
        assert!(state.read(&mut cache, 2, 4, 100).is_empty());
        assert_eq!(state.read(&mut cache, 4, 5, 100), [(12, 28)]);
    }

    #[test]
    fn a_large_read_is_fetched_in_windows_of_the_limit() {
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(32));
        let fetched = state.read(&mut cache, 0, 256, 256);
        assert_eq!(fetched.iter().map(|(from, to)| to - from).max(), Some(32));
        assert_eq!(fetched.first(), Some(&(0, 32)));
        assert_eq!(cache.held.runs(), [(0, 256)]);
        assert!(state.read(&mut cache, 0, 256, 256).is_empty(), "nothing is read twice");
    }

    #[test]
    fn a_stream_found_by_its_history_goes_on() {
        // Another descriptor has read the first pages: what a fresh state finds
        // in the cache before the page tells it that the file is read in order.
        let mut cache = PageCache::default();
        cache.add(0, 8);
        let mut state = ReadAhead::new(32);
        assert_eq!(state.read(&mut cache, 8, 9, 1000), [(8, 25)]);
    }

    #[test]
    fn two_readers_of_one_file_share_what_is_cached() {
        let mut cache = PageCache::default();
        let (mut one, mut two) = (ReadAhead::new(32), ReadAhead::new(32));
        assert_eq!(one.read(&mut cache, 0, 4, 100), [(0, 8)]);
        let again = two.read(&mut cache, 0, 4, 100);
        assert!(again.iter().all(|&(from, _)| from >= 8), "{again:?}");
    }

    #[test]
    fn without_read_ahead_a_page_is_fetched_at_a_time() {
        let (mut cache, mut state) = (PageCache::default(), ReadAhead::new(0));
        assert_eq!(state.read(&mut cache, 7, 9, 100), [(7, 8), (8, 9)]);
    }
}
