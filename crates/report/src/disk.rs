//! The contents of a disk, and the blocks that were read.

use crate::reads::Reads;
use seekless_units::{BlockNo, Extent};

/// The use of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Fixed structures, block maps and attributes.
    Metadata,
    /// Contents of directories.
    Directory,
    /// Contents of files.
    Data,
    /// In use, but not by a file with a name: a journal, quota files.
    Internal,
    /// Free.
    Free,
}

impl Class {
    /// All of them, in the order of legends.
    pub const ALL: [Self; 5] =
        [Self::Metadata, Self::Directory, Self::Data, Self::Internal, Self::Free];

    /// The letter on a map; a capital if blocks were read.
    #[must_use]
    pub const fn letter(self, read: bool) -> char {
        match (self, read) {
            (Self::Metadata, false) => 'm',
            (Self::Metadata, true) => 'M',
            (Self::Directory, false) => 'd',
            (Self::Directory, true) => 'D',
            (Self::Data, false) => 'f',
            (Self::Data, true) => 'F',
            (Self::Internal, false) => 'i',
            (Self::Internal, true) => 'I',
            (Self::Free, false) => '.',
            (Self::Free, true) => '!',
        }
    }

    /// Name for legends.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Directory => "directories",
            Self::Data => "file data",
            Self::Internal => "internal (journal, quota)",
            Self::Free => "free",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The use of every block of a disk.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    runs: Vec<(Extent, Class)>,
}

impl Usage {
    /// Takes runs in any order; if two overlap, the one that begins first keeps its blocks. Blocks
    /// without a run are [`Class::Internal`].
    #[must_use]
    pub fn new(whole: Extent, mut claimed: Vec<(Extent, Class)>) -> Self {
        claimed.sort_unstable();
        let mut usage = Self { runs: Vec::with_capacity(claimed.len()) };
        let mut next = whole.start;
        for (run, class) in claimed {
            let end = run.end().min(whole.end());
            if end <= next || run.start >= end {
                continue;
            }
            let start = run.start.max(next);
            usage.push(next, start, Class::Internal);
            usage.push(start, end, class);
            next = end;
        }
        usage.push(next, whole.end(), Class::Internal);
        usage
    }

    fn push(&mut self, from: BlockNo, to: BlockNo, class: Class) {
        let len = to.saturating_since(from);
        if len == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some((run, last)) if *last == class => run.len += len,
            _ => self.runs.push((Extent::new(from, len), class)),
        }
    }

    /// All blocks, in order, neighbours of one class joined.
    #[must_use]
    pub fn runs(&self) -> &[(Extent, Class)] {
        &self.runs
    }

    /// The most frequent use in an extent; the last one of several.
    #[must_use]
    pub fn most_of(&self, extent: Extent) -> Class {
        let most = self.within(extent).max_by_key(|(part, _)| part.len);
        most.map_or(Class::Internal, |(_, class)| class)
    }

    /// The parts of `extent`, with their uses.
    pub fn within(&self, extent: Extent) -> impl Iterator<Item = (Extent, Class)> {
        let first = self.runs.partition_point(|(run, _)| run.end() <= extent.start);
        let parts =
            self.runs.iter().skip(first).take_while(move |(run, _)| run.start < extent.end());
        parts.map(move |&(run, class)| {
            let start = run.start.max(extent.start);
            (Extent::new(start, run.end().min(extent.end()) - start), class)
        })
    }
}

/// A disk to be drawn.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The disk's name.
    pub name: String,
    /// Bytes in a block.
    pub block_size: u32,
    /// The blocks in groups.
    pub whole: Extent,
    /// Blocks in a group; the last may have fewer.
    pub group_blocks: u64,
    /// The uses of the blocks.
    pub usage: Usage,
    /// The requests that read them.
    pub reads: Reads,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    #[test]
    fn every_block_has_one_use() {
        let claimed = vec![
            (run(8, 4), Class::Data),
            (run(1, 2), Class::Metadata),
            (run(3, 1), Class::Metadata),
            (run(9, 9), Class::Free),
            (run(30, 5), Class::Data),
        ];
        let usage = Usage::new(run(1, 19), claimed);
        let expected = [
            (run(1, 3), Class::Metadata),
            (run(4, 4), Class::Internal),
            (run(8, 4), Class::Data),
            (run(12, 6), Class::Free),
            (run(18, 2), Class::Internal),
        ];
        assert_eq!(usage.runs(), expected);
        let within: Vec<_> = usage.within(run(10, 3)).collect();
        assert_eq!(within, [(run(10, 2), Class::Data), (run(12, 1), Class::Free)]);
    }
}
