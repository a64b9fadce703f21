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
    fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut state = Sha256::new();
        parts.into_iter().for_each(|part| state.update(part));
        let sum: [u8; 32] = state.finalize().into();
        let half = sum.first_chunk().expect("16 of 32 bytes");
        Self(u128::from_be_bytes(*half))
    }
}

/// The digests of an image: of its blocks of [`BLOCK`] bytes, and of its content-defined chunks.
/// Zeros have none: they are stored nowhere.
#[derive(Debug)]
pub(super) struct Digests {
    blocks: Vec<Option<Digest>>,
    /// Each with its length in bytes.
    cut: Vec<(Option<Digest>, u64)>,
}

impl Digests {
    /// Reads a device, all of it.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Self, DeviceError> {
        let (blocks, cut) = rayon::join(|| blocks(device), || cut(device));
        Ok(Self { blocks: blocks?, cut: cut? })
    }

    /// Digests of chunks of `size` bytes, a multiple of [`BLOCK`], in order.
    pub(super) fn aligned(&self, size: ByteLen) -> impl Iterator<Item = Option<Digest>> {
        debug_assert!(size.get() > 0 && size.get().is_multiple_of(BLOCK.get()));
        let blocks = usize::try_from(size.get() / BLOCK.get()).unwrap_or(usize::MAX);
        self.blocks.chunks(blocks).map(move |chunk| match chunk {
            [one] if blocks == 1 => *one,
            _ if chunk.iter().all(Option::is_none) => None,
            _ => {
                let words: Vec<[u8; 16]> =
                    chunk.iter().map(|it| it.map_or(0, |it| it.0).to_be_bytes()).collect();
                Some(Digest::of(words.iter().map(<[u8; 16]>::as_slice)))
            }
        })
    }

    /// The content-defined chunks, in order: digest, and length in bytes.
    pub(super) fn cut(&self) -> &[(Option<Digest>, u64)] {
        &self.cut
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The pieces of a device: start and length.
fn pieces(device: &dyn BlockDevice) -> impl Iterator<Item = (u64, usize)> {
    let len = device.len().get();
    (0..len.div_ceil(PIECE)).map(move |number| {
        let start = number * PIECE;
        (start, (len - start).min(PIECE) as usize)
    })
}

fn blocks(device: &dyn BlockDevice) -> Result<Vec<Option<Digest>>, DeviceError> {
    let all: Vec<(u64, usize)> = pieces(device).collect();
    let of_piece = |(start, len)| {
        let mut bytes = vec![0; len];
        device.read_bytes(ByteLen::new(start), &mut bytes)?;
        let digest = |block: &[u8]| (!is_zero(block)).then(|| Digest::of([block]));
        Ok(bytes.chunks(BLOCK.get() as usize).map(digest).collect())
    };
    let found: Result<Vec<Vec<_>>, DeviceError> = all.into_par_iter().map(of_piece).collect();
    Ok(found?.concat())
}

fn cut(device: &dyn BlockDevice) -> Result<Vec<(Option<Digest>, u64)>, DeviceError> {
    let mut cutter = Cutter::new(CutSizes::CASYNC);
    let (mut found, mut chunk, mut piece) = (Vec::new(), Vec::new(), Vec::new());
    let digest = |chunk: &[u8]| (!is_zero(chunk)).then(|| Digest::of([chunk]));
    for (start, len) in pieces(device) {
        piece.resize(len, 0);
        device.read_bytes(ByteLen::new(start), &mut piece)?;
        let mut rest = piece.as_slice();
        while let Some(end) = cutter.end_in(rest) {
            let (ends, behind) = rest.split_at(end);
            chunk.extend_from_slice(ends);
            found.push((digest(&chunk), chunk.len() as u64));
            chunk.clear();
            rest = behind;
        }
        chunk.extend_from_slice(rest);
    }
    if !chunk.is_empty() {
        found.push((digest(&chunk), chunk.len() as u64));
    }
    Ok(found)
}
