//! Checks a whole image in the five phases of `fsck_ffs` (McKusick and Kowalski, "Fsck - The UNIX
//! File System Check Program", 1985).
//!
//! 1. [`inodes`], [`lengths`], [`claims`]: every inode and the blocks it claims
//! 2. [`names`]: every directory and the inodes of its entries
//! 3. [`connectivity`]: directories that are not connected to the root
//! 4. [`links`]: link counts
//! 5. [`groups`]: bitmaps and counts
//!
//! A damaged part is reported and passed over; the check itself fails only
//! when the device does, or nothing says how the volume is laid out. Every
//! block is claimed once and every indirect block read once, so a hostile
//! image costs no more time than an honest one of its size.
//!
//! Each finding comes with the repair for it ([`fix`]); [`repair`] makes these, in an order in
//! which it can be interrupted, and [`mod@corrections`] turns them into corrections of a volume in
//! use.

mod checker;
mod claims;
mod connectivity;
mod copies;
mod corrections;
mod fix;
mod groups;
mod inodes;
mod journaled;
mod lengths;
mod links;
mod names;
pub(crate) mod problems;
mod repair;
mod superblock;

pub use corrections::corrections;
pub use problems::PROBLEMS;
pub use repair::{preen, repair};
pub use seekless_fs::check::{Outcome, Repaired};

pub(crate) use superblock::agree;

use crate::superblock::{RawSuperblock, Super};
use checker::Checker;
use connectivity::ConnectivityPass;
use groups::GroupPass;
use inodes::InodePass;
use links::LinkPass;
use names::NamePass;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::check::{Problem, Report};
use seekless_fs::field::index;
use seekless_units::ByteLen;
use std::sync::Arc;

/// Checks an image. One that was not unmounted and has a journal of soft updates is checked as it
/// will be after its recovery.
///
/// # Errors
/// [`FsError::Corrupt`] when there is no sound superblock,
/// [`FsError::Device`] when the device fails.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    journaled::check(&device)
}

/// Refuses an image with findings other than harmless ones.
pub(crate) fn refuse_damage(
    device: Arc<dyn BlockDevice>,
    harmless: &[&Problem],
) -> Result<(), FsError> {
    check(device)?.refuse(|finding| harmless.iter().any(|problem| finding.is(problem)))
}

/// The superblock of a device, and its bytes, if a check finds no fault in it. Copies may differ.
///
/// # Errors
/// [`FsError::Damaged`] with the first fault; otherwise as [`check`].
pub(crate) fn sound_superblock(device: &Arc<dyn BlockDevice>) -> Result<(Super, Vec<u8>), FsError> {
    let chosen = superblock::choose(device)?;
    let mut report = Report::default();
    chosen.report(&mut report);
    report.refuse(|_| false)?;
    Ok((chosen.sb, chosen.bytes))
}

/// Refuses the bytes of a superblock that a check of a device of this length would not accept.
/// `sb` has their place and their byte order.
///
/// # Errors
/// [`FsError::Corrupt`].
pub(crate) fn usable_after(sb: &Super, bytes: Vec<u8>, device: ByteLen) -> Result<(), FsError> {
    let raw = RawSuperblock { order: sb.order, format: sb.format, at: sb.at, bytes };
    superblock::usable(&raw, device).map(drop)
}

/// Goes through all phases.
fn examine(device: &Arc<dyn BlockDevice>) -> Result<Checker, FsError> {
    let mut checker = Checker::new(device, superblock::choose(device)?);
    InodePass::new(&mut checker).inodes()?;
    let groups = checker.written.len();
    debug_assert_eq!(groups, index(checker.sb().ncg), "every group was looked at");
    let children = NamePass::new(&mut checker).names()?;
    ConnectivityPass::new(&mut checker, children).unconnected();
    LinkPass::new(&mut checker).links();
    GroupPass::new(&mut checker).groups()?;
    Ok(checker)
}
