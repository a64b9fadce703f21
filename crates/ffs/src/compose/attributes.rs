//! Extended attributes as UFS2 stores them: records one after the other in an area of an inode's
//! own (`struct extattr`).

use crate::make::encode::Page;
use seekless_fs::Xattr;
use seekless_fs::term::{Term, Text};

/// Bytes in front of a name.
const HEAD: usize = 7;

/// The namespaces of the format and their numbers.
const NAMESPACES: [(&[u8], u8); 2] = [(b"user.", 1), (b"system.", 2)];

/// The number of the namespace, and the name within it, of an attribute that the format can store.
fn placed(xattr: &Xattr) -> Option<(u8, &[u8])> {
    // Linux' ACL attributes have another form here, and another name.
    if xattr.name.starts_with(b"system.posix_acl") {
        return None;
    }
    let within = |&(prefix, number): &(&[u8], u8)| {
        let name = xattr.name.strip_prefix(prefix)?;
        (!name.is_empty() && name.len() <= 255).then_some((number, name))
    };
    NAMESPACES.iter().find_map(within)
}

/// The area of a set of attributes; empty for none. `drop` leaves out attributes that the format
/// cannot store; otherwise the first of them is the error.
pub(super) fn encode(xattrs: &[Xattr], big_endian: bool, drop: bool) -> Result<Vec<u8>, &Xattr> {
    let mut area = Vec::new();
    for xattr in xattrs {
        match placed(xattr) {
            Some((number, name)) => put(&mut area, number, name, &xattr.value, big_endian),
            None if drop => {}
            None => return Err(xattr),
        }
    }
    Ok(area)
}

/// The reason why an attribute cannot be stored, and a remedy.
pub(super) fn refusal(xattr: &Xattr) -> Text {
    let what = format!(
        "extended attribute {} cannot be stored on UFS, which has the namespaces user and system, \
         on UFS2 (",
        String::from_utf8_lossy(&xattr.name)
    );
    Text::from(what).then(Term::DropXattrs).then(" leaves it out)")
}

fn put(area: &mut Vec<u8>, number: u8, name: &[u8], value: &[u8], big_endian: bool) {
    debug_assert!(area.len().is_multiple_of(8), "records are aligned");
    debug_assert!(name.len() <= 255, "a name of {} bytes", name.len());
    let base = (HEAD + name.len()).next_multiple_of(8);
    let len = (base + value.len()).next_multiple_of(8);
    let mut record = Page { bytes: vec![0; len], big_endian };
    record.u32(0, len as u32);
    record.raw(4, &[number, (len - base - value.len()) as u8, name.len() as u8]);
    record.raw(HEAD, name);
    record.raw(base, value);
    area.extend_from_slice(&record.bytes);
}
