//! FAT as a target of the search for crash states.

use super::volume;
use seekless_cache::Config;
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_fat::{FatWidth, MakeOptions};
use seekless_formats::{Argument, FAT};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::sync::Arc;

/// Small, so that each state is checked quickly.
const IMAGE: ByteLen = ByteLen::new(2 << 20);
/// Large enough for FAT16 with clusters of one sector.
const LARGER: ByteLen = ByteLen::new(4 << 20);

/// FAT of a width, under placement policies.
pub(crate) struct Fat {
    pub width: FatWidth,
    pub policies: Vec<Argument>,
}

impl Target for Fat {
    fn name(&self) -> &str {
        match self.width {
            FatWidth::Fat12 => "fat12",
            FatWidth::Fat16 => "fat16",
            FatWidth::Fat32 => "fat32",
        }
    }

    fn has_xattrs(&self) -> bool {
        false
    }

    fn has_inodes(&self) -> bool {
        false
    }

    fn image_len(&self) -> ByteLen {
        if self.width == FatWidth::Fat16 { LARGER } else { IMAGE }
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let mut options = MakeOptions::new(Some(self.width), device.len());
        options.cluster = Some(1);
        seekless_fat::make(device, &options).map(drop)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        volume::mount(&FAT, device, clock, config, &self.policies)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        (FAT.check)(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        volume::preen(&FAT, device)
    }

    /// A chain that leads to a free cluster ends there: used clusters marked as free are no
    /// finding.
    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    /// Of two names of one chain the later is emptied, and one of two names of a directory is
    /// removed: `fsck.fat -a` does so without asking, `check -p` asks.
    fn asks_of_moves(&self, code: &str) -> bool {
        matches!(code, "chain.shared" | "directory.dot-dot" | "directory.dot")
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        volume::repair(&FAT, device)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        (FAT.reader.open)(device, OpenOptions::default())
    }
}
