//! Lists are unpacked. Their bytes are not trusted: lengths are checked before memory is taken.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

use super::encode::{head_sum, piece_sum};
use super::error::ListError;
use super::ondisk::{HEADER, Header, MAGIC, PIECE, PieceSum, SUM, VERSION};
use super::parts::ListParts;
use seekless_units::ByteLen;
use std::io::Read;
use std::ops::RangeInclusive;
use zerocopy::FromBytes;

/// Bytes of payload that any list may have.
const LEAST: u64 = 256 << 20;
/// Bytes of payload for each byte of a list beyond that.
const MOST_PACKED: u64 = 1024;
/// Smallest and largest units of digests.
pub(crate) const UNITS: RangeInclusive<u32> = 512..=1 << 20;

impl ListParts {
    /// Unpacks a list.
    ///
    /// # Errors
    /// [`ListError`].
    pub fn decode(list: &[u8]) -> Result<Self, ListError> {
        let len = count(list.len());
        let Ok((header, behind)) = Header::ref_from_prefix(list) else {
            return Err(ListError::CutShort { len, stated: count(HEADER) });
        };
        if header.magic != MAGIC {
            return Err(ListError::invalid("header", "it has not the mark of a layout list"));
        }
        if header.version.get() != VERSION {
            let tool = text(&header.tool);
            return Err(ListError::Version { found: header.version.get(), tool });
        }
        let stated = header.list_len.get();
        if len < stated {
            return Err(ListError::CutShort { len, stated });
        }
        let pieces = usize::try_from(header.pieces.get()).unwrap_or(usize::MAX);
        let head_len = pieces.saturating_mul(size_of::<PieceSum>());
        let damaged = |end| ListError::Checksum { start: 0, end };
        let Some((sums, packed)) = behind.split_at_checked(head_len) else {
            return Err(damaged(count(HEADER)));
        };
        let head = list.get(..SUM).unwrap_or_default();
        if head_sum(head, sums) != header.sum {
            return Err(damaged(count(HEADER.saturating_add(sums.len()))));
        }
        if len > stated {
            return Err(ListError::invalid("end", format!("{} bytes follow it", len - stated)));
        }
        check_pieces(sums, packed, len)?;
        Self::unpack(header, packed, len)
    }

    /// Unpacks the payload, once all checksums match.
    fn unpack(header: &Header, packed: &[u8], len: u64) -> Result<Self, ListError> {
        let invalid = |fault: &str| ListError::invalid("header", fault);
        let lens = [header.runs_len, header.metadata_len, header.digests_len].map(|len| len.get());
        let whole = lens.iter().try_fold(0u64, |sum, &part| sum.checked_add(part));
        let most = len.saturating_mul(MOST_PACKED).saturating_add(LEAST);
        let Some(whole) = whole.filter(|&whole| whole <= most) else {
            return Err(invalid("more is packed than a list of its length can have"));
        };
        let (unit, volume_len) = (header.unit.get(), ByteLen::new(header.volume_len.get()));
        if !unit.is_power_of_two() || !UNITS.contains(&unit) {
            return Err(invalid("the unit of digests is no power of two from 512 to 1M"));
        }
        if i64::try_from(volume_len.get()).is_err() {
            return Err(invalid("the volume is too long"));
        }
        let mut runs = inflate(packed, whole)?;
        let [runs_len, metadata_len, _] =
            lens.map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        let missing = || ListError::invalid("payload", "a part is missing");
        let (_, rest) = runs.split_at_checked(runs_len).ok_or_else(missing)?;
        let (metadata, digests) = rest.split_at_checked(metadata_len).ok_or_else(missing)?;
        let (metadata, digests) = (metadata.to_vec(), digests.to_vec());
        runs.truncate(runs_len);
        Ok(Self { format: text(&header.format), volume_len, unit, runs, metadata, digests })
    }
}

/// Checks the checksum of each piece.
fn check_pieces(sums: &[u8], packed: &[u8], len: u64) -> Result<(), ListError> {
    let pieces = packed.chunks(PIECE);
    if pieces.len() != sums.len() / size_of::<PieceSum>() {
        return Err(ListError::invalid("header", "it has not a checksum for each piece"));
    }
    let mut start = len.saturating_sub(count(packed.len()));
    for (piece, sum) in pieces.zip(sums.chunks(size_of::<PieceSum>())) {
        let end = start.saturating_add(count(piece.len()));
        if piece_sum(piece) != sum {
            return Err(ListError::Checksum { start, end });
        }
        start = end;
    }
    Ok(())
}

/// Unpacks exactly `len` bytes. Memory is taken as they come.
fn inflate(packed: &[u8], len: u64) -> Result<Vec<u8>, ListError> {
    let invalid = |fault: String| ListError::invalid("payload", fault);
    let failed = |error: std::io::Error| invalid(error.to_string());
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(failed)?;
    let mut payload = Vec::new();
    let mut limited = decoder.take(len.saturating_add(1));
    limited.read_to_end(&mut payload).map_err(failed)?;
    if count(payload.len()) != len {
        return Err(invalid(format!("it has not {len} bytes")));
    }
    Ok(payload)
}

/// A text that is padded with zeros.
fn text(padded: &[u8]) -> String {
    let len = padded.iter().position(|&byte| byte == 0).unwrap_or(padded.len());
    let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
    padded.iter().take(len).map(shown).collect()
}

/// A number of bytes in memory.
fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
