//! Chooses the superblock to go by: the first one, or one made from its copies.

use super::copies::{alike_copy, bad_copies, better_copy, search};
use super::problems;
use crate::inode::Inode;
use crate::make::MOST_CONTIG;
use crate::ondisk::{
    DIRECT, SNAPSHOT, SUPERBLOCK_SEARCH, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, Superblock, flag,
};
use crate::superblock::MOST_INODES_UFS1;
use crate::superblock::{Format, MAX_CONTIG, RawSuperblock, SUMMARY, Super, find};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::check::{Problem, Report};
use seekless_fs::field::{index, invalid, low32, range, wide};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{ByteLen, GroupNo, Ino, SECTOR};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Fields that may be wrong for the rest to be believed: fields that a copy lacks, such as those
/// that tunefs has set since.
const FEW: usize = 3;
/// The place of UFS1's superblock.
const HOME_UFS1: u64 = 8192;

/// A field: its name, offset and length.
type Field = (&'static str, usize, usize);

macro_rules! field {
    ($field:ident, $len:expr) => {
        (stringify!($field), offset_of!(Superblock<LE>, $field), $len)
    };
}

/// Constant fields: `newfs` sets them, and they are the same in all copies.
const FIXED: [Field; 26] = [
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
    // On UFS2 too: FreeBSD computes the size of a group's head with it.
    field!(fs_old_cpg, 4),
    field!(fs_old_nrpos, 4),
];

/// The superblock that a check goes by, and the faults of those found.
pub(super) struct CheckedSuperblock {
    pub(super) sb: Super,
    /// Its bytes as they should be, except for the fields that the check determines.
    pub(super) bytes: Vec<u8>,
    /// Faults of the one in its place: each with its description.
    pub(super) findings: Vec<(&'static Problem, String)>,
    /// Its check hash is wrong, and nothing else.
    pub(super) hash_differs: bool,
    /// The copies that differ or are missing: their places in bytes.
    pub(super) bad_copies: Vec<(GroupNo, u64)>,
}

impl CheckedSuperblock {
    /// Adds the faults of the one in its place to a report, and returns whether there are any.
    pub(super) fn report(&self, report: &mut Report) -> bool {
        for (problem, what) in &self.findings {
            report.add(problem, what.clone(), place());
        }
        if self.hash_differs {
            // A torn write leaves the old hash.
            let what = "check hash does not match".to_string();
            report.add(problems::SUPERBLOCK_CHECK_HASH, what, place());
        }
        self.hash_differs || !self.findings.is_empty()
    }
}

fn place() -> Location {
    Location::of("superblock")
}

/// The superblock in its place, if it makes sense, without its copies.
pub(super) fn in_place(device: &Arc<dyn BlockDevice>) -> Option<Super> {
    usable(&find(device.as_ref())?, device.len()).ok()
}

/// Chooses the superblock to go by: the one in its place, unless it makes no sense or a copy fits
/// the groups better.
///
/// # Errors
/// [`FsError::Corrupt`] when neither it nor a copy makes sense.
pub(super) fn choose(device: &Arc<dyn BlockDevice>) -> Result<CheckedSuperblock, FsError> {
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
            // A copy that agrees still has the settings that the volume was tuned for.
            let copy = copy.or_else(|| alike_copy(device, &first, &sb));
            chosen(device, &first, copy.as_ref().unwrap_or(&first), String::new())
        }
    }
}

/// A superblock from before UFS2, whose newer fields are not in use: neither they nor its copies
/// are reported, and it must not be written.
fn from_before_2002(sb: Super, first: RawSuperblock) -> CheckedSuperblock {
    CheckedSuperblock {
        sb,
        bytes: first.bytes,
        findings: Vec::new(),
        hash_differs: false,
        bad_copies: Vec::new(),
    }
}

/// A superblock that makes no sense as it stands, but does once the fields derived from the others
/// are corrected.
fn mended_alone(device: &Arc<dyn BlockDevice>, first: &RawSuperblock) -> Option<CheckedSuperblock> {
    let mut mended = first.clone();
    derive(&mut mended);
    usable(&mended, device.len()).ok()?;
    chosen(device, first, first, String::new()).ok()
}

