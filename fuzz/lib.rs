//! What the fuzz targets share.
//!
//! A fuzz input is a list of patches to one of the small images of the damage
//! tests, confined to the blocks that hold what the target parses: so the
//! fuzzer spends its time on the structures, not on finding them, and corpora
//! stay small. Layout of an input:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | low bits: which image; top bit: verify checksums |
//! | 3, repeated | two bytes of place within the region, one of length (1..=16) |
//! | length | the bytes to put there |

mod damage;
#[path = "../crates/fs/tests/shared/exercise.rs"]
mod exercise;
#[path = "../crates/fat/tests/testsuite/damage/images.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod fat_images;
#[path = "../crates/fat/tests/testsuite/live/in_use.rs"]
#[allow(dead_code, reason = "the tests look at what came of an input")]
mod fat_in_use;
#[path = "../crates/ffs/tests/testsuite/damage/images.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod ffs_images;
#[path = "../crates/ffs/tests/testsuite/damage/journals.rs"]
#[allow(dead_code, reason = "the tests look at what came of an input")]
mod ffs_journals;
#[path = "../crates/ffs/tests/testsuite/damage/quotas.rs"]
#[allow(dead_code, reason = "the tests look at what came of an input")]
mod ffs_quotas;
#[path = "../crates/source/tests/damage/lists.rs"]
mod lists;
#[path = "../crates/qcow2/tests/damage/images.rs"]
mod qcow2_images;
#[path = "../crates/vhd/tests/damage/footers.rs"]
mod vhd_footers;

use damage::{images, in_use, quotas};
use seekless_device::MemoryDevice;
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{BlockNo, Ino};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Runs one input on the images of UFS, any byte of which may change.
pub fn run_ffs(data: &[u8]) {
    if let Some(bytes) = damaged_ffs(data) {
        exercise::exercise(&seekless_ffs::FORMAT, bytes, false);
    }
}

/// Recovers a UFS volume by a journal of soft updates with any records.
pub fn run_soft_journal(data: &[u8]) {
    static BASES: OnceLock<Vec<ffs_journals::Base>> = OnceLock::new();
    ffs_journals::run(data, BASES.get_or_init(ffs_journals::bases));
}

/// Reads, compares, changes and corrects quotas of a UFS volume with damaged quota files.
pub fn run_quota_ufs(data: &[u8]) {
    static BASES: OnceLock<Vec<ffs_quotas::Base>> = OnceLock::new();
    ffs_quotas::run(data, BASES.get_or_init(ffs_quotas::bases));
}

fn fat_bases() -> &'static [Vec<u8>] {
    static BASES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let unpack = |(_, compressed): &(_, &[u8])| fat_images::unpack(compressed);
    BASES.get_or_init(|| fat_images::IMAGES.iter().map(unpack).collect())
}

/// Reads a qcow2 image, any byte of which may change.
pub fn run_qcow2(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let all = qcow2_images::IMAGES;
    let (_, compressed) = all[usize::from(choice) % all.len()];
    qcow2_images::exercise(qcow2_images::patched(qcow2_images::unpack(compressed), rest));
}

/// Reads a disk behind which a damaged VHD footer stands.
pub fn run_vhd(data: &[u8]) {
    vhd_footers::run(data);
}

/// Reads a definition of a partition.
pub fn run_definitions(data: &[u8]) {
    use seekless_compose::definitions::Definition;
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Definition::parse("a.conf".as_ref(), text, seekless_partition::Architecture::X86_64);
}

/// Disks that are shorter are read as a whole.
const SHORT: u64 = 1 << 20;

/// Finds the contexts of a tree.
pub fn run_file_contexts(data: &[u8]) {
    lists::run_file_contexts(data);
}

/// Changes a tree by a table of devices.
pub fn run_device_table(data: &[u8]) {
    lists::run_device_table(data);
}

/// Changes a tree by a manifest.
pub fn run_mtree(data: &[u8]) {
    lists::run_mtree(data);
}

