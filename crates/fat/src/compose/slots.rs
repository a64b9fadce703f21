//! The entries of a file, from its name and times.

use super::shorts::{Shorts, basis};
use crate::name;
use crate::ondisk::{
    LAST_PIECE, LongEntry, MOST_PIECES, NAME_UNITS, PIECE_UNITS, ShortEntry, attr,
};
use crate::time::Stamp;
use hashbrown::HashMap;
use seekless_fs::FsError;
use seekless_fs::tree::OtherTimes;
use zerocopy::IntoBytes;
use zerocopy::byteorder::{LE, U16};

/// The reason why a name is invalid on a FAT volume.
pub(crate) fn refusal(name: &[u8]) -> Option<String> {
    let Some(units) = name::to_units(name) else {
        return Some("the name is not UTF-8".into());
    };
    if units.len() > NAME_UNITS {
        return Some(format!("a name of {} UTF-16 units, limit {NAME_UNITS}", units.len()));
    }
    let forbidden = |&&unit: &&u16| unit < 0x20 || "\\/:*?\"<>|".encode_utf16().any(|c| c == unit);
    if let Some(&unit) = units.iter().find(forbidden) {
        let shown = match char::from_u32(unit.into()) {
            Some(c) if c >= ' ' => format!("'{c}'"),
            _ => format!("the control character {unit:#04x}"),
        };
        return Some(format!("a name with {shown}, which FAT does not allow"));
    }
    match name.last() {
        Some(b'.') => Some("a name that ends with a dot, which FAT does not keep".into()),
        Some(b' ') => Some("a name that ends with a blank, which FAT does not keep".into()),
        _ => None,
    }
}

/// A file that gets a directory entry.
pub(crate) struct NewFile<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) is_dir: bool,
    pub(crate) is_read_only: bool,
    pub(crate) size: u64,
    pub(crate) times: OtherTimes,
    pub(crate) mtime: seekless_fs::Timestamp,
}

/// The slots of a directory's files, in their order. Names that fit in a short name keep
/// it; then the others get theirs, in the same order.
///
/// # Errors
/// [`FsError::Unsupported`] with both names if two differ in case only; [`FsError::NoSpace`] if
/// short names run out. Both are about `dir`.
pub(crate) fn directory(files: &[NewFile<'_>], dir: &str) -> Result<Vec<Vec<u8>>, FsError> {
    let mut folded: HashMap<Vec<u16>, usize> = HashMap::with_capacity(files.len());
    let mut shorts = Shorts::default();
    let mut chosen = vec![None; files.len()];
    let units: Vec<Vec<u16>> =
        files.iter().map(|file| name::to_units(file.name).unwrap_or_default()).collect();
    for (at, units) in units.iter().enumerate() {
        if let Some(first) = folded.insert(name::fold(units), at) {
            let shown = |at: usize| String::from_utf8_lossy(files[at].name).into_owned();
            return Err(FsError::Unsupported(format!(
                "{dir}: '{}' and '{}' are the same name on FAT, which ignores case",
                shown(first),
                shown(at)
            )));
        }
        let basis = basis(&String::from_utf8_lossy(files[at].name));
        if basis.fits && shorts.take(basis.name) {
            chosen[at] = Some(basis.name);
        }
    }
    let mut slots = Vec::with_capacity(files.len());
    for ((file, units), chosen) in files.iter().zip(&units).zip(chosen) {
        let short = match chosen {
            Some(short) => short,
            None => {
                let basis = basis(&String::from_utf8_lossy(file.name));
                shorts.with_tail(&basis.name).ok_or_else(|| {
                    FsError::NoSpace(format!("{dir}: no short name is left for a file in it"))
                })?
            }
        };
        let mut bytes = Vec::new();
        if name::short(&short, 0) != file.name {
            long(units, name::checksum(&short), &mut bytes);
        }
        bytes.extend_from_slice(entry(short, file).as_bytes());
        slots.push(bytes);
    }
    Ok(slots)
}

/// The entries of a long name, its last piece first.
pub(crate) fn long(units: &[u16], checksum: u8, bytes: &mut Vec<u8>) {
    let pieces = units.len().div_ceil(PIECE_UNITS);
    debug_assert!((1..=usize::from(MOST_PIECES)).contains(&pieces), "{pieces} pieces");
    for (number, piece) in units.chunks(PIECE_UNITS).enumerate().rev() {
        // A name that does not fill its last piece ends with a zero.
        let mut filled = [0xFFFFu16; PIECE_UNITS];
        filled[..piece.len()].copy_from_slice(piece);
        if let Some(end) = filled.get_mut(piece.len()) {
            *end = 0;
        }
        let take = |from: usize| -> U16<LE> { filled[from].into() };
        let is_last = number + 1 == pieces;
        let entry = LongEntry {
            LDIR_Ord: (number as u8 + 1) | if is_last { LAST_PIECE } else { 0 },
            LDIR_Name1: std::array::from_fn(take),
            LDIR_Attr: attr::LONG_NAME,
            LDIR_Type: 0,
            LDIR_Chksum: checksum,
            LDIR_Name2: std::array::from_fn(|at| take(at + 5)),
            LDIR_FstClusLO: 0.into(),
            LDIR_Name3: std::array::from_fn(|at| take(at + 11)),
        };
        bytes.extend_from_slice(entry.as_bytes());
    }
}

/// A short entry without its first cluster.
fn entry(short: [u8; 11], file: &NewFile<'_>) -> ShortEntry {
    debug_assert!(u32::try_from(file.size).is_ok(), "a file of {} bytes", file.size);
    let (created, changed) = (Stamp::of(file.times.crtime), Stamp::of(file.mtime));
    let kind = if file.is_dir { attr::DIRECTORY } else { attr::ARCHIVE };
    ShortEntry {
        DIR_Name: short,
        DIR_Attr: kind | if file.is_read_only { attr::READ_ONLY } else { 0 },
        DIR_NTRes: 0,
        DIR_CrtTimeTenth: created.fine,
        DIR_CrtTime: created.time.into(),
        DIR_CrtDate: created.date.into(),
        DIR_LstAccDate: Stamp::of(file.times.atime).date.into(),
        DIR_FstClusHI: 0.into(),
        DIR_WrtTime: changed.time.into(),
        DIR_WrtDate: changed.date.into(),
        DIR_FstClusLO: 0.into(),
        DIR_FileSize: if file.is_dir { 0 } else { file.size as u32 }.into(),
    }
}