/// Builds the superblock to go by: the one in its place, with constant fields taken from a copy,
/// and all of the copy where that is not enough.
fn chosen(
    device: &Arc<dyn BlockDevice>,
    first: &RawSuperblock,
    copy: &RawSuperblock,
    unusable: String,
) -> Result<CheckedSuperblock, FsError> {
    let mut findings = Vec::new();
    let mut mended = first.clone();
    if !unusable.is_empty() {
        findings.push((problems::SUPERBLOCK_UNUSABLE, unusable));
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
    let (kept, is_wrong) = kept_snapshots(device, &sb);
    if kept.len() < sb.tuning.snapshots().count() {
        list_snapshots(&mut mended, &kept);
        sb = usable(&mended, device.len())?;
        tuned.extend(is_wrong.then_some("fs_snapinum"));
    }
    // One that makes no sense is reported once.
    let makes_sense = findings.is_empty();
    for (problem, fields) in [
        (problems::SUPERBLOCK_FIXED, fields),
        (problems::SUPERBLOCK_DERIVED, derived),
        (problems::SUPERBLOCK_TUNING, tuned),
    ] {
        if makes_sense && !fields.is_empty() {
            findings.push((problem, format!("{} cannot be correct", fields.join(", "))));
        }
    }
    debug_assert_eq!(sb.at, mended.at, "the bytes are those of the superblock");
    let hash_differs = findings.is_empty() && sb.verify(first).is_err();
    let bad_copies = bad_copies(device, &sb, &mended);
    Ok(CheckedSuperblock { sb, bytes: mended.bytes, findings, hash_differs, bad_copies })
}

/// A copy as if it lay where the superblock belongs: where the remains of that were found, else
/// where the copy says. Zero is no valid place, but the value of a lost field.
fn at_home(mut copy: RawSuperblock, found_at: Option<u64>) -> RawSuperblock {
    let places = found_at.into_iter().chain([copy.at]);
    let here = places.into_iter().find(|at| is_home(copy.format, *at));
    let said = copy.own_place().filter(|at| *at != 0 && SUPERBLOCK_SEARCH.contains(at));
    let says = here.or(said);
    copy.at = match copy.format {
        Format::Ufs1 => says.filter(|&at| at != SUPERBLOCK_UFS2).unwrap_or(HOME_UFS1),
        Format::Ufs2 => says.unwrap_or(SUPERBLOCK_UFS2),
    };
    debug_assert!(is_home(copy.format, copy.at), "byte {} is a place of a superblock", copy.at);
    let (at, order) = (copy.at, copy.order);
    order.put_u64(&mut copy.bytes, offset_of!(Superblock<LE>, fs_sblockloc), at);
    copy
}

/// Whether a superblock may lie at a byte, as opposed to a copy of one.
pub(super) fn is_home(format: Format, at: u64) -> bool {
    SUPERBLOCK_SEARCH.contains(&at) && (format == Format::Ufs2 || at != SUPERBLOCK_UFS2)
}

/// The fields of a superblock, if they are enough to repair the volume by.
pub(super) fn usable(found: &RawSuperblock, device: ByteLen) -> Result<Super, FsError> {
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
    if u64::from(t.cssize) < u64::from(sb.ncg) * SUMMARY {
        return no("fs_cssize", u64::from(t.cssize));
    }
    if sb.format == Format::Ufs1 && sb.ipg > MOST_INODES_UFS1 {
        // Heads of groups have 16 bits with a sign for it.
        return Err(range("fs_ipg", u64::from(sb.ipg), u64::from(MOST_INODES_UFS1), place()));
    }
    let places = [sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno];
    if !places.is_sorted() || sb.iblkno - sb.cblkno < sb.frag {
        return no("fs_cblkno", u64::from(sb.cblkno));
    }
    let last = GroupNo::new(sb.ncg - 1);
    if sb.in_group(last, sb.dblkno).get() > sb.size {
        return no("fs_size", sb.size);
    }
    let area = sb.summaries;
    let group_of = |block: u64| block / u64::from(sb.fpg);
    let near = group_of(area.start.get()).max(1) - 1..=group_of(area.end().get());
    let in_metadata = |group| sb.group_metadata(GroupNo::new(group)).overlaps(area);
    let near = near.filter_map(|group| u32::try_from(group).ok()).filter(|&group| group < sb.ncg);
    if area.end().get() > sb.size || near.into_iter().any(in_metadata) {
        return no("fs_csaddr", area.start.get());
    }
    Ok(sb)
}

fn field_of<'a>(found: &'a RawSuperblock, field: &Field) -> &'a [u8] {
    found.bytes.get(field.1..field.1 + field.2).unwrap_or_default()
}

