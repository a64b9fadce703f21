//! UFS under FreeBSD's policies, as the search of crash states wants it.

#![allow(dead_code)]

use seekless_cache::{Config, Counters, Discipline};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive, LiveOptions, MakeOptions, Version};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_units::ByteLen;
use std::sync::Arc;

/// Small, so that a state is looked at quickly, and yet several groups.
const IMAGE: ByteLen = ByteLen::new(2 << 20);
const BLOCK: u32 = 4096;
/// A sector: what is torn is never less than a fragment.
const FRAGMENT: u32 = 512;
const BYTES_PER_INODE: u32 = 8192;

/// UFS1 or UFS2.
pub(crate) struct Ufs(Version);

/// An image in use.
pub(crate) struct InUse(pub(crate) FfsLive);

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

impl Ufs {
    pub(crate) const fn of(version: Version) -> Self {
        Self(version)
    }

    /// Opens an image for changes.
    pub(crate) fn live(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<FfsLive, FsError> {
        self.open_with(device, clock, config, false)
    }

    /// Opens an image for changes; blocks stay where they are.
    pub(crate) fn without_clusters(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<FfsLive, FsError> {
        let options = LiveOptions { reallocblks: false, ..options(false) };
        FfsLive::open(device, clock, config, options)
    }

    /// Opens an image that a crash has left, to be corrected while it is in use.
    pub(crate) fn recovering(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
    ) -> Result<FfsLive, FsError> {
        self.open_with(device, clock, Config::new(Discipline::SoftUpdates), true)
    }

    fn open_with(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
        recover: bool,
    ) -> Result<FfsLive, FsError> {
        FfsLive::open(device, clock, config, options(recover))
    }
}

impl Target for Ufs {
    fn name(&self) -> &str {
        match self.0 {
            Version::Ufs1 => "ufs1",
            Version::Ufs2 => "ufs2",
        }
    }

    fn has_xattrs(&self) -> bool {
        self.0 == Version::Ufs2
    }

    fn image_len(&self) -> ByteLen {
        IMAGE
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut options = MakeOptions::new(self.0, device.len());
        options.block_size = BLOCK;
        options.fragment_size = FRAGMENT;
        options.bytes_per_inode = Some(BYTES_PER_INODE);
        seekless_ffs::make(device, &options).map(drop)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        Ok(Box::new(InUse(self.live(device, clock, config)?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        seekless_ffs::check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        let repaired = seekless_ffs::preen(device)?;
        Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        matches!(code, "bitmap.inodes-free" | "bitmap.blocks-free")
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        Ok(Arc::new(FfsImage::open(device, OpenOptions::default())?))
    }
}

fn options(recover: bool) -> LiveOptions {
    LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        force: false,
        recover,
        ignore_checksums: false,
        reallocblks: true,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    }
}
