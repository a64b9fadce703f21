//! POSIX.1e access control lists, in the portable form of `getxattr(2)` (`system.posix_acl_access`,
//! `system.posix_acl_default`): the mode bits that follow from a list, the effect of `chmod` on a
//! list, and the list that a new file inherits.
//!
//! The rules are those of Linux (`fs/posix_acl.c`): the entries of the owner and of others are
//! those of the mode, and the mode's group bits are the mask, or the entry of the owning group in a
//! list without a mask. A list of only these three entries is equivalent to the mode.

use crate::FsError;

/// The version of the portable form.
const VERSION: u32 = 2;
/// The id in entries without one.
const NO_ID: u32 = u32::MAX;
/// Set-group-id.
const SETGID: u16 = 0o2000;

/// The kind of a file's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclKind {
    /// The list that controls access to the file.
    Access,
    /// Directories only: the list that new files in it inherit.
    Default,
}

impl AclKind {
    /// The name of the extended attribute.
    #[must_use]
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }

    /// The kind of list stored in an extended attribute of this name, if it is one.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default].into_iter().find(|kind| kind.name() == name)
    }
}

/// The users to which an entry applies, in the order of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// A user by id.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A group by id.
    Group(u32),
    /// Maximum permissions of named users and all groups.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    /// The tag and the id of the portable form.
    #[must_use]
    pub const fn code(self) -> (u16, u32) {
        match self {
            Self::Owner => (0x01, NO_ID),
            Self::User(id) => (0x02, id),
            Self::OwningGroup => (0x04, NO_ID),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, NO_ID),
            Self::Other => (0x20, NO_ID),
        }
    }

    /// Decodes a tag and an id, if they are valid.
    #[must_use]
    pub const fn from_code(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 if id != NO_ID => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 if id != NO_ID => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    /// Position of a kind of entry in a list.
    const fn rank(self) -> u8 {
        match self {
            Self::Owner => 0,
            Self::User(_) => 1,
            Self::OwningGroup => 2,
            Self::Group(_) => 3,
            Self::Mask => 4,
            Self::Other => 5,
        }
    }

    const fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// The users to which it applies.
    pub tag: AclTag,
    /// Read (4), write (2) and execute (1).
    pub perm: u16,
}

/// A valid list: one entry each for the owner, the owning group and others, at most one mask, which
/// is required if there are named entries, all in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<AclEntry>);

fn malformed(why: &str) -> FsError {
    FsError::Invalid(format!("the ACL is not valid: {why}"))
}

