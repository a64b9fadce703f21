//! The header of a layout list. Numbers are in little endian.

use zerocopy::byteorder::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a list.
pub(crate) const MAGIC: [u8; 16] = *b"seekless layout\n";

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// Bytes of the packed payload that one checksum covers.
pub(crate) const PIECE: usize = 64 << 10;

/// The header. The fields up to `tool` are the same in all versions.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 16],
    pub(crate) version: le::U32,
    /// The version of the program that wrote the list, padded with zeros.
    pub(crate) tool: [u8; 20],
    /// The name of the volume's format, padded with zeros.
    pub(crate) format: [u8; 8],
    /// Bytes of the volume.
    pub(crate) volume_len: le::U64,
    /// Bytes of the list.
    pub(crate) list_len: le::U64,
    /// Bytes of the runs in the payload.
    pub(crate) runs_len: le::U64,
    /// Bytes of metadata in the payload.
    pub(crate) metadata_len: le::U64,
    /// Bytes of the digests in the payload.
    pub(crate) digests_len: le::U64,
    /// Bytes of contents that each digest of a block covers.
    pub(crate) unit: le::U32,
    /// Pieces of the packed payload.
    pub(crate) pieces: le::U32,
    /// The checksum of the header before it and of the sums behind it.
    pub(crate) sum: [u8; 16],
}

/// The checksum of a piece.
pub(crate) type PieceSum = [u8; 8];

/// Bytes of the header.
pub(crate) const HEADER: usize = size_of::<Header>();

const _: () = assert!(HEADER == 112);
const _: () = assert!(std::mem::offset_of!(Header, volume_len) == 48);
const _: () = assert!(std::mem::offset_of!(Header, unit) == 88);
/// Offset of the checksum: it covers all bytes before.
pub(crate) const SUM: usize = std::mem::offset_of!(Header, sum);
