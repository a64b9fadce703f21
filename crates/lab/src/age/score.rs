//! How well files lie: the layout score of Smith and Seltzer (1997).

use super::op::{DirId, FileId};
use seekless_units::ByteLen;

/// A run of a file's bytes that lies in one piece on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRun {
    /// Where it begins on the disk.
    pub at: ByteLen,
    /// How long it is.
    pub len: ByteLen,
}

/// How one file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLayout {
    /// Blocks but the first.
    pub followers: u64,
    /// Of those, the ones right behind the block before.
    pub adjacent: u64,
    /// Pieces that it lies in.
    pub extents: u64,
    start: u64,
    end: u64,
}

impl FileLayout {
    /// Of a file whose contents lie in such runs, in the order of the file, on
    /// a file system with such blocks; `None` for one that has none.
    #[must_use]
    pub fn of(runs: &[ByteRun], block: ByteLen) -> Option<Self> {
        let (first, last) = (runs.first()?, runs.last()?);
        let block = block.get().max(1);
        let blocks: u64 = runs.iter().map(|run| run.len.get().div_ceil(block)).sum();
        let apart = |two: &&[ByteRun]| two[0].at.get() + two[0].len.get() != two[1].at.get();
        let breaks = runs.windows(2).filter(apart).count() as u64;
        let followers = blocks.saturating_sub(1);
        Some(Self {
            followers,
            adjacent: followers.saturating_sub(breaks),
            extents: breaks + 1,
            start: first.at.get(),
            end: last.at.get() + last.len.get(),
        })
    }
}

/// The score of all files, kept up as they change.
#[derive(Clone, Debug, Default)]
pub struct Score {
    layouts: Vec<Option<FileLayout>>,
    followers: u64,
    adjacent: u64,
    extents: u64,
    files: u64,
}

impl Score {
    /// Sets a file's present layout; `None` when it is gone, or its layout is not known.
    pub fn set(&mut self, file: FileId, layout: Option<FileLayout>) {
        if file.0 >= self.layouts.len() {
            self.layouts.resize(file.0 + 1, None);
        }
        if let Some(old) = std::mem::replace(&mut self.layouts[file.0], layout) {
            self.followers -= old.followers;
            self.adjacent -= old.adjacent;
            self.extents -= old.extents;
            self.files -= 1;
        }
        if let Some(new) = layout {
            self.followers += new.followers;
            self.adjacent += new.adjacent;
            self.extents += new.extents;
            self.files += 1;
        }
    }

    /// Of all blocks of files with two blocks and more, their first ones left
    /// out, the share that lies right behind the block before; `None` when
    /// there are none.
    #[must_use]
    pub fn score(&self) -> Option<f64> {
        (self.followers > 0).then(|| self.adjacent as f64 / self.followers as f64)
    }

    /// Pieces that a file lies in, on average.
    #[must_use]
    pub fn extents_per_file(&self) -> Option<f64> {
        (self.files > 0).then(|| self.extents as f64 / self.files as f64)
    }

    /// How far it is, on average, from the end of a file's data to the beginning
    /// of that of the file made next in the same directory.
    #[must_use]
    pub fn spread(&self, files: impl Iterator<Item = (FileId, DirId, u64)>) -> Option<ByteLen> {
        let mut placed: Vec<(DirId, u64, FileLayout)> = files
            .filter_map(|(file, dir, number)| {
                let layout = self.layouts.get(file.0).copied().flatten()?;
                Some((dir, number, layout))
            })
            .collect();
        placed.sort_unstable_by_key(|(dir, number, _)| (*dir, *number));
        let pairs = placed.windows(2).filter(|two| two[0].0 == two[1].0);
        let (mut count, mut sum) = (0u64, 0u128);
        for two in pairs {
            count += 1;
            sum += u128::from(two[0].2.end.abs_diff(two[1].2.start));
        }
        let mean = sum.checked_div(u128::from(count))?;
        Some(ByteLen::new(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(runs: &[(u64, u64)]) -> Option<FileLayout> {
        let run =
            |&(at, len): &(u64, u64)| ByteRun { at: ByteLen::new(at), len: ByteLen::new(len) };
        let runs: Vec<ByteRun> = runs.iter().map(run).collect();
        FileLayout::of(&runs, ByteLen::new(10))
    }

    #[test]
    fn first_blocks_do_not_count() {
        let mut score = Score::default();
        score.set(FileId(0), layout(&[(500, 3)]));
        assert_eq!(score.score(), None, "one block");
        // Five blocks, of which two do not follow the one before.
        score.set(FileId(3), layout(&[(0, 20), (40, 10), (50, 10), (30, 5)]));
        assert_eq!(score.score(), Some(2.0 / 4.0));
        assert_eq!(score.extents_per_file(), Some(2.0));
        score.set(FileId(1), layout(&[(100, 20)]));
        assert_eq!(score.score(), Some(3.0 / 5.0));
        score.set(FileId(3), None);
        assert_eq!(score.score(), Some(1.0));
        assert_eq!(layout(&[]), None);
    }

    #[test]
    fn neighbours_in_a_directory_are_measured() {
        let mut score = Score::default();
        for (file, at) in [(0, 0), (1, 100), (2, 30), (3, 7000)] {
            score.set(FileId(file), layout(&[(at, 10)]));
        }
        let (a, b) = (DirId(1), DirId(2));
        let files = [(FileId(1), a, 2), (FileId(0), a, 1), (FileId(2), a, 5), (FileId(3), b, 3)];
        // From 10 to 100 and from 110 to 30.
        assert_eq!(score.spread(files.into_iter()), Some(ByteLen::new(85)));
        assert_eq!(score.spread(std::iter::empty()), None);
    }
}
