//! A bound of the memory that an xz file makes its decoder use.
//!
//! The decoder allocates the dictionary that a block's header requests, up to 4 GiB, and room for
//! the number of records stated in the index. [`XzBound`] parses the structure of the file while it
//! passes it on, and fails before the decoder sees such a number. It needs only the lengths of
//! LZMA2's chunks from the contents. Source: the description of the .xz file format, 1.2.1, and of
//! LZMA2 in liblzma.

use std::fmt;
use std::io::{self, Read};

/// Maximum size of a dictionary in bytes: `xz -9` uses 64 MiB, and its encoder 1.5 GiB at most.
pub(super) const DICTIONARY_MAX: u64 = 1 << 30;

/// A dictionary that is too large, with its size in bytes.
#[derive(Debug)]
pub(super) struct DictionaryTooLarge(pub(super) u64);

impl fmt::Display for DictionaryTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the dictionary has {} bytes", self.0)
    }
}

impl std::error::Error for DictionaryTooLarge {}

/// Size of a stream's header and of its footer in bytes.
const STREAM_HEADER: usize = 12;
const MAGIC: &[u8] = b"\xfd7zXZ\0";
const LZMA2: u64 = 0x21;

/// The part of the file that contains the next byte.
#[derive(Debug)]
enum Part {
    StreamHeader,
    /// The first byte of a block's header, or of the index.
    Block,
    BlockHeader {
        len: usize,
    },
    Chunk,
    ChunkHeader {
        len: usize,
    },
    /// Bytes that are skipped, and the part behind them.
    Skip {
        left: u64,
        then: Then,
    },
    Count,
    Records {
        left: u64,
    },
    Between,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Chunk,
    Block,
    Between,
}

/// Passes an xz file on as long as its decoder needs little memory.
pub(super) struct XzBound<R> {
    inner: R,
    part: Part,
    /// The bytes of a header or number read so far.
    seen: Vec<u8>,
    /// Size of the check behind a block in bytes.
    check: u64,
    /// Compressed bytes of this block.
    packed: u64,
    /// Blocks of this stream.
    blocks: u64,
    /// Bytes of the index.
    index: u64,
}

