//! The small images in `tests/images`, made by `make.sh` there.

use std::io::Read;

/// Each image's name and its compressed bytes.
pub(crate) const IMAGES: &[(&str, &[u8])] = &[
    ("fat12", include_bytes!("../../images/fat12.img.gz")),
    ("fat16", include_bytes!("../../images/fat16.img.gz")),
    ("fat32", include_bytes!("../../images/fat32.img.gz")),
];

/// An image's bytes.
pub(crate) fn unpack(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("image");
    bytes
}

/// An image with the patches of a fuzz input to what is not zero behind byte `from`: two
/// bytes of place, one of length, and the bytes to put there, repeated.
pub(crate) fn patched(mut bytes: Vec<u8>, from: usize, mut rest: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (from..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]])) % places.len();
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        for (n, &byte) in after[..len].iter().enumerate() {
            if let Some(at) = places.get(place + n) {
                bytes[*at] = byte;
            }
        }
        rest = &after[len..];
    }
    bytes
}
