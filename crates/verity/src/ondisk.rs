//! The superblock of a hash tree, as written by `veritysetup` (cryptsetup, `lib/verity/verity.c`,
//! `struct verity_sb`): 512 bytes, little-endian numbers.

use zerocopy::byteorder::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The signature at the start of a superblock.
pub(crate) const SIGNATURE: [u8; 8] = *b"verity\0\0";

/// Maximum length of the salt.
pub(crate) const SALT_MAX: usize = 256;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    pub(crate) signature: [u8; 8],
    pub(crate) version: le::U32,
    /// 1: the salt precedes the hashed data.
    pub(crate) hash_type: le::U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) algorithm: [u8; 32],
    pub(crate) data_block_size: le::U32,
    pub(crate) hash_block_size: le::U32,
    pub(crate) data_blocks: le::U64,
    pub(crate) salt_size: le::U16,
    pub(crate) pad1: [u8; 6],
    pub(crate) salt: [u8; SALT_MAX],
    pub(crate) pad2: [u8; 168],
}

const _: () = assert!(size_of::<Superblock>() == 512);
const _: () = assert!(std::mem::offset_of!(Superblock, algorithm) == 32);
const _: () = assert!(std::mem::offset_of!(Superblock, data_blocks) == 72);
const _: () = assert!(std::mem::offset_of!(Superblock, salt) == 88);
