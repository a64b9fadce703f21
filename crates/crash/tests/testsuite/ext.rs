//! ext2 as the search of crash states wants it, with e2fsck as a judge of what is recovered.

use crate::holes;
use seekless_cache::{Config, Counters};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_units::{ByteLen, Lba};
use std::process::Command;
use std::sync::Arc;

/// A volume of groups of half a megabyte with blocks of 1 KiB.
const HOW: [&str; 12] =
    ["-q", "-F", "-t", "ext2", "-I", "128", "-O", "^resize_inode", "-b", "1024", "-g", "512"];

/// ext2.
pub(crate) struct Ext2 {
    empty: Vec<u8>,
}

/// An image in use.
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
    /// As mke2fs makes it; `None` without mke2fs, where that is allowed.
    pub(crate) fn new() -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        let made =
            Command::new("mke2fs").args(HOW).arg("-N256").arg(image.path()).arg("2M").output();
        match made {
            Ok(made) => {
                assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
                Some(Self { empty: std::fs::read(image.path()).unwrap() })
            }
            Err(error) => {
                let required =
                    std::env::var_os("SEEKLESS_JUDGES").is_some_and(|it| it == "required");
                assert!(!required, "mke2fs: {error}");
                eprintln!("skipped: mke2fs: {error}");
                None
            }
        }
    }

    /// Opens an image for changes; with `recover`, one that a crash has left, to be corrected
    /// meanwhile.
    pub(crate) fn live(
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
        recover: bool,
    ) -> Result<ExtLive, FsError> {
        let options = LiveOptions {
            directories: "ext2-orlov".into(),
            inodes: None,
            areas: None,
            blocks: None,
            seed: 1,
            force: false,
            delays: None,
            moves_dirs: true,
            recover,
            wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
        };
        ExtLive::open(device, clock, config, options)
    }
}

/// What e2fsck finds in an image.
pub(crate) fn e2fsck(device: &dyn BlockDevice) -> Option<String> {
    let image = tempfile::NamedTempFile::new().unwrap();
    holes::put(image.path(), &holes::of(device));
    let said = Command::new("e2fsck").arg("-fn").arg(image.path()).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    (!said.status.success()).then_some(text)
}

impl Target for Ext2 {
    fn name(&self) -> &str {
        "ext2"
    }

    fn has_xattrs(&self) -> bool {
        true
    }

    fn image_len(&self) -> ByteLen {
        ByteLen::new(self.empty.len() as u64)
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
        Ok(Box::new(InUse(Self::live(device, clock, config, false)?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_ext::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        let repaired = seekless_ext::preen(device)?;
        Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        let repaired = seekless_ext::repair(device)?;
        Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
    }

    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    fn swaps_names(&self) -> bool {
        true
    }

    /// A torn superblock may need a check first.
    fn asks_of_moves(&self, code: &str) -> bool {
        matches!(code, "directory.two-names" | "directory.dot-dot" | "directory.unconnected")
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        Ok(Arc::new(ExtImage::open(device, OpenOptions::default())?))
    }
}
