//! Making an archive readable at any offset: decompressed, in a file.

use super::xz::{DICTIONARY_MAX, DictionaryTooLarge, XzBound};
use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use seekless_fs::term::{Term, Text};
use seekless_fs::{ArchiveFault, FsError};
use seekless_units::{ByteLen, format_size};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

/// The compression of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
    /// xz, of one stream or several.
    Xz,
    /// bzip2, of one stream or several.
    Bzip2,
    /// Recognized but not supported: its name, and the command that decompresses it.
    Unsupported(&'static str, &'static str),
}

/// Number of bytes needed by [`Compression::detect`].
const START: usize = 9;

impl Compression {
    /// The first bytes of a stream.
    fn magic(self) -> &'static [u8] {
        match self {
            Self::Gzip => b"\x1f\x8b",
            Self::Zstd => b"\x28\xb5\x2f\xfd",
            Self::Xz => b"\xfd7zXZ\0",
            Self::Bzip2 => b"BZh",
            Self::None | Self::Unsupported(..) => b"",
        }
    }

    /// Detects the compression by the first bytes of a file.
    #[must_use]
    pub fn detect(start: &[u8]) -> Self {
        let magics: [(&[u8], Self); 11] = [
            (Self::Gzip.magic(), Self::Gzip),
            (Self::Zstd.magic(), Self::Zstd),
            (Self::Xz.magic(), Self::Xz),
            (Self::Bzip2.magic(), Self::Bzip2),
            (b"\x1f\x9d", Self::Unsupported("compress (.Z)", "uncompress -c")),
            (b"\x1f\xa0", Self::Unsupported("LZH", "gzip -dc")),
            (b"\x04\x22\x4d\x18", Self::Unsupported("lz4", "lz4 -dc")),
            (b"\x02\x21\x4c\x18", Self::Unsupported("lz4", "lz4 -dc")),
            (b"LZIP", Self::Unsupported("lzip", "lzip -dc")),
            (b"\x89LZO\0\r\n\x1a\n", Self::Unsupported("lzop", "lzop -dc")),
            (b"LRZI", Self::Unsupported("lrzip", "lrzip -dq -o -")),
        ];
        let found = magics.iter().find(|(magic, _)| start.starts_with(magic));
        match (found, start) {
            (Some(&(_, compression)), _) => compression,
            // A skippable frame, with which pzstd's output begins.
            (None, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]) => Self::Zstd,
            // The default properties, and a dictionary of a power of two from 64 KiB on; a tar
            // member of that name has only zeros behind it.
            (None, [0x5d, 0, 0, low, high, ..]) if (*low, *high) != (0, 0) => {
                Self::Unsupported("lzma", "xz --format=lzma -dc")
            }
            _ => Self::None,
        }
    }
}

/// An archive ready to be indexed: a run of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Spooled {
    pub(crate) file: Arc<File>,
    /// Offset in the file.
    pub(crate) base: u64,
    pub(crate) len: u64,
}

const COPY_BUF: usize = 256 << 10;

/// Buffers that wait to be written.
const COPY_BUFS: usize = 4;

/// Returns the file itself if it is not compressed and supports seeking, else a decompressed copy
/// in a file without a name in `temp_dir`.
pub(crate) fn spool(mut file: File, name: &str, temp_dir: &Path) -> Result<Spooled, FsError> {
    let io = |error| FsError::io(name, error);
    // Finds the length of a block device too, and fails on a pipe.
    let seekable = file.seek(SeekFrom::End(0)).and_then(|len| file.rewind().map(|()| len)).ok();
    let mut start = [0; START];
    let got = read_full(&mut file, &mut start).map_err(io)?;
    let compression = Compression::detect(&start[..got]);
    if let (Compression::None, Some(len)) = (compression, seekable) {
        return Ok(Spooled { file: Arc::new(file), base: 0, len });
    }
    let whole = io::Cursor::new(start[..got].to_vec()).chain(file);
    decompress(whole, compression, name, temp_dir)
}

/// As [`spool`] for a range of a file, which is read in place if it is not compressed.
pub(crate) fn spool_section(
    mut section: impl Read,
    plain: Spooled,
    name: &str,
    temp_dir: &Path,
) -> Result<Spooled, FsError> {
    let mut start = [0; START];
    let got = read_full(&mut section, &mut start).map_err(|error| FsError::io(name, error))?;
    match Compression::detect(&start[..got]) {
        Compression::None => Ok(plain),
        compression => {
            let whole = io::Cursor::new(start[..got].to_vec()).chain(section);
            decompress(whole, compression, name, temp_dir)
        }
    }
}

