//! Blocks that were freed and may not be used again before that is committed: after a crash they
//! belong to their old owners.

use std::collections::BTreeMap;

/// Runs of blocks; no two are adjacent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    /// The end of each, by its first block.
    runs: BTreeMap<u64, u64>,
}

impl Quarantine {
    pub(crate) fn add(&mut self, block: u64) {
        if self.touches(block, block + 1) {
            return;
        }
        let (mut start, mut end) = (block, block + 1);
        if let Some((&before, &until)) = self.runs.range(..start).next_back()
            && until == start
        {
            start = before;
        }
        if let Some(until) = self.runs.remove(&end) {
            end = until;
        }
        self.runs.insert(start, end);
    }

    /// Whether one of the blocks `start .. end` is in it.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        // Runs do not touch, so the last that begins before `end` is also the last to end.
        self.runs.range(..end).next_back().is_some_and(|(_, &until)| until > start)
    }

    /// First block and end of each run, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&start, &end)| (start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::Quarantine;

    #[test]
    fn neighbours_become_one_run() {
        let mut quarantine = Quarantine::default();
        for block in [5, 7, 9, 6, 6, 1, 8] {
            quarantine.add(block);
        }
        assert_eq!(quarantine.iter().collect::<Vec<_>>(), [(1, 2), (5, 10)]);
        for (start, end, touches) in [
            (0, 1, false),
            (1, 2, true),
            (2, 5, false),
            (0, 9, true),
            (9, 20, true),
            (10, 20, false),
        ] {
            assert_eq!(quarantine.touches(start, end), touches, "{start}..{end}");
        }
    }
}
