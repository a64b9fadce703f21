//! Looking at all of an image, as `e2fsck -fn` does: its five passes.
//!
//! 1. [`inodes`], [`attributes`]: every inode, the blocks it claims, attributes
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
mod names;
mod orphans;

pub use codes::{CODES, phase_of};

use crate::journal;
use crate::ondisk::STATE_VALID;
use crate::superblock::Super;
use crate::volume::Volume;
use attributes::SharedBlock;
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Class, Report};
use seekless_fs::field::index;
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// `s_state`: errors were met while it was mounted.
const STATE_ERRORS: u16 = 2;

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
    /// Groups of which the descriptor makes no sense.
    lost_groups: BTreeSet<GroupNo>,
    /// Blocks of attributes, which files may share.
    shared: HashMap<BlockNo, SharedBlock>,
    /// Inodes that hold values, with how often they are named.
    values: HashMap<Ino, u64>,
    /// The directories that are named in each.
    children: BTreeMap<Ino, Vec<Ino>>,
    /// A directory could not be read to its end.
    names_are_missing: bool,
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
    let volume = Volume::open(device.clone(), true)?;
    let mut strict = Volume::open(device.clone(), true)?;
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
        lost_groups: BTreeSet::new(),
        shared: HashMap::new(),
        values: HashMap::new(),
        children: BTreeMap::new(),
        names_are_missing: false,
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

/// The device with what waits in its journal, where that can be replayed.
fn recover(
    device: Arc<dyn BlockDevice>,
    report: &mut Report,
) -> Result<Arc<dyn BlockDevice>, FsError> {
    let volume = Volume::open(device.clone(), true)?;
    let place = Location::of("journal");
    match journal::replay(&volume) {
        Ok(None) => Ok(device),
        Ok(Some(replayed)) => {
            let what = "changes wait in the journal; looked at as if replayed".to_string();
            report.add("journal.pending", Class::Expected, what, place);
            Ok(replayed)
        }
        Err(error @ FsError::Corrupt { .. }) => {
            report.add("journal.corrupt", Class::Unexpected, error.to_string(), place);
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
                self.unexpected(code, error.to_string(), place);
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
                self.unexpected(code, error.to_string(), place);
                Ok(())
            }
            Ok(_) | Err(FsError::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn superblock(&mut self, device: Arc<dyn BlockDevice>) -> Result<(), FsError> {
        let place = Location::of("superblock");
        self.checksum(Volume::open(device, false), "superblock.checksum", place)?;
        let state = self.sb().raw.s_state.get();
        if state & STATE_ERRORS != 0 {
            self.unexpected("superblock.errors", "marked as having errors".into(), place);
        } else if state & STATE_VALID == 0 {
            self.expected("superblock.not-clean", "not marked clean".into(), place);
        }
        Ok(())
    }

    /// What belongs to the volume itself is nobody's.
    fn metadata(&mut self) -> Result<(), FsError> {
        for number in (0..self.sb().groups).map(GroupNo::new) {
            let place = Location::of("group descriptor").in_group(number);
            self.checksum(self.strict.group_desc(number), "group.checksum", place)?;
            match self.sound(self.volume.group_desc(number), "group.head", place)? {
                Some(group) => {
                    for run in self.volume.group_metadata(&group) {
                        self.claim_fixed(run);
                    }
                }
                None => {
                    self.lost_groups.insert(number);
                }
            }
        }
        let first = self.sb().first_block;
        if first.get() == 0 && self.sb().block_size == 1024 {
            // The boot block lies in front of the superblock.
            self.claim_fixed(Extent::new(first, 1));
        }
        let mmp = self.sb().raw.s_mmp_block.get();
        if self.sb().has_incompat(crate::ondisk::incompat::MMP) {
            self.claim_fixed(Extent::new(BlockNo::new(mmp), 1));
        }
        Ok(())
    }

    fn claim_fixed(&mut self, run: Extent) {
        for cluster in self.sb().clusters_of(run) {
            self.used.set(index(cluster));
            self.fixed.set(index(cluster));
        }
    }

    /// Whether an inode lies in a group that cannot be read.
    fn is_lost(&self, ino: Ino) -> bool {
        let slot = self.volume.inode_slot(ino);
        slot.is_ok_and(|(group, _)| self.lost_groups.contains(&group))
    }
}
