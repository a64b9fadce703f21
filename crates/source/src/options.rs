//! Changes to a tree while it is read: excluded names, replaced owners, clamped times. The same for
//! every kind of source.

use crate::excludes::Excludes;
use seekless_fs::tree::NodeAttr;
use seekless_fs::{FsError, Timestamp, Xattr};
use std::str::FromStr;

/// Options applied by every source.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// Names to exclude.
    pub excludes: Excludes,
    /// Owner and group of everything, instead of the source's.
    pub owner: Option<(u32, u32)>,
    /// Owner and group of the root directory, whatever the others are.
    pub root_owner: Option<(u32, u32)>,
    /// Permissions of the root directory, up to 0o7777.
    pub root_perm: Option<u16>,
    /// Map of user ids.
    pub uid_map: IdMap,
    /// Map of group ids.
    pub gid_map: IdMap,
    /// Maximum of all times, in seconds since 1970: `SOURCE_DATE_EPOCH`.
    pub clamp_mtime: Option<i64>,
    /// Directories only: do not descend into other file systems.
    pub one_file_system: bool,
    /// Images only: take names as they are stored, encrypted ones with slashes and zero bytes too.
    /// Such a tree can be listed, not written.
    pub raw_names: bool,
    /// Directories only: calls used to read the metadata of files.
    pub calls: MetadataCalls,
    /// Extended attributes to drop.
    pub dropped: DroppedXattrs,
    /// Receiver of warnings.
    pub notices: Notices,
}

/// Reads the names and values of the extended attributes of the file at a path.
pub type XattrCall = fn(&[u8]) -> std::io::Result<Vec<(Vec<u8>, Vec<u8>)>>;

/// The calls used to read the metadata of files.
#[derive(Clone, Copy, Debug, Default)]
pub enum MetadataCalls {
    /// System calls.
    #[default]
    System,
    /// The functions of libc, which a preloaded library may replace: `stat` of the standard
    /// library, and this function for extended attributes.
    Libc(XattrCall),
    /// A library is to be preloaded, but this program is static: the library's name.
    Impossible(&'static str),
}

/// The receiver of warnings about a source: omitted entries, or a suspicious format.
#[derive(Clone, Copy, Debug)]
pub struct Notices(pub fn(&str));

impl Default for Notices {
    /// Discards all warnings.
    fn default() -> Self {
        Self(|_| {})
    }
}

impl Notices {
    /// Sends a warning.
    pub fn tell(self, what: &str) {
        (self.0)(what);
    }
}

/// Extended attributes to drop.
#[derive(Clone, Debug, Default)]
pub struct DroppedXattrs {
    /// All of them, access control lists too.
    pub all: bool,
    /// Attributes with these names.
    pub names: Vec<Vec<u8>>,
    /// Attributes that this does not keep.
    pub policy: XattrPolicy,
}

/// Which extended attributes are kept: a list of namespaces (`user`), of attributes
/// (`security.capability`), `acl` for access control lists, and `all`. One with `^` in front is
/// dropped. Of several that match, the last decides; without any, an attribute is kept if the list
/// only drops some.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct XattrPolicy {
    rules: Vec<XattrRule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct XattrRule {
    keeps: bool,
    name: String,
}

impl FromStr for XattrPolicy {
    type Err = String;

