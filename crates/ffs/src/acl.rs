//! POSIX.1e ACLs of UFS2: `struct oldacl` in the attributes `posix1e.acl_access` and
//! `posix1e.acl_default` of the system namespace, with the flag for them in `fs_flags`.
//!
//! FreeBSD's `sys/acl.h`, `ufs/ufs/ufs_acl.c`. Entries of a stored access list that are bits of the
//! mode are ignored: the mode has them.

use crate::ondisk::{OLD_ACL_MOST, OldAcl, OldAclEntry, flag};
use crate::superblock::{Format, Order, Super};
use seekless_fs::acl::{Acl, AclEntry, AclKind, AclTag};
use seekless_fs::field::{index, invalid, low16, slice, wide};
use seekless_fs::{FsError, Location, Xattr};
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// Bytes of the number of entries, and of an entry; they are the same in both orders.
const HEAD: usize = offset_of!(OldAcl<LE>, acl_entry);
const ENTRY: usize = size_of::<OldAclEntry<LE>>();
const TAG: usize = offset_of!(OldAclEntry<LE>, ae_tag);
const ID: usize = offset_of!(OldAclEntry<LE>, ae_id);
const PERM: usize = offset_of!(OldAclEntry<LE>, ae_perm);

impl Super {
    /// Whether files have POSIX.1e ACLs.
    pub(crate) fn keeps_acls(&self) -> bool {
        self.format == Format::Ufs2 && self.flags & (flag::ACLS | flag::NFS4_ACLS) == flag::ACLS
    }

    /// Flags of the volume that FreeBSD acts on and we ignore. (A gjournal and journaled soft
    /// updates are not among them: such volumes are not changed.)
    pub(crate) fn ignored_features(&self) -> Vec<&'static str> {
        let has = |bit: u32| self.flags & bit != 0;
        [
            (has(flag::ACLS) && !self.keeps_acls(), "POSIX.1e ACLs"),
            (has(flag::NFS4_ACLS), "NFSv4 ACLs"),
            (has(flag::MULTILABEL), "MAC labels of files"),
        ]
        .into_iter()
        .filter_map(|(ignored, name)| ignored.then_some(name))
        .collect()
    }
}

/// The name in the system namespace.
pub(crate) const fn stored_name(kind: AclKind) -> &'static [u8] {
    match kind {
        AclKind::Access => b"posix1e.acl_access",
        AclKind::Default => b"posix1e.acl_default",
    }
}

/// Attributes of a file in Linux' form: its ACLs with Linux' names and encoding.
///
/// # Errors
/// [`FsError::Corrupt`] for a list that is not valid.
pub(crate) fn shown(
    sb: &Super,
    mut all: Vec<Xattr>,
    mode: u16,
    place: Location,
) -> Result<Vec<Xattr>, FsError> {
    if !sb.keeps_acls() {
        return Ok(all);
    }
    for xattr in &mut all {
        let Some(name) = xattr.name.strip_prefix(b"system.") else { continue };
        let mut kinds = [AclKind::Access, AclKind::Default].into_iter();
        let Some(kind) = kinds.find(|&kind| stored_name(kind) == name) else { continue };
        let mut acl = decode(sb.order, &xattr.value, place)?;
        if kind == AclKind::Access {
            acl.chmod(mode);
        }
        *xattr = Xattr { name: kind.name().to_vec(), value: acl.encode() };
    }
    all.sort();
    Ok(all)
}

fn decode(order: Order, bytes: &[u8], place: Location) -> Result<Acl, FsError> {
    let bad = |count: u64| invalid("acl_cnt", count, place);
    if bytes.len() != size_of::<OldAcl<LE>>() {
        return Err(bad(wide(bytes.len())));
    }
    let count = order.get_u32(bytes, 0).unwrap_or(0);
    let entries = slice(bytes, HEAD, index(count) * ENTRY);
    let entries = entries.ok_or_else(|| bad(u64::from(count)))?;
    let entry = |bytes: &[u8]| {
        let word = |at: usize| order.get_u32(bytes, at).unwrap_or(0);
        let tag = AclTag::from_code(low16(word(TAG)), word(ID));
        let tag = tag.ok_or_else(|| invalid("ae_tag", u64::from(word(TAG)), place))?;
        Ok(AclEntry { tag, perm: order.get_u16(bytes, PERM).unwrap_or(0) })
    };
    let mut entries = entries.chunks(ENTRY).map(entry).collect::<Result<Vec<_>, FsError>>()?;
    entries.sort_by_key(|entry| entry.tag);
    Acl::new(entries).map_err(|_| bad(u64::from(count)))
}

/// An ACL in Linux' form as it is stored.
///
/// # Errors
/// [`FsError::Invalid`] for a list that is not valid, or has too many entries.
pub(crate) fn stored(order: Order, value: &[u8]) -> Result<Vec<u8>, FsError> {
    let acl =
        Acl::parse(value)?.ok_or_else(|| FsError::Invalid("an ACL without entries".into()))?;
    let entries = acl.entries();
    if entries.len() > OLD_ACL_MOST {
        let why = format!("an ACL of UFS2 has at most {OLD_ACL_MOST} entries");
        return Err(FsError::Invalid(why));
    }
    let mut bytes = vec![0; size_of::<OldAcl<LE>>()];
    order.put_u32(&mut bytes, 0, u32::try_from(entries.len()).unwrap_or(0));
    let room = bytes.get_mut(HEAD..).unwrap_or_default();
    for (to, entry) in room.chunks_mut(ENTRY).zip(entries) {
        let (tag, id) = entry.tag.code();
        order.put_u32(to, TAG, u32::from(tag));
        order.put_u32(to, ID, id);
        order.put_u16(to, PERM, entry.perm);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_stored_as_freebsd_does() {
        let entries = [
            (AclTag::Owner, 6),
            (AclTag::User(1001), 7),
            (AclTag::OwningGroup, 4),
            (AclTag::Mask, 5),
            (AclTag::Other, 0),
        ];
        let entries = entries.map(|(tag, perm)| AclEntry { tag, perm });
        let acl = Acl::new(entries.to_vec()).unwrap();
        let place = Location::of("ACL");
        let bytes = stored(Order::Little, &acl.encode()).unwrap();
        // The size given to FreeBSD's `extattrctl initattr` is 388.
        assert_eq!(bytes.len(), 388);
        assert_eq!(bytes[..4], [5, 0, 0, 0]);
        assert_eq!(bytes[16..28], [2, 0, 0, 0, 0xe9, 3, 0, 0, 7, 0, 0, 0]);
        for order in [Order::Little, Order::Big] {
            let bytes = stored(order, &acl.encode()).unwrap();
            assert_eq!(decode(order, &bytes, place).unwrap(), acl);
            assert!(decode(order, &bytes[1..], place).is_err());
        }
        let mut wrong = bytes.clone();
        wrong[0] = 33;
        assert!(decode(Order::Little, &wrong, place).is_err());
        (wrong[0], wrong[4]) = (5, 3);
        assert!(decode(Order::Little, &wrong, place).is_err());
        let many = (0..29).map(|id| AclEntry { tag: AclTag::User(id), perm: 4 });
        let mut entries = acl.entries().to_vec();
        entries.extend(many);
        entries.sort_by_key(|entry| entry.tag);
        let many = Acl::new(entries).unwrap().encode();
        assert!(matches!(stored(Order::Little, &many), Err(FsError::Invalid(_))));
    }
}
