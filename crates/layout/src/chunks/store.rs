//! The bytes of chunks in a store that compresses each by itself.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::ByteLen;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use zstd::stream::write::Encoder;

/// Levels of zstd, without those that `--ultra` has to unlock.
const LEVELS: RangeInclusive<u8> = 1..=19;

/// zstd's own default.
const DEFAULT_LEVEL: u8 = 3;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// How a store keeps a chunk.
///
/// ```
/// use seekless_layout::chunks::Codec;
///
/// let codec: Codec = "zstd".parse()?;
/// assert_eq!((codec.name(), codec.level()), ("zstd", Some(3)));
/// assert_eq!("zstd:19".parse::<Codec>()?.to_string(), "zstd:19");
/// assert!("zstd:20".parse::<Codec>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codec {
    /// The level of zstd; without one, chunks are not compressed.
    zstd: Option<u8>,
}

impl Codec {
    /// `none` or `zstd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.zstd {
            None => "none",
            Some(_) => "zstd",
        }
    }

    /// The level of compression.
    #[must_use]
    pub const fn level(self) -> Option<u8> {
        self.zstd
    }

    /// The bytes that a store sends for chunks, given as ranges of bytes of a device: the sum of
    /// the frames of zstd, each without a checksum, which are slightly longer than a chunk that
    /// cannot be compressed; with `none`, the sum of the chunks' lengths. A chunk of zeros is not
    /// stored and costs nothing. The memory used is bounded by the
    /// level.
    ///
    /// # Errors
    /// [`StoreError`], also for a range that extends past the end of the device.
    pub fn stored_bytes(
        self,
        device: &dyn BlockDevice,
        chunks: &[Range<u64>],
    ) -> Result<u64, StoreError> {
        let of_chunk = |chunk: &Range<u64>| self.stored_chunk(device, chunk);
        chunks.par_iter().map(of_chunk).try_reduce(|| 0, |one, other| Ok(one + other))
    }

    fn stored_chunk(self, device: &dyn BlockDevice, chunk: &Range<u64>) -> Result<u64, StoreError> {
        let Some(level) = self.zstd else {
            let mut plain = Counter(0);
            let is_zero = copy(device, chunk, &mut plain)?;
            return Ok(if is_zero { 0 } else { plain.0 });
        };
        let mut frame = Encoder::new(Counter(0), level.into()).map_err(StoreError::Compress)?;
        // As with the bytes at hand in one piece: the level's parameters depend on the length.
        let len = Some(chunk.end - chunk.start);
        frame.set_pledged_src_size(len).map_err(StoreError::Compress)?;
        let is_zero = copy(device, chunk, &mut frame)?;
        let packed = frame.finish().map_err(StoreError::Compress)?;
        Ok(if is_zero { 0 } else { packed.0 })
    }
}

/// As the command line has it.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zstd {
            None => f.write_str(self.name()),
            Some(level) => write!(f, "{}:{level}", self.name()),
        }
    }
}

impl FromStr for Codec {
    type Err = String;

    /// Parses `none`, `zstd` or `zstd:LEVEL`.
    fn from_str(text: &str) -> Result<Self, String> {
        let zstd = match text.split_once(':') {
            None if text == "none" => Some(None),
            None if text == "zstd" => Some(Some(DEFAULT_LEVEL)),
            Some(("zstd", level)) => {
                level.parse().ok().filter(|level| LEVELS.contains(level)).map(Some)
            }
            _ => None,
        };
        let (least, most) = (LEVELS.start(), LEVELS.end());
        zstd.map(|zstd| Self { zstd }).ok_or_else(|| {
            format!("expected none, zstd or zstd:LEVEL with a level from {least} to {most}")
        })
    }
}

/// The reason why the bytes of a chunk could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The chunk could not be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// zstd failed: it has too little memory.
    #[error("zstd: {0}")]
    Compress(#[source] io::Error),
}

/// The chunks of `size` bytes of a device of `len` bytes that requests touch, as ranges of bytes,
/// each once and in order. The last one of the device may be shorter; `requests` are ranges of
/// bytes too, of which those past the last chunk touch nothing.
///
/// ```
/// use seekless_layout::chunks::touched;
/// use seekless_units::ByteLen;
///
/// let (size, len) = (ByteLen::new(4096), ByteLen::new(10_000));
/// assert_eq!(touched(size, &[9000..9001, 10..20, 0..1], len), [0..4096, 8192..10_000]);
/// ```
#[must_use]
pub fn touched(size: ByteLen, requests: &[Range<u64>], len: ByteLen) -> Vec<Range<u64>> {
    let (size, len) = (size.get(), len.get());
    let is_there = |number: &u64| *number < len.div_ceil(size);
    let range = |number: u64| number * size..len.min((number + 1).saturating_mul(size));
    numbers(size, requests).into_iter().filter(is_there).map(range).collect()
}

