//! An image of XFS that supports the exchange of file ranges, even if mkfs.xfs is too old to make
//! one.

use crate::judges::{Mounted, Scratch, can_mount, ready, run, skip, unmount};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `sb_features_incompat` of the superblock, big-endian (`struct xfs_dsb`,
/// `fs/xfs/libxfs/xfs_format.h`).
const FEATURES_INCOMPAT: usize = 216;

/// `XFS_SB_FEAT_INCOMPAT_EXCHRANGE`.
const EXCHANGE_RANGE: u32 = 1 << 6;

/// `sb_crc`, little-endian.
const CHECKSUM: usize = 224;

/// `sb_sectsize`, big-endian: the length that the checksum covers.
const SECTOR_SIZE: usize = 102;

/// The image of a volume.
pub(super) struct Volume {
    pub(super) image: String,
    /// The feature was set by hand: xfs_repair does not support it either.
    by_hand: bool,
}

impl Volume {
    /// A new volume with the feature; reports and returns `None` if this machine does not support
    /// it.
    pub(super) fn new(scratch: &Scratch, options: &[&str], size: &str) -> Option<Self> {
        let image = empty(scratch, size)?;
        let mkfs = |more: &[&str]| {
            let args = [&["-q", "-f"], more, options, &[&image]].concat();
            Command::new("mkfs.xfs").args(args).output().expect("mkfs.xfs")
        };
        let by_hand = !mkfs(&["-i", "exchange=1"]).status.success();
        if by_hand {
            let output = mkfs(&[]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            set_feature(&image, true);
        }
        let volume = Self { image, by_hand };
        let at = scratch.join("probe");
        fs::create_dir(&at).expect("mkdir");
        let mounted = Command::new("mount").args(["-o", "loop", &volume.image, &at]).output();
        let mounted = mounted.expect("mount");
        if !mounted.status.success() {
            // Linux before 6.10.
            skip("the kernel mounts no XFS with exchange=1");
            return None;
        }
        unmount(&at).expect("umount");
        wait_until_free(&volume.image);
        Some(volume)
    }

    /// A volume without the feature.
    pub(super) fn without(scratch: &Scratch, size: &str) -> Option<Self> {
        let image = empty(scratch, size)?;
        let mkfs = |more: &[&str]| {
            let args = [&["-q", "-f"], more, &[&image]].concat();
            Command::new("mkfs.xfs").args(args).output().expect("mkfs.xfs").status.success()
        };
        // Old versions do not support this option.
        assert!(mkfs(&["-i", "exchange=0"]) || mkfs(&[]), "mkfs.xfs");
        Some(Self { image, by_hand: false })
    }

    pub(super) fn mount(&self, scratch: &Scratch) -> Mounted {
        Mounted::of_kind(scratch, &self.image, "xfs", "rw")
    }

    /// Unmounts it, and waits until that is complete.
    pub(super) fn unmount(&self, mounted: Mounted) {
        drop(mounted);
        wait_until_free(&self.image);
    }

    /// xfs_repair finds no errors. The volume must not be mounted.
    pub(super) fn check(&self) {
        if self.by_hand {
            set_feature(&self.image, false);
        }
        run("xfs_repair", &["-n", "-f", &self.image]);
        if self.by_hand {
            set_feature(&self.image, true);
        }
    }
}

/// Waits until an image is not mounted anywhere: another process may have copied all mounts into a
/// namespace of its own. While it is mounted there, its log is not empty, and no volume with its
/// UUID can be mounted.
fn wait_until_free(image: &str) {
    let start = Instant::now();
    // A mounted file system keeps its loop device attached.
    while !run("losetup", &["-j", image]).trim().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(120), "{image}: is in use");
        sleep(Duration::from_millis(20));
    }
}

/// An empty image.
fn empty(scratch: &Scratch, size: &str) -> Option<String> {
    if !can_mount() || !ready("mkfs.xfs") {
        return None;
    }
    let _ = Command::new("modprobe").args(["-q", "xfs"]).status();
    let known = fs::read_to_string("/proc/filesystems").expect("/proc");
    if !known.lines().any(|line| line.trim_start_matches("nodev").trim() == "xfs") {
        skip("the kernel has no XFS");
        return None;
    }
    let image = scratch.join("xfs");
    run("truncate", &["-s", size, &image]);
    Some(image)
}

/// Sets or clears the feature in the primary superblock.
fn set_feature(image: &str, on: bool) {
    let file = OpenOptions::new().read(true).write(true).open(image).expect("image");
    let mut start = [0; 512];
    file.read_exact_at(&mut start, 0).expect("superblock");
    assert_eq!(&start[..4], b"XFSB");
    let sector = u16::from_be_bytes([start[SECTOR_SIZE], start[SECTOR_SIZE + 1]]);
    let mut sector = vec![0; usize::from(sector)];
    file.read_exact_at(&mut sector, 0).expect("superblock");
    let field = |at: usize| at..at + 4;
    let stored = u32::from_le_bytes(sector[field(CHECKSUM)].try_into().expect("4 bytes"));
    sector[field(CHECKSUM)].fill(0);
    assert_eq!(crc32c(&sector), stored, "the superblock's checksum");
    let features =
        u32::from_be_bytes(sector[field(FEATURES_INCOMPAT)].try_into().expect("4 bytes"));
    let features = if on { features | EXCHANGE_RANGE } else { features & !EXCHANGE_RANGE };
    sector[field(FEATURES_INCOMPAT)].copy_from_slice(&features.to_be_bytes());
    let checksum = crc32c(&sector).to_le_bytes();
    sector[field(CHECKSUM)].copy_from_slice(&checksum);
    file.write_all_at(&sector, 0).expect("superblock");
    file.sync_all().expect("sync");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
    !bytes
        .iter()
        .fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
