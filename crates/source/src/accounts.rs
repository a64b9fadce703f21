//! Names of users, groups and projects, as an image's own `/etc/passwd`, `/etc/group` and
//! `/etc/projid` have them.

use crate::list::lines;
use seekless_fs::inspect::resolve;
use seekless_fs::quota::OwnerKind;
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::ByteLen;
use std::collections::HashMap;

/// Longer files are no lists of users.
pub(crate) const LONGEST: u64 = 16 << 20;

/// Names of one kind of owners.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountNames {
    ids: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
}

impl AccountNames {
    /// Reads the names of a kind of owners in an image. A list that is missing, or is no regular
    /// file of at most 16 MiB, has none.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Device`].
    pub fn of_image(image: &dyn Inspect, kind: OwnerKind) -> Result<Self, FsError> {
        let (path, field): (&[u8], _) = match kind {
            OwnerKind::User => (b"etc/passwd", 2),
            OwnerKind::Group => (b"etc/group", 2),
            OwnerKind::Project => (b"etc/projid", 1),
        };
        let ino = match resolve(image, path) {
            Ok(ino) => ino,
            Err(FsError::NotFound(_) | FsError::NotDirectory(_)) => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let attr = image.attr(ino)?;
        if attr.kind != FileKind::Regular || attr.size > LONGEST {
            return Ok(Self::default());
        }
        let mut text = vec![0; usize::try_from(attr.size).unwrap_or(0)];
        let len = image.read(ino, ByteLen::ZERO, &mut text)?;
        text.truncate(len);
        Ok(Self::in_list(&text, field))
    }

    /// The names in a list whose lines have the number in a field, counted from 0.
    fn in_list(text: &[u8], field: usize) -> Self {
        let mut found = Self::default();
        for (name, id) in accounts(text, field) {
            found.ids.entry(name.to_vec()).or_insert(id);
            found.names.entry(id).or_insert_with(|| name.to_vec());
        }
        found
    }

    /// The number of an owner.
    #[must_use]
    pub fn id(&self, name: &[u8]) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The name of an owner.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<&[u8]> {
        self.names.get(&id).map(Vec::as_slice)
    }
}

/// The names and numbers in a list of users or groups. Of several, the first counts, as in the C
/// library.
pub(crate) fn ids_in(text: &[u8]) -> HashMap<Vec<u8>, u32> {
    AccountNames::in_list(text, 2).ids
}

/// The names in a list, with the numbers in a field of their lines.
fn accounts(text: &[u8], field: usize) -> impl Iterator<Item = (&[u8], u32)> {
    lines(text).filter_map(move |(_, line)| {
        let mut fields = line.split(|&byte| byte == b':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((name, fields.nth(field - 1).and_then(number)?))
    })
}

/// A number in decimal digits.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(text).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_counts() {
        let text =
            b"root:x:0:0::/:\ntoor:x:0::\na:x:5:\na:x:6:\n:x:7:\nb:x:\nc:x:-1:\nd:x:4294967296\n";
        let names = AccountNames::in_list(text, 2);
        assert_eq!(names.name(0), Some(&b"root"[..]));
        assert_eq!(names.id(b"toor"), Some(0));
        assert_eq!((names.id(b"a"), names.name(6)), (Some(5), Some(&b"a"[..])));
        assert_eq!(
            (names.id(b""), names.id(b"b"), names.id(b"c"), names.id(b"d")),
            (None, None, None, None)
        );
        let projects = AccountNames::in_list(b"www:42\n# www:43\n", 1);
        assert_eq!(projects.name(42), Some(&b"www"[..]));
    }
}
