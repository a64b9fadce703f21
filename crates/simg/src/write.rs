//! Writing an image.

use crate::ondisk::{CHUNK_HEADER, ChunkHeader, HEADER, Header, MAGIC, MAJOR, chunk};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::ByteLen;
use std::fmt;
use std::io::{self, Write};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian as le;

/// Bytes of a block, as in the images of Android.
const BLOCK: usize = 4096;

/// Blocks that are read at once.
const PIECE: usize = 256;

/// Longest chunk of bytes, in blocks: its size in bytes must fit in 32 bits.
const LONGEST: u32 = 1 << 19;

/// The reason why an image was not written.
#[derive(Debug)]
pub enum WriteError {
    /// The disk has more than 2^32 - 1 blocks.
    TooLong,
    /// The disk cannot be read.
    Device(DeviceError),
    /// The image cannot be written.
    Io(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("an Android sparse image has less than 16 TiB"),
            Self::Device(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<DeviceError> for WriteError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes an image of a disk, padded with zeros to whole blocks. Blocks of one repeated word, such
/// as zeros, are stored as that word. `proceed` is called from time to time, and ends the work with
/// its error.
///
/// # Errors
/// [`WriteError`].
pub fn write(
    disk: &dyn BlockDevice,
    out: &mut dyn Write,
    proceed: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(), WriteError> {
    let len = disk.len().get();
    let block = u64::try_from(BLOCK).unwrap_or(u64::MAX);
    let blocks = u32::try_from(len.div_ceil(block)).map_err(|_| WriteError::TooLong)?;
    let runs = runs(disk, blocks, proceed)?;
    let count = u32::try_from(runs.len()).map_err(|_| WriteError::TooLong)?;
    let small = |number: usize| le::U16::new(u16::try_from(number).unwrap_or(u16::MAX));
    let header = Header {
        magic: le::U32::new(MAGIC),
        major_version: le::U16::new(MAJOR),
        minor_version: le::U16::new(0),
        file_hdr_sz: small(HEADER),
        chunk_hdr_sz: small(CHUNK_HEADER),
        blk_sz: le::U32::new(u32::try_from(BLOCK).unwrap_or(u32::MAX)),
        total_blks: le::U32::new(blocks),
        total_chunks: le::U32::new(count),
        image_checksum: le::U32::new(0),
    };
    out.write_all(header.as_bytes())?;
    let mut at = 0;
    for run in runs {
        let head = u32::try_from(CHUNK_HEADER).unwrap_or(u32::MAX);
        let bytes = u32::try_from(BLOCK).unwrap_or(u32::MAX);
        let (kind, data) = match run.word {
            Some(_) => (chunk::FILL, 4),
            None => (chunk::RAW, run.blocks * bytes),
        };
        let chunk = ChunkHeader {
            chunk_type: le::U16::new(kind),
            reserved1: le::U16::new(0),
            chunk_sz: le::U32::new(run.blocks),
            total_sz: le::U32::new(head + data),
        };
        out.write_all(chunk.as_bytes())?;
        let end = at + u64::from(run.blocks) * block;
        match run.word {
            Some(word) => out.write_all(&word)?,
            None => copy(disk, at, end, out, proceed)?,
        }
        at = end;
    }
    Ok(())
}

/// Copies bytes of the disk, zeros behind its end.
fn copy(
    disk: &dyn BlockDevice,
    mut at: u64,
    end: u64,
    out: &mut dyn Write,
    proceed: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(), WriteError> {
    let mut piece = vec![0; PIECE * BLOCK];
    while at < end {
        proceed()?;
        let len = usize::try_from(end - at).map_or(piece.len(), |len| len.min(piece.len()));
        let part = piece.get_mut(..len).unwrap_or_default();
        read_padded(disk, at, part)?;
        out.write_all(part)?;
        at += u64::try_from(len).unwrap_or(u64::MAX);
    }
    Ok(())
}

/// Blocks that become one chunk.
struct Run {
    blocks: u32,
    word: Option<[u8; 4]>,
}

/// Divides a disk into chunks.
fn runs(
    disk: &dyn BlockDevice,
    blocks: u32,
    proceed: &mut dyn FnMut() -> io::Result<()>,
) -> Result<Vec<Run>, WriteError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut piece = vec![0; PIECE * BLOCK];
    let (mut at, mut left) = (0, usize::try_from(blocks).unwrap_or(usize::MAX));
    while left > 0 {
        proceed()?;
        let len = left.min(PIECE) * BLOCK;
        let part = piece.get_mut(..len).unwrap_or_default();
        read_padded(disk, at, part)?;
        for block in part.chunks(BLOCK) {
            let word = repeated_word(block);
            match runs.last_mut() {
                Some(run) if run.word == word && (word.is_some() || run.blocks < LONGEST) => {
                    run.blocks += 1;
                }
                _ => runs.push(Run { blocks: 1, word }),
            }
        }
        at += u64::try_from(len).unwrap_or(u64::MAX);
        left -= left.min(PIECE);
    }
    Ok(runs)
}

fn read_padded(disk: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
    let present = disk.len().get().saturating_sub(at);
    let len = usize::try_from(present).map_or(buf.len(), |len| len.min(buf.len()));
    let (inside, behind) = buf.split_at_mut(len);
    behind.fill(0);
    disk.read_bytes(ByteLen::new(at), inside)
}

/// The word that all of a block repeats.
fn repeated_word(block: &[u8]) -> Option<[u8; 4]> {
    let first: [u8; 4] = *block.first_chunk()?;
    let (words, rest) = block.as_chunks::<4>();
    (rest.is_empty() && words.iter().all(|word| *word == first)).then_some(first)
}
