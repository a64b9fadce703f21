//! Checks a whole image in the five phases of `fsck_ffs` (McKusick and Kowalski, "Fsck - The UNIX
//! File System Check Program", 1985).
//!
//! 1. [`inodes`], [`claims`]: every inode and the blocks it claims
//! 2. [`names`]: every directory and the inodes of its entries
//! 3. [`names`]: directories that are not connected to the root
//! 4. [`links`]: link counts
//! 5. [`groups`]: bitmaps and counts
//!
//! A damaged part is reported and passed over; the check itself fails only
//! when the device does, or nothing says how the volume is laid out. Every
//! block is claimed once and every indirect block read once, so a hostile
//! image costs no more time than an honest one of its size.
//!
//! Each finding comes with the repair for it ([`fix`]); [`repair`] makes these, in an order in
//! which it can be interrupted.

mod claims;
mod codes;
mod copies;
mod fix;
mod groups;
mod inodes;
mod links;
mod names;
mod repair;
mod superblock;

pub use codes::{CODES, phase_of};
pub use repair::{preen, repair};
pub use seekless_fs::check::{Outcome, Repaired};

use crate::ondisk::flag;
use crate::superblock::Super;
use crate::volume::Volume;
use fix::{Fix, Fixes, Spot, Stage};
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Report};
use seekless_fs::field::index;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{Extent, GroupNo, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;
use superblock::Chosen;

/// An inode in use, with its links and the names counted so far.
pub(crate) struct CheckedInode {
    kind: FileKind,
    /// Its length in bytes.
    len: u64,
    /// Links it says it has.
    links: i64,
    /// Names that were found.
    names: i64,
    /// Directories only: the inode of its `..`.
    parent: Option<Ino>,
    /// Directories only: the entry that names it.
    named_in: Option<Spot>,
    /// Directories only: its entries besides `.` and `..`.
    entries: u64,
    /// Its blocks cannot be trusted, and are not read.
    bad_blocks: bool,
}

/// A check under way.
struct Checker {
    volume: Volume,
    /// The same volume, with its check hashes compared.
    strict: Volume,
    report: Report,
    /// Repairs of the findings.
    fixes: Fixes,
    /// Fragments in use.
    used: Bits,
    seen: BTreeMap<Ino, CheckedInode>,
    /// How many inodes of each group were ever written.
    written: Vec<u32>,
    /// The entry of the root named `lost+found`, and its inode.
    lost_found: Option<(Spot, Ino)>,
    /// Groups that could not be read, whose inodes are not checked.
    lost_groups: Vec<GroupNo>,
    /// The directories that are named in each.
    children: BTreeMap<Ino, Vec<Ino>>,
    /// The names of each directory, by where they are.
    names_of: BTreeMap<Ino, Vec<Spot>>,
    /// A directory could not be read to its end.
    names_are_missing: bool,
    /// The bytes that the superblock should have, except for counts and state.
    superblock: Vec<u8>,
}

/// Checks an image.
///
/// # Errors
/// [`FsError::Corrupt`] when there is no sound superblock,
/// [`FsError::Device`] when the device fails.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    Ok(Checker::examine(&device)?.report)
}

impl Checker {
    /// Goes through all phases.
    fn examine(device: &Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let chosen = superblock::choose(device)?;
        let volume = Volume::with(Arc::clone(device), chosen.sb.clone(), true);
        let strict = Volume::with(Arc::clone(device), chosen.sb.clone(), false);
        let used = Bits::new(index(volume.sb.size));
        let mut checker = Self {
            volume,
            strict,
            report: Report::default(),
            fixes: Fixes::default(),
            used,
            seen: BTreeMap::new(),
            written: Vec::new(),
            lost_found: None,
            lost_groups: Vec::new(),
            children: BTreeMap::new(),
            names_of: BTreeMap::new(),
            names_are_missing: false,
            superblock: chosen.bytes.clone(),
        };
        checker.superblock(&chosen);
        checker.claim_metadata();
        checker.inodes()?;
        let groups = checker.written.len();
        debug_assert_eq!(groups, index(checker.sb().ncg), "every group was looked at");
        checker.names()?;
        checker.unconnected();
        checker.links();
        checker.groups()?;
        Ok(checker)
    }

    fn fix(&mut self, stage: Stage, fix: Fix) {
        self.fixes.add(stage, fix);
    }

    fn sb(&self) -> &Super {
        &self.volume.sb
    }

    fn expected(&mut self, code: &'static str, what: String, location: Location) {
        debug_assert!(phase_of(code).is_some(), "{code} is a code");
        self.report.add(code, Class::Expected, what, location);
    }

    fn unexpected(&mut self, code: &'static str, what: String, location: Location) {
        debug_assert!(phase_of(code).is_some(), "{code} is a code");
        self.report.add(code, Class::Unexpected, what, location);
    }

    fn superblock(&mut self, chosen: &Chosen) {
        let place = Location::of("superblock");
        for (code, what) in &chosen.findings {
            self.unexpected(code, what.clone(), place);
            self.fix(Stage::Superblock, Fix::Superblock);
        }
        if chosen.hash_differs {
            // A torn write leaves the old hash.
            let what = "check hash does not match".to_string();
            self.expected("superblock.check-hash", what, place);
            self.fix(Stage::Superblock, Fix::Superblock);
        }
        for &(group, at) in &chosen.bad_copies {
            let what = format!("differs from the copy at byte {at}");
            self.unexpected("superblock.copy", what, place.in_group(group));
            self.fix(Stage::Superblock, Fix::Copy(at));
        }
        if !self.sb().clean || self.sb().flags & (flag::UNCLEAN | flag::NEEDS_FSCK) != 0 {
            self.expected("superblock.not-clean", "not marked clean".into(), place);
        }
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.seen.get(&ino).is_some_and(|seen| seen.kind == FileKind::Directory)
    }

    /// Claims the blocks of the volume's own metadata.
    fn claim_metadata(&mut self) {
        for group in (0..self.sb().ncg).map(GroupNo::new) {
            self.claim_fixed(self.sb().group_metadata(group));
        }
        self.claim_fixed(self.sb().summaries);
    }

    fn claim_fixed(&mut self, run: Extent) {
        debug_assert!(run.end().get() <= self.sb().size, "{run}: the superblock was checked");
        for block in run.start.get()..run.end().get() {
            self.used.set(index(block));
        }
    }
}