/// Opens an Android sparse image. What can be read is written, and reads the same.
pub fn run_simg(data: &[u8]) {
    use seekless_device::BlockDevice;
    use seekless_units::ByteLen;
    let open =
        |bytes: &[u8]| seekless_simg::Disk::open(Arc::new(MemoryDevice::new(bytes.to_vec())));
    let Ok(disk) = open(data) else { return };
    let len = disk.len().get();
    let part = len.min(4096);
    let mut end = vec![0; part as usize];
    disk.read_bytes(ByteLen::new(len - part), &mut end).expect("the end of the disk");
    if len > SHORT {
        return;
    }
    let all = |disk: &dyn BlockDevice| {
        let mut bytes = vec![0; disk.len().get() as usize];
        disk.read_bytes(ByteLen::ZERO, &mut bytes).expect("the disk");
        bytes
    };
    let mut again = Vec::new();
    seekless_simg::write(&disk, &mut again, &mut || Ok(())).expect("memory");
    let mut wanted = all(&disk);
    wanted.resize(wanted.len().next_multiple_of(4096), 0);
    assert!(all(&open(&again).expect("just written")) == wanted);
}

/// Runs operations on a FAT image in use, damaged or not.
pub fn run_live_fat(data: &[u8]) {
    fat_in_use::run(data, fat_bases());
}

/// Runs one input on the images of FAT, any byte of which may change.
pub fn run_fat(data: &[u8]) {
    let bases = fat_bases();
    let Some((&choice, rest)) = data.split_first() else { return };
    let bytes = fat_images::patched(bases[usize::from(choice) % bases.len()].clone(), 0, rest);
    exercise::exercise(&seekless_fat::FORMAT, bytes.clone(), choice & 0x80 != 0);
    // What is repaired is clean.
    let device = Arc::new(MemoryDevice::new(bytes));
    let Ok(repaired) = seekless_fat::repair(device.clone(), seekless_fat::LostChains::Kept) else {
        return;
    };
    let again =
        seekless_fat::repair(device, seekless_fat::LostChains::Kept).expect("repaired once");
    if repaired.outcome != seekless_fs::check::Outcome::Left {
        assert_eq!(again.outcome, seekless_fs::check::Outcome::Clean, "{:#?}", again.report);
    }
}

/// Repairs such an image: where that does not say why it cannot, the image is
/// clean then.
pub fn run_repair(data: &[u8]) {
    let Some(bytes) = damaged_ffs(data) else { return };
    let device = Arc::new(MemoryDevice::new(bytes));
    let Ok(repaired) = seekless_ffs::repair(device.clone()) else { return };
    let again = seekless_ffs::repair(device).expect("repaired once");
    if repaired.outcome != seekless_ffs::Outcome::Left {
        assert_eq!(again.outcome, seekless_ffs::Outcome::Clean, "{:#?}", again.report);
    }
}

/// Runs operations on a damaged ext image in use.
pub fn run_live_ext(data: &[u8]) {
    in_use::run(data);
}

/// Repairs a volume of ext with damaged quota files.
pub fn run_quota(data: &[u8]) {
    static BASE: OnceLock<quotas::Base> = OnceLock::new();
    quotas::run(data, BASE.get_or_init(quotas::base));
}

/// Repairs a damaged ext image: where that does not say why it cannot, the image is
/// clean then.
pub fn run_repair_ext(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let all = images::IMAGES;
    let (_, compressed) = all[usize::from(choice) % all.len()];
    let mut bytes = images::unpack(compressed);
    let places: Vec<usize> = (1024..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]])) % places.len();
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        for (n, &byte) in after[..len].iter().enumerate() {
            if let Some(at) = places.get(place + n) {
                bytes[*at] = byte;
            }
        }
        rest = &after[len..];
    }
    let device = Arc::new(MemoryDevice::new(bytes));
    // No host uses it: nothing has to be waited for.
    let pause = Some(Arc::new(|_| ()) as Arc<dyn Fn(std::time::Duration) + Send + Sync>);
    let options = seekless_ext::CheckOptions { pause, ..Default::default() };
    let Ok(repaired) = seekless_ext::repair_with(device.clone(), &options) else { return };
    let again = seekless_ext::repair_with(device, &options).expect("repaired once");
    if repaired.outcome != seekless_fs::check::Outcome::Left {
        assert_eq!(again.outcome, seekless_fs::check::Outcome::Clean, "{:#?}", again.report);
    }
}

