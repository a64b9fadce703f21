//! Rebuilding a system's initramfs by its own tool.

use super::Tool;
use seekless_host::program;
use seekless_host::scratch::{self, Mounted};
use seekless_images::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounts that the tools need besides files: for the root's device and the modules in use.
const KERNEL: [&str; 3] = ["dev", "proc", "sys"];

/// Rebuilds the initramfs of all kernels. Returns false if the system below `root`, which is not
/// the running one, lacks the program.
///
/// # Errors
/// `ErrorKind::Unsupported` if the running system lacks the program, `ErrorKind::System` if it
/// fails.
pub fn rebuild(root: &Path, tool: Tool) -> Result<bool, Error> {
    let (places, args) = tool.rebuild();
    let running = is_running(root);
    let Some(place) = places.iter().find(|place| root.join(place).exists()) else {
        if !running {
            return Ok(false);
        }
        let message = format!("{} is not there", tool.rebuild().0.join(" or "));
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let name = Path::new("/").join(place);
    let mut command = Command::new(&name);
    command.args(args);
    let _mounts = if running {
        Vec::new()
    } else {
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        program::change_root(&mut command, root)?;
        show_kernel(root)?
    };
    // Its output is needed only if it fails.
    let output = command.output().map_err(|error| Error::io(name.display(), &error))?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.trim_end().lines().rev().take(3).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    let message = format!("{} failed ({}): {}", name.display(), output.status, last.join("; "));
    Err(Error::new(ErrorKind::System, message))
}

/// Whether a directory is the root of this process.
pub(crate) fn is_running(root: &Path) -> bool {
    root.canonicalize().is_ok_and(|root| root == Path::new("/"))
}

/// Binds the kernel's file systems below a root that lacks them, visible to this process and its
/// children only.
fn show_kernel(root: &Path) -> Result<Vec<Mounted>, Error> {
    scratch::private_mounts()?;
    let mut mounts = Vec::new();
    for name in KERNEL {
        let dir: PathBuf = root.join(name);
        // A link would lead to the running system's directory.
        let real = dir.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let empty = || std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none());
        if real && (name != "proc" || empty()) {
            mounts.push(Mounted::bind(&Path::new("/").join(name), &dir)?);
        }
    }
    Ok(mounts)
}
