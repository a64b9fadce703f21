//! Long names whose pieces are in order in front of a short entry and have wrong checksums.

use crate::entry::LongName;
use crate::name;
use crate::ondisk::{LAST_PIECE, LongEntry, ShortEntry};

/// A long name with wrong checksums.
pub(super) struct Mended {
    /// The number of its pieces, which end in front of the short entry.
    pub(super) count: usize,
    /// Its units.
    pub(super) units: Vec<u16>,
}

/// The long name of a short entry by the pieces in front of it, if only their checksums contradict
/// that. A system without support of long names leaves wrong checksums too, when it renames a file: so
/// one piece must have the right checksum, or the short name must be one that is made of the long one.
pub(super) fn mended(pieces: &[LongEntry], short: &ShortEntry) -> Option<Mended> {
    let count = 1 + pieces.iter().rev().position(|it| it.LDIR_Ord & LAST_PIECE != 0)?;
    let own = pieces.get(pieces.len() - count..)?;
    let sum = name::checksum(&short.DIR_Name);
    let mut long = LongName::default();
    for (at, piece) in (0..).zip(own) {
        let mut piece = *piece;
        piece.LDIR_Chksum = sum;
        long.piece(at, &piece);
    }
    let end = u32::try_from(count).ok()?;
    let units = long.finish(end, short).name?;
    let is_vouched = own.iter().any(|piece| piece.LDIR_Chksum == sum);
    (is_vouched || leads_to(&units, &short.DIR_Name)).then_some(Mended { count, units })
}

/// A piece with the checksum of a short name, as the entry that its slot is read as.
pub(super) fn sealed(piece: &LongEntry, short: &ShortEntry) -> ShortEntry {
    let mut piece = *piece;
    piece.LDIR_Chksum = name::checksum(&short.DIR_Name);
    zerocopy::transmute!(piece)
}

/// Whether a short name with a number (`ALONGN~1`) is one that systems make of a long name: its
/// characters without blanks and dots in upper case, up to the number, and its extension.
fn leads_to(units: &[u16], short: &[u8; 11]) -> bool {
    let (base, extension) = short.split_at(8);
    let Some(number) = base.iter().position(|&byte| byte == b'~') else { return false };
    let text = String::from_utf16_lossy(units);
    let text = text.trim_start_matches('.');
    let (long_base, long_extension) = text.rsplit_once('.').unwrap_or((text, ""));
    let made = |text: &str| -> Vec<u8> {
        let kept = text.chars().filter(|it| !matches!(it, ' ' | '.'));
        kept.map(|it| u8::try_from(it.to_ascii_uppercase()).unwrap_or(b'_')).collect()
    };
    let (long_base, long_extension) = (made(long_base), made(long_extension));
    let start = base.get(..number).unwrap_or_default();
    let extension = extension.trim_ascii_end();
    number > 1
        && long_base.starts_with(start)
        && long_extension.get(..3).unwrap_or(&long_extension) == extension
}

#[cfg(test)]
mod tests {
    use super::leads_to;

    #[test]
    fn short_names_are_made_of_long_ones() {
        let long = |text: &str| text.encode_utf16().collect::<Vec<_>>();
        for (text, short) in [
            ("a text with a long name.text", b"ATEXTW~1TEX"),
            ("script-file.sh", b"SCRIPT~1SH "),
            (".profile.old", b"PROFIL~2OLD"),
            ("no extension at all", b"NOEXTE~9   "),
        ] {
            assert!(leads_to(&long(text), short), "{text}");
        }
        for (text, short) in [
            ("a text with a long name.text", b"ATEXTW~1TXT"),
            ("script-file.sh", b"SCRAPT~1SH "),
            ("script-file.sh", b"SCRIPT  SH "),
            ("script-file.sh", b"~1      SH "),
        ] {
            assert!(!leads_to(&long(text), short), "{text}");
        }
    }
}
