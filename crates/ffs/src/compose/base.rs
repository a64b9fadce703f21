//! An older volume as the base of a new one: its shape, its superblock and the heads of its groups.

use super::demand::TreeDemand;
use super::options::BuildOptions;
use super::sizing;
use crate::alloc::{GroupMut, encode_summary, identify_head, new_head, seal_group};
use crate::check::{agree, problems, refuse_damage};
use crate::image::FfsImage;
use crate::make::geometry::{Geometry, without_small_group};
use crate::make::group::{Counts, GroupBuilder};
use crate::make::{CheckHashes, MakeOptions, Optimization, Version};
use crate::ondisk::{
    CylinderGroup, Dinode1, Dinode2, SUPERBLOCK_SIZE, SUPERBLOCK_UFS2, check_hash, flag,
};
use crate::superblock::{Format, Order, RawSuperblock, SUMMARY, Super, look};
use crate::superblock_edit::{SuperblockMut, set_recovery_groups};
use seekless_fs::check::Problem;
use seekless_fs::format::claim;
use seekless_fs::plan::Demand;
use seekless_fs::term::Text;
use seekless_fs::{Corruption, FsError, Location};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{ByteLen, GroupNo, SECTOR};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Findings that do not keep a volume from being a base: the copies are written again.
const HARMLESS: &[&Problem] = &[problems::SUPERBLOCK_COPY];
/// The place of UFS1's superblock, where makefs puts that of UFS2, too.
const HOME_UFS1: u64 = 8192;

/// An older volume, whose shape a new one takes over.
///
/// The new volume has its parameters and identifiers, and its groups in the same places, so that
/// whatever else is equal lies in equal fragments.
pub struct BaseVolume {
    image: Arc<FfsImage>,
    geometry: Geometry,
    superblock: RawSuperblock,
}

impl BaseVolume {
    /// Reads the shape of a volume.
    ///
    /// # Errors
    /// [`FsError::Damaged`] for a volume with an error, or one that was not unmounted;
    /// [`FsError::Unsupported`] for one with a feature that builds do not have, by its name.
    pub fn new(image: Arc<FfsImage>) -> Result<Self, FsError> {
        Self::refuse_damage(&image)?;
        let volume = image.volume();
        let sb = &volume.sb;
        let no = |what: &str| Err(FsError::Unsupported(format!("an older volume with {what}")));
        if let Some(what) = sb.unkept_feature().or_else(|| sb.unkept_by_growth()) {
            return no(what);
        }
        if sb.is_journaled() {
            // The superblock would promise a file that the image does not have.
            return no("journaled soft updates (tunefs -j disable)");
        }
        sb.check_writable()?;
        if !sb.typed_entries {
            return no("directories from before 4.4BSD");
        }
        if sb.old_cgoffset != 0 && sb.format == Format::Ufs1 {
            return no("groups whose metadata are shifted");
        }
        let is_home = match sb.format {
            Format::Ufs1 => sb.at == HOME_UFS1,
            Format::Ufs2 => [SUPERBLOCK_UFS2, HOME_UFS1].contains(&sb.at),
        };
        if !is_home {
            return no(&format!("its superblock at byte {}", sb.at));
        }
        let parts = [sb.fpg, sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno].map(u64::from);
        let is_whole = |at: u64| at.is_multiple_of(u64::from(sb.frag));
        if !parts.into_iter().chain([sb.summaries.start.get()]).all(is_whole) {
            return no("metadata that do not begin with a block");
        }
        let lost = FsError::corrupt(Corruption::Magic { found: 0 }, Location::of("superblock"));
        let superblock = look(volume.device().as_ref(), sb.at).ok_or(lost)?;
        Ok(Self { geometry: Geometry::of(sb), superblock, image })
    }

