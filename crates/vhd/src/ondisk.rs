//! The footer of an image. Numbers are in big endian. Source: Microsoft, "Virtual Hard Disk Image
//! Format Specification", version 1.0, 2006.

use zerocopy::byteorder::big_endian as be;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The cookie with which a footer begins.
pub(crate) const COOKIE: [u8; 8] = *b"conectix";

/// `disk_type` of a disk whose bytes lie in the file in order.
pub(crate) const FIXED: u32 = 2;

/// `features` of every image: the reserved bit is set.
pub(crate) const RESERVED_FEATURE: u32 = 2;

/// `file_format_version`: 1.0.
pub(crate) const VERSION: u32 = 0x0001_0000;

/// `data_offset` of a fixed disk.
pub(crate) const NO_OFFSET: u64 = u64::MAX;

/// The last sector of an image.
#[derive(Clone, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Footer {
    pub(crate) cookie: [u8; 8],
    pub(crate) features: be::U32,
    pub(crate) file_format_version: be::U32,
    pub(crate) data_offset: be::U64,
    /// Seconds since 2000-01-01.
    pub(crate) time_stamp: be::U32,
    pub(crate) creator_application: [u8; 4],
    pub(crate) creator_version: be::U32,
    pub(crate) creator_host_os: [u8; 4],
    pub(crate) original_size: be::U64,
    pub(crate) current_size: be::U64,
    pub(crate) cylinders: be::U16,
    pub(crate) heads: u8,
    pub(crate) sectors_per_track: u8,
    pub(crate) disk_type: be::U32,
    pub(crate) checksum: be::U32,
    pub(crate) unique_id: [u8; 16],
    pub(crate) saved_state: u8,
    pub(crate) reserved: [u8; 427],
}

/// Bytes of the footer.
pub(crate) const FOOTER: usize = size_of::<Footer>();

const _: () = assert!(FOOTER == 512);
const _: () = assert!(std::mem::offset_of!(Footer, current_size) == 48);
const _: () = assert!(std::mem::offset_of!(Footer, checksum) == 64);
const _: () = assert!(std::mem::offset_of!(Footer, unique_id) == 68);

impl Footer {
    /// The complement of the sum of all bytes but those of the checksum.
    pub(crate) fn sum(&self) -> u32 {
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        !(sum(self.as_bytes()) - sum(self.checksum.as_bytes()))
    }
}
