//! Bounds-checked access to the bytes of on-disk structures.

use seekless_fs::{Corruption, FsError, Location};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The structure at byte `at` of `bytes`, if it lies wholly within.
pub(crate) fn parse<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], at: usize) -> Option<T> {
    let (value, _) = T::read_from_prefix(bytes.get(at..)?).ok()?;
    Some(value)
}

/// `len` bytes from `at`, if they lie wholly within.
pub(crate) fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

/// The little-endian word at byte `at`.
pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// A number as a place in memory; what does not fit lies past every end.
pub(crate) fn index(value: impl TryInto<usize>) -> usize {
    value.try_into().unwrap_or(usize::MAX)
}

/// A length in memory as a number on disk.
pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A byte's place within a block, for [`Location`].
pub(crate) fn byte(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The low half of a number whose halves lie apart.
pub(crate) fn low16(value: u32) -> u16 {
    u16::try_from(value & 0xFFFF).unwrap_or(0)
}

/// The low half of a number whose halves lie apart.
pub(crate) fn low32(value: u64) -> u32 {
    u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0)
}

/// The error of a structure that ends before it should.
pub(crate) fn truncated(location: Location) -> FsError {
    FsError::corrupt(Corruption::Truncated, location)
}

/// The error of a field past its bound.
pub(crate) fn range(field: &'static str, value: u64, limit: u64, location: Location) -> FsError {
    FsError::corrupt(Corruption::Range { field, value, limit }, location)
}

/// The error of a field that makes no sense.
pub(crate) fn invalid(field: &'static str, value: u64, location: Location) -> FsError {
    FsError::corrupt(Corruption::Invalid { field, value }, location)
}
