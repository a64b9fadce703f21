//! Hash trees of dm-verity, over any device.
//!
//! A tree has a superblock in its first block and then its levels, the topmost first. A level's
//! blocks contain the digests of the blocks of the level below, the lowest those of the data; the
//! digest of the single block at the top is the root hash. Format: Linux,
//! `Documentation/admin-guide/device-mapper/verity.rst`; cryptsetup, `lib/verity/verity_hash.c`.
//!
//! # Example
//!
//! ```
//! use seekless_device::MemoryDevice;
//! use seekless_units::ByteLen;
//! use seekless_verity::Verity;
//!
//! let data = MemoryDevice::new(vec![7; 1 << 20]);
//! let verity = Verity::new(&data)?;
//! let tree = MemoryDevice::new(vec![0; verity.tree_len().get() as usize]);
//! let root = verity.write(&data, &tree, ByteLen::ZERO, &|_bytes| {})?;
//! assert_eq!(root.to_string().len(), 64);
//! # Ok::<(), seekless_verity::VerityError>(())
//! ```

mod ondisk;

use ondisk::{SIGNATURE, Superblock};
use rayon::prelude::*;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::ByteLen;
use sha2::{Digest, Sha256};
use std::fmt;
use zerocopy::IntoBytes;

/// Bytes in a block of the tree.
pub const HASH_BLOCK: u64 = 4096;

/// Bytes in a digest.
const DIGEST: usize = 32;

/// Digests in a block of the tree.
const PER_BLOCK: u64 = HASH_BLOCK / DIGEST as u64;

/// Bytes of the data from which salt and UUID are derived: they contain the superblocks of all
/// supported formats.
const IDENTITY: u64 = 128 << 10;

/// The reason why a tree cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum VerityError {
    /// The data cannot be divided into blocks.
    #[error("{0} bytes are not a whole number of sectors, of which dm-verity's blocks consist")]
    Length(ByteLen),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The digest by which a whole device is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootHash([u8; DIGEST]);

impl fmt::Display for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Blocks of each level of a tree, the lowest first.
fn levels(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut below = data_blocks;
    while below > 1 {
        below = below.div_ceil(PER_BLOCK);
        levels.push(below);
    }
    levels
}

