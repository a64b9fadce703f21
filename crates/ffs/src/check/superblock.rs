//! Which superblock to go by: the first one, or what its copies say.

use crate::alloc::GroupMut;
use crate::image::SNAPSHOT;
use crate::make::head_layout;
use crate::ondisk::{
    CylinderGroup, ROOT, SUPERBLOCK_SEARCH, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, Superblock,
    check_hash, flag,
};
use crate::superblock::{Format, Found, MAX_CONTIG, SUMMARY, Super, find, has_magic, look};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{ByteLen, GroupNo, Ino, Lba, SECTOR};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Bytes read at once in the search for copies.
const STRETCH: u64 = 1 << 20;
/// Copies that are looked at, and groups that are asked about a rival.
const SAMPLE: u32 = 16;
/// Where UFS1 has its superblock.
const HOME_UFS1: u64 = 8192;

/// A field: its name, where it stands, and its bytes.
type Field = (&'static str, usize, usize);

macro_rules! field {
    ($field:ident, $len:expr) => {
        (stringify!($field), offset_of!(Superblock<LE>, $field), $len)
    };
}

/// What stays as `newfs` made it, and is the same in all copies.
const FIXED: [Field; 24] = [
    field!(fs_sblkno, 4),
    field!(fs_cblkno, 4),
    field!(fs_iblkno, 4),
    field!(fs_dblkno, 4),
    field!(fs_old_cgoffset, 4),
    field!(fs_old_cgmask, 4),
    field!(fs_ncg, 4),
    field!(fs_bsize, 4),
    field!(fs_fsize, 4),
    field!(fs_frag, 4),
    field!(fs_fsbtodb, 4),
    field!(fs_old_nspf, 4),
    field!(fs_sbsize, 4),
    field!(fs_cssize, 4),
    field!(fs_cgsize, 4),
    field!(fs_ipg, 4),
    field!(fs_fpg, 4),
    field!(fs_size, 8),
    field!(fs_dsize, 8),
    field!(fs_csaddr, 8),
    field!(fs_metackhash, 4),
    field!(fs_contigsumsize, 4),
    field!(fs_maxsymlinklen, 4),
    field!(fs_old_inodefmt, 4),
];

/// The superblock that a check goes by, and what is wrong with those there are.
pub(super) struct Chosen {
    pub(super) sb: Super,
    /// Its bytes as they should be, but for what the check finds out.
    pub(super) bytes: Vec<u8>,
    /// What is wrong with the one in its place: code and words.
    pub(super) findings: Vec<(&'static str, String)>,
    /// Its check hash is another, and nothing else is wrong.
    pub(super) hash_differs: bool,
    /// The copies that say something else, or nothing: where they lie in bytes.
    pub(super) bad_copies: Vec<(GroupNo, u64)>,
}

fn place() -> Location {
    Location::of("superblock")
}

/// Decides what to go by: the superblock in its place, unless it makes no sense
/// or a copy fits the groups better.
///
/// # Errors
/// [`FsError::Corrupt`] when neither it nor a copy makes sense.
pub(super) fn choose(device: &Arc<dyn BlockDevice>) -> Result<Chosen, FsError> {
    let none = || FsError::corrupt(Corruption::Magic { found: 0 }, place());
    let Some(first) = find(device.as_ref()) else {
        let copy = search(device).ok_or_else(none)?;
        return chosen(device, &at_home(copy.clone()), &copy, "nothing is there".into());
    };
    match usable(&first, device.len()) {
        Err(error) => match search(device) {
            Some(copy) => chosen(device, &first, &copy, error.to_string()),
            None => mended_alone(device, &first).ok_or(error),
        },
        Ok(sb) => {
            let copy = better_copy(device, &first, &sb);
            chosen(device, &first, copy.as_ref().unwrap_or(&first), String::new())
        }
    }
}

/// A superblock that makes no sense as it stands, but does once what follows from
/// its other fields is set right.
fn mended_alone(device: &Arc<dyn BlockDevice>, first: &Found) -> Option<Chosen> {
    let mut mended = first.clone();
    derive(&mut mended);
    usable(&mended, device.len()).ok()?;
    chosen(device, first, first, String::new()).ok()
}

/// Puts together what to go by: the superblock in its place, with what is fixed
/// taken from a copy, and all of the copy where that is not enough.
fn chosen(
    device: &Arc<dyn BlockDevice>,
    first: &Found,
    copy: &Found,
    unusable: String,
) -> Result<Chosen, FsError> {
    let mut findings = Vec::new();
    let mut mended = first.clone();
    if !unusable.is_empty() {
        findings.push(("superblock.unusable", unusable));
    }
    let fields = take_fixed(&mut mended, copy);
    let derived = derive(&mut mended);
    let tuned = tune(&mut mended, copy);
    let mut sb = usable(&mended, device.len());
    if sb.is_err() || (mended.order, mended.format) != (copy.order, copy.format) {
        mended = at_home(copy.clone());
        derive(&mut mended);
        tune(&mut mended, copy);
        sb = usable(&mended, device.len());
    }
    let mut sb = sb?;
    let mut tuned = tuned;
    if sb.tuning.has_snapshots && !has_snapshots(device, &sb, &mended) {
        forget_snapshots(&mut mended);
        tuned.push("fs_snapinum");
        sb = usable(&mended, device.len())?;
    }
    // One that makes no sense needs no more words.
    let makes_sense = findings.is_empty();
    for (code, fields) in [
        ("superblock.fixed", fields),
        ("superblock.derived", derived),
        ("superblock.tuning", tuned),
    ] {
        if makes_sense && !fields.is_empty() {
            findings.push((code, format!("{} cannot be so", fields.join(", "))));
        }
    }
    let hash_differs = findings.is_empty() && sb.verify(first).is_err();
    let bad_copies = bad_copies(device, &sb, &mended);
    Ok(Chosen { sb, bytes: mended.bytes, findings, hash_differs, bad_copies })
}

/// A copy as if it lay where the superblock belongs.
fn at_home(mut copy: Found) -> Found {
    let here = Some(copy.at).filter(|at| is_home(copy.format, *at));
    let says = here.or(copy.own_place()).filter(|at| SUPERBLOCK_SEARCH.contains(at));
    copy.at = match copy.format {
        Format::Ufs1 => says.filter(|&at| at != SUPERBLOCK_UFS2).unwrap_or(HOME_UFS1),
        Format::Ufs2 => says.unwrap_or(SUPERBLOCK_UFS2),
    };
    let (at, order) = (copy.at, copy.order);
    order.put_u64(&mut copy.bytes, offset_of!(Superblock<LE>, fs_sblockloc), at);
    copy
}

/// Whether a superblock may lie at a byte, and not a copy of one.
fn is_home(format: Format, at: u64) -> bool {
    SUPERBLOCK_SEARCH.contains(&at) && (format == Format::Ufs2 || at != SUPERBLOCK_UFS2)
}

/// What a superblock says, if it says enough to repair the volume by.
fn usable(found: &Found, device: ByteLen) -> Result<Super, FsError> {
    let sb = found.decode(device)?;
    let no = |field, value: u64| Err(invalid(field, value, place()));
    let t = &sb.tuning;
    if t.contigsumsize > MAX_CONTIG {
        return no("fs_contigsumsize", u64::from(t.contigsumsize));
    }
    let size = index(t.sbsize);
    if size < size_of::<Superblock<LE>>() || size > SUPERBLOCK_SIZE {
        return no("fs_sbsize", u64::from(t.sbsize));
    }
    if u64::from(t.cssize) < u64::from(sb.ncg).saturating_mul(SUMMARY) {
        return no("fs_cssize", u64::from(t.cssize));
    }
    let places = [sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno];
    if !places.is_sorted() || sb.iblkno.saturating_sub(sb.cblkno) < sb.frag {
        return no("fs_cblkno", u64::from(sb.cblkno));
    }
    let last = GroupNo::new(sb.ncg.saturating_sub(1));
    if sb.in_group(last, sb.dblkno).get() > sb.size {
        return no("fs_size", sb.size);
    }
    let area = sb.summaries;
    let group_of = |block: u64| block.checked_div(u64::from(sb.fpg)).unwrap_or(0);
    let near = group_of(area.start.get()).saturating_sub(1)..=group_of(area.end().get());
    let in_metadata = |group| sb.group_metadata(GroupNo::new(group)).overlaps(area);
    let near = near.filter_map(|group| u32::try_from(group).ok()).filter(|&group| group < sb.ncg);
    if area.end().get() > sb.size || near.into_iter().any(in_metadata) {
        return no("fs_csaddr", area.start.get());
    }
    if !sb.tuning.updated {
        return Err(FsError::Unsupported(
            "a superblock from before 2002 (fsck_ffs of a current BSD brings it up to date)".into(),
        ));
    }
    Ok(sb)
}

fn field_of<'a>(found: &'a Found, field: &Field) -> &'a [u8] {
    found.bytes.get(field.1..field.1.saturating_add(field.2)).unwrap_or_default()
}

