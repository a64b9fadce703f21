//! Repairs the findings of a check.
//!
//! A repair is a sequence of rounds: a check of the whole image finds the damage and the right
//! values of entries; these are written, and the next check sees the result. Within a round,
//! directories are written first, so that nothing names a cluster any more when the FATs free it;
//! then the active FAT (see [`Step`]), and its copies; then names for chains without one; then
//! counts, and last the boot sector, with the mark that the volume was unmounted. The next repair
//! resumes one that was interrupted.

use super::fat::Step;
use super::head::state_at;
use super::names::Names;
use super::walk::dot;
use super::{Checker, set_first};
use crate::boot::Width;
use crate::ondisk::{
    BOOT_SIZE, ENTRY_SIZE, EXTENDED, FsInfo, INFO_LEAD, INFO_ORDERED, INFO_STRUCT, INFO_TRAIL,
    INFO16_AT, INFO32_AT, STATE_DIRTY, STATE_ORDERED, ShortEntry, VolumeInfo, attr,
};
use crate::table::entry_byte;
use crate::time::{EARLIEST, Stamp};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::check::{Repaired, Rounds};
use seekless_fs::field::{index, wide};
use seekless_units::{BlockNo, ByteLen, Lba, SECTOR};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Most rounds: an honest image needs two or three.
const ROUNDS: u32 = 12;
/// Most files and directories made of chains without a name in one directory: there are this many
/// names.
const MOST_IN_ROOT: usize = 9_000;
/// Entries that a directory begins with.
const DOTS: usize = 2;
/// Extensions of the names made up for files and directories.
const REC: &[u8; 3] = b"REC";
const DIR: &[u8; 3] = b"DIR";
/// The offset of the signature of the volume's fields.
const SIGNATURE_IN_INFO: usize = offset_of!(VolumeInfo, BS_BootSig);
/// The offset of the label behind the volume's fields.
const LABEL_IN_INFO: usize = offset_of!(VolumeInfo, BS_VolLab);

/// The treatment of lost chains: clusters in use that no name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LostChains {
    /// They are freed after a crash of a mount that kept writes in order, and kept otherwise:
    /// such a crash leaves parts of files that were being made or removed, and only these.
    #[default]
    ByMark,
    /// A file `FSCKnnnn.REC` in the root directory.
    Kept,
    /// They are freed.
    Freed,
}

/// Repairs the damage of a crash under a discipline that keeps order; if there is any other
/// finding, nothing is written.
///
/// # Errors
/// As [`check`](crate::check()).
pub fn preen(device: Arc<dyn BlockDevice>, lost: LostChains) -> Result<Repaired, FsError> {
    run(device, lost, true)
}

/// Repairs everything.
///
/// # Errors
/// As [`preen`].
pub fn repair(device: Arc<dyn BlockDevice>, lost: LostChains) -> Result<Repaired, FsError> {
    run(device, lost, false)
}

fn run(device: Arc<dyn BlockDevice>, lost: LostChains, preen: bool) -> Result<Repaired, FsError> {
    let mut lost = lost;
    let mut found = Rounds::default();
    let mut writes = 0;
    for rounds in 1..=ROUNDS {
        let checker = Checker::examine(device.clone())?;
        let report = checker.report.clone();
        found.merge(&report, |_| false);
        if lost == LostChains::ByMark {
            // With an unexpected finding, they may be damaged files.
            let frees = checker.is_ordered()? && report.unexpected == 0;
            lost = if frees { LostChains::Freed } else { LostChains::Kept };
        }
        let before = writes;
        let is_stuck = preen && report.unexpected > 0;
        if !report.is_clean() && !is_stuck {
            writes = RepairWriter { checker, device: device.as_ref(), writes, lost }.apply()?;
        }
        if report.is_clean() || writes == before || rounds == ROUNDS {
            return Ok(found.end(&report.findings, rounds, writes));
        }
    }
    Err(FsError::Unsupported("repairing comes to no end".into()))
}

/// Writes the repairs of a check.
struct RepairWriter<'a> {
    checker: Checker,
    device: &'a dyn BlockDevice,
    writes: u64,
    lost: LostChains,
}

