//! Random archives: headers of all formats combined as writers do, and as none does.

use crate::craft::{BLOCK, Format, Header, Number, extended, number, padded, record, seal};
use crate::random::Random;

/// An archive, with the offsets of its headers.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    headers: Vec<usize>,
    /// Names of regular files.
    files: Vec<Vec<u8>>,
    /// Whether there is a global header. At a second one GNU tar forgets all of the first, against
    /// POSIX.
    has_global: bool,
}

/// The archive of a seed. Most are well-formed; the others have a fault.
pub(crate) fn archive(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut archive = Archive::default();
    let is_odd = random.chance(45);
    for _ in 0..=random.next(7) {
        entry(random, &mut archive, is_odd);
        if is_odd && random.chance(2) {
            archive.bytes.resize(archive.bytes.len() + BLOCK, 0);
        }
    }
    if !is_odd || random.chance(90) {
        let end = if is_odd && random.chance(20) { BLOCK } else { 2 * BLOCK };
        archive.bytes.resize(archive.bytes.len() + end, 0);
        if random.chance(20) {
            let len = archive.bytes.len().next_multiple_of(20 * BLOCK);
            archive.bytes.resize(len, 0);
        }
        if is_odd && random.chance(10) {
            archive.bytes.extend_from_slice(b"something behind the end");
        }
    }
    if is_odd && random.chance(50) {
        damage(random, &mut archive);
    }
    archive.bytes
}

/// Names that coincide with each other, in different spellings if `is_odd`.
fn name(random: &mut Random, is_odd: bool) -> Vec<u8> {
    let plain: &[&[u8]] = &[b"a", b"b", b"d", b"d/a", b"d/b", b"e/f/g", b"e", b"d/c"];
    let name = random.text(plain).to_vec();
    if !random.chance(if is_odd { 30 } else { 15 }) {
        return name;
    }
    let with = |front: &[u8], behind: &[u8]| [front, &name, behind].concat();
    match random.next(if is_odd { 16 } else { 8 }) {
        0 => with(b"./", b""),
        1 => with(b"/", b""),
        2 => with(b"", b"\xc3\xa4"),
        3 => with(b"", b" "),
        4 => with(b"", b"/./x"),
        5 => with(b"", b"//y"),
        6 => b"./".to_vec(),
        7 => with(&[b'n'; 97], b""),
        8 => with(b"", b"/"),
        9 => with(b"", b"\xff\n"),
        10 => b".".to_vec(),
        11 => b"/".to_vec(),
        12 => Vec::new(),
        13 => with(b"../", b""),
        14 => with(b"", b"/../z"),
        _ => with(b"", b"\\*?"),
    }
}

fn contents(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| *random.pick(b"xyz")).collect()
}

fn length(random: &mut Random) -> u64 {
    *random.pick(&[0, 1, 511, 512, 513, 1000, 1024])
}

