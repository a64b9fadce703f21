//! Numbers of images as places in memory, and back; division.

/// A number as a place in memory; what does not fit lies past every end.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length in memory as a number of an image.
pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// How often a unit is in a number, and what is left. Units are never zero here.
pub(crate) fn divide(number: u64, unit: u64) -> (u64, u64) {
    (number.checked_div(unit).unwrap_or(0), number.checked_rem(unit).unwrap_or(0))
}
