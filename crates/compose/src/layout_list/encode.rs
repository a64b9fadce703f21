//! The bytes of a list.

use super::ondisk::{HEADER, Header, MAGIC, PIECE, PieceSum, SUM, VERSION};
use super::parts::ListParts;
use sha2::{Digest, Sha256};
use std::io;
use zerocopy::IntoBytes;

/// Level of zstd.
const LEVEL: i32 = 15;

impl ListParts {
    /// The bytes of the list. The same parts give the same bytes.
    ///
    /// # Errors
    /// Those of zstd.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let payload = [&self.runs[..], &self.metadata, &self.digests].concat();
        let packed = zstd::bulk::compress(&payload, LEVEL)?;
        let sums: Vec<PieceSum> = packed.chunks(PIECE).map(piece_sum).collect();
        let head = HEADER + sums.as_bytes().len();
        let mut header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            tool: padded(env!("CARGO_PKG_VERSION")),
            format: padded(&self.format),
            volume_len: self.volume_len.get().into(),
            list_len: ((head + packed.len()) as u64).into(),
            runs_len: (self.runs.len() as u64).into(),
            metadata_len: (self.metadata.len() as u64).into(),
            digests_len: (self.digests.len() as u64).into(),
            unit: self.unit.into(),
            pieces: (sums.len() as u32).into(),
            sum: [0; 16],
        };
        header.sum = head_sum(&header.as_bytes()[..SUM], sums.as_bytes());
        Ok([header.as_bytes(), sums.as_bytes(), &packed].concat())
    }
}

/// The checksum of the header and of the sums of pieces.
pub(crate) fn head_sum(header: &[u8], sums: &[u8]) -> [u8; 16] {
    truncated(Sha256::new().chain_update(header).chain_update(sums).finalize().into())
}

/// The checksum of a piece.
pub(crate) fn piece_sum(piece: &[u8]) -> PieceSum {
    truncated(Sha256::digest(piece).into())
}

/// The first bytes of a digest.
pub(crate) fn truncated<const N: usize>(digest: [u8; 32]) -> [u8; N] {
    let mut first = [0; N];
    first.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    first
}

/// A text, padded with zeros, or cut.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    bytes
}
