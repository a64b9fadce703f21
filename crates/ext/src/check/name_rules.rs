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
        match self {
            Self::Encrypted => true,
            Self::Plain => !name.iter().any(|byte| matches!(byte, 0 | b'/')),
            Self::Folded => self.kept(name).all(|(_, is_kept)| is_kept),
        }
    }

    /// A name with dots in place of bytes that it cannot have; of text, from the first byte on that
    /// is none.
    pub(super) fn sane(self, name: &[u8]) -> Vec<u8> {
        self.kept(name).map(|(byte, is_kept)| if is_kept { byte } else { b'.' }).collect()
    }

    /// The bytes of a name, and whether it can have each of them.
    fn kept(self, name: &[u8]) -> impl Iterator<Item = (u8, bool)> {
        let valid = match self {
            Self::Folded => std::str::from_utf8(name).map_or_else(|it| it.valid_up_to(), str::len),
            _ => name.len(),
        };
        let is_kept =
            move |at, byte| self == Self::Encrypted || (at < valid && !matches!(byte, 0 | b'/'));
        name.iter().enumerate().map(move |(at, &byte)| (byte, is_kept(at, byte)))
    }

    /// A name as it is compared with the others of its directory.
    pub(super) fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        let folded = if self == Self::Folded { casefold::fold(name) } else { None };
        folded.map_or(Cow::Borrowed(name), |folded| Cow::Owned(folded.into_bytes()))
    }
}