/// Whether two superblocks say the same of what never changes.
fn agree(one: &Found, other: &Found) -> bool {
    (one.order, one.format) == (other.order, other.format)
        && FIXED.iter().all(|field| field_of(one, field) == field_of(other, field))
}

/// Takes over what never changes; returns the names of what differed.
fn take_fixed(to: &mut Found, from: &Found) -> Vec<&'static str> {
    let mut differed = Vec::new();
    for field in &FIXED {
        let wanted = field_of(from, field).to_vec();
        if field_of(to, field) != wanted {
            differed.push(field.0);
            let place = to.bytes.get_mut(field.1..).unwrap_or_default();
            place.iter_mut().zip(wanted).for_each(|(to, byte)| *to = byte);
        }
    }
    let at = offset_of!(Superblock<LE>, fs_old_flags);
    let updated = u8::try_from(flag::UPDATED).unwrap_or(0);
    let has = |found: &Found| found.bytes.get(at).is_some_and(|byte| byte & updated != 0);
    if has(from) && !has(to) {
        differed.push("fs_old_flags");
        if let Some(byte) = to.bytes.get_mut(at) {
            *byte |= updated;
        }
    }
    differed
}

/// Sets what follows from the sizes; returns the names of what was otherwise.
fn derive(found: &mut Found) -> Vec<&'static str> {
    let order = found.order;
    let word = |at| order.get_u32(&found.bytes, at).unwrap_or(0);
    let bsize = word(offset_of!(Superblock<LE>, fs_bsize));
    let fsize = word(offset_of!(Superblock<LE>, fs_fsize));
    let frag = bsize.checked_div(fsize).unwrap_or(0);
    let (pointer, inode) = if found.format == Format::Ufs1 { (4, 128) } else { (8, 256) };
    let pointers = bsize / pointer;
    let words = [
        (field!(fs_frag, 4), frag),
        (field!(fs_bmask, 4), !bsize.saturating_sub(1)),
        (field!(fs_fmask, 4), !fsize.saturating_sub(1)),
        (field!(fs_bshift, 4), bsize.trailing_zeros()),
        (field!(fs_fshift, 4), fsize.trailing_zeros()),
        (field!(fs_fragshift, 4), frag.trailing_zeros()),
        (field!(fs_nindir, 4), pointers),
        (field!(fs_inopb, 4), bsize / inode),
    ];
    let mut differed = Vec::new();
    for ((name, at, _), value) in words {
        if order.get_u32(&found.bytes, at) != Some(value) {
            order.put_u32(&mut found.bytes, at, value);
            differed.push(name);
        }
    }
    let masks = [(field!(fs_qbmask, 8), bsize), (field!(fs_qfmask, 8), fsize)];
    for ((name, at, _), size) in masks {
        let value = u64::from(size.saturating_sub(1));
        if order.get_u64(&found.bytes, at) != Some(value) {
            order.put_u64(&mut found.bytes, at, value);
            differed.push(name);
        }
    }
    differed
}

