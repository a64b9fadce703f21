//! Files with damaged footers, as the fuzz target runs them too.

use seekless_device::MemoryDevice;
use seekless_units::{ByteLen, Lba};
use seekless_vhd::{disk_in, footer, is_image};
use std::ops::Range;
use std::sync::Arc;

/// Fields of a footer, by the specification: cookie, current size, type and checksum.
const COOKIE: Range<usize> = 0..8;
const SIZE: Range<usize> = 48..56;
const KIND: Range<usize> = 60..64;
const CHECKSUM: Range<usize> = 64..68;

/// The ones' complement of the sum of all bytes but those of the checksum.
fn sum(footer: &[u8]) -> [u8; 4] {
    let others = footer.iter().enumerate().filter(|(at, _)| !CHECKSUM.contains(at));
    let sum: u32 = others.map(|(_, &byte)| u32::from(byte)).sum();
    (!sum).to_be_bytes()
}

/// Reads a disk that is followed by a damaged footer. The first byte of the input is the number of
/// sectors of the disk. If the lowest bit of the second is set, the checksum is made right. Patches of
/// three bytes follow: two of the distance from the end of the file, and the new byte.
pub(crate) fn run(data: &[u8]) {
    let Some((&[sectors, how], patches)) = data.split_first_chunk() else { return };
    let raw = vec![0x5A; usize::from(sectors) * 512];
    let len = ByteLen::new(raw.len() as u64);
    let mut file = [raw, footer(len, [7; 16]).expect("a short disk").to_vec()].concat();
    for patch in patches.chunks_exact(3) {
        let from_end = usize::from(u16::from_le_bytes([patch[0], patch[1]])) % file.len();
        let at = file.len() - 1 - from_end;
        file[at] = patch[2];
    }
    let begin = file.len() - 512;
    let footer = &mut file[begin..];
    if how & 1 != 0 {
        let sum = sum(footer);
        footer[CHECKSUM].copy_from_slice(&sum);
    }
    let is_sound = footer[COOKIE] == *b"conectix"
        && footer[CHECKSUM] == sum(footer)
        && footer[KIND] == 2u32.to_be_bytes()
        && footer[SIZE] == (begin as u64).to_be_bytes();
    let device = Arc::new(MemoryDevice::new(file.clone()));
    assert_eq!(is_image(device.as_ref()), is_sound);
    let disk = disk_in(device).expect("memory");
    // A file without a sound footer is a raw disk.
    let wanted = if is_sound { &file[..begin] } else { &file[..] };
    let mut all = vec![0; wanted.len()];
    assert_eq!(disk.len().get(), wanted.len() as u64);
    disk.read(Lba::ZERO, &mut all).expect("memory");
    assert!(all == wanted);
}