/// An image of UFS with the patches of an input.
fn damaged_ffs(data: &[u8]) -> Option<Vec<u8>> {
    let (&choice, rest) = data.split_first()?;
    let images = ffs_images::IMAGES;
    let (_, compressed) = images[usize::from(choice) % images.len()];
    // Everything before the first superblock is boot code.
    Some(fat_images::patched(ffs_images::unpack(compressed), 8192, rest))
}

/// What a target may change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// The superblock and the group descriptors.
    Superblock,
    /// Inode tables, extent and indirect blocks.
    Inodes,
    /// Directory blocks.
    Directories,
    /// Inode tables and attribute blocks.
    Attributes,
    /// The journal.
    Journal,
    /// Every block that is not all zeros.
    Everything,
}

/// A base image with the bytes a target may change.
struct Base {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

/// Runs one input.
pub fn run(region: Region, data: &[u8]) {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    let bases = BASES.get_or_init(|| bases(region));
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let base = &bases[usize::from(choice & 0x7F) % bases.len()];
    let mut bytes = base.bytes.clone();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        let (patch, after) = after.split_at(len);
        for (n, &byte) in patch.iter().enumerate() {
            // Places beyond 64 Ki are reached by scaling.
            let at = (place * base.places.len() >> 16) + n;
            if let Some(&at) = base.places.get(at) {
                bytes[at] = byte;
            }
        }
        rest = after;
    }
    damage::exercise::exercise(bytes, choice & 0x80 == 0);
}

fn bases(region: Region) -> Vec<Base> {
    let wanted = |name: &str| region != Region::Journal || name == "journal";
    images::IMAGES
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(_, compressed)| {
            let bytes = images::unpack(compressed);
            let places = places(&bytes, region);
            Base { bytes, places }
        })
        .filter(|base| !base.places.is_empty())
        .collect()
}

fn places(bytes: &[u8], region: Region) -> Vec<usize> {
    let options = OpenOptions { ignore_checksums: true, skip_journal: true };
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let image = ExtImage::open(device, options).expect("sound image");
    let mut blocks = BTreeSet::new();
    match region {
        Region::Superblock => blocks.extend([1, 2]),
        Region::Journal => blocks.extend(blocks_of(&image, Ino::new(8))),
        Region::Everything => blocks.extend(1..image.geometry().blocks),
        _ => {}
    }
    for ino in (1..=image.geometry().inodes).map(Ino::new) {
        let at = image.inode_location(ino).expect("location");
        let kind = image.attr(ino).ok().map(|attr| attr.kind);
        let map = image.block_map(ino).unwrap_or_default();
        match region {
            Region::Inodes => {
                blocks.insert(at.block.get());
                blocks.extend(map.index.iter().map(|node| node.block.get()));
            }
            Region::Directories if kind == Some(FileKind::Directory) => {
                blocks.extend(blocks_of(&image, ino));
            }
            Region::Attributes => {
                blocks.insert(at.block.get());
                blocks.extend(map.xattr_block.map(BlockNo::get));
            }
            _ => {}
        }
    }
    assert!(resolve(&image, b"/dir").is_ok());
    blocks
        .into_iter()
        .map(|block| block as usize * 1024)
        .filter(|&at| bytes[at..at + 1024].iter().any(|&byte| byte != 0))
        .flat_map(|at| at..at + 1024)
        .collect()
}

