//! UFS as a target of the search for crash states.

use super::volume;
use seekless_cache::Config;
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ffs::{MakeOptions, Version};
use seekless_formats::{Argument, FFS};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::sync::Arc;

/// Small, so that each state is checked quickly, but of several cylinder groups.
const IMAGE: ByteLen = ByteLen::new(2 << 20);
const BLOCK: u32 = 4096;
/// One sector: a torn write never splits a fragment.
const FRAGMENT: u32 = 512;
const BYTES_PER_INODE: u32 = 8192;

/// UFS1 or UFS2.
pub(crate) struct Ufs {
    version: Version,
    policies: Vec<Argument>,
}

impl Ufs {
    pub(crate) const fn new(version: Version, policies: Vec<Argument>) -> Self {
        Self { version, policies }
    }

    /// The version with FreeBSD's placement policies.
    pub(crate) const fn of(version: Version) -> Self {
        Self::new(version, Vec::new())
    }
}

impl Target for Ufs {
    fn name(&self) -> &str {
        match self.version {
            Version::Ufs1 => "ufs1",
            Version::Ufs2 => "ufs2",
        }
    }

    fn has_xattrs(&self) -> bool {
        self.version == Version::Ufs2
    }

    fn image_len(&self) -> ByteLen {
        IMAGE
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut options = MakeOptions::new(self.version, device.len());
        options.block_size = BLOCK;
        options.fragment_size = FRAGMENT;
        options.bytes_per_inode = Some(BYTES_PER_INODE);
        seekless_ffs::make(device, &options).map(|_| ())
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        volume::mount(&FFS, device, clock, config, &self.policies)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        (FFS.check)(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        volume::preen(&FFS, device)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        matches!(code, "bitmap.inodes-free" | "bitmap.blocks-free")
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        (FFS.reader.open)(device, OpenOptions::default())
    }
}
