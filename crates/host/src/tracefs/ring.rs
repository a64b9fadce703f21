//! Pages of the trace ring buffer, as `per_cpu/cpuN/trace_pipe_raw` returns them
//! (`kernel/trace/ring_buffer.c`, `include/linux/ring_buffer.h`): a time stamp, the number of bytes
//! used, then the records.

/// Flags in `commit`, above the length.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const LENGTH: u64 = (1 << 30) - 1;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An absolute time stamp has only these bits; the rest are taken from the page's own.
const STAMP_BITS: u64 = (1 << 59) - 1;

/// Size of the page header in bytes.
const HEADER: usize = 16;

/// Events that the kernel dropped before a page, for lack of room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// None.
    No,
    /// The number of events.
    Count(u64),
    /// An unknown number.
    Some,
}

/// The records of one page, with their times.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    time: u64,
    stamp: u64,
    /// Events lost in front of them.
    pub lost: Lost,
}

impl<'a> Records<'a> {
    /// The records of a page; `None` if it is too short.
    #[must_use]
    pub fn new(page: &'a [u8]) -> Option<Self> {
        let stamp = word(page, 0)?;
        let commit = word(page, 8)?;
        let len = (commit & LENGTH) as usize;
        let rest = page.get(HEADER..HEADER.checked_add(len)?)?;
        let lost = match (commit & MISSED != 0, commit & MISSED_STORED != 0) {
            (false, _) => Lost::No,
            (true, true) => word(page, HEADER + len).map_or(Lost::Some, Lost::Count),
            (true, false) => Lost::Some,
        };
        Some(Self { rest, time: stamp, stamp, lost })
    }

    /// Cuts `len` bytes off the front.
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(front)
    }

    fn take_u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
    }
}

fn word(page: &[u8], at: usize) -> Option<u64> {
    page.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

/// Splits a record's first word, a C bit field, into type and time delta.
const fn split(header: u32) -> (u32, u64) {
    if cfg!(target_endian = "little") {
        (header & 31, (header >> 5) as u64)
    } else {
        (header >> 27, (header & ((1 << 27) - 1)) as u64)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (kind, delta) = split(self.take_u32()?);
            match kind {
                PADDING => {
                    if delta == 0 {
                        return None;
                    }
                    let len = self.take_u32()? as usize;
                    self.time = self.time.wrapping_add(delta);
                    // The length includes its own word.
                    self.take(len.saturating_sub(4))?;
                }
                TIME_EXTEND => {
                    let high = u64::from(self.take_u32()?);
                    self.time = self.time.wrapping_add((high << 27) + delta);
                }
                TIME_STAMP => {
                    let high = u64::from(self.take_u32()?);
                    self.time = ((high << 27) + delta) | (self.stamp & !STAMP_BITS);
                }
                words => {
                    self.time = self.time.wrapping_add(delta);
                    let len = match words {
                        0 => (self.take_u32()? as usize).saturating_sub(4),
                        words => words as usize * 4,
                    };
                    return Some((self.time, self.take(len)?));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(records: &[u32], flags: u64) -> Vec<u8> {
        let mut page = 1_000u64.to_ne_bytes().to_vec();
        page.extend(((records.len() as u64 * 4) | flags).to_ne_bytes());
        page.extend(records.iter().flat_map(|word| word.to_ne_bytes()));
        page
    }

    #[test]
    fn records_carry_their_times() {
        let words = [
            2 | 5 << 5,
            1,
            2, // 8 bytes, 5 ns later
            TIME_EXTEND | 7 << 5,
            1, // (1 << 27) + 7 later
            10 << 5,
            12,
            3,
            4, // 8 bytes by its own length, 10 later
            PADDING | 1 << 5,
            8,
            0, // nothing, 1 later
            1,
            9,       // 4 bytes
            PADDING, // the end
            77,
        ];
        let page = page(&words, 0);
        let records = Records::new(&page).unwrap();
        assert_eq!(records.lost, Lost::No);
        let seen: Vec<(u64, usize)> = records.map(|(time, bytes)| (time, bytes.len())).collect();
        let after = 1_005 + (1 << 27) + 7 + 10;
        assert_eq!(seen, [(1_005, 8), (after, 8), (after + 1, 4)]);
    }

    #[test]
    fn what_is_lost_is_told() {
        let mut full = page(&[], MISSED | MISSED_STORED);
        full.extend(42u64.to_ne_bytes());
        assert_eq!(Records::new(&full).unwrap().lost, Lost::Count(42));
        assert_eq!(Records::new(&page(&[], MISSED)).unwrap().lost, Lost::Some);
    }

    #[test]
    fn a_broken_page_ends_early() {
        assert!(Records::new(&[0; 15]).is_none());
        let mut cut = page(&[28, 1], 0);
        assert_eq!(Records::new(&cut).unwrap().count(), 0);
        cut[8..16].copy_from_slice(&4096u64.to_ne_bytes());
        assert!(Records::new(&cut).is_none());
    }
}
