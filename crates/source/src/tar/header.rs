//! The 512-byte header of an archive's entry: v7, ustar and GNU.

use seekless_fs::ArchiveFault;

/// Bytes in a block: a header is one block, contents are padded to whole ones.
pub(super) const BLOCK: usize = 512;

/// The runs of a sparse file's stored bytes: offsets and lengths.
pub(super) type Runs = Vec<(u64, u64)>;

/// A header block. Fields are at fixed offsets; numbers are octal text, or
/// binary when the first bit is set (GNU).
pub(super) struct Header<'a>(pub(super) &'a [u8; BLOCK]);

impl<'a> Header<'a> {
    fn field<const AT: usize, const LEN: usize>(&self) -> &'a [u8] {
        const { assert!(AT + LEN <= BLOCK) };
        &self.0[AT..AT + LEN]
    }

    /// Whether the block is all zeros: the mark of the archive's end.
    pub(super) fn is_end(&self) -> bool {
        self.0.iter().all(|&byte| byte == 0)
    }

    /// Whether the checksum is right, summed over unsigned or (as very old writers did) signed
    /// bytes, with spaces in place of its own field.
    pub(super) fn is_sound(&self) -> bool {
        let field = self.field::<148, 8>();
        // The checksum is never in base 256.
        let Some(stored) = octal(field) else { return false };
        let bytes = || {
            let outside = |&(at, _): &(usize, &u8)| !(148..156).contains(&at);
            self.0.iter().enumerate().filter(outside).map(|(_, &byte)| byte)
        };
        let spaces = 8 * i64::from(b' ');
        let unsigned: i64 = bytes().map(i64::from).sum();
        let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
        stored == unsigned + spaces || stored == signed + spaces
    }

    /// Whether a block whose checksum is wrong is a damaged header rather than anything else: it has
    /// the magic number of ustar or GNU, or most of its numbers are written as archivers do.
    pub(super) fn is_damaged(&self) -> bool {
        let numbers = [
            self.field::<100, 8>(),
            self.field::<108, 8>(),
            self.field::<116, 8>(),
            self.field::<124, 12>(),
            self.field::<136, 12>(),
            self.field::<148, 8>(),
        ];
        let written = numbers.iter().filter(|field| is_padded_octal(field)).count();
        self.is_ustar() || self.is_gnu() || written >= numbers.len() - 2
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    /// Whether the block has GNU's fields where ustar has its prefix.
    pub(super) fn is_gnu(&self) -> bool {
        self.field::<257, 8>() == b"ustar  \0"
    }

    /// Whether the block is of ustar.
    pub(super) fn is_ustar(&self) -> bool {
        self.field::<257, 6>() == b"ustar\0"
    }

    /// The name, preceded by ustar's prefix.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(self.field::<0, 100>());
        let prefix = text(self.field::<345, 155>());
        if self.is_ustar() && !prefix.is_empty() {
            [prefix, b"/", name].concat()
        } else {
            name.to_vec()
        }
    }

    pub(super) fn link_name(&self) -> &'a [u8] {
        text(self.field::<157, 100>())
    }

    pub(super) fn user_name(&self) -> &'a [u8] {
        text(self.field::<265, 32>())
    }

    pub(super) fn group_name(&self) -> &'a [u8] {
        text(self.field::<297, 32>())
    }

    pub(super) fn mode(&self) -> Result<u16, ArchiveFault> {
        // Some writers store the kind in the upper bits as well.
        Ok((number(self.field::<100, 8>(), "mode")? & 0o7777) as u16)
    }

    pub(super) fn uid(&self) -> Result<u32, ArchiveFault> {
        small(self.field::<108, 8>(), "uid")
    }

    pub(super) fn gid(&self) -> Result<u32, ArchiveFault> {
        small(self.field::<116, 8>(), "gid")
    }

    pub(super) fn size(&self) -> Result<u64, ArchiveFault> {
        length(self.field::<124, 12>(), "size")
    }

    pub(super) fn mtime(&self) -> Result<i64, ArchiveFault> {
        number(self.field::<136, 12>(), "mtime")
    }

    /// A device's numbers; v7 has none.
    pub(super) fn device(&self) -> Result<(u32, u32), ArchiveFault> {
        if self.field::<257, 5>() != b"ustar" {
            return Ok((0, 0));
        }
        Ok((small(self.field::<329, 8>(), "devmajor")?, small(self.field::<337, 8>(), "devminor")?))
    }

    /// GNU's sparse map: the first four runs, whether blocks with more follow,
    /// and the file's length with its holes.
    pub(super) fn sparse(&self) -> Result<(Runs, bool, u64), ArchiveFault> {
        let mut runs = Vec::new();
        sparse_runs(self.field::<386, 96>(), &mut runs)?;
        Ok((runs, self.0[482] != 0, length(self.field::<483, 12>(), "realsize")?))
    }
}

