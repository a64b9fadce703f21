//! The numbers of a device in `i_block`.

use crate::ondisk::IBlock;
use seekless_fs::{DeviceNumber, FsError};

/// The first words of `i_block` that hold a device's numbers: the old form of 16 bits where they
/// fit in it, else the new one in the second word (`old_encode_dev` and `new_encode_dev` of the
/// kernel's `include/linux/kdev_t.h`).
///
/// # Errors
/// [`FsError::Unsupported`] for a major number of more than 12 bits, and a minor number of more
/// than 20.
pub(crate) fn device_words(device: DeviceNumber) -> Result<[u32; 2], FsError> {
    let DeviceNumber { major, minor } = device;
    if major >= 1 << 12 || minor >= 1 << 20 {
        let what = format!("the device number {major},{minor} does not fit in an ext inode");
        return Err(FsError::Unsupported(what));
    }
    if major < 256 && minor < 256 {
        return Ok([major << 8 | minor, 0]);
    }
    Ok([0, minor & 0xFF | major << 8 | (minor & 0xF_FF00) << 12])
}

/// [`device_words`] as the whole field.
pub(crate) fn device_block(device: DeviceNumber) -> Result<IBlock, FsError> {
    let mut block = IBlock::default();
    let words = device_words(device)?.map(u32::to_le_bytes);
    block.0.iter_mut().zip(words.as_flattened()).for_each(|(to, &from)| *to = from);
    Ok(block)
}
