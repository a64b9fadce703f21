//! POSIX ACLs: their stored form is shorter than that of `getxattr(2)`.

use seekless_fs::field::{invalid, le32, truncated};
use seekless_fs::{FsError, Location};

/// `e_version` on disk.
const DISK_VERSION: u32 = 1;
/// The version of the portable form.
const PORTABLE_VERSION: u32 = 2;
/// The id of entries without one.
const NO_ID: u32 = u32::MAX;
/// Tags of entries with an id: a named user, a named group.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
/// Tags without: owner, owning group, mask, others.
const WITHOUT_ID: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// The portable form of a stored ACL.
pub(crate) fn to_portable(disk: &[u8], place: Location) -> Result<Vec<u8>, FsError> {
    let version = le32(disk, 0).ok_or_else(|| truncated(place))?;
    if version != DISK_VERSION {
        return Err(invalid("a_version", u64::from(version), place));
    }
    let mut rest = disk.get(4..).unwrap_or_default();
    let mut portable = PORTABLE_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (head, after) = rest.split_first_chunk::<4>().ok_or_else(|| truncated(place))?;
        let tag = u16::from_le_bytes([head[0], head[1]]);
        let mut id = NO_ID;
        rest = after;
        if tag == USER || tag == GROUP {
            let (bytes, after) = rest.split_first_chunk().ok_or_else(|| truncated(place))?;
            id = u32::from_le_bytes(*bytes);
            rest = after;
        } else if !WITHOUT_ID.contains(&tag) {
            return Err(invalid("e_tag", u64::from(tag), place));
        }
        portable.extend_from_slice(head);
        portable.extend_from_slice(&id.to_le_bytes());
    }
    Ok(portable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_filled_in() {
        let disk = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xE8, 3, 0, 0, 0x20, 0, 0, 0];
        let portable = to_portable(&disk, Location::of("acl")).unwrap();
        let expected = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xE8, 3, 0, 0, 0x20, 0, 0, 0,
            255, 255, 255, 255,
        ];
        assert_eq!(portable, expected);
        assert!(to_portable(&disk[..14], Location::of("acl")).is_err());
        assert!(to_portable(&[1, 0, 0, 0, 3, 0, 6, 0], Location::of("acl")).is_err());
    }
}
