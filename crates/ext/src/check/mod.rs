//! Checks a whole image in passes, as `e2fsck -fn` does.
//!
//! 0. [`metadata`]: superblock and group descriptors, against their copies
//! 1. [`inodes`], [`fields`], [`reserved`], [`attributes`]: every inode, its blocks, its attributes
//! 2. [`names`], [`index`]: every directory and the inodes of its entries
//! 3. [`paths`]: directories that are not connected to the root
//! 4. [`links`]: link counts, unreferenced inodes, shared attributes
//! 5. [`groups`]: bitmaps and counts
//!
//! Transactions in the journal are replayed in memory first, as a mount would. A damaged part is
//! reported and passed over; the check itself fails only when the device does, or nothing says how
//! the volume is laid out. Every block of a file's map is read once, so a hostile image costs no
//! more time than an honest one of its size.
//!
//! Each finding comes with the repair for it ([`fix`]); [`repair`] makes these, in an order in
//! which it can be interrupted. A finding is expected where `e2fsck -p` repairs it without a
//! question.

mod attributes;
mod codes;
mod features;
mod fields;
mod fix;
mod groups;
mod index;
mod inodes;
mod links;
mod metadata;
mod names;
mod orphans;
mod paths;
mod repair;
mod reserved;
mod salvage;

pub use codes::{CODES, phase_of};
pub use repair::{preen, repair};

use crate::image::ExtImage;
use crate::journal;
use crate::ondisk::incompat;
use crate::superblock::Super;
use crate::volume::Volume;
use attributes::SharedBlock;
use fix::{Fix, Fixes, Spot, Stage};
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Report};
use seekless_fs::field::{index, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Findings of any volume that was not unmounted: nothing that is read or laid out again depends on
/// them.
const CARRIED: [&str; 6] = [
    "superblock.errors",
    "superblock.not-clean",
    "superblock.totals",
    "journal.pending",
    "orphan.list",
    "inode.orphan",
];

/// Checksums that `e2fsck -p` renews where the covered structure is sound.
const RENEWED: [&str; 3] = ["group.checksum", "bitmap.checksum", "inode.checksum"];

/// With `shared_blocks`: files a cluster is believed to belong to, on average.
const MOST_SHARES: u64 = 64;

/// How often a cluster may belong to something else besides, on average. The maps of further inodes
/// are given up: else a hostile image could claim all of itself in each inode.
const MOST_CONFLICTS: u64 = 4;

/// An inode in use, with its links and the names counted so far.
struct CheckedInode {
    kind: FileKind,
    /// Links it says it has.
    links: u64,
    /// Names that lead to it; for a directory also its `.` and the `..` of its subdirectories.
    names: u64,
    /// Directories only: the inode of its `..`.
    parent: Option<Ino>,
    /// Directories only: the entry that names it.
    named_in: Option<Spot>,
    /// It has neither blocks nor inline contents.
    is_empty: bool,
    /// It needs no name: it belongs to the volume.
    is_special: bool,
    /// It holds an attribute value.
    is_value: bool,
    /// Its map cannot be followed, and is not read.
    bad_map: bool,
}

/// A check under way.
struct Checker {
    volume: Volume,
    /// The same volume, with its checksums compared.
    strict: Volume,
    report: Report,
    /// Repairs of the findings.
    fixes: Fixes,
    /// Clusters in use, those of the volume's own metadata, and those that were claimed twice.
    used: Bits,
    fixed: Bits,
    twice: Bits,
    seen: BTreeMap<Ino, CheckedInode>,
    /// Inodes that a mount would delete or truncate.
    orphans: BTreeSet<Ino>,
    /// Inodes in bad blocks, in order: they count as used.
    unusable: Vec<Ino>,
    /// The superblock is a copy.
    from_copy: bool,
    /// The entry of the root named `lost+found`, and its inode.
    lost_found: Option<(Spot, Ino)>,
    /// Groups whose descriptor's checksum does not match: its flags for never written bitmaps and
    /// tables are ignored.
    doubtful_groups: BTreeSet<GroupNo>,
    /// Groups whose descriptor was reported: its counts are not compared.
    damaged_descriptors: BTreeSet<GroupNo>,
    /// Groups whose inode table cannot be found.
    lost_groups: BTreeSet<GroupNo>,
    /// Groups whose bitmaps cannot be found.
    lost_block_bitmaps: BTreeSet<GroupNo>,
    lost_inode_bitmaps: BTreeSet<GroupNo>,
    /// Blocks of attributes, which files may share.
    shared: HashMap<BlockNo, SharedBlock>,
    /// Inodes that hold values, with how often they are named.
    values: HashMap<Ino, u64>,
    /// The directories that are named in each.
    children: BTreeMap<Ino, Vec<Ino>>,
    /// How often clusters may still be shared, with `shared_blocks`.
    shares_left: u64,
    /// How often clusters may still belong to something else besides.
    conflicts_left: u64,
    /// Directories that could not be read to their end.
    cut_short: BTreeSet<Ino>,
    /// There is a large file without the feature for it.
    has_large: bool,
    /// Free clusters and inodes.
    free: (u64, u32),
}

/// Checks an image without changing it.
///
/// # Errors
/// [`FsError::Corrupt`] when there is no sound superblock,
/// [`FsError::Unsupported`] with the name of a feature that is not read,
/// [`FsError::Device`] when the device fails.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    Ok(Checker::examine(device)?.report)
}

