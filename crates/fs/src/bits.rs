//! A bitmap over a large index range.

/// A bitmap, all clear at first.
#[derive(Clone, Debug)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Creates a bitmap of `len` bits.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Sets a bit. Returns whether it was clear; false past the end.
    pub fn set(&mut self, at: usize) -> bool {
        let Some(word) = self.0.get_mut(at >> 6) else { return false };
        let bit = 1u64 << (at & 63);
        let was_clear = *word & bit == 0;
        *word |= bit;
        was_clear
    }

    /// Clears a bit.
    pub fn clear(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at >> 6) {
            *word &= !(1u64 << (at & 63));
        }
    }

    /// The first clear bit at or after `from`; all bits past the end are clear.
    #[must_use]
    pub fn next_clear(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(word) = self.0.get(at >> 6) {
            let clear = !word >> (at & 63);
            if clear != 0 {
                return at + clear.trailing_zeros() as usize;
            }
            at = (at | 63) + 1;
        }
        at
    }

    /// The 64 bits from `at` on, the first as the lowest; bits past the end are clear.
    #[must_use]
    pub fn word_at(&self, at: usize) -> u64 {
        let word = |nr: usize| self.0.get(nr).copied().unwrap_or(0);
        let (nr, skip) = (at >> 6, at & 63);
        match skip {
            0 => word(nr),
            skip => word(nr) >> skip | word(nr + 1) << (64 - skip),
        }
    }

    /// Whether a bit is set; bits past the end are clear.
    #[must_use]
    pub fn get(&self, at: usize) -> bool {
        self.0.get(at >> 6).is_some_and(|word| word >> (at & 63) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_at_any_bit() {
        let mut bits = Bits::new(200);
        let set = [0, 3, 63, 64, 100, 127, 128, 199];
        for at in set {
            assert!(bits.set(at));
        }
        for at in 0..260 {
            let wanted = |bit: usize| set.contains(&(at + bit));
            let word = bits.word_at(at);
            assert!((0..64).all(|bit| (word >> bit & 1 == 1) == wanted(bit)), "from bit {at}");
        }
    }
}
