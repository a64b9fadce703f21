//! Checks a whole image, and repairs the findings.
//!
//! 1. [`boot_sector`], [`layout`]: the boot sector that counts; [`head`]: its copy, and the FATs
//!    among each other
//! 2. [`walk`], [`names`], [`sums`]: every directory with its entries and names
//! 3. [`chains`]: the clusters of every file
//! 4. [`lost`]: chains without a name
//! 5. [`head`] again: counts
//!
//! A damaged part is reported and passed over; the check itself fails only when the
//! device does, or nothing says how the volume is laid out. Every cluster is claimed once,
//! so a hostile image costs no more time than an honest one of its size.
//!
//! With each finding the check notes its repair: the new entries of directories and of the FAT.
//! [`repair`] writes these.

mod boot_sector;
mod chains;
mod fat;
mod head;
mod layout;
mod lengths;
mod lost;
mod names;
pub(crate) mod problems;
mod repair;
mod sums;
mod walk;

pub use problems::PROBLEMS;
pub use repair::{LostChains, preen, repair};

use crate::boot::Boot;
use crate::ondisk::{ENTRY_SIZE, LAST_FAT32, ShortEntry};
use crate::volume::Volume;
use boot_sector::BootSector;
use fat::FatEntries;
use seekless_device::BlockDevice;
use seekless_fs::bits::Bits;
use seekless_fs::check::{Problem, Report};
use seekless_fs::field::index;
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A directory that is still to be checked.
pub(super) struct Pending {
    /// Its number in the order of the walk, the root being 1.
    ino: Ino,
    /// Its first cluster; 0 for a fixed root.
    first: u32,
    /// The first cluster of its parent, as in `..`.
    above: u32,
    clusters: Vec<u32>,
    /// Its entry; `None` for the root.
    entry: Option<u64>,
}

/// A check under way.
pub(super) struct Checker {
    volume: Volume,
    report: Report,
    /// The FAT that counts.
    fat: FatEntries,
    claimed: Bits,
    /// Entries that may lead to clusters of others; theirs are checked last.
    misled: VecDeque<walk::Found>,
    /// Clusters followed to find these.
    followed: u64,
    /// Clusters that led to a number of no cluster.
    astray: BTreeSet<u32>,
    /// The first clusters behind the lengths of files.
    past: Vec<u32>,
    /// The root directory cannot be read: any chain may have a name then.
    is_blind: bool,
    /// Files met so far.
    files: u32,
    pending: VecDeque<Pending>,
    /// New entries of directories, by their byte on the device.
    entries: BTreeMap<u64, [u8; ENTRY_SIZE]>,
    /// Clusters to be zeroed.
    zeroed: Vec<u32>,
    /// The slots of the root directory, free ones at their bytes.
    root_free: Vec<u64>,
    root_names: names::Names,
    /// First clusters of the subdirectories of the current directory.
    siblings: BTreeSet<u32>,
    root_last: Option<u32>,
    root_label: Option<[u8; 11]>,
    /// First clusters of chains without a name, with their lengths.
    lost: Vec<(u32, u32)>,
    /// The parts of the head that are to be written.
    head: head::ReservedRepairs,
}

/// Checks an image without changing it.
///
/// # Errors
/// [`FsError::Corrupt`] when neither the boot sector nor a copy of it is usable;
/// [`FsError::Device`].
pub fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    Ok(Checker::examine(device)?.report)
}

/// Refuses an image with findings other than harmless ones.
pub(crate) fn refuse_damage(
    device: Arc<dyn BlockDevice>,
    harmless: &[&Problem],
) -> Result<(), FsError> {
    check(device)?.refuse(|finding| harmless.iter().any(|problem| finding.is(problem)))
}

impl Checker {
    pub(super) fn examine(device: Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let BootSector { boot, bytes, found } = BootSector::find(device.as_ref())?;
        let volume = Volume::with(device, boot);
        let fat = FatEntries::read(&volume, volume.boot.active)?;
        let claimed = Bits::new(index(volume.boot.clusters) + 2);
        let mut checker = Self {
            volume,
            report: Report::default(),
            fat,
            claimed,
            misled: VecDeque::new(),
            followed: 0,
            astray: BTreeSet::new(),
            past: Vec::new(),
            is_blind: false,
            files: 1,
            pending: VecDeque::new(),
            entries: BTreeMap::new(),
            zeroed: Vec::new(),
            root_free: Vec::new(),
            root_names: names::Names::default(),
            siblings: BTreeSet::new(),
            root_last: None,
            root_label: None,
            lost: Vec::new(),
            head: head::ReservedRepairs::of(bytes),
        };
        checker.check_head(found)?;
        checker.check_tree()?;
        checker.free_past();
        checker.check_lost();
        debug_assert!(checker.past.is_empty(), "what is past the ends of files is freed");
        checker.check_counts()?;
        Ok(checker)
    }

    pub(super) fn boot(&self) -> &Boot {
        &self.volume.boot
    }

    fn found(&mut self, problem: &'static Problem, what: String, place: Location) {
        self.report.add(problem, what, place);
    }

    /// The place of a directory entry at a byte of the device.
    fn entry_place(&self, ino: Ino, byte: u64) -> Location {
        let sector = u64::from(self.boot().sector);
        let within = u32::try_from(byte % sector).unwrap_or(0);
        let block = BlockNo::new(byte / sector);
        Location::of("directory entry").in_inode(ino).in_block(block).at_offset(within)
    }

    /// Changes the new value of a short entry.
    fn edit(&mut self, byte: u64, old: &ShortEntry, with: impl FnOnce(&mut ShortEntry)) {
        debug_assert!(byte.is_multiple_of(32), "a slot begins at byte {byte}");
        let known = self.entries.get(&byte);
        let known = known.and_then(|bytes| ShortEntry::read_from_bytes(bytes.as_slice()).ok());
        let mut entry = known.unwrap_or(*old);
        with(&mut entry);
        self.put_entry(byte, entry.as_bytes());
    }

    fn put_entry(&mut self, byte: u64, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), ENTRY_SIZE, "the bytes of one slot");
        if let Ok(bytes) = bytes.try_into() {
            self.entries.insert(byte, bytes);
        }
    }

    /// The sectors of a cluster, by their bytes on the device.
    fn sectors_of(&self, cluster: u32) -> impl Iterator<Item = BlockNo> + use<> {
        let first = self.boot().sector_of(cluster);
        (0..u64::from(self.boot().spc)).map(move |n| first + n)
    }
}

/// Sets the first cluster of an entry.
fn set_first(entry: &mut ShortEntry, cluster: u32) {
    debug_assert!(cluster <= LAST_FAT32, "cluster {cluster} has 28 bits");
    entry.DIR_FstClusHI = u16::try_from(cluster >> 16).unwrap_or(0).into();
    entry.DIR_FstClusLO = u16::try_from(cluster & 0xFFFF).unwrap_or(0).into();
}
