//! Surviving the start of a system, from the initramfs to the root file system that PID 1 switches
//! to.

use crate::HostError;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// `f_type` of ramfs and tmpfs (`include/uapi/linux/magic.h`), one of which contains the initramfs.
const IN_MEMORY: [u64; 2] = [0x8584_58f6, 0x0102_1994];

/// The first argument of a process that must survive the switch. systemd kills the processes in the
/// initramfs, except programs of root whose first argument begins with `@`
/// (<https://systemd.io/ROOT_STORAGE_DAEMONS>); initramfs-tools kills none.
const KEPT: &str = "@seekless";

/// The same name without the sign, of the same length.
const PLAIN: &[u8] = b"seekless\0";

const _: () = assert!(KEPT.len() == PLAIN.len());

/// The switch from an initramfs to the root file system, done by PID 1.
#[derive(Debug)]
pub struct Switch {
    /// `/proc`, reachable through this descriptor wherever it is moved.
    proc: OwnedFd,
    /// The root before the switch, by device and inode; `None` if the root is not in memory.
    before: Option<(u64, u64)>,
}

impl Switch {
    /// Begins to watch for the switch. If the root is no longer in memory, the switch has already
    /// happened.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn watch() -> Result<Self, HostError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(CWD, "/proc", flags, Mode::empty());
        let proc = proc.map_err(|error| HostError::new("/proc", error))?;
        let failed = |error: rustix::io::Errno| HostError::new("/", error);
        let kind = u64::try_from(rustix::fs::statfs("/").map_err(failed)?.f_type).unwrap_or(0);
        let root = rustix::fs::stat("/").map_err(failed)?;
        let before = IN_MEMORY.contains(&kind).then_some((root.st_dev, root.st_ino));
        Ok(Self { proc, before })
    }

    /// Whether a path is in the file system that the switch leaves, with no other one mounted
    /// there.
    ///
    /// # Errors
    /// If the path does not exist.
    pub fn leaves(&self, path: &Path) -> Result<bool, HostError> {
        let stat = rustix::fs::stat(path)
            .map_err(|error| HostError::new(path.display().to_string(), error))?;
        Ok(self.before.is_some_and(|(device, _)| device == stat.st_dev))
    }

    /// Enters the root of PID 1 (root and working directory of this process) once PID 1 has
    /// switched. Returns whether it has, or had before the watch. From then on all paths are those
    /// of the running system.
    ///
    /// # Errors
    /// Without the right to.
    pub fn enter(&self) -> Result<bool, HostError> {
        let failed = |error: rustix::io::Errno| HostError::new("the root of PID 1", error);
        let Some(before) = self.before else { return Ok(true) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::openat(&self.proc, "1/root", flags, Mode::empty()).map_err(failed)?;
        let now = rustix::fs::fstat(&root).map_err(failed)?;
        if before == (now.st_dev, now.st_ino) {
            return Ok(false);
        }
        rustix::process::fchdir(&root).map_err(failed)?;
        rustix::process::chroot(".").map_err(failed)?;
        Ok(true)
    }
}

/// Gives a program the name that the switch spares. [`no_longer_kept`] removes it.
pub fn keep(command: &mut Command) {
    std::os::unix::process::CommandExt::arg0(command, KEPT);
}

/// Removes this process's special name, which a shutdown spares too, so that a shutdown ends it
/// like any other process. No-op without that name.
///
/// # Errors
/// If the name cannot be read or changed.
pub fn no_longer_kept() -> Result<(), HostError> {
    let failed = |error| HostError::new("/proc/self/mem", error);
    let text = fs::read_to_string("/proc/self/stat").map_err(failed)?;
    // Field 48 is `arg_start`; the second field may contain blanks (proc_pid_stat(5)).
    let start = text
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(45)?.parse::<u64>().ok())
        .ok_or_else(|| HostError::lacking("/proc/self/stat", "it has no arg_start"))?;
    let memory = fs::File::options().read(true).write(true).open("/proc/self/mem");
    let memory = memory.map_err(failed)?;
    let mut name = [0; KEPT.len()];
    memory.read_exact_at(&mut name, start).map_err(failed)?;
    if name == KEPT.as_bytes() {
        // These are the program's arguments: this process does not read them while it writes.
        memory.write_all_at(PLAIN, start).map_err(failed)?;
    }
    Ok(())
}

/// Leaves the control group of the service that started this process, whose end would kill the
/// group. No-op without a hierarchy of version 2.
pub fn leave_control_group() {
    let _ = fs::write("/sys/fs/cgroup/cgroup.procs", "0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_kept_name_is_given_and_not_taken_from_others() {
        let _children = crate::family::CHILDREN.lock();
        // This test's own process has another name, which stays.
        let before = fs::read("/proc/self/cmdline").unwrap();
        no_longer_kept().unwrap();
        assert_eq!(fs::read("/proc/self/cmdline").unwrap(), before);

        let mut command = Command::new("sleep");
        keep(command.arg("60"));
        let mut child = command.spawn().unwrap();
        // The process has no arguments, or no memory (ESRCH), for a moment while it starts.
        let read = || match fs::read(format!("/proc/{}/cmdline", child.id())) {
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Vec::new(),
            read => read.unwrap(),
        };
        let named = std::iter::repeat_with(read).find(|line| !line.is_empty()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(named.starts_with(b"@seekless\0"), "{}", String::from_utf8_lossy(&named));
    }
}