/// Checks a device as it is, without its journal.
fn look(
    device: Arc<dyn BlockDevice>,
    mut report: Report,
    mut fixes: Fixes,
) -> Result<Checker, FsError> {
    let (volume, from_copy) = metadata::open(device.clone(), &mut report, &mut fixes)?;
    let mut strict = Volume::with_superblock(device.clone(), volume.sb.clone(), true)?;
    strict.ignore_checksums = false;
    let clusters = index(volume.sb.clusters());
    let mut checker = Checker {
        volume,
        strict,
        report,
        fixes,
        used: Bits::new(clusters),
        fixed: Bits::new(clusters),
        twice: Bits::new(clusters),
        seen: BTreeMap::new(),
        orphans: BTreeSet::new(),
        unusable: Vec::new(),
        from_copy,
        lost_found: None,
        doubtful_groups: BTreeSet::new(),
        damaged_descriptors: BTreeSet::new(),
        lost_groups: BTreeSet::new(),
        lost_block_bitmaps: BTreeSet::new(),
        lost_inode_bitmaps: BTreeSet::new(),
        shared: HashMap::new(),
        values: HashMap::new(),
        children: BTreeMap::new(),
        shares_left: wide(clusters) * MOST_SHARES,
        conflicts_left: wide(clusters) * MOST_CONFLICTS,
        cut_short: BTreeSet::new(),
        has_large: false,
        free: (0, 0),
    };
    checker.superblock()?;
    checker.metadata()?;
    checker.orphans()?;
    checker.inodes()?;
    checker.names()?;
    checker.unconnected();
    checker.links();
    checker.groups()?;
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
        let report = look(volume.device().clone(), Report::default(), Fixes::default())?.report;
        let ignored = |code: &str| {
            CARRIED.contains(&code) || volume.ignore_checksums && code.ends_with("checksum")
        };
        let mut grave = report.findings.iter().filter(|finding| !ignored(finding.code));
        let Some(first) = grave.next() else { return Ok(()) };
        Err(FsError::Damaged {
            code: first.code,
            what: first.what.clone(),
            location: Box::new(first.location),
            others: wide(grave.count()) + report.more,
        })
    }
}

