//! The cost of a replay's requests: their number, the seeks between them, the bytes and the chunks
//! of a lazily fetched volume that they touch.

use crate::replay::{Machine, Processes, Purpose, Replayed, Request, replay};
use crate::trace::Events;
use seekless_fs::{FsError, Inspect, Mapping};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, parse_size};
use std::collections::{BTreeMap, BTreeSet};

/// Figures of one trace on one image.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Score {
    /// Requests to the disk.
    pub requests: u64,
    /// Those for inodes, directories, maps and attributes.
    pub metadata_requests: u64,
    /// Those for file contents.
    pub data_requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes that the trace itself needs, in whole blocks, read-ahead not counted.
    pub touched_bytes: u64,
    /// Requests that do not begin where the one before ended.
    pub seeks: u64,
    /// Sum of the distances of all seeks.
    pub seek_distance_bytes: u64,
    /// The same two where processes that run at the same time read in the order of
    /// the trace.
    pub recorded_order: Seeks,
    /// Distinct chunks touched, by the chunk's size in bytes.
    pub chunks: BTreeMap<u64, u64>,
    /// The fewest chunks of that size that can contain the distinct blocks read.
    pub chunks_floor: BTreeMap<u64, u64>,
    /// Of the blocks of the files that were read, the share that lies right
    /// behind the file's block before (Smith and Seltzer 1997); 1 when no file
    /// has two blocks.
    pub layout_score: f64,
    /// Of the blocks read, the share that lies right behind the block read
    /// before (Conway et al., FAST 2017).
    pub dynamic_layout_score: f64,
    /// Paths in the trace but not in the image.
    pub missing: Vec<String>,
    /// The same files fetched whole and in disk order before anything runs.
    pub prefetch: Prefetch,
}

/// Seeks and how far they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Seeks {
    /// Requests that do not begin where the one before ended.
    pub seeks: u64,
    /// Sum of the distances of all seeks.
    pub seek_distance_bytes: u64,
}

/// The cost of plain prefetch of the trace's files: every inode, directory block and whole file
/// that the trace leads to, sorted by place on the disk.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Prefetch {
    /// Requests, neighbours joined.
    pub requests: u64,
    /// All but the first are seeks.
    pub seeks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Distinct chunks touched, by the chunk's size in bytes.
    pub chunks: BTreeMap<u64, u64>,
}

/// Totals of a list of requests, of any origin.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Figures {
    /// Requests to the disk.
    pub requests: u64,
    /// Those for anything but file contents.
    pub metadata_requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Requests that do not begin where the one before ended.
    pub seeks: u64,
    /// Sum of the distances of all seeks.
    pub seek_distance_bytes: u64,
    /// Distinct chunks touched, by the chunk's size in bytes.
    pub chunks: BTreeMap<u64, u64>,
}

impl Figures {
    /// The share of requests that are for metadata, from 0 to 1.
    #[must_use]
    pub fn metadata_share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.metadata_requests as f64 / self.requests as f64 }
    }
}

/// Counts requests, each with whether it is for metadata, in their order.
pub fn figures(
    requests: impl Iterator<Item = (Extent, bool)> + Clone,
    block_size: u64,
    chunk_sizes: &[ByteLen],
) -> Figures {
    let extents = || requests.clone().map(|(extent, _)| extent);
    let (seeks, distance) = seeks(extents());
    Figures {
        requests: extents().count() as u64,
        metadata_requests: requests.clone().filter(|(_, metadata)| *metadata).count() as u64,
        bytes: extents().map(|extent| extent.len).sum::<u64>() * block_size,
        seeks,
        seek_distance_bytes: distance * block_size,
        chunks: count_chunks(extents, block_size, chunk_sizes),
    }
}

