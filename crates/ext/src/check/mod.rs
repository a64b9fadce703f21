//! Checks a whole image in passes, as `e2fsck -fn` does.
//!
//! 0. [`short`], [`metadata`], [`external`]: superblock and group descriptors, against their copies; a
//!    journal on another device
//! 1. [`inodes`], [`fields`], [`reserved`], [`resize_inode`], [`attributes`]: every inode, its blocks, its attributes
//! 2. [`names`], [`index`]: every directory and the inodes of its entries
//! 3. [`paths`]: directories that are not connected to the root
//! 4. [`links`]: link counts, unreferenced inodes, shared attributes
//! 5. [`groups`], [`quotas`]: bitmaps, counts, and the usage in quota files; last [`shared`], if
//!    requested: blocks that files share
//!
//! Transactions in the journal are replayed in memory first, as a mount would. A damaged part is
//! reported and passed over; the check itself fails only when the device does, or nothing says how
//! the volume is laid out. Every block of a file's map is read once, so a hostile image costs no
//! more time than an honest one of its size.
//!
//! Each finding comes with the repair for it ([`fix`]); [`repair`] makes these, in an order in
//! which it can be interrupted. A finding is expected where `e2fsck -p` repairs it without a
//! question.

mod ahead;
mod attributes;
mod bad_blocks;
mod checker;
mod corrections;
mod directories;
mod directory_reader;
mod due;
mod encryption;
mod external;
mod features;
mod fields;
mod fix;
mod groups;
mod impossible;
mod index;
mod inodes;
mod journal;
mod links;
mod metadata;
mod mmp;
mod name_rules;
mod names;
mod options;
mod orphans;
mod paths;
mod problems;
mod quotas;
pub(crate) mod repair;
mod reserved;
mod resize_inode;
mod salvage;
mod seen;
mod sequence;
mod shared;
mod short;

pub use corrections::corrections;
pub use due::{Due, VolumeState, note_checked, replay, state};
pub use options::{CheckOptions, Start};
pub use problems::{PROBLEMS, is_passed_over, is_silent, is_uncounted};
pub(crate) use quotas::CountedUsage;
pub use repair::{preen, preen_with, repair, repair_with};

use crate::image::ExtImage;
use crate::journal::{self as log, External};
use crate::ondisk::incompat;
use crate::volume::Volume;
use checker::Checker;
use fix::{Fix, Fixes, Stage};
use groups::GroupPass;
use inodes::InodePass;
use links::LinkPass;
use metadata::MetadataPass;
use names::NamePass;
use paths::ConnectivityPass;
use quotas::QuotaPass;
use seekless_device::BlockDevice;
use seekless_fs::check::{Class, Problem, Report};
use seekless_fs::{FsError, Location};
use std::sync::Arc;
use tracing::warn;

/// Findings of any volume that was not unmounted, and quotas that were wrong before: nothing that is
/// read or laid out again depends on them.
const CARRIED: [&Problem; 9] = [
    problems::SUPERBLOCK_ERRORS,
    problems::SUPERBLOCK_NOT_CLEAN,
    problems::SUPERBLOCK_TOTALS,
    problems::JOURNAL_PENDING,
    problems::ORPHAN_LIST,
    problems::ORPHAN_FILE_EMPTY,
    problems::INODE_ORPHAN,
    problems::LOST_FOUND_MISSING,
    problems::QUOTA_USAGE,
];

/// Checks an image without changing it. That the superblock records errors is no finding where there is
/// no other; it is a warning.
///
/// # Errors
/// [`FsError::Corrupt`] when there is no sound superblock,
/// [`FsError::Unsupported`] with the name of a feature that is not read,
/// [`FsError::Device`] when the device fails.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    check_with(device, &CheckOptions::default())
}

