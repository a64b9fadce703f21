//! The checksums of ext4 and jbd2 (Linux `Documentation/filesystems/ext4/checksums.rst`).
//!
//! The kernel's `crc32c(seed, data)` neither inverts its seed nor its result;
//! [`crc32c`] has the same meaning.

/// CRC32C of `data` continued from `seed`, without complement at either end.
pub(crate) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// CRC16 (polynomial 0x8005 reflected) continued from `seed`, as `uninit_bg`
/// group descriptors use it.
pub(crate) fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xA001 } else { crc >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The standard check value of CRC32C inverts at both ends.
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        // CRC-16/ARC.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }
}
