//! The reads of a trace on an image, as byte ranges to read ahead of it: to warm a volume that is
//! fetched lazily, or a cache.

use crate::replay::{Machine, Replayed, replay};
use crate::trace::Events;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Write};

/// Consecutive bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ByteRange {
    /// The first one.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// The reads of a trace on an image.
#[derive(Clone, Debug)]
pub struct Warm {
    /// The replay, in the order that was recorded.
    pub replayed: Replayed,
    /// The ranges read, read-ahead included: each byte once, in the order of first access.
    pub ranges: Vec<ByteRange>,
}

/// Replays a trace on an image that begins at byte `start` of its device.
///
/// # Errors
/// Those of [`replay()`].
pub fn warm(image: &dyn Inspect, events: &Events, start: u64) -> Result<Warm, FsError> {
    let replayed = replay(image, events, Machine::default())?;
    let ranges = ranges(&replayed, u64::from(image.geometry().block_size), start);
    Ok(Warm { replayed, ranges })
}

fn ranges(replayed: &Replayed, block_size: u64, start: u64) -> Vec<ByteRange> {
    let mut seen = HashSet::new();
    let blocks = replayed.requests.iter().flat_map(|request| {
        let first = request.extent.start.get();
        first..first + request.extent.len
    });
    let mut ranges: Vec<ByteRange> = Vec::new();
    for block in blocks.filter(|block| seen.insert(*block)) {
        let offset = block * block_size + start;
        match ranges.last_mut() {
            Some(last) if last.offset + last.length == offset => last.length += block_size,
            _ => ranges.push(ByteRange { offset, length: block_size }),
        }
    }
    ranges
}

/// A chunk of a volume that traces need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeededChunk {
    /// Its number.
    pub number: u64,
    /// Bytes that have been read by the time it is needed, in the trace in which these are fewest.
    pub after: u64,
    /// Number of traces that need it.
    pub traces: u64,
}

/// The chunks, each of `chunk` bytes, that traces need on a volume, in the order in which they are
/// needed first.
#[must_use]
pub fn chunks(warms: &[Warm], chunk: ByteLen) -> Vec<NeededChunk> {
    let chunk = chunk.get();
    let mut needed: HashMap<u64, NeededChunk> = HashMap::new();
    for warm in warms {
        let (mut read, mut own) = (0, HashSet::new());
        for range in &warm.ranges {
            let end = range.offset + range.length;
            for number in range.offset / chunk..end.div_ceil(chunk) {
                let after = read + (number * chunk).max(range.offset) - range.offset;
                if own.insert(number) {
                    let found =
                        needed.entry(number).or_insert(NeededChunk { number, after, traces: 0 });
                    found.after = found.after.min(after);
                    found.traces += 1;
                }
            }
            read += range.length;
        }
    }
    let mut needed: Vec<NeededChunk> = needed.into_values().collect();
    needed.sort_unstable_by_key(|chunk| (chunk.after, chunk.number));
    needed
}

/// Files whose contents are read, in order, by the names under which they were first
/// reached, symlinks resolved.
#[must_use]
pub fn read_files(replayed: &Replayed) -> Vec<&[u8]> {
    replayed.files.iter().filter_map(|ino| replayed.paths.get(ino)).map(Vec::as_slice).collect()
}

/// Writes a line of offset and length in bytes for each range.
///
/// # Errors
/// When `out` does not take it.
pub fn write_ranges(ranges: &[ByteRange], out: &mut dyn Write) -> io::Result<()> {
    ranges.iter().try_for_each(|range| writeln!(out, "{} {}", range.offset, range.length))
}

/// fio allocates buffers of the largest size in a log.
const PIECE: u64 = 1 << 20;

/// The longest name that fio reads in a log.
const FIO_NAME_MAX: usize = 255;

