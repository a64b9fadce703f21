//! The headers of an image and its chunks (`libsparse/sparse_format.h`). Numbers are in little
//! endian.

use zerocopy::byteorder::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first number of an image.
pub(crate) const MAGIC: u32 = 0xed26_ff3a;

/// The version that is read and written.
pub(crate) const MAJOR: u16 = 1;

/// The header of an image.
#[derive(Clone, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: le::U32,
    pub(crate) major_version: le::U16,
    pub(crate) minor_version: le::U16,
    pub(crate) file_hdr_sz: le::U16,
    pub(crate) chunk_hdr_sz: le::U16,
    pub(crate) blk_sz: le::U32,
    pub(crate) total_blks: le::U32,
    pub(crate) total_chunks: le::U32,
    pub(crate) image_checksum: le::U32,
}

/// The header of a chunk.
#[derive(Clone, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub(crate) chunk_type: le::U16,
    pub(crate) reserved1: le::U16,
    /// Blocks of the disk.
    pub(crate) chunk_sz: le::U32,
    /// Bytes in the image, with the header.
    pub(crate) total_sz: le::U32,
}

/// Types of chunks.
pub(crate) mod chunk {
    /// Bytes.
    pub(crate) const RAW: u16 = 0xcac1;
    /// A word of four bytes that is repeated.
    pub(crate) const FILL: u16 = 0xcac2;
    /// Blocks that are not written.
    pub(crate) const DONT_CARE: u16 = 0xcac3;
    /// A checksum of the disk so far.
    pub(crate) const CRC32: u16 = 0xcac4;
}

/// Bytes of the header.
pub(crate) const HEADER: usize = size_of::<Header>();

/// Bytes of the header of a chunk.
pub(crate) const CHUNK_HEADER: usize = size_of::<ChunkHeader>();

const _: () = assert!(HEADER == 28 && CHUNK_HEADER == 12);
const _: () = assert!(std::mem::offset_of!(Header, blk_sz) == 12);
const _: () = assert!(std::mem::offset_of!(ChunkHeader, total_sz) == 8);
