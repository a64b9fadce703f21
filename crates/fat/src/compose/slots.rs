//! The entries of a file, from its name and times.

use super::older::{OlderDirectory, OlderEntry};
use super::shorts::{Short, Shorts, basis};
use crate::flags::attributes_of;
use crate::name;
use crate::ondisk::{
    ENTRY_SIZE, LAST_PIECE, LongEntry, MOST_PIECES, NAME_UNITS, PIECE_UNITS, ShortEntry, attr,
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
    /// Of [`KEPT_FLAGS`](crate::KEPT_FLAGS).
    pub(crate) flags: u32,
    pub(crate) size: u64,
    pub(crate) times: OtherTimes,
    pub(crate) mtime: seekless_fs::Timestamp,
}

/// The directory entry of a file, in the slots of its long name and of the short one.
pub(crate) struct FileEntry {
    pub(crate) slots: Vec<u8>,
    /// The first slot that it has in the older volume, if it has as many there.
    pub(crate) first_slot: Option<u32>,
}

/// The entries of a directory's files, in their order. Names of the older directory keep their
/// short names; of the others, those that fit in a short name keep it; then the rest get theirs, in
/// the same order.
///
/// # Errors
/// [`FsError::Unsupported`] with both names if two differ in case only; [`FsError::NoSpace`] if
/// short names run out. Both are about `dir`.
pub(crate) fn directory(
    files: &[NewFile<'_>],
    older: &OlderDirectory,
    dir: &str,
) -> Result<Vec<FileEntry>, FsError> {
    let names = folded_names(files, dir)?;
    let older: Vec<Option<&OlderEntry>> = names.iter().map(|name| older.get(name)).collect();
    let of_name: HashMap<&[u16], usize> =
        names.iter().enumerate().map(|(at, name)| (&name[..], at)).collect();
    let mut shorts = Shorts::default();
    let mut chosen: Vec<Option<Short>> = vec![None; files.len()];
    for (at, old) in older.iter().enumerate() {
        let Some(old) = old else { continue };
        // A short name that is the name of another file would lead to both.
        let is_free = of_name.get(&old.folded_short()[..]).is_none_or(|&other| other == at);
        if is_free && shorts.take(old.short) {
            chosen[at] = Some(old.short);
        }
    }
    for (file, chosen) in files.iter().zip(&mut chosen) {
        let basis = basis(&String::from_utf8_lossy(file.name));
        // No other file gets it, even if its own file has another one.
        if basis.fits && shorts.take(basis.name) {
            chosen.get_or_insert(basis.name);
        }
    }
    let mut entries = Vec::with_capacity(files.len());
    for ((file, old), chosen) in files.iter().zip(older).zip(chosen) {
        let short = match chosen {
            Some(short) => short,
            None => {
                let basis = basis(&String::from_utf8_lossy(file.name));
                shorts.with_tail(&basis.name).ok_or_else(|| {
                    FsError::NoSpace(format!("{dir}: no short name is left for a file in it"))
                })?
            }
        };
        entries.push(file_entry(file, short, old));
    }
    Ok(entries)
}

/// The names of files without regard to case, each of which is another one.
fn folded_names(files: &[NewFile<'_>], dir: &str) -> Result<Vec<Vec<u16>>, FsError> {
    let mut first: HashMap<Vec<u16>, usize> = HashMap::with_capacity(files.len());
    let mut names = Vec::with_capacity(files.len());
    for (at, file) in files.iter().enumerate() {
        let folded = name::fold(&name::to_units(file.name).unwrap_or_default());
        if let Some(first) = first.insert(folded.clone(), at) {
            let shown = |at: usize| String::from_utf8_lossy(files[at].name).into_owned();
            return Err(FsError::Unsupported(format!(
                "{dir}: '{}' and '{}' are the same name on FAT, which ignores case",
                shown(first),
                shown(at)
            )));
        }
        names.push(folded);
    }
    Ok(names)
}

/// A file's entry, in the form that it has in the older volume if the names are the same.
fn file_entry(file: &NewFile<'_>, short: Short, old: Option<&OlderEntry>) -> FileEntry {
    let (case, is_long) = match old {
        Some(old) if old.short == short && old.name == file.name => (old.case, old.is_long),
        _ => (0, name::short(&short, 0) != file.name),
    };
    let mut slots = Vec::new();
    if is_long {
        long(&name::to_units(file.name).unwrap_or_default(), name::checksum(&short), &mut slots);
    }
    let entry = ShortEntry { DIR_NTRes: case, ..entry(short, file) };
    slots.extend_from_slice(entry.as_bytes());
    let first_slot = old.filter(|old| old.slots as usize * ENTRY_SIZE == slots.len());
    FileEntry { slots, first_slot: first_slot.map(|old| old.first_slot) }
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
        DIR_Attr: kind
            | if file.is_read_only { attr::READ_ONLY } else { 0 }
            | attributes_of(file.flags),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::LongNameSlots;

    fn file(name: &str) -> NewFile<'_> {
        let mtime = seekless_fs::Timestamp::default();
        NewFile {
            name: name.as_bytes(),
            is_dir: false,
            is_read_only: false,
            flags: 0,
            size: 0,
            times: OtherTimes { atime: mtime, ctime: mtime, crtime: mtime },
            mtime,
        }
    }

    /// The entries of names in a directory, as an older one has them; `case` is `DIR_NTRes`.
    fn older(names: &[(&str, &[u8; 11], u8)]) -> OlderDirectory {
        let mut older = OlderDirectory::default();
        let mut next = 0;
        for &(name, short, case) in names {
            let entry = ShortEntry { DIR_NTRes: case, ..entry(*short, &file(name)) };
            let is_long = name::short(short, case) != name.as_bytes();
            let units = name::to_units(name.as_bytes()).unwrap();
            let start = next;
            next += if is_long { units.len().div_ceil(PIECE_UNITS) as u32 } else { 0 };
            let head = LongNameSlots { name: is_long.then_some(units), start, torn: false };
            let (sector, offset) = (seekless_units::BlockNo::ZERO, 0);
            let entry = crate::directory::Entry { slot: next, short: entry, head, sector, offset };
            older.add(&entry, None);
            next += 1;
        }
        older
    }

    /// The short names and first slots that names get.
    fn given(names: &[&str], older: &OlderDirectory) -> Vec<(String, Option<u32>)> {
        let files: Vec<NewFile<'_>> = names.iter().map(|name| file(name)).collect();
        let entries = directory(&files, older, "dir").unwrap();
        let short = |entry: &FileEntry| {
            let from = entry.slots.len() - ENTRY_SIZE;
            String::from_utf8(entry.slots[from..from + 11].to_vec()).unwrap()
        };
        entries.iter().map(|entry| (short(entry), entry.first_slot)).collect()
    }

    fn pair(short: &str, slot: Option<u32>) -> (String, Option<u32>) {
        (short.into(), slot)
    }

    #[test]
    fn names_keep_their_short_names_and_slots() {
        let old = older(&[
            ("a long name 1", b"ALONGN~1   ", 0),
            ("a long name 2", b"ALONGN~7   ", 0),
            ("readme.txt", b"README  TXT", 0x18),
        ]);
        let given = given(&["a long name 0", "A LONG name 2", "readme.txt"], &old);
        assert_eq!(given[0], pair("ALONGN~1   ", None));
        assert_eq!(given[1], pair("ALONGN~7   ", Some(2)));
        assert_eq!(given[2], pair("README  TXT", Some(4)));
    }

    #[test]
    fn a_form_without_a_long_name_is_kept_for_the_same_name_only() {
        let old = older(&[("readme.txt", b"README  TXT", 0x18)]);
        let slots = |name: &str| directory(&[file(name)], &old, "dir").unwrap().remove(0);
        let (same, other) = (slots("readme.txt"), slots("Readme.txt"));
        assert_eq!((same.slots.len(), same.slots[12], same.first_slot), (32, 0x18, Some(0)));
        assert_eq!((other.slots.len(), other.first_slot), (64, None));
        assert_eq!(slots("README.TXT").first_slot, Some(0));
    }

    #[test]
    fn no_short_name_is_the_name_of_another_file() {
        let old = older(&[
            ("a long name 1", b"ALONGN~1   ", 0),
            ("plain", b"STRANGE~1  ", 0),
            ("other~9", b"STRANGE~2  ", 0),
        ]);
        let names = ["a long name 1", "alongn~1", "otherwise long", "plain", "other~9"];
        let given = given(&names, &old);
        assert_eq!(given[0], pair("ALONGN~2   ", Some(0)));
        assert_eq!(given[1], pair("ALONGN~1   ", None));
        assert_eq!(given[2], pair("OTHERW~1   ", None));
        assert_eq!(given[3], pair("STRANGE~1  ", Some(2)));
        assert_eq!(given[4], pair("STRANGE~2  ", Some(4)));
    }
}
