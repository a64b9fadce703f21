//! The digests of a file's contents, as a list has them (see [`super::digests`]).

use super::digests::{BlockDigest, FileDigest, of_block};
use super::encode::truncated;
use super::number;
use seekless_fs::FsError;
use seekless_fs::source::Content;
use sha2::{Digest, Sha256};

/// Bytes read at once.
const PIECE: u64 = 256 << 10;

/// The digest of `size` bytes of contents. Pieces of them, multiples of `unit` bytes but for the
/// last one, are passed to `each`.
///
/// # Errors
/// Those of the contents.
pub(crate) fn of_contents(
    content: &mut dyn Content,
    size: u64,
    unit: u64,
    mut each: impl FnMut(&[u8]),
) -> Result<FileDigest, FsError> {
    let most = PIECE.max(unit) / unit * unit;
    let mut hash = Sha256::new();
    let mut piece = vec![0; most.min(size) as usize];
    let mut at = 0;
    while at < size {
        let piece = &mut piece[..most.min(size - at) as usize];
        content.read_at(at, piece)?;
        hash.update(&*piece);
        each(piece);
        at += piece.len() as u64;
    }
    Ok(truncated(hash.finalize().into()))
}

/// The digests of a file's contents, as they are in a list behind the inode number.
///
/// # Errors
/// Those of the contents.
pub(crate) fn encode(content: &mut dyn Content, size: u64, unit: u32) -> Result<Vec<u8>, FsError> {
    let mut blocks: Vec<BlockDigest> = Vec::new();
    // Equal blocks are joined at once: a hole may have more blocks than fit in memory.
    let mut sequences = Sequences::default();
    let file = of_contents(content, size, unit.into(), |piece| {
        blocks.clear();
        blocks.extend(piece.chunks_exact(unit as usize).map(of_block));
        blocks.iter().for_each(|&block| sequences.push(block));
    })?;
    Ok([&file[..], &sequences.finish()].concat())
}

/// Sequences of digests, as they are written.
#[derive(Default)]
struct Sequences {
    out: Vec<u8>,
    /// Different digests that are not written yet.
    several: Vec<BlockDigest>,
    /// The last digest, and how many of it are not written yet.
    last: Option<(BlockDigest, u64)>,
}

impl Sequences {
    fn push(&mut self, block: BlockDigest) {
        match &mut self.last {
            Some((last, count)) if *last == block => *count += 1,
            _ => {
                self.end_last();
                self.last = Some((block, 1));
            }
        }
    }

    fn end_last(&mut self) {
        match self.last.take() {
            Some((block, 1)) => self.several.push(block),
            Some((block, count)) => {
                self.end_several();
                number::push(&mut self.out, (count << 1) | 1);
                self.out.extend(block);
            }
            None => {}
        }
    }

    fn end_several(&mut self) {
        if !self.several.is_empty() {
            number::push(&mut self.out, (self.several.len() as u64) << 1);
            self.out.extend(self.several.drain(..).flatten());
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.end_last();
        self.end_several();
        self.out
    }
}