fn entry(random: &mut Random, archive: &mut Archive, is_odd: bool) {
    let mut path = name(random, is_odd);
    let kinds: &[u8] = b"0000\x00\x0011222345556677";
    let mut kind = *random.pick(kinds);
    if kind == b'1' && archive.files.is_empty() && !is_odd {
        kind = b'6';
    }
    // Directories with entries are rarely replaced.
    if matches!(&path[..], b"d" | b"e") && !random.chance(5) {
        kind = b'5';
    }
    if random.chance(9) {
        kind = b'S';
    } else if is_odd && random.chance(6) {
        kind = *random.pick(b"AEIDDMNVXZz8");
    }
    let format = *random.pick(&[Format::V7, Format::Ustar, Format::Ustar, Format::Gnu]);
    let format = match kind {
        b'S' | b'D' => Format::Gnu,
        b'3'..=b'7' if format == Format::V7 && !is_odd => Format::Ustar,
        _ => format,
    };
    let mut header = Header { format, mtime: 1_500_000_000, ..Header::new(&path, kind) };
    header.numbers = *random.pick(&[
        Number::Plain,
        Number::Plain,
        Number::Space,
        Number::Full,
        Number::Padded,
        Number::Binary,
    ]);
    header.mode = *random.pick(&[0o644, 0o755, 0o600, 0o4755, 0o1777, 0o2750, 0]);
    if is_odd || random.chance(10) {
        header.mode |= *random.pick(&[0, 0o100_000, 0o040_000, 0o20_0000]);
    }
    header.owner = *random.pick(&[(0, 0), (5, 6), (1000, 1000), (2_097_151, 9), (3_000_000, 7)]);
    header.mtime = *random.pick(&[0, 1, 1_500_000_000, 1_600_000_001, -1, 8_589_934_592]);
    if is_odd && random.chance(5) {
        // Not 4294967295, which chown(2) interprets as "unchanged".
        header.owner.0 = *random.pick(&[-2, 4_294_967_294, 4_294_967_296]);
    }
    if matches!(kind, b'5' | b'D') || path.ends_with(b"/") {
        // Files extracted below would get the directory's group.
        header.mode &= !0o2000;
    }
    let has_contents = matches!(kind, b'0' | 0 | b'7' | b'D');
    let mut body = Vec::new();
    if has_contents {
        let len = length(random);
        body = contents(random, len);
        header.size = len;
    } else if random.chance(if is_odd { 25 } else { 8 }) && kind != b'S' {
        header.size = *random.pick(&[1, 512, 1000, 5000]);
    }
    if kind == b'1' {
        header.link = match archive.files.is_empty() || (is_odd && random.chance(15)) {
            true => name(random, is_odd),
            false => random.pick(&archive.files).clone(),
        };
        if random.chance(10) {
            header.link = [random.text(&[b"/", b"./", b"d/../"]), &header.link].concat();
        }
    }
    if kind == b'2' {
        let targets: &[&[u8]] = &[b"a", b"d", b"/d", b"../x", b"e/./f", b"nothing/there", b"d/"];
        header.link = random.text(targets).to_vec();
        if header.link.contains(&b'.') || header.link.starts_with(b"/") {
            // GNU tar makes such links last, and may take a replacement of one for its placeholder.
            path.extend_from_slice(b"link");
            header.name = path.clone();
        }
    }
    if matches!(kind, b'3' | b'4') {
        header.device = *random.pick(&[(1, 3), (7, 0), (5, 1), (300, 70_000)]);
    }
    if format == Format::Ustar && random.chance(10) {
        header.prefix = random.text(&[b"pre", b"d", b"pre/fix/", b"."]).to_vec();
        path = [&header.prefix, &b"/"[..], &header.name].concat();
    }
    let sparse_form = match kind {
        b'S' => Some(0),
        b'0' if format == Format::Ustar && random.chance(12) => Some(1 + random.next(3)),
        _ => None,
    };
    if let Some(form) = sparse_form {
        if path.ends_with(b"/") || path.is_empty() {
            path = b"s".to_vec();
            header.name = path.clone();
        }
        let map = sparse_map(random, is_odd);
        return sparse(random, archive, &header, &path, form, &map, is_odd);
    }
    path = before(random, archive, &mut header, path, is_odd);
    put(random, archive, &header, &body, is_odd);
    if matches!(kind, b'0' | 0 | b'7') {
        archive.files.push(path);
    }
}

/// Adds headers in front of an entry. Returns the entry's resulting path.
fn before(
    random: &mut Random,
    archive: &mut Archive,
    header: &mut Header,
    mut path: Vec<u8>,
    is_odd: bool,
) -> Vec<u8> {
    let mut made: Vec<Vec<u8>> = Vec::new();
    if header.kind == b'2' && random.chance(10) {
        let target = contents(random, 150);
        let zero: &[u8] = if random.chance(50) { b"\0" } else { b"" };
        made.push(extended(b'K', b"././@LongLink", Format::Gnu, &[&target, zero].concat()));
        header.link = target[..100].to_vec();
    }
    if random.chance(12) {
        let long = [&contents(random, 70)[..], b"/", &contents(random, 90), b"L"].concat();
        path = if random.chance(60) { long } else { [&path[..], b"L"].concat() };
        let zero: &[u8] = if random.chance(70) { b"\0" } else { b"" };
        made.push(extended(b'L', b"././@LongLink", Format::Gnu, &[&path, zero].concat()));
        header.name = b"short".to_vec();
        header.prefix.clear();
    }
    let count =
        if is_odd { random.next(4).saturating_sub(1) } else { u64::from(random.chance(35)) };
    for _ in 0..count {
        let mut kind = *random.pick(if is_odd { &b"xxxxXg"[..] } else { b"xxxxxxxxxX" });
        if kind == b'g' && std::mem::replace(&mut archive.has_global, true) {
            kind = b'x';
        }
        let mut body = records(random, header, &mut path, is_odd, kind == b'g');
        if is_odd && random.chance(8) {
            spoil(random, &mut body);
        }
        made.push(extended(kind, b"PaxHeaders/x", Format::Ustar, &body));
    }
    if is_odd && made.len() > 1 && random.chance(40) {
        made.rotate_left(1);
    }
    for block in made {
        archive.headers.push(archive.bytes.len());
        archive.bytes.extend_from_slice(&block);
    }
    path
}

