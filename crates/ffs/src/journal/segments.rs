//! The segments of a journal that count, in order.
//!
//! A segment is a run of sectors that was written at once. Behind the end of the file the kernel
//! begins again at its start, and its place is not recorded: each segment has a number, the number
//! of the oldest one whose changes may not all be on the disk, and the time of its mount.

use super::parts::place;
use super::records::{JournalRecord, decode_all};
use crate::ondisk::{JOURNAL_RECORD, JournalSegment};
use crate::superblock::{Order, Super};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::{index, invalid, parse, range, wide};
use seekless_units::{BlockNo, Extent};
use std::collections::BTreeMap;
use zerocopy::byteorder::{BE, ByteOrder, LE};

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Sizes of sectors that a device may have had.
const SECTORS: [u32; 5] = [512, 1024, 2048, 4096, 8192];

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    number: u64,
    oldest: u64,
    records: u16,
    sectors: u16,
    time: i64,
}

/// A segment whose sectors are all there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Its first byte on the volume.
    at: u64,
    head: Head,
}

/// The segments of the last mount that count, by their numbers, which follow each other.
#[derive(Debug)]
pub(super) struct Segments {
    sector: u32,
    list: BTreeMap<u64, Segment>,
}

impl Segments {
    pub(super) fn count(&self) -> u64 {
        wide(self.list.len())
    }
}

impl Head {
    fn decode(order: Order, bytes: &[u8]) -> Option<Self> {
        fn native<O: ByteOrder>(bytes: &[u8]) -> Option<Head> {
            let raw: JournalSegment<O> = parse(bytes, 0)?;
            Some(Head {
                number: raw.jsr_seq.get(),
                oldest: raw.jsr_oldest.get(),
                records: raw.jsr_cnt.get(),
                sectors: raw.jsr_blocks.get(),
                time: raw.jsr_time.get(),
            })
        }
        match order {
            Order::Little => native::<LE>(bytes),
            Order::Big => native::<BE>(bytes),
        }
    }

    /// Most records of a segment with as many sectors.
    fn room(&self, sector: u32) -> u64 {
        u64::from(self.sectors) * (u64::from(sector) / wide(JOURNAL_RECORD) - 1)
    }
}

impl Segment {
    /// Checks that the segment has as many records as its header says. The kernel writes the same
    /// header to all sectors, takes no sector more than the records need, and zeroes the rest of the
    /// last one (`softdep_process_journal`). A count that is too low would lose changes.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    fn check(&self, order: Order, bytes: &[u8], sector: u32) -> Result<(), FsError> {
        let count = u64::from(self.head.records);
        let wrong = || invalid("jsr_cnt", count, place());
        let mut sectors = bytes.chunks(index(sector));
        if !sectors.all(|sector| Head::decode(order, sector) == Some(self.head)) {
            return Err(wrong());
        }
        let room = self.head.room(sector);
        if count > room {
            return Err(range("jsr_cnt", count, room, place()));
        }
        let each = room / u64::from(self.head.sectors);
        let needed = count.div_ceil(each).max(1);
        let in_sectors = bytes.chunks(index(sector));
        let places = in_sectors.flat_map(|sector| sector.chunks(JOURNAL_RECORD).skip(1));
        let mut rest = places.skip(index(count)).flatten();
        if needed != u64::from(self.head.sectors) || rest.any(|&byte| byte != 0) {
            return Err(wrong());
        }
        Ok(())
    }
}

/// The result of a walk over the journal with sectors of a size.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) segments: Vec<Segment>,
    /// A segment has more records than its sectors have room for: this is not their size.
    is_overfull: bool,
}

/// Finds the segments that count.
///
/// # Errors
/// [`FsError::Corrupt`] when the oldest one that is needed is not there, or a number is there twice.
pub(super) fn scan(volume: &Volume, runs: &[Extent]) -> Result<Segments, FsError> {
    let mut best: Option<(u32, Walk)> = None;
    let most = volume.sb.fsize;
    for sector in SECTORS.into_iter().filter(|&sector| sector <= most) {
        let walk = walk(volume, runs, sector)?;
        let more =
            |(_, best): &(u32, Walk)| best.is_overfull || best.segments.len() < walk.segments.len();
        if !walk.is_overfull && best.as_ref().is_none_or(more) || best.is_none() {
            best = Some((sector, walk));
        }
    }
    let (sector, walk) = best.unwrap_or_default();
    if let Some(full) =
        walk.segments.iter().find(|it| u64::from(it.head.records) > it.head.room(sector))
    {
        let (count, room) = (u64::from(full.head.records), full.head.room(sector));
        return Err(range("jsr_cnt", count, room, place()));
    }
    Ok(Segments { sector, list: select(walk.segments)? })
}

