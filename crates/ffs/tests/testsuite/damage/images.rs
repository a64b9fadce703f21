//! The small images in `tests/images`, made by `make.sh` there.

use std::io::Read;

/// Each image's name and its compressed bytes.
pub(crate) const IMAGES: &[(&str, &[u8])] = &[
    ("ufs1-le", include_bytes!("../../images/ufs1-le.img.gz")),
    ("ufs1-be", include_bytes!("../../images/ufs1-be.img.gz")),
    ("ufs2-le", include_bytes!("../../images/ufs2-le.img.gz")),
    ("ufs2-be", include_bytes!("../../images/ufs2-be.img.gz")),
];

/// An image's bytes.
pub(crate) fn unpack(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("image");
    bytes
}
