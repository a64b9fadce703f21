//! Extended headers, which describe the following entry: PAX records, and GNU's entries for long
//! names.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use seekless_fs::{ArchiveFault, Timestamp, Xattr};

/// Fields of an entry that replace those in its header.
#[derive(Clone, Default)]
pub(super) struct Overrides {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) atime: Option<Timestamp>,
    pub(super) ctime: Option<Timestamp>,
    pub(super) crtime: Option<Timestamp>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) acl_access: Option<Vec<u8>>,
    pub(super) acl_default: Option<Vec<u8>>,
    /// Whether there is an NFSv4 access control list.
    pub(super) has_nfs4_acl: bool,
    pub(super) sparse: Sparse,
}

/// `GNU.sparse.*`, versions 0.0, 0.1 and 1.0.
#[derive(Clone, Default)]
pub(super) struct Sparse {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    pub(super) runs: Option<Vec<(u64, u64)>>,
    offset: Option<u64>,
}

impl Overrides {
    /// Parses the records of a PAX header.
    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), ArchiveFault> {
        // Some writers pad with zero bytes.
        while !records.is_empty() && records[0] != 0 {
            let (key, value, rest) = record(records).ok_or(ArchiveFault::Pax)?;
            self.set(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveFault> {
        match key {
            b"path" => self.path = some(value),
            b"linkpath" => self.link_path = some(value),
            b"size" => self.size = decimal(value, "size")?,
            b"uid" => self.uid = small(value, "uid")?,
            b"gid" => self.gid = small(value, "gid")?,
            b"mtime" => self.mtime = time(value, "mtime")?,
            b"atime" => self.atime = time(value, "atime")?,
            b"ctime" => self.ctime = time(value, "ctime")?,
            b"LIBARCHIVE.creationtime" => self.crtime = time(value, "creationtime")?,
            b"SCHILY.acl.access" => self.acl_access = some(value),
            b"SCHILY.acl.default" => self.acl_default = some(value),
            b"SCHILY.acl.ace" => self.has_nfs4_acl = !value.is_empty(),
            b"RHT.security.selinux" => {
                let value = [value, b"\0"].concat();
                self.xattr(b"security.selinux".to_vec(), value);
            }
            _ => return self.set_by_prefix(key, value),
        }
        Ok(())
    }

    fn set_by_prefix(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveFault> {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            // GNU tar encodes these two in names: an equals sign would end the key.
            let name = percent_decoded(name, |code| matches!(code, b'=' | b'%'));
            self.xattr(name, value.to_vec());
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let name = percent_decoded(name, |_| true);
            // The plain form of the same attribute is already exact.
            if self.xattrs.iter().all(|xattr| xattr.name != name) {
                let decoded = STANDARD.decode(value).or_else(|_| STANDARD_NO_PAD.decode(value));
                self.xattr(name, decoded.map_err(|_| ArchiveFault::Pax)?);
            }
        } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
            self.sparse.set(key, value)?;
        }
        // All others (comments, charsets, vendors' own) describe nothing that a file system stores.
        Ok(())
    }

    fn xattr(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.xattrs.retain(|xattr| xattr.name != name);
        self.xattrs.push(Xattr { name, value });
    }
}

impl Sparse {
    pub(super) fn is_present(&self) -> bool {
        self.major.is_some() || self.real_size.is_some() || self.runs.is_some()
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveFault> {
        match key {
            b"major" => self.major = decimal(value, "GNU.sparse.major")?,
            b"minor" => self.minor = decimal(value, "GNU.sparse.minor")?,
            b"name" => self.name = some(value),
            b"size" | b"realsize" => self.real_size = decimal(value, "GNU.sparse.size")?,
            b"offset" => self.offset = decimal(value, "GNU.sparse.offset")?,
            b"numbytes" => {
                let offset = self.offset.take().ok_or(ArchiveFault::SparseMap)?;
                let bytes = decimal(value, "GNU.sparse.numbytes")?;
                let bytes = bytes.ok_or(ArchiveFault::SparseMap)?;
                self.runs.get_or_insert_default().push((offset, bytes));
            }
            b"map" => self.runs = Some(map(value)?),
            _ => {}
        }
        Ok(())
    }
}

/// Splits off the first record, `LENGTH KEY=VALUE\n`.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|&byte| byte == b' ')?;
    let len = usize::try_from(parse_decimal(&records[..space])?).ok()?;
    let (record, rest) = records.split_at_checked(len)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|&byte| byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

/// An empty value cancels that of a global header.
fn some(value: &[u8]) -> Option<Vec<u8>> {
    if value.is_empty() { None } else { Some(value.to_vec()) }
}

fn decimal(value: &[u8], name: &'static str) -> Result<Option<u64>, ArchiveFault> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_decimal(value).map(Some).ok_or(ArchiveFault::Number(name))
}

fn small(value: &[u8], name: &'static str) -> Result<Option<u32>, ArchiveFault> {
    let number = decimal(value, name)?;
    number.map(|n| u32::try_from(n).map_err(|_| ArchiveFault::Number(name))).transpose()
}

/// Parses digits as a number that is valid as a length or offset.
pub(super) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0u64, |value, &digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })?;
    (value <= i64::MAX as u64).then_some(value)
}

