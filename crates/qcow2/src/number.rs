//! Conversion between numbers in images and indices in memory; division.

/// Converts a number to an index in memory; numbers that do not fit become `usize::MAX`.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length in memory to a number in an image.
pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Quotient and remainder of a division by a unit. Units are never zero here.
pub(crate) fn divide(number: u64, unit: u64) -> (u64, u64) {
    (number / unit, number % unit)
}
