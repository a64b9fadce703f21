//! Owners by name, as the tree's own `/etc/passwd` and `/etc/group` have them.

use super::edit::Edit;
use crate::accounts::{LONGEST, ids_in, number};
use crate::list::shown;
use seekless_fs::FsError;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Numbers of the users and groups of a tree.
pub(super) struct Owners {
    users: HashMap<Vec<u8>, u32>,
    groups: HashMap<Vec<u8>, u32>,
}

impl Owners {
    /// Reads the users and groups of a tree.
    pub(super) fn of(edit: &mut Edit) -> Result<Self, FsError> {
        let mut ids =
            |path| Ok::<_, FsError>(ids_in(&edit.read(path, LONGEST)?.unwrap_or_default()));
        Ok(Self { users: ids(b"etc/passwd")?, groups: ids(b"etc/group")? })
    }

    /// Reads the users and groups of files of the host, as far as these can be read.
    pub(super) fn of_files(passwd: Option<&Path>, group: Option<&Path>) -> Self {
        let ids = |path: Option<&Path>| {
            let path = path.filter(|path| fs::metadata(path).is_ok_and(|found| found.is_file()));
            let mut text = Vec::new();
            let read = path
                .and_then(|path| File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok());
            read.map(|_| ids_in(&text)).unwrap_or_default()
        };
        Self { users: ids(passwd), groups: ids(group) }
    }

    /// A user's number, from a number or name.
    pub(super) fn user(&self, text: &[u8]) -> Result<u32, String> {
        let found = number(text).or_else(|| self.users.get(text).copied());
        found.ok_or_else(|| format!("user '{}' is not in the tree's /etc/passwd", shown(text)))
    }

    /// A group's number, from a number or name.
    pub(super) fn group(&self, text: &[u8]) -> Result<u32, String> {
        let found = number(text).or_else(|| self.groups.get(text).copied());
        found.ok_or_else(|| format!("group '{}' is not in the tree's /etc/group", shown(text)))
    }
}
