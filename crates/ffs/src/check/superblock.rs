//! Which superblock to go by: the first one, or what its copies say.

use super::copies::{bad_copies, better_copy, search};
use crate::image::SNAPSHOT;
use crate::make::{MOST_CONTIG, MOST_INODES_UFS1};
use crate::ondisk::{SUPERBLOCK_SEARCH, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, Superblock, flag};
use crate::superblock::{Format, Found, MAX_CONTIG, SUMMARY, Super, find};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, invalid, low32, range, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Fields that may be wrong for the rest to be believed: what is not in a copy,
/// such as what tunefs has set since.
const FEW: usize = 3;
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
        return chosen(device, &at_home(copy.clone(), None), &copy, "not found".into());
    };
    match usable(&first, device.len()) {
        Err(error) => match search(device) {
            Some(copy) => chosen(device, &first, &copy, error.finding(place()).0),
            None => mended_alone(device, &first).ok_or(error),
        },
        Ok(sb) => {
            let copy = better_copy(device, &first, &sb);
            if copy.is_none() && !sb.tuning.updated {
                return Ok(from_before_2002(sb, first));
            }
            chosen(device, &first, copy.as_ref().unwrap_or(&first), String::new())
        }
    }
}

/// A superblock of which the fields of today are not in use: nothing is said of
/// them, nor of its copies, and nobody may write it.
fn from_before_2002(sb: Super, first: Found) -> Chosen {
    Chosen {
        sb,
        bytes: first.bytes,
        findings: Vec::new(),
        hash_differs: false,
        bad_copies: Vec::new(),
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
    let is_other = (mended.order, mended.format) != (copy.order, copy.format);
    if sb.is_err() || is_other || fields.len() > FEW {
        mended = at_home(copy.clone(), Some(first.at));
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
            findings.push((code, format!("{} cannot be correct", fields.join(", "))));
        }
    }
    let hash_differs = findings.is_empty() && sb.verify(first).is_err();
    let bad_copies = bad_copies(device, &sb, &mended);
    Ok(Chosen { sb, bytes: mended.bytes, findings, hash_differs, bad_copies })
}

/// A copy as if it lay where the superblock belongs: where what is left of that
/// was found, else where the copy says. Zero is no place that anybody gives, but
/// what a field is that was lost.
fn at_home(mut copy: Found, found_at: Option<u64>) -> Found {
    let places = found_at.into_iter().chain([copy.at]);
    let here = places.into_iter().find(|at| is_home(copy.format, *at));
    let said = copy.own_place().filter(|at| *at != 0 && SUPERBLOCK_SEARCH.contains(at));
    let says = here.or(said);
    copy.at = match copy.format {
        Format::Ufs1 => says.filter(|&at| at != SUPERBLOCK_UFS2).unwrap_or(HOME_UFS1),
        Format::Ufs2 => says.unwrap_or(SUPERBLOCK_UFS2),
    };
    let (at, order) = (copy.at, copy.order);
    order.put_u64(&mut copy.bytes, offset_of!(Superblock<LE>, fs_sblockloc), at);
    copy
}

/// Whether a superblock may lie at a byte, and not a copy of one.
pub(super) fn is_home(format: Format, at: u64) -> bool {
    SUPERBLOCK_SEARCH.contains(&at) && (format == Format::Ufs2 || at != SUPERBLOCK_UFS2)
}

/// What a superblock says, if it says enough to repair the volume by.
pub(super) fn usable(found: &Found, device: ByteLen) -> Result<Super, FsError> {
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
    if sb.format == Format::Ufs1 && sb.ipg > MOST_INODES_UFS1 {
        // Heads of groups have 16 bits with a sign for it.
        return Err(range("fs_ipg", u64::from(sb.ipg), u64::from(MOST_INODES_UFS1), place()));
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
    Ok(sb)
}

fn field_of<'a>(found: &'a Found, field: &Field) -> &'a [u8] {
    found.bytes.get(field.1..field.1.saturating_add(field.2)).unwrap_or_default()
}

/// Whether two superblocks say the same of what never changes.
pub(super) fn agree(one: &Found, other: &Found) -> bool {
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
    let pointers = bsize.checked_div(pointer).unwrap_or(0);
    let least = low32(wide(size_of::<Superblock<LE>>()));
    let size = least.checked_next_multiple_of(fsize).unwrap_or(least);
    let said = word(offset_of!(Superblock<LE>, fs_sbsize));
    let most = low32(wide(SUPERBLOCK_SIZE));
    let words = [
        (field!(fs_frag, 4), frag),
        (field!(fs_bmask, 4), !bsize.saturating_sub(1)),
        (field!(fs_fmask, 4), !fsize.saturating_sub(1)),
        (field!(fs_bshift, 4), bsize.trailing_zeros()),
        (field!(fs_fshift, 4), fsize.trailing_zeros()),
        (field!(fs_fragshift, 4), frag.trailing_zeros()),
        (field!(fs_nindir, 4), pointers),
        (field!(fs_inopb, 4), bsize.checked_div(inode).unwrap_or(0)),
        (field!(fs_sbsize, 4), if said <= most { said } else { size.min(most) }),
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
        (field!(fs_maxcontig, 4), 0..=MOST_CONTIG, 1),
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
    if order.get_u64(&found.bytes, at).is_none_or(|frags| frags > u64::from(fpg / 2)) {
        order.put_u64(&mut found.bytes, at, 0);
        differed.push(name);
    }
    // Zero is what was there before there was such a field.
    let (name, at, _) = field!(fs_maxbsize, 4);
    let longest = word(found, at);
    let range = bsize..=bsize.saturating_mul(MAX_CONTIG);
    if longest != 0 && !(longest.is_power_of_two() && range.contains(&longest)) {
        order.put_u32(&mut found.bytes, at, bsize);
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