impl Acl {
    /// Creates a list from entries.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an invalid list.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, FsError> {
        let count = |rank: u8| entries.iter().filter(|entry| entry.tag.rank() == rank).count();
        let named = entries.iter().any(|entry| entry.tag.is_named());
        if [AclTag::Owner, AclTag::OwningGroup, AclTag::Other]
            .iter()
            .any(|tag| count(tag.rank()) != 1)
        {
            return Err(malformed("the owner, the group and others need one entry each"));
        }
        match count(AclTag::Mask.rank()) {
            0 if named => return Err(malformed("named entries need a mask")),
            0 | 1 => {}
            _ => return Err(malformed("it has two masks")),
        }
        if !entries.is_sorted_by_key(|entry| entry.tag.rank()) {
            return Err(malformed("its entries are not in order"));
        }
        if entries.iter().any(|entry| entry.perm > 0o7) {
            return Err(malformed("an entry has unknown permissions"));
        }
        Ok(Self(entries))
    }

    /// Decodes the portable form; `None` for a list without entries, which is equivalent to no
    /// list.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an invalid list; [`FsError::Unsupported`] for another version of
    /// the form.
    pub fn parse(value: &[u8]) -> Result<Option<Self>, FsError> {
        let (version, entries) =
            value.split_first_chunk::<4>().ok_or_else(|| malformed("it has no version"))?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::Unsupported("another version of ACLs".into()));
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(malformed("its last entry is cut off"));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entry = |&[t0, t1, p0, p1, i0, i1, i2, i3]: &[u8; 8]| {
            let (tag, id) = (u16::from_le_bytes([t0, t1]), u32::from_le_bytes([i0, i1, i2, i3]));
            let tag = AclTag::from_code(tag, id);
            let tag = tag.ok_or_else(|| malformed("an entry has an unknown tag or no id"))?;
            Ok(AclEntry { tag, perm: u16::from_le_bytes([p0, p1]) })
        };
        entries.iter().map(entry).collect::<Result<_, FsError>>().and_then(Self::new).map(Some)
    }

    /// Encodes the portable form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = entry.tag.code();
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Whether the list is equivalent to the mode (`posix_acl_equiv_mode`).
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        !self.0.iter().any(|entry| entry.tag.is_named() || entry.tag == AclTag::Mask)
    }

    /// The entry that corresponds to the mode's group bits.
    fn group_class(&self) -> AclTag {
        let has_mask = self.0.iter().any(|entry| entry.tag == AclTag::Mask);
        if has_mask { AclTag::Mask } else { AclTag::OwningGroup }
    }

    /// The entries that correspond to mode bits, each with its shift within the mode.
    fn of_mode(&mut self) -> impl Iterator<Item = (&mut AclEntry, u32)> {
        let group = self.group_class();
        self.0.iter_mut().filter_map(move |entry| {
            let shift = match entry.tag {
                AclTag::Owner => 6,
                AclTag::Other => 0,
                tag if tag == group => 3,
                _ => return None,
            };
            Some((entry, shift))
        })
    }

    /// The low nine bits of the mode of a file that has the list.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let mut list = self.clone();
        list.of_mode().fold(0, |mode, (entry, shift)| mode | entry.perm << shift)
    }

    /// Sets the entries that correspond to mode bits from a mode (`posix_acl_chmod`).
    pub fn chmod(&mut self, mode: u16) {
        for (entry, shift) in self.of_mode() {
            entry.perm = mode >> shift & 0o7;
        }
    }

    /// Derives the list of a new file from the default list of its directory, and its mode from the
    /// requested one: each bit is set only if both allow it (`posix_acl_create`). The umask is
    /// ignored.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> (Self, u16) {
        let mut list = self.clone();
        for (entry, shift) in list.of_mode() {
            entry.perm &= mode >> shift;
        }
        let bits = list.mode();
        (list, mode & !0o777 | bits)
    }

    /// The mode of a file after the list is set as its access list. `keeps_setgid`: the caller is
    /// in the file's group, or has the capability to set set-group-id without; otherwise
    /// set-group-id is cleared (`posix_acl_update_mode`).
    #[must_use]
    pub fn applied(&self, mode: u16, keeps_setgid: bool) -> u16 {
        let kept = if keeps_setgid { !0o777 } else { !(0o777 | SETGID) };
        mode & kept | self.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: AclTag, perm: u16) -> AclEntry {
        AclEntry { tag, perm }
    }

    fn list(entries: &[(AclTag, u16)]) -> Result<Acl, FsError> {
        Acl::new(entries.iter().map(|&(tag, perm)| entry(tag, perm)).collect())
    }

    const NAMED: [(AclTag, u16); 5] = [
        (AclTag::Owner, 6),
        (AclTag::User(1000), 4),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 4),
        (AclTag::Other, 1),
    ];

    #[test]
    fn a_list_is_read_and_written() {
        let acl = list(&NAMED).unwrap();
        let value = acl.encode();
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(value[12..20], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
        assert_eq!(Acl::parse(&value).unwrap(), Some(acl));
        assert_eq!(Acl::parse(&[2, 0, 0, 0]).unwrap(), None);
        let refused = |value: &[u8]| Acl::parse(value).unwrap_err();
        assert!(matches!(refused(&value[..value.len() - 1]), FsError::Invalid(_)));
        assert!(matches!(refused(&[2, 0, 0]), FsError::Invalid(_)));
        assert!(matches!(refused(&[1, 0, 0, 0]), FsError::Unsupported(_)));
        // A user without an id, an unknown tag, unknown permissions.
        for (at, byte) in [(16, 0xff), (4, 3), (6, 8)] {
            let mut other = value.clone();
            other[at..(at + 4).min(value.len())].fill(byte);
            assert!(matches!(refused(&other), FsError::Invalid(_)), "byte {at}");
        }
    }

    #[test]
    fn lists_that_are_not_valid_are_refused() {
        use AclTag::{Group, Mask, Other, Owner, OwningGroup, User};
        assert!(list(&[(Owner, 7), (OwningGroup, 7), (Other, 7)]).is_ok());
        assert!(list(&[(Owner, 7), (OwningGroup, 7), (Mask, 0), (Other, 7)]).is_ok());
        for wrong in [
            &[(Owner, 7), (OwningGroup, 7)][..],
            &[(OwningGroup, 7), (Other, 7)],
            &[(Owner, 7), (Other, 7)],
            &[(Owner, 7), (Owner, 7), (OwningGroup, 7), (Other, 7)],
            &[(OwningGroup, 7), (Owner, 7), (Other, 7)],
            &[(Owner, 7), (OwningGroup, 7), (User(1), 7), (Mask, 7), (Other, 7)],
            &[(Owner, 7), (User(1), 7), (OwningGroup, 7), (Other, 7)],
            &[(Owner, 7), (OwningGroup, 7), (Group(1), 7), (Other, 7)],
            &[(Owner, 7), (OwningGroup, 7), (Mask, 7), (Mask, 7), (Other, 7)],
            &[(Owner, 8), (OwningGroup, 7), (Other, 7)],
            &[],
        ] {
            assert!(matches!(list(wrong), Err(FsError::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn the_mode_and_the_list_go_together() {
        let mut acl = list(&NAMED).unwrap();
        assert!(!acl.is_minimal());
        assert_eq!(acl.mode(), 0o641);
        assert_eq!(acl.applied(0o6777, true), 0o6641);
        assert_eq!(acl.applied(0o6777, false), 0o4641);
        // The mask has the group bits; the entry of the group stays.
        acl.chmod(0o7720);
        let perms: Vec<u16> = acl.entries().iter().map(|entry| entry.perm).collect();
        assert_eq!(perms, [7, 4, 5, 2, 0]);
        let mut minimal =
            list(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 4)]).unwrap();
        assert!(minimal.is_minimal());
        minimal.chmod(0o123);
        assert_eq!(minimal.mode(), 0o123);
    }

    #[test]
    fn a_new_file_has_what_mode_and_default_list_allow() {
        let acl = list(&[
            (AclTag::Owner, 7),
            (AclTag::User(9), 7),
            (AclTag::OwningGroup, 7),
            (AclTag::Mask, 6),
            (AclTag::Other, 5),
        ]);
        let (access, mode) = acl.unwrap().inherited(0o2664);
        assert_eq!(mode, 0o2664);
        let perms: Vec<u16> = access.entries().iter().map(|entry| entry.perm).collect();
        assert_eq!(perms, [6, 7, 7, 6, 4]);
        let minimal =
            list(&[(AclTag::Owner, 7), (AclTag::OwningGroup, 5), (AclTag::Other, 0)]).unwrap();
        let (access, mode) = minimal.inherited(0o666);
        assert!(access.is_minimal());
        assert_eq!((access.mode(), mode), (0o640, 0o640));
    }
}
