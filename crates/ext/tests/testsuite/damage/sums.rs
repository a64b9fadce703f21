//! Checksums of metadata made right again where bytes were changed, so that what they
//! say is looked at.

use crate::holes;
use seekless_device::MemoryDevice;
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FileKind, Inspect};
use seekless_units::Ino;
use std::sync::Arc;

fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82F6_3B78 }
        })
    })
}

fn word(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at.checked_add(value.len())?)?.copy_from_slice(value);
    Some(())
}

/// The checksum of some bytes without those of some fields.
fn without(seed: u32, bytes: &[u8], fields: &[(usize, usize)]) -> u32 {
    let mut bytes = bytes.to_vec();
    for &(at, len) in fields {
        let _ = put(&mut bytes, at, &[0; 4][..len]);
    }
    crc32c(seed, &bytes)
}

/// Puts right all checksums that can be found.
pub(crate) fn mend(bytes: &mut [u8]) {
    let has_sums = word(bytes, 1024 + 0x64, 4).is_some_and(|features| features & 0x400 != 0);
    if has_sums {
        let _ = blocks(bytes);
        let _ = inodes(bytes);
        let _ = groups(bytes);
        let sum = crc32c(!0, bytes.get(1024..1024 + 0x3FC).unwrap_or_default());
        let _ = put(bytes, 1024 + 0x3FC, &sum.to_le_bytes());
    }
}

fn seed(bytes: &[u8]) -> Option<u32> {
    let kept = word(bytes, 1024 + 0x60, 4)? & 0x2000 != 0;
    let number = u32::try_from(word(bytes, 1024 + 0x270, 4)?).ok()?;
    Some(if kept { number } else { crc32c(!0, bytes.get(1024 + 0x68..1024 + 0x78)?) })
}

fn of_inode(bytes: &[u8], ino: u32, generation: u32) -> Option<u32> {
    Some(crc32c(crc32c(seed(bytes)?, &ino.to_le_bytes()), &generation.to_le_bytes()))
}

/// Blocks of directories and of extents, as far as an image can be read.
fn blocks(bytes: &mut [u8]) -> Option<()> {
    let options = OpenOptions { ignore_checksums: true, skip_journal: true };
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let image = ExtImage::open(device, options).ok()?;
    let len = image.geometry().block_size as usize;
    for ino in (1..=image.geometry().inodes.min(256)).map(Ino::new) {
        let (Ok(attr), Ok(map)) = (image.attr(ino), image.block_map(ino)) else { continue };
        let seed = of_inode(bytes, ino.get(), attr.generation)?;
        for node in &map.index {
            let at = usize::try_from(node.block.get()).ok()?.checked_mul(len)?;
            let Some(most) = word(bytes, at + 4, 2) else { continue };
            let end = 12 + 12 * most;
            let Some(held) = bytes.get(at..at + end).filter(|_| end + 4 <= len) else { continue };
            let sum = crc32c(seed, held);
            put(bytes, at + end, &sum.to_le_bytes())?;
        }
        let runs = map.runs.iter().filter(|_| attr.kind == FileKind::Directory);
        for block in runs.flat_map(|run| run.extent.start.get()..run.extent.end().get()).take(64) {
            let at = usize::try_from(block).ok()?.checked_mul(len)?;
            let Some(held) = bytes.get(at..at + len) else { continue };
            let sum = crc32c(seed, &held[..len - 12]);
            if held[len - 5] == 0xDE {
                put(bytes, at + len - 4, &sum.to_le_bytes())?;
            }
        }
    }
    Some(())
}

fn desc(bytes: &[u8], group: usize) -> Option<(usize, usize)> {
    let len = word(bytes, 1024 + 0xFE, 2)?;
    let len = if word(bytes, 1024 + 0x60, 4)? & 0x80 != 0 && len >= 64 { len } else { 32 };
    Some((2048usize.checked_add(group.checked_mul(len)?)?, len))
}

/// Blocks are of 1 KiB in all images.
fn groups_of(bytes: &[u8]) -> Option<usize> {
    let per_group = word(bytes, 1024 + 0x20, 4)?.max(1);
    Some(word(bytes, 1024 + 4, 4)?.div_ceil(per_group).min(16))
}

fn inodes(bytes: &mut [u8]) -> Option<()> {
    let per_group = word(bytes, 1024 + 0x28, 4)?.min(4096);
    let len = word(bytes, 1024 + 0x58, 2)?.clamp(128, 1024);
    for group in 0..groups_of(bytes)? {
        let (at, _) = desc(bytes, group)?;
        let table = word(bytes, at + 8, 4)?.checked_mul(1024)?;
        for slot in 0..per_group {
            let at = table.checked_add(slot * len)?;
            let Some(raw) = bytes.get(at..at + len) else { continue };
            if raw.iter().all(|&byte| byte == 0) {
                continue;
            }
            let generation = u32::try_from(word(raw, 0x64, 4)?).ok()?;
            let ino = u32::try_from(group * per_group + slot + 1).ok()?;
            let wide = len > 128 && word(raw, 0x80, 2)? >= 4;
            let fields = [(0x7C, 2), (0x82, if wide { 2 } else { 0 })];
            let sum = without(of_inode(bytes, ino, generation)?, raw, &fields).to_le_bytes();
            put(bytes, at + 0x7C, &sum[..2])?;
            if wide {
                put(bytes, at + 0x82, &sum[2..])?;
            }
        }
    }
    Some(())
}

fn groups(bytes: &mut [u8]) -> Option<()> {
    let seed = seed(bytes)?;
    for group in 0..groups_of(bytes)? {
        let (at, len) = desc(bytes, group)?;
        for (bitmap, low, high, count) in [(0, 0x18, 0x38, 0x20), (4, 0x1A, 0x3A, 0x28)] {
            let from = word(bytes, at + bitmap, 4)?.checked_mul(1024)?;
            let bits = word(bytes, 1024 + count, 4)?.min(8192);
            let Some(map) = bytes.get(from..from + bits / 8) else { continue };
            let sum = crc32c(seed, map).to_le_bytes();
            put(bytes, at + low, &sum[..2])?;
            if len >= 64 {
                put(bytes, at + high, &sum[2..])?;
            }
        }
        let number = u32::try_from(group).ok()?.to_le_bytes();
        let sum = without(crc32c(seed, &number), bytes.get(at..at + len)?, &[(0x1E, 2)]);
        put(bytes, at + 0x1E, &sum.to_le_bytes()[..2])?;
    }
    Some(())
}
