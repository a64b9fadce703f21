//! Traces in forms that other tools take.

use super::{EventRef, Events, Op};
use std::collections::HashSet;
use std::io::{self, Write};

/// The files that were opened, read, run or mapped (or else only touched, with
/// `all`), in the order of their first touch.
#[must_use]
pub fn first_touches(events: &Events, all: bool) -> Vec<&[u8]> {
    let mut seen = HashSet::new();
    let wanted = |event: &EventRef<'_>| {
        let contents = matches!(event.op, Op::Open | Op::Read | Op::Exec | Op::Mmap | Op::Fault);
        let named = *event.op != Op::Device;
        !event.missing && named && (all || contents)
    };
    let paths = events.iter().filter(wanted).map(|event| event.path);
    paths.filter(|path| seen.insert(*path)).collect()
}

/// Writes a list of paths that [`super::read_paths`] reads back: those with
/// control characters or a leading quote are quoted as in C.
///
/// # Errors
/// When `out` does not take it.
pub fn write_paths(paths: &[&[u8]], out: &mut dyn Write) -> io::Result<()> {
    for path in paths {
        if path.starts_with(b"\"") || path.iter().any(u8::is_ascii_control) {
            out.write_all(quoted(path).as_slice())?;
        } else {
            out.write_all(path)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn quoted(path: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            byte if byte.is_ascii_control() => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(byte),
        }
    }
    text.push(b'"');
    text
}

/// Writes a list for `mksquashfs -sort`: the files touched first get the highest priority. With
/// more files than there are priorities, neighbours share one. Returns how many paths were left out
/// because they contain a line break, for which that format has no form.
///
/// # Errors
/// When `out` does not take it.
pub fn write_squashfs_sort(paths: &[&[u8]], out: &mut dyn Write) -> io::Result<usize> {
    const HIGHEST: i64 = 32767;
    const COUNT: i64 = 65535;
    let total = paths.len() as i64;
    let mut left_out = 0;
    for (at, path) in (0i64..).zip(paths) {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        if path.is_empty() || path.contains(&b'\n') {
            left_out += usize::from(!path.is_empty());
            continue;
        }
        let rank = if total <= COUNT { at } else { at * COUNT / total };
        for &byte in path {
            if byte.is_ascii_whitespace() || matches!(byte, b'\\' | b'#') {
                out.write_all(b"\\")?;
            }
            out.write_all(&[byte])?;
        }
        writeln!(out, " {}", HIGHEST - rank)?;
    }
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::super::{Event, read_paths};
    use super::*;
    use seekless_units::Nanos;

    #[test]
    fn lists_are_read_back() {
        let paths: [&[u8]; 4] = [b"/a b", b"/x\ny", b"/q\"\\", b"/\xff"];
        let mut text = Vec::new();
        write_paths(&paths, &mut text).unwrap();
        let events = read_paths(&*text, None).unwrap().into_iter().collect();
        assert_eq!(first_touches(&events, false), paths);
    }

    #[test]
    fn a_read_of_the_device_is_of_no_file() {
        let device = Event::new(Nanos::ZERO, Op::Device, b"/".to_vec()).on(4096, 4096);
        let stat = Event::new(Nanos::ZERO, Op::Stat, b"/a".to_vec());
        assert_eq!(first_touches(&[device, stat].into_iter().collect(), true), [b"/a"]);
    }

    #[test]
    fn priorities_fall_and_never_leave_the_range() {
        let mut text = Vec::new();
        let left_out = write_squashfs_sort(&[b"/b c", b"/x\ny", b"/d"], &mut text).unwrap();
        assert_eq!((text.as_slice(), left_out), (&b"b\\ c 32767\nd 32765\n"[..], 1));
        let names: Vec<Vec<u8>> = (0..70_000).map(|n| format!("/{n}").into_bytes()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let mut text = Vec::new();
        write_squashfs_sort(&names, &mut text).unwrap();
        let last = String::from_utf8(text).unwrap().lines().last().unwrap().to_string();
        assert_eq!(last, "69999 -32767");
    }
}
