//! Compares two lists of requests: the score's and the kernel's.

use crate::show;
use crate::usage::Owners;
use seekless_report::disk::Class;
use seekless_report::table::{Figure, Table};
use seekless_units::{BlockNo, ByteLen, Extent, format_size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of files in the comparison.
const NAMED: usize = 15;

/// Cost of a file or of a use of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    /// Requests that do not begin where the previous one ended.
    pub(crate) seeks: u64,
    pub(crate) bytes: u64,
}

/// A file, or a use of blocks, with its costs on both sides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) predicted: Cost,
    pub(crate) counted: Cost,
}

impl Place {
    /// Difference in requests plus seeks, and difference in bytes.
    fn difference(&self) -> (u64, u64) {
        let (a, b) = (self.predicted, self.counted);
        (a.requests.abs_diff(b.requests) + a.seeks.abs_diff(b.seeks), a.bytes.abs_diff(b.bytes))
    }
}

/// A request, and the name of the file or use that it reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Request {
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    pub(crate) name: String,
}

/// Differences between two lists of requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Parting {
    /// Bytes of blocks that both sides read; blocks read twice count once.
    pub(crate) bytes_of_both: u64,
    /// Bytes of blocks in the prediction only.
    pub(crate) bytes_predicted_only: u64,
    /// Bytes of blocks that only the kernel read.
    pub(crate) bytes_counted_only: u64,
    /// Number of requests before the first difference.
    pub(crate) alike: u64,
    /// The first request that differs; `None` if the list ends there.
    pub(crate) predicted: Option<Request>,
    pub(crate) counted: Option<Request>,
    /// Costs by use of blocks.
    pub(crate) uses: Vec<Place>,
    /// The files with the largest differences in requests and seeks.
    pub(crate) files: Vec<Place>,
}

