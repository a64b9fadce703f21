//! Formats values as text: names, modes, times.

use crate::failure::Failure;
use seekless_fs::{Attr, FileKind, Timestamp};
use std::fmt::Write;

/// A name as `ls -b` prints it: unprintable characters, backslashes and spaces are escaped.
pub(crate) fn name(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                '\n' => shown.push_str("\\n"),
                c if c.is_control() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| octal(&mut shown, byte))
                }
                c => shown.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&byte| octal(&mut shown, byte));
    }
    shown
}

fn octal(shown: &mut String, byte: u8) {
    let _ = write!(shown, "\\{byte:03o}");
}

/// A mode as `ls -l` prints it: `-rwsr-xr-t`.
pub(crate) fn mode(kind: FileKind, perm: u16) -> String {
    let bit = |mask: u16, letter: char| if perm & mask != 0 { letter } else { '-' };
    let exec =
        |mask: u16, special: u16, both: char, alone: char| match (perm & mask, perm & special) {
            (0, 0) => '-',
            (_, 0) => 'x',
            (0, _) => alone,
            (_, _) => both,
        };
    [
        kind.letter(),
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        exec(0o100, 0o4000, 's', 'S'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        exec(0o010, 0o2000, 's', 'S'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        exec(0o001, 0o1000, 't', 'T'),
    ]
    .into_iter()
    .collect()
}

/// A time in UTC: `2026-11-21 21:42:03`. Converts days to dates by Howard Hinnant's
/// `civil_from_days`.
pub(crate) fn time(moment: Timestamp) -> String {
    let days = moment.secs.div_euclid(86_400);
    let second = moment.secs.rem_euclid(86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A file's size, or the numbers of a device node.
pub(crate) fn size(attr: &Attr) -> String {
    match attr.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", attr.device.major, attr.device.minor)
        }
        _ => attr.size.to_string(),
    }
}

/// Bytes as JSON: a string if they are UTF-8, otherwise an object with their hexadecimal form.
pub(crate) fn json_bytes(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            serde_json::json!({ "hex": hex })
        }
    }
}

/// Converts a TOML file to JSON; `name` is its name in errors.
pub(crate) fn json_of_toml(text: &str, name: &str) -> Result<serde_json::Value, Failure> {
    toml::from_str(text).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(name(b"a b\\\n\x1B[31m\xFF"), "a b\\\\\\n\\033[31m\\377");
        assert_eq!(name("größe".as_bytes()), "größe");
    }

    #[test]
    fn modes_as_ls_has_them() {
        assert_eq!(mode(FileKind::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::Fifo, 0o7000), "p--S--S--T");
    }

    #[test]
    fn moments_as_dates() {
        let shown = |secs| time(Timestamp { secs, nanos: 0 });
        assert_eq!(shown(0), "1970-01-01 00:00:00");
        assert_eq!(shown(-2_147_483_648), "1901-12-13 20:45:52");
        assert_eq!(shown(13_569_465_600), "2400-01-01 00:00:00");
        assert_eq!(shown(951_827_696), "2000-02-29 12:34:56");
    }
}
