//! The footer that makes a VHD image of the bytes of a disk.

use crate::error::{Error, ErrorKind};
use crate::output::Output;
use seekless_units::ByteLen;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a disk that distinguish it: tables of partitions and superblocks lie there.
const BEGINNING: usize = 64 << 10;

/// Adds the footer behind a complete image; messages call it `path`.
pub(super) fn add_footer(output: &Output, path: &Path) -> Result<(), Error> {
    let file = output.file()?;
    let io = |error: io::Error| Error::io(path.display(), &error);
    let len = file.metadata().map_err(io)?.len();
    let id = id(&file, len).map_err(io)?;
    let footer = seekless_vhd::footer(ByteLen::new(len), id).map_err(|error| {
        Error::new(ErrorKind::Unsupported, error.to_string()).about(path.display())
    })?;
    file.write_all_at(&footer, len).map_err(io)
}

/// The number of an image, which is equal for equal beginnings: their hash by FNV-1a with 128 bits
/// (draft-eastlake-fnv), marked as a UUID of version 8 (RFC 9562).
fn id(file: &File, len: u64) -> io::Result<[u8; 16]> {
    let mut beginning = vec![0; BEGINNING.min(usize::try_from(len).unwrap_or(BEGINNING))];
    file.read_exact_at(&mut beginning, 0)?;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in beginning.into_iter().chain(len.to_le_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let mut id = hash.to_be_bytes();
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}