/// The segments from the oldest that is needed to the first gap, behind which nothing counts: the
/// kernel relies only on segments that all earlier ones were written before.
pub(super) fn select(found: Vec<Segment>) -> Result<BTreeMap<u64, Segment>, FsError> {
    let mut list = BTreeMap::new();
    let mut oldest = 0;
    for segment in found {
        let Head { number, oldest: needed, .. } = segment.head;
        if needed > number {
            return Err(range("jsr_oldest", needed, number, place()));
        }
        oldest = oldest.max(needed);
        if list.insert(number, segment).is_some() {
            return Err(invalid("jsr_seq", number, place()));
        }
    }
    let mut list = list.split_off(&oldest);
    if let Some(&first) = list.keys().next().filter(|&&first| first != oldest) {
        return Err(range("jsr_seq", first, oldest, place()));
    }
    let mut next = oldest;
    list.retain(|&number, _| {
        let follows = number == next;
        next = next.wrapping_add(u64::from(follows));
        follows
    });
    Ok(list)
}

/// Reads the journal from its first byte to its last.
fn walk(volume: &Volume, runs: &[Extent], sector: u32) -> Result<Walk, FsError> {
    let sb = &volume.sb;
    let mut found = Walk::default();
    for run in runs {
        let len = run.len * u64::from(sb.fsize);
        let mut at = 0;
        while at + u64::from(sector) <= len {
            // A segment is at most a block.
            let piece = (len - at).min(PIECE);
            let mut bytes = vec![0; index(piece)];
            read_piece(volume, run.start, at, &mut bytes)?;
            let is_last = at + piece == len;
            let done = walk_piece(sb, (run.start, at), &bytes, (sector, is_last), &mut found);
            debug_assert!(done > 0 && done <= piece, "the walk moves on");
            at += done;
        }
    }
    Ok(found)
}

/// Reads a piece of the journal. One that cannot be read at once is read by fragments, so that an
/// error is about the first of these that cannot be read.
fn read_piece(volume: &Volume, start: BlockNo, skip: u64, bytes: &mut [u8]) -> Result<(), FsError> {
    if volume.read_bytes(start, skip, bytes).is_ok() {
        return Ok(());
    }
    let mut at = skip;
    for part in bytes.chunks_mut(index(volume.sb.fsize)) {
        volume.read_bytes(start, at, part)?;
        at += wide(part.len());
    }
    Ok(())
}

/// Finds the segments in some bytes of the journal, and returns how many bytes are done: those that
/// may begin a segment which continues behind them are left, unless these are the last ones.
pub(super) fn walk_piece(
    sb: &Super,
    (start, skip): (BlockNo, u64),
    bytes: &[u8],
    (sector, is_last): (u32, bool),
    found: &mut Walk,
) -> u64 {
    let step = index(sector);
    let longest = index(sb.bsize);
    let head = |at: usize| {
        let head = Head::decode(sb.order, bytes.get(at..)?)?;
        (head.time == sb.tuning.mtime).then_some(head)
    };
    let mut at = 0;
    while at + step <= bytes.len() && (is_last || at + longest <= bytes.len() || at == 0) {
        let Some(first) = head(at).filter(|head| head.sectors > 0) else {
            at += step;
            continue;
        };
        let sectors = usize::from(first.sectors);
        let end = at + sectors * step;
        if end > bytes.len() || sectors * step > longest {
            at += step;
            continue;
        }
        let there = (at..end)
            .step_by(step)
            .take_while(|&at| head(at).is_some_and(|other| other.number == first.number));
        let there = there.count();
        // A torn segment, or the rest of an older one.
        if there == sectors {
            let byte = start.get() * u64::from(sb.fsize) + skip + wide(at);
            found.is_overfull |= u64::from(first.records) > first.room(sector);
            found.segments.push(Segment { at: byte, head: first });
        }
        at += there * step;
    }
    wide(at)
}

/// Reads the records of the segments that count, in order.
///
/// # Errors
/// As [`decode_all`]; [`FsError::Corrupt`] for a segment whose number of records does not match its
/// sectors.
pub(super) fn read(volume: &Volume, segments: &Segments) -> Result<Vec<JournalRecord>, FsError> {
    let (sb, sector) = (&volume.sb, segments.sector);
    let mut records = Vec::new();
    for segment in segments.list.values() {
        let mut bytes = vec![0; usize::from(segment.head.sectors) * index(sector)];
        let fsize = u64::from(sb.fsize);
        let (start, skip) = (BlockNo::new(segment.at / fsize), segment.at % fsize);
        volume.read_bytes(start, skip, &mut bytes)?;
        segment.check(sb.order, &bytes, sector)?;
        records.extend(decode_all(sb, &bytes, sector, u64::from(segment.head.records))?);
    }
    Ok(records)
}
