//! Names of a directory: each must be unique, and valid on every system.

use crate::name;
use crate::ondisk::{ShortEntry, first};
use hashbrown::HashSet;

/// The names of a directory so far.
#[derive(Default)]
pub(super) struct Names {
    shorts: HashSet<[u8; 11]>,
    longs: HashSet<Vec<u16>>,
    /// The number of the last name that was made up.
    made: u32,
}

/// Characters that are invalid in short names.
const BAD: &[u8] = b"*?<>|\"\\/:.";
/// Most names that are made up in a directory.
const MOST_MADE: u32 = 9999;

impl Names {
    /// Whether a short name is new.
    pub(super) fn take_short(&mut self, name: [u8; 11]) -> bool {
        self.shorts.insert(name)
    }

    /// Whether a long name is new, without regard to case.
    pub(super) fn take_long(&mut self, units: &[u16]) -> bool {
        self.longs.insert(name::fold(units))
    }

    /// The first of `FSCK0000.REC`, `FSCK0001.REC` and so on that is free, with an
    /// extension; `None` when all are taken.
    pub(super) fn make_up(&mut self, extension: &[u8; 3]) -> Option<[u8; 11]> {
        while self.made <= MOST_MADE {
            let mut text = format!("FSCK{:04}", self.made).into_bytes();
            text.extend(extension);
            self.made += 1;
            let name: [u8; 11] = text.try_into().ok()?;
            if self.shorts.insert(name) {
                return Some(name);
            }
        }
        None
    }
}

/// `DIR_NTRes`: the short name is a dummy, only the long one counts (Linux, for a time).
pub(super) const NO_SHORT_NAME: u8 = 0x20;

/// Whether a short name is bad: it begins with a blank, has forbidden characters, or is marked as a
/// dummy for a long name that is missing. Blanks within are no fault.
pub(super) fn is_bad(entry: &ShortEntry, has_long: bool) -> bool {
    let name = &entry.DIR_Name;
    let is_bad = |(at, &byte): (usize, &u8)| {
        let stands_for_another = at == 0 && byte == first::KANJI;
        (byte < b' ' && !stands_for_another) || byte == 0x7F || BAD.contains(&byte)
    };
    name.first() == Some(&b' ')
        || name.iter().enumerate().any(is_bad)
        || (entry.DIR_NTRes & NO_SHORT_NAME != 0 && !has_long)
}

/// Whether a label has invalid characters, or begins with a blank.
pub(super) fn is_bad_label(label: &[u8; 11]) -> bool {
    let is_bad = |byte: &u8| *byte < b' ' || b"*?.,;:/\\|+=<>[]\"".contains(byte);
    label.first() == Some(&b' ') || label.iter().any(is_bad)
}
