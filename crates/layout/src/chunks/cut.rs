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
    /// Bytes of the present chunk.
    len: usize,
}

impl Cutter {
    pub(super) fn new(sizes: CutSizes) -> Self {
        debug_assert!(WINDOW <= sizes.least && sizes.least <= sizes.largest);
        Self { sizes, remainders: sizes.remainders(), hash: 0, window: [0; WINDOW], len: 0 }
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
            self.hash = self.hash.rotate_left(1) ^ NUMBERS[usize::from(byte)];
            if self.len > self.sizes.least {
                self.hash ^= NUMBERS[usize::from(leaves)].rotate_left(WINDOW as u32);
                let ends = self.hash % self.remainders == self.remainders - 1;
                if ends || self.len == self.sizes.largest {
                    self.hash = 0;
                    self.len = 0;
                    return Some(at);
                }
            }
        }
        None
    }
}