/// Replays `events` on `image` and counts.
///
/// # Errors
/// Those of [`replay`].
pub fn score(
    image: &dyn Inspect,
    events: &Events,
    machine: Machine,
    chunk_sizes: &[ByteLen],
) -> Result<(Score, Replayed), FsError> {
    let replayed = replay(image, events, machine)?;
    let bs = u64::from(image.geometry().block_size);
    let requests = &replayed.requests;
    let metadata = requests.iter().filter(|request| request.purpose.is_metadata()).count() as u64;
    let path = |replayed: &Replayed| {
        let (seeks, distance) = seeks(replayed.requests.iter().map(|request| request.extent));
        Seeks { seeks, seek_distance_bytes: distance * bs }
    };
    let moved = path(&replayed);
    let recorded_order = match machine.processes {
        Processes::SideBySide(_) if has_several_processes(events) => {
            let machine = Machine { processes: Processes::AsRecorded, ..machine };
            path(&replay(image, events, machine)?)
        }
        _ => moved,
    };
    let blocks: u64 = requests.iter().map(|request| request.extent.len).sum();
    let extents = || requests.iter().map(|request| request.extent);
    let score = Score {
        requests: requests.len() as u64,
        metadata_requests: metadata,
        data_requests: requests.len() as u64 - metadata,
        bytes: blocks * bs,
        touched_bytes: replayed.touched_blocks * bs,
        seeks: moved.seeks,
        seek_distance_bytes: moved.seek_distance_bytes,
        recorded_order,
        chunks: count_chunks(extents, bs, chunk_sizes),
        chunks_floor: chunk_floor(extents(), bs, chunk_sizes),
        layout_score: layout_score(image, &replayed.files)?,
        dynamic_layout_score: share(blocks.saturating_sub(moved.seeks), blocks),
        missing: replayed
            .missing
            .iter()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect(),
        prefetch: prefetch(image, &replayed, bs, chunk_sizes)?,
    };
    Ok((score, replayed))
}

fn has_several_processes(events: &Events) -> bool {
    events.processes() > 1
}

/// Requests that do not begin where the one before ended, and the sum of the
/// distances in blocks.
fn seeks(extents: impl Iterator<Item = Extent>) -> (u64, u64) {
    let (mut seeks, mut distance) = (0, 0u64);
    let mut head: Option<BlockNo> = None;
    for extent in extents {
        if let Some(head) = head.filter(|&head| head != extent.start) {
            seeks += 1;
            distance += extent.start.get().abs_diff(head.get());
        }
        head = Some(extent.end());
    }
    (seeks, distance)
}

fn count_chunks<I: Iterator<Item = Extent>>(
    extents: impl Fn() -> I,
    block_size: u64,
    sizes: &[ByteLen],
) -> BTreeMap<u64, u64> {
    let count = |size: &ByteLen| {
        let size = size.get().max(1);
        let mut seen = BTreeSet::new();
        for extent in extents() {
            let first = extent.start.get() * block_size / size;
            let last = (extent.end().get() * block_size - 1) / size;
            seen.extend(first..=last);
        }
        (size, seen.len() as u64)
    };
    sizes.iter().map(count).collect()
}

/// The fewest chunks, by their size in bytes, that can contain the blocks of these extents:
/// a block that is read twice counts once.
fn chunk_floor(
    extents: impl Iterator<Item = Extent>,
    block_size: u64,
    sizes: &[ByteLen],
) -> BTreeMap<u64, u64> {
    let distinct: u64 = joined(extents.collect()).iter().map(|extent| extent.len).sum();
    let floor = |size: &ByteLen| {
        let size = size.get().max(1);
        (size, (distinct * block_size).div_ceil(size))
    };
    sizes.iter().map(floor).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// The layout score of these files together: of all their blocks but the first
/// of each, the share, from 0 to 1, that lies right behind the block before it
/// (Smith and Seltzer, "File System Aging", SIGMETRICS 1997); 1 where there are
/// none.
fn layout_score(image: &dyn Inspect, files: &[Ino]) -> Result<f64, FsError> {
    let (mut adjacent, mut followers) = (0, 0);
    for &ino in files {
        let (near, all) = adjacency(&image.block_map(ino)?.runs);
        adjacent += near;
        followers += all;
    }
    Ok(share(adjacent, followers))
}

/// Of a file's blocks but the first: those that lie right behind the block
/// before, and all.
fn adjacency(runs: &[Mapping]) -> (u64, u64) {
    let blocks: u64 = runs.iter().map(|run| run.extent.len).sum();
    let apart = |pair: &&[Mapping]| pair[0].extent.end() != pair[1].extent.start;
    let breaks = runs.windows(2).filter(apart).count() as u64;
    let followers = blocks.saturating_sub(1);
    (followers.saturating_sub(breaks), followers)
}

/// The blocks of these extents, each once: sorted, neighbours and overlaps joined.
fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match joined.last_mut() {
            Some(last) if extent.start <= last.end() => {
                last.len = last.len.max(extent.end() - last.start);
            }
            _ => joined.push(extent),
        }
    }
    joined
}

fn prefetch(
    image: &dyn Inspect,
    replayed: &Replayed,
    block_size: u64,
    sizes: &[ByteLen],
) -> Result<Prefetch, FsError> {
    let mut extents: Vec<Extent> = replayed
        .requests
        .iter()
        .filter(|request| request.purpose.is_metadata())
        .map(|request| request.extent)
        .collect();
    for &ino in &replayed.files {
        let map = image.block_map(ino)?;
        extents.extend(map.runs.iter().filter(|run| !run.unwritten).map(|run| run.extent));
        extents.extend(map.index.iter().map(|index| Extent::new(index.block, 1)));
    }
    let joined = joined(extents);
    Ok(Prefetch {
        requests: joined.len() as u64,
        seeks: joined.len().saturating_sub(1) as u64,
        bytes: joined.iter().map(|extent| extent.len).sum::<u64>() * block_size,
        chunks: count_chunks(|| joined.iter().copied(), block_size, sizes),
    })
}