/// Compares the requests of both sides.
pub(crate) fn part(
    predicted: &[(Extent, Class)],
    counted: &[(Extent, Class)],
    owners: &Owners,
    block_size: u64,
) -> Parting {
    let blocks = |list: &[(Extent, Class)]| union(list.iter().map(|(extent, _)| *extent));
    let (mine, theirs) = (blocks(predicted), blocks(counted));
    let len = |runs: &[Extent]| runs.iter().map(|run| run.len).sum::<u64>();
    let common = in_common(&mine, &theirs);
    let extents = predicted.iter().zip(counted);
    let alike = extents.take_while(|((a, _), (b, _))| a == b).count();
    let request = |list: &[(Extent, Class)]| {
        list.get(alike).map(|(extent, class)| Request {
            block: extent.start.get(),
            blocks: extent.len,
            name: name(owners, *extent, *class),
        })
    };
    let mut uses = places(predicted, counted, block_size, |_, class| class.name().into());
    uses.sort_by(|a, b| a.name.cmp(&b.name));
    let mut files =
        places(predicted, counted, block_size, |extent, class| name(owners, extent, class));
    files.retain(|place| place.predicted != place.counted);
    files.sort_by(|a, b| b.difference().cmp(&a.difference()).then_with(|| a.name.cmp(&b.name)));
    files.truncate(NAMED);
    Parting {
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
fn name(owners: &Owners, extent: Extent, class: Class) -> String {
    owners.of(extent.start).map_or_else(|| format!("({})", class.name()), show::name)
}

/// Costs of both sides, grouped by a name of each request.
fn places(
    predicted: &[(Extent, Class)],
    counted: &[(Extent, Class)],
    block_size: u64,
    name: impl Fn(Extent, Class) -> String,
) -> Vec<Place> {
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
    let place =
        |(name, [predicted, counted]): (String, [Cost; 2])| Place { name, predicted, counted };
    costs.into_iter().map(place).collect()
}

/// Union of the extents, sorted.
fn union(extents: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut sorted: Vec<Extent> = extents.collect();
    sorted.sort_unstable();
    let mut runs: Vec<Extent> = Vec::new();
    for extent in sorted {
        match runs.last_mut() {
            Some(last) if extent.start <= last.end() => {
                let end = last.end().max(extent.end());
                last.len = end.saturating_since(last.start);
            }
            _ => runs.push(extent),
        }
    }
    runs
}

/// Number of blocks in both of two unions.
fn in_common(a: &[Extent], b: &[Extent]) -> u64 {
    let (mut at, mut to, mut common) = (0, 0, 0);
    while let (Some(one), Some(other)) = (a.get(at), b.get(to)) {
        let start = one.start.max(other.start);
        common += one.end().min(other.end()).saturating_since(start);
        if one.end() <= other.end() { at += 1 } else { to += 1 }
    }
    common
}

impl Parting {
    /// The comparison as text; `of` names the counted side.
    pub(crate) fn text(&self, of: &str) -> String {
        let bytes = |bytes: u64| format_size(ByteLen::new(bytes));
        let mut text = format!(
            "blocks read by both: {}; only by the prediction: {}; only by the {of}: {}\n",
            bytes(self.bytes_of_both),
            bytes(self.bytes_predicted_only),
            bytes(self.bytes_counted_only),
        );
        let shown = |request: &Option<Request>| match request {
            Some(Request { block, blocks, name }) => {
                format!("{blocks} blocks from {block}, {name}")
            }
            None => "nothing more".into(),
        };
        let _ = match (&self.predicted, &self.counted) {
            (None, None) => writeln!(text, "all {} requests are the same, in order", self.alike),
            _ => writeln!(
                text,
                "the first {} requests are the same; then\n  predicted: {}\n  {of}: {}",
                self.alike,
                shown(&self.predicted),
                shown(&self.counted),
            ),
        };
        let _ = write!(text, "\nby what the blocks are used for:\n{}", table(&self.uses, of));
        if !self.files.is_empty() {
            let _ = write!(text, "\nwhere they differ the most:\n{}", table(&self.files, of));
        }
        text
    }
}

fn table(places: &[Place], of: &str) -> String {
    let columns = ["requests predicted", of, "seeks predicted", of, "bytes predicted", of];
    let columns = columns.map(String::from).to_vec();
    let mut table = Table::new(columns, false);
    for Place { name, predicted, counted } in places {
        let bytes = |cost: &Cost| Figure::Bytes(ByteLen::new(cost.bytes));
        let figures = vec![
            Figure::Count(predicted.requests),
            Figure::Count(counted.requests),
            Figure::Count(predicted.seeks),
            Figure::Count(counted.seeks),
            bytes(predicted),
            bytes(counted),
        ];
        table.push(name.as_str(), figures);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64, len: u64) -> (Extent, Class) {
        (Extent::new(BlockNo::new(start), len), Class::Data)
    }

    #[test]
    fn what_one_side_alone_reads_is_counted_once() {
        let owners = Owners::new(
            vec![(at(10, 4).0, 0), (at(20, 9).0, 1)],
            vec![b"/a".to_vec(), b"/b".to_vec()],
        );
        let predicted = [at(10, 4), at(20, 2), at(22, 1), at(40, 1)];
        let counted = [at(10, 4), at(20, 5), at(21, 3), at(10, 1)];
        let found = part(&predicted, &counted, &owners, 1024);
        assert_eq!(found.bytes_of_both, 7 * 1024);
        assert_eq!((found.bytes_predicted_only, found.bytes_counted_only), (1024, 2048));
        assert_eq!(found.alike, 1);
        assert_eq!(found.predicted.unwrap(), Request { block: 20, blocks: 2, name: "/b".into() });
        assert_eq!(found.counted.unwrap().blocks, 5);
        let files: Vec<&str> = found.files.iter().map(|place| &*place.name).collect();
        assert_eq!(files, ["(file data)", "/a", "/b"]);
        let last = &found.files[2];
        assert_eq!(
            (last.predicted.requests, last.predicted.seeks, last.predicted.bytes),
            (2, 1, 3072)
        );
        assert_eq!((last.counted.requests, last.counted.seeks, last.counted.bytes), (2, 2, 8192));
        let same = part(&predicted, &predicted, &owners, 1024);
        assert!(same.files.is_empty() && same.predicted.is_none() && same.alike == 4);
    }
}
