//! Looking at all of an image, as `e2fsck -fn` does: its passes.
//!
//! 0. [`metadata`]: superblock and group descriptors, against their copies
//! 1. [`inodes`], [`reserved`], [`attributes`]: every inode, the blocks it claims, attributes
//! 2. [`names`], [`index`]: every directory and what its entries lead to
//! 3. [`names`]: directories that the root does not lead to
//! 4. [`links`]: numbers of links, unreferenced inodes, shared attributes
//! 5. [`groups`]: bitmaps and counts
//!
//! What waits in the journal is replayed in memory first, as a mount would. A
//! damaged part is reported and passed over; the check itself fails only when
//! the device does, or nothing says how the volume is laid out. Every block of
//! a file's map is read once, so a hostile image costs no more time than an
//! honest one of its size.

mod attributes;
mod codes;
mod groups;
mod index;
mod inodes;
mod links;
mod metadata;
mod names;
mod orphans;
mod reserved;

pub use codes::{CODES, phase_of};

use crate::image::ExtImage;
use crate::journal;
use crate::superblock::Super;
use crate::volume::Volume;
use attributes::SharedBlock;
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Report};
use seekless_fs::field::{index, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// `s_state`: errors were met while it was mounted.
const STATE_ERRORS: u16 = 2;

/// With `shared_blocks`: files a cluster is believed to belong to, on average.
const MOST_SHARES: u64 = 64;

/// An inode in use.
struct Seen {
    kind: FileKind,
    /// Links it says it has.
    links: u64,
    /// Names that lead to it; of a directory also its `.` and the `..` of those
    /// in it.
    names: u64,
    /// Of a directory: what its `..` says.
    parent: Option<Ino>,
    /// Of a directory: the directory an entry was found in.
    named_in: Option<Ino>,
    /// Nothing need lead to it: it belongs to the volume.
    is_special: bool,
    /// It holds the value of attributes.
    is_value: bool,
    /// Its map cannot be followed: it is not read.
    bad_map: bool,
}

/// A check under way.
struct Checker {
    volume: Volume,
    /// The same, compared with its checksums.
    strict: Volume,
    report: Report,
    /// Clusters that something lies in, and of them the volume's own.
    used: Bits,
    fixed: Bits,
    seen: BTreeMap<Ino, Seen>,
    /// Inodes that a mount would delete or truncate.
    orphans: BTreeSet<Ino>,
    /// Inodes in bad blocks, in order: they count as used.
    unusable: Vec<Ino>,
    /// The superblock is a copy.
    from_copy: bool,
    /// Groups whose descriptor's checksum does not match: its marks of what was
    /// never written are not believed.
    doubtful_groups: BTreeSet<GroupNo>,
    /// Groups whose descriptor was reported: what it counts is not.
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
    /// Directories that could not be read to their end.
    cut_short: BTreeSet<Ino>,
}

/// Checks an image; nothing of it is changed.
///
/// # Errors
/// [`FsError::Corrupt`] when there is no sound superblock,
/// [`FsError::Unsupported`] with the name of a feature that is not read,
/// [`FsError::Device`] when the device fails.
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    let mut report = Report::default();
    let device = recover(device, &mut report)?;
    examine(device, report)
}

/// Checks a device as it is, without a look at what its journal may hold.
///
/// # Errors
/// As [`check`].
pub(crate) fn examine(device: Arc<dyn BlockDevice>, mut report: Report) -> Result<Report, FsError> {
    let (volume, from_copy) = metadata::open(device.clone(), &mut report)?;
    let mut strict = Volume::with_superblock(device.clone(), volume.sb.clone(), true)?;
    strict.ignore_checksums = false;
    let clusters = index(volume.sb.clusters());
    let mut checker = Checker {
        volume,
        strict,
        report,
        used: Bits::new(clusters),
        fixed: Bits::new(clusters),
        seen: BTreeMap::new(),
        orphans: BTreeSet::new(),
        unusable: Vec::new(),
        from_copy,
        doubtful_groups: BTreeSet::new(),
        damaged_descriptors: BTreeSet::new(),
        lost_groups: BTreeSet::new(),
        lost_block_bitmaps: BTreeSet::new(),
        lost_inode_bitmaps: BTreeSet::new(),
        shared: HashMap::new(),
        values: HashMap::new(),
        children: BTreeMap::new(),
        shares_left: wide(clusters).saturating_mul(MOST_SHARES),
        cut_short: BTreeSet::new(),
    };
    checker.superblock(device)?;
    checker.metadata()?;
    checker.orphans()?;
    checker.inodes()?;
    checker.names()?;
    checker.unconnected();
    checker.links();
    checker.groups()?;
    Ok(checker.report)
}

