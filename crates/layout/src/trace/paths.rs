//! Plain lists of paths.

use super::{Event, Op, TraceError, below, normal};
use seekless_units::Nanos;
use std::io::BufRead;

/// Nanoseconds between one path and the next: a list has no times.
const STEP: u64 = 1_000;

/// Reads a list of paths, one a line: each is opened and read whole. A line in
/// double quotes is unescaped as in C, as `git` does it. With a `root`, paths
/// are of the host, and those not below it are left out.
///
/// # Errors
/// When the list cannot be read, or a quoted line is malformed.
pub fn read_paths(mut input: impl BufRead, root: Option<&[u8]>) -> Result<Vec<Event>, TraceError> {
    let mut events = Vec::new();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(events);
        }
        number += 1;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if text.is_empty() {
            continue;
        }
        let path = if text.starts_with(b"\"") {
            let unquoted = unquote(text).filter(|(_, rest)| rest.is_empty());
            let why = || TraceError::Line { line: number, why: "bad quoting".into() };
            normal(&unquoted.ok_or_else(why)?.0)
        } else {
            normal(text)
        };
        let Some(path) = below(&path, root.unwrap_or(b"/")) else { continue };
        let time = Nanos::new(events.len() as u64 * STEP);
        events.push(Event::new(time, Op::Open, path.to_vec()));
        events.push(Event::new(time, Op::Read, path.to_vec()));
    }
}

/// A C string at the start of `text`, and the text behind it.
pub(super) fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((bytes, rest)),
            b'\\' => rest = escape(rest, &mut bytes)?,
            byte => bytes.push(byte),
        }
    }
}

fn escape<'a>(text: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (&letter, rest) = text.split_first()?;
    let (skip, byte) = match letter {
        b'n' => (0, b'\n'),
        b't' => (0, b'\t'),
        b'r' => (0, b'\r'),
        b'v' => (0, 0x0b),
        b'f' => (0, 0x0c),
        b'a' => (0, 0x07),
        b'b' => (0, 0x08),
        b'0'..=b'7' => {
            let len = text.iter().take(3).take_while(|c| matches!(c, b'0'..=b'7')).count();
            (len - 1, u8::from_str_radix(std::str::from_utf8(&text[..len]).ok()?, 8).ok()?)
        }
        b'x' => {
            let digits = rest.iter().take(2).take_while(|c| c.is_ascii_hexdigit()).count();
            (digits, u8::from_str_radix(std::str::from_utf8(&rest[..digits]).ok()?, 16).ok()?)
        }
        other => (0, other),
    };
    bytes.push(byte);
    Some(&rest[skip..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_be_quoted_and_lie_below_a_root() {
        let list = b"/mnt/a\n./mnt//b/../c\n\"/mnt/x\\ny\\377\"\n/other\n\n/mnt\n";
        let events = read_paths(&list[..], Some(b"/mnt/")).unwrap();
        let paths: Vec<&[u8]> = events.iter().step_by(2).map(|event| &*event.path).collect();
        assert_eq!(paths, [&b"/a"[..], b"/c", b"/x\ny\xff", b"/"]);
        assert_eq!((&events[1].op, events[1].length), (&Op::Read, None));
        assert!(read_paths(&b"\"abc\n"[..], None).is_err());
    }
}