fn decompress(
    packed: impl Read,
    compression: Compression,
    name: &str,
    temp_dir: &Path,
) -> Result<Spooled, FsError> {
    let copy = |from: &mut dyn Read| copy(from, compression, name, temp_dir);
    match compression {
        Compression::None => copy(&mut { packed }),
        Compression::Gzip => {
            copy(&mut Streams::new(packed, compression, |rest| Ok(GzDecoder::new(rest))))
        }
        Compression::Zstd => copy(&mut Streams::new(packed, compression, |rest| {
            Ok(zstd::stream::read::Decoder::with_buffer(rest)?.single_frame())
        })),
        Compression::Xz => copy(&mut lzma_rust2::XzReader::new(XzBound::new(packed), true)),
        Compression::Bzip2 => {
            copy(&mut Streams::new(packed, compression, |rest| Ok(BzDecoder::new(rest))))
        }
        Compression::Unsupported(what, command) => Err(not_read(name, what, command)),
    }
}

/// A decoder of one stream: a member of a gzip file, a frame of Zstandard, a stream of bzip2.
trait Decoder<R>: Read {
    /// The bytes behind the stream.
    fn rest(self) -> R;
}

impl<R: BufRead> Decoder<R> for GzDecoder<R> {
    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Decoder<R> for BzDecoder<R> {
    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Decoder<R> for zstd::stream::read::Decoder<'_, R> {
    fn rest(self) -> R {
        self.finish()
    }
}

/// The streams of a compressed file, one after the other. Zeros behind the last are ignored: tapes
/// and some writers pad with them.
struct Streams<R: Read, D, F> {
    /// `None` after the last stream.
    stream: Option<D>,
    /// The bytes, before the first stream is begun.
    packed: Option<BufReader<R>>,
    compression: Compression,
    /// A stream has given bytes.
    has_output: bool,
    begin: F,
}

/// Another compression format after skippable frames, which lz4 and Zstandard have in common: its
/// name, and the command that decompresses it.
#[derive(Debug)]
struct OtherCompression(&'static str, &'static str);

impl fmt::Display for OtherCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} behind a skippable frame", self.0)
    }
}

impl std::error::Error for OtherCompression {}