/// Sets what a volume is tuned for where it cannot be so: to what a copy has, or
/// to what `newfs` would choose. Returns the names.
fn tune(found: &mut Found, copy: &Found) -> Vec<&'static str> {
    let order = found.order;
    let word = |found: &Found, at| order.get_u32(&found.bytes, at).unwrap_or(0);
    let bsize = word(found, offset_of!(Superblock<LE>, fs_bsize));
    let most = i32::MAX.cast_unsigned();
    let words = [
        (field!(fs_minfree, 4), 0..=99, 8),
        (field!(fs_optim, 4), 0..=1, 0),
        (field!(fs_maxcontig, 4), 0..=most, 1),
        (field!(fs_maxbpg, 4), 1..=most, (bsize / 8).max(1)),
        (field!(fs_avgfilesize, 4), 1..=most, 16384),
        (field!(fs_avgfpdir, 4), 1..=most, 64),
    ];
    let mut differed = Vec::new();
    for ((name, at, _), range, usual) in words {
        if !range.contains(&word(found, at)) {
            let other = Some(word(copy, at)).filter(|value| range.contains(value));
            order.put_u32(&mut found.bytes, at, other.unwrap_or(usual));
            differed.push(name);
        }
    }
    let (name, at, _) = field!(fs_metaspace, 8);
    let fpg = word(found, offset_of!(Superblock<LE>, fs_fpg));
    if order.get_u64(&found.bytes, at).is_none_or(|frags| frags > u64::from(fpg)) {
        order.put_u64(&mut found.bytes, at, 0);
        differed.push(name);
    }
    differed
}

