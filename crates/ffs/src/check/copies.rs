//! Copies of the superblock: their places, whether they agree, and the evidence for a copy that
//! differs.

use super::superblock::{agree, is_home, usable};
use crate::alloc::GroupMut;
use crate::make::{head_bytes, head_layout};
use crate::ondisk::{CylinderGroup, ROOT, SUPERBLOCK_SIZE, Superblock, check_hash};
use crate::superblock::{Format, MAX_CONTIG, RawSuperblock, SUMMARY, Super, has_magic, look};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::FileKind;
use seekless_fs::field::{index, wide};
use seekless_units::{ByteLen, GroupNo, Ino, Lba, SECTOR};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Bytes read at once in the search for copies.
const STRETCH: u64 = 1 << 20;
/// Copies that are tried, and groups that are compared for a rival.
const SAMPLE: u32 = 16;

/// The place of a group's copy, in bytes.
fn copy_at(sb: &Super, group: GroupNo) -> u64 {
    sb.in_group(group, sb.sblkno).get() * u64::from(sb.fsize)
}

/// The copies that differ from a superblock.
pub(super) fn bad_copies(
    device: &Arc<dyn BlockDevice>,
    sb: &Super,
    found: &RawSuperblock,
) -> Vec<(GroupNo, u64)> {
    let places = (0..sb.ncg).map(GroupNo::new).map(|group| (group, copy_at(sb, group)));
    let differs = |at: u64| look(device.as_ref(), at).is_none_or(|copy| !agree(found, &copy));
    places.filter(|&(_, at)| at != sb.at && differs(at)).collect()
}

/// A copy that fits the device better than a usable superblock.
pub(super) fn better_copy(
    device: &Arc<dyn BlockDevice>,
    first: &RawSuperblock,
    sb: &Super,
) -> Option<RawSuperblock> {
    let groups = (0..sb.ncg.min(SAMPLE)).map(GroupNo::new);
    let copies = groups.filter_map(|group| look(device.as_ref(), copy_at(sb, group)));
    let (alike, others): (Vec<RawSuperblock>, Vec<RawSuperblock>) =
        copies.partition(|copy| agree(first, copy));
    if !sb.tuning.updated {
        // Perhaps only the flag was lost.
        let is_newer =
            |copy: &RawSuperblock| usable(copy, device.len()).is_ok_and(|sb| sb.tuning.updated);
        return alike.into_iter().find(is_newer);
    }
    let sound = |copy: &RawSuperblock| usable(copy, device.len()).is_ok();
    let rival = match others.into_iter().find(sound) {
        Some(rival) => Some(rival),
        None if alike.is_empty() => search(device).filter(|copy| !agree(first, copy)),
        None => None,
    }?;
    let other = usable(&rival, device.len()).ok()?;
    let wins = evidence(device, &rival, &other) > evidence(device, first, sb);
    wins.then_some(rival)
}

/// The first copy with the same constant fields.
pub(super) fn alike_copy(
    device: &Arc<dyn BlockDevice>,
    first: &RawSuperblock,
    sb: &Super,
) -> Option<RawSuperblock> {
    let groups = (0..sb.ncg.min(SAMPLE)).map(GroupNo::new);
    let mut copies = groups.filter_map(|group| look(device.as_ref(), copy_at(sb, group)));
    copies.find(|copy| copy.at != first.at && agree(first, copy))
}

/// Looks for copies anywhere on a device, up to a few that make sense and lie in their recorded
/// place; returns the one that fits best.
pub(super) fn search(device: &Arc<dyn BlockDevice>) -> Option<RawSuperblock> {
    let mut best: Option<(u64, RawSuperblock)> = None;
    let mut known = 0u32;
    let mut start = 0u64;
    while start < device.len().get() && known < SAMPLE {
        let len = STRETCH.min(device.len().get() - start);
        let mut bytes = vec![0; index(len)];
        device.read(Lba::containing(ByteLen::new(start)), &mut bytes).ok()?;
        for (n, sector) in (0u64..).zip(bytes.chunks(index(SECTOR))) {
            let at = start + n * SECTOR;
            let Some((copy, sb)) = copy_with_magic_in(device, sector, at) else { continue };
            known += 1;
            let weight = evidence(device, &copy, &sb);
            if best.as_ref().is_none_or(|(most, _)| weight > *most) {
                best = Some((weight, copy));
            }
        }
        start += STRETCH;
    }
    best.map(|(_, copy)| copy)
}

