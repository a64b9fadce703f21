//! ext2 as a target whose states are recovered by e2fsck.

use seekless_cache::{Config, Counters};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::check::{Class, Finding, Report};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Location, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const IMAGE: ByteLen = ByteLen::new(2 << 20);

/// ext2 of four groups with blocks of 1 KiB.
pub(crate) struct Ext2 {
    empty: Vec<u8>,
}

impl Default for Ext2 {
    fn default() -> Self {
        let path = scratch();
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext2", "-b", "1024", "-I", "128", "-g", "512", "-N", "256"])
            .args(["-O", "^resize_inode"])
            .arg(&path)
            .arg("2M")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let empty = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Self { empty }
    }
}

fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("seekless-ext-crash-{}-{next}", std::process::id()))
}

fn bytes_of(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// What e2fsck makes of bytes, and its exit code.
fn e2fsck(bytes: &[u8], how: &str) -> (Vec<u8>, i32, String) {
    let path = scratch();
    std::fs::write(&path, bytes).unwrap();
    let done = Command::new("e2fsck").arg(how).arg(&path).output().unwrap();
    let after = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    (after, done.status.code().unwrap_or(99), said)
}

fn finding(code: &'static str, what: String) -> Finding {
    let location = Location::of("image");
    Finding { code, class: Class::Unexpected, what, location, repaired: false }
}

/// A file system in use.
struct InUse(ExtLive);

impl Live for InUse {
    fn operate(&mut self) -> &mut dyn Operate {
        &mut self.0
    }

    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError> {
        self.0.write_some(pick)
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

impl Ext2 {
    /// Has e2fsck recover a device. What it must not say becomes findings.
    fn recover(device: &dyn BlockDevice, how: &str) -> Result<Recovered, FsError> {
        let before = bytes_of(device)?;
        let (after, code, said) = e2fsck(&before, how);
        let mut report = Report::default();
        if how == "-p" {
            let ours = Arc::new(MemoryDevice::new(before.clone()));
            let stops = seekless_ext::preen(ours)?.report.unexpected > 0;
            if stops != (code >= 4) {
                let what = format!("e2fsck -p ends with {code}, ours stops: {stops}\n{said}");
                report.findings.push(finding("judges.disagree", what));
            }
        }
        if code >= 4 {
            report.findings.push(finding("e2fsck.stops", said));
            return Ok(Recovered { report, changed: false });
        }
        let (_, code, said) = e2fsck(&after, "-fn");
        if code != 0 {
            report.findings.push(finding("e2fsck.left", said));
        }
        for (n, (old, new)) in before.chunks(512).zip(after.chunks(512)).enumerate() {
            if old != new {
                device.write(Lba::new(n as u64), new)?;
            }
        }
        Ok(Recovered { report, changed: before != after })
    }
}

impl Target for Ext2 {
    fn name(&self) -> &str {
        "ext2"
    }

    fn has_xattrs(&self) -> bool {
        true
    }

    fn image_len(&self) -> ByteLen {
        IMAGE
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        device.write(Lba::ZERO, &self.empty)?;
        Ok(())
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        let options = LiveOptions {
            directories: "ext2-orlov".into(),
            blocks: None,
            seed: 1,
            force: false,
            wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
        };
        Ok(Box::new(InUse(ExtLive::open(device, clock, config, options)?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_ext::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        Self::recover(device.as_ref(), "-p")
    }

    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    fn swaps_names(&self) -> bool {
        true
    }

    fn asks_of_moves(&self, code: &str) -> bool {
        code == "e2fsck.stops"
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        Self::recover(device.as_ref(), "-fy")
    }

    /// What we write back is not in the order in which e2fsck wrote it.
    fn recovery_can_be_cut(&self) -> bool {
        false
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        Ok(Arc::new(ExtImage::open(device, OpenOptions::default())?))
    }
}
