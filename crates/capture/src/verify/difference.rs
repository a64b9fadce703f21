//! Differences between two lists of requests: the score's and the kernel's.

use seekless_fs::extents::{intersection, union};
use seekless_report::disk::Class;
use seekless_units::{BlockNo, Extent};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of files in the comparison.
const NAMED: usize = 15;

/// Cost of a file or of a use of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cost {
    /// Number of requests.
    pub requests: u64,
    /// Requests that do not begin where the previous one ended.
    pub seeks: u64,
    /// Bytes read; those read twice count twice.
    pub bytes: u64,
}

/// Costs of a file, or of a use of blocks, on both sides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ComparedCost {
    /// Name of the file or of the use. Among files, a use is in parentheses and stands for blocks
    /// of no file.
    pub name: String,
    /// Cost in the prediction.
    pub predicted: Cost,
    /// Cost of the kernel's requests.
    pub counted: Cost,
}

impl ComparedCost {
    /// Difference in requests plus seeks, and difference in bytes.
    fn difference(&self) -> (u64, u64) {
        let (a, b) = (self.predicted, self.counted);
        (a.requests.abs_diff(b.requests) + a.seeks.abs_diff(b.seeks), a.bytes.abs_diff(b.bytes))
    }
}

/// A request, and the name of the file or use that it reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NamedRequest {
    /// Its first block.
    pub block: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// Name of the file; the use of the blocks in parentheses if they belong to no file.
    pub name: String,
}

/// Differences between two lists of requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Bytes of blocks that both sides read; blocks read twice count once.
    pub bytes_of_both: u64,
    /// Bytes of blocks in the prediction only.
    pub bytes_predicted_only: u64,
    /// Bytes of blocks that only the kernel read.
    pub bytes_counted_only: u64,
    /// Number of requests before the first difference.
    pub alike: u64,
    /// The first predicted request that differs; `None` if the list ends there.
    pub predicted: Option<NamedRequest>,
    /// The first of the kernel's requests that differs; `None` if the list ends there.
    pub counted: Option<NamedRequest>,
    /// Costs by use of blocks.
    pub uses: Vec<ComparedCost>,
    /// The files with the largest differences in requests and seeks, at most 15.
    pub files: Vec<ComparedCost>,
}

/// Finds the name of the file that a block belongs to; `None` for a block of no file.
pub type Owner<'a> = &'a dyn Fn(BlockNo) -> Option<String>;

/// Compares the requests of both sides.
pub(super) fn difference(
    predicted: &[(Extent, Class)],
    counted: &[(Extent, Class)],
    owner: Owner<'_>,
    block_size: u64,
) -> Difference {
    let blocks = |list: &[(Extent, Class)]| union(list.iter().map(|(extent, _)| *extent).collect());
    let (mine, theirs) = (blocks(predicted), blocks(counted));
    let len = |runs: &[Extent]| runs.iter().map(|run| run.len).sum::<u64>();
    let common = len(&intersection(&mine, &theirs));
    let extents = predicted.iter().zip(counted);
    let alike = extents.take_while(|((a, _), (b, _))| a == b).count();
    let request = |list: &[(Extent, Class)]| {
        list.get(alike).map(|(extent, class)| NamedRequest {
            block: extent.start.get(),
            blocks: extent.len,
            name: name(owner, *extent, *class),
        })
    };
    let mut uses = costs(predicted, counted, block_size, |_, class| class.name().into());
    uses.sort_by(|a, b| a.name.cmp(&b.name));
    let mut files =
        costs(predicted, counted, block_size, |extent, class| name(owner, extent, class));
    files.retain(|file| file.predicted != file.counted);
    files.sort_by(|a, b| b.difference().cmp(&a.difference()).then_with(|| a.name.cmp(&b.name)));
    files.truncate(NAMED);
    Difference {
        bytes_of_both: common * block_size,
        bytes_predicted_only: (len(&mine) - common) * block_size,
        bytes_counted_only: (len(&theirs) - common) * block_size,
        alike: alike as u64,
        predicted: request(predicted),
        counted: request(counted),
        uses,
        files,
    }
}

/// The file that the request begins in, or the class of most of its blocks.
fn name(owner: Owner<'_>, extent: Extent, class: Class) -> String {
    owner(extent.start).unwrap_or_else(|| format!("({})", class.name()))
}

/// Costs of both sides, grouped by a name of each request.
fn costs(
    predicted: &[(Extent, Class)],
    counted: &[(Extent, Class)],
    block_size: u64,
    name: impl Fn(Extent, Class) -> String,
) -> Vec<ComparedCost> {
    let mut costs: BTreeMap<String, [Cost; 2]> = BTreeMap::new();
    for (side, list) in [predicted, counted].into_iter().enumerate() {
        let mut head: Option<BlockNo> = None;
        for &(extent, class) in list {
            let cost = &mut costs.entry(name(extent, class)).or_default()[side];
            cost.requests += 1;
            cost.seeks += u64::from(head.is_some_and(|head| head != extent.start));
            cost.bytes += extent.len * block_size;
            head = Some(extent.end());
        }
    }
    let compared = |(name, [predicted, counted]): (String, [Cost; 2])| ComparedCost {
        name,
        predicted,
        counted,
    };
    costs.into_iter().map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64, len: u64) -> (Extent, Class) {
        (Extent::new(BlockNo::new(start), len), Class::Data)
    }

    #[test]
    fn what_one_side_alone_reads_is_counted_once() {
        let owner = |block: BlockNo| match block.get() {
            10..14 => Some("/a".to_string()),
            20..29 => Some("/b".to_string()),
            _ => None,
        };
        let predicted = [at(10, 4), at(20, 2), at(22, 1), at(40, 1)];
        let counted = [at(10, 4), at(20, 5), at(21, 3), at(10, 1)];
        let found = difference(&predicted, &counted, &owner, 1024);
        assert_eq!(found.bytes_of_both, 7 * 1024);
        assert_eq!((found.bytes_predicted_only, found.bytes_counted_only), (1024, 2048));
        assert_eq!(found.alike, 1);
        assert_eq!(
            found.predicted.unwrap(),
            NamedRequest { block: 20, blocks: 2, name: "/b".into() }
        );
        assert_eq!(found.counted.unwrap().blocks, 5);
        let files: Vec<&str> = found.files.iter().map(|file| &*file.name).collect();
        assert_eq!(files, ["(file data)", "/a", "/b"]);
        let last = &found.files[2];
        assert_eq!(
            (last.predicted.requests, last.predicted.seeks, last.predicted.bytes),
            (2, 1, 3072)
        );
        assert_eq!((last.counted.requests, last.counted.seeks, last.counted.bytes), (2, 2, 8192));
        let same = difference(&predicted, &predicted, &owner, 1024);
        assert!(same.files.is_empty() && same.predicted.is_none() && same.alike == 4);
    }
}
