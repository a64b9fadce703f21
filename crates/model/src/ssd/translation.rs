//! Locations of pages: the flash translation layer, with page mapping and greedy garbage
//! collection.
//!
//! Only pages written during the run are stored one by one. The locations of the others follow from
//! the drive's history, by a formula that can be inverted.

use super::{History, SsdSpec};
use hashbrown::HashMap;
use seekless_units::SECTOR;

/// Minimum number of free blocks of a die; below it, blocks are collected.
const RESERVE: usize = 2;

/// A block that is being filled with pages.
#[derive(Clone, Debug, Default)]
struct Open {
    block: usize,
    filled: u32,
}

/// One die's blocks.
#[derive(Clone, Debug)]
struct Die {
    /// Valid pages of each block.
    valid: Vec<u32>,
    /// The pages written to a block during the run; `None` for a block with its earlier contents.
    written: Vec<Option<Vec<u64>>>,
    free: Vec<usize>,
    open: Open,
}

/// The cost of a write to its die.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Written {
    pub(super) die: usize,
    /// Pages copied by garbage collection.
    pub(super) copied: u64,
    /// Blocks erased by it.
    pub(super) erased: u64,
}

/// The translation layer.
#[derive(Clone, Debug)]
pub(super) struct Translation {
    dies: Vec<Die>,
    next_die: usize,
    pages: u64,
    per_block: u32,
    /// Multiplier of the scattering, and its inverse.
    scatter: (u64, u64),
    moved: HashMap<u64, (u32, u32)>,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The inverse of `a` modulo `m`; the two are coprime.
fn inverse(a: u64, m: u64) -> u64 {
    let (mut r, mut s) = ((i128::from(m), i128::from(a)), (0i128, 1i128));
    while r.1 != 0 {
        let quotient = r.0 / r.1;
        r = (r.1, r.0 - quotient * r.1);
        s = (s.1, s.0 - quotient * s.1);
    }
    u64::try_from(s.0.rem_euclid(i128::from(m))).unwrap_or(0)
}

fn multiply(a: u64, b: u64, m: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) % u128::from(m)).unwrap_or(0)
}

impl Translation {
    pub(super) fn new(spec: &SsdSpec) -> Self {
        let pages = spec.sectors.saturating_mul(SECTOR).div_ceil(spec.page.into()).max(1);
        let count = spec.channels as usize * spec.dies_per_channel as usize;
        let blocks = pages.div_ceil(count as u64).div_ceil(spec.pages_per_block.into()) as usize;
        // The host's blocks are the visible fraction of all; some must be free.
        let all = (blocks as f64 / (1.0 - spec.spare)).ceil() as usize;
        let all = all.max(blocks + RESERVE + 2);
        let die = |number: usize| Die {
            valid: (0..all).map(|block| full(spec, pages, count, number, block)).collect(),
            written: vec![None; all],
            free: (blocks..all - 1).rev().collect(),
            open: Open { block: all - 1, filled: 0 },
        };
        let scatter = match spec.history {
            History::Sequential => (1, 1),
            History::Random => {
                // The golden ratio's share of all pages, for maximum scattering.
                let mut by = ((pages as f64 * 0.618_033_988_749_895) as u64).max(1);
                while gcd(by, pages) != 1 {
                    by += 1;
                }
                (by, inverse(by, pages))
            }
        };
        let dies = (0..count).map(die).collect();
        let per_block = spec.pages_per_block;
        Self { dies, next_die: 0, pages, per_block, scatter, moved: HashMap::new() }
    }

    /// Die and block of a page.
    fn place(&self, page: u64) -> (usize, usize) {
        if let Some(&(die, block)) = self.moved.get(&page) {
            return (die as usize, block as usize);
        }
        let slot = multiply(page % self.pages, self.scatter.0, self.pages);
        let dies = self.dies.len() as u64;
        ((slot % dies) as usize, (slot / dies / u64::from(self.per_block)) as usize)
    }

    /// The die that contains a page.
    pub(super) fn die(&self, page: u64) -> usize {
        self.place(page).0
    }

    /// Writes a page to the next die in turn.
    pub(super) fn write(&mut self, page: u64) -> Written {
        let die = self.next_die;
        self.next_die = (self.next_die + 1) % self.dies.len();
        let mut written = Written { die, ..Written::default() };
        while self.dies[die].free.len() < RESERVE && self.collect(die, &mut written) {}
        let (old_die, old_block) = self.place(page);
        let valid = &mut self.dies[old_die].valid[old_block];
        debug_assert!(*valid > 0, "the block of a page counts it");
        *valid -= 1;
        self.append(die, page);
        written
    }

