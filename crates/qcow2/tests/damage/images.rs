//! The small images in `tests/images`, made by `make.sh` there.

use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_qcow2::{Disk, Qcow2Error};
use seekless_units::ByteLen;
use std::io::Read;
use std::sync::Arc;

/// Each image's name and its compressed bytes.
pub(crate) const IMAGES: &[(&str, &[u8])] = &[
    ("v2", include_bytes!("../images/v2.qcow2.gz")),
    ("v3", include_bytes!("../images/v3.qcow2.gz")),
    ("extended", include_bytes!("../images/extended.qcow2.gz")),
    ("deflate", include_bytes!("../images/deflate.qcow2.gz")),
    ("zstd", include_bytes!("../images/zstd.qcow2.gz")),
];

/// Maximum number of bytes read of a damaged disk, whose stated size may be arbitrary.
const MOST: u64 = 4 << 20;

/// An image's bytes.
pub(crate) fn unpack(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("image");
    bytes
}

/// Applies the patches of a fuzz input to bytes of an image that are not zero: two bytes of
/// location, one of length, and the bytes to write, repeated.
pub(crate) fn patched(mut bytes: Vec<u8>, mut rest: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]])) % places.len();
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        for (n, &byte) in after[..len].iter().enumerate() {
            // From the location on, so that zeros behind it change, too.
            if let Some(at) = bytes.get_mut(places[place] + n) {
                *at = byte;
            }
        }
        rest = &after[len..];
    }
    bytes
}

/// The result of reading an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It was refused on opening.
    Refused,
    /// Some of it could not be read.
    Damaged,
    /// All of it was read.
    Read,
}

/// Reads as much of an image as possible: whatever it contains, all errors are those of damage.
pub(crate) fn exercise(bytes: Vec<u8>) -> Outcome {
    let disk = match Disk::alone(Arc::new(MemoryDevice::new(bytes))) {
        Ok(disk) => disk,
        Err(
            Qcow2Error::Unsupported(_)
            | Qcow2Error::Device(DeviceError::Damaged { .. } | DeviceError::OutOfRange { .. }),
        ) => return Outcome::Refused,
        Err(other) => panic!("{other}"),
    };
    let len = disk.len().get();
    let mut outcome = Outcome::Read;
    let mut read = |at: u64, buf: &mut [u8]| match disk.read_bytes(ByteLen::new(at), buf) {
        Ok(()) => {}
        Err(DeviceError::Damaged { .. }) => outcome = Outcome::Damaged,
        Err(other) => panic!("at {at}: {other}"),
    };
    for at in (0..len.min(MOST)).step_by(64 << 10) {
        let mut buf = vec![0; (len - at).min(64 << 10) as usize];
        read(at, &mut buf);
    }
    // The end, and an offset within a sector.
    let mut last = vec![0; len.min(1000) as usize];
    read(len - last.len() as u64, &mut last);
    assert!(disk.read_bytes(ByteLen::new(len), &mut [0]).is_err(), "behind the end");
    outcome
}
