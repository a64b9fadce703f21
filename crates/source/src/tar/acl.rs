//! Conversion of access control lists from text, the form in archives, to the form of
//! `system.posix_acl_*`.

use seekless_fs::ArchiveFault;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// Names whose ids are in an entry's header.
pub(super) struct Owner<'a> {
    pub(super) user: (&'a [u8], u32),
    pub(super) group: (&'a [u8], u32),
}

/// Converts a list; `None` if it is equivalent to the mode.
///
/// Entries are `tag:name:rwx` with an optional fourth field, the id. The id is taken from that
/// field, or from the name itself if it is a number, or from the header if it has the same name, or
/// else from this machine, as in `tar`.
pub(super) fn from_text(text: &[u8], owner: &Owner<'_>) -> Result<Option<Vec<u8>>, ArchiveFault> {
    let mut entries = Vec::new();
    for line in text.split(|&byte| byte == b'\n' || byte == b',') {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if !line.is_empty() {
            entries.push(entry(line, owner)?);
        }
    }
    if entries.iter().all(|&(tag, ..)| matches!(tag, USER_OBJ | GROUP_OBJ | OTHER)) {
        return Ok(None);
    }
    entries.sort_unstable_by_key(|&(tag, _, id)| (tag, id));
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    Ok(Some(acl))
}

fn entry(line: &[u8], owner: &Owner<'_>) -> Result<(u16, u16, u32), ArchiveFault> {
    let bad = |why: &str| {
        ArchiveFault::Other(format!("access control list: '{}': {why}", line.escape_ascii()))
    };
    let mut fields = line.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let mut next = || fields.next().ok_or_else(|| bad("invalid entry"));
    let (tag, name, perm) = (next()?, next()?, next()?);
    let number = fields.next();
    let perm = permissions(perm).ok_or_else(|| bad("unknown permissions"))?;
    let (plain, named, known, table) = match tag {
        b"user" | b"u" => (USER_OBJ, USER, owner.user, "/etc/passwd"),
        b"group" | b"g" => (GROUP_OBJ, GROUP, owner.group, "/etc/group"),
        b"mask" | b"m" => return Ok((MASK, perm, NO_ID)),
        b"other" | b"o" => return Ok((OTHER, perm, NO_ID)),
        _ => return Err(bad("unknown tag")),
    };
    if name.is_empty() {
        return Ok((plain, perm, NO_ID));
    }
    let id = number.and_then(numeric).or_else(|| numeric(name));
    let id = id.or_else(|| (name == known.0).then_some(known.1));
    let id = id.or_else(|| on_this_machine(table, name));
    let id =
        id.ok_or_else(|| bad("the name is unknown, both in the archive and on this machine"))?;
    Ok((named, perm, id))
}

/// The id of a name in `/etc/passwd` or `/etc/group`.
fn on_this_machine(table: &str, name: &[u8]) -> Option<u32> {
    let text = std::fs::read(table).ok()?;
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        if fields.next()? == name { numeric(fields.nth(1)?) } else { None }
    })
}

fn numeric(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn permissions(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0, |perm, letter| match letter {
        b'r' => Some(perm | 4),
        b'w' => Some(perm | 2),
        b'x' => Some(perm | 1),
        b'-' => Some(perm),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner<'_> = Owner { user: (b"me", 5), group: (b"us", 6) };

    #[test]
    fn lists_become_what_the_kernel_stores() {
        let acl =
            from_text(b"user::rw-\nuser:1000:r--\ngroup::r--\nmask::r--\nother::---\n", &OWNER);
        let acl = acl.unwrap().unwrap();
        assert_eq!(acl.len(), 4 + 5 * 8);
        assert_eq!(acl[12..20], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
        assert!(from_text(b"user::rw-,group::r--,other::r--", &OWNER).unwrap().is_none());
        assert!(from_text(b"u::rw-,u:me:r--,g::r--,m::r,o::-", &OWNER).unwrap().is_some());
        assert!(from_text(b"user:no-one-has-this-name:rw-", &OWNER).is_err());
        let root = from_text(b"u::r,u:root:rw-,g::r,o::r,m::r", &OWNER).unwrap().unwrap();
        assert_eq!(root[12..20], [2, 0, 6, 0, 0, 0, 0, 0]);
        assert!(from_text(b"user:lisa:rw-:77", &OWNER).unwrap().is_some());
    }
}