/// As [`check`], with options.
///
/// # Errors
/// As [`check`]; [`FsError::Corrupt`] also where there is no sound copy of the superblock in the
/// block that the options name.
pub fn check_with(device: Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Report, FsError> {
    let mut report = examine(device, options)?.report;
    // A volume that only records errors was checked, and has none (`e2fsck -fn`).
    if report.findings.iter().all(|finding| finding.is(problems::SUPERBLOCK_ERRORS)) {
        if !report.is_clean() {
            warn!(
                "the superblock records errors, none of which is left; a repair clears the record"
            );
        }
        report.findings.clear();
    }
    Ok(report)
}

/// Counts the usage of users, groups and projects by a check.
///
/// # Errors
/// As [`check`].
pub(crate) fn count_usage(device: Arc<dyn BlockDevice>) -> Result<CountedUsage, FsError> {
    let mut checker = examine(device, &CheckOptions::default())?;
    Ok(CountedUsage::of(&mut checker))
}

/// The size of the volume's blocks in bytes, by the superblock with which a check starts.
///
/// # Errors
/// As [`check_with`].
pub fn block_size(device: Arc<dyn BlockDevice>, start: Start) -> Result<u32, FsError> {
    let (mut report, mut fixes) = (Report::default(), Fixes::default());
    Ok(metadata::open(device, start, &mut report, &mut fixes)?.0.sb.block_size)
}

/// Checks a device as it would be after its journal was replayed.
fn examine(device: Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Checker, FsError> {
    let (mut report, mut fixes) = (Report::default(), Fixes::default());
    let (device, short) = short::whole(device)?;
    if let Some(short) = short {
        let (volume, device) = (short.volume, short.device);
        let what = format!("the volume has {volume} blocks, the device {device}");
        report.add(problems::SUPERBLOCK_SIZE, what, Location::of("superblock"));
    }
    let (device, external) = recover(device, options, &mut report, &mut fixes)?;
    look(device, external, options, report, fixes)
}

/// Checks a device as it is, without its journal.
fn look(
    device: Arc<dyn BlockDevice>,
    external: Option<External>,
    options: &CheckOptions,
    mut report: Report,
    mut fixes: Fixes,
) -> Result<Checker, FsError> {
    let (volume, from_copy) =
        metadata::open(device.clone(), options.start, &mut report, &mut fixes)?;
    let mut checker = Checker::new(device, volume, from_copy, report, fixes)?;
    checker.is_sequential = options.is_sequential;
    checker.watch.clone_from(&options.watch);
    checker.journal.clone_from(&options.journal);
    MetadataPass::new(&mut checker).superblock()?;
    MetadataPass::new(&mut checker).metadata()?;
    external::look(&mut checker, external)?;
    checker.orphans()?;
    InodePass::new(&mut checker).inodes()?;
    NamePass::new(&mut checker).names()?;
    checker.reach(3, 0, 1);
    ConnectivityPass::new(&mut checker).unconnected();
    checker.reach(3, 1, 1);
    checker.reach(4, 0, 1);
    LinkPass::new(&mut checker).links();
    LinkPass::new(&mut checker).value_counts()?;
    checker.reach(4, 1, 1);
    GroupPass::new(&mut checker).groups()?;
    QuotaPass::new(&mut checker).quotas()?;
    ConnectivityPass::new(&mut checker).lost_found()?;
    if options.unshares_blocks {
        shared::shared_files(&mut checker)?;
    }
    Ok(checker)
}

impl ExtImage {
    /// Checks the image and refuses it if there is any finding that a crash does not leave. If the
    /// image was opened to ignore checksums, it is not refused for those.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first finding; otherwise as [`check`].
    pub fn refuse_damage(&self) -> Result<(), FsError> {
        let volume = self.volume();
        let (device, options) = (volume.device().clone(), CheckOptions::default());
        let report = look(device, None, &options, Report::default(), Fixes::default())?.report;
        report.refuse(|finding| {
            CARRIED.iter().any(|problem| finding.is(problem))
                || volume.ignore_checksums && finding.code().ends_with("checksum")
        })
    }
}

/// The device with the journal's transactions, where these can be replayed, and a journal on another
/// device without them.
fn recover(
    device: Arc<dyn BlockDevice>,
    options: &CheckOptions,
    report: &mut Report,
    fixes: &mut Fixes,
) -> Result<(Arc<dyn BlockDevice>, Option<External>), FsError> {
    let volume = match Volume::open(device.clone(), true) {
        // Without a sound superblock the flag for recovery is unknown: the device is checked as it
        // is.
        Err(FsError::Corrupt { .. }) => return Ok((device, None)),
        opened => opened?,
    };
    let external = External::of(&volume.sb, options.journal.as_ref())?;
    let place = Location::of("journal");
    let is_marked = volume.sb.has_incompat(incompat::RECOVER);
    match log::replay_for_repair(&volume, external.as_ref()) {
        Ok(None) => {
            // Nothing is to be replayed, despite the superblock's flag.
            if is_marked {
                fixes.add(Stage::Journal, Fix::Replay);
                let what = "the journal is empty, but the superblock says that it is not";
                report.add_as(problems::JOURNAL_PENDING, Class::Expected, what.to_string(), place);
            }
            Ok((device, external))
        }
        Ok(Some(replayed)) => {
            let (class, what) = if is_marked {
                (Class::Expected, "the journal has not been replayed; checked as if it had been")
            } else {
                (Class::Unexpected, metadata::UNMARKED_JOURNAL)
            };
            report.add_as(problems::JOURNAL_PENDING, class, what.to_string(), place);
            fixes.add(Stage::Journal, Fix::Replay);
            let external = replayed.external()?;
            Ok((replayed.overlay, external))
        }
        Err(error @ FsError::Corrupt { .. }) => {
            let (what, place) = error.finding(place);
            report.add(problems::JOURNAL_CORRUPT, what, place);
            fixes.add(Stage::Journal, Fix::EmptyJournal);
            Ok((device, external))
        }
        Err(error) => Err(error),
    }
}