/// The copy whose magic number is in the sector at byte `at`.
fn copy_with_magic_in(
    device: &Arc<dyn BlockDevice>,
    sector: &[u8],
    at: u64,
) -> Option<(RawSuperblock, Super)> {
    let magic_at = wide(offset_of!(Superblock<LE>, fs_magic));
    let within = magic_at % SECTOR;
    if !has_magic(sector.get(index(within)..)?) {
        return None;
    }
    let at = at.checked_sub(magic_at - within)?;
    let copy = look(device.as_ref(), at)?;
    let sb = usable(&copy, device.len()).ok()?;
    let group = at / u64::from(sb.fsize) / u64::from(sb.fpg);
    let near = [Some(group), group.checked_sub(1)].into_iter().flatten();
    let mut near = near.filter_map(|group| u32::try_from(group).ok()).map(GroupNo::new);
    let lies_right = is_home(sb.format, at)
        || near.any(|group| group.get() < sb.ncg && copy_at(&sb, group) == at);
    lies_right.then_some((copy, sb))
}

/// The amount of evidence on the device for a superblock: the rules of layout of `newfs`, copies
/// that agree, heads of groups, the root.
fn evidence(device: &Arc<dyn BlockDevice>, found: &RawSuperblock, sb: &Super) -> u64 {
    let fsize = u64::from(sb.fsize);
    let frags = |bytes: u64| bytes.div_ceil(fsize);
    let old = sb.format == Format::Ufs1;
    let layout = head_layout(sb.head_tables(), sb.ipg, sb.fpg, sb.frag, sb.tuning.contigsumsize);
    let taken = head_bytes(old, sb.ipg, sb.fpg, sb.frag, sb.tuning.contigsumsize);
    let table = u64::from(sb.ipg) * u64::from(sb.inode_size());
    let between = |low: u32, high: u32| u64::from(high - low);
    let rules = [
        between(sb.cblkno, sb.iblkno) == u64::from(sb.frag),
        between(sb.iblkno, sb.dblkno) == frags(table),
        between(sb.sblkno, sb.cblkno) >= frags(wide(SUPERBLOCK_SIZE)),
        sb.summaries.start.get() == u64::from(sb.dblkno),
        u64::from(sb.tuning.cssize) == frags(u64::from(sb.ncg) * SUMMARY) * fsize,
        [layout.end, taken].iter().any(|&end| u64::from(sb.cgsize) == frags(end) * fsize),
        sb.maxsymlinklen == if old { 60 } else { 120 },
        sb.tuning.contigsumsize == sb.tuning.maxcontig.min(MAX_CONTIG),
        sb.has_check_hash(check_hash::SUPERBLOCK) && sb.verify(found).is_ok(),
    ];
    debug_assert!(sb.tuning.contigsumsize <= MAX_CONTIG, "a usable superblock");
    let mut weight = wide(rules.into_iter().filter(|&fits| fits).count());
    for group in (0..sb.ncg.min(SAMPLE)).map(GroupNo::new) {
        let copy = look(device.as_ref(), copy_at(sb, group));
        weight += u64::from(copy.is_some_and(|copy| agree(found, &copy)));
        weight += u64::from(has_head(device, sb, group)) * 2;
    }
    let volume = Volume::with(Arc::clone(device), sb.clone(), true);
    let root = volume.inode(Ino::new(ROOT));
    let is_dir =
        root.is_ok_and(|root| FileKind::from_mode(root.mode()) == Some(FileKind::Directory));
    weight + u64::from(is_dir) * 2
}

/// Whether a group's head is in the superblock's place for it, and has the same sizes.
fn has_head(device: &Arc<dyn BlockDevice>, sb: &Super, group: GroupNo) -> bool {
    let at = sb.in_group(group, sb.cblkno).get() * u64::from(sb.fsize);
    let mut bytes = vec![0; index(sb.bsize)];
    if device.read_bytes(ByteLen::new(at), &mut bytes).is_err() {
        return false;
    }
    let inodes = match sb.format {
        Format::Ufs1 => {
            sb.order.get_u16(&bytes, offset_of!(CylinderGroup<LE>, cg_old_niblk)).map(u32::from)
        }
        Format::Ufs2 => sb.order.get_u32(&bytes, offset_of!(CylinderGroup<LE>, cg_niblk)),
    };
    inodes == Some(sb.ipg) && GroupMut::check(sb, group, &mut bytes).is_ok()
}
