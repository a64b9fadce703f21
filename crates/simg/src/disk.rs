//! The disk in an image.

use crate::ondisk::{self, CHUNK_HEADER, ChunkHeader, HEADER, Header, chunk};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba};
use std::fmt;
use std::sync::Arc;
use zerocopy::FromBytes;

/// The disk in an image, read-only.
pub struct Disk {
    file: Arc<dyn BlockDevice>,
    len: u64,
    /// The chunks with blocks, in order, without gaps.
    chunks: Vec<Chunk>,
}

/// A run of blocks.
struct Chunk {
    /// First byte on the disk.
    start: u64,
    contents: Contents,
}

#[derive(Clone, Copy)]
enum Contents {
    /// Bytes of the file from there on.
    At(u64),
    /// A repeated word.
    Word([u8; 4]),
}

/// The reason why an image cannot be opened.
#[derive(Debug)]
pub enum SimgError {
    /// It needs something that is not supported.
    Unsupported(String),
    /// It is damaged, or cannot be read.
    Device(DeviceError),
}

impl fmt::Display for SimgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(why) => f.write_str(why),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SimgError {}

impl From<DeviceError> for SimgError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// The disk in a sparse image, or another device as it is.
///
/// # Errors
/// As [`Disk::open`].
pub fn disk_in(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, SimgError> {
    if crate::is_image(device.as_ref()) { Ok(Arc::new(Disk::open(device)?)) } else { Ok(device) }
}

fn damaged(offset: u64, what: impl Into<String>) -> DeviceError {
    DeviceError::Damaged { container: "Android sparse image", offset, what: what.into() }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl Disk {
    /// Opens the disk in an image: reads the headers of all chunks.
    ///
    /// # Errors
    /// [`SimgError::Unsupported`] for another version; [`SimgError::Device`] for damage, with its
    /// offset, and when the file cannot be read.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self, SimgError> {
        let all = file.len().get();
        let mut head = [0; HEADER];
        if all < wide(HEADER) {
            return Err(damaged(0, "the header is cut off").into());
        }
        file.read_bytes(ByteLen::ZERO, &mut head)?;
        let header = Header::read_from_bytes(&head).map_err(|_| damaged(0, "no header"))?;
        let major = header.major_version.get();
        if header.magic.get() != ondisk::MAGIC {
            return Err(damaged(0, "the magic number is missing").into());
        }
        if major != ondisk::MAJOR {
            let why = format!("version {major} of Android's sparse images");
            return Err(SimgError::Unsupported(why));
        }
        let block = u64::from(header.blk_sz.get());
        if block == 0 || !block.is_multiple_of(4) {
            return Err(damaged(12, format!("blocks of {block} bytes")).into());
        }
        let head_len = u64::from(header.chunk_hdr_sz.get());
        let mut at = u64::from(header.file_hdr_sz.get());
        if head_len < wide(CHUNK_HEADER) || at < wide(HEADER) {
            return Err(damaged(8, "the headers are too short").into());
        }
        let blocks = u64::from(header.total_blks.get());
        let (mut chunks, mut first) = (Vec::new(), 0);
        for _ in 0..header.total_chunks.get() {
            let found = next_chunk(file.as_ref(), at, head_len, block)?;
            let end = first + found.blocks;
            if end > blocks {
                return Err(damaged(at, "a chunk reaches past the end of the disk").into());
            }
            if let Some(contents) = found.contents.filter(|_| found.blocks > 0) {
                chunks.push(Chunk { start: first * block, contents });
            }
            first = end;
            at += found.stored;
        }
        if first < blocks {
            return Err(damaged(at, format!("the chunks have {first} of {blocks} blocks")).into());
        }
        Ok(Self { file, len: blocks * block, chunks })
    }
}

/// A chunk in the file.
struct FoundChunk {
    /// Blocks of the disk.
    blocks: u64,
    /// Bytes in the file.
    stored: u64,
    contents: Option<Contents>,
}

fn next_chunk(
    file: &dyn BlockDevice,
    at: u64,
    head_len: u64,
    block: u64,
) -> Result<FoundChunk, SimgError> {
    let all = file.len().get();
    let mut head = [0; CHUNK_HEADER];
    if at.checked_add(head_len).is_none_or(|end| end > all) {
        return Err(damaged(at, "the header of a chunk is cut off").into());
    }
    file.read_bytes(ByteLen::new(at), &mut head)?;
    let header = ChunkHeader::read_from_bytes(&head).map_err(|_| damaged(at, "no header"))?;
    let blocks = u64::from(header.chunk_sz.get());
    let stored = u64::from(header.total_sz.get());
    let data = at + head_len;
    let kind = header.chunk_type.get();
    let needed = match kind {
        chunk::RAW => blocks * block,
        chunk::FILL | chunk::CRC32 => 4,
        chunk::DONT_CARE => 0,
        kind => {
            return Err(SimgError::Unsupported(format!("byte {at}: a chunk of type {kind:#x}")));
        }
    };
    if stored != head_len + needed {
        let what = format!("a chunk of {stored} bytes that needs {}", head_len + needed);
        return Err(damaged(at, what).into());
    }
    if data + needed > all {
        return Err(damaged(at, "a chunk is cut off").into());
    }
    let contents = match kind {
        chunk::RAW => Some(Contents::At(data)),
        chunk::FILL => {
            let mut word = [0; 4];
            file.read_bytes(ByteLen::new(data), &mut word)?;
            Some(Contents::Word(word))
        }
        chunk::DONT_CARE => Some(Contents::Word([0; 4])),
        _ => None,
    };
    let blocks = if kind == chunk::CRC32 { 0 } else { blocks };
    Ok(FoundChunk { blocks, stored, contents })
}

impl BlockDevice for Disk {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.len)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read_bytes(at.to_bytes(), buf)
    }

    fn read_bytes(&self, at: ByteLen, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (len, device_len) = (wide(buf.len()), self.len());
        if at.get().checked_add(len).is_none_or(|end| end > self.len) {
            return Err(DeviceError::OutOfRange { at: Lba::containing(at), len, device_len });
        }
        let (mut at, mut rest) = (at.get(), buf);
        while !rest.is_empty() {
            let behind = self.chunks.partition_point(|chunk| chunk.start <= at);
            let end = self.chunks.get(behind).map_or(self.len, |next| next.start);
            let found = behind.checked_sub(1).and_then(|number| self.chunks.get(number));
            let Some(Chunk { start, contents }) = found else {
                return Err(damaged(0, "no chunk has the first block"));
            };
            let len = usize::try_from(end - at).map_or(rest.len(), |len| len.min(rest.len()));
            let (part, others) = rest.split_at_mut(len);
            match contents {
                Contents::At(place) => {
                    self.file.read_bytes(ByteLen::new(place + (at - start)), part)?;
                }
                Contents::Word(word) => {
                    // Chunks begin at a whole number of words.
                    let word = word.iter().cycle().skip(usize::try_from(at % 4).unwrap_or(0));
                    part.iter_mut().zip(word).for_each(|(byte, value)| *byte = *value);
                }
            }
            at += wide(len);
            rest = others;
        }
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
