//! Tables of devices and permissions: those of genext2fs and mkfs.jffs2, and those of makedevs in
//! Buildroot.
//!
//! A line is `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`; `-` is nothing. The two differ in
//! series of devices, in missing files, and in the types that they have.

use super::AmendError;
use super::capability;
use super::edit::{Edit, NewContent};
use super::extra::mtime_of_list;
use super::owners::Owners;
use crate::accounts::number;
use crate::list::{self, ListError, device, lines, shown, words};
use crate::tar::AddError;
use seekless_fs::tree::{NewPayload, NodeAttr, NodeId};
use seekless_fs::{DeviceNumber, FileKind, FsError, Timestamp, Xattr};
use std::path::{Path, PathBuf};

/// A table, read from a file.
#[derive(Clone, Debug)]
pub struct DeviceTable {
    path: PathBuf,
    syntax: TableSyntax,
    /// The time of the files that only it has.
    mtime: Timestamp,
    entries: Vec<TableEntry>,
}

/// The program whose tables these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableSyntax {
    /// genext2fs, and mkfs.jffs2: a series has the numbers from START up to COUNT, without it.
    Genext2fs,
    /// makedevs of Buildroot: a series has COUNT numbers from START on.
    Makedevs,
}

#[derive(Clone, Debug)]
struct TableEntry {
    line: usize,
    /// Relative to the root.
    path: Vec<u8>,
    kind: EntryKind,
    /// Permissions; `None` to keep them.
    perm: Option<u16>,
    owner: Vec<u8>,
    group: Vec<u8>,
    device: DeviceNumber,
    /// The suffixes and numbers of a series.
    series: Vec<(String, DeviceNumber)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum EntryKind {
    File { may_lack: bool },
    Directory,
    Recursive,
    Special(FileKind),
    Capability(Vec<u8>),
}

/// Most files in all series of a table: as many as a driver has minor numbers.
const LONGEST_SERIES: usize = 1 << 20;

impl DeviceTable {
    /// Reads a table.
    ///
    /// # Errors
    /// [`ListError`] for a file that cannot be read, and for a malformed line.
    pub fn read(path: &Path, syntax: TableSyntax) -> Result<Self, ListError> {
        let text = list::read(path)?;
        let (mut entries, mut in_series) = (Vec::new(), 0);
        for (line, text) in lines(&text) {
            let fields: Vec<&[u8]> = words(text).collect();
            if fields.first().is_none_or(|first| first.starts_with(b"#")) {
                continue;
            }
            let entry = parse(line, &fields, syntax, entries.last());
            let entry = entry.map_err(|why| ListError::line(path, line, why))?;
            in_series += entry.series.len();
            if in_series > LONGEST_SERIES {
                let why = format!("the series have more than {LONGEST_SERIES} files");
                return Err(ListError::line(path, line, why));
            }
            entries.push(entry);
        }
        Ok(Self { path: path.to_path_buf(), syntax, mtime: mtime_of_list(path)?, entries })
    }

    /// Makes the changes of all lines, in order.
    pub(super) fn apply(&self, edit: &mut Edit) -> Result<(), AmendError> {
        let owners = Owners::of(edit)?;
        for entry in &self.entries {
            let refused = |why: String| ListError::line(&self.path, entry.line, why);
            let uid = owners.user(&entry.owner).map_err(refused)?;
            let gid = owners.group(&entry.group).map_err(refused)?;
            self.apply_entry(edit, entry, (uid, gid)).map_err(|fault| match fault {
                TableFault::Refused(why) => AmendError::from(refused(why)),
                TableFault::Add(AddError::Fault(fault)) => refused(fault.to_string()).into(),
                // A name that no tree can have.
                TableFault::Add(AddError::Fs(FsError::Invalid(why))) => refused(why).into(),
                TableFault::Add(AddError::Fs(error)) => error.into(),
            })?;
        }
        Ok(())
    }