/// Whether the files a superblock has for its snapshots are such.
fn has_snapshots(device: &Arc<dyn BlockDevice>, sb: &Super, found: &Found) -> bool {
    let at = offset_of!(Superblock<LE>, fs_snapinum);
    let ino = found.order.get_u32(&found.bytes, at).unwrap_or(0);
    let volume = Volume::with(Arc::clone(device), sb.clone(), true);
    volume.inode(Ino::new(ino)).is_ok_and(|inode| {
        FileKind::from_mode(inode.mode()) == Some(FileKind::Regular) && inode.is(SNAPSHOT)
    })
}

fn forget_snapshots(found: &mut Found) {
    let at = offset_of!(Superblock<LE>, fs_snapinum);
    if let Some(list) = found.bytes.get_mut(at..at.saturating_add(80)) {
        list.fill(0);
    }
}

/// Where a group has its copy, in bytes.
fn copy_at(sb: &Super, group: GroupNo) -> u64 {
    sb.in_group(group, sb.sblkno).get().saturating_mul(u64::from(sb.fsize))
}

/// The copies that do not say what a superblock does.
fn bad_copies(device: &Arc<dyn BlockDevice>, sb: &Super, found: &Found) -> Vec<(GroupNo, u64)> {
    let places = (0..sb.ncg).map(GroupNo::new).map(|group| (group, copy_at(sb, group)));
    let differs = |at: u64| look(device.as_ref(), at).is_none_or(|copy| !agree(found, &copy));
    places.filter(|&(_, at)| at != sb.at && differs(at)).collect()
}

/// A copy that fits what is on the device better than a usable superblock.
fn better_copy(device: &Arc<dyn BlockDevice>, first: &Found, sb: &Super) -> Option<Found> {
    let groups = (0..sb.ncg.min(SAMPLE)).map(GroupNo::new);
    let copies = groups.filter_map(|group| look(device.as_ref(), copy_at(sb, group)));
    let (alike, others): (Vec<Found>, Vec<Found>) = copies.partition(|copy| agree(first, copy));
    let sound = |copy: &Found| usable(copy, device.len()).is_ok();
    let rival = match others.into_iter().find(sound) {
        Some(rival) => Some(rival),
        None if alike.is_empty() => search(device).filter(|copy| !agree(first, copy)),
        None => None,
    }?;
    let other = usable(&rival, device.len()).ok()?;
    let wins = evidence(device, &rival, &other) > evidence(device, first, sb);
    wins.then_some(rival)
}

/// Looks for copies anywhere on a device, up to a few that make sense and lie
/// where they say; returns the one that fits best.
fn search(device: &Arc<dyn BlockDevice>) -> Option<Found> {
    let mut best: Option<(u64, Found)> = None;
    let mut known = 0u32;
    let mut start = 0u64;
    while start < device.len().get() && known < SAMPLE {
        let len = STRETCH.min(device.len().get().saturating_sub(start));
        let mut bytes = vec![0; index(len)];
        device.read(Lba::containing(ByteLen::new(start)), &mut bytes).ok()?;
        for (n, sector) in (0u64..).zip(bytes.chunks(index(SECTOR))) {
            let at = start.saturating_add(n.saturating_mul(SECTOR));
            let Some((copy, sb)) = copy_with_magic_in(device, sector, at) else { continue };
            known = known.saturating_add(1);
            let weight = evidence(device, &copy, &sb);
            if best.as_ref().is_none_or(|(most, _)| weight > *most) {
                best = Some((weight, copy));
            }
        }
        start = start.saturating_add(STRETCH);
    }
    best.map(|(_, copy)| copy)
}