/// Whether two superblocks have the same constant fields.
pub(crate) fn agree(one: &RawSuperblock, other: &RawSuperblock) -> bool {
    (one.order, one.format) == (other.order, other.format)
        && FIXED.iter().all(|field| field_of(one, field) == field_of(other, field))
}

/// Takes over the constant fields; returns the names of those that differed.
fn take_fixed(to: &mut RawSuperblock, from: &RawSuperblock) -> Vec<&'static str> {
    let mut differed = Vec::new();
    for field in &FIXED {
        let wanted = field_of(from, field).to_vec();
        if field_of(to, field) != wanted {
            differed.push(field.0);
            let place = to.bytes.get_mut(field.1..).unwrap_or_default();
            place.iter_mut().zip(wanted).for_each(|(to, byte)| *to = byte);
        }
    }
    let same = |field: &Field| field_of(to, field) == field_of(from, field);
    debug_assert!(FIXED.iter().all(same), "the fields are those of the copy");
    let at = offset_of!(Superblock<LE>, fs_old_flags);
    let updated = u8::try_from(flag::UPDATED).unwrap_or(0);
    let has = |found: &RawSuperblock| found.bytes.get(at).is_some_and(|byte| byte & updated != 0);
    if has(from) && !has(to) {
        differed.push("fs_old_flags");
        if let Some(byte) = to.bytes.get_mut(at) {
            *byte |= updated;
        }
    }
    differed
}

/// Sets the fields derived from the sizes; returns the names of those that differed.
fn derive(found: &mut RawSuperblock) -> Vec<&'static str> {
    let order = found.order;
    let word = |at| order.get_u32(&found.bytes, at).unwrap_or(0);
    let bsize = word(offset_of!(Superblock<LE>, fs_bsize));
    let fsize = word(offset_of!(Superblock<LE>, fs_fsize));
    let Some(frag) = bsize.checked_div(fsize) else { return Vec::new() };
    let (pointer, inode) = if found.format == Format::Ufs1 { (4, 128) } else { (8, 256) };
    let pointers = bsize / pointer;
    let least = low32(wide(size_of::<Superblock<LE>>()));
    let size = least.checked_next_multiple_of(fsize).unwrap_or(least);
    let said = word(offset_of!(Superblock<LE>, fs_sbsize));
    let most = low32(wide(SUPERBLOCK_SIZE));
    let words = [
        (field!(fs_frag, 4), frag),
        (field!(fs_bmask, 4), !(bsize.max(1) - 1)),
        (field!(fs_fmask, 4), !(fsize.max(1) - 1)),
        (field!(fs_bshift, 4), bsize.trailing_zeros()),
        (field!(fs_fshift, 4), fsize.trailing_zeros()),
        (field!(fs_fragshift, 4), frag.trailing_zeros()),
        (field!(fs_nindir, 4), pointers),
        (field!(fs_inopb, 4), bsize / inode),
        (field!(fs_sbsize, 4), if said <= most { said } else { size.min(most) }),
    ];
    let mut differed = Vec::new();
    for ((name, at, _), value) in words {
        if order.get_u32(&found.bytes, at) != Some(value) {
            order.put_u32(&mut found.bytes, at, value);
            differed.push(name);
        }
    }
    // The sizes are not checked yet: 128 bits have room for the products of any.
    let levels: u128 = (1..=3).map(|level| u128::from(pointers).pow(level)).sum();
    let longest = u128::from(bsize) * (u128::from(wide(DIRECT)) + levels);
    let most = i64::MAX.cast_unsigned();
    let longest = u64::try_from(longest.max(1) - 1).map_or(most, |longest| longest.min(most));
    let long = [
        (field!(fs_qbmask, 8), u64::from(bsize.max(1) - 1)),
        (field!(fs_qfmask, 8), u64::from(fsize.max(1) - 1)),
        (field!(fs_maxfilesize, 8), longest),
    ];
    for ((name, at, _), value) in long {
        if order.get_u64(&found.bytes, at) != Some(value) {
            order.put_u64(&mut found.bytes, at, value);
            differed.push(name);
        }
    }
    differed.extend(derive_old(found));
    differed.extend(derive_place(found));
    differed
}

