//! The names that a directory can have, and how they are compared.

use crate::casefold;
use crate::inode::Inode;
use crate::ondisk::{ENCODING_STRICT, flags};
use crate::superblock::Super;
use std::borrow::Cow;

/// Which names a directory can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NameRules {
    /// Any bytes but zero and the slash.
    Plain,
    /// Text, of which the case does not count.
    Folded,
    /// Any bytes.
    Encrypted,
}

impl NameRules {
    /// That of a directory. Without a strict encoding, names in a directory that ignores case need
    /// not be text, and e2fsck compares them by their bytes.
    pub(super) fn of(sb: &Super, dir: &Inode) -> Self {
        let is_strict = sb.raw.s_encoding_flags.get() & ENCODING_STRICT != 0;
        match () {
            () if dir.has_flag(flags::ENCRYPT) => Self::Encrypted,
            () if is_strict && dir.has_flag(flags::CASEFOLD) => Self::Folded,
            () => Self::Plain,
        }
    }

    /// Whether a directory can have a name.
    pub(super) fn takes(self, name: &[u8]) -> bool {
        self == Self::Encrypted || self.sane(name) == name
    }

    /// A name with dots in place of bytes that it cannot have; of text, from the first byte on that
    /// is none.
    pub(super) fn sane(self, name: &[u8]) -> Vec<u8> {
        let valid = match std::str::from_utf8(name) {
            Err(error) if self == Self::Folded => error.valid_up_to(),
            _ => name.len(),
        };
        let sane = |(at, &byte): (usize, &u8)| {
            let is_kept = self == Self::Encrypted || (at < valid && !matches!(byte, 0 | b'/'));
            if is_kept { byte } else { b'.' }
        };
        name.iter().enumerate().map(sane).collect()
    }

    /// A name as it is compared with the others of its directory.
    pub(super) fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        let folded = if self == Self::Folded { casefold::fold(name) } else { None };
        folded.map_or(Cow::Borrowed(name), |folded| Cow::Owned(folded.into_bytes()))
    }
}
