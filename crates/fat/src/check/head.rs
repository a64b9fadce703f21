//! The sectors in front of the files: the copy of the boot sector, the FATs compared with each
//! other, the label, and the counts.

use super::boot_sector::{STATE32_AT, info_is_signed};
use super::fat::FatEntries;
use super::{Checker, problems};
use crate::boot::{Boot, Width};
use crate::make::encode::NO_LABEL;
use crate::name;
use crate::ondisk::{BOOT_SIZE, FsInfo, INFO_ORDERED, INFO16_AT, STATE_ORDERED, UNKNOWN};
use crate::table::{Link, Table, entry_place};
use seekless_fs::check::Problem;
use seekless_fs::field::parse;
use seekless_fs::{FsError, Location};
use seekless_units::BlockNo;
use std::collections::{BTreeSet, HashMap};

/// The repairs of the reserved sectors and of differences between the FATs.
pub(super) struct ReservedRepairs {
    /// The boot sector as the check sees it.
    pub(super) boot_sector: [u8; BOOT_SIZE],
    /// Whether the boot sector, or its copy, is to be written.
    pub(super) boot: bool,
    pub(super) copy: bool,
    /// Whether the boot sector gets the signature of the volume's fields.
    pub(super) signature: bool,
    /// The new label of the boot sector.
    pub(super) label: Option<[u8; 11]>,
    /// Entries in which the FATs differ.
    pub(super) differences: BTreeSet<u32>,
    /// Whether the counts are to be written.
    pub(super) info: bool,
    /// The first entry of the FAT, where its value is wrong.
    first_entry: Option<u32>,
    /// Free clusters before any change.
    free: u32,
}

/// The state byte of FAT12 and FAT16.
const STATE16_AT: usize = INFO16_AT + 1;

/// The place of the state byte.
pub(super) fn state_at(boot: &Boot) -> usize {
    if boot.width == Width::Fat32 { STATE32_AT } else { STATE16_AT }
}

fn boot_place() -> Location {
    Location::of("boot sector").in_block(BlockNo::ZERO)
}

impl ReservedRepairs {
    pub(super) fn of(boot_sector: [u8; BOOT_SIZE]) -> Self {
        Self {
            boot_sector,
            boot: false,
            copy: false,
            signature: false,
            label: None,
            differences: BTreeSet::new(),
            info: false,
            first_entry: None,
            free: 0,
        }
    }
}