/// Seconds with an optional fraction; digits past the ninth are cut off, towards the past. Trailing
/// text is ignored, as in GNU tar and libarchive: Python writes `1e-05`.
fn time(value: &[u8], name: &'static str) -> Result<Option<Timestamp>, ArchiveFault> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_time(value).map(Some).ok_or(ArchiveFault::Number(name))
}

fn parse_time(value: &[u8]) -> Option<Timestamp> {
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let leading = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (whole, rest) = digits.split_at(leading(digits));
    let secs = parse_decimal(whole)? as i64;
    let fraction = rest.strip_prefix(b".").unwrap_or_default();
    let fraction = &fraction[..leading(fraction)];
    let digit = |at: usize| fraction.get(at).map_or(0, |&digit| u32::from(digit - b'0'));
    let nanos = (0..9).fold(0, |nanos, at| nanos * 10 + digit(at));
    Some(match (negative, nanos) {
        (false, _) => Timestamp { secs, nanos },
        (true, 0) => Timestamp { secs: -secs, nanos: 0 },
        (true, _) => Timestamp { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
    })
}

/// Parses `offset,length,offset,length...`
fn map(value: &[u8]) -> Result<Vec<(u64, u64)>, ArchiveFault> {
    let mut numbers = value.split(|&byte| byte == b',').map(parse_decimal);
    let mut runs = Vec::new();
    while let Some(offset) = numbers.next() {
        let bytes = numbers.next().flatten();
        runs.push(offset.zip(bytes).ok_or(ArchiveFault::SparseMap)?);
    }
    Ok(runs)
}

/// Decodes `%` and two digits in a name, for bytes for which `is_encoded` is true.
fn percent_decoded(name: &[u8], is_encoded: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let hex = name.get(at + 1..at + 3).filter(|_| byte == b'%');
        let code = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|&code| is_encoded(code)) {
            Some(code) => {
                decoded.push(code);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_hold_newlines_and_zero_bytes() {
        let mut read = Overrides::default();
        read.read(b"27 SCHILY.xattr.user.a=\n\0=\n30 mtime=1700000000.123456789\n").unwrap();
        assert_eq!(read.xattrs[0].value, b"\n\0=");
        assert_eq!(read.mtime, Some(Timestamp { secs: 1_700_000_000, nanos: 123_456_789 }));
        for bad in [&b"5 a=b"[..], b"99 a=b\n", b"x a=b\n", b"6 abc\n", b"0 a=b\n"] {
            assert!(Overrides::default().read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_before_1970_round_towards_the_past() {
        assert_eq!(parse_time(b"-1.25"), Some(Timestamp { secs: -2, nanos: 750_000_000 }));
        assert_eq!(parse_time(b"-1"), Some(Timestamp { secs: -1, nanos: 0 }));
        assert_eq!(parse_time(b"2.0000000019"), Some(Timestamp { secs: 2, nanos: 1 }));
        assert_eq!(parse_time(b"1e-05"), Some(Timestamp { secs: 1, nanos: 0 }));
        assert_eq!(parse_time(b"x"), None);
    }

    #[test]
    fn attribute_names_of_libarchive_are_decoded() {
        let mut read = Overrides::default();
        read.set(b"LIBARCHIVE.xattr.user.a%20b", b"aGk").unwrap();
        assert_eq!(read.xattrs, [Xattr { name: b"user.a b".to_vec(), value: b"hi".to_vec() }]);
    }
}
