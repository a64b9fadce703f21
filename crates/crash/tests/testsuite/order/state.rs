//! States of a disk that are composed from images of another implementation:
//! the image before an operation, and for each step of the operation the image
//! after it.

use std::ops::Range;

/// The bytes of an image that one write changes, by a name that tells their
/// role, such as `inode /d/new` or `entries of /d +new`.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) bytes: Vec<Range<usize>>,
}

/// An image after a step, and the parts in which it differs from the one before.
pub(crate) struct Step {
    pub(crate) image: Vec<u8>,
    pub(crate) parts: Vec<Part>,
}

/// An operation as it was recorded.
pub(crate) struct Recorded {
    pub(crate) before: Vec<u8>,
    pub(crate) steps: Vec<Step>,
}

/// Narrows the bytes of a part to some of an inode's or an entry's fields:
/// returns the ranges of the field in a part, if there is such a field.
pub(crate) type Fields = fn(part: &Part, field: &str) -> Option<Vec<Range<usize>>>;

/// Whether both are the same bytes where the ranges lie.
fn same(one: &[u8], other: &[u8], ranges: &[Range<usize>]) -> bool {
    ranges.iter().all(|range| one[range.clone()] == other[range.clone()])
}

impl Recorded {
    /// Bytes that a term names: `[STEP] PART [only FIELDS | but FIELDS]`.
    /// `STEP` is a number, 1 by default; a `PART` that ends in `*` is the one that begins so.
    fn find(&self, term: &str, fields: Fields) -> (usize, Vec<Range<usize>>) {
        let (step, name) = match term.split_once(' ') {
            Some((number, rest)) if number.parse::<usize>().is_ok() => {
                (number.parse().expect("a step"), rest)
            }
            _ => (1, term),
        };
        let (name, only, list) = if let Some((name, list)) = name.split_once(" only ") {
            (name, true, list)
        } else if let Some((name, list)) = name.split_once(" but ") {
            (name, false, list)
        } else {
            (name, false, "")
        };
        let parts = &self.steps[step - 1].parts;
        let called = |part: &&Part| match name.strip_suffix('*') {
            Some(start) => part.name.starts_with(start),
            None => part.name == name,
        };
        let mut found = parts.iter().filter(called);
        let (Some(part), None) = (found.next(), found.next()) else {
            let names: Vec<_> = parts.iter().map(|part| &part.name).collect();
            panic!("step {step}: {name:?} is not one of {names:#?}")
        };
        let mut chosen = Vec::new();
        for field in list.split(',').filter(|field| !field.is_empty()) {
            let ranges = fields(part, field);
            chosen.extend(ranges.unwrap_or_else(|| panic!("{name} has no {field}")));
        }
        if only {
            return (step, chosen);
        }
        let mut left = part.bytes.clone();
        for hole in chosen {
            left = left.into_iter().flat_map(|range| without(range, &hole)).collect();
        }
        (step, left)
    }

    /// Performs the write that a term names.
    ///
    /// # Panics
    /// When it would change nothing.
    pub(crate) fn write(&self, disk: &mut [u8], term: &str, fields: Fields) {
        let (step, ranges) = self.find(term, fields);
        let image = &self.steps[step - 1].image;
        let before = if step == 1 { &self.before } else { &self.steps[step - 2].image };
        assert!(!same(before, image, &ranges), "{term:?} changes nothing");
        for range in ranges {
            disk[range.clone()].copy_from_slice(&image[range]);
        }
    }

    /// Writes what nothing waits for (field `lazy` of each part) and what none of
    /// the other writes names, as it is after the last step.
    pub(crate) fn write_rest(&self, disk: &mut [u8], others: &[&str], fields: Fields) {
        let mut rest: Vec<Range<usize>> = Vec::new();
        for part in self.steps.iter().flat_map(|step| &step.parts) {
            rest.extend(fields(part, LAZY).unwrap_or_default());
        }
        for term in others {
            for hole in self.find(term, fields).1 {
                rest = rest.into_iter().flat_map(|range| without(range, &hole)).collect();
            }
        }
        let last = &self.steps[self.steps.len() - 1].image;
        for range in rest {
            disk[range.clone()].copy_from_slice(&last[range]);
        }
    }
}

/// What is left of a range without another.
fn without(range: Range<usize>, hole: &Range<usize>) -> Vec<Range<usize>> {
    let first = range.start..range.end.min(hole.start);
    let second = range.start.max(hole.end)..range.end;
    [first, second].into_iter().filter(|range| range.start < range.end).collect()
}

/// Each sector of two images in which they differ, by its first byte.
pub(crate) fn changed_sectors(before: &[u8], after: &[u8]) -> Vec<usize> {
    assert_eq!(before.len(), after.len(), "images of different length");
    (0..before.len())
        .step_by(SECTOR)
        .filter(|&at| before[at..at + SECTOR] != after[at..at + SECTOR])
        .collect()
}

/// The field of bytes that nothing waits for: times, and counts that each check
/// sets right.
pub(crate) const LAZY: &str = "lazy";

/// The write of all that is lazy, and that no other write names.
pub(crate) const REST: &str = "the rest";

/// A sector, in bytes.
pub(crate) const SECTOR: usize = 512;

/// A little-endian number of two bytes.
pub(crate) fn u16_at(image: &[u8], at: usize) -> usize {
    usize::from(image[at]) | usize::from(image[at + 1]) << 8
}

/// A little-endian number of four bytes.
pub(crate) fn u32_at(image: &[u8], at: usize) -> usize {
    u16_at(image, at) | u16_at(image, at + 2) << 16
}

/// A file's bytes: every sector tells whose it is.
pub(crate) fn contents(owner: &str, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 512);
    for n in 0.. {
        if bytes.len() >= len {
            break;
        }
        let word = format!("{owner} {n}. ");
        bytes.extend(word.bytes().cycle().take(512));
    }
    bytes.truncate(len);
    bytes
}