    fn append(&mut self, number: usize, page: u64) {
        let die = &mut self.dies[number];
        if die.open.filled >= self.per_block
            && let Some(block) = die.free.pop()
        {
            debug_assert_eq!(die.valid[block], 0, "a free block holds nothing");
            die.open = Open { block, filled: 0 };
        }
        let block = die.open.block;
        die.open.filled += 1;
        die.valid[block] += 1;
        die.written[block].get_or_insert_default().push(page);
        self.moved.insert(page, (number as u32, block as u32));
    }

    /// Frees the die's block with the fewest valid pages. Returns `false` if that would gain
    /// nothing.
    fn collect(&mut self, number: usize, written: &mut Written) -> bool {
        let die = &self.dies[number];
        let candidate = (0..die.valid.len())
            .filter(|block| *block != die.open.block && !die.free.contains(block))
            .min_by_key(|&block| die.valid[block]);
        let Some(block) = candidate.filter(|&block| die.valid[block] < self.per_block) else {
            return false;
        };
        let pages = self.contents(number, block);
        debug_assert_eq!(pages.len(), die.valid[block] as usize, "valid pages are counted");
        let die = &mut self.dies[number];
        die.valid[block] = 0;
        die.written[block] = Some(Vec::new());
        written.erased += 1;
        written.copied += pages.len() as u64;
        for page in pages {
            self.append(number, page);
        }
        self.dies[number].free.insert(0, block);
        true
    }

    /// The pages whose valid copy is in a block.
    fn contents(&self, die: usize, block: usize) -> Vec<u64> {
        let here = |page: &u64| self.place(*page) == (die, block);
        if let Some(list) = &self.dies[die].written[block] {
            let mut pages: Vec<u64> = list.iter().copied().filter(here).collect();
            pages.sort_unstable();
            pages.dedup();
            return pages;
        }
        let first = block as u64 * u64::from(self.per_block);
        let slots = (first..first + u64::from(self.per_block))
            .map(|nth| nth * self.dies.len() as u64 + die as u64)
            .filter(|slot| *slot < self.pages);
        slots
            .map(|slot| multiply(slot, self.scatter.1, self.pages))
            .filter(|page| !self.moved.contains_key(page))
            .collect()
    }
}

/// Number of pages in a block before the run.
fn full(spec: &SsdSpec, pages: u64, dies: usize, die: usize, block: usize) -> u32 {
    let per_block = u64::from(spec.pages_per_block);
    let on_die = (pages + dies as u64 - 1 - die as u64) / dies as u64;
    let before = block as u64 * per_block;
    on_die.saturating_sub(before).min(per_block) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(history: History) -> SsdSpec {
        SsdSpec {
            sectors: 8 * 4 * 16 * 20,
            channels: 2,
            dies_per_channel: 2,
            page: 4096,
            pages_per_block: 16,
            spare: 0.2,
            read_us: 50.0,
            program_us: 500.0,
            erase_us: 3000.0,
            channel_bandwidth: 1 << 30,
            link_bandwidth: 1 << 30,
            command_us: 5.0,
            interval_us: 0.0,
            write_interval_us: None,
            queue_depth: 32,
            write_cache: 0,
            power_safe: false,
            history,
        }
    }

    /// Every page has one location, and every block's count is right.
    fn check(translation: &Translation) {
        let mut counted: Vec<Vec<u32>> =
            translation.dies.iter().map(|die| vec![0; die.valid.len()]).collect();
        for page in 0..translation.pages {
            let (die, block) = translation.place(page);
            counted[die][block] += 1;
        }
        for (die, counted) in translation.dies.iter().zip(&counted) {
            assert_eq!(&die.valid, counted);
        }
    }

    #[test]
    fn history_decides_where_pages_lie() {
        let fresh = Translation::new(&spec(History::Sequential));
        let dies: Vec<usize> = (0..6).map(|page| fresh.die(page)).collect();
        assert_eq!(dies, [0, 1, 2, 3, 0, 1]);
        let aged = Translation::new(&spec(History::Random));
        let dies: Vec<usize> = (0..12).map(|page| aged.die(page)).collect();
        assert!(dies != [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3], "{dies:?}");
        check(&fresh);
        check(&aged);
    }

    #[test]
    fn overwriting_collects_garbage_and_loses_nothing() {
        for history in [History::Sequential, History::Random] {
            let mut translation = Translation::new(&spec(history));
            let mut total = Written::default();
            let mut page = 1u64;
            for _ in 0..20_000 {
                page = page * 48_271 % 2_147_483_647;
                let written = translation.write(page % translation.pages);
                total.copied += written.copied;
                total.erased += written.erased;
            }
            check(&translation);
            // Blocks have 16 pages: as many are erased as written and copied.
            let programmed = 20_000 + total.copied;
            assert!(total.erased.abs_diff(programmed / 16) < 200, "{total:?}");
            let amplification = programmed as f64 / 20_000.0;
            assert!((1.05..4.0).contains(&amplification), "{amplification}");
        }
    }
}
