//! The checksum of check hashes.

/// CRC32C without complement at either end, as the kernel's
/// `calculate_crc32c(~0L, ...)`.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    !crc32c::crc32c(data)
}
