//! A device's read-ahead (`read_ahead_kb`, `Documentation/ABI/stable/sysfs-block`), changed
//! temporarily.

use crate::HostError;
use crate::mounts::DeviceNumber;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Script of the helper: restores the value at the end of its standard input, however that ends.
const PUT_BACK: &str = "trap '' HUP INT TERM; cat >/dev/null; echo \"$1\" >\"$2\"";

/// The file with a device's read-ahead; `None` if there is none, as for file systems without a
/// device of their own.
fn property(device: DeviceNumber) -> Option<PathBuf> {
    let dir = fs::canonicalize(device.in_sysfs()).ok()?;
    // A partition uses the queue of its disk.
    let whole = if dir.join("partition").exists() { dir.parent()?.to_path_buf() } else { dir };
    let file = whole.join("queue/read_ahead_kb");
    file.exists().then_some(file)
}

/// The maximum read-ahead of a device, in KiB; `None` if it has no such property.
#[must_use]
pub fn of(device: DeviceNumber) -> Option<u64> {
    fs::read_to_string(property(device)?).ok()?.trim().parse().ok()
}

/// Another read-ahead as long as this lives. A helper process waits for the end and restores the
/// old value even if this process is killed.
#[derive(Debug)]
pub struct ReadAheadGuard {
    helper: Option<Child>,
}

impl ReadAheadGuard {
    /// Sets the read-ahead of a device, in KiB. Open files keep the value of their opening.
    ///
    /// # Errors
    /// If the device has no such property, or this process may not set it.
    pub fn set(device: DeviceNumber, kib: u64) -> Result<Self, HostError> {
        let Some(file) = property(device) else {
            let what = format!("device {}:{}", device.major, device.minor);
            return Err(HostError::lacking(what, "it has no queue/read_ahead_kb"));
        };
        let shown = file.display().to_string();
        let failed = |error| HostError::new(&shown, error);
        let old = fs::read_to_string(&file).map_err(failed)?;
        let old = old.trim();
        if old == kib.to_string() {
            return Ok(Self { helper: None });
        }
        let helper = Command::new("sh")
            .args(["-c", PUT_BACK, "seekless", old])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals to our group must not reach the helper.
            .process_group(0)
            .spawn()
            .map_err(|error| HostError::new("sh", error))?;
        let guard = Self { helper: Some(helper) };
        fs::write(&file, kib.to_string()).map_err(|error| {
            HostError::new(&shown, error).advise_rights("setting read-ahead needs root")
        })?;
        Ok(guard)
    }
}

impl Drop for ReadAheadGuard {
    fn drop(&mut self) {
        if let Some(mut helper) = self.helper.take() {
            drop(helper.stdin.take());
            // The helper has restored the value when it ends.
            let _ = helper.wait();
        }
    }
}