    /// Parses a list with commas; `none` drops all.
    fn from_str(text: &str) -> Result<Self, String> {
        let rule = |item: &str| {
            let (keeps, name) = match item.strip_prefix('^') {
                Some(name) => (false, name),
                None => (true, item),
            };
            let (keeps, name) = if item == "none" { (false, "all") } else { (keeps, name) };
            let space = name.split('.').next().unwrap_or_default();
            let is_whole = matches!(name, "all" | "acl");
            let is_space = matches!(space, "user" | "trusted" | "security" | "system");
            if !is_whole && (!is_space || name.ends_with('.')) {
                let known = "user, trusted, security, system, acl, all, none or a whole name";
                return Err(format!("'{item}' is not {known}"));
            }
            Ok(XattrRule { keeps, name: name.to_string() })
        };
        Ok(Self { rules: text.split(',').map(rule).collect::<Result<_, _>>()? })
    }
}

impl XattrPolicy {
    /// Whether an attribute is kept.
    #[must_use]
    pub fn keeps(&self, name: &[u8]) -> bool {
        let is_match = |rule: &&XattrRule| match rule.name.as_str() {
            "all" => true,
            "acl" => name.starts_with(b"system.posix_acl_"),
            known => match name.strip_prefix(known.as_bytes()) {
                Some([]) => true,
                Some([b'.', ..]) => !known.contains('.'),
                _ => false,
            },
        };
        match self.rules.iter().rev().find(is_match) {
            Some(rule) => rule.keeps,
            None => self.rules.iter().all(|rule| !rule.keeps),
        }
    }

    /// Whether all attributes are kept.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.rules.is_empty()
    }
}

impl DroppedXattrs {
    /// Whether an attribute is dropped.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.all || self.names.iter().any(|dropped| dropped == name) || !self.policy.keeps(name)
    }

    /// Whether no attribute is dropped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty() && self.policy.is_all()
    }
}

impl TreeOptions {
    /// Applies the options to a file's attributes.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when an owner is not in the map.
    pub fn apply(&self, attr: &mut NodeAttr) -> Result<(), FsError> {
        (attr.uid, attr.gid) = match self.owner {
            Some(owner) => owner,
            None => (self.uid_map.map(attr.uid)?, self.gid_map.map(attr.gid)?),
        };
        if let Some(limit) = self.clamp_mtime {
            let clamp = |time: &mut Timestamp| {
                *time = (*time).min(Timestamp { secs: limit, nanos: 0 });
            };
            clamp(&mut attr.mtime);
            if let Some(times) = &mut attr.times {
                [&mut times.atime, &mut times.ctime, &mut times.crtime].into_iter().for_each(clamp);
            }
        }
        Ok(())
    }

    /// Applies the options to the attributes of the root directory.
    ///
    /// # Errors
    /// As [`TreeOptions::apply`].
    pub fn apply_to_root(&self, attr: &mut NodeAttr) -> Result<(), FsError> {
        self.apply(attr)?;
        if let Some(owner) = self.root_owner {
            (attr.uid, attr.gid) = owner;
        }
        attr.perm = self.root_perm.unwrap_or(attr.perm);
        Ok(())
    }

    /// Applies the options to extended attributes: removes the dropped ones, and maps the owners
    /// named in access control lists.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when an owner is not in the map.
    pub fn apply_to_xattrs(&self, xattrs: &mut Vec<Xattr>) -> Result<(), FsError> {
        if !self.dropped.is_empty() {
            xattrs.retain(|xattr| !self.dropped.has(&xattr.name));
        }
        if self.uid_map.is_identity() && self.gid_map.is_identity() {
            return Ok(());
        }
        for xattr in xattrs {
            if xattr.name.starts_with(b"system.posix_acl_") {
                self.map_acl(&mut xattr.value)?;
            }
        }
        Ok(())
    }

    /// Renumbers an ACL in the kernel's form: a 4-byte version, then entries of tag, permissions
    /// (16 bits each) and id (32 bits).
    fn map_acl(&self, acl: &mut [u8]) -> Result<(), FsError> {
        const ACL_USER: u16 = 2;
        const ACL_GROUP: u16 = 8;
        for entry in acl.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
            let [tag0, tag1, _, _, id @ ..] = entry else { continue };
            let [a, b, c, d] = id else { continue };
            let old = u32::from_le_bytes([*a, *b, *c, *d]);
            let new = match u16::from_le_bytes([*tag0, *tag1]) {
                ACL_USER => self.uid_map.map(old)?,
                ACL_GROUP => self.gid_map.map(old)?,
                _ => continue,
            };
            [*a, *b, *c, *d] = new.to_le_bytes();
        }
        Ok(())
    }
}

/// A map of ids, by ranges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdMap {
    ranges: Vec<IdRange>,
}

