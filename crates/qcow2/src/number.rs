//! Numbers of images as places in memory, and back.

/// A number as a place in memory; what does not fit lies past every end.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length in memory as a number of an image.
pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
