//! Blocks that were freed, and that the device is told about once the disk has them as free.

use crate::Ids;
use seekless_cache::ChangeId;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::{BlockNo, ByteLen, Extent, Lba};
use std::collections::{BTreeMap, VecDeque};

/// A part of a run, as it was freed last.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: BlockNo,
    batch: u64,
}

/// Runs that were freed together, and the changes after which the disk has them as free.
#[derive(Debug)]
struct Batch {
    number: u64,
    after: Ids,
    runs: Vec<Extent>,
}

/// Freed blocks in the order in which they were freed. A block that was taken and freed again
/// meanwhile is only in the later batch: the disk may still lead to its second contents.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    batches: VecDeque<Batch>,
    /// By their first block.
    pieces: BTreeMap<BlockNo, Piece>,
    next: u64,
}

impl Discards {
    /// Adds runs that are free on the disk once it has `after`.
    pub(crate) fn add(&mut self, after: Ids, runs: &[Extent]) {
        let number = self.next;
        self.next += 1;
        for &run in runs {
            self.cut_out(run);
            self.pieces.insert(run.start, Piece { end: run.end(), batch: number });
        }
        self.batches.push_back(Batch { number, after, runs: runs.to_vec() });
    }

    /// The next runs that the disk has as free, unless all of them were taken and freed again.
    pub(crate) fn next_settled(
        &mut self,
        is_on_disk: impl Fn(ChangeId) -> bool,
    ) -> Option<Vec<Extent>> {
        let is_settled = |batch: &Batch| batch.after.iter().all(|&id| is_on_disk(id));
        if !self.batches.front().is_some_and(is_settled) {
            return None;
        }
        let batch = self.batches.pop_front()?;
        let mut settled = Vec::new();
        for run in batch.runs {
            let own = |(_, piece): &(&BlockNo, &Piece)| piece.batch == batch.number;
            let here = self.pieces.range(run.start..run.end()).filter(own);
            let found: Vec<Extent> =
                here.map(|(&start, piece)| Extent::new(start, piece.end - start)).collect();
            for piece in &found {
                self.pieces.remove(&piece.start);
            }
            settled.extend(found);
        }
        Some(settled)
    }

    /// Takes the blocks of a run out of all pieces.
    fn cut_out(&mut self, run: Extent) {
        let overlapping = |map: &BTreeMap<BlockNo, Piece>| {
            let before = map.range(..run.end()).next_back();
            before.map(|(&start, &piece)| (start, piece)).filter(|(_, piece)| piece.end > run.start)
        };
        while let Some((start, piece)) = overlapping(&self.pieces) {
            self.pieces.remove(&start);
            if start < run.start {
                self.pieces.insert(start, Piece { end: run.start, ..piece });
            }
            if piece.end > run.end() {
                self.pieces.insert(run.end(), piece);
            }
        }
    }
}

/// Tells a device of a run of blocks of so many bytes.
pub(crate) fn discard(device: &dyn BlockDevice, block: u64, run: Extent) -> Result<(), FsError> {
    let at = Lba::containing(ByteLen::new(run.start.get() * block));
    Ok(device.discard(at, run.len * block)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::for_all;
    use proptest::collection::vec;
    use std::collections::{BTreeSet, HashMap};

    fn run(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    /// As a map from each block to the batch that it was freed in last.
    #[test]
    fn each_block_comes_once_with_the_batch_that_freed_it_last() {
        let runs = vec((0..30u64, 1..12u64), 1..4);
        for_all(200, vec(runs, 1..20), |batches| {
            let (mut discards, mut model) = (Discards::default(), HashMap::new());
            for (batch, gaps) in batches.iter().enumerate() {
                let (mut at, mut runs) = (0, Vec::new());
                for &(gap, len) in gaps {
                    runs.push(run(at + gap, len));
                    at += gap + len;
                    (at - len..at).for_each(|block| {
                        model.insert(block, batch);
                    });
                }
                discards.add(Ids::new(), &runs);
            }
            for batch in 0..batches.len() {
                let settled = discards.next_settled(|_| true).expect("a batch");
                let blocks = settled.iter().flat_map(|run| run.start.get()..run.end().get());
                let found: BTreeSet<u64> = blocks.collect();
                let of_batch = model.iter().filter(|(_, last)| **last == batch);
                let wanted: BTreeSet<u64> = of_batch.map(|(at, _)| *at).collect();
                assert_eq!(found, wanted, "batch {batch}");
                assert_eq!(settled.iter().map(|run| run.len).sum::<u64>(), found.len() as u64);
            }
            assert!(discards.next_settled(|_| true).is_none() && discards.pieces.is_empty());
        });
    }

    #[test]
    fn what_the_disk_still_leads_to_waits() {
        let mut discards = Discards::default();
        discards.add([ChangeId::COMMITTED].into_iter().collect(), &[run(7, 2)]);
        assert!(discards.next_settled(|_| false).is_none());
        assert_eq!(discards.next_settled(|id| id == ChangeId::COMMITTED), Some(vec![run(7, 2)]));
    }
}
