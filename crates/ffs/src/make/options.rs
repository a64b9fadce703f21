//! Options of a new file system.

use crate::ondisk::check_hash;
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;

/// Percent of the space that are kept free by default (`MINFREE`).
pub(crate) const MINFREE: u32 = 8;
/// Bytes that a kernel moves at once (`MAXPHYS` of 64-bit FreeBSD).
const TRANSFER: u32 = 1 << 20;
/// Most blocks of a cluster that FreeBSD accepts (`validate_sblock`).
pub(crate) const MOST_CONTIG: u32 = 256;

/// Which of the two formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// 32-bit block numbers, superblock at byte 8192.
    Ufs1,
    /// 64-bit block numbers and times, superblock at byte 65536.
    Ufs2,
}

/// The resource that the block allocator saves (`fs_optim`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Optimization {
    /// Copies of fragments: `FS_OPTTIME`.
    Time,
    /// Space: `FS_OPTSPACE`.
    Space,
}

/// Which structures of UFS2 have check hashes (`fs_metackhash`). UFS1 has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckHashes {
    /// Superblock, groups and inodes, as FreeBSD 13 and later make them.
    #[default]
    All,
    /// Only groups, as FreeBSD 12 makes them: its tools write superblocks and inodes without
    /// renewing other hashes.
    Groups,
    /// None, as before FreeBSD 12.
    None,
}

impl CheckHashes {
    /// `fs_metackhash`.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::All => check_hash::SUPERBLOCK | check_hash::GROUP | check_hash::INODE,
            Self::Groups => check_hash::GROUP,
            Self::None => 0,
        }
    }
}

/// Options of [`make`](super::make), named as those of `newfs`.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// Which format (`-O`).
    pub version: Version,
    /// Big-endian instead of little-endian.
    pub big_endian: bool,
    /// Length of the device (`-s`).
    pub size: ByteLen,
    /// Bytes in a block (`-b`): a power of two from 4096 to 65536.
    pub block_size: u32,
    /// Bytes in a fragment (`-f`): a power of two, an eighth of a block to a block,
    /// 512 at least.
    pub fragment_size: u32,
    /// Percent of the space kept from ordinary users (`-m`), below 100.
    pub minfree: u32,
    /// The resource that the allocator saves (`-o`); space wherever less than 8 percent are kept
    /// free.
    pub optimization: Optimization,
    /// Blocks a file may take in one group before it must move on (`-e`);
    /// `None` for as many numbers as fit in a quarter of a block.
    pub maxbpg: Option<u32>,
    /// Average length of files in bytes (`-g`), for the placement of directories.
    pub avgfilesize: u32,
    /// Average number of files in a directory (`-h`).
    pub avgfpdir: u32,
    /// Bytes of space for each inode (`-i`), a fragment at least; `None` for two
    /// fragments. Rounded down to whole fragments.
    pub bytes_per_inode: Option<u32>,
    /// Most blocks in a group (`-c`); `None` for as many as its head can describe.
    pub blocks_per_group: Option<u32>,
    /// Most blocks that are gathered into a cluster (`-a`), 256 at most; `None`
    /// for those of 1 MiB.
    pub maxcontig: Option<u32>,
    /// Soft updates (`-U`).
    pub soft_updates: bool,
    /// Check hashes of UFS2.
    pub check_hashes: CheckHashes,
    /// Volume label (`-L`), 31 bytes at most.
    pub label: Vec<u8>,
    /// When it was made.
    pub time: Timestamp,
    /// `fs_id`: by default the time and a number.
    pub id: [u32; 2],
}

impl MakeOptions {
    /// `newfs`'s defaults: blocks of 32 KiB, fragments of 4 KiB.
    #[must_use]
    pub fn new(version: Version, size: ByteLen) -> Self {
        Self {
            version,
            big_endian: false,
            size,
            block_size: 32768,
            fragment_size: 4096,
            minfree: MINFREE,
            optimization: Optimization::Time,
            maxbpg: None,
            avgfilesize: 16384,
            avgfpdir: 64,
            bytes_per_inode: None,
            blocks_per_group: None,
            maxcontig: None,
            soft_updates: false,
            check_hashes: CheckHashes::All,
            label: Vec::new(),
            time: Timestamp::default(),
            id: [0; 2],
        }
    }

    /// `fs_metackhash`.
    pub(crate) fn hashed(&self) -> u32 {
        match self.version {
            Version::Ufs1 => 0,
            Version::Ufs2 => self.check_hashes.bits(),
        }
    }

    /// The resource that the allocator saves: `newfs` chooses space where little of it is kept
    /// free.
    pub(crate) fn optimization(&self) -> Optimization {
        if self.minfree < MINFREE { Optimization::Space } else { self.optimization }
    }

    /// Most blocks of a cluster.
    pub(crate) fn maxcontig(&self) -> u32 {
        self.maxcontig.unwrap_or((TRANSFER / self.block_size.max(1)).max(1))
    }

    /// Checks the options as far as possible without the geometry.
    pub(crate) fn check(&self) -> Result<(), FsError> {
        let wrong = |what: String| Err(FsError::Invalid(what));
        let (block, fragment) = (self.block_size, self.fragment_size);
        if !block.is_power_of_two() || !(4096..=65536).contains(&block) {
            return wrong(format!("block size {block}: not a power of two from 4096 to 65536"));
        }
        if !fragment.is_power_of_two() || fragment < 512 || fragment > block || block / fragment > 8
        {
            return wrong(format!(
                "fragment size {fragment}: not a power of two from {} to {block}",
                (block / 8).max(512)
            ));
        }
        if self.minfree >= 100 {
            return wrong(format!("{}% kept free leaves no space for files", self.minfree));
        }
        if self.label.len() > 31 || self.label.contains(&0) {
            return wrong("the label is longer than 31 bytes or contains a zero byte".into());
        }
        for (what, value) in [
            ("average file size", self.avgfilesize),
            ("average number of files in a directory", self.avgfpdir),
            ("number of blocks in a cluster", self.maxcontig()),
            ("number of a file's blocks in a group", self.maxbpg.unwrap_or(1)),
            ("number of blocks in a group", self.blocks_per_group.unwrap_or(1)),
            ("number of bytes for an inode", self.bytes_per_inode.unwrap_or(1)),
        ] {
            if value == 0 || value > i32::MAX as u32 {
                return wrong(format!("the {what} is {value}"));
            }
        }
        if self.maxcontig() > MOST_CONTIG {
            let asked = self.maxcontig();
            return wrong(format!(
                "clusters of {asked} blocks: FreeBSD mounts {MOST_CONTIG} at most"
            ));
        }
        Ok(())
    }
}
