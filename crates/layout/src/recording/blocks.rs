//! Reads of a device mapped back to an image's files and structures.

use super::Index;
use super::index::{Owner, Place};
use crate::trace::{BlockRead, Event, Op};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{BlockNo, Extent, Ino, Lbn, Nanos};
use std::collections::HashSet;

/// Bytes of the smallest request that a device with sectors of 4 KiB is given.
const PAGE: u64 = 4096;

/// Bytes of reads, by kind of contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes {
    /// Contents of files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Inode tables, block maps, extended attributes, bitmaps, descriptors.
    pub metadata: u64,
    /// Blocks in use that no name leads to: the journal, deleted files.
    pub nameless: u64,
    /// Blocks that are not in use.
    pub free: u64,
    /// In front of the image or past its end.
    pub outside: u64,
}

impl Bytes {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.files + self.directories + self.metadata + self.nameless + self.free + self.outside
    }
}

/// Reads mapped to files and structures.
#[derive(Clone, Debug, Default)]
pub struct MappedReads {
    /// In order of time, then of the log; from the first read on.
    pub events: Vec<Event>,
    /// Their bytes by kind.
    pub bytes: Bytes,
}

/// The contents of a run of blocks.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// A file or directory, from this block of it on.
    Of(Ino, Lbn),
    /// A block of a map or of extended attributes.
    Overhead,
    /// Structures with a fixed place in every layout, and free blocks.
    Placed(Place),
}

/// Contents by block, in order of place.
struct Contents {
    runs: Vec<(Extent, Content)>,
}

impl Contents {
    fn of(image: &dyn Inspect, index: &Index) -> Result<Self, FsError> {
        let mut runs: Vec<(Extent, Content)> = Vec::new();
        let placed = index.placed().iter();
        runs.extend(placed.map(|&(extent, place)| (extent, Content::Placed(place))));
        for (ino, kind) in index.inodes() {
            if !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
                continue;
            }
            // Files that cannot be read have no events.
            let Ok(map) = image.block_map(ino) else { continue };
            let written = map.runs.iter().filter(|run| !run.unwritten);
            runs.extend(written.map(|run| (run.extent, Content::Of(ino, run.lbn))));
            let single = |block: BlockNo| (Extent::new(block, 1), Content::Overhead);
            runs.extend(map.index.iter().map(|node| single(node.block)));
            runs.extend(map.xattr_block.map(single));
        }
        runs.sort_by_key(|(extent, _)| extent.start);
        Ok(Self { runs })
    }

    /// The contents at a block, and for how many blocks, `most` at most.
    fn at(&self, block: u64, most: u64) -> (Option<Content>, u64) {
        let after = self.runs.partition_point(|(extent, _)| extent.start.get() <= block);
        let here = after.checked_sub(1).map(|at| self.runs[at]);
        if let Some((extent, content)) = here.filter(|(extent, _)| extent.end().get() > block) {
            let skip = block - extent.start.get();
            let content = match content {
                Content::Of(ino, lbn) => Content::Of(ino, lbn + skip),
                other => other,
            };
            return (Some(content), (extent.len - skip).min(most));
        }
        let next = self.runs.get(after).map_or(u64::MAX, |(extent, _)| extent.start.get());
        (None, (next - block).min(most))
    }
}