impl Checker {
    /// Checks the boot sector, its copy, and the FATs.
    pub(super) fn check_head(
        &mut self,
        boot_sector: Vec<(&'static Problem, String)>,
    ) -> Result<(), FsError> {
        self.head.boot = !boot_sector.is_empty();
        for (problem, what) in boot_sector {
            self.found(problem, what, boot_place());
        }
        self.check_copy()?;
        if self.boot().is_dirty() {
            let what = "the volume was not unmounted (state byte)".to_string();
            self.found(problems::BOOT_DIRTY, what, boot_place());
            self.head.boot = true;
        }
        if self.boot().lacks_signature {
            let what = "the volume's number, label and type have no signature".to_string();
            self.found(problems::BOOT_SIGNATURE, what, boot_place());
            (self.head.signature, self.head.boot) = (true, true);
        }
        self.check_first_entry()?;
        self.check_copies()?;
        if let Some(wanted) = self.head.first_entry {
            self.fat.set(0, wanted);
        }
        let marks = self.boot().width.marks();
        if let Some((clean, _)) = marks
            && self.fat.raw(1) & clean == 0
        {
            let place = entry_place(self.boot(), self.boot().active, 1);
            let what = "the volume was not unmounted (second entry of the FAT)".to_string();
            self.found(problems::FAT_NOT_CLEAN, what, place);
            self.fat.set(1, self.fat.raw(1) | clean);
        }
        self.head.free = self.fat.free();
        debug_assert!(self.head.free <= self.boot().clusters, "{} are free", self.head.free);
        self.check_range();
        Ok(())
    }

    fn check_copy(&mut self) -> Result<(), FsError> {
        let Some(at) = self.boot().backup else { return Ok(()) };
        let (mut boot, mut copy) = (self.head.boot_sector, [0; BOOT_SIZE]);
        self.volume.read_bytes(BlockNo::new(at.into()), 0, &mut copy)?;
        for bytes in [&mut boot, &mut copy] {
            if let Some(state) = bytes.get_mut(STATE32_AT) {
                *state = 0;
            }
        }
        if let Some(differs) = boot.iter().zip(&copy).position(|(ours, theirs)| ours != theirs) {
            let what = format!("its copy differs from byte {differs} on");
            let place = Location::of("boot sector").in_block(BlockNo::new(at.into()));
            self.found(problems::BOOT_COPY, what, place);
            self.head.copy = true;
        }
        Ok(())
    }

    /// Checks the first entry: the medium's byte with all higher bits set. A FAT without it is not
    /// used if another one has it.
    fn check_first_entry(&mut self) -> Result<(), FsError> {
        let mask = self.boot().width.mask();
        let wanted = (mask & !0xFF) | u32::from(self.boot().media);
        if self.fat.raw(0) & mask == wanted {
            return Ok(());
        }
        let active = self.boot().active;
        let place = entry_place(self.boot(), active, 0);
        let found = self.fat.raw(0) & mask;
        let mut what = format!("the first entry is {found:#x} instead of {wanted:#x}");
        if self.boot().mirrored {
            for number in (0..self.boot().fats).filter(|&number| number != active) {
                if Table::of(&self.volume, number).raw(0)? & mask == wanted {
                    what += &format!("; FAT {number} is taken instead");
                    // All differences are written to the first one too.
                    let differences = self.fat.differences(&self.volume, number)?;
                    self.head.differences.extend(differences);
                    self.fat = FatEntries::read(&self.volume, number)?;
                    break;
                }
            }
        }
        self.found(problems::FAT_FIRST_ENTRY, what, place);
        self.head.first_entry = Some(wanted);
        Ok(())
    }

    fn check_copies(&mut self) -> Result<(), FsError> {
        if !self.boot().mirrored {
            return Ok(());
        }
        let active = self.boot().active;
        for number in (0..self.boot().fats).filter(|&number| number != active) {
            let differences = self.fat.differences(&self.volume, number)?;
            if let Some(&first) = differences.first() {
                let what = format!("FAT {number} differs in {} entries", differences.len());
                let place = entry_place(self.boot(), number, first);
                self.found(problems::FAT_COPIES_DIFFER, what, place);
                self.take_from_copy(number, &differences)?;
                self.head.differences.extend(differences);
            }
        }
        Ok(())
    }

    /// Takes entries from a copy in which it differs, where only its value is possible: that of the
    /// active FAT is no cluster, or one to which another entry leads.
    fn take_from_copy(&mut self, number: u32, differences: &[u32]) -> Result<(), FsError> {
        let boot = self.boot().clone();
        let mut copy = Table::of(&self.volume, number);
        let mut entries = Vec::new();
        let mut leading: HashMap<u32, u32> = HashMap::new();
        for &cluster in differences.iter().filter(|&&cluster| cluster >= 2) {
            let (ours, copied) = (self.fat.link(&boot, cluster), copy.link(cluster)?);
            entries.push((cluster, ours, copied));
            leading.extend([ours, copied].iter().filter_map(|link| Some((link.next()?, 0))));
        }
        for cluster in 2..=boot.last_cluster() {
            let next = self.fat.link(&boot, cluster).next();
            if let Some(count) = next.and_then(|next| leading.get_mut(&next)) {
                *count += 1;
            }
        }
        let mut taken = Vec::new();
        for (cluster, ours, copied) in entries {
            let leads_to = |leading: &HashMap<u32, u32>, next| leading.get(&next).copied();
            let is_wrong = match ours {
                Link::Wrong(_) => true,
                Link::Next(next) => leads_to(&leading, next) > Some(1),
                _ => false,
            };
            let is_possible = match copied {
                Link::End => true,
                Link::Next(next) => {
                    leads_to(&leading, next) == Some(0)
                        && self.fat.link(&boot, next) != Link::Free
                        && next != cluster
                }
                _ => false,
            };
            if is_wrong && is_possible {
                for (link, adds) in [(ours, false), (copied, true)] {
                    if let Some(count) = link.next().and_then(|next| leading.get_mut(&next)) {
                        *count = if adds { *count + 1 } else { *count - 1 };
                    }
                }
                taken.push((cluster, copy.raw(cluster)?));
            }
        }
        for (cluster, value) in taken {
            let what = format!("cluster {cluster} is as FAT {number} has it");
            let place = entry_place(&boot, boot.active, cluster);
            self.found(problems::FAT_ENTRY, what, place);
            self.fat.set(cluster, value);
        }
        Ok(())
    }

    /// Turns entries with numbers of no cluster into ends of chains.
    fn check_range(&mut self) {
        let end = self.boot().last_cluster() + 1;
        for cluster in 2..end {
            if self.fat.raw(cluster) == 0 {
                continue;
            }
            if let Link::Wrong(value) = self.fat.link(self.boot(), cluster) {
                let place = entry_place(self.boot(), self.boot().active, cluster);
                let what = format!("cluster {cluster} leads to {value}, which is none");
                self.found(problems::FAT_RANGE, what, place);
                self.astray.insert(cluster);
                self.fat.end(cluster);
            }
        }
    }

    /// Whether the volume was last mounted by seekless under a discipline that keeps writes in
    /// order, and was neither unmounted nor checked since.
    pub(super) fn is_ordered(&self) -> Result<bool, FsError> {
        let boot = self.boot();
        if !boot.is_dirty() {
            return Ok(false);
        }
        if let Some((clean, _)) = boot.width.marks()
            && Table::of(&self.volume, boot.active).raw(1)? & clean != 0
        {
            return Ok(false);
        }
        if boot.width != Width::Fat32 {
            return Ok(boot.state & STATE_ORDERED != 0);
        }
        let Some(at) = boot.info else { return Ok(false) };
        let mut bytes = [0; BOOT_SIZE];
        self.volume.read_bytes(BlockNo::new(at.into()), 0, &mut bytes)?;
        Ok(parse::<FsInfo>(&bytes, 0).is_some_and(|info| {
            info.FSI_Reserved2.starts_with(&INFO_ORDERED) && info.FSI_Free_Count.get() == UNKNOWN
        }))
    }

    /// Checks the label and the counts, when the tree is known.
    pub(super) fn check_counts(&mut self) -> Result<(), FsError> {
        if let Some(label) = self.boot().label {
            let wanted = self.root_label.unwrap_or(NO_LABEL);
            if label != wanted {
                let shown = |label| String::from_utf8_lossy(&name::label(label)).into_owned();
                let what =
                    format!("'{}', and '{}' in the root directory", shown(&label), shown(&wanted));
                self.found(problems::LABEL_DIFFERS, what, boot_place());
                (self.head.label, self.head.boot) = (Some(wanted), true);
            }
        }
        let Some(at) = self.boot().info else { return Ok(()) };
        let mut bytes = [0; BOOT_SIZE];
        self.volume.read_bytes(BlockNo::new(at.into()), 0, &mut bytes)?;
        let Some(info) = parse::<FsInfo>(&bytes, 0) else { return Ok(()) };
        let place = Location::of("FSInfo").in_block(BlockNo::new(at.into()));
        let (found, free) = (info.FSI_Free_Count.get(), self.head.free);
        if !info_is_signed(&info) {
            self.found(problems::FSINFO_SIGNATURE, "it has no signature".into(), place);
            self.head.info = true;
        } else if found != free && found != UNKNOWN {
            let what = format!("{found} clusters are free by its count, {free} by the FAT");
            self.found(problems::FSINFO_COUNT, what, place);
            self.report.set_values(found.into(), free.into());
            self.head.info = true;
        }
        Ok(())
    }
}