/// Whether a log of fio can name a file so: its fields are separated by blanks (`HOWTO`,
/// "Trace file format v2").
#[must_use]
pub fn fio_takes_name(name: &[u8]) -> bool {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
    !name.is_empty() && name.len() <= FIO_NAME_MAX && !name.iter().any(is_blank)
}

/// Writes a log of fio (version 2) that reads the ranges of the file or device `name`,
/// in pieces of at most 1 MiB.
///
/// # Errors
/// When `out` does not take it.
pub fn write_fio_log(ranges: &[ByteRange], name: &[u8], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"fio version 2 iolog\n")?;
    let mut line = |action: fmt::Arguments<'_>| {
        out.write_all(name)?;
        writeln!(out, " {action}")
    };
    line(format_args!("add"))?;
    line(format_args!("open"))?;
    for ByteRange { offset, length } in ranges.iter().flat_map(pieces) {
        line(format_args!("read {offset} {length}"))?;
    }
    line(format_args!("close"))
}

fn pieces(range: &ByteRange) -> impl Iterator<Item = ByteRange> + use<> {
    let ByteRange { offset, length } = *range;
    let starts = (0..length).step_by(PIECE as usize);
    starts.map(move |at| ByteRange { offset: offset + at, length: PIECE.min(length - at) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Purpose, Request};
    use seekless_units::{BlockNo, Extent, Ino, Lbn};

    fn warm_of(ranges: &[(u64, u64)]) -> Warm {
        let range = |&(offset, length): &(u64, u64)| ByteRange { offset, length };
        Warm { replayed: Replayed::default(), ranges: ranges.iter().map(range).collect() }
    }

    #[test]
    fn chunks_are_in_order_of_need() {
        let one = warm_of(&[(250, 100), (0, 50), (350, 10), (900, 1)]);
        let two = warm_of(&[(920, 10), (260, 20)]);
        let found = chunks(&[one, two], ByteLen::new(100));
        let chunk = |number, after, traces| NeededChunk { number, after, traces };
        // The second trace needs chunk 9 at once, and chunk 2 behind ten bytes.
        assert_eq!(found, [chunk(2, 0, 2), chunk(9, 0, 2), chunk(3, 50, 1), chunk(0, 100, 1)]);
    }

    fn request(start: u64, len: u64) -> Request {
        let extent = Extent::new(BlockNo::new(start), len);
        Request { extent, purpose: Purpose::Data, ino: Ino::new(2), lbn: Lbn::ZERO, event: 0 }
    }

    #[test]
    fn each_byte_is_there_once_in_the_order_of_first_access() {
        let requests = vec![request(10, 2), request(12, 1), request(0, 1), request(9, 5)];
        let replayed = Replayed { requests, ..Replayed::default() };
        let of = |offset, length| ByteRange { offset, length };
        let expected =
            [of(10_240 + 512, 3072), of(512, 1024), of(9216 + 512, 1024), of(13_312 + 512, 1024)];
        assert_eq!(ranges(&replayed, 1024, 512), expected);
        let mut text = Vec::new();
        write_ranges(&expected[..2], &mut text).unwrap();
        assert_eq!(text, b"10752 3072\n512 1024\n");
    }

    #[test]
    fn a_log_of_fio_reads_in_pieces() {
        let mut text = Vec::new();
        let range = ByteRange { offset: 4096, length: (2 << 20) + 512 };
        write_fio_log(&[range], b"/dev/vdb", &mut text).unwrap();
        let lines = [
            "fio version 2 iolog",
            "/dev/vdb add",
            "/dev/vdb open",
            "/dev/vdb read 4096 1048576",
            "/dev/vdb read 1052672 1048576",
            "/dev/vdb read 2101248 512",
            "/dev/vdb close",
        ];
        assert_eq!(String::from_utf8(text).unwrap().lines().collect::<Vec<_>>(), lines);
        assert!(fio_takes_name(b"disk.img") && !fio_takes_name(b"my disk.img"));
    }
}
