//! ext as a target of the search for crash states.

use super::volume::{self, NOW};
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ext::{BuildOptions, Builder, Features};
use seekless_formats::{Argument, EXT};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::NewVolume;
use seekless_fs::source::EmptySource;
use seekless_fs::tree::NodeAttr;
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_layout::planner;
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// Small, so that each state is checked quickly.
const IMAGE: ByteLen = ByteLen::new(2 << 20);
/// The shortest journal of ext.
const JOURNAL: ByteLen = ByteLen::new(1 << 20);
const BLOCK: u32 = 1024;
const INODE: u32 = 128;
/// With room for times beyond 2038, and for attributes.
const LARGE_INODE: u32 = 256;
const INODES: u32 = 256;

/// ext2, ext3 or ext4.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Ext2,
    Ext3,
    Ext4,
}

/// A version of ext under placement policies.
pub(super) struct Ext {
    pub version: Version,
    pub policies: Vec<Argument>,
}

impl Version {
    fn features(self) -> Features {
        match self {
            Self::Ext2 => Features::EXT2,
            Self::Ext3 => Features::EXT3,
            Self::Ext4 => Features::EXT4,
        }
    }

    fn journal(self) -> Option<ByteLen> {
        (self != Self::Ext2).then_some(JOURNAL)
    }
}

impl Target for Ext {
    fn name(&self) -> &str {
        match self.version {
            Version::Ext2 => "ext2",
            Version::Ext3 => "ext3",
            Version::Ext4 => "ext4",
        }
    }

    fn has_xattrs(&self) -> bool {
        true
    }

    fn image_len(&self) -> ByteLen {
        ByteLen::new(IMAGE.get() + self.version.journal().unwrap_or_default().get())
    }

    /// Images with a journal are changed only under journal disciplines.
    fn prepared_under(&self) -> Discipline {
        match self.version.journal() {
            Some(_) => Discipline::Journal(JournalMode::Writeback),
            None => Discipline::Async,
        }
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let options = BuildOptions {
            size: Some(device.len()),
            block_size: BLOCK,
            inode_size: if self.version == Version::Ext4 { LARGE_INODE } else { INODE },
            inodes: Some(INODES),
            features: self.version.features(),
            journal_size: self.version.journal(),
            made: Some(NOW),
            ..BuildOptions::default()
        };
        let kind = FileKind::Directory;
        let root = NodeAttr {
            kind,
            perm: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: NOW,
            times: None,
            flags: 0,
        };
        let empty = EmptySource::new(root);
        let builder = Builder::new(&empty, &options)?;
        let plan = planner::plan(builder.demand(), &builder.space(), &[], 1)?;
        builder.write(&plan, device, &|_| {})
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        volume::mount(&EXT, device, clock, config, &self.policies)
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        (EXT.check)(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        volume::preen(&EXT, device)
    }

    /// Every recovery rebuilds the bitmaps.
    fn is_used_but_free(&self, _: &str) -> bool {
        false
    }

    fn swaps_names(&self) -> bool {
        true
    }

    /// e2fsck asks which of two names of a directory is right, where `..` leads, and whether to
    /// reconnect a directory that was replaced.
    fn asks_of_moves(&self, code: &str) -> bool {
        matches!(code, "directory.two-names" | "directory.dot-dot" | "directory.unconnected")
    }

    /// The superblock of ext4 has a checksum: if it is torn, neither e2fsck nor the kernel accepts
    /// it.
    fn whole(&self) -> Option<(Lba, u64)> {
        (self.version == Version::Ext4).then_some((Lba::new(2), 2))
    }

    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        volume::repair(&EXT, device)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        (EXT.reader.open)(device, OpenOptions::default())
    }
}
