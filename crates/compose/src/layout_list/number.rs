//! Numbers of variable length: LEB128, seven bits in a byte, low ones first.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]

/// Bits of a number in a byte.
const BITS: u32 = 7;
/// Marks a byte that is not the last one.
const MORE: u8 = 0x80;

/// Appends a number.
pub(crate) fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= u64::from(MORE) {
        let [low, ..] = number.to_le_bytes();
        out.push(low | MORE);
        number >>= BITS;
    }
    let [low, ..] = number.to_le_bytes();
    out.push(low);
}

/// Takes a number from the front of `bytes`; `None` where they end too early, or the number is too
/// large.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0u32);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & !MORE);
        let shifted = bits.checked_shl(shift)?;
        if shifted >> shift != bits {
            return None;
        }
        number |= shifted;
        if byte & MORE == 0 {
            return Some(number);
        }
        shift += BITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        numbers.into_iter().for_each(|number| push(&mut out, number));
        let mut rest = out.as_slice();
        for number in numbers {
            assert_eq!(take(&mut rest), Some(number));
        }
        assert_eq!(take(&mut rest), None);
    }

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        for bytes in [&[0xff; 11][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]] {
            assert_eq!(take(&mut &bytes[..]), None);
        }
    }
}
