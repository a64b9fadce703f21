//! Operations that age a file system, and the bytes that they write.

use seekless_units::ByteLen;

/// A directory, by the number that the stream gave it; numbers of removed ones
/// are given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirId(pub(super) usize);

/// A file, by the number that the stream gave it; numbers of removed ones are
/// given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId(pub(super) usize);

impl DirId {
    /// The directory that all others lie in.
    pub const ROOT: Self = Self(0);
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory.
    pub dir: DirId,
    /// The name.
    pub name: String,
}

/// An operation. It is done whole, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes a directory.
    MakeDir {
        /// Its number.
        dir: DirId,
        /// Where.
        place: Place,
    },
    /// Removes an empty directory.
    RemoveDir {
        /// Its number.
        dir: DirId,
        /// Where it is.
        place: Place,
    },
    /// Makes a file and writes it.
    Create {
        /// Its number.
        file: FileId,
        /// Where.
        place: Place,
        /// How much is written.
        len: ByteLen,
        /// The bytes written.
        contents: Contents,
    },
    /// Writes on behind a file's end.
    Append {
        /// Which.
        file: FileId,
        /// Where it is.
        place: Place,
        /// How long it is.
        at: ByteLen,
        /// How much is written.
        len: ByteLen,
        /// The bytes written.
        contents: Contents,
    },
    /// Cuts a file.
    Truncate {
        /// Which.
        file: FileId,
        /// Where it is.
        place: Place,
        /// How long it will be: shorter than it is, and not empty.
        len: ByteLen,
    },
    /// Gives a file one more name.
    Link {
        /// Which.
        file: FileId,
        /// Where it is.
        from: Place,
        /// Its other name, which nothing has.
        to: Place,
    },
    /// Removes one of several names of a file.
    Unlink {
        /// Which.
        file: FileId,
        /// The name.
        place: Place,
    },
    /// Gives a file another name, whose file, if there is one, goes.
    Rename {
        /// Which.
        file: FileId,
        /// Where it is.
        from: Place,
        /// Where it will be.
        to: Place,
        /// The file that has that name.
        replaces: Option<FileId>,
    },
    /// Removes a file.
    Delete {
        /// Which.
        file: FileId,
        /// Where it is.
        place: Place,
    },
}

/// The bytes of a file: a function of the seed, the file and the place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents(u64);

/// The golden ratio's fraction: the increment of SplitMix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The mixer of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

impl Contents {
    /// Those of the so-manieth file of a seed.
    #[must_use]
    pub const fn new(seed: u64, number: u64) -> Self {
        Self(mix(mix(seed.wrapping_add(STEP)) ^ number.wrapping_mul(STEP)))
    }

    /// The bytes from a place on. They do not compress, and no eight in a row
    /// are zeros but by a chance of one in 2^64: nothing takes them for a hole.
    pub fn fill(self, at: ByteLen, buf: &mut [u8]) {
        let (mut word, skip) = (at.get() / 8, (at.get() % 8) as usize);
        let head = buf.len().min((8 - skip) % 8);
        let (first, rest) = buf.split_at_mut(head);
        if head > 0 {
            first.copy_from_slice(&self.word(word)[skip..skip + head]);
            word += 1;
        }
        for (part, number) in rest.chunks_mut(8).zip(word..) {
            part.copy_from_slice(&self.word(number)[..part.len()]);
        }
    }

    const fn word(self, number: u64) -> [u8; 8] {
        mix(self.0.wrapping_add(number.wrapping_mul(STEP))).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_in_pieces() {
        let contents = Contents::new(1, 7);
        let mut whole = vec![0; 1000];
        contents.fill(ByteLen::ZERO, &mut whole);
        for (from, to) in [(0, 3), (3, 5), (5, 8), (8, 17), (17, 18), (18, 999), (999, 1000)] {
            let mut part = vec![0; to - from];
            contents.fill(ByteLen::new(from as u64), &mut part);
            assert_eq!(part, whole[from..to], "{from}..{to}");
        }
        assert!(whole.chunks(8).all(|word| word != [0; 8]));
        let mut other = vec![0; 1000];
        Contents::new(1, 8).fill(ByteLen::ZERO, &mut other);
        assert_ne!(whole, other);
    }
}
