//! Finds members of an archive by their path, without unpacking it.

use super::reader::Reader;
use super::{Spooled, relative};
use seekless_fs::FsError;
use std::collections::HashMap;

/// A member of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Member {
    /// A file: offset of its bytes in the archive's file, and their number.
    File { start: u64, len: u64 },
    /// A link to another member, by its path.
    Link(Vec<u8>),
}

/// The files and links of an archive by their paths; `None` if it is damaged.
pub(crate) fn members(
    archive: &Spooled,
    name: &str,
) -> Result<Option<HashMap<Vec<u8>, Member>>, FsError> {
    let mut reader = Reader::new(&archive.file, archive.base, archive.len, name);
    let mut members = HashMap::new();
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Some(members)),
            // The reader of ordinary archives reports the fault.
            Err(FsError::Archive { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(path) = relative(&entry.path()) else { continue };
        // A later entry replaces an earlier one.
        members.remove(&path);
        if entry.sparse.is_some() {
            continue;
        }
        let link = || {
            let own = &entry.extra.link_path;
            own.clone().unwrap_or_else(|| entry.header().link_name().to_vec())
        };
        let member = match entry.header().kind() {
            b'0' | 0 | b'7' if !path.is_empty() => {
                Member::File { start: archive.base + entry.data, len: entry.stored }
            }
            b'1' => Member::Link(link()),
            b'2' => Member::Link(beside(&path, &link())),
            _ => continue,
        };
        members.insert(path, member);
    }
}

/// A symlink's target as a path from the archive's root.
fn beside(path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    names.pop();
    if target.starts_with(b"/") {
        names.clear();
    }
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_from_the_root() {
        assert_eq!(beside(b"a/layer.tar", b"../b/layer.tar"), b"b/layer.tar");
        assert_eq!(beside(b"a/layer.tar", b"/b.tar"), b"b.tar");
        assert_eq!(beside(b"a", b"./b"), b"b");
        assert_eq!(beside(b"a", b"../../b"), b"b");
    }
}