/// Requests, blocks and seeks by purpose: the explanation of a score.
#[must_use]
pub fn by_purpose(requests: &[Request]) -> BTreeMap<Purpose, (u64, u64, u64)> {
    let mut table: BTreeMap<Purpose, (u64, u64, u64)> = BTreeMap::new();
    let mut head = None;
    for request in requests {
        let row = table.entry(request.purpose).or_default();
        row.0 += 1;
        row.1 += request.extent.len;
        row.2 += u64::from(head.is_some_and(|head| head != request.extent.start));
        head = Some(request.extent.end());
    }
    table
}

/// The size of a chunk as [`parse_size`] reads it, of one byte at least.
///
/// # Errors
/// A message for the user.
pub fn parse_chunk(text: &str) -> Result<ByteLen, String> {
    match parse_size(text)? {
        ByteLen::ZERO => Err("a chunk must have at least one byte".into()),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::Lbn;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(BlockNo::new(start), len)
    }

    #[test]
    fn a_request_that_goes_on_is_no_seek() {
        let path = [extent(10, 5), extent(15, 1), extent(10, 1), extent(100, 2)];
        assert_eq!(seeks(path.into_iter()), (2, 6 + 89));
        assert_eq!(seeks([extent(7, 1)].into_iter()), (0, 0));
    }

    #[test]
    fn chunks_are_counted_once() {
        let path = [extent(0, 2), extent(1, 1), extent(127, 2)];
        let sizes = [ByteLen::new(4096), ByteLen::new(512 << 10), ByteLen::new(5000)];
        let counted = count_chunks(|| path.into_iter(), 4096, &sizes);
        // 4096: 0 1 127 128; 512 KiB: 0 1; 5000: 0 1, and 520192..528384 in 104 105.
        assert_eq!(counted, BTreeMap::from([(4096, 4), (512 << 10, 2), (5000, 4)]));
    }

    #[test]
    fn a_block_read_twice_counts_once_in_the_floor() {
        // As events of a device repeat: the same chunk, a part of it, and one beside it.
        let path = [extent(0, 128), extent(0, 128), extent(64, 64), extent(128, 1)];
        let sizes = [ByteLen::new(512 << 10), ByteLen::new(4096)];
        let floor = chunk_floor(path.into_iter(), 4096, &sizes);
        assert_eq!(floor, BTreeMap::from([(512 << 10, 2), (4096, 129)]));
        let counted = count_chunks(|| path.into_iter(), 4096, &sizes);
        assert!(sizes.iter().all(|size| floor[&size.get()] <= counted[&size.get()]));
    }

    #[test]
    fn blocks_behind_each_other_are_adjacent() {
        let adjacency = |runs: &[(u64, u64)]| {
            let run = |&(start, len): &(u64, u64)| Mapping {
                lbn: Lbn::new(start),
                extent: extent(start, len),
                unwritten: false,
            };
            super::adjacency(&runs.iter().map(run).collect::<Vec<_>>())
        };
        assert_eq!(adjacency(&[]), (0, 0));
        assert_eq!(adjacency(&[(7, 1)]), (0, 0), "a first block follows nothing");
        assert_eq!(adjacency(&[(7, 10)]), (9, 9));
        // A hole between runs that follow each other on the disk is no break.
        assert_eq!(adjacency(&[(7, 10), (17, 3)]), (12, 12));
        assert_eq!(adjacency(&[(7, 10), (18, 3)]), (11, 12));
        assert_eq!(adjacency(&[(30, 1), (20, 1), (10, 1)]), (0, 2));
        assert_eq!((share(0, 0), share(1, 4)), (1.0, 0.25));
    }

    #[test]
    fn purposes_add_up() {
        let request = |start, purpose| Request {
            extent: extent(start, 2),
            purpose,
            ino: Ino::new(2),
            lbn: Lbn::ZERO,
            event: 0,
        };
        let table = by_purpose(&[
            request(0, Purpose::Inode),
            request(2, Purpose::Data),
            request(9, Purpose::Data),
        ]);
        let rows = [(Purpose::Inode, (1, 2, 0)), (Purpose::Data, (2, 4, 1))];
        assert_eq!(table, BTreeMap::from(rows));
    }
}
