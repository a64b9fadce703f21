//! The small images in `tests/images`, made by `make.sh` there.

use std::io::Read;

/// Each image's name and its compressed bytes.
pub(crate) const IMAGES: &[(&str, &[u8])] = &[
    ("ext2", include_bytes!("../../images/ext2.img.gz")),
    ("ext4", include_bytes!("../../images/ext4.img.gz")),
    ("inline", include_bytes!("../../images/inline.img.gz")),
    ("features", include_bytes!("../../images/features.img.gz")),
    ("bigalloc", include_bytes!("../../images/bigalloc.img.gz")),
    ("journal", include_bytes!("../../images/journal.img.gz")),
    ("fastcommit", include_bytes!("../../images/fastcommit.img.gz")),
];

/// An image's bytes.
pub(crate) fn unpack(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("image");
    bytes
}

/// An image by name.
pub(crate) fn named(name: &str) -> Vec<u8> {
    let (_, compressed) = IMAGES.iter().find(|(known, _)| *known == name).expect("image");
    unpack(compressed)
}