/// Maps `count` ids from `from` on to those from `to` on, as in `subuid(5)` and
/// `/proc/PID/uid_map`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// A range; `None` if it is empty, or leaves the numbers that there are.
    #[must_use]
    pub fn new(from: u32, to: u32, count: u32) -> Option<Self> {
        let ends = [from, to].map(|start| start.checked_add(count));
        (count > 0 && !ends.contains(&None)).then_some(Self { from, to, count })
    }
}

impl FromStr for IdRange {
    type Err = String;

    /// Parses `FROM:TO:COUNT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not FROM:TO:COUNT");
        let is_signed = |part: &str| part.starts_with('+');
        let number = |part: &str| part.parse::<u32>().ok().filter(|_| !is_signed(part));
        let mut numbers = text.split(':').map(|part| number(part).ok_or_else(bad));
        let mut next = || numbers.next().unwrap_or_else(|| Err(bad()));
        let range = Self::new(next()?, next()?, next()?);
        if numbers.next().is_some() { Err(bad()) } else { range.ok_or_else(bad) }
    }
}

impl IdMap {
    /// Creates a map of these ranges; the first one that contains an id decides. Without any range
    /// every id is unchanged.
    #[must_use]
    pub fn new(ranges: Vec<IdRange>) -> Self {
        Self { ranges }
    }

    /// Whether every id is unchanged.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Maps an id.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when the map has ranges, but none contains the id.
    pub fn map(&self, id: u32) -> Result<u32, FsError> {
        if self.ranges.is_empty() {
            return Ok(id);
        }
        let range = self.ranges.iter().find(|range| id.wrapping_sub(range.from) < range.count);
        match range {
            Some(range) if id >= range.from => Ok(range.to + (id - range.from)),
            _ => Err(FsError::Invalid(format!("owner or group {id} is not in the id map"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_the_map_are_refused() {
        let map = IdMap::new(vec!["100000:0:65536".parse().unwrap()]);
        assert_eq!(map.map(100_007).unwrap(), 7);
        for id in [0, 99_999, 165_536, u32::MAX] {
            assert!(map.map(id).is_err(), "{id}");
        }
        for text in ["1:2", "1:2:0", "a:b:c", "1:2:3:4", "4294967295:0:2"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_says_which_attributes_are_kept() {
        let names =
            ["user.a", "user.b.c", "security.selinux", "system.posix_acl_access", "trusted.x"];
        for (list, kept) in [
            ("all", &[0, 1, 2, 3, 4][..]),
            ("none", &[]),
            ("user", &[0, 1]),
            ("user.b", &[]),
            ("user.b.c,acl", &[1, 3]),
            ("^security.selinux", &[0, 1, 3, 4]),
            ("all,^user,user.a", &[0, 2, 3, 4]),
            ("none,trusted", &[4]),
            ("system,^acl", &[]),
        ] {
            let policy: XattrPolicy = list.parse().unwrap();
            let found: Vec<usize> =
                (0..names.len()).filter(|at| policy.keeps(names[*at].as_bytes())).collect();
            assert_eq!(found, kept, "{list}");
        }
        for list in ["", "users", "user.", "^", "x.y", "user,,acl"] {
            assert!(list.parse::<XattrPolicy>().is_err(), "{list}");
        }
    }

    #[test]
    fn the_owners_in_an_acl_follow_the_map() {
        let map = IdMap::new(vec!["0:100:50".parse().unwrap()]);
        let options = TreeOptions { uid_map: map.clone(), gid_map: map, ..Default::default() };
        let mut acl = vec![2, 0, 0, 0];
        acl.extend([1, 0, 6, 0, 255, 255, 255, 255]);
        acl.extend([2, 0, 4, 0, 7, 0, 0, 0]);
        let mut xattrs = vec![Xattr { name: b"system.posix_acl_access".to_vec(), value: acl }];
        options.apply_to_xattrs(&mut xattrs).unwrap();
        assert_eq!(xattrs[0].value[8..12], [255; 4]);
        assert_eq!(xattrs[0].value[16..20], [107, 0, 0, 0]);
    }
}