fn records(
    random: &mut Random,
    header: &Header,
    path: &mut Vec<u8>,
    is_odd: bool,
    is_global: bool,
) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..=random.next(4) {
        let made = match random.next(if is_odd { 22 } else { 14 }) {
            0 if !is_global => {
                *path = [&path[..], b"P"].concat();
                record(b"path", path)
            }
            1 => record(
                b"mtime",
                random.text(&[b"1600000003", b"1.5", b"1600000001.123456789", b"5.0"]),
            ),
            2 => record(b"uid", random.next(70_000).to_string().as_bytes()),
            3 => record(b"gid", random.next(70_000).to_string().as_bytes()),
            4 => record(b"comment", &[b'c'; 200][..random.next(200) as usize]),
            5 if !is_global => record(b"size", header.size.to_string().as_bytes()),
            6 => record(b"atime", b"1600000002.25"),
            7 => record(b"SCHILY.dev", b"42"),
            8 if !is_global && matches!(header.kind, b'0' | b'5' | b'7') => {
                record(b"SCHILY.xattr.user.x", b"1\n=\0y")
            }
            9 if !is_global && !path.is_empty() && matches!(header.kind, b'0' | b'5' | b'7') => {
                record(b"LIBARCHIVE.xattr.user.l%20m", b"aGVsbG8")
            }
            10 if matches!(header.kind, b'1' | b'2') => {
                record(b"linkpath", random.text(&[b"a", b"d/a", b"b", b"/a", b"aP"]))
            }
            11 => record(b"uname", b"nobody-here"),
            12 => record(b"ctime", b"1600000004"),
            13 if matches!(header.kind, b'0' | b'5') => record(
                b"SCHILY.acl.access",
                b"user::rw-,user:5:r--,group::r--,mask::r--,other::r--",
            ),
            14 => record(b"ctime", b""),
            15 => record(b"mtime", random.text(&[b"-1.5", b"-3", b"", b"1.", b".5", b"1e3"])),
            16 if !is_global => {
                record(b"size", random.text(&[b"0", b"", b"1", b"512", b"x", b"-1"]))
            }
            17 => record(b"uid", random.text(&[b"", b"-1", b"4294967296", b"007", b" 5"])),
            18 => record(b"linkpath", random.text(&[b"", b"a", b"nope"])),
            19 => record(b"", b"nothing"),
            20 if !is_global => record(b"SCHILY.xattr.user.a%3Db", b"v"),
            _ => record(b"hdrcharset", b"BINARY"),
        };
        body.extend_from_slice(&made);
    }
    body
}

/// Damages records by odd lengths, or removes them.
fn spoil(random: &mut Random, body: &mut Vec<u8>) {
    match random.next(7) {
        0 => body[0] = *random.pick(b"0 19x+\0-"),
        1 => body.truncate(body.len() - 1),
        2 => body.extend_from_slice(&[0; 20]),
        3 => body.extend_from_slice(b"0 x=y\n"),
        4 => *body = [b"0", &body[..]].concat(),
        5 => *body = [b" ", &body[..]].concat(),
        _ => {
            let at = random.next(body.len() as u64) as usize;
            body[at] = *random.pick(b" =\n09");
        }
    }
}

/// A map of runs, and the length of the file.
fn sparse_map(random: &mut Random, is_odd: bool) -> (Vec<(u64, u64)>, u64) {
    let count = *random.pick(&[0, 1, 2, 3, 4, 5, 24, 25, 26, 50]);
    let (mut runs, mut at) = (Vec::new(), 0);
    for nth in 0..count {
        // Only the last run may have a partial block: GNU tar pads each.
        at += 512 * random.next(4);
        let is_last = nth + 1 == count;
        let len = if is_last { 1 + random.next(1024) } else { 512 * (1 + random.next(2)) };
        runs.push((at, len));
        at += len;
    }
    // A file that ends in a hole has an empty run at its end.
    let real = if !is_odd || random.chance(85) {
        let real = at + if random.chance(50) { random.next(3000) } else { 0 };
        runs.push((real, 0));
        real
    } else {
        at
    };
    if is_odd && !runs.is_empty() && random.chance(15) {
        let nth = random.next(runs.len() as u64) as usize;
        runs[nth].1 = *random.pick(&[0, 1, 4096, u64::MAX >> 1]);
    }
    (runs, real)
}

