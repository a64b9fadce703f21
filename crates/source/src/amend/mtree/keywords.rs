//! Keywords of an entry.

use super::digests::Digest;
use super::vis;
use crate::list::{self, shown};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use seekless_fs::acl::{Acl, AclKind};
use seekless_fs::{DeviceNumber, FileKind, Timestamp, Xattr, inode_flag};
use std::collections::BTreeSet;
use std::str::FromStr;

/// The keywords of an entry that have an effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Keywords {
    pub(super) kind: Option<FileKind>,
    pub(super) perm: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) uname: Option<Vec<u8>>,
    pub(super) gname: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) time: Option<Timestamp>,
    /// Target of a symlink.
    pub(super) link: Option<Vec<u8>>,
    pub(super) device: Option<DeviceNumber>,
    pub(super) flags: Option<u32>,
    /// Path of the contents on the host.
    pub(super) contents: Option<Vec<u8>>,
    /// Path of the file of which this is another name.
    pub(super) hardlink: Option<Vec<u8>>,
    /// Device and inode of the file: equal for names of one file.
    pub(super) resdevice: Option<Vec<u8>>,
    pub(super) inode: Option<Vec<u8>>,
    pub(super) digests: Vec<Digest>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) is_optional: bool,
    /// Only the presence of the file is checked.
    pub(super) is_unchanged: bool,
}

/// Keywords that describe a tree's storage, or the program that wrote the manifest.
const SILENT: &[&str] = &["nlink", "tags", "all"];

impl Keywords {
    /// Sets a keyword, given as `NAME` or `NAME=VALUE`. Adds one that has no effect to `idle`.
    pub(super) fn set(&mut self, word: &[u8], idle: &mut BTreeSet<String>) -> Result<(), String> {
        let equals = word.iter().position(|&byte| byte == b'=');
        let (name, value) = match equals {
            Some(at) => (word.get(..at), word.get(at + 1..)),
            None => (Some(word), None),
        };
        let name = shown(name.unwrap_or_default());
        let set = match value {
            Some(value) => self.set_value(&name, value, idle),
            None => {
                self.set_flag(&name, idle);
                Ok(())
            }
        };
        set.map_err(|why| format!("{}: {why}", shown(word)))
    }

    fn set_flag(&mut self, name: &str, idle: &mut BTreeSet<String>) {
        match name {
            "optional" => self.is_optional = true,
            "nochange" => self.is_unchanged = true,
            _ => idle_keyword(name, idle),
        }
    }

    fn set_value(
        &mut self,
        name: &str,
        value: &[u8],
        idle: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        match name {
            "type" => self.kind = Some(kind_of(value).ok_or("not a type of file")?),
            "mode" => self.perm = Some(mode_of(value).ok_or("not a mode in octal")?),
            "uid" => self.uid = Some(number(value)?),
            "gid" => self.gid = Some(number(value)?),
            "uname" => self.uname = Some(vis::decoded(value)?),
            "gname" => self.gname = Some(vis::decoded(value)?),
            "size" => self.size = Some(number(value)?),
            "time" => self.time = Some(time_of(value).ok_or("not a time")?),
            "link" => self.link = Some(vis::decoded(value)?),
            "device" => {
                let DeviceNumber { major, minor } =
                    device_of(value).ok_or("not a device number")?;
                self.device = Some(list::device(major, minor)?);
            }
            "flags" => self.flags = Some(flags_of(value)?),
            "contents" | "content" => self.contents = Some(vis::decoded(value)?),
            "hardlink" => self.hardlink = Some(vis::decoded(value)?),
            "resdevice" => self.resdevice = Some(value.to_vec()),
            "inode" => self.inode = Some(value.to_vec()),
            name => {
                if let Some(name) = name.strip_prefix("xattr.") {
                    let value = STANDARD.decode(value).map_err(|_| "not in Base64")?;
                    let name = vis::decoded(name.as_bytes())?;
                    if AclKind::of(&name).is_some() && Acl::parse(&value).is_err() {
                        return Err("not an access control list".into());
                    }
                    self.xattrs.retain(|xattr| xattr.name != name);
                    self.xattrs.push(Xattr { name, value });
                } else if let Some(digest) = Digest::new(name, value) {
                    let digest = digest.ok_or("not a digest")?;
                    self.digests.retain(|other| !other.has_kind_of(&digest));
                    self.digests.push(digest);
                } else {
                    idle_keyword(name, idle);
                }
            }
        }
        Ok(())
    }

