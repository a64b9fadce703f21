//! Bounds-checked access to the bytes of on-disk structures.

use crate::{Corruption, FsError, Location};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The structure at byte `at` of `bytes`, if it lies wholly within.
#[must_use]
pub fn parse<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], at: usize) -> Option<T> {
    let (value, _) = T::read_from_prefix(bytes.get(at..)?).ok()?;
    Some(value)
}

/// `len` bytes from `at`, if they lie wholly within.
#[must_use]
pub fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

/// The little-endian word at byte `at`.
#[must_use]
pub fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The little-endian word of 64 bits at byte `at`.
#[must_use]
pub fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Converts a number to an index in memory; numbers that do not fit become `usize::MAX`.
#[must_use]
pub fn index(value: impl TryInto<usize>) -> usize {
    value.try_into().unwrap_or(usize::MAX)
}

/// Converts a length in memory to a number on disk.
#[must_use]
pub fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Converts an offset within a block, for [`Location`].
#[must_use]
pub fn byte(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The low half of a number whose halves are stored apart.
#[must_use]
pub fn low16(value: u32) -> u16 {
    u16::try_from(value & 0xFFFF).unwrap_or(0)
}

/// The low half of a number whose halves are stored apart.
#[must_use]
pub fn low32(value: u64) -> u32 {
    u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0)
}

/// The error for a structure that is cut off.
#[must_use]
pub fn truncated(location: Location) -> FsError {
    FsError::corrupt(Corruption::Truncated, location)
}

/// The error for a field past its bound.
#[must_use]
pub fn range(field: &'static str, value: u64, limit: u64, location: Location) -> FsError {
    FsError::corrupt(Corruption::Range { field, value, limit }, location)
}

/// The error for an invalid field.
#[must_use]
pub fn invalid(field: &'static str, value: u64, location: Location) -> FsError {
    FsError::corrupt(Corruption::Invalid { field, value }, location)
}