impl<R: Read, D: Decoder<BufReader<R>>, F> Streams<R, D, F>
where
    F: Fn(BufReader<R>) -> io::Result<D>,
{
    fn new(packed: R, compression: Compression, begin: F) -> Self {
        let packed = BufReader::with_capacity(COPY_BUF, packed);
        Self { stream: None, packed: Some(packed), compression, has_output: false, begin }
    }

    /// Fails unless these bytes, of which there is at least one, begin another stream.
    fn check_start(&self, bytes: &[u8]) -> io::Result<()> {
        let start = &bytes[..bytes.len().min(START)];
        let agrees = |magic: &[u8]| magic.iter().zip(start).all(|(one, other)| one == other);
        let is_zstd = self.compression == Compression::Zstd;
        let is_frame = is_zstd && agrees(&[start[0] & 0x0F | 0x50, 0x2a, 0x4d, 0x18]);
        if is_frame || agrees(self.compression.magic()) {
            return Ok(());
        }
        let error: Box<dyn std::error::Error + Send + Sync> = match Compression::detect(start) {
            Compression::Unsupported(name, command) if is_zstd && !self.has_output => {
                Box::new(OtherCompression(name, command))
            }
            _ => "other data behind the end of the compressed data".into(),
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl<R: Read, D: Decoder<BufReader<R>>, F> Read for Streams<R, D, F>
where
    F: Fn(BufReader<R>) -> io::Result<D>,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(packed) = self.packed.take() {
            self.stream = Some((self.begin)(packed)?);
        }
        while let Some(stream) = &mut self.stream {
            let got = stream.read(buf)?;
            self.has_output |= got > 0;
            if got > 0 || buf.is_empty() {
                return Ok(got);
            }
            let Some(mut rest) = self.stream.take().map(D::rest) else { break };
            let mut has_padding = false;
            loop {
                let bytes = rest.fill_buf()?;
                let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
                has_padding |= zeros > 0;
                if bytes.is_empty() {
                    return Ok(0);
                }
                if zeros == bytes.len() {
                    rest.consume(zeros);
                    continue;
                }
                if has_padding {
                    let what = "something other than zeros in the padding";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                self.check_start(bytes)?;
                break;
            }
            self.stream = Some((self.begin)(rest)?);
        }
        Ok(0)
    }
}

fn read_full(from: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match from.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn copy(
    mut from: &mut dyn Read,
    compression: Compression,
    name: &str,
    temp_dir: &Path,
) -> Result<Spooled, FsError> {
    let temp = |error| FsError::io(format!("temporary file in {}", temp_dir.display()), error);
    let file = tempfile::tempfile_in(temp_dir).map_err(temp)?;
    let mut len = 0;
    // Writing takes about as long as decompression: a thread of its own does it.
    let (full, to_write) = sync_channel::<Vec<u8>>(COPY_BUFS);
    let (written, empty) = sync_channel::<Vec<u8>>(COPY_BUFS + 2);
    let copied = thread::scope(|scope| {
        let mut file = &file;
        let writer = scope.spawn(move || {
            for buf in to_write {
                file.write_all(&buf)?;
                // The reader has ended if it takes none back.
                let _ = written.send(buf);
            }
            Ok(())
        });
        let read = loop {
            let mut buf = empty.try_recv().unwrap_or_default();
            buf.resize(COPY_BUF, 0);
            match read_full(&mut from, &mut buf) {
                Ok(0) => break Ok(()),
                Ok(got) => {
                    buf.truncate(got);
                    len += got as u64;
                }
                Err(error) => break Err(read_error(name, compression, len, error)),
            }
            if full.send(buf).is_err() {
                // The writer has failed, and says why.
                break Ok(());
            }
        };
        drop(full);
        match writer.join() {
            Ok(wrote) => wrote.map_err(temp).and(read),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    copied.map(|()| Spooled { file: Arc::new(file), base: 0, len })
}

/// Parts of decoders' messages about sound but unsupported input.
const UNSUPPORTED: &[&str] = &["unsupported", "Unsupported", "Dictionary mismatch"];

/// The refusal of an archive of a compression that is not supported.
fn not_read(name: &str, compression: &str, command: &str) -> FsError {
    compressed(format!("{name}: archive compressed with {compression}"), command)
}

/// The refusal of an archive that the command decompresses.
fn compressed(what: String, command: &str) -> FsError {
    to_decompress(what, &format!("{command} FILE"))
}

/// The refusal of an archive, with the start of a pipe to a build.
fn to_decompress(what: String, start: &str) -> FsError {
    let text = Text::from("unsupported: ").then(what).then(format!(" ({start} | "));
    FsError::Refused(text.then(Term::BuildOfStream).then(" ...)"))
}

/// Converts an I/O error from a decompressor, which reports bad input that way.
fn read_error(name: &str, compression: Compression, offset: u64, error: io::Error) -> FsError {
    let format = match compression {
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::Xz => "xz",
        Compression::Bzip2 => "bzip2",
        Compression::None | Compression::Unsupported(..) => return FsError::io(name, error),
    };
    // zstd's message for a window above 128 MiB.
    if compression == Compression::Zstd && error.to_string().contains("too much memory") {
        let what = "archive compressed with a window of more than 128M";
        return compressed(format!("{name}: {what}"), "zstd -dc --long=31");
    }
    let payload = error.get_ref();
    let other = payload.and_then(|payload| payload.downcast_ref());
    if let Some(OtherCompression(other, command)) = other {
        return not_read(name, other, command);
    }
    let too_large = payload.and_then(|payload| payload.downcast_ref());
    if let Some(DictionaryTooLarge(size)) = too_large {
        let most = format_size(ByteLen::new(DICTIONARY_MAX));
        let what =
            format!("archive compressed with a dictionary of {size} bytes, more than {most}");
        return compressed(format!("{name}: {what}"), "xz -dc");
    }
    // The decoders' messages for features that they lack.
    let text = error.to_string();
    if error.raw_os_error().is_none() && UNSUPPORTED.iter().any(|said| text.contains(said)) {
        let what = format!("{name}: archive compressed with {format}: {text}");
        return to_decompress(what, "decompress it: ...");
    }
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected end of file".to_string(),
        _ if error.raw_os_error().is_none() => error.to_string(),
        _ => return FsError::io(name, error),
    };
    let fault = ArchiveFault::Compression { format, what };
    FsError::Archive { archive: name.to_string(), offset, fault }
}
