//! Images of tests, whose zeros take no memory: neither in files nor in vectors. Most of a small
//! image is zeros, and a page that is never written costs nothing.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use seekless_device::BlockDevice;
use seekless_units::ByteLen;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are copied at once, unless all are zeros: some pages.
const PIECE: usize = 16 << 10;

/// By the C library: fast also in tests, which are not optimised.
pub(crate) fn is_zero(piece: &[u8]) -> bool {
    piece == &[0; PIECE][..piece.len()]
}

/// Writes an image to a new file, or instead of one; zeros are holes.
pub(crate) fn put(path: impl AsRef<Path>, bytes: &[u8]) {
    let file = File::create(path).expect("image");
    file.set_len(bytes.len() as u64).expect("image");
    for (at, piece) in (0u64..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
        if !is_zero(piece) {
            file.write_all_at(piece, at).expect("image");
        }
    }
}

/// Reads an image; holes are not read.
pub(crate) fn take(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let file = File::open(path).expect("image");
    let len = file.metadata().expect("image").len();
    let mut bytes = vec![0; len as usize];
    let mut at = 0;
    loop {
        let from = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => return bytes,
            Err(wrong) => panic!("{}: {wrong}", path.display()),
        };
        let to = rustix::fs::seek(&file, SeekFrom::Hole(from)).expect("image");
        file.read_exact_at(&mut bytes[from as usize..to as usize], from).expect("image");
        at = to;
    }
}

/// A copy of an image.
pub(crate) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut copy = vec![0; bytes.len()];
    for (to, from) in copy.chunks_mut(PIECE).zip(bytes.chunks(PIECE)) {
        if !is_zero(from) {
            to.copy_from_slice(from);
        }
    }
    copy
}

/// All bytes of a device in memory.
pub(crate) fn of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    let mut piece = vec![0; PIECE];
    for (at, to) in (0u64..).step_by(PIECE).zip(bytes.chunks_mut(PIECE)) {
        let piece = &mut piece[..to.len()];
        device.read_bytes(ByteLen::new(at), piece).expect("memory");
        if !is_zero(piece) {
            to.copy_from_slice(piece);
        }
    }
    bytes
}
