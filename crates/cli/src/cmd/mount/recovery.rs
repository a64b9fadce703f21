//! The check of a mounted image after a crash, `-o recover=background`.

use crate::args::Global;
use crate::say::{error_line, tell, warning};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::corrections::{Correction, Corrections};
use seekless_serve::{RecoveryEnd, VolumeRecovery};
use seekless_units::ByteLen;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Findings that are shown of those that need a check.
const MOST_SHOWN: usize = 10;

/// A file without a name that has room for copies of all blocks. It takes no more space than they
/// do. Where it cannot be made, copies stay in memory.
pub(super) fn store(len: ByteLen, dir: &Path) -> Option<Arc<dyn BlockDevice>> {
    let made = tempfile::tempfile_in(dir).and_then(|file| {
        file.set_len(len.get().next_multiple_of(4096))?;
        FileDevice::from_file(file, true)
    });
    match made {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            let dir = dir.display();
            warning!("{dir}: {error}; what is overwritten during the check stays in memory");
            None
        }
    }
}

/// A recovery that is under way.
pub(super) struct Running {
    thread: JoinHandle<()>,
    end: RecoveryEnd,
}

impl Running {
    /// Starts it. Its result goes to standard error.
    pub(super) fn start(recovery: VolumeRecovery, image: &Path, global: &Global) -> Self {
        let (image, is_json) = (image.to_path_buf(), global.json);
        let end = recovery.end();
        let thread = std::thread::spawn(move || show(recovery, &image, is_json));
        Self { thread, end }
    }

    /// Ends it if it has not ended, and waits for that.
    pub(super) fn end(self) {
        self.end.end();
        // A panic has been reported by the thread.
        let _ = self.thread.join();
    }
}

fn show(recovery: VolumeRecovery, image: &Path, is_json: bool) {
    let image = image.display();
    let corrections = match recovery.run() {
        Ok(corrections) => corrections,
        Err(error) => {
            let advice = "once it is unmounted, run seekless check -p";
            if is_json {
                let ended = json!({ "sound": false, "error": error.to_string() });
                error_line(&json!({ "background_check": ended }).to_string());
            } else {
                tell(&format!("{image}: the recovery is not complete: {error}; {advice}"));
            }
            return;
        }
    };
    let released = Released::of(&corrections);
    if is_json {
        error_line(&json!({ "background_check": released.json(&corrections) }).to_string());
    } else if corrections.are_complete() {
        tell(&format!("{image}: checked in the background: {}", released.text()));
    } else {
        for finding in corrections.left.iter().take(MOST_SHOWN) {
            tell(&format!("{image}: {}: {} ({})", finding.code(), finding.what, finding.location));
        }
        let shown = corrections.left.len().min(MOST_SHOWN);
        let others = (corrections.left.len() - shown) as u64 + corrections.more_left;
        let more = if others > 0 { format!(" ({others} more)") } else { String::new() };
        tell(&format!(
            "{image}: nothing was released{more}: unmount it, and run seekless check -p"
        ));
    }
}

/// Numbers of things released.
#[derive(Default)]
struct Released {
    names: u64,
    connected: u64,
    files: u64,
    links: u64,
    inodes: u64,
    blocks: u64,
}

impl Released {
    fn of(corrections: &Corrections) -> Self {
        let mut sum = Self::default();
        for correction in &corrections.all {
            match correction {
                Correction::RemoveName { .. } | Correction::SetParent { .. } => sum.names += 1,
                Correction::Connect { .. } => sum.connected += 1,
                Correction::Delete(_) => sum.files += 1,
                Correction::DropLinks { by, .. } => sum.links += u64::from(*by),
                Correction::FreeInode(_) => sum.inodes += 1,
                Correction::FreeRun(run) => sum.blocks += run.len,
                Correction::RaiseLinks { .. }
                | Correction::Shorten(_)
                | Correction::Sectors(_)
                | Correction::Recount { .. } => {}
            }
        }
        sum
    }

    fn text(&self) -> String {
        let Self { names, connected, files, links, inodes, blocks } = self;
        let mut text = format!(
            "released {files} files without a name, {links} links, {inodes} inodes and {blocks} \
             blocks that nothing used"
        );
        if names + connected > 0 {
            text += &format!(
                "; corrected {names} names of directories, and gave {connected} one in lost+found"
            );
        }
        text
    }

    fn json(&self, corrections: &Corrections) -> serde_json::Value {
        let left = |finding: &seekless_fs::check::Finding| {
            json!({
                "code": finding.code(),
                "what": finding.what,
                "location": finding.location.to_string(),
            })
        };
        json!({
            "sound": corrections.are_complete(),
            "findings": corrections.report.total(),
            "names": self.names,
            "connected": self.connected,
            "files": self.files,
            "links": self.links,
            "inodes": self.inodes,
            "blocks": self.blocks,
            "left": corrections.left.iter().map(left).collect::<Vec<_>>(),
        })
    }
}