    /// Refuses a volume with an error, or one that was not unmounted.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first error, and errors of reading it.
    pub fn refuse_damage(image: &FfsImage) -> Result<(), FsError> {
        let (device, sb) = (image.volume().device(), &image.volume().sb);
        if sb.tuning.has_snapshots() {
            let what = "an image with snapshots, whose blocks are those of other files too";
            return Err(FsError::Unsupported(what.into()));
        }
        claim(&[crate::FORMAT], device.as_ref())?;
        refuse_damage(device.clone(), HARMLESS)
    }

    /// The volume's files.
    #[must_use]
    pub fn image(&self) -> &Arc<FfsImage> {
        &self.image
    }

    fn sb(&self) -> &Super {
        &self.image.volume().sb
    }

    /// Options of a volume with the same shape and settings; as large, or larger if need be.
    #[must_use]
    pub fn options(&self) -> BuildOptions {
        let (g, sb) = (&self.geometry, self.sb());
        let t = &sb.tuning;
        let make = MakeOptions {
            big_endian: sb.order == Order::Big,
            block_size: g.bsize,
            fragment_size: g.fsize,
            minfree: t.minfree,
            optimization: match t.optim {
                0 => Optimization::Time,
                _ => Optimization::Space,
            },
            maxbpg: Some(t.maxbpg),
            avgfilesize: t.avgfilesize,
            avgfpdir: t.avgfpdir,
            maxcontig: Some(t.maxcontig),
            soft_updates: sb.flags & flag::SOFT_UPDATES != 0,
            check_hashes: match sb.hashed() {
                hashed if hashed & check_hash::INODE != 0 => CheckHashes::All,
                hashed if hashed & check_hash::GROUP != 0 => CheckHashes::Groups,
                _ => CheckHashes::None,
            },
            label: sb.label.clone(),
            id: sb.id,
            ..MakeOptions::new(g.version, ByteLen::ZERO)
        };
        BuildOptions { make, ..BuildOptions::new(g.version) }
    }

    /// Refuses another format, or another byte order.
    pub(super) fn refuse_format(&self, options: &MakeOptions) -> Result<(), FsError> {
        let refuse = |is: &str, asked: &str| {
            let why = format!("unsupported: the older volume is {is}, not {asked}");
            Err(FsError::Refused(Text::from(why)))
        };
        match (self.geometry.version, options.version) {
            (Version::Ufs1, Version::Ufs2) => return refuse("UFS1", "UFS2"),
            (Version::Ufs2, Version::Ufs1) => return refuse("UFS2", "UFS1"),
            _ => {}
        }
        match (self.sb().order, options.big_endian) {
            (Order::Little, true) => refuse("little-endian", "big-endian"),
            (Order::Big, false) => refuse("big-endian", "little-endian"),
            _ => Ok(()),
        }
    }

