//! Blocks of archives, written field by field in each format.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;

/// The format of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    V7,
    Ustar,
    Gnu,
}

/// The encoding of a number in its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    /// Leading zeros, terminated by a zero byte.
    Plain,
    /// Leading zeros, terminated by a space.
    Space,
    /// Leading zeros, not terminated.
    Full,
    /// Leading spaces, terminated by a space and a zero byte.
    Padded,
    /// Base 256.
    Binary,
}

/// A header before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) format: Format,
    pub(crate) name: Vec<u8>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: i64,
    pub(crate) owner: (i64, i64),
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) device: (u32, u32),
    pub(crate) numbers: Number,
}

impl Header {
    pub(crate) fn new(name: &[u8], kind: u8) -> Self {
        Self {
            format: Format::Ustar,
            name: name.to_vec(),
            prefix: Vec::new(),
            kind,
            link: Vec::new(),
            mode: 0o644,
            owner: (0, 0),
            size: 0,
            mtime: 1_600_000_000,
            device: (0, 0),
            numbers: Number::Plain,
        }
    }

    /// The block, with its checksum.
    pub(crate) fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut text = |at: usize, most: usize, bytes: &[u8]| {
            let len = bytes.len().min(most);
            block[at..at + len].copy_from_slice(&bytes[..len]);
        };
        text(0, 100, &self.name);
        text(156, 1, &[self.kind]);
        text(157, 100, &self.link);
        match self.format {
            Format::V7 => {}
            Format::Ustar => {
                text(257, 8, b"ustar\x0000");
                text(345, 155, &self.prefix);
            }
            Format::Gnu => text(257, 8, b"ustar  \0"),
        }
        let (uid, gid) = self.owner;
        let mut fields =
            vec![(100, 8, self.mode), (108, 8, uid), (116, 8, gid), (124, 12, self.size as i64)];
        fields.push((136, 12, self.mtime));
        if self.format != Format::V7 {
            fields.push((329, 8, i64::from(self.device.0)));
            fields.push((337, 8, i64::from(self.device.1)));
        }
        for (at, len, value) in fields {
            number(&mut block[at..at + len], value, self.numbers);
        }
        seal(&mut block);
        block
    }
}

/// Writes a number; one that does not fit in octal digits is in base 256.
pub(crate) fn number(field: &mut [u8], value: i64, style: Number) {
    let len = field.len();
    let text = match style {
        Number::Plain => format!("{value:0width$o}\0", width = len - 1),
        Number::Space => format!("{value:0width$o} ", width = len - 1),
        Number::Full => format!("{value:0len$o}"),
        Number::Padded => format!("{value:width$o} \0", width = len - 2),
        Number::Binary => String::new(),
    };
    if value >= 0 && text.len() == len {
        field.copy_from_slice(text.as_bytes());
        return;
    }
    let fill = if value < 0 { 0xff } else { 0 };
    field.fill(fill);
    let bytes = value.to_be_bytes();
    let used = bytes.len().min(len);
    field[len - used..].copy_from_slice(&bytes[bytes.len() - used..]);
    field[0] = if value < 0 { 0xff } else { 0x80 | field[0] };
}

/// Writes the checksum of a block.
pub(crate) fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Contents with zeros up to the end of their block.
pub(crate) fn padded(contents: &[u8]) -> Vec<u8> {
    let mut bytes = contents.to_vec();
    bytes.resize(contents.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// A record of a PAX header.
pub(crate) fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// A header with contents that describes the following entry.
pub(crate) fn extended(kind: u8, name: &[u8], format: Format, contents: &[u8]) -> Vec<u8> {
    let header = Header { format, size: contents.len() as u64, ..Header::new(name, kind) };
    [&header.block()[..], &padded(contents)].concat()
}
