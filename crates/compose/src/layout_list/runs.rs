//! The ranges of a volume whose bytes a list has: gaps and lengths in sectors.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

use super::error::ListError;
use super::number;
use seekless_device::KnownRun;
use seekless_units::{ByteLen, Lba, SECTOR};

/// Appends a run of `len` sectors that begins `gap` sectors behind the one before it.
pub(crate) fn push(out: &mut Vec<u8>, gap: u64, len: u64, is_zero: bool) {
    number::push(out, gap);
    number::push(out, (len << 1) | u64::from(is_zero));
}

/// Reads the runs of a volume of `volume_len` bytes, the bytes of which are in `metadata`.
pub(crate) fn parse(
    mut bytes: &[u8],
    volume_len: ByteLen,
    metadata: &[u8],
) -> Result<Vec<KnownRun>, ListError> {
    let invalid = |fault: &str| ListError::invalid("runs", fault);
    let sectors = volume_len.get().div_ceil(SECTOR);
    let (mut runs, mut end, mut bytes_at) = (Vec::new(), 0u64, 0u64);
    while !bytes.is_empty() {
        let gap = number::take(&mut bytes).ok_or_else(|| invalid("a gap is no number"))?;
        let word = number::take(&mut bytes).ok_or_else(|| invalid("a length is no number"))?;
        let (len, is_zero) = (word >> 1, word & 1 != 0);
        let start = end.checked_add(gap);
        let (Some(start), Some(behind)) = (start, start.and_then(|start| start.checked_add(len)))
        else {
            return Err(invalid("a run is too long"));
        };
        if len == 0 || behind > sectors {
            return Err(invalid("a run is empty, or extends past the end of the volume"));
        }
        let run_at = (!is_zero).then_some(bytes_at);
        runs.push(KnownRun { start: Lba::new(start), len, bytes_at: run_at });
        if !is_zero {
            let next = len.checked_mul(SECTOR).and_then(|len| bytes_at.checked_add(len));
            bytes_at = next.ok_or_else(|| invalid("a run is too long"))?;
        }
        end = behind;
    }
    if usize::try_from(bytes_at) != Ok(metadata.len()) {
        return Err(invalid("their bytes are not those of the list"));
    }
    Ok(runs)
}
