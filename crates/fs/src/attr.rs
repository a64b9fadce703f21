//! Attributes of files, independent of any format.

use seekless_units::Ino;

/// The kind of a file: the `S_IFMT` part of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

impl FileKind {
    /// The `S_IFMT` bits of POSIX.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Decodes a mode's `S_IFMT` bits, if they are valid.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// The letter `ls -l` and mtree-like listings show.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Regular => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
            Self::Fifo => 'p',
            Self::Socket => 's',
        }
    }
}

/// A moment in Unix time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

/// A device's major and minor number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within the driver.
    pub minor: u32,
}

/// One extended attribute, with name and value as in `getxattr(2)`: the name with its namespace
/// (`user.note`, `system.posix_acl_access`), ACLs in the kernel's portable little-endian form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Xattr {
    /// Full name with namespace.
    pub name: Vec<u8>,
    /// Value as the system call returns it.
    pub value: Vec<u8>,
}

/// Inode flags as in `lsattr`: `FS_*_FL` of `include/uapi/linux/fs.h`.
pub mod inode_flag {
    /// Overwritten when it is removed. The ext4 driver stores this flag and the next two, and acts
    /// on none of them.
    pub const SECRM: u32 = 0x1;
    /// Kept, to be restored, when it is removed.
    pub const UNRM: u32 = 0x2;
    /// Stored compressed.
    pub const COMPR: u32 = 0x4;
    /// Written synchronously.
    pub const SYNC: u32 = 0x8;
    /// Cannot be changed.
    pub const IMMUTABLE: u32 = 0x10;
    /// Can only be appended to.
    pub const APPEND: u32 = 0x20;
    /// Skipped by dump(8).
    pub const NODUMP: u32 = 0x40;
    /// The access time is not updated.
    pub const NOATIME: u32 = 0x80;
    /// Its contents are stored encrypted (fscrypt).
    pub const ENCRYPT: u32 = 0x800;
    /// Data written to it goes through the journal.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// Its last block is not merged with those of other files. The ext4
    /// driver only stores the flag.
    pub const NOTAIL: u32 = 0x8000;
    /// Changes of the directory are written synchronously.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// Hint for directories: its subdirectories are unrelated to each other.
    pub const TOPDIR: u32 = 0x2_0000;
    /// Sealed by fs-verity: its contents are verified against a hash tree behind its end.
    pub const VERITY: u32 = 0x10_0000;
    /// Accessed without the page cache.
    pub const DAX: u32 = 0x200_0000;
    /// Left out of listings of its directory (FAT). The bits of this and the next flag belong to no
    /// flag of `lsattr`.
    pub const HIDDEN: u32 = 0x400_0000;
    /// A file of the operating system (FAT).
    pub const SYSTEM: u32 = 0x800_0000;
    /// Its space counts towards a project, and files made in it inherit the project.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// Lookups in the directory ignore case.
    pub const CASEFOLD: u32 = 0x4000_0000;
    /// Flags that describe the file, not its storage format: they are copied to another image, or
    /// their loss there is a loss of information.
    pub const KEPT: u32 = SECRM
        | UNRM
        | COMPR
        | SYNC
        | IMMUTABLE
        | APPEND
        | NODUMP
        | NOATIME
        | JOURNAL_DATA
        | NOTAIL
        | DIRSYNC
        | TOPDIR
        | VERITY
        | DAX
        | HIDDEN
        | SYSTEM
        | PROJINHERIT
        | CASEFOLD;
}

/// A file's attributes as in `statx(2)`, and the format's flags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The inode.
    pub ino: Ino,
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits: the low 12 of the mode.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links (for a directory also `.` and children's `..`).
    pub nlink: u32,
    /// Length in bytes; of a symlink, its target's length.
    pub size: u64,
    /// Disk space it occupies, in 512-byte units, as `st_blocks`.
    pub sectors: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time of the contents.
    pub mtime: Timestamp,
    /// Change time of the inode.
    pub ctime: Timestamp,
    /// Creation time, if the format records it.
    pub crtime: Option<Timestamp>,
    /// Device number of device nodes.
    pub device: DeviceNumber,
    /// Generation number (NFS).
    pub generation: u32,
    /// `FS_*_FL` flags as in `lsattr`.
    pub flags: u32,
    /// Project id, zero without one.
    pub project: u32,
}
