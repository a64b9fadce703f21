//! Content-defined chunks, with the ends that casync gives them.
//!
//! A hash rolls over the last 48 bytes (buzhash; J. Uzgalis, "Hashing Myths", 1996); a chunk ends
//! where it has a certain remainder, which happens once in the average size, and never within the
//! least size or behind the largest. Bytes that are inserted into an image move only the ends near
//! them.

use super::buzhash_table::NUMBERS;
use seekless_units::ByteLen;

/// Bytes that the hash covers.
const WINDOW: usize = 48;

/// Sizes of content-defined chunks, in bytes.
///
/// ```
/// use seekless_layout::chunks::CutSizes;
///
/// assert_eq!(CutSizes::CASYNC.average().get(), 64 << 10);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutSizes {
    least: usize,
    average: usize,
    largest: usize,
}

impl CutSizes {
    /// casync's defaults: 16K, 64K and 256K.
    pub const CASYNC: Self = Self { least: 16 << 10, average: 64 << 10, largest: 256 << 10 };

    /// The average size.
    #[must_use]
    pub const fn average(self) -> ByteLen {
        ByteLen::new(self.average as u64)
    }

    /// The remainders of the hash, of which the last ends a chunk. casync's formula corrects the
    /// average for the least and the largest size.
    fn remainders(self) -> u32 {
        let average = self.average as f64;
        (average / (-1.428_888_52e-7 * average + 1.332_375_15)) as u32
    }
}

/// Cuts a stream of bytes into chunks.
#[derive(Debug)]
pub(super) struct Cutter {
    sizes: CutSizes,
    remainders: u32,
    hash: u32,
    /// The last bytes, a ring.
    window: [u8; WINDOW],
    /// Zeros at the end of the window.
    zeros: usize,
    /// Bytes of the present chunk.
    len: usize,
}

impl Cutter {
    pub(super) fn new(sizes: CutSizes) -> Self {
        debug_assert!(WINDOW <= sizes.least && sizes.least <= sizes.largest);
        Self {
            sizes,
            remainders: sizes.remainders(),
            hash: 0,
            window: [0; WINDOW],
            zeros: 0,
            len: 0,
        }
    }

    /// Takes the next bytes of the stream. `Some` is the number of them with which a chunk ends;
    /// without an end, all were taken.
    pub(super) fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        // No chunk ends within the least size, so that only the bytes of the window matter there.
        let unseen = self.sizes.least - WINDOW;
        let mut at = unseen.saturating_sub(self.len).min(bytes.len());
        self.len += at;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            let slot = self.len % WINDOW;
            let leaves = std::mem::replace(&mut self.window[slot], byte);
            self.len += 1;
            self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
            self.hash = self.hash.rotate_left(1) ^ NUMBERS[usize::from(byte)];
            if self.len > self.sizes.least {
                self.hash ^= NUMBERS[usize::from(leaves)].rotate_left(WINDOW as u32);
            }
            if self.len < self.sizes.least {
                continue;
            }
            let mut ends = self.hash % self.remainders == self.remainders - 1;
            if !ends && self.zeros >= WINDOW {
                // The hash of zeros stays as it is, and ends no chunk.
                let room = self.sizes.largest - self.len;
                let zeros = bytes[at..].iter().take(room).take_while(|&&byte| byte == 0).count();
                self.len += zeros;
                at += zeros;
            }
            ends |= self.len == self.sizes.largest;
            if ends {
                (self.hash, self.zeros, self.len) = (0, 0, 0);
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes behind which the hash ends a chunk.
    const LAST: [u8; WINDOW] = [
        122, 162, 161, 174, 40, 203, 20, 190, 239, 99, 176, 162, 124, 147, 50, 93, 111, 182, 179,
        112, 125, 93, 50, 111, 158, 57, 163, 220, 139, 159, 94, 95, 222, 6, 248, 112, 242, 229,
        160, 67, 99, 128, 222, 203, 2, 20, 182, 114,
    ];

    /// The ends of chunks in a stream that comes in pieces.
    fn ends(bytes: &[u8], piece: usize) -> Vec<usize> {
        let (mut cutter, mut found, mut before) = (Cutter::new(CutSizes::CASYNC), Vec::new(), 0);
        for piece in bytes.chunks(piece) {
            let mut rest = piece;
            while let Some(end) = cutter.end_in(rest) {
                rest = &rest[end..];
                found.push(before + piece.len() - rest.len());
            }
            before += piece.len();
        }
        found
    }

    #[test]
    fn a_chunk_ends_at_the_least_size() {
        let mut bytes = vec![1; 20_000];
        bytes[(16 << 10) - WINDOW..16 << 10].copy_from_slice(&LAST);
        assert_eq!(ends(&bytes, 20_000), [16 << 10]);
        // One byte in front of it, the end is too early.
        bytes.remove(0);
        assert!(ends(&bytes, 20_000).is_empty());
    }

    #[test]
    fn zeros_end_at_the_largest_size_in_pieces_of_any_length() {
        let mut bytes = vec![0; 900_000];
        bytes[600_000..600_000 + WINDOW].copy_from_slice(&LAST);
        let expected = [262_144, 524_288, 600_000 + WINDOW, 862_192];
        for piece in [1, 7, 4096, 100_000, 900_000] {
            assert_eq!(ends(&bytes, piece), expected, "{piece}");
        }
    }
}