impl RepairWriter<'_> {
    /// Writes all of it; returns the number of writes so far.
    fn apply(mut self) -> Result<u64, FsError> {
        let named = self.name_lost();
        let zeroed = std::mem::take(&mut self.checker.zeroed);
        for cluster in zeroed {
            let at = self.checker.boot().byte_of(self.checker.boot().sector_of(cluster));
            let zeros = vec![0; index(self.checker.boot().cluster_bytes())];
            self.write(at.get(), &zeros)?;
        }
        let entries = std::mem::take(&mut self.checker.entries);
        self.patch_entries(&entries)?;
        self.device.flush()?;
        self.fats()?;
        self.device.flush()?;
        self.patch_entries(&named)?;
        self.counts()?;
        self.device.flush()?;
        self.boot()?;
        self.device.flush()?;
        debug_assert!(self.checker.lost.is_empty(), "lost chains have a name or are free");
        Ok(self.writes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FsError> {
        debug_assert!(at.is_multiple_of(SECTOR), "whole sectors are written");
        self.device.write(Lba::containing(ByteLen::new(at)), bytes)?;
        self.writes += 1;
        Ok(())
    }

    /// Names or frees chains without a name; returns the entries of the names. If the root
    /// directory has too little room, the chains go into new directories; those without room there
    /// either are freed.
    fn name_lost(&mut self) -> BTreeMap<u64, [u8; ENTRY_SIZE]> {
        let mut lost = VecDeque::from(std::mem::take(&mut self.checker.lost));
        let mut named = BTreeMap::new();
        let mut free = VecDeque::from(std::mem::take(&mut self.checker.root_free));
        let grows = self.checker.root_last.is_some();
        let room = if grows { MOST_IN_ROOT } else { free.len() };
        if self.lost != LostChains::Freed {
            let apart = lost.len() > room;
            while !lost.is_empty() {
                if free.is_empty() {
                    free.extend(self.extend_root());
                }
                let Some(&slot) = free.front() else { break };
                let entry = if apart {
                    self.directory_of_lost(&mut lost)
                } else {
                    let name = self.checker.root_names.make_up(REC);
                    name.and_then(|name| Some(self.lost_entry(name, lost.pop_front()?)))
                };
                let Some(entry) = entry else { break };
                free.pop_front();
                if let Ok(bytes) = entry.as_bytes().try_into() {
                    let before = named.insert(slot, bytes);
                    debug_assert!(before.is_none(), "slot {slot} is given once");
                }
            }
        }
        for (first, _) in lost {
            self.checker.free_chain(first);
        }
        named
    }

    /// The entry of a chain without a name.
    fn lost_entry(&self, name: [u8; 11], (first, len): (u32, u32)) -> ShortEntry {
        debug_assert!(len > 0, "a chain has clusters");
        let bytes = u64::from(len) * self.checker.boot().cluster_bytes();
        let mut entry = ShortEntry::new_zeroed();
        (entry.DIR_Name, entry.DIR_Attr) = (name, attr::ARCHIVE);
        entry.DIR_WrtDate = Stamp::of(EARLIEST).date.into();
        entry.DIR_FileSize = u32::try_from(bytes).unwrap_or(u32::MAX).into();
        set_first(&mut entry, first);
        entry
    }

    /// Makes a directory of as many chains as names or free clusters allow; returns its entry for
    /// the root directory.
    fn directory_of_lost(&mut self, lost: &mut VecDeque<(u32, u32)>) -> Option<ShortEntry> {
        let name = self.checker.root_names.make_up(DIR)?;
        let bytes = self.checker.boot().cluster_bytes();
        let per = index(bytes) / ENTRY_SIZE;
        let slots = lost.len().min(MOST_IN_ROOT) + DOTS;
        let mut clusters: Vec<u32> = Vec::new();
        while clusters.len() * per < slots {
            let Some(fresh) = self.checker.fat.next_free(2) else { break };
            if let Some(&last) = clusters.last() {
                self.checker.fat.set(last, fresh);
            }
            self.checker.fat.end(fresh);
            clusters.push(fresh);
        }
        let &first = clusters.first()?;
        let mut names = Names::default();
        for (nth, &cluster) in clusters.iter().enumerate() {
            self.checker.zeroed.push(cluster);
            let start = self.checker.boot().byte_of(self.checker.boot().sector_of(cluster)).get();
            for slot in 0..per {
                let at = start + wide(slot * ENTRY_SIZE);
                let entry = match (nth, slot) {
                    (0, 0) => dot(1, first),
                    (0, 1) => dot(2, 0),
                    _ => {
                        let Some(name) = names.make_up(REC) else { break };
                        let Some(chain) = lost.pop_front() else { break };
                        self.lost_entry(name, chain)
                    }
                };
                self.checker.put_entry(at, entry.as_bytes());
            }
        }
        let mut entry = dot(1, first);
        entry.DIR_Name = name;
        Some(entry)
    }

    /// Adds a cluster to a root directory of clusters; returns its slots.
    fn extend_root(&mut self) -> Vec<u64> {
        let checker = &mut self.checker;
        let Some(last) = checker.root_last else { return Vec::new() };
        let Some(fresh) = checker.fat.next_free(2) else { return Vec::new() };
        checker.fat.set(last, fresh);
        checker.fat.end(fresh);
        checker.root_last = Some(fresh);
        checker.zeroed.push(fresh);
        let start = checker.boot().byte_of(checker.boot().sector_of(fresh)).get();
        let end = start + checker.boot().cluster_bytes();
        (start..end).step_by(ENTRY_SIZE).collect()
    }

    /// Writes entries of directories, one sector after the other.
    fn patch_entries(&mut self, entries: &BTreeMap<u64, [u8; ENTRY_SIZE]>) -> Result<(), FsError> {
        let bytes = entries.iter().flat_map(|(&at, entry)| (at..).zip(entry.iter().copied()));
        self.patch(&bytes.collect())
    }

    /// Changes bytes of the device, by whole sectors.
    fn patch(&mut self, bytes: &BTreeMap<u64, u8>) -> Result<(), FsError> {
        let sector = u64::from(self.checker.boot().sector);
        let starts: BTreeSet<u64> = bytes.keys().map(|at| at - at % sector).collect();
        for start in starts {
            let mut old = vec![0; index(sector)];
            self.device.read_bytes(ByteLen::new(start), &mut old)?;
            let mut new = old.clone();
            for (&at, &byte) in bytes.range(start..start + sector) {
                if let Some(there) = new.get_mut(index(at - start)) {
                    *there = byte;
                }
            }
            if new != old {
                self.write(start, &new)?;
            }
        }
        Ok(())
    }

    /// Writes the entries of the FATs that changed, and those in which copies differ: of the
    /// active FAT in steps, then of the copies.
    fn fats(&mut self) -> Result<(), FsError> {
        let boot = self.checker.boot();
        let (active, mirrored, fats) = (boot.active, boot.mirrored, boot.fats);
        for step in [Step::Taken, Step::Cut, Step::Freed] {
            let before = self.writes;
            self.fat(active, step)?;
            if self.writes > before {
                self.device.flush()?;
            }
        }
        for number in (0..fats).filter(|&number| mirrored && number != active) {
            self.fat(number, Step::Freed)?;
        }
        Ok(())
    }

    /// Writes entries of a FAT as they are after a step.
    fn fat(&mut self, number: u32, step: Step) -> Result<(), FsError> {
        let checker = &self.checker;
        let (boot, fat) = (checker.boot(), &checker.fat);
        let start = boot.byte_of(boot.fat_start(number)).get();
        let differences = checker.head.differences.iter().copied();
        let mut bytes: BTreeMap<u64, u8> = BTreeMap::new();
        for cluster in fat.changed().chain(differences) {
            // On FAT12 a pair of entries shares three bytes.
            let first = if boot.width == Width::Fat12 { cluster & !1 } else { cluster };
            let one = fat.raw_after(first, step);
            let (encoded, len) = match boot.width {
                // Behind the last entry another FAT, or the root, begins.
                Width::Fat12 if first >= boot.last_cluster() => (one & 0xFFF, 2),
                Width::Fat12 => {
                    let two = fat.raw_after(first + 1, step);
                    ((one & 0xFFF) | (two & 0xFFF) << 12, 3)
                }
                Width::Fat16 => (one, 2),
                Width::Fat32 => (one, 4),
            };
            let at = start + entry_byte(boot.width, first);
            bytes.extend((at..).zip(encoded.to_le_bytes().into_iter().take(len)));
        }
        self.patch(&bytes)
    }

    /// Writes the current counts, if the volume has them.
    fn counts(&mut self) -> Result<(), FsError> {
        let Some(at) = self.checker.boot().info else { return Ok(()) };
        let at = self.checker.boot().byte_of(BlockNo::new(at.into())).get();
        let mut old = vec![0; BOOT_SIZE];
        self.device.read_bytes(ByteLen::new(at), &mut old)?;
        let Ok(mut info) = FsInfo::read_from_bytes(&old) else { return Ok(()) };
        info.FSI_LeadSig = INFO_LEAD.into();
        info.FSI_StrucSig = INFO_STRUCT.into();
        info.FSI_TrailSig = INFO_TRAIL.into();
        info.FSI_Free_Count = self.checker.fat.free().into();
        if info.FSI_Reserved2.starts_with(&INFO_ORDERED) {
            info.FSI_Reserved2 = [0; 12];
        }
        if info.as_bytes() != old { self.write(at, info.as_bytes()) } else { Ok(()) }
    }

    /// Writes the boot sector and its copy, if they are to change.
    fn boot(&mut self) -> Result<(), FsError> {
        let head = &self.checker.head;
        if !head.boot && !head.copy {
            return Ok(());
        }
        let mut bytes = head.boot_sector;
        let boot = self.checker.boot();
        if let Some(state) = bytes.get_mut(state_at(boot)).filter(|_| boot.label.is_some()) {
            *state &= !(STATE_DIRTY | STATE_ORDERED);
        }
        let info = if boot.width == Width::Fat32 { INFO32_AT } else { INFO16_AT };
        if let Some(signature) = bytes.get_mut(info + SIGNATURE_IN_INFO).filter(|_| head.signature)
        {
            *signature = EXTENDED;
        }
        if let Some(label) = head.label {
            let at = info + LABEL_IN_INFO;
            if let Some(there) = bytes.get_mut(at..at + label.len()) {
                there.copy_from_slice(&label);
            }
        }
        let copy = boot.backup.map(|at| boot.byte_of(BlockNo::new(at.into())).get());
        if let Some(at) = copy {
            let mut old = [0; BOOT_SIZE];
            self.device.read_bytes(ByteLen::new(at), &mut old)?;
            if old != bytes {
                self.write(at, &bytes)?;
            }
        }
        self.write(0, &bytes)
    }
}
