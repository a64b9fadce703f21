//! Whether the boot sector's numbers put the clusters where the root directory's entries lead, and
//! the numbers that do.
//!
//! A subdirectory begins with an entry for itself, which has the number of its own cluster. Under
//! wrong numbers no subdirectory of the root is where its name leads, and a repair by them would
//! remove them all.

use super::boot_sector::begin_as_fats;
use super::lengths::Lengths;
use super::names;
use crate::boot::Boot;
use crate::entry::Slot;
use crate::ondisk::{BOOT_SIZE, Bpb, ENTRY_SIZE, ShortEntry, attr, first};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::field::{index, parse};
use seekless_units::BlockNo;
use zerocopy::IntoBytes;

/// Most slots of a root directory that are searched for subdirectories, and most of these.
const MOST_SLOTS: u32 = 1024;
const MOST_FOUND: usize = 16;
/// The first cluster.
const FIRST_CLUSTER: u32 = 2;
/// Least number of files whose lengths alone tell the size of a cluster.
const LEAST_LENGTHS: usize = 3;
/// Most sectors in front of the first FAT, and of a FAT, that are tried.
const MOST_RESERVED: u16 = 64;
const MOST_FAT_SECTORS: u16 = 256;

/// How the first sector looks in which the root directory should be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RootLook {
    /// Most is not the name of a file.
    Other,
    Empty,
    Names,
}

/// The subdirectories of a root directory.
pub(super) struct Subdirectories {
    /// First clusters in the entries of the root, and whether these begin with an entry for
    /// themselves.
    named: Vec<(u32, bool)>,
    root: RootLook,
}

impl Subdirectories {
    pub(super) fn of(device: &dyn BlockDevice, boot: &Boot) -> Result<Self, FsError> {
        let mut named = Vec::new();
        for entry in entries_of_root(device, boot)? {
            let cluster = entry.first_cluster(boot.is_fat32());
            if entry.is_directory() && named.len() < MOST_FOUND {
                let slots = slots(device, boot, boot.sector_of(cluster))?;
                named.push((cluster, is_for(&slots, cluster, boot)));
            }
        }
        let root = look(&slots(device, boot, root_start(boot))?);
        Ok(Self { named, root })
    }

    pub(super) fn root(&self) -> RootLook {
        self.root
    }

    /// Whether none is where its name leads.
    pub(super) fn are_elsewhere(&self) -> bool {
        !self.named.is_empty() && self.there().count() == 0
    }

    /// Whether the root has none.
    pub(super) fn are_none(&self) -> bool {
        self.named.is_empty()
    }

    /// Whether most are where their names lead.
    pub(super) fn are_there(&self) -> bool {
        self.there().count() * 2 > self.named.len()
    }

    /// First clusters of those that are where their names lead.
    fn there(&self) -> impl Iterator<Item = u32> {
        self.named.iter().filter(|(_, is_there)| *is_there).map(|(cluster, _)| *cluster)
    }

    /// Whether there are some behind the first cluster, and whether one of these is where its name
    /// leads. The first cluster is in the same place, whatever the size of clusters.
    fn behind_first(&self) -> (bool, bool) {
        let is_behind = |cluster: u32| cluster > FIRST_CLUSTER;
        let some = self.named.iter().any(|(cluster, _)| is_behind(*cluster));
        (some, self.there().any(is_behind))
    }
}

/// A boot sector with one other number, by which FATs are where they should be and
/// subdirectories where their names lead: how it is read, its bytes, and in words the difference.
/// Without subdirectories, names in the root are enough if `names_suffice`.
pub(super) fn fitting(
    device: &dyn BlockDevice,
    bytes: &[u8; BOOT_SIZE],
    names_suffice: bool,
) -> Result<Option<(Boot, [u8; BOOT_SIZE], String)>, FsError> {
    let Some(old) = parse::<Bpb>(bytes, 0) else { return Ok(None) };
    for new in candidates(&old) {
        let mut changed = *bytes;
        put_fields(&mut changed, &new);
        let Ok(boot) = Boot::parse(&changed, device.len().get()) else { continue };
        if !begin_as_fats(device, &boot)? {
            continue;
        }
        let found = Subdirectories::of(device, &boot)?;
        let has_names = found.are_none() && found.root == RootLook::Names;
        if found.are_there() || (names_suffice && has_names) {
            return Ok(Some((boot, changed, difference(&old, &new))));
        }
    }
    Ok(None)
}

/// A boot sector with another number of sectors in a cluster, by which subdirectories behind the
/// first cluster are where their names lead, or the lengths of several files fit their chains, where
/// none does by the present number.
pub(super) fn fitting_clusters(
    device: &dyn BlockDevice,
    boot: &Boot,
    bytes: &[u8; BOOT_SIZE],
) -> Result<Option<(Boot, [u8; BOOT_SIZE], String)>, FsError> {
    let (some, there) = Subdirectories::of(device, boot)?.behind_first();
    let lengths = Lengths::of(device, boot)?;
    let is_doubtful = !there && lengths.fitting == 0 && (some || lengths.all >= LEAST_LENGTHS);
    if !is_doubtful || !begin_as_fats(device, boot)? {
        return Ok(None);
    }
    let Some(old) = parse::<Bpb>(bytes, 0) else { return Ok(None) };
    for new in per_cluster(&old) {
        let mut changed = *bytes;
        put_fields(&mut changed, &new);
        let Ok(boot) = Boot::parse(&changed, device.len().get()) else { continue };
        let found = Subdirectories::of(device, &boot)?;
        let (some, there) = found.behind_first();
        let lengths = Lengths::of(device, &boot)?;
        let is_by_names = there && found.are_there() && lengths.fitting * 2 >= lengths.all;
        let is_by_lengths = lengths.all >= LEAST_LENGTHS && lengths.fitting == lengths.all;
        if is_by_names || (is_by_lengths && !some) {
            return Ok(Some((boot, changed, difference(&old, &new))));
        }
    }
    Ok(None)
}