    /// Removes a keyword that `/set` gave.
    pub(super) fn unset(&mut self, name: &[u8]) {
        match name {
            b"all" => *self = Self::default(),
            b"type" => self.kind = None,
            b"mode" => self.perm = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"uname" => self.uname = None,
            b"gname" => self.gname = None,
            b"size" => self.size = None,
            b"time" => self.time = None,
            b"link" => self.link = None,
            b"device" => self.device = None,
            b"flags" => self.flags = None,
            b"contents" | b"content" => self.contents = None,
            b"hardlink" => self.hardlink = None,
            b"resdevice" => self.resdevice = None,
            b"inode" => self.inode = None,
            b"optional" => self.is_optional = false,
            b"nochange" => self.is_unchanged = false,
            name => {
                self.digests.retain(|digest| !digest.has_keyword(name));
                self.xattrs.retain(|it| name.strip_prefix(b"xattr.") != Some(it.name.as_slice()));
            }
        }
    }
}

fn idle_keyword(name: &str, idle: &mut BTreeSet<String>) {
    if !SILENT.contains(&name) {
        idle.insert(name.to_string());
    }
}

fn kind_of(text: &[u8]) -> Option<FileKind> {
    Some(match text {
        b"file" => FileKind::Regular,
        b"dir" => FileKind::Directory,
        b"link" => FileKind::Symlink,
        b"char" => FileKind::CharDevice,
        b"block" => FileKind::BlockDevice,
        b"fifo" => FileKind::Fifo,
        b"socket" => FileKind::Socket,
        _ => return None,
    })
}

fn number<T: FromStr>(text: &[u8]) -> Result<T, String> {
    digits(text).ok_or_else(|| "not a number".into())
}

fn digits<T: FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn mode_of(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777)
}

/// Seconds, and behind a dot the number of nanoseconds, which is no fraction.
fn time_of(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let nanos = digits(nanos.as_bytes()).filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Timestamp { secs: secs.parse().ok()?, nanos })
}

/// `FORMAT,MAJOR,MINOR`, or the number that Linux makes of both.
fn device_of(text: &[u8]) -> Option<DeviceNumber> {
    let parts: Vec<&[u8]> = text.split(|&byte| byte == b',').collect();
    match parts.as_slice() {
        [number] => {
            let text = std::str::from_utf8(number).ok()?;
            let value = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok()?,
                None => digits(number)?,
            };
            Some(DeviceNumber { major: rustix::fs::major(value), minor: rustix::fs::minor(value) })
        }
        [b"native" | b"linux" | b"freebsd" | b"netbsd" | b"4bsd", major, minor] => {
            Some(DeviceNumber { major: digits(major)?, minor: digits(minor)? })
        }
        _ => None,
    }
}

fn flags_of(text: &[u8]) -> Result<u32, String> {
    let mut flags = 0;
    for name in text.split(|&byte| byte == b',') {
        flags |= match name {
            b"none" | b"" => 0,
            b"schg" | b"schange" | b"simmutable" | b"uchg" | b"uchange" | b"uimmutable" => {
                inode_flag::IMMUTABLE
            }
            b"sappnd" | b"sappend" | b"uappnd" | b"uappend" => inode_flag::APPEND,
            b"nodump" => inode_flag::NODUMP,
            b"noatime" => inode_flag::NOATIME,
            b"sync" => inode_flag::SYNC,
            b"dirsync" => inode_flag::DIRSYNC,
            b"journal-data" | b"journal" => inode_flag::JOURNAL_DATA,
            b"topdir" => inode_flag::TOPDIR,
            b"hidden" | b"uhidden" => inode_flag::HIDDEN,
            b"system" | b"usystem" => inode_flag::SYSTEM,
            // Archived, without a place in an inode.
            b"arch" | b"archived" | b"uarch" | b"uarchive" => 0,
            _ => return Err(format!("'{}' is not a flag that images have", shown(name))),
        };
    }
    Ok(flags)
}