/// Maximum number of bytes of data, in whole blocks of [`HASH_BLOCK`], that fit beside their tree
/// in `all` bytes; `None` if not even one block fits.
#[must_use]
pub fn data_beside_tree(all: ByteLen) -> Option<ByteLen> {
    let room = all.get() / HASH_BLOCK;
    let fits = |data: u64| data + 1 + levels(data).iter().sum::<u64>() <= room;
    if !fits(1) {
        return None;
    }
    let (mut least, mut most) = (1, room);
    while least < most {
        let middle = most - (most - least) / 2;
        if fits(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    Some(ByteLen::new(least * HASH_BLOCK))
}

/// The length of the tree of `len` bytes of data, a multiple of 4096, with its superblock.
#[must_use]
pub fn tree_len(len: ByteLen) -> ByteLen {
    debug_assert!(len.get().is_multiple_of(HASH_BLOCK), "{len} bytes of data");
    ByteLen::new((1 + levels(len.get() / HASH_BLOCK).iter().sum::<u64>()) * HASH_BLOCK)
}

/// A tree to be made.
#[derive(Clone, Debug)]
pub struct Verity {
    data_block: u64,
    data_blocks: u64,
    /// Blocks of each level, the lowest first.
    levels: Vec<u64>,
    salt: [u8; DIGEST],
    uuid: [u8; 16],
}

impl Verity {
    /// Plans a tree over a device. Its salt and UUID are derived from the beginning of the device,
    /// so that the same image has the same tree.
    ///
    /// # Errors
    /// [`VerityError::Length`] if the device does not consist of whole sectors;
    /// [`VerityError::Device`] if it cannot be read.
    pub fn new(data: &dyn BlockDevice) -> Result<Self, VerityError> {
        let len = data.len().get();
        // As large as pages, unless the device ends within a page.
        let sizes = [4096, 2048, 1024, 512];
        let data_block = sizes.into_iter().find(|size| len > 0 && len.is_multiple_of(*size));
        let data_block = data_block.ok_or(VerityError::Length(data.len()))?;
        let mut start = vec![0; IDENTITY.min(len) as usize];
        data.read_bytes(ByteLen::ZERO, &mut start)?;
        let derive = |what: &str| -> [u8; DIGEST] {
            let hash = Sha256::new().chain_update(what).chain_update(len.to_le_bytes());
            hash.chain_update(&start).finalize().into()
        };
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&derive("dm-verity uuid")[..16]);
        // Version 8 (RFC 9562).
        uuid[6] = uuid[6] & 0x0F | 0x80;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        let data_blocks = len / data_block;
        let levels = levels(data_blocks);
        Ok(Self { data_block, data_blocks, levels, salt: derive("dm-verity salt"), uuid })
    }

    /// The tree's length, including its superblock.
    #[must_use]
    pub fn tree_len(&self) -> ByteLen {
        ByteLen::new((1 + self.levels.iter().sum::<u64>()) * HASH_BLOCK)
    }

    /// Writes the tree of `data` to `tree` from byte `at` on, a multiple of [`HASH_BLOCK`].
    /// `progress` is called with numbers of bytes read, from several threads.
    ///
    /// # Errors
    /// [`VerityError::Device`] if a device fails.
    pub fn write(
        &self,
        data: &dyn BlockDevice,
        tree: &dyn BlockDevice,
        at: ByteLen,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<RootHash, VerityError> {
        debug_assert!(at.get().is_multiple_of(HASH_BLOCK), "a tree begins with a block");
        let write = |block: u64, bytes: &[u8]| -> Result<(), DeviceError> {
            let at = ByteLen::new(at.get() + block * HASH_BLOCK);
            tree.write(seekless_units::Lba::containing(at), bytes)
        };
        let mut superblock = vec![0; HASH_BLOCK as usize];
        superblock[..size_of::<Superblock>()].copy_from_slice(self.superblock().as_bytes());
        write(0, &superblock)?;
        let zeros = self.digest(&vec![0; self.data_block as usize]);
        let lowest = |number: u64| -> Result<Vec<[u8; DIGEST]>, DeviceError> {
            let first = number * PER_BLOCK;
            let blocks = PER_BLOCK.min(self.data_blocks - first);
            let mut bytes = vec![0; (blocks * self.data_block) as usize];
            data.read_bytes(ByteLen::new(first * self.data_block), &mut bytes)?;
            progress(bytes.len() as u64);
            let digest = |block: &[u8]| match block.iter().all(|&byte| byte == 0) {
                true => zeros,
                false => self.digest(block),
            };
            Ok(bytes.chunks(self.data_block as usize).map(digest).collect())
        };
        // The level being made begins behind all above it.
        let mut place = 1 + self.levels.iter().sum::<u64>();
        let mut below: Vec<[u8; DIGEST]> = Vec::new();
        for (level, &blocks) in self.levels.iter().enumerate() {
            place -= blocks;
            let make = |number: u64| -> Result<[u8; DIGEST], DeviceError> {
                let digests = if level == 0 {
                    lowest(number)?
                } else {
                    let first = (number * PER_BLOCK) as usize;
                    below[first..].iter().take(PER_BLOCK as usize).copied().collect()
                };
                let mut block = digests.as_flattened().to_vec();
                block.resize(HASH_BLOCK as usize, 0);
                write(place + number, &block)?;
                Ok(self.digest(&block))
            };
            below = (0..blocks).into_par_iter().map(make).collect::<Result<_, _>>()?;
        }
        match below.first() {
            Some(root) => Ok(RootHash(*root)),
            // A single block of data is verified by its own digest.
            None => Ok(RootHash(lowest(0)?.first().copied().unwrap_or(zeros))),
        }
    }

    fn digest(&self, block: &[u8]) -> [u8; DIGEST] {
        Sha256::new().chain_update(self.salt).chain_update(block).finalize().into()
    }

    fn superblock(&self) -> Superblock {
        let mut superblock = Superblock {
            signature: SIGNATURE,
            version: 1.into(),
            hash_type: 1.into(),
            uuid: self.uuid,
            algorithm: [0; 32],
            data_block_size: (self.data_block as u32).into(),
            hash_block_size: (HASH_BLOCK as u32).into(),
            data_blocks: self.data_blocks.into(),
            salt_size: (DIGEST as u16).into(),
            pad1: [0; 6],
            salt: [0; ondisk::SALT_MAX],
            pad2: [0; 168],
        };
        superblock.algorithm[..6].copy_from_slice(b"sha256");
        superblock.salt[..DIGEST].copy_from_slice(&self.salt);
        superblock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    fn made(data: &MemoryDevice) -> (Verity, MemoryDevice, RootHash) {
        let verity = Verity::new(data).unwrap();
        let tree = MemoryDevice::new(vec![0xEE; verity.tree_len().get() as usize]);
        let root = verity.write(data, &tree, ByteLen::ZERO, &|_| {}).unwrap();
        (verity, tree, root)
    }

    fn block(tree: &MemoryDevice, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; HASH_BLOCK as usize];
        tree.read_bytes(ByteLen::new(number * HASH_BLOCK), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn data_and_tree_fill_what_there_is() {
        let taken = |data: u64| data + 1 + levels(data).iter().sum::<u64>();
        for room in (2..40_000).step_by(7).chain([1 << 40]) {
            let all = ByteLen::new(room * HASH_BLOCK + 512);
            let data = data_beside_tree(all).unwrap().get() / HASH_BLOCK;
            assert!(taken(data) <= room && taken(data + 1) > room, "{room}: {data}");
        }
        assert_eq!(data_beside_tree(ByteLen::new(2 * HASH_BLOCK - 1)), None);
    }

    #[test]
    fn levels_lie_from_the_top_down_and_hold_the_digests_of_those_below() {
        let mut bytes = vec![0; 300 * 4096];
        bytes[299 * 4096] = 1;
        let data = MemoryDevice::new(bytes.clone());
        let (verity, tree, root) = made(&data);
        assert_eq!(verity.levels, [3, 1]);
        assert_eq!(verity.tree_len().get(), 5 * 4096);
        assert_eq!(block(&tree, 0)[..8], SIGNATURE);
        let top = block(&tree, 1);
        assert_eq!(root.0, verity.digest(&top));
        for n in 0..3 {
            let lower = block(&tree, 2 + n);
            assert_eq!(top[n as usize * 32..][..32], verity.digest(&lower));
        }
        assert_eq!(block(&tree, 4)[43 * 32..][..32], verity.digest(&bytes[299 * 4096..]));
        assert!(block(&tree, 4)[44 * 32..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn each_byte_of_the_data_counts() {
        let mut bytes = vec![7; 200 * 512];
        let (verity, _, root) = made(&MemoryDevice::new(bytes.clone()));
        assert_eq!((verity.data_block, verity.data_blocks), (4096, 25));
        bytes[150 * 512] ^= 1;
        assert_ne!(made(&MemoryDevice::new(bytes.clone())).2, root);
        // Blocks are smaller if the data end within a page.
        bytes.truncate(199 * 512);
        assert_eq!(Verity::new(&MemoryDevice::new(bytes.clone())).unwrap().data_block, 512);
        bytes.truncate(199 * 512 - 1);
        let refused = Verity::new(&MemoryDevice::new(bytes));
        assert!(matches!(refused, Err(VerityError::Length(_))));
    }

    #[test]
    fn one_block_has_no_level() {
        let data = MemoryDevice::new(vec![3; 4096]);
        let (verity, tree, root) = made(&data);
        assert_eq!(tree.len().get(), 4096);
        assert_eq!(root.0, verity.digest(&[3; 4096]));
        assert_eq!(root.to_string().len(), 64);
    }
}
