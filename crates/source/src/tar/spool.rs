//! Making an archive one that can be read anywhere: decompressed, in a file.

use seekless_fs::{ArchiveFault, FsError};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

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

/// An archive ready to be indexed.
pub(crate) struct Spooled {
    pub(crate) file: File,
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
        return Ok(Spooled { file, len });
    }
    let whole = io::Cursor::new(start[..got].to_vec()).chain(file);
    match compression {
        Compression::None => copy(whole, name, temp_dir),
        Compression::Gzip => copy(flate2::read::MultiGzDecoder::new(whole), name, temp_dir),
        Compression::Zstd => {
            copy(zstd::stream::read::Decoder::new(whole).map_err(io)?, name, temp_dir)
        }
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

fn copy(mut from: impl Read, name: &str, temp_dir: &Path) -> Result<Spooled, FsError> {
    let temp = |error| FsError::io(format!("temporary file in {}", temp_dir.display()), error);
    let mut file = tempfile::tempfile_in(temp_dir).map_err(temp)?;
    let mut buf = vec![0; COPY_BUF];
    let mut len = 0;
    loop {
        let got = read_full(&mut from, &mut buf).map_err(|error| read_error(name, len, error))?;
        if got == 0 {
            return Ok(Spooled { file, len });
        }
        file.write_all(&buf[..got]).map_err(temp)?;
        len += got as u64;
    }
}

/// What a decompressor says of bad input comes as an I/O error.
fn read_error(name: &str, offset: u64, error: io::Error) -> FsError {
    let archive = || name.to_string();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            FsError::Archive { archive: archive(), offset, fault: ArchiveFault::Truncated }
        }
        _ if error.raw_os_error().is_none() => {
            let fault = ArchiveFault::Other(format!("compressed data: {error}"));
            FsError::Archive { archive: archive(), offset, fault }
        }
        _ => FsError::io(name, error),
    }
}