    fn apply_entry(
        &self,
        edit: &mut Edit,
        entry: &TableEntry,
        owner: (u32, u32),
    ) -> Result<(), TableFault> {
        let TableEntry { path, perm, .. } = entry;
        let name = || format!("/{}", shown(path));
        match &entry.kind {
            EntryKind::File { may_lack } => match edit.find(path)? {
                Some(node) if edit.node(node).kind == FileKind::Regular => {
                    change(edit, node, *perm, owner)?;
                }
                Some(_) => {
                    return Err(TableFault::Refused(format!("{} is not a regular file", name())));
                }
                None if *may_lack => {}
                None if self.syntax == TableSyntax::Makedevs => {
                    return Err(TableFault::Refused(format!(
                        "the regular file {} is missing",
                        name()
                    )));
                }
                None => {
                    self.require_parent(edit, path)?;
                    edit.add_file(
                        path,
                        self.attr(FileKind::Regular, *perm, owner),
                        NewContent::Empty,
                    )?;
                }
            },
            EntryKind::Directory => match edit.directory(path) {
                Some(node) => change(edit, node, *perm, owner)?,
                None if edit.find(path)?.is_some() => {
                    return Err(TableFault::Refused(format!("{} is not a directory", name())));
                }
                None => {
                    let attr = self.attr(FileKind::Directory, *perm, owner);
                    if self.syntax == TableSyntax::Makedevs {
                        self.make_parents(edit, path, attr)?;
                    }
                    self.require_parent(edit, path)?;
                    edit.add(path, attr, NewPayload::None)?;
                }
            },
            EntryKind::Recursive => {
                let found = edit.find(path)?;
                let missing = || TableFault::Refused(format!("{} is missing", name()));
                for node in edit.below(found.ok_or_else(missing)?) {
                    let is_link = edit.node(node).kind == FileKind::Symlink;
                    change(edit, node, perm.filter(|_| !is_link), owner)?;
                }
            }
            EntryKind::Special(kind) => {
                self.require_parent(edit, path)?;
                let attr = self.attr(*kind, *perm, owner);
                if entry.series.is_empty() {
                    self.add_special(edit, path, attr, entry.device)?;
                }
                for (suffix, device) in &entry.series {
                    let path = [path.as_slice(), suffix.as_bytes()].concat();
                    self.add_special(edit, &path, attr, *device)?;
                }
            }
            EntryKind::Capability(text) => {
                let missing = || TableFault::Refused(format!("{} is missing", name()));
                let node = edit.find(path)?.ok_or_else(missing)?;
                let old = edit.xattrs(node).into_iter().find(|it| it.name == capability::NAME);
                let old = old.map(|xattr| xattr.value).unwrap_or_default();
                let value = capability::with(&old, text).map_err(TableFault::Refused)?;
                let xattr = Xattr { name: capability::NAME.to_vec(), value };
                edit.set_xattr(node, xattr).map_err(AddError::from)?;
            }
        }
        Ok(())
    }

    fn add_special(
        &self,
        edit: &mut Edit,
        path: &[u8],
        attr: NodeAttr,
        device: DeviceNumber,
    ) -> Result<(), TableFault> {
        let payload = match attr.kind {
            FileKind::CharDevice | FileKind::BlockDevice => NewPayload::Device(device),
            _ => NewPayload::None,
        };
        match edit.find(path)? {
            Some(node) if edit.node(node).kind != attr.kind => {
                let why = format!("/{} is a file of another type", shown(path));
                Err(TableFault::Refused(why))
            }
            _ => Ok(edit.add(path, attr, payload)?),
        }
    }

    fn require_parent(&self, edit: &Edit, path: &[u8]) -> Result<(), TableFault> {
        let above = above(path);
        match edit.directory(above) {
            Some(_) => Ok(()),
            None => Err(TableFault::Refused(format!("the directory /{} is missing", shown(above)))),
        }
    }

    /// Makes missing directories above a path, with the mode of that at the path, owned by root.
    fn make_parents(&self, edit: &mut Edit, path: &[u8], attr: NodeAttr) -> Result<(), TableFault> {
        let above = above(path);
        if edit.directory(above).is_none() {
            self.make_parents(edit, above, attr)?;
            edit.add(above, NodeAttr { uid: 0, gid: 0, ..attr }, NewPayload::None)?;
        }
        Ok(())
    }

