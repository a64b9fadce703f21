//! The kernel's requests for flags of files: `FS_IOC_GETFLAGS` and the like, and those with
//! `struct fsxattr`, which it asks for itself before it sets any (`vfs_fileattr_set`; Linux
//! `fs/file_attr.c`, `include/uapi/linux/fs.h`).

use fuser::Errno;
use seekless_fs::inode_flag;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`.
pub(super) const GET: u32 = 0x8008_6601;
pub(super) const SET: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
pub(super) const GET_EXTENDED: u32 = 0x801C_581F;
pub(super) const SET_EXTENDED: u32 = 0x401C_5820;

/// Bytes of `struct fsxattr`, which begins with the flags.
const EXTENDED: usize = 28;

/// `FS_XFLAG_*`, and the flags of `FS_IOC_GETFLAGS` that mean the same.
const PAIRS: [(u32, u32); 5] = [
    (0x8, inode_flag::IMMUTABLE),
    (0x10, inode_flag::APPEND),
    (0x20, inode_flag::SYNC),
    (0x40, inode_flag::NOATIME),
    (0x80, inode_flag::NODUMP),
];

/// The first word of a request.
pub(super) fn word(data: &[u8]) -> Option<u32> {
    data.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Flags as `struct fsxattr`.
pub(super) fn extended(flags: u32) -> Vec<u8> {
    let set = PAIRS.iter().filter(|(_, flag)| flags & flag != 0);
    let mut bytes = set.fold(0u32, |all, (extended, _)| all | extended).to_ne_bytes().to_vec();
    bytes.resize(EXTENDED, 0);
    bytes
}

/// The flags of a file after a request to set those of `struct fsxattr`.
///
/// # Errors
/// `EINVAL` for a request of another length, `EOPNOTSUPP` for one with flags, sizes of extents or a
/// project that no file has here.
pub(super) fn from_extended(flags: u32, data: &[u8]) -> Result<u32, Errno> {
    let asked = word(data).filter(|_| data.len() == EXTENDED).ok_or(Errno::EINVAL)?;
    let known = PAIRS.iter().fold(0, |all, (extended, _)| all | extended);
    if asked & !known != 0 || data.iter().skip(4).any(|&byte| byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(PAIRS.iter().fold(flags, |flags, &(extended, flag)| match asked & extended != 0 {
        true => flags | flag,
        false => flags & !flag,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let others = 0x8_0000 | inode_flag::TOPDIR;
        for bits in 0..32u32 {
            let set = PAIRS.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            let flags = set.fold(others, |all, (_, (_, flag))| all | flag);
            let told = extended(flags);
            assert_eq!(from_extended(others, &told), Ok(flags), "{bits:#b}");
            assert_eq!(from_extended(flags, &extended(others)), Ok(others), "{bits:#b}");
        }
    }

    #[test]
    fn what_no_file_has_is_refused() {
        let mut told = extended(inode_flag::APPEND);
        assert_eq!(from_extended(0, &told[..20]), Err(Errno::EINVAL));
        told[12] = 7;
        assert_eq!(from_extended(0, &told), Err(Errno::EOPNOTSUPP));
        assert_eq!(from_extended(0, &[255; EXTENDED]), Err(Errno::EOPNOTSUPP));
    }
}