/// A sparse file: in GNU's own form (0), or in PAX' forms 0.0 (1), 0.1 (2) and 1.0 (3).
fn sparse(
    random: &mut Random,
    archive: &mut Archive,
    header: &Header,
    path: &[u8],
    form: u64,
    (runs, real): &(Vec<(u64, u64)>, u64),
    is_odd: bool,
) {
    let len: u64 = runs.iter().map(|&(_, len)| len.min(1 << 20)).sum();
    let data = contents(random, len);
    let mut header = header.clone();
    let text = |name: &str, value: String| record(name.as_bytes(), value.as_bytes());
    let (mut map, mut body) = (Vec::new(), data.clone());
    match form {
        0 => {
            header.size = len;
            let mut block = header.block();
            let rest = old_runs(&mut block[386..482], runs);
            number(&mut block[483..495], *real as i64, Number::Plain);
            block[482] = u8::from(!rest.is_empty());
            seal(&mut block);
            archive.headers.push(archive.bytes.len());
            archive.bytes.extend_from_slice(&block);
            let mut rest = rest;
            while !rest.is_empty() {
                let mut more = [0; BLOCK];
                rest = old_runs(&mut more[..504], rest);
                more[504] = u8::from(!rest.is_empty());
                archive.bytes.extend_from_slice(&more);
            }
            archive.bytes.extend_from_slice(&padded(&data));
            archive.files.push(path.to_vec());
            return;
        }
        1 => {
            map.extend(text("GNU.sparse.size", real.to_string()));
            map.extend(text("GNU.sparse.numblocks", runs.len().to_string()));
            for (offset, len) in runs {
                map.extend(text("GNU.sparse.offset", offset.to_string()));
                map.extend(text("GNU.sparse.numbytes", len.to_string()));
            }
        }
        2 => {
            let numbers: Vec<String> =
                runs.iter().map(|(offset, len)| format!("{offset},{len}")).collect();
            map.extend(text("GNU.sparse.size", real.to_string()));
            map.extend(text("GNU.sparse.numblocks", runs.len().to_string()));
            map.extend(record(b"GNU.sparse.name", path));
            if !runs.is_empty() || is_odd {
                map.extend(text("GNU.sparse.map", numbers.join(",")));
            }
            header.name = b"GNUSparseFile.1/x".to_vec();
        }
        _ => {
            map.extend(text("GNU.sparse.major", "1".into()));
            map.extend(text("GNU.sparse.minor", "0".into()));
            map.extend(record(b"GNU.sparse.name", path));
            map.extend(text("GNU.sparse.realsize", real.to_string()));
            header.name = b"GNUSparseFile.1/x".to_vec();
            let mut lines = format!("{}\n", runs.len());
            for (offset, len) in runs {
                lines += &format!("{offset}\n{len}\n");
            }
            body = [&padded(lines.as_bytes())[..], &data].concat();
        }
    }
    if form != 1 {
        header.prefix.clear();
    }
    header.size = body.len() as u64;
    if is_odd && random.chance(8) {
        spoil(random, &mut map);
    }
    archive.headers.push(archive.bytes.len());
    archive.bytes.extend(extended(b'x', b"PaxHeaders/x", Format::Ustar, &map));
    put(random, archive, &header, &body, is_odd);
    archive.files.push(path.to_vec());
}

/// Writes runs in GNU's own form. Returns those that did not fit.
fn old_runs<'a>(table: &mut [u8], runs: &'a [(u64, u64)]) -> &'a [(u64, u64)] {
    let slots = table.len() / 24;
    for (slot, &(offset, len)) in table.chunks_exact_mut(24).zip(runs) {
        number(&mut slot[..12], offset as i64, Number::Plain);
        number(&mut slot[12..], len as i64, Number::Plain);
    }
    &runs[runs.len().min(slots)..]
}

/// A header and its contents.
fn put(random: &mut Random, archive: &mut Archive, header: &Header, body: &[u8], is_odd: bool) {
    archive.headers.push(archive.bytes.len());
    archive.bytes.extend_from_slice(&header.block());
    let whole = padded(body);
    let is_cut = is_odd && random.chance(2);
    archive.bytes.extend_from_slice(if is_cut { body } else { &whole });
}

/// Changes a byte of a header, with or without its checksum, or cuts the archive off.
fn damage(random: &mut Random, archive: &mut Archive) {
    if random.chance(15) {
        let cut = 1 + random.next(900) as usize;
        archive.bytes.truncate(archive.bytes.len().saturating_sub(cut));
        return;
    }
    let at = *random.pick(&archive.headers);
    let Some(block) = archive.bytes.get_mut(at..at + BLOCK) else { return };
    let fields = [
        0, 99, 100, 106, 107, 108, 115, 116, 124, 130, 134, 135, 136, 147, 148, 155, 156, 157, 257,
        262, 263, 265, 329, 336, 337, 345, 475, 482, 500,
    ];
    let field = *random.pick(&fields);
    let values = [0, b' ', b'0', b'1', b'7', b'8', b'9', b'-', b'/', b'x', 0x80, 0x81, 0xff];
    block[field] = *random.pick(&values);
    match random.next(20) {
        0 => {}
        // The sum over signed bytes.
        1 => {
            block[148..156].copy_from_slice(b"        ");
            let sum: i64 = block.iter().map(|&byte| i64::from(byte.cast_signed())).sum();
            let text = format!("{:06o}\0 ", sum.max(0));
            block[148..156].copy_from_slice(text.as_bytes());
        }
        _ => {
            let kept = block[148..156].to_vec();
            seal(block);
            if (148..156).contains(&field) {
                block[148..156].copy_from_slice(&kept);
            }
        }
    }
}