/// The numbers of the chunks of `size` bytes that requests touch.
pub(super) fn numbers(size: u64, requests: &[Range<u64>]) -> BTreeSet<u64> {
    let of_one = |request: &Range<u64>| request.start / size..=(request.end - 1) / size;
    requests.iter().filter(|request| !request.is_empty()).flat_map(of_one).collect()
}

/// Writes a range of bytes of a device; whether all are zeros.
fn copy(
    device: &dyn BlockDevice,
    range: &Range<u64>,
    to: &mut impl Write,
) -> Result<bool, StoreError> {
    let (mut at, mut piece, mut is_zero) = (range.start, Vec::new(), true);
    while at < range.end {
        piece.resize((range.end - at).min(PIECE) as usize, 0);
        device.read_bytes(ByteLen::new(at), &mut piece)?;
        is_zero = is_zero && piece.iter().all(|&byte| byte == 0);
        to.write_all(&piece).map_err(StoreError::Compress)?;
        at += piece.len() as u64;
    }
    Ok(is_zero)
}

/// The bytes that were written.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;
    use std::slice::from_ref;

    fn codec(text: &str) -> Codec {
        text.parse().expect("a codec")
    }

    #[test]
    fn codecs_are_parsed_and_printed() {
        for (text, printed) in
            [("none", "none"), ("zstd", "zstd:3"), ("zstd:1", "zstd:1"), ("zstd:19", "zstd:19")]
        {
            assert_eq!(codec(text).to_string(), printed);
        }
        for text in
            ["", "lz4", "none:1", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "ZSTD", "zstd:3:"]
        {
            let error = text.parse::<Codec>().expect_err(text);
            assert_eq!(error, "expected none, zstd or zstd:LEVEL with a level from 1 to 19");
        }
    }

    #[test]
    fn chunks_past_the_end_are_not_touched() {
        let (size, len) = (ByteLen::new(5000), ByteLen::new(12_000));
        let requests = [4999..5001, 4999..4999, 11_999..90_000, 95_000..96_000];
        assert_eq!(touched(size, &requests, len), [0..5000, 5000..10_000, 10_000..12_000]);
        assert!(touched(size, from_ref(&(15_000..15_001)), len).is_empty());
        assert!(
            touched(ByteLen::new(1 << 63), from_ref(&(1 << 63..(1 << 63) + 1)), len).is_empty()
        );
        assert_eq!(touched(ByteLen::new(u64::MAX), &[0..1, 7..8], len), from_ref(&(0..12_000)));
    }

    #[test]
    fn a_chunk_of_several_pieces_is_one_frame() {
        // Text that repeats across pieces, and bytes without order.
        let mut bytes = b"the same words again and again ".repeat(80_000);
        let mut state = 1u32;
        bytes.extend((0..300_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }));
        let len = bytes.len() as u64;
        assert!(len > 2 * PIECE);
        let device = MemoryDevice::new(bytes.clone());
        for level in [1, 3, 19] {
            let whole = zstd::bulk::compress(&bytes, level).expect("compressed").len() as u64;
            let found = codec(&format!("zstd:{level}")).stored_bytes(&device, from_ref(&(0..len)));
            let found = found.expect("memory");
            // At hand as a whole, the bytes are divided into other blocks.
            assert!(found.abs_diff(whole) < 100, "level {level}: {found}, as a whole {whole}");
        }
        let plain = codec("none").stored_bytes(&device, &[0..len, 5..9]);
        assert_eq!(plain.expect("memory"), len + 4);
    }

    #[test]
    fn zeros_cost_nothing() {
        let mut bytes = vec![0; 3 << 20];
        for text in ["none", "zstd:3"] {
            let of = |bytes: &[u8]| {
                let device = MemoryDevice::new(bytes.to_vec());
                let whole = 0..bytes.len() as u64;
                codec(text).stored_bytes(&device, from_ref(&whole)).expect("memory")
            };
            assert_eq!(of(&bytes), 0);
            bytes[(3 << 20) - 1] = 1;
            assert!(of(&bytes) > 0, "the last byte counts");
            bytes[(3 << 20) - 1] = 0;
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let device = MemoryDevice::new(vec![1; 4096]);
        let past = codec("zstd").stored_bytes(&device, &[0..4096, 4096..8192]);
        assert!(
            matches!(past, Err(StoreError::Device(DeviceError::OutOfRange { .. }))),
            "{past:?}"
        );
    }
}
