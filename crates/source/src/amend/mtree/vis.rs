//! Texts escaped by `vis(3)`.

use crate::list::shown;

/// Decodes a text: octal codes, those of C, `\s`, control and meta characters, and quoted bytes.
pub(super) fn decoded(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'\\' {
            plain.push(first);
            rest = behind;
            continue;
        }
        let (byte, len) =
            escape(behind).ok_or_else(|| format!("'{}': an unknown escape", shown(text)))?;
        plain.push(byte);
        rest = behind.get(len..).unwrap_or_default();
    }
    Ok(plain)
}

/// The byte of an escape, and the number of bytes behind the backslash.
fn escape(behind: &[u8]) -> Option<(u8, usize)> {
    let digit = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| byte - b'0');
    if let [a, b, c, ..] = *behind
        && let (Some(a), Some(b), Some(c)) = (digit(a), digit(b), digit(c))
    {
        return Some((a.checked_mul(64)?.checked_add(b * 8 + c)?, 3));
    }
    Some(match *behind {
        [b'M', b'-', byte, ..] => (byte | 0x80, 3),
        [b'M', b'^', byte, ..] => (control(byte) | 0x80, 3),
        [b'^', byte, ..] => (control(byte), 2),
        [b'0', ..] => (0, 1),
        [b'a', ..] => (0x07, 1),
        [b'b', ..] => (0x08, 1),
        [b't', ..] => (b'\t', 1),
        [b'n', ..] => (b'\n', 1),
        [b'v', ..] => (0x0b, 1),
        [b'f', ..] => (0x0c, 1),
        [b'r', ..] => (b'\r', 1),
        [b'E', ..] => (0x1b, 1),
        [b's', ..] => (b' ', 1),
        [byte, ..] if !byte.is_ascii_alphanumeric() => (byte, 1),
        _ => return None,
    })
}

fn control(byte: u8) -> u8 {
    if byte == b'?' { 0x7f } else { byte & 0x1f }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_all_styles() {
        for (text, wanted) in [
            (&br"a\040b\134"[..], &b"a b\\"[..]),
            (br"\s\t\n\#\\\$", b" \t\n#\\$"),
            (br"\M-a\M^A\^?\^A", b"\xe1\x81\x7f\x01"),
            (br"\303\244\0", b"\xc3\xa4\0"),
        ] {
            assert_eq!(decoded(text).unwrap(), wanted);
        }
        for text in [&br"\q"[..], br"\", br"\777", br"\12"] {
            assert!(decoded(text).is_err(), "{}", shown(text));
        }
    }
}