/// The device with the journal's transactions, where these can be replayed.
fn recover(
    device: Arc<dyn BlockDevice>,
    report: &mut Report,
    fixes: &mut Fixes,
) -> Result<Arc<dyn BlockDevice>, FsError> {
    let volume = match Volume::open(device.clone(), true) {
        // Without a sound superblock the flag for recovery is unknown: the device is checked as it
        // is.
        Err(FsError::Corrupt { .. }) => return Ok(device),
        opened => opened?,
    };
    let place = Location::of("journal");
    let is_marked = volume.sb.has_incompat(incompat::RECOVER);
    match journal::replay_for_repair(&volume) {
        Ok(None) => {
            // Nothing is to be replayed, despite the superblock's flag.
            if is_marked {
                fixes.add(Stage::Journal, Fix::Replay);
                let what = "the journal is empty, but the superblock says that it is not";
                report.add("journal.pending", Class::Expected, what.to_string(), place);
            }
            Ok(device)
        }
        Ok(Some(replayed)) => {
            let (class, what) = if is_marked {
                (Class::Expected, "the journal has not been replayed; checked as if it had been")
            } else {
                (Class::Unexpected, metadata::UNMARKED_JOURNAL)
            };
            report.add("journal.pending", class, what.to_string(), place);
            fixes.add(Stage::Journal, Fix::Replay);
            Ok(replayed.overlay)
        }
        Err(error @ FsError::Corrupt { .. }) => {
            let (what, place) = error.finding(place);
            report.add("journal.corrupt", Class::Unexpected, what, place);
            fixes.add(Stage::Journal, Fix::EmptyJournal);
            Ok(device)
        }
        Err(error) => Err(error),
    }
}

impl Checker {
    /// Goes through all passes.
    fn examine(device: Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let (mut report, mut fixes) = (Report::default(), Fixes::default());
        let device = recover(device, &mut report, &mut fixes)?;
        look(device, report, fixes)
    }

    fn sb(&self) -> &Super {
        &self.volume.sb
    }

    fn fix(&mut self, stage: Stage, fix: Fix) {
        self.fixes.add(stage, fix);
    }

    fn expected(&mut self, code: &'static str, what: String, location: Location) {
        self.report.add(code, Class::Expected, what, location);
    }

    fn unexpected(&mut self, code: &'static str, what: String, location: Location) {
        self.report.add(code, Class::Unexpected, what, location);
    }

    /// Reports a finding that `e2fsck -p` repairs only under a condition.
    fn graded(&mut self, expected: bool, code: &'static str, what: String, location: Location) {
        let class = if expected { Class::Expected } else { Class::Unexpected };
        self.report.add(code, class, what, location);
    }

    /// Reports damage in a result as a finding; errors of the device are passed on.
    fn sound<T>(
        &mut self,
        result: Result<T, FsError>,
        code: &'static str,
        place: Location,
    ) -> Result<Option<T>, FsError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ FsError::Corrupt { .. }) => {
                let (what, place) = error.finding(place);
                self.unexpected(code, what, place);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports a checksum that does not match, and no other error; whether there is one.
    fn checksum<T>(
        &mut self,
        result: Result<T, FsError>,
        code: &'static str,
        place: Location,
    ) -> Result<bool, FsError> {
        match result {
            Err(error @ FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) => {
                let (what, place) = error.finding(place);
                self.graded(RENEWED.contains(&code), code, what, place);
                Ok(true)
            }
            Ok(_) | Err(FsError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether some names may not have been found, so that a missing name is no proof of damage.
    fn may_have_more_names(&self) -> bool {
        !self.cut_short.is_empty() || !self.lost_groups.is_empty()
    }

    /// Whether blocks in use may belong to inodes or bitmaps that cannot be found.
    fn has_lost_blocks(&self) -> bool {
        let lost = [&self.lost_groups, &self.lost_block_bitmaps, &self.lost_inode_bitmaps];
        lost.into_iter().any(|groups| !groups.is_empty())
    }

    /// Blocks and inodes that are free.
    fn free_totals(&self) -> (u64, u32) {
        (self.free.0 * u64::from(self.sb().cluster_ratio), self.free.1)
    }

    /// Whether an inode is a directory in use.
    fn is_directory(&self, ino: Ino) -> bool {
        self.seen.get(&ino).is_some_and(|seen| seen.kind == FileKind::Directory)
    }

    /// Whether an inode lies in a group that cannot be read.
    fn is_lost(&self, ino: Ino) -> bool {
        let slot = self.volume.inode_slot(ino);
        slot.is_ok_and(|(group, _)| self.lost_groups.contains(&group))
    }
}
