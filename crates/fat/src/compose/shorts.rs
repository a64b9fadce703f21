//! Short names, by the rules of Microsoft's description ("Name Matching In Short & Long
//! Names", fatgen103).

use hashbrown::{HashMap, HashSet};

/// A short name, padded with blanks.
pub(crate) type Short = [u8; 11];

/// Tails go from `~1` to `~999999`.
const LAST_TAIL: u32 = 999_999;
/// Digits of the longest tail.
const MOST_DIGITS: usize = 6;

/// The short form of a long name, without regard to other names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Basis {
    pub(crate) name: Short,
    /// Whether the name is complete, except for the case of its letters.
    pub(crate) fits: bool,
}

/// Letters, digits and the other characters of a short name.
fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "$%'-_@~`!(){}^#&".contains(c)
}

/// The basis of a name: upper case; blanks, leading dots and all dots but the last left out; `_`
/// for characters that are not allowed. Those beyond ASCII are not, since their bytes depend on the
/// reader's code page.
pub(crate) fn basis(name: &str) -> Basis {
    let mut short = [b' '; 11];
    let mut fits = true;
    let trimmed = name.trim_start_matches(['.', ' ']);
    fits &= trimmed.len() == name.len();
    let (base, extension) = match trimmed.rsplit_once('.') {
        Some((base, extension)) => (base, extension),
        None => (trimmed, ""),
    };
    // A dot with nothing behind it is no part of a short name.
    fits &= !trimmed.ends_with('.');
    for (part, room) in [(base, 0..8), (extension, 8..11)] {
        let mut at = room.start;
        for c in part.chars() {
            if c == ' ' || c == '.' {
                fits = false;
                continue;
            }
            if at == room.end {
                fits = false;
                break;
            }
            let upper = c.to_ascii_uppercase();
            fits &= is_allowed(upper);
            short[at] = if is_allowed(upper) { upper as u8 } else { b'_' };
            at += 1;
        }
    }
    if short[0] == b' ' {
        // Only dots, blanks and an extension.
        (short[0], fits) = (b'_', false);
    }
    Basis { name: short, fits }
}

/// The short names of a directory.
#[derive(Default)]
pub(crate) struct Shorts {
    taken: HashSet<Short>,
    /// The tail to try next, by the parts in front of it and behind: so many names of one beginning
    /// take time in proportion to their number.
    next: HashMap<(Short, usize), u32>,
}

impl Shorts {
    /// Takes a name as it is; whether it was free.
    pub(crate) fn take(&mut self, name: Short) -> bool {
        self.taken.insert(name)
    }

    /// Gives a name back. A tail that was tried for others is not tried again.
    pub(crate) fn give(&mut self, name: &Short) {
        self.taken.remove(name);
    }

    /// A name with the lowest free tail; `None` if all are taken.
    pub(crate) fn with_tail(&mut self, basis: &Short) -> Option<Short> {
        let len = basis[..8].iter().position(|&byte| byte == b' ').unwrap_or(8);
        for digits in 1..=MOST_DIGITS {
            let kept = len.min(8 - 1 - digits);
            let mut stem = *basis;
            stem[kept..8].fill(b' ');
            let first = 10u32.pow(digits as u32 - 1);
            let next = self.next.entry((stem, digits)).or_insert(first);
            while *next < first * 10 && *next <= LAST_TAIL {
                let mut name = stem;
                let tail = format!("~{next}");
                name[kept..kept + tail.len()].copy_from_slice(tail.as_bytes());
                *next += 1;
                if self.taken.insert(name) {
                    return Some(name);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> (String, bool) {
        let Basis { name, fits } = basis(name);
        (String::from_utf8(name.to_vec()).unwrap(), fits)
    }

    #[test]
    fn bases_are_those_of_the_description() {
        for (name, short, fits) in [
            ("README.TXT", "README  TXT", true),
            ("readme.txt", "README  TXT", true),
            ("a b.c", "AB      C  ", false),
            ("three.dots.here", "THREEDOTHER", false),
            (".profile", "PROFILE    ", false),
            ("..a", "A          ", false),
            ("noextension", "NOEXTENS   ", false),
            ("plus+sign", "PLUS_SIG   ", false),
            ("a+b", "A_B        ", false),
            ("Ünïcode.é", "_N_CODE _  ", false),
            ("☃", "_          ", false),
            ("x.jpeg", "X       JPE", false),
            ("~1", "~1         ", true),
        ] {
            assert_eq!(shown(name), (short.into(), fits), "{name}");
        }
    }

    #[test]
    fn tails_grow_into_the_base() {
        let mut shorts = Shorts::default();
        let Basis { name, .. } = basis("a long name.text");
        let mut tail = || String::from_utf8(shorts.with_tail(&name).unwrap().to_vec()).unwrap();
        assert_eq!(tail(), "ALONGN~1TEX");
        for _ in 2..=9 {
            tail();
        }
        assert_eq!(tail(), "ALONG~10TEX");
        let mut few = Shorts::default();
        assert_eq!(&few.with_tail(&basis("é.x").name).unwrap(), b"_~1     X  ");
    }

    #[test]
    fn bases_that_differ_behind_the_tail_share_it() {
        let mut shorts = Shorts::default();
        assert!(shorts.take(*b"ABCDEF~2   "));
        let mut next = |name: &str| shorts.with_tail(&basis(name).name).unwrap();
        assert_eq!(&next("abcdefgh1"), b"ABCDEF~1   ");
        // The second is taken by another long name.
        assert_eq!(&next("abcdefxy1"), b"ABCDEF~3   ");
    }

    #[test]
    fn many_names_of_one_beginning_try_each_tail_once() {
        let mut shorts = Shorts::default();
        let mut names = HashSet::new();
        for n in 0..50_000 {
            let Basis { name, .. } = basis(&format!("a long beginning and {n}.text"));
            assert!(names.insert(shorts.with_tail(&name).unwrap()));
        }
        // Every tail up to the last was tried once: that many counters, that far on.
        let tried: u32 = shorts.next.values().map(|next| next - 1).max().unwrap();
        assert_eq!(tried, 50_000);
        assert_eq!(shorts.next.len(), 5);
    }
}