    /// Checks that a volume with these options can have this shape.
    pub(super) fn suits(&self, options: &MakeOptions) -> Result<(), FsError> {
        let (g, own) = (&self.geometry, self.options().make);
        let rules = [
            (options.block_size == g.bsize, format!("blocks of {} bytes", g.bsize)),
            (options.fragment_size == g.fsize, format!("fragments of {} bytes", g.fsize)),
            (
                options.maxcontig == own.maxcontig,
                format!("clusters of {} blocks", self.sb().tuning.maxcontig),
            ),
            (
                options.bytes_per_inode.is_none() && options.blocks_per_group.is_none(),
                format!("groups of {} fragments with {} inodes", g.fpg, g.ipg),
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, has)) => Err(FsError::Unsupported(format!("the older volume has {has}"))),
            None => Ok(()),
        }
    }

    /// The shape of a volume with the tree of a demand, and its length: that of the older one, with
    /// further groups if they are needed and its summary area has room for them.
    pub(super) fn shape(
        &self,
        options: &BuildOptions,
        demand: &TreeDemand<'_>,
    ) -> Result<(Geometry, ByteLen), FsError> {
        let mut geometry = self.geometry.clone();
        let unsuited =
            |why: String| Err(FsError::Unsupported(format!("the older volume has {why}")));
        let fsize = u64::from(geometry.fsize);
        if !options.is_fitted {
            self.fill(&mut geometry, options.make.size)?;
        }
        let spare = options.spare.blocks(u64::from(geometry.bsize))?;
        let fixed = demand.tails.fixed_blocks().len() as u64;
        let blocks = demand.total_blocks() + fixed + spare;
        let needed = (blocks * 10_000).div_ceil(options.spare.left(0)?);
        // The root has its number.
        let inodes = demand.objects() as u64 + u64::from(super::RESERVED) - 1;
        let room = u64::from(self.sb().tuning.cssize) / SUMMARY;
        loop {
            let has = u64::from(geometry.ncg) * u64::from(geometry.ipg);
            let free = sizing::free_blocks(&geometry);
            if free >= needed && has >= inodes {
                break;
            }
            if !options.is_fitted && free < needed {
                return unsuited(format!("{free} blocks in that size, {needed} are needed"));
            }
            if !options.is_fitted {
                return unsuited(format!("{has} inodes in that size, {inodes} are needed"));
            }
            // As growfs does: the last group becomes a whole one, then there are more of them.
            let fpg = u64::from(geometry.fpg);
            let size = (geometry.size / fpg + 1) * fpg;
            (geometry.size, geometry.ncg) = (size, size.div_ceil(fpg) as u32);
            if u64::from(geometry.ncg) > room {
                let why = "in its summary area, and more are needed";
                return unsuited(format!("room for {room} groups {why}"));
            }
            if geometry.check_limits().is_err() {
                return unsuited(format!("groups of {fpg} fragments, and more of them are needed"));
            }
        }
        let device = self.image.volume().device().len();
        let size = match options.is_fitted {
            true => device.max(ByteLen::new(geometry.size * fsize)),
            false => options.make.size,
        };
        Ok((geometry, size))
    }

    /// Gives a shape the size that was asked for. A last group that is too small is left out.
    fn fill(&self, geometry: &mut Geometry, size: ByteLen) -> Result<(), FsError> {
        let own = geometry.size * u64::from(geometry.fsize);
        if size.get() < own {
            return Err(FsError::Invalid(format!(
                "the new volume would be smaller than the older one: {size} bytes, not {own}"
            )));
        }
        let fpg = u64::from(geometry.fpg);
        let least = u64::from(geometry.dblkno + geometry.frag);
        let frags = without_small_group(size.get() / u64::from(geometry.fsize), fpg, least);
        if frags <= geometry.size {
            return Ok(());
        }
        let room = u64::from(self.sb().tuning.cssize) / SUMMARY * fpg;
        (geometry.size, geometry.ncg) = (frags, frags.div_ceil(fpg) as u32);
        if frags > room || geometry.check_limits().is_err() {
            return Err(FsError::Unsupported(format!(
                "the older volume has room for {room} fragments in its summary area"
            )));
        }
        Ok(())
    }

    /// Whether a shape is larger.
    pub(super) fn is_exceeded_by(&self, geometry: &Geometry) -> bool {
        geometry.size > self.geometry.size
    }

    /// Options of a volume with a shape of its own that has the marks of this one.
    pub(super) fn marks(&self, options: &BuildOptions) -> BuildOptions {
        let mut options = options.clone();
        let own = self.options().make;
        if options.make.maxcontig == own.maxcontig && options.make.block_size != own.block_size {
            options.make.maxcontig = None;
        }
        if options.make.maxbpg == own.maxbpg && options.make.block_size != own.block_size {
            options.make.maxbpg = None;
        }
        options
    }

    /// The volume's identifier.
    pub(super) fn id(&self) -> [u32; 2] {
        self.sb().id
    }

    /// The metadata of a volume of this shape, with the settings of `options`.
    pub(super) fn metadata<'a>(
        &'a self,
        geometry: &'a Geometry,
        options: &'a MakeOptions,
    ) -> OlderMetadata<'a> {
        let own = self.options().make;
        let hashed = (options.check_hashes != own.check_hashes).then(|| options.hashed());
        let more = geometry.data_frags() - self.geometry.data_frags();
        let mut sb = self.sb().successor((geometry.size, geometry.ncg), more, hashed);
        if options.soft_updates != own.soft_updates {
            sb.flags ^= flag::SOFT_UPDATES;
        }
        OlderMetadata { base: self, geometry, options, sb }
    }
}