fn blocks_of(image: &ExtImage, ino: Ino) -> Vec<u64> {
    let map = image.block_map(ino).unwrap_or_default();
    map.runs.iter().flat_map(|run| run.extent.start.get()..run.extent.end().get()).collect()
}

/// Reads a log of dm-log-writes; what can be read is written and reads the same.
pub fn run_crash_log(data: &[u8]) {
    use seekless_crash::dm_log_writes::{read, write};
    let limit = seekless_units::ByteLen::new(1 << 20);
    let Ok(log) = read(&MemoryDevice::new(data.to_vec()), limit) else { return };
    let mut again = Vec::new();
    write(&log, &mut again).expect("whole sectors");
    let same = read(&MemoryDevice::new(again), limit).expect("just written");
    // Marks of larger sectors are cut, and bytes that are no text do not come back.
    let rest = |log: seekless_crash::Log| {
        let is_mark = |step: &seekless_crash::Step| matches!(step, seekless_crash::Step::Mark(_));
        log.steps.into_iter().filter(|step| !is_mark(step)).collect::<Vec<_>>()
    };
    assert_eq!(rest(same), rest(log));
}

/// Reads a list of chunks to prefetch; one that can be read is written and reads the same.
pub fn run_fetch_list(data: &[u8]) {
    use seekless_prefetch::FetchList;
    let Ok(list) = FetchList::parse(data) else { return };
    let mut again = Vec::new();
    list.write(&mut again).expect("memory");
    assert_eq!(FetchList::parse(&again[..]).expect("just written"), list);
}

/// Opens a layout list, any byte of whose parts may change, as a build that is like it does. The
/// checksums are right.
pub fn run_layout_list(data: &[u8]) {
    use seekless_compose::formats::{ExtBases, FatBases};
    use seekless_compose::layout_list::{LayoutList, ListParts};
    static LISTS: OnceLock<Vec<ListParts>> = OnceLock::new();
    let lists = LISTS.get_or_init(lists);
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let mut parts = lists[usize::from(choice & 0x7F) % lists.len()].clone();
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let place = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        let (patch, after) = after.split_at(len);
        // Most inputs change the small parts.
        let part = match head[2] >> 6 {
            0 => &mut parts.metadata,
            1 => &mut parts.runs,
            _ => &mut parts.digests,
        };
        let at = place * part.len() >> 16;
        part.iter_mut().skip(at).zip(patch).for_each(|(byte, &other)| *byte = other);
        rest = after;
    }
    let mut list = parts.encode().expect("packed");
    if choice & 0x80 != 0 {
        // The checksums are wrong, too.
        let at = list.len() / 2;
        list[at] ^= 1;
        assert!(LayoutList::parse(&list).is_err());
        return;
    }
    let path = scratch("list");
    std::fs::write(&path, list).expect("write");
    let (paths, place, options) = ([path], Default::default(), OpenOptions::default());
    match parts.format.as_str() {
        "fat" => drop(FatBases::open(&paths, &place, options)),
        _ => drop(ExtBases::open(&paths, &place, options)),
    }
}

/// A file of this process.
fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("seekless-fuzz-{}-{name}", std::process::id()))
}

/// The lists of those small images that are in order.
fn lists() -> Vec<seekless_compose::layout_list::ListParts> {
    use seekless_compose::layout_list::{ListParts, ListRequest};
    let path = scratch("image");
    let place = seekless_images::Place::default();
    let request =
        ListRequest { image: &path, place: &place, open: OpenOptions::default(), unit: None };
    let ext = images::IMAGES.iter().map(|(_, compressed)| images::unpack(compressed));
    let list = |bytes: Vec<u8>| {
        std::fs::write(&path, bytes).expect("write");
        let list = request.make().ok()?;
        Some(ListParts::decode(&list.bytes).expect("just made"))
    };
    ext.chain(fat_bases().iter().cloned()).filter_map(list).collect()
}
