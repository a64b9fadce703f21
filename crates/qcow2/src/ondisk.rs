//! The header of an image and the bits of its tables (QEMU, `docs/interop/qcow2.txt`).
//! Numbers are in big endian.

use zerocopy::byteorder::big_endian as be;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The first bytes of an image.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xFB";

/// The part of the header that all versions have.
#[derive(Clone, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 4],
    pub(crate) version: be::U32,
    pub(crate) backing_file_offset: be::U64,
    pub(crate) backing_file_size: be::U32,
    pub(crate) cluster_bits: be::U32,
    pub(crate) size: be::U64,
    pub(crate) crypt_method: be::U32,
    pub(crate) l1_size: be::U32,
    pub(crate) l1_table_offset: be::U64,
    pub(crate) refcount_table_offset: be::U64,
    pub(crate) refcount_table_clusters: be::U32,
    pub(crate) nb_snapshots: be::U32,
    pub(crate) snapshots_offset: be::U64,
}

/// The part of the header that version 3 adds.
#[derive(Clone, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HeaderV3 {
    pub(crate) incompatible_features: be::U64,
    pub(crate) compatible_features: be::U64,
    pub(crate) autoclear_features: be::U64,
    pub(crate) refcount_order: be::U32,
    pub(crate) header_length: be::U32,
}

/// The head of each header extension.
#[derive(Clone, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtensionHead {
    pub(crate) kind: be::U32,
    pub(crate) len: be::U32,
}

/// Bytes of the header of version 2.
pub(crate) const HEADER_V2: usize = size_of::<Header>();

/// Minimum size of the header of version 3 in bytes.
pub(crate) const HEADER_V3: usize = HEADER_V2 + size_of::<HeaderV3>();

/// Offset of the compression type in the header, if the header is that long.
pub(crate) const COMPRESSION_TYPE: usize = 104;

const _: () = assert!(HEADER_V2 == 72 && HEADER_V3 == 104);
const _: () = assert!(std::mem::offset_of!(Header, size) == 24);
const _: () = assert!(std::mem::offset_of!(Header, l1_table_offset) == 40);
const _: () = assert!(std::mem::offset_of!(Header, snapshots_offset) == 64);

/// Bits of `incompatible_features`.
pub(crate) mod incompatible {
    pub(crate) const DIRTY: u64 = 1 << 0;
    pub(crate) const CORRUPT: u64 = 1 << 1;
    pub(crate) const DATA_FILE: u64 = 1 << 2;
    pub(crate) const COMPRESSION_TYPE: u64 = 1 << 3;
    pub(crate) const EXTENDED_L2: u64 = 1 << 4;
    pub(crate) const KNOWN: u64 = DIRTY | CORRUPT | DATA_FILE | COMPRESSION_TYPE | EXTENDED_L2;
}

/// Header extensions.
pub(crate) mod extension {
    pub(crate) const END: u32 = 0;
    pub(crate) const BACKING_FORMAT: u32 = 0xE279_2ACA;
    pub(crate) const DATA_FILE: u32 = 0x4441_5441;
}

/// Bytes in an entry of an L1 table, and of an L2 table without subclusters.
pub(crate) const ENTRY: u64 = 8;

/// Bytes in an entry of an L2 table with subclusters: the entry, and two bits for each of
/// 32 subclusters.
pub(crate) const EXTENDED_ENTRY: u64 = 16;

/// Subclusters in a cluster.
pub(crate) const SUBCLUSTERS: u32 = 32;

/// The offset of a cluster or an L2 table in their entries: bits 9 to 55.
pub(crate) const OFFSET: u64 = 0x00FF_FFFF_FFFF_FE00;

/// In entries of L2 tables: the cluster has no other references.
pub(crate) const COPIED: u64 = 1 << 63;

/// In entries of L2 tables: the cluster is compressed.
pub(crate) const COMPRESSED: u64 = 1 << 62;

/// In entries of L2 tables without subclusters, from version 3 on: reads as zeros.
pub(crate) const ZERO: u64 = 1;

/// Unit of the sizes of compressed clusters in bytes.
pub(crate) const COMPRESSED_UNIT: u64 = 512;