/// Appends the runs in a block that continues a GNU sparse map to `runs`. Returns whether another
/// such block follows.
pub(super) fn sparse_extension(
    block: &[u8; BLOCK],
    runs: &mut Vec<(u64, u64)>,
) -> Result<bool, ArchiveFault> {
    sparse_runs(&block[..504], runs)?;
    Ok(block[504] != 0)
}

fn sparse_runs(table: &[u8], runs: &mut Vec<(u64, u64)>) -> Result<(), ArchiveFault> {
    for slot in table.chunks_exact(24) {
        let (offset, bytes) = slot.split_at(12);
        if offset[0] == 0 || bytes[0] == 0 {
            break;
        }
        runs.push((length(offset, "sparse offset")?, length(bytes, "sparse numbytes")?));
    }
    Ok(())
}

/// A text field: up to its zero byte, or the whole field.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// A number: octal text between spaces and zero bytes, empty for zero; or
/// big-endian two's complement with the first bit set.
fn number(field: &[u8], name: &'static str) -> Result<i64, ArchiveFault> {
    let bad = || ArchiveFault::Number(name);
    let first = *field.first().ok_or_else(bad)?;
    if first & 0x80 != 0 {
        // The mark is the top bit; the one below it is the sign.
        let start = i64::from((first << 1).cast_signed() >> 1);
        return field[1..]
            .iter()
            .try_fold(start, |value, &byte| value.checked_mul(256)?.checked_add(i64::from(byte)))
            .ok_or_else(bad);
    }
    octal(field).ok_or_else(bad)
}

/// Octal digits after spaces; a zero byte or a space ends them, whatever follows.
fn octal(field: &[u8]) -> Option<i64> {
    let digits = text(field).trim_ascii_start();
    let end = digits.iter().position(u8::is_ascii_whitespace).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0i64, |value, &digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

/// Whether a field is octal digits, with spaces in front of them and a space or a zero byte behind.
fn is_padded_octal(field: &[u8]) -> bool {
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| !matches!(byte, b'0'..=b'7')).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let is_padding = |byte: &u8| matches!(byte, 0 | b' ');
    !digits.is_empty() && !rest.is_empty() && rest.iter().all(is_padding)
}

fn length(field: &[u8], name: &'static str) -> Result<u64, ArchiveFault> {
    u64::try_from(number(field, name)?).map_err(|_| ArchiveFault::Number(name))
}

fn small(field: &[u8], name: &'static str) -> Result<u32, ArchiveFault> {
    u32::try_from(number(field, name)?).map_err(|_| ArchiveFault::Number(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_their_forms() {
        for (field, value) in [
            (&b"0000644\0"[..], Ok(0o644)),
            (b"   644 \0", Ok(0o644)),
            (b"\0\0\0\0\0\0\0\0", Ok(0)),
            (b"\x80\0\0\0\0\0\x01\0", Ok(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Ok(-2)),
            (b"00008\0\0\0", Err(())),
            (b"0644 \x81  ", Ok(0o644)),
            (b"0644\x81   ", Err(())),
            (b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Err(())),
        ] {
            assert_eq!(number(field, "x").map_err(|_| ()), value, "{field:x?}");
        }
    }
}