/// Maps reads of a device back to an image that begins `start` bytes behind the
/// device's first.
///
/// # Errors
/// When the image cannot be read.
pub fn map_reads(
    image: &dyn Inspect,
    mut reads: Vec<BlockRead>,
    start: u64,
) -> Result<MappedReads, FsError> {
    let index = Index::of_image(image)?;
    let contents = Contents::of(image, &index)?;
    let size = u64::from(image.geometry().block_size);
    let len = image.geometry().blocks * size;
    reads.sort_by_key(|read| read.time);
    let begin = reads.first().map_or(0, |read| read.time);
    let mut mapped = MappedReads::default();
    let mut accessed = HashSet::new();
    let mut tables = Vec::new();
    for read in reads {
        let (from, to) = (read.offset, read.offset.saturating_add(read.length));
        let inside = from.clamp(start, start + len)..to.clamp(start, start + len);
        mapped.bytes.outside += read.length - (inside.end - inside.start);
        let (first, end) = ((inside.start - start) / size, (inside.end - start).div_ceil(size));
        let mut block = first;
        while block < end && inside.start < inside.end {
            let (content, count) = contents.at(block, end - block);
            let bytes = count * size;
            match content {
                Some(Content::Of(ino, lbn)) => {
                    let is_directory = index.kind(ino) == Some(FileKind::Directory);
                    let of = &mut mapped.bytes;
                    *(if is_directory { &mut of.directories } else { &mut of.files }) += bytes;
                    if let Some(path) = index.path(ino) {
                        let time = Nanos::new(read.time - begin);
                        accessed.insert(ino);
                        let is_link = index.kind(ino) == Some(FileKind::Symlink);
                        let op = if is_link { Op::Readlink } else { Op::Read };
                        let mut event = Event::new(time, op, path).by(read.pid);
                        if !is_link {
                            event = event.on(lbn.get() * size, bytes);
                        }
                        (event.comm, event.fetched) = (read.comm.clone(), !is_link);
                        mapped.events.push(event);
                    }
                }
                Some(Content::Overhead | Content::Placed(Place::Table)) => {
                    mapped.bytes.metadata += bytes;
                    // Blocks read around a needed one come in requests of their own, mostly of
                    // several pages.
                    if (end - first) * size <= PAGE.max(size) {
                        let time = Nanos::new(read.time - begin);
                        let mut event = Event::new(time, Op::Lookup, Vec::new()).by(read.pid);
                        event.comm.clone_from(&read.comm);
                        let here = mapped.events.len();
                        tables.extend(
                            (block..block + count)
                                .map(|at| (here, event.clone(), BlockNo::new(at))),
                        );
                    }
                }
                Some(Content::Placed(place)) => {
                    let of = &mut mapped.bytes;
                    *(if place == Place::Free { &mut of.free } else { &mut of.metadata }) += bytes;
                    let time = Nanos::new(read.time - begin);
                    let mut event = Event::new(time, Op::Device, b"/".to_vec()).by(read.pid);
                    event.comm.clone_from(&read.comm);
                    event = event.on(block * size, bytes);
                    event.fetched = true;
                    let goes_on = |last: &&mut Event| {
                        block > first
                            && last.op == Op::Device
                            && last.offset + last.length.unwrap_or(0) == event.offset
                    };
                    match mapped.events.last_mut().filter(goes_on) {
                        Some(last) => last.length = last.length.map(|length| length + bytes),
                        None => mapped.events.push(event),
                    }
                }
                None => mapped.bytes.nameless += bytes,
            }
            block += count;
        }
    }
    insert_lookups(&mut mapped.events, lookups(&index, accessed, tables));
    Ok(mapped)
}

/// Puts each lookup in front of the event that had its place in the log.
fn insert_lookups(events: &mut Vec<Event>, lookups: Vec<(usize, Event)>) {
    let mut lookups = lookups.into_iter().peekable();
    let mut merged = Vec::with_capacity(events.len() + lookups.len());
    for (at, event) in events.drain(..).enumerate() {
        while let Some((_, lookup)) = lookups.next_if(|(place, _)| *place <= at) {
            merged.push(lookup);
        }
        merged.push(event);
    }
    merged.extend(lookups.map(|(_, lookup)| lookup));
    *events = merged;
}

/// Files that were looked up and nothing else, by the blocks of inode tables that were read; each
/// with how many events come before it. If no file with an inode in a block is known to have been
/// accessed, the one that was has no blocks, or was only looked up. Which of its inodes it was
/// cannot be told; they occupy one block together wherever they lie. Beside inodes of accessed
/// files only the symlinks are taken, since most files that are only looked up are symlinks.
fn lookups(
    index: &Index,
    mut accessed: HashSet<Ino>,
    tables: Vec<(usize, Event, BlockNo)>,
) -> Vec<(usize, Event)> {
    // Whatever leads to a file was looked up as well.
    for ino in accessed.clone() {
        let mut at = ino;
        while let Some(dir) = index.parent(at).filter(|&dir| accessed.insert(dir)) {
            at = dir;
        }
    }
    let mut events = Vec::new();
    let mut done = HashSet::new();
    for (place, event, block) in tables {
        let Some(Owner::Table(inodes)) = index.owner(block) else { continue };
        if !done.insert(block) {
            continue;
        }
        let explained = inodes.iter().any(|ino| accessed.contains(ino));
        for &ino in inodes.iter().filter(|ino| !accessed.contains(ino)) {
            let is_likely = !explained || index.kind(ino) == Some(FileKind::Symlink);
            if let Some(path) = index.path(ino).filter(|_| is_likely) {
                events.push((place, Event { path, ..event.clone() }));
            }
        }
    }
    events
}
