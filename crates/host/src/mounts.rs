//! The mount table (`/proc/self/mountinfo`, proc_pid_mountinfo(5)).

use crate::HostError;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A device number, split into major and minor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Splits a device number of `stat`.
    #[must_use]
    pub fn from_stat(dev: u64) -> Self {
        Self { major: libc::major(dev), minor: libc::minor(dev) }
    }

    /// `dev_t` inside the kernel, as in trace events: 20 bits of minor.
    #[must_use]
    pub const fn in_kernel(self) -> u64 {
        ((self.major as u64) << 20) | self.minor as u64
    }

    /// The start of a partition on its device, in sectors of 512 bytes; 0 for other devices.
    #[must_use]
    pub fn first_sector(self) -> u64 {
        let start = fs::read_to_string(self.in_sysfs().join("start"));
        start.ok().and_then(|start| start.trim().parse().ok()).unwrap_or(0)
    }

    /// The device's statistics, readable even after sysfs is moved; `None` for files other than
    /// block devices.
    #[must_use]
    pub fn statistics(self) -> Option<Statistics> {
        Some(Statistics(fs::File::open(self.in_sysfs().join("stat")).ok()?))
    }

    /// The device's directory in sysfs.
    #[must_use]
    pub fn in_sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }
}

/// The counters of a block device (`Documentation/block/stat.rst`).
#[derive(Debug)]
pub struct Statistics(fs::File);

impl Statistics {
    /// Number of reads completed since the device was added; `None` if the device is gone.
    #[must_use]
    pub fn reads(&self) -> Option<u64> {
        let mut text = [0; 512];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The device; anonymous (major 0) for file systems without one.
    pub device: DeviceNumber,
    /// The part of the file system that is mounted, `/` for the whole.
    pub root: PathBuf,
    /// The mount point.
    pub dir: PathBuf,
    /// `ext4`, `xfs` ...
    pub fs_type: String,
    /// The device's name, or another string chosen by the file system.
    pub source: PathBuf,
    /// Whether the file system is mounted writable, here or at another mount point.
    pub is_writable: bool,
}

impl Mount {
    /// The path on the file system, from its root, of a path of this machine; `None` for a path
    /// that is not below the mount point.
    #[must_use]
    pub fn inside(&self, path: &Path) -> Option<Vec<u8>> {
        let below = path.strip_prefix(&self.dir).ok()?;
        let whole =
            if below.as_os_str().is_empty() { self.root.clone() } else { self.root.join(below) };
        Some(whole.into_os_string().into_vec())
    }
}

/// All mounts that this process sees, in the order of the mount table.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn all() -> Result<Vec<Mount>, HostError> {
    let path = "/proc/self/mountinfo";
    let text = std::fs::read(path).map_err(|error| HostError::new(path, error))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The mount that contains a path.
///
/// # Errors
/// If the path does not exist, or its mount is not listed.
pub fn holding(path: &Path) -> Result<Mount, HostError> {
    let shown = || path.display().to_string();
    let whole = path.canonicalize().map_err(|error| HostError::new(shown(), error))?;
    let dev = whole.metadata().map_err(|error| HostError::new(shown(), error))?.dev();
    let device = DeviceNumber::from_stat(dev);
    let mounts = all()?;
    let above = |mount: &&Mount| whole.starts_with(&mount.dir);
    // The last of several mounts on one directory hides the others. btrfs reports other device
    // numbers in stat than in the list, so a different number does not exclude a mount.
    let depth = |mount: &&Mount| (mount.device == device, mount.dir.components().count());
    let found =
        mounts.iter().filter(above).enumerate().max_by_key(|(at, mount)| (depth(mount), *at));
    found
        .map(|(_, mount)| mount.clone())
        .ok_or_else(|| HostError::lacking(shown(), "its mount is not in /proc/self/mountinfo"))
}

/// The mount of a device that is nearest to the root, to find it after it was moved.
///
/// # Errors
/// If the device is not mounted where this process sees it.
pub fn of_device(device: DeviceNumber) -> Result<Mount, HostError> {
    let whole = |mount: &Mount| (mount.root.components().count(), mount.dir.components().count());
    let found = all()?.into_iter().filter(|mount| mount.device == device).min_by_key(whole);
    found.ok_or_else(|| {
        let what = format!("device {}:{}", device.major, device.minor);
        HostError::lacking(what, "its mount is not in /proc/self/mountinfo")
    })
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let root = path(fields.next()?);
    let dir = path(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = path(rest.next()?);
    let is_writable = rest.next()?.split(|&byte| byte == b',').any(|option| option == b"rw");
    Some(Mount { device, root, dir, fs_type, source, is_writable })
}

/// Decodes the octal escapes of a path.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| byte == b'\\') {
            Some(code) => {
                bytes.push(code);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// The block device of a mount: its source if that is a node with the mount's device number, else
/// the node that sysfs names.
///
/// # Errors
/// If no node with that number can be found.
pub fn block_device(mount: &Mount) -> Result<PathBuf, HostError> {
    let is_it = |path: &Path| {
        path.metadata().is_ok_and(|meta| DeviceNumber::from_stat(meta.rdev()) == mount.device)
    };
    if is_it(&mount.source) {
        return Ok(mount.source.clone());
    }
    let DeviceNumber { major, minor } = mount.device;
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let name = link.ok().and_then(|link| link.file_name().map(|name| name.as_bytes().to_vec()));
    let node = name.map(|name| Path::new("/dev").join(OsString::from_vec(name)));
    node.filter(|node| is_it(node)).ok_or_else(|| {
        let what = format!("{} ({major}:{minor})", mount.dir.display());
        HostError::lacking(what, "no device node under /dev")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line =
            br"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, DeviceNumber { major: 98, minor: 0 });
        assert_eq!((mount.root, mount.dir), ("/mnt1".into(), "/mnt 2".into()));
        assert_eq!((&*mount.fs_type, mount.source), ("ext3", "/dev/root".into()));
        assert!(mount.is_writable);
        let frozen = parse(br"36 35 98:0 / /mnt rw,noatime - ext3 /dev/root ro,errors=continue");
        assert!(!frozen.unwrap().is_writable);
        assert!(parse(b"").is_none());
    }

    #[test]
    fn proc_is_found_as_what_it_is() {
        assert_eq!(holding(Path::new("/proc/self/status")).unwrap().fs_type, "proc");
        assert!(holding(Path::new("/there/is/no/such/path")).is_err());
    }
}