impl<R: Read> XzBound<R> {
    pub(super) fn new(inner: R) -> Self {
        let (part, seen) = (Part::StreamHeader, Vec::new());
        Self { inner, part, seen, check: 0, packed: 0, blocks: 0, index: 0 }
    }

    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let Part::Skip { left, then } = &mut self.part {
                let len = (*left).min(bytes.len() as u64);
                *left -= len;
                if *left == 0 {
                    self.part = match then {
                        Then::Chunk => Part::Chunk,
                        Then::Block => Part::Block,
                        Then::Between => Part::Between,
                    };
                }
                bytes = &bytes[len as usize..];
                continue;
            }
            self.byte(byte)?;
            bytes = rest;
        }
        Ok(())
    }

    fn skip(&mut self, left: u64, then: Then) {
        // With nothing to skip, the next part begins at once.
        self.part = match then {
            Then::Chunk if left == 0 => Part::Chunk,
            Then::Block if left == 0 => Part::Block,
            Then::Between if left == 0 => Part::Between,
            then => Part::Skip { left, then },
        };
    }

    fn byte(&mut self, byte: u8) -> io::Result<()> {
        match self.part {
            Part::StreamHeader => {
                self.seen.push(byte);
                if self.seen.len() == STREAM_HEADER {
                    if !self.seen.starts_with(MAGIC) {
                        return Err(bad("not the header of a stream"));
                    }
                    let sizes = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];
                    self.check = sizes[usize::from(self.seen[7] & 15)];
                    self.blocks = 0;
                    self.part = Part::Block;
                }
            }
            Part::Block if byte == 0 => {
                self.seen.clear();
                self.index = 1;
                self.part = Part::Count;
            }
            Part::Block => {
                self.seen.clear();
                self.blocks += 1;
                self.packed = 0;
                self.part = Part::BlockHeader { len: usize::from(byte) * 4 + 3 };
            }
            Part::BlockHeader { len } => {
                self.seen.push(byte);
                if self.seen.len() == len {
                    check_filters(&self.seen)?;
                    self.part = Part::Chunk;
                }
            }
            Part::Chunk => {
                self.packed += 1;
                self.seen.clear();
                self.seen.push(byte);
                match byte {
                    0 => {
                        let padding = self.packed.next_multiple_of(4) - self.packed;
                        self.skip(padding + self.check, Then::Block);
                    }
                    1 | 2 => self.part = Part::ChunkHeader { len: 3 },
                    0x80..=0xbf => self.part = Part::ChunkHeader { len: 5 },
                    0xc0.. => self.part = Part::ChunkHeader { len: 6 },
                    _ => return Err(bad("not a chunk of LZMA2")),
                }
            }
            Part::ChunkHeader { len } => {
                self.packed += 1;
                self.seen.push(byte);
                if self.seen.len() == len {
                    let at = if len == 3 { 1 } else { 3 };
                    let len = u16::from_be_bytes([self.seen[at], self.seen[at + 1]]);
                    let len = u64::from(len) + 1;
                    self.packed += len;
                    self.skip(len, Then::Chunk);
                }
            }
            Part::Count => {
                if let Some(count) = self.number(byte)? {
                    if count != self.blocks {
                        return Err(bad("the index has records of other blocks"));
                    }
                    self.records(count * 2);
                }
            }
            Part::Records { left } => {
                if self.number(byte)?.is_some() {
                    self.records(left - 1);
                }
            }
            Part::Between if byte == 0 => {}
            Part::Between => {
                self.seen.clear();
                self.seen.push(byte);
                self.part = Part::StreamHeader;
            }
            // Skipped by the caller.
            Part::Skip { .. } => {}
        }
        Ok(())
    }

    /// Continues with the remaining numbers of the index, or, after the last, with its padding, its
    /// checksum, and the footer.
    fn records(&mut self, left: u64) {
        if left > 0 {
            self.part = Part::Records { left };
            return;
        }
        let padding = self.index.next_multiple_of(4) - self.index;
        self.skip(padding + 4 + STREAM_HEADER as u64, Then::Between);
    }

    /// Adds a byte to a number of the index. Returns the number after its last byte.
    fn number(&mut self, byte: u8) -> io::Result<Option<u64>> {
        self.index += 1;
        self.seen.push(byte);
        if byte & 0x80 != 0 && self.seen.len() < 9 {
            return Ok(None);
        }
        let (number, _) = multibyte(&self.seen).ok_or_else(|| bad("invalid index"))?;
        self.seen.clear();
        Ok(Some(number))
    }
}

impl<R: Read> Read for XzBound<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.follow(&buf[..got])?;
        Ok(got)
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Decodes a number of up to 63 bits, seven per byte. Returns it with the remaining bytes.
fn multibyte(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (nth, &byte) in bytes.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[nth + 1..]));
        }
    }
    None
}

/// Checks the filters of a block: the last is LZMA2, with a dictionary that is not too large.
fn check_filters(header: &[u8]) -> io::Result<()> {
    let malformed = || bad("invalid header of a block");
    let (&flags, mut rest) = header.split_first().ok_or_else(malformed)?;
    for flag in [0x40, 0x80] {
        if flags & flag != 0 {
            (_, rest) = multibyte(rest).ok_or_else(malformed)?;
        }
    }
    let count = (flags & 3) + 1;
    for nth in 1..=count {
        let (id, behind) = multibyte(rest).ok_or_else(malformed)?;
        let (len, behind) = multibyte(behind).ok_or_else(malformed)?;
        let len = usize::try_from(len).map_err(|_| malformed())?;
        let (properties, behind) = behind.split_at_checked(len).ok_or_else(malformed)?;
        rest = behind;
        if (id == LZMA2) != (nth == count) {
            return Err(bad("unsupported filters: only the last may be LZMA2, and must"));
        }
        if id != LZMA2 {
            continue;
        }
        let size = match properties {
            &[bits @ 0..40] => (2 | u64::from(bits & 1)) << (bits / 2 + 11),
            [40] => u64::from(u32::MAX),
            _ => return Err(malformed()),
        };
        if size > DICTIONARY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, DictionaryTooLarge(size)));
        }
    }
    Ok(())
}
