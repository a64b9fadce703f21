//! Making an archive one that can be read anywhere: decompressed, in a file.

use seekless_fs::{ArchiveFault, FsError};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// How an archive is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
    /// Known, but not read here; with its name.
    Unsupported(&'static str),
}

impl Compression {
    /// What the first bytes of a file tell.
    #[must_use]
    pub fn detect(start: &[u8]) -> Self {
        let magics: [(&[u8], Self); 6] = [
            (b"\x1f\x8b", Self::Gzip),
            (b"\x28\xb5\x2f\xfd", Self::Zstd),
            (b"\xfd7zXZ\0", Self::Unsupported("xz")),
            (b"BZh", Self::Unsupported("bzip2")),
            (b"\x04\x22\x4d\x18", Self::Unsupported("lz4")),
            (b"LZIP", Self::Unsupported("lzip")),
        ];
        let found = magics.iter().find(|(magic, _)| start.starts_with(magic));
        found.map_or(Self::None, |&(_, compression)| compression)
    }
}

/// An archive ready to be indexed: a run of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Spooled {
    pub(crate) file: Arc<File>,
    /// Where in the file it begins.
    pub(crate) base: u64,
    pub(crate) len: u64,
}

const COPY_BUF: usize = 256 << 10;

/// Gives the file itself when it is plain and can be sought in, else a
/// decompressed copy of it in a file without a name in `temp_dir`.
pub(crate) fn spool(mut file: File, name: &str, temp_dir: &Path) -> Result<Spooled, FsError> {
    let io = |error| FsError::io(name, error);
    // Finds the length of a block device too, and fails on a pipe.
    let seekable = file.seek(SeekFrom::End(0)).and_then(|len| file.rewind().map(|()| len)).ok();
    let mut start = [0; 6];
    let got = read_full(&mut file, &mut start).map_err(io)?;
    let compression = Compression::detect(&start[..got]);
    if let (Compression::None, Some(len)) = (compression, seekable) {
        return Ok(Spooled { file: Arc::new(file), base: 0, len });
    }
    let whole = io::Cursor::new(start[..got].to_vec()).chain(file);
    decompress(whole, compression, name, temp_dir)
}

/// The same for a run of a file's bytes, which is read in place when it is
/// plain.
pub(crate) fn spool_section(
    mut section: impl Read,
    plain: Spooled,
    name: &str,
    temp_dir: &Path,
) -> Result<Spooled, FsError> {
    let mut start = [0; 6];
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
    let io = |error| FsError::io(name, error);
    let copy = |from: &mut dyn Read| copy(from, compression, name, temp_dir);
    match compression {
        Compression::None => copy(&mut { packed }),
        Compression::Gzip => copy(&mut flate2::read::MultiGzDecoder::new(packed)),
        Compression::Zstd => copy(&mut zstd::stream::read::Decoder::new(packed).map_err(io)?),
        Compression::Unsupported(what) => {
            Err(FsError::Unsupported(format!("{name}: archive compressed with {what}")))
        }
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
    let mut file = tempfile::tempfile_in(temp_dir).map_err(temp)?;
    let mut buf = vec![0; COPY_BUF];
    let mut len = 0;
    loop {
        let got = read_full(&mut from, &mut buf)
            .map_err(|error| read_error(name, compression, len, error))?;
        if got == 0 {
            return Ok(Spooled { file: Arc::new(file), base: 0, len });
        }
        file.write_all(&buf[..got]).map_err(temp)?;
        len += got as u64;
    }
}

/// What a decompressor says of bad input comes as an I/O error.
fn read_error(name: &str, compression: Compression, offset: u64, error: io::Error) -> FsError {
    let format = match compression {
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::None | Compression::Unsupported(_) => return FsError::io(name, error),
    };
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected end of file".to_string(),
        _ if error.raw_os_error().is_none() => error.to_string(),
        _ => return FsError::io(name, error),
    };
    let fault = ArchiveFault::Compression { format, what };
    FsError::Archive { archive: name.to_string(), offset, fault }
}
