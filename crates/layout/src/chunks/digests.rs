//! Digests of the blocks of an image, from which those of its chunks follow.

use super::cut::{CutSizes, Cutter};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::ByteLen;
use sha2::{Digest as _, Sha256};

/// Bytes of a block of which the digest is taken.
pub const BLOCK: ByteLen = ByteLen::new(4096);

/// Bytes that are read at once.
const PIECE: u64 = 4 << 20;

/// Digest of equal bytes: half of their SHA-256, which suffices to tell 2^50 chunks apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digest(u128);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        Self::end(Sha256::new_with_prefix(bytes))
    }

    fn end(state: Sha256) -> Self {
        let sum: [u8; 32] = state.finalize().into();
        let half = sum.first_chunk().expect("16 of 32 bytes");
        Self(u128::from_be_bytes(*half))
    }
}

/// A chunk that is not all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    /// Its first byte.
    pub(super) start: u64,
    /// Its length in bytes.
    pub(super) len: u64,
    pub(super) digest: Digest,
}

impl Chunk {
    /// The byte behind it.
    pub(super) const fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// The digests of an image: of its blocks of [`BLOCK`] bytes, and of its content-defined chunks.
/// Zeros have none: they are stored nowhere.
#[derive(Debug)]
pub(super) struct Digests {
    blocks: Vec<Chunk>,
    cut: Vec<Chunk>,
    /// Length of the image.
    len: u64,
}

impl Digests {
    /// Reads a device, all of it.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Self, DeviceError> {
        let (blocks, cut) = rayon::join(|| blocks(device), || cut(device));
        Ok(Self { blocks: blocks?, cut: cut?, len: device.len().get() })
    }

    /// Length of the image, in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The blocks, in order.
    pub(super) fn blocks(&self) -> &[Chunk] {
        &self.blocks
    }

    /// The content-defined chunks, in order.
    pub(super) fn cut(&self) -> &[Chunk] {
        &self.cut
    }

    /// The chunks of `size` bytes, a multiple of [`BLOCK`], in order.
    pub(super) fn aligned(&self, size: ByteLen) -> impl Iterator<Item = Chunk> {
        debug_assert!(size.get() > 0 && size.get().is_multiple_of(BLOCK.get()));
        let size = size.get();
        let is_same = move |a: &Chunk, b: &Chunk| a.start / size == b.start / size;
        self.blocks.chunk_by(is_same).filter_map(move |blocks| {
            let first = blocks.first()?;
            let start = first.start - first.start % size;
            let len = size.min(self.len - start);
            // Of a block alone the digest is that of its bytes.
            let digest =
                if size == BLOCK.get() { first.digest } else { joined(blocks, start, len) };
            Some(Chunk { start, len, digest })
        })
    }
}

/// The digest of a chunk of this start and length, by its blocks that are not zeros.
fn joined(blocks: &[Chunk], start: u64, len: u64) -> Digest {
    let mut state = Sha256::new();
    // A short chunk at the end differs from a longer one with zeros behind.
    state.update(len.to_be_bytes());
    for block in blocks {
        state.update((block.start - start).to_be_bytes());
        state.update(block.digest.0.to_be_bytes());
    }
    Digest::end(state)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The chunk with these bytes, unless they are zeros.
fn chunk(start: u64, bytes: &[u8]) -> Option<Chunk> {
    let len = bytes.len() as u64;
    (!is_zero(bytes)).then(|| Chunk { start, len, digest: Digest::of(bytes) })
}

/// Reads the piece of a device with this number.
fn read_piece(device: &dyn BlockDevice, number: u64, to: &mut Vec<u8>) -> Result<u64, DeviceError> {
    let start = number * PIECE;
    to.resize((device.len().get() - start).min(PIECE) as usize, 0);
    device.read_bytes(ByteLen::new(start), to)?;
    Ok(start)
}

fn blocks(device: &dyn BlockDevice) -> Result<Vec<Chunk>, DeviceError> {
    let of_piece = |number| {
        let mut bytes = Vec::new();
        let start = read_piece(device, number, &mut bytes)?;
        let starts = (start..).step_by(BLOCK.get() as usize);
        let blocks = starts.zip(bytes.chunks(BLOCK.get() as usize));
        Ok(blocks.filter_map(|(start, block)| chunk(start, block)).collect::<Vec<_>>())
    };
    let pieces = device.len().get().div_ceil(PIECE);
    let found: Result<Vec<Vec<Chunk>>, DeviceError> =
        (0..pieces).into_par_iter().map(of_piece).collect();
    Ok(found?.into_iter().flatten().collect())
}

fn cut(device: &dyn BlockDevice) -> Result<Vec<Chunk>, DeviceError> {
    let mut cutter = Cutter::new(CutSizes::CASYNC);
    let (mut found, mut open, mut piece) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    for number in 0..device.len().get().div_ceil(PIECE) {
        read_piece(device, number, &mut piece)?;
        let mut rest = piece.as_slice();
        while let Some(end) = cutter.end_in(rest) {
            let (ends, behind) = rest.split_at(end);
            open.extend_from_slice(ends);
            found.extend(chunk(start, &open));
            start += open.len() as u64;
            open.clear();
            rest = behind;
        }
        open.extend_from_slice(rest);
    }
    found.extend(chunk(start, &open));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    fn digests(bytes: Vec<u8>) -> Digests {
        Digests::read(&MemoryDevice::new(bytes)).expect("memory")
    }

    #[test]
    fn a_short_chunk_is_not_the_longer_one_with_zeros() {
        let (size, short) = (ByteLen::new(8192), 4096 + 1024);
        let mut long = vec![7; 4096];
        long.resize(8192, 0);
        let of = |len: usize| digests(long[..len].to_vec()).aligned(size).collect::<Vec<_>>();
        let (whole, end) = (of(8192), of(short));
        assert_eq!((whole.len(), end.len()), (1, 1));
        assert_eq!((end[0].start, end[0].len), (0, short as u64));
        assert_ne!(whole[0].digest, end[0].digest);
    }

    #[test]
    fn zeros_are_no_chunks() {
        let mut bytes = vec![0; 3 << 20];
        assert!(digests(bytes.clone()).cut().is_empty());
        bytes[(1 << 20) + 5] = 1;
        let some = digests(bytes);
        let starts = |size| some.aligned(ByteLen::new(size)).map(|it| it.start).collect::<Vec<_>>();
        assert_eq!(starts(4096), [1 << 20]);
        assert_eq!(starts(12288), [1_044_480]);
        assert_eq!(some.cut().len(), 1);
        assert_eq!(digests(Vec::new()).aligned(BLOCK).count(), 0);
    }
}
