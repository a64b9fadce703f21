//! The clusters of a file.

use seekless_units::{BlockNo, Extent};

/// The clusters of a file, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// Runs of clusters, each with the number of clusters in front of it.
    runs: Vec<(u32, Extent)>,
    /// How many clusters.
    len: u32,
}

impl Chain {
    /// How many clusters.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Runs of clusters.
    pub(super) fn runs(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        self.runs.iter().map(|&(_, run)| run)
    }

    /// The first cluster.
    pub(super) fn first(&self) -> Option<u32> {
        self.at(0).map(|(cluster, _)| cluster)
    }

    /// The cluster with a number in the file, and the number of consecutive ones from there.
    pub(super) fn at(&self, lcn: u32) -> Option<(u32, u32)> {
        let (before, run) =
            *self.runs.get(self.runs.partition_point(|run| run.0 <= lcn).checked_sub(1)?)?;
        let into = lcn.checked_sub(before)?;
        let len = u32::try_from(run.len).ok()?;
        let left = len.checked_sub(into).filter(|&left| left > 0)?;
        Some((u32::try_from(run.start.get()).ok()?.checked_add(into)?, left))
    }

    /// The last cluster.
    pub(super) fn last(&self) -> Option<u32> {
        self.at(self.len.checked_sub(1)?).map(|(cluster, _)| cluster)
    }

    /// Adds clusters behind the last one.
    pub(super) fn push(&mut self, start: u32, len: u32) {
        debug_assert!(len > 0, "a run has clusters");
        let at = BlockNo::new(start.into());
        match self.runs.last_mut() {
            Some((_, last)) if last.end() == at => {
                last.len += u64::from(len);
            }
            _ => self.runs.push((self.len, Extent::new(at, len.into()))),
        }
        self.len += len;
        debug_assert!(self.is_even(), "{self:?}");
    }

    /// Whether its length is that of its runs, by the last of them.
    fn is_even(&self) -> bool {
        let end = self.runs.last().map_or(0, |&(before, run)| u64::from(before) + run.len);
        end == u64::from(self.len)
    }

    /// Cuts it to `len` clusters; the others are returned, in runs.
    pub(super) fn cut(&mut self, len: u32) -> Vec<Extent> {
        let mut gone = Vec::new();
        while let Some((before, run)) = self.runs.last_mut() {
            let end = u64::from(*before) + run.len;
            let over = (end - end.min(len.into())).min(run.len);
            if over == 0 {
                break;
            }
            run.len -= over;
            gone.push(Extent::new(run.end(), over));
            if run.len == 0 {
                self.runs.pop();
            }
        }
        gone.reverse();
        self.len = self.len.min(len);
        debug_assert!(self.is_even(), "{self:?}");
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_grow_and_are_cut() {
        let mut chain = Chain::default();
        chain.push(10, 3);
        chain.push(13, 1);
        chain.push(5, 2);
        assert_eq!((chain.len, chain.runs.len(), chain.last()), (6, 2, Some(6)));
        assert_eq!(chain.at(2), Some((12, 2)));
        assert_eq!(chain.at(5), Some((6, 1)));
        assert_eq!(chain.at(6), None);
        let run = |start, len| Extent::new(BlockNo::new(start), len);
        assert_eq!(chain.clone().cut(0), [run(10, 4), run(5, 2)]);
        assert_eq!(chain.cut(3), [run(13, 1), run(5, 2)]);
        assert_eq!((chain.len, chain.last()), (3, Some(12)));
    }
}
