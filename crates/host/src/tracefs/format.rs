//! The `format` file of an event: the layout of its records.

use std::collections::HashMap;

/// The location of a field in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// The field contains offset and length of the value, which is stored elsewhere in the record
    /// (`__data_loc`).
    pub elsewhere: bool,
}

/// The layout of an event's records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// The event's number, with which its records begin.
    pub id: u16,
    fields: HashMap<String, Field>,
}

impl Format {
    /// Parses the text of a `format` file; `None` if it has no number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(field).collect();
        Some(Self { id, fields })
    }

    /// The location of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }

    /// A field's value as an unsigned number of up to 8 bytes.
    #[must_use]
    pub fn number(&self, name: &str, record: &[u8]) -> Option<u64> {
        let Field { offset, size, .. } = self.field(name)?;
        let bytes = record.get(offset..offset.checked_add(size)?)?;
        let mut wide = [0; 8];
        let low = if cfg!(target_endian = "little") { 0 } else { 8usize.checked_sub(size)? };
        wide.get_mut(low..low + size)?.copy_from_slice(bytes);
        Some(u64::from_ne_bytes(wide))
    }

    /// A field's value as text, up to its first zero byte.
    #[must_use]
    pub fn text(&self, name: &str, record: &[u8]) -> Option<String> {
        let field = self.field(name)?;
        let (offset, size) = if field.elsewhere {
            let place = self.number(name, record)?;
            ((place & 0xffff) as usize, (place >> 16) as usize)
        } else {
            (field.offset, field.size)
        };
        let bytes = record.get(offset..offset.checked_add(size)?)?;
        let bytes = bytes.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// `field:unsigned long i_ino; offset:8; size:8; signed:0;`, with tabs.
fn field(line: &str) -> Option<(String, Field)> {
    let line = line.trim().strip_prefix("field:")?;
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration.rsplit([' ', '*']).next()?.split('[').next()?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            _ => {}
        }
    }
    let elsewhere = declaration.starts_with("__data_loc");
    Some((name.to_string(), Field { offset: offset?, size: size?, elsewhere }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: sched_process_fork\nID: 312\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char newcomm[4];\toffset:12;\tsize:4;\tsigned:0;\n\
        \nprint fmt: \"comm=%s\", __get_str(parent_comm)\n";

    #[test]
    fn fields_are_found_and_read() {
        let format = Format::parse(TEXT).unwrap();
        assert_eq!(format.id, 312);
        let mut record = vec![0; 16];
        record[4..8].copy_from_slice(&77u32.to_ne_bytes());
        record[8..12].copy_from_slice(&(16u32 | (3 << 16)).to_ne_bytes());
        record[12..16].copy_from_slice(b"ab\0x");
        record.extend(b"cp\0");
        assert_eq!(format.number("common_pid", &record), Some(77));
        assert_eq!(format.text("newcomm", &record).as_deref(), Some("ab"));
        assert_eq!(format.text("parent_comm", &record).as_deref(), Some("cp"));
        assert_eq!(format.number("no_such", &record), None);
        assert_eq!(format.number("newcomm", &record[..13]), None);
    }
}