/// The copy of which the magic number is in a sector, which lies at byte `at`.
fn copy_with_magic_in(
    device: &Arc<dyn BlockDevice>,
    sector: &[u8],
    at: u64,
) -> Option<(Found, Super)> {
    let magic_at = wide(offset_of!(Superblock<LE>, fs_magic));
    let within = magic_at.checked_rem(SECTOR)?;
    if !has_magic(sector.get(index(within)..)?) {
        return None;
    }
    let at = at.checked_sub(magic_at.saturating_sub(within))?;
    let copy = look(device.as_ref(), at)?;
    let sb = usable(&copy, device.len()).ok()?;
    let group = at.checked_div(u64::from(sb.fsize))?.checked_div(u64::from(sb.fpg))?;
    let near = [Some(group), group.checked_sub(1)].into_iter().flatten();
    let mut near = near.filter_map(|group| u32::try_from(group).ok()).map(GroupNo::new);
    let lies_right = is_home(sb.format, at)
        || near.any(|group| group.get() < sb.ncg && copy_at(&sb, group) == at);
    lies_right.then_some((copy, sb))
}

/// How much on the device fits a superblock: the rules that `newfs` lays a volume
/// out by, copies that say the same, heads of groups, the root.
fn evidence(device: &Arc<dyn BlockDevice>, found: &Found, sb: &Super) -> u64 {
    let fsize = u64::from(sb.fsize).max(1);
    let frags = |bytes: u64| bytes.div_ceil(fsize);
    let old = sb.format == Format::Ufs1;
    let layout = head_layout(old, sb.ipg, sb.fpg, sb.frag, sb.tuning.contigsumsize);
    let table = u64::from(sb.ipg).saturating_mul(u64::from(sb.inode_size()));
    let between = |low: u32, high: u32| u64::from(high.saturating_sub(low));
    let rules = [
        between(sb.cblkno, sb.iblkno) == u64::from(sb.frag),
        between(sb.iblkno, sb.dblkno) == frags(table),
        between(sb.sblkno, sb.cblkno) >= frags(wide(SUPERBLOCK_SIZE)),
        sb.summaries.start.get() == u64::from(sb.dblkno),
        u64::from(sb.tuning.cssize)
            == frags(u64::from(sb.ncg).saturating_mul(SUMMARY)).saturating_mul(fsize),
        u64::from(sb.cgsize) == frags(layout.end).saturating_mul(fsize),
        sb.maxsymlinklen == if old { 60 } else { 120 },
        sb.tuning.contigsumsize == sb.tuning.maxcontig.min(MAX_CONTIG),
        sb.has_check_hash(check_hash::SUPERBLOCK) && sb.verify(found).is_ok(),
    ];
    let mut weight = wide(rules.into_iter().filter(|&fits| fits).count());
    for group in (0..sb.ncg.min(SAMPLE)).map(GroupNo::new) {
        let copy = look(device.as_ref(), copy_at(sb, group));
        weight = weight.saturating_add(u64::from(copy.is_some_and(|copy| agree(found, &copy))));
        weight = weight.saturating_add(u64::from(has_head(device, sb, group)).saturating_mul(2));
    }
    let volume = Volume::with(Arc::clone(device), sb.clone(), true);
    let root = volume.inode(Ino::new(ROOT));
    let is_dir =
        root.is_ok_and(|root| FileKind::from_mode(root.mode()) == Some(FileKind::Directory));
    weight.saturating_add(u64::from(is_dir).saturating_mul(2))
}

/// Whether a group's head is where a superblock has it, and says the same sizes.
fn has_head(device: &Arc<dyn BlockDevice>, sb: &Super, group: GroupNo) -> bool {
    let at = sb.in_group(group, sb.cblkno).get().saturating_mul(u64::from(sb.fsize));
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
