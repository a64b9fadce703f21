//! The first page of swap space.

use seekless_partition::Guid;
use seekless_units::ByteLen;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// The least bytes of swap space: ten pages, as mkswap(8) has it.
pub(super) const LEAST: u64 = 10 * PAGE;

/// The page with the header (`union swap_header` of the kernel's `include/linux/swap.h`) of `len`
/// bytes; the label is cut after 16 bytes.
pub(super) fn header(len: ByteLen, id: Guid, label: &str) -> Vec<u8> {
    assert!(len.get() >= LEAST, "{len} bytes of swap space");
    let mut page = vec![0; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let last = u32::try_from(len.get() / PAGE - 1).unwrap_or(u32::MAX);
    put(1024, &1u32.to_le_bytes());
    put(1028, &last.to_le_bytes());
    // In the order of a text, unlike in a partition table.
    let text: String = id.to_string().split('-').collect();
    let number = u128::from_str_radix(&text, 16).expect("a GUID has hexadecimal digits");
    put(1036, &number.to_be_bytes());
    let label = label.as_bytes();
    put(1052, &label[..label.len().min(16)]);
    put(4086, b"SWAPSPACE2");
    page
}
