//! Files with damaged footers, as the fuzz target runs them too.

use seekless_device::MemoryDevice;
use seekless_units::{ByteLen, Lba};
use seekless_vhd::{disk_in, footer, is_image};
use std::sync::Arc;

/// Where a footer has its checksum.
const CHECKSUM: std::ops::Range<usize> = 64..68;

/// Reads a disk behind which a damaged footer stands. The first byte is the number of its sectors,
/// of the second a bit lets the checksum be right. Pairs of a place and a byte follow, places from
/// the end.
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
    if how & 1 != 0 {
        let begin = file.len() - 512;
        let footer = &mut file[begin..];
        footer[CHECKSUM].fill(0);
        let sum: u32 = footer.iter().map(|&byte| u32::from(byte)).sum();
        footer[CHECKSUM].copy_from_slice(&(!sum).to_be_bytes());
    }
    let device = Arc::new(MemoryDevice::new(file.clone()));
    let is_known = is_image(device.as_ref());
    let disk = disk_in(device).expect("memory");
    // What has no whole footer is a disk as it is.
    let wanted = if is_known { &file[..file.len() - 512] } else { &file[..] };
    let mut all = vec![0; wanted.len()];
    assert_eq!(disk.len().get(), wanted.len() as u64);
    disk.read(Lba::ZERO, &mut all).expect("memory");
    assert!(all == wanted);
}