    fn attr(&self, kind: FileKind, perm: Option<u16>, (uid, gid): (u32, u32)) -> NodeAttr {
        let perm = perm.unwrap_or(0o755);
        NodeAttr { kind, perm, uid, gid, size: 0, mtime: self.mtime, times: None, flags: 0 }
    }
}

/// The reason why a line cannot be followed.
enum TableFault {
    Refused(String),
    Add(AddError),
}

impl From<AddError> for TableFault {
    fn from(error: AddError) -> Self {
        Self::Add(error)
    }
}

fn change(
    edit: &mut Edit,
    node: NodeId,
    perm: Option<u16>,
    (uid, gid): (u32, u32),
) -> Result<(), AddError> {
    let attr = edit.attr(node);
    let attr = NodeAttr { perm: perm.unwrap_or(attr.perm), uid, gid, ..attr };
    Ok(edit.set_attr(node, attr)?)
}

/// The path of the directory that a path is in.
fn above(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    slash.and_then(|at| path.get(..at)).unwrap_or_default()
}

fn parse(
    line: usize,
    fields: &[&[u8]],
    syntax: TableSyntax,
    before: Option<&TableEntry>,
) -> Result<TableEntry, String> {
    let is_makedevs = syntax == TableSyntax::Makedevs;
    if let [b"|xattr", text] = fields
        && is_makedevs
    {
        let before = before.ok_or("a line |xattr follows that of its file")?;
        let kind = EntryKind::Capability(text.to_vec());
        let TableEntry { path, owner, group, .. } = before;
        let [path, owner, group] = [path, owner, group].map(Vec::clone);
        let (device, series) = (DeviceNumber::default(), Vec::new());
        return Ok(TableEntry { line, path, kind, perm: None, owner, group, device, series });
    }
    let [name, kind, mode, owner, group, numbers @ ..] = fields else {
        return Err("not a line NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT".into());
    };
    if numbers.len() > 5 {
        return Err("more than ten fields".into());
    }
    let kind = match *kind {
        b"f" => EntryKind::File { may_lack: false },
        b"F" if is_makedevs => EntryKind::File { may_lack: true },
        b"d" => EntryKind::Directory,
        b"r" if is_makedevs => EntryKind::Recursive,
        b"c" => EntryKind::Special(FileKind::CharDevice),
        b"b" => EntryKind::Special(FileKind::BlockDevice),
        b"p" => EntryKind::Special(FileKind::Fifo),
        b"s" if !is_makedevs => EntryKind::Special(FileKind::Socket),
        b"l" => return Err("type 'l': a table has no targets for symlinks".into()),
        other => return Err(format!("'{}' is not a type of such a table", shown(other))),
    };
    let may_keep =
        matches!(kind, EntryKind::File { .. } | EntryKind::Recursive | EntryKind::Directory);
    let perm = match *mode {
        b"-1" if is_makedevs && may_keep => None,
        text => {
            Some(octal(text).ok_or_else(|| format!("'{}' is not a mode in octal", shown(text)))?)
        }
    };
    let mut values = [0; 5];
    for (value, text) in values.iter_mut().zip(numbers) {
        *value = match *text {
            b"-" => 0,
            text => number(text).ok_or_else(|| format!("'{}' is not a number", shown(text)))?,
        };
    }
    let [major, minor, start, step, count] = values;
    let has_series = match kind {
        EntryKind::Special(FileKind::CharDevice | FileKind::BlockDevice) => true,
        EntryKind::Special(_) => is_makedevs,
        _ => false,
    };
    let device = device(major, minor)?;
    let series =
        if has_series { series(syntax, device, (start, step, count))? } else { Vec::new() };
    let path = list::path_of(&[name]).map_err(|why| format!("{}: {why}", shown(name)))?;
    if path.is_empty() && !matches!(kind, EntryKind::Directory | EntryKind::Recursive) {
        return Err("the root is a directory".into());
    }
    let id = |text: &[u8]| if text == b"-" { b"0".to_vec() } else { text.to_vec() };
    Ok(TableEntry { line, path, kind, perm, owner: id(owner), group: id(group), device, series })
}

/// The suffixes and numbers of a series; nothing for a single file.
fn series(
    syntax: TableSyntax,
    DeviceNumber { major, minor }: DeviceNumber,
    (start, step, count): (u32, u32, u32),
) -> Result<Vec<(String, DeviceNumber)>, String> {
    let numbers = match syntax {
        TableSyntax::Genext2fs if count == 0 => return Ok(Vec::new()),
        TableSyntax::Genext2fs => start..count,
        // A series of one has no number.
        TableSyntax::Makedevs if count < 2 => return Ok(Vec::new()),
        TableSyntax::Makedevs => start..start.checked_add(count).ok_or("COUNT is too large")?,
    };
    if numbers.is_empty() {
        return Err("COUNT is the end of the series, and must be above START".into());
    }
    if numbers.len() > LONGEST_SERIES {
        return Err("COUNT is too large".into());
    }
    let number_of = |number: u32| {
        let [minor, number, step, start] = [minor, number, step, start].map(u64::from);
        let value = match syntax {
            TableSyntax::Genext2fs => (minor + number * step).checked_sub(start),
            TableSyntax::Makedevs => Some(minor + (number - start) * step),
        };
        let minor = value.and_then(|value| u32::try_from(value).ok());
        device(major, minor.ok_or("a minor number is out of range")?)
    };
    numbers.map(|number| Ok((number.to_string(), number_of(number)?))).collect()
}

/// Permissions in octal digits.
fn octal(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777)
}