impl ExtImage {
    /// Checks the image and refuses it where anything is found that a crash does
    /// not leave. Opened to ignore checksums, it is not refused for those.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first finding; otherwise as [`check`].
    pub fn refuse_damage(&self) -> Result<(), FsError> {
        let volume = self.volume();
        let report = examine(volume.device().clone(), Report::default())?;
        let ignored = |code: &str| volume.ignore_checksums && code.ends_with("checksum");
        let mut grave = report
            .findings
            .iter()
            .filter(|finding| finding.class == Class::Unexpected && !ignored(finding.code));
        let Some(first) = grave.next() else { return Ok(()) };
        Err(FsError::Damaged {
            code: first.code,
            what: first.what.clone(),
            location: Box::new(first.location),
            others: wide(grave.count()).saturating_add(report.more),
        })
    }
}

/// The device with what waits in its journal, where that can be replayed.
fn recover(
    device: Arc<dyn BlockDevice>,
    report: &mut Report,
) -> Result<Arc<dyn BlockDevice>, FsError> {
    let volume = match Volume::open(device.clone(), true) {
        // Without a sound superblock nothing says whether there is something
        // to replay: looked at as it is.
        Err(FsError::Corrupt { .. }) => return Ok(device),
        opened => opened?,
    };
    let place = Location::of("journal");
    match journal::replay(&volume) {
        Ok(None) => Ok(device),
        Ok(Some(replayed)) => {
            let what = "the journal has not been replayed; checked as if it had been".to_string();
            report.add("journal.pending", Class::Expected, what, place);
            Ok(replayed)
        }
        Err(error @ FsError::Corrupt { .. }) => {
            let (what, place) = error.finding(place);
            report.add("journal.corrupt", Class::Unexpected, what, place);
            Ok(device)
        }
        Err(error) => Err(error),
    }
}

impl Checker {
    fn sb(&self) -> &Super {
        &self.volume.sb
    }

    fn expected(&mut self, code: &'static str, what: String, location: Location) {
        self.report.add(code, Class::Expected, what, location);
    }

    fn unexpected(&mut self, code: &'static str, what: String, location: Location) {
        self.report.add(code, Class::Unexpected, what, location);
    }

    /// Reports what damage makes of a result; what the device makes of it is
    /// the end.
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

    /// Reports a checksum that does not match, and nothing else.
    fn checksum<T>(
        &mut self,
        result: Result<T, FsError>,
        code: &'static str,
        place: Location,
    ) -> Result<(), FsError> {
        match result {
            Err(error @ FsError::Corrupt { kind: Corruption::Checksum { .. }, .. }) => {
                let (what, place) = error.finding(place);
                self.unexpected(code, what, place);
                Ok(())
            }
            Ok(_) | Err(FsError::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether there may be more names than were found: what has too few then
    /// need not be damaged.
    fn may_have_more_names(&self) -> bool {
        !self.cut_short.is_empty() || !self.lost_groups.is_empty()
    }

    /// Whether some of what is in use belongs to what cannot be found.
    fn has_lost_blocks(&self) -> bool {
        let lost = [&self.lost_groups, &self.lost_block_bitmaps, &self.lost_inode_bitmaps];
        lost.into_iter().any(|groups| !groups.is_empty())
    }

    /// Whether an inode lies in a group that cannot be read.
    fn is_lost(&self, ino: Ino) -> bool {
        let slot = self.volume.inode_slot(ino);
        slot.is_ok_and(|(group, _)| self.lost_groups.contains(&group))
    }
}