/// Sets the fields of UFS1 that describe a disk of cylinders to the values of `newfs` since 2002,
/// for volumes made since: FreeBSD refuses others (`validate_sblock`). Returns the names of those
/// that differed.
fn derive_old(found: &mut RawSuperblock) -> Vec<&'static str> {
    let order = found.order;
    let word = |at| order.get_u32(&found.bytes, at).unwrap_or(0);
    let is_one = |at| word(at) == 1;
    let modern = is_one(offset_of!(Superblock<LE>, fs_old_cpg))
        && is_one(offset_of!(Superblock<LE>, fs_old_nrpos));
    if found.format != Format::Ufs1 || !modern {
        return Vec::new();
    }
    let fpg = word(offset_of!(Superblock<LE>, fs_fpg));
    let nspf = word(offset_of!(Superblock<LE>, fs_fsize)) >> SECTOR.trailing_zeros();
    let sectors = fpg.wrapping_mul(nspf);
    let words = [
        (field!(fs_old_rotdelay, 4), 0),
        (field!(fs_old_rps, 4), 60),
        (field!(fs_old_nspf, 4), nspf),
        (field!(fs_old_npsect, 4), sectors),
        (field!(fs_old_interleave, 4), 1),
        (field!(fs_old_trackskew, 4), 0),
        (field!(fs_old_nsect, 4), sectors),
        (field!(fs_old_spc, 4), sectors),
        (field!(fs_old_ncyl, 4), word(offset_of!(Superblock<LE>, fs_ncg))),
        (field!(fs_old_cpc, 4), 0),
        (field!(fs_old_postblformat, 4), 1),
    ];
    let mut differed = Vec::new();
    for ((name, at, _), value) in words {
        if order.get_u32(&found.bytes, at) != Some(value) {
            order.put_u32(&mut found.bytes, at, value);
            differed.push(name);
        }
    }
    differed
}

/// Corrects the recorded place of a superblock that lies in its place. Returns the names of the
/// fields with impossible values.
fn derive_place(found: &mut RawSuperblock) -> Vec<&'static str> {
    let (order, here) = (found.order, found.at);
    if !is_home(found.format, here) {
        return Vec::new();
    }
    let word = |at| u128::from(order.get_u32(&found.bytes, at).unwrap_or(0));
    let (fsize, frag) = (
        word(offset_of!(Superblock<LE>, fs_fsize)).max(1),
        word(offset_of!(Superblock<LE>, fs_frag)).max(1),
    );
    let sblkno = word(offset_of!(Superblock<LE>, fs_sblkno));
    let mut differed = Vec::new();
    // The first copy lies behind the superblock. (UFS2 is found by this field.)
    let (name, at, _) = field!(fs_sblockloc, 8);
    let says = order.get_u64(&found.bytes, at).unwrap_or(0);
    let behind = u128::from(says) + u128::from(wide(SUPERBLOCK_SIZE));
    let behind = behind.div_ceil(fsize).next_multiple_of(frag);
    if says != here && (says > HOME_UFS1 || behind != sblkno) {
        order.put_u64(&mut found.bytes, at, here);
        differed.push(name);
    }
    let (name, at, _) = field!(fs_sblockactualloc, 8);
    let says = order.get_u64(&found.bytes, at).unwrap_or(0);
    let fits = match found.format {
        Format::Ufs1 => says.cast_signed() <= HOME_UFS1.cast_signed(),
        Format::Ufs2 => says == 0 || says == here,
    };
    if !fits {
        order.put_u64(&mut found.bytes, at, here);
        differed.push(name);
    }
    differed
}

