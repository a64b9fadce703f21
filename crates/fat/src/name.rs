//! Names: short ones in code page 850, long ones in UTF-16, and their comparison.
//!
//! Outside, a name is bytes in UTF-8. Long names may contain unpaired surrogates, which UTF-8
//! cannot represent; they become the three bytes that UTF-8 would have for their number (WTF-8), so
//! that different names stay different.

use crate::ondisk::{first, lower};

/// The upper half of code page 850, the default of mtools and of dosfstools.
const CODE_PAGE_850: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ',
    'ô', 'ö', 'ò', 'û', 'ù', 'ÿ', 'Ö', 'Ü', 'ø', '£', 'Ø', '×', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ',
    'ª', 'º', '¿', '®', '¬', '½', '¼', '¡', '«', '»', '░', '▒', '▓', '│', '┤', 'Á', 'Â', 'À', '©',
    '╣', '║', '╗', '╝', '¢', '¥', '┐', '└', '┴', '┬', '├', '─', '┼', 'ã', 'Ã', '╚', '╔', '╩', '╦',
    '╠', '═', '╬', '¤', 'ð', 'Ð', 'Ê', 'Ë', 'È', 'ı', 'Í', 'Î', 'Ï', '┘', '┌', '█', '▄', '¦', 'Ì',
    '▀', 'Ó', 'ß', 'Ô', 'Ò', 'õ', 'Õ', 'µ', 'þ', 'Þ', 'Ú', 'Û', 'Ù', 'ý', 'Ý', '¯', '´', '\u{ad}',
    '±', '‗', '¾', '¶', '§', '÷', '¸', '°', '¨', '·', '¹', '³', '²', '■', '\u{a0}',
];

/// The checksum that ties long entries to their short entry.
pub(crate) fn checksum(name: &[u8; 11]) -> u8 {
    name.iter().fold(0u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte))
}

/// A character of a short name.
fn from_oem(byte: u8) -> char {
    let upper = byte.checked_sub(0x80).and_then(|at| CODE_PAGE_850.get(usize::from(at)));
    upper.copied().unwrap_or(char::from(byte))
}

/// The byte of a character in a label; `None` for one that code page 850 lacks.
pub(crate) fn to_oem(c: char) -> Option<u8> {
    if c.is_ascii() {
        return u8::try_from(c).ok();
    }
    let at = CODE_PAGE_850.iter().position(|&known| known == c)?;
    u8::try_from(at).ok()?.checked_add(0x80)
}

/// A label without the blanks behind it.
pub(crate) fn label(name: &[u8; 11]) -> Vec<u8> {
    let text: String = name.iter().map(|&byte| from_oem(byte)).collect();
    text.trim_end_matches([' ', '\0']).as_bytes().to_vec()
}

/// A short name as it is shown; `nt` is `DIR_NTRes`.
pub(crate) fn short(name: &[u8; 11], nt: u8) -> Vec<u8> {
    let (base, extension) = name.split_at(8);
    let part = |bytes: &[u8], fold: bool, is_first: bool| -> String {
        let used = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |at| at + 1);
        let shown = bytes.iter().take(used).enumerate().map(|(at, &byte)| {
            let byte =
                if is_first && at == 0 && byte == first::KANJI { first::DELETED } else { byte };
            from_oem(byte)
        });
        if fold { shown.flat_map(lower_case).collect() } else { shown.collect() }
    };
    let mut text = part(base, nt & lower::BASE != 0, true);
    let extension = part(extension, nt & lower::EXTENSION != 0, false);
    if !extension.is_empty() {
        text.push('.');
        text.push_str(&extension);
    }
    text.into_bytes()
}

fn lower_case(c: char) -> impl Iterator<Item = char> {
    one(c, c.to_lowercase())
}

/// A mapping of case if it gives one character, else the character itself.
fn one(c: char, mut mapped: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let mapped = match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => c,
    };
    std::iter::once(mapped)
}

/// The bytes of UTF-16 units.
pub(crate) fn from_units(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(units.len());
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => {
                let [high, low] = lone.unpaired_surrogate().to_be_bytes();
                let middle = ((high & 0x0F) << 2) | (low >> 6);
                bytes.extend_from_slice(&[0xE0 | (high >> 4), 0x80 | middle, 0x80 | (low & 0x3F)]);
            }
        }
    }
    bytes
}

/// The UTF-16 units of bytes made by [`from_units`]; `None` for any others.
pub(crate) fn to_units(bytes: &[u8]) -> Option<Vec<u16>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Some(text.encode_utf16().collect());
    }
    // UTF-8 with lone surrogates among it.
    let mut joined = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&byte) = rest.first() {
        if let [0xED, second @ 0xA0..=0xBF, third @ 0x80..=0xBF, after @ ..] = rest {
            joined.push(0xD000 | (u16::from(second & 0x3F) << 6) | u16::from(third & 0x3F));
            rest = after;
            continue;
        }
        let len = match byte {
            0..=0x7F => 1,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            _ => 4,
        };
        let (c, after) = rest.split_at_checked(len)?;
        joined.extend(std::str::from_utf8(c).ok()?.encode_utf16());
        rest = after;
    }
    Some(joined)
}

/// Units in upper case: equal results mean the same name. Characters whose upper case is several
/// characters stay as they are, as in other systems.
pub(crate) fn fold(units: &[u16]) -> Vec<u16> {
    let mut folded = Vec::with_capacity(units.len());
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => {
                for upper in one(c, c.to_uppercase()) {
                    folded.extend_from_slice(upper.encode_utf16(&mut [0; 2]));
                }
            }
            Err(lone) => folded.push(lone.unpaired_surrogate()),
        }
    }
    folded
}

/// Whether a long name can be shown: no zero, no slash, and not `.` or `..`.
pub(crate) fn is_usable(units: &[u16]) -> bool {
    let dot = u16::from(b'.');
    !units.is_empty()
        && !units.iter().any(|&unit| unit == 0 || unit == u16::from(b'/'))
        && units != [dot]
        && units != [dot, dot]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_back_whatever_they_are() {
        let lone = [0x41, 0xD800, 0x42, 0xDC00, 0xDBFF, 0xDFFF, 0xE9, 0xFFFF];
        assert_eq!(to_units(&from_units(&lone)).unwrap(), lone);
        assert_eq!(from_units(&[0xD83D, 0xDE00]), "😀".as_bytes());
        assert_eq!(to_units(b"a\xFFb"), None);
        assert_eq!(to_units(b"\xE2\x82"), None);
        assert_eq!(to_units(b""), Some(vec![]));
    }

    #[test]
    fn short_names_are_shown_in_their_case() {
        assert_eq!(short(b"README  TXT", 0), b"README.TXT");
        assert_eq!(short(b"README  TXT", 0x08), b"readme.TXT");
        assert_eq!(short(b"README  TXT", 0x18), b"readme.txt");
        assert_eq!(short(b"A B        ", 0), b"A B");
        assert_eq!(short(b"\x05BC        ", 0), "ÕBC".as_bytes());
        assert_eq!(short(b"\x90T\x90        ", 8), "été".as_bytes());
    }

    #[test]
    fn case_is_folded_beyond_ascii() {
        let folded = |text: &str| fold(&text.encode_utf16().collect::<Vec<_>>());
        assert_eq!(folded("straße Été"), folded("STRAßE éTÉ"));
        assert_ne!(folded("straße"), folded("STRASSE"));
    }
}
