//! The small images in `tests/images`, made by `make.sh` there.

use std::io::Read;

/// Each image's name and its compressed bytes.
pub(crate) const IMAGES: &[(&str, &[u8])] = &[
    ("fat12", include_bytes!("../images/fat12.img.gz")),
    ("fat16", include_bytes!("../images/fat16.img.gz")),
    ("fat32", include_bytes!("../images/fat32.img.gz")),
];

/// An image's bytes.
pub(crate) fn unpack(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("image");
    bytes
}