/// The fields with another number in one of those that say where clusters begin.
fn candidates(old: &Bpb) -> impl Iterator<Item = Bpb> + use<> {
    let old = *old;
    let has_root = old.BPB_FATSz16.get() != 0;
    let per_sector = old.BPB_BytsPerSec.get() >> 5;
    let most = if has_root { MOST_FAT_SECTORS } else { 0 };
    let fat_sectors = (1..=most).map(move |n| Bpb { BPB_FATSz16: n.into(), ..old });
    let most = if has_root { u16::MAX.checked_div(per_sector).unwrap_or(0) } else { 0 };
    let root = (1..=most).map(move |n| Bpb { BPB_RootEntCnt: (n * per_sector).into(), ..old });
    let reserved = (1..=MOST_RESERVED).map(move |n| Bpb { BPB_RsvdSecCnt: n.into(), ..old });
    per_cluster(&old).chain(root).chain(reserved).chain(fat_sectors)
}

/// The fields with another number of sectors in a cluster.
fn per_cluster(old: &Bpb) -> impl Iterator<Item = Bpb> + use<> {
    let old = *old;
    (0..8).map(move |shift| Bpb { BPB_SecPerClus: 1 << shift, ..old })
}

fn put_fields(bytes: &mut [u8; BOOT_SIZE], new: &Bpb) {
    let fields = bytes.get_mut(..size_of::<Bpb>());
    debug_assert!(fields.is_some(), "a boot sector has its fields");
    if let Some(fields) = fields {
        fields.copy_from_slice(new.as_bytes());
    }
}

/// In words, the number in which fields differ.
fn difference(old: &Bpb, new: &Bpb) -> String {
    let numbers = |bpb: &Bpb| {
        [
            (bpb.BPB_SecPerClus.into(), "sectors in a cluster"),
            (bpb.BPB_RootEntCnt.get(), "entries of the root directory"),
            (bpb.BPB_RsvdSecCnt.get(), "reserved sectors"),
            (bpb.BPB_FATSz16.get(), "sectors of a FAT"),
        ]
    };
    let pairs = numbers(old).into_iter().zip(numbers(new)).filter(|(old, new)| old != new);
    pairs.map(|((old, name), (new, _))| format!("{old} {name} instead of {new}")).collect()
}

/// The first sector of the root directory.
fn root_start(boot: &Boot) -> BlockNo {
    if boot.is_fat32() { boot.sector_of(boot.root_cluster) } else { boot.fixed_root().0 }
}

/// Whether a directory that begins with these slots is that of a cluster, though one byte of its
/// own entry may be wrong.
fn is_for(slots: &[ShortEntry], cluster: u32, boot: &Boot) -> bool {
    let (Some(own), Some(parent)) = (slots.first(), slots.get(1)) else { return false };
    let leads_here = own.first_cluster(boot.is_fat32()) == cluster;
    let leads_nowhere = !boot.is_cluster(own.first_cluster(boot.is_fat32()));
    let is_named = own.dots() == Some(1);
    let has_parent = parent.dots() == Some(2) && parent.is_directory();
    match (is_named, own.is_directory(), has_parent) {
        (true, true, true) => leads_here || leads_nowhere,
        (true, true, false) | (true, false, true) | (false, true, true) => leads_here,
        _ => false,
    }
}

/// How the slots at the start of a root directory look.
fn look(slots: &[ShortEntry]) -> RootLook {
    let (mut names, mut others) = (0usize, 0usize);
    for slot in slots {
        match Slot::parse(slot.as_bytes()) {
            Some(Slot::End) => break,
            Some(Slot::Short(entry))
                if names::is_bad(&entry, true) || entry.DIR_Attr & !attr::LONG_NAME_MASK != 0 =>
            {
                others += 1;
            }
            Some(Slot::Short(_) | Slot::Label(_)) => names += 1,
            _ => {}
        }
    }
    match (names, others) {
        (0, 0) => RootLook::Empty,
        _ if names > others * 4 => RootLook::Names,
        _ => RootLook::Other,
    }
}

/// The entries of the root directory with clusters and valid names, by the first of its sectors.
pub(super) fn entries_of_root(
    device: &dyn BlockDevice,
    boot: &Boot,
) -> Result<Vec<ShortEntry>, FsError> {
    let start = root_start(boot);
    let most =
        if boot.is_fat32() { boot.spc } else { MOST_SLOTS.div_ceil(boot.slots_per_sector()) };
    let mut named = Vec::new();
    for sector in (start.get()..u64::from(boot.total)).take(index(most)) {
        for slot in slots(device, boot, BlockNo::new(sector))? {
            if slot.DIR_Name.first() == Some(&first::END) {
                return Ok(named);
            }
            let Some(Slot::Short(entry)) = Slot::parse(slot.as_bytes()) else { continue };
            let cluster = entry.first_cluster(boot.is_fat32());
            if !names::is_bad(&entry, true) && boot.is_cluster(cluster) {
                named.push(entry);
            }
        }
    }
    Ok(named)
}

/// The slots in a sector of a directory.
fn slots(
    device: &dyn BlockDevice,
    boot: &Boot,
    sector: BlockNo,
) -> Result<Vec<ShortEntry>, FsError> {
    let mut bytes = vec![0; index(boot.sector)];
    device.read_bytes(boot.byte_of(sector), &mut bytes)?;
    Ok(bytes.chunks_exact(ENTRY_SIZE).filter_map(|slot| parse(slot, 0)).collect())
}