/// Corrects impossible settings: to those of a copy, or to those that `newfs` would choose. Returns
/// the names.
fn tune(found: &mut RawSuperblock, copy: &RawSuperblock) -> Vec<&'static str> {
    let order = found.order;
    let word = |found: &RawSuperblock, at| order.get_u32(&found.bytes, at).unwrap_or(0);
    let bsize = word(found, offset_of!(Superblock<LE>, fs_bsize));
    let most = i32::MAX.cast_unsigned();
    let words = [
        (field!(fs_minfree, 4), 0..=99, 8),
        (field!(fs_optim, 4), 0..=1, 0),
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
    let fits = |frags: &u64| *frags <= u64::from(fpg / 2);
    if !order.get_u64(&found.bytes, at).is_some_and(|frags| fits(&frags)) {
        let other = order.get_u64(&copy.bytes, at).filter(fits);
        order.put_u64(&mut found.bytes, at, other.unwrap_or(0));
        differed.push(name);
    }
    let (name, at, _) = field!(fs_maxcontig, 4);
    let counted = word(found, offset_of!(Superblock<LE>, fs_contigsumsize));
    let fits = |blocks: u32| match blocks {
        0 => counted == 0,
        1 => true,
        2..=MOST_CONTIG => blocks.min(MAX_CONTIG) == counted,
        _ => false,
    };
    if !fits(word(found, at)) {
        let other = Some(word(copy, at)).filter(|&blocks| fits(blocks));
        order.put_u32(&mut found.bytes, at, other.unwrap_or(counted.max(1)));
        differed.push(name);
    }
    let (name, at, _) = field!(fs_maxbsize, 4);
    let range = u64::from(bsize)..=u64::from(bsize) * u64::from(MAX_CONTIG);
    let fits = |longest: u32| longest.is_power_of_two() && range.contains(&longest.into());
    let (longest, other) = (word(found, at), word(copy, at));
    // Zero is the value from before the field existed.
    if !fits(longest) && (longest != 0 || other != 0) {
        order.put_u32(&mut found.bytes, at, if fits(other) { other } else { bsize });
        differed.push(name);
    }
    differed
}

/// The listed inodes that are snapshots, and whether one of the others is not an empty file: in the
/// image of a newer snapshot, older ones are listed so.
fn kept_snapshots(device: &Arc<dyn BlockDevice>, sb: &Super) -> (Vec<Ino>, bool) {
    let volume = Volume::with(Arc::clone(device), sb.clone(), true);
    let (mut kept, mut is_wrong) = (Vec::new(), false);
    for ino in sb.tuning.snapshots() {
        let inode = volume.inode(ino).ok();
        let is_file = |inode: &Inode| FileKind::from_mode(inode.mode()) == Some(FileKind::Regular);
        match inode.filter(is_file) {
            Some(inode) if inode.is(SNAPSHOT) && !kept.contains(&ino) => kept.push(ino),
            Some(inode) if inode.len == 0 => {}
            Some(_) | None => is_wrong = true,
        }
    }
    (kept, is_wrong)
}

/// Lists these snapshots and no others.
fn list_snapshots(found: &mut RawSuperblock, snapshots: &[Ino]) {
    let at = offset_of!(Superblock<LE>, fs_snapinum);
    for n in 0..20 {
        let ino = snapshots.get(n).map_or(0, |ino| ino.get());
        found.order.put_u32(&mut found.bytes, at + n * 4, ino);
    }
}