/// The superblock and the heads of groups of an older volume, for one with other contents.
pub(super) struct OlderMetadata<'a> {
    base: &'a BaseVolume,
    geometry: &'a Geometry,
    options: &'a MakeOptions,
    sb: Super,
}

impl OlderMetadata<'_> {
    fn read(&self, frag: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; len];
        let at = ByteLen::new(frag * u64::from(self.geometry.fsize));
        self.base.image.volume().device().read_bytes(at, &mut bytes)?;
        Ok(bytes)
    }

    fn has_grown(&self) -> bool {
        self.geometry.size != self.base.geometry.size
    }

    /// Whether the older volume has a group.
    fn has_group(&self, group: u32) -> bool {
        group < self.base.geometry.ncg
    }

    /// The bytes in front of the first group's copy of the superblock: a boot program, and the
    /// superblock.
    pub(super) fn front(&self, totals: Totals) -> Result<Vec<u8>, FsError> {
        let g = self.geometry;
        let mut bytes = self.read(0, g.sblkno as usize * g.fsize as usize)?;
        let at = g.superblock_at() as usize;
        if self.has_grown() && g.version == Version::Ufs2 && self.sb.at == SUPERBLOCK_UFS2 {
            set_recovery_groups(&self.sb, &mut bytes[at - SECTOR as usize..at]);
        }
        let mut superblock = self.superblock(totals);
        let superblock = superblock.sealed();
        bytes[at..at + superblock.len()].copy_from_slice(superblock);
        Ok(bytes)
    }

    /// The superblock.
    fn superblock(&self, totals: Totals) -> SuperblockMut<'_> {
        let (options, own) = (self.options, self.base.options().make);
        let mut superblock = SuperblockMut::of(&self.sb, self.base.superblock.bytes.clone());
        superblock.set_totals(totals);
        superblock.set_clean(true);
        superblock.forget_unreferenced();
        if self.has_grown() {
            superblock.set_size();
        }
        if options.check_hashes != own.check_hashes {
            superblock.set_hashed();
        }
        if options.soft_updates != own.soft_updates {
            superblock.set_flags(self.sb.flags);
        }
        if options.minfree != own.minfree {
            superblock.set_minfree(options.minfree);
        }
        if options.optimization != own.optimization {
            superblock.set_optim(u32::from(options.optimization == Optimization::Space));
        }
        if options.maxbpg != own.maxbpg {
            options.maxbpg.into_iter().for_each(|blocks| superblock.set_maxbpg(blocks));
        }
        if options.avgfilesize != own.avgfilesize {
            superblock.set_avgfilesize(options.avgfilesize);
        }
        if options.avgfpdir != own.avgfpdir {
            superblock.set_avgfpdir(options.avgfpdir);
        }
        if options.label != own.label {
            superblock.set_label(&options.label);
        }
        superblock
    }

    /// Whether copies of the superblock can stay: the fields in which they agree with it do.
    fn copies_stay(&self) -> bool {
        let own = self.base.options().make;
        let changed = |options: &MakeOptions| {
            (options.check_hashes, options.minfree, options.optimization, options.maxbpg)
                != (own.check_hashes, own.minfree, own.optimization, own.maxbpg)
                || (options.avgfilesize, options.avgfpdir, options.soft_updates, &options.label)
                    != (own.avgfilesize, own.avgfpdir, own.soft_updates, &own.label)
        };
        !self.has_grown() && !changed(self.options)
    }

    /// A group's copy of the superblock with all bytes up to its head: as it is, if it is valid.
    pub(super) fn copy(&self, group: u32, totals: Totals) -> Result<Vec<u8>, FsError> {
        let g = self.geometry;
        let start = g.in_group(group, g.sblkno);
        let len = (g.cblkno - g.sblkno) as usize * g.fsize as usize;
        let at = start * u64::from(g.fsize);
        let mut bytes = vec![0; len.max(SUPERBLOCK_SIZE)];
        if self.has_group(group) {
            bytes = self.read(start, len.max(SUPERBLOCK_SIZE))?;
            let device = self.base.image.volume().device().as_ref();
            let is_valid = || {
                look(device, at).is_some_and(|copy| {
                    agree(&self.base.superblock, &copy) && self.base.sb().verify(&copy).is_ok()
                })
            };
            if self.copies_stay() && is_valid() {
                return Ok(bytes);
            }
        }
        let mut superblock = self.superblock(totals);
        let superblock = superblock.sealed_copy(at);
        bytes.fill(0);
        bytes[..superblock.len()].copy_from_slice(superblock);
        Ok(bytes)
    }

    /// A group's head with its maps and counts: fields that need not change are those of the older
    /// one. Inodes up to `written` are used, or were.
    pub(super) fn head(
        &self,
        group: &GroupBuilder,
        counts: &Counts,
        written: u32,
    ) -> Result<Vec<u8>, FsError> {
        let (g, sb) = (self.geometry, &self.sb);
        let number = GroupNo::new(group.number);
        let is_old = self.has_group(group.number);
        let mut bytes = if is_old {
            self.read(g.in_group(group.number, g.cblkno), g.bsize as usize)?
        } else {
            // All inodes are zeros, so all are written.
            new_head(sb, number, g.ipg)?
        };
        let written = written.next_multiple_of(sb.inodes_per_block());
        identify_head(sb, number, &mut bytes);
        let frags = g.group_frags(group.number) as u32;
        let initialised = sb.order.get_u32(&bytes, offset_of!(CylinderGroup<LE>, cg_initediblk));
        let mut head = GroupMut::check(sb, number, &mut bytes)?;
        if !is_old {
            head.touch(sb.tuning.time);
        }
        for slot in 0..g.ipg {
            head.set_in_use(slot, group.uses_inode(slot));
        }
        for at in 0..frags {
            head.set_fragment_free(at, group.is_free(at));
        }
        head.derive_clusters();
        head.set_counts(counts);
        if g.version == Version::Ufs2 {
            head.set_initialised(initialised.unwrap_or(0).max(written).min(g.ipg));
        }
        head.clear_stray_hash();
        head.clear_strays();
        seal_group(sb, &mut bytes);
        Ok(bytes)
    }

    /// The summary area.
    pub(super) fn summaries(&self, counts: &[GroupSummary]) -> Result<Vec<u8>, FsError> {
        let area = self.geometry.summaries();
        let len = area.len as usize * self.geometry.fsize as usize;
        let mut bytes = self.read(area.start.get(), len)?;
        for (number, &summary) in (0..).zip(counts) {
            encode_summary(self.sb.order, &mut bytes, GroupNo::new(number), summary);
        }
        Ok(bytes)
    }

    /// The generations of a group's inodes, used or not; none for a group that is new.
    pub(super) fn generations(&self, group: u32) -> Result<Vec<u32>, FsError> {
        if !self.has_group(group) {
            return Ok(Vec::new());
        }
        let (g, volume) = (self.geometry, self.base.image.volume());
        let count = match g.version {
            Version::Ufs1 => g.ipg,
            // Others may have any bytes.
            Version::Ufs2 => {
                volume.cylinder_group(GroupNo::new(group))?.initialised_inodes().min(g.ipg)
            }
        };
        let size = g.inode_size() as usize;
        let at = match g.version {
            Version::Ufs1 => offset_of!(Dinode1<LE>, di_gen),
            Version::Ufs2 => offset_of!(Dinode2<LE>, di_gen),
        };
        let table = self.read(g.in_group(group, g.iblkno), count as usize * size)?;
        let generation = |inode: &[u8]| self.sb.order.get_u32(inode, at).unwrap_or(0);
        Ok(table.chunks(size).map(generation).collect())
    }
}
