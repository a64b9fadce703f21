//! Pass 1: every inode in use, and the blocks it claims.

use super::ahead::ahead;
use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use super::resize_inode::check_resize_inode;
use super::salvage::salvage;
use super::seen::CheckedInode;
use super::sequence::USABLE_BLOCKS;
use crate::encode::mapping::block_map_reach;
use crate::extent;
use crate::inode::Inode;
use crate::ondisk::{InodeCore, compat, flags, incompat, ro_compat, special};
use crate::quota::{self, Usage};
use crate::reserved::OwnFile;
use crate::superblock::Super;
use crate::xattr::inline_value;
use seekless_fs::field::{index, wide};
use seekless_fs::read_cache::Block;
use seekless_fs::{BlockMap, Corruption, FileKind, FsError, Location, Mapping};
use seekless_units::{Extent, GroupNo, Ino, Lbn};

pub(super) fn place(ino: Ino) -> Location {
    Location::of("inode").in_inode(ino)
}

/// The longest file of a volume without the `large_file` feature, in bytes.
const MOST_OF_SMALL: u64 = 0x7FFF_FFFF;

/// The longest file that a map can hold, in bytes (e2fsck, `check_blocks`).
pub(super) fn max_len(sb: &Super, has_extents: bool) -> u64 {
    let size = u64::from(sb.block_size);
    if has_extents {
        return (size << 32) - 1;
    }
    block_map_reach(sb.block_size)
}

/// Whether `i_block` contains a target as long as the inode says, ended by zeros
/// (`ext2fs_is_fast_symlink` goes by the length alone).
pub(super) fn has_target_inside(core: &InodeCore) -> bool {
    let (target, rest) = match core.i_block.0.split_at_checked(index(core.i_size_lo.get())) {
        Some((target, rest)) if !rest.is_empty() => (target, rest),
        _ => return false,
    };
    !target.is_empty() && target.iter().all(|&byte| byte != 0) && rest.iter().all(|&byte| byte == 0)
}

/// Whether blocks of a logical cluster lie in other places of their physical one, or in several
/// (e2fsck, `has_unaligned_cluster_map`), or two logical ones lie in the same.
fn is_misplaced(sb: &Super, map: &BlockMap) -> bool {
    let ratio = u64::from(sb.cluster_ratio);
    let is_in_line = |run: &Mapping| run.lbn.get() % ratio == run.extent.start.get() % ratio;
    let is_beside = |pair: &[Mapping]| match pair {
        [one, next] => {
            let end = one.lbn + one.extent.len;
            let is_same = !next.lbn.get().is_multiple_of(ratio)
                && next.lbn.get() / ratio == (end.get() - 1) / ratio;
            let physical = (one.extent.end().get() - 1) / ratio;
            is_same == (next.extent.start.get() / ratio == physical)
        }
        _ => true,
    };
    ratio > 1 && !(map.runs.iter().all(is_in_line) && map.runs.windows(2).all(is_beside))
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "file",
    }
}

/// Blocks claimed by an inode, summed up.
#[derive(Default)]
pub(super) struct Claims {
    clusters: u64,
    /// The cluster claimed last: neighbouring runs may share it.
    last: Option<u64>,
    duplicates: u64,
    /// Blocks in the volume's own metadata.
    pub(super) fixed: u64,
    /// The rest of its map was not claimed.
    is_cut: bool,
}

/// Clusters and inodes that an inode's attributes take.
#[derive(Clone, Copy, Default)]
pub(super) struct AttributeCost {
    pub(super) clusters: u64,
    /// Inodes with values.
    pub(super) inodes: u64,
}

/// Bytes of inodes that are read at once.
const READ_AHEAD: u32 = 1 << 18;

/// Inodes of a table.
struct InodeRun {
    first: Ino,
    count: u32,
    /// `None` where they could not be read together.
    bytes: Option<Block>,
    /// Those whose checksum may be wrong, in order.
    unsealed: Vec<Ino>,
}

/// Pass 1: inodes, their blocks and attributes.
pub(super) struct InodePass<'a> {
    pub(super) checker: &'a mut Checker,
}

impl<'a> InodePass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl InodePass<'_> {
    pub(super) fn inodes(&mut self) -> Result<(), FsError> {
        let groups = self.checker.sb().groups;
        let at_once = (READ_AHEAD / u32::from(self.checker.sb().inode_size)).max(1);
        let mut runs = Vec::new();
        for number in (0..groups).map(GroupNo::new) {
            if self.checker.lost_groups.contains(&number) {
                continue;
            }
            let first = number.get() * self.checker.sb().inodes_per_group + 1;
            let group = self.checker.volume.descriptors().read(number)?;
            let used = self.checker.used_slots(&group);
            let starts = (0..used).step_by(index(at_once));
            runs.extend(starts.map(|at| (Ino::new(first + at), at_once.min(used - at))));
        }
        let volume = self.checker.volume.clone();
        let size = index(self.checker.sb().inode_size);
        let read = runs.into_iter().map(|(first, count)| {
            let bytes = volume.inodes().read_run(first, count).ok();
            let numbers = (first.get()..first.get() + count).map(Ino::new);
            let unsealed = match &bytes {
                Some(bytes) => numbers
                    .zip(bytes.chunks_exact(size))
                    .filter(|(ino, inode)| !volume.inodes().is_sealed(*ino, inode))
                    .map(|(ino, _)| ino)
                    .collect(),
                None => numbers.collect(),
            };
            InodeRun { first, count, bytes, unsealed }
        });
        ahead(self.checker.is_sequential, read, |run| {
            if let Ok((group, _)) = self.checker.sb().inode_slot(run.first) {
                self.checker.reach(1, index(group.get()), index(groups));
            }
            self.run(&run)
        })?;
        self.checker.reach(1, index(groups), index(groups));
        self.reserve_lost_journal()
    }

    fn run(&mut self, run: &InodeRun) -> Result<(), FsError> {
        let size = index(self.checker.sb().inode_size);
        let mut unsealed = run.unsealed.iter().peekable();
        for nr in 0..run.count {
            let ino = Ino::new(run.first.get() + nr);
            let is_sealed = unsealed.next_if_eq(&&ino).is_none();
            // An inode in a bad block is not looked at (`ext2fs_get_next_inode`). The list of them
            // is that of an inode before.
            if self.checker.is_unusable(ino) {
                continue;
            }
            let inodes = self.checker.volume.inodes();
            // Where they could not be read together, an error has its place.
            let read = match &run.bytes {
                Some(bytes) => inodes.read_in(ino, Block::clone(bytes), index(nr) * size),
                None => inodes.read(ino),
            };
            let sum = match &read {
                Ok(inode) if !is_sealed => self.checker.strict.inodes().verify(inode, place(ino)),
                _ => Ok(()),
            };
            self.inode(ino, read, sum)?;
        }
        Ok(())
    }

    fn inode(
        &mut self,
        ino: Ino,
        read: Result<Inode, FsError>,
        sum: Result<(), FsError>,
    ) -> Result<(), FsError> {
        let inode = match read {
            Ok(inode) => inode,
            Err(error @ FsError::Corrupt { .. }) => return self.unreadable(ino, &error),
            Err(error) => return Err(error),
        };
        let is_orphan = self.checker.orphans.contains(&ino);
        let is_special =
            self.checker.volume.sb.is_own(ino) || self.checker.volume.sb.is_kept_unused(ino);
        let (links, mode) = (inode.core.i_links_count.get(), inode.core.i_mode.get());
        if !is_orphan && self.was_listed(&inode) {
            let what = "was on a list of orphans that is lost".to_string();
            self.checker.unexpected(problems::INODE_DELETION_TIME, what, place(ino));
            let fix = if links == 0 { Fix::Deleted(ino) } else { Fix::Undelete(ino) };
            self.checker.fix(Stage::Inodes, fix);
        } else if links == 0 && !is_orphan && !is_special {
            if mode != 0 && inode.core.i_dtime.get() == 0 {
                let what = "deleted, but without a deletion time".to_string();
                self.checker.found(problems::INODE_PARTLY_CLEARED, what, place(ino));
                self.checker.fix(Stage::Inodes, Fix::Deleted(ino));
            }
        } else if !is_orphan && !is_special && inode.core.i_dtime.get() != 0 {
            let what = "in use, but has a deletion time".to_string();
            self.checker.expected(problems::INODE_DELETION_TIME, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Undelete(ino));
        }
        if links == 0 && !is_orphan && !is_special {
            return self.sum(&inode, sum);
        }
        if is_special && !self.reserved(&inode)? {
            return self.sum(&inode, sum);
        }
        let has_no_map = inode.kind().is_none_or(|kind| {
            !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        });
        if has_no_map && !is_special && self.checker.is_really_directory(&inode)? {
            let what = format!("mode {mode:#o}, but it has the contents of a directory");
            self.checker.found(problems::INODE_UNKNOWN_KIND, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Kind(ino, FileKind::Directory));
            // Its blocks are its own all the same.
            self.claim_map(&inode)?;
            return Ok(());
        }
        let Some(kind) = inode.kind() else {
            if is_special {
                return self.sum(&inode, sum);
            }
            let what = format!("mode {mode:#o} is not a valid file type");
            self.checker.found(problems::INODE_UNKNOWN_KIND, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
            return Ok(());
        };
        self.sum(&inode, sum)?;
        self.times(&inode);
        self.needed_features(&inode, kind)?;
        if !is_special {
            self.encryption(&inode)?;
        }
        let is_reserved = is_special && self.checker.volume.sb.own_file(ino).is_none();
        let is_followed = is_reserved || self.fields(&inode, kind);
        let bad_map = !is_followed || self.blocks(&inode, kind)?;
        self.checker.report.tally.inodes += 1;
        let is_dir = u64::from(kind == FileKind::Directory);
        self.checker.report.tally.directories += is_dir;
        let seen = CheckedInode {
            kind,
            links,
            names: 0,
            is_empty: self.checker.volume.inodes().allocated_sectors(&inode) == 0
                && !inode.has_flag(flags::INLINE_DATA)
                && matches!(kind, FileKind::Regular | FileKind::Directory),
            is_special: is_special && ino.get() != special::ROOT,
            is_magic: self.checker.sb().has_compat(compat::IMAGIC_INODES)
                && inode.has_flag(flags::IMAGIC),
            is_value: self.checker.volume.inodes().is_value(&inode),
            bad_map,
        };
        self.checker.seen.insert(ino, seen);
        Ok(())
    }

    /// Times after the year 2310, as kernels once wrote those before 1970 (e2fsck,
    /// `check_inode_extra_space`).
    fn times(&mut self, inode: &Inode) {
        if inode.has_late_times() {
            let what = "a time after the year 2310, which is likely before 1970".to_string();
            self.checker.found(problems::INODE_TIME, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::Times(inode.ino));
        }
    }

    /// Reports a wrong checksum of an inode, if it was ever written.
    fn sum(&mut self, inode: &Inode, compared: Result<(), FsError>) -> Result<(), FsError> {
        let ino = inode.ino;
        let is_written = || inode.raw().iter().any(|&byte| byte != 0);
        if compared.is_err()
            && is_written()
            && self.checker.checksum(compared, problems::INODE_CHECKSUM, place(ino))?
        {
            self.checker.fix(Stage::Inodes, Fix::Seal(ino));
        }
        Ok(())
    }

    /// An inode whose sizes cannot be right.
    fn unreadable(&mut self, ino: Ino, error: &FsError) -> Result<(), FsError> {
        let (what, at) = error.finding(place(ino));
        let is_extra = matches!(
            error,
            FsError::Corrupt { kind: Corruption::Range { field: "i_extra_isize", .. }, .. }
        );
        self.checker.graded(is_extra, problems::INODE_UNREADABLE, what, at);
        match error {
            _ if is_extra => self.checker.fix(Stage::Inodes, Fix::ExtraSize(ino)),
            FsError::Corrupt { kind: Corruption::Range { field: "i_size", .. }, .. } => {
                self.checker.fix(Stage::Inodes, Fix::Length(ino, 0));
            }
            // It lies past the end of the device.
            _ => {}
        }
        Ok(())
    }

    /// Whether `i_dtime` is the number of an inode instead of a time, as on the list of orphans
    /// (e2fsck, `PR_1_LOW_DTIME`).
    fn was_listed(&self, inode: &Inode) -> bool {
        let raw = &self.checker.sb().raw;
        let count = raw.s_inodes_count.get();
        let dated = |time: u32| time == 0 || time >= count;
        let is_dated = raw.s_rev_level.get() > 0 && dated(raw.s_wtime.get());
        let dtime = inode.core.i_dtime.get();
        is_dated && dated(raw.s_mtime.get()) && dtime != 0 && dtime < count
    }

    /// Claims the readable pieces of a damaged map.
    fn salvaged(&mut self, inode: &Inode) -> Result<(), FsError> {
        let found = salvage(&self.checker.volume, inode)?;
        let mut claims = Claims::default();
        for &block in &found.index {
            self.claim(Extent::new(block, 1), &mut claims);
        }
        for piece in &found.pieces {
            self.claim(piece.placed.extent, &mut claims);
        }
        let fix = if claims.is_cut { Fix::Clear } else { Fix::Map };
        self.mend_map(inode, fix);
        Ok(())
    }

    /// Requests the repair of a damaged map; a journal is of no use in part.
    fn mend_map(&mut self, inode: &Inode, fix: fn(Ino) -> Fix) {
        let is_journal = self.checker.volume.sb.own_file(inode.ino) == Some(OwnFile::Journal);
        let fix = if is_journal { Fix::JournalInode } else { fix };
        self.checker.fix(Stage::Inodes, fix(inode.ino));
    }

    /// Claims an inode's blocks; whether its map cannot be followed.
    fn blocks(&mut self, inode: &Inode, kind: FileKind) -> Result<bool, FsError> {
        let at = place(inode.ino);
        if inode.ino.get() == special::RESIZE {
            return check_resize_inode(self, inode);
        }
        let map = self.checker.sound(
            self.checker.volume.maps().block_map(inode),
            problems::INODE_BLOCK_MAP,
            at,
        )?;
        // Without blocks of its own, the map is covered by the inode's checksum.
        let has_sums = map.as_ref().is_none_or(|map| !map.index.is_empty());
        let is_wrong = has_sums
            && self.checker.checksum(
                self.checker.strict.maps().block_map(inode),
                problems::INODE_MAP_CHECKSUM,
                at,
            )?;
        let attributes = self.attributes(inode)?;
        if is_wrong && map.is_some() {
            self.checker.fix(Stage::Inodes, Fix::SealMap(inode.ino));
        }
        let Some(map) = map else {
            let has_map =
                matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
            if !has_map || (kind == FileKind::Symlink && has_target_inside(&inode.core)) {
                // Its attribute block is wrong, or only `i_blocks` claims that the target lies in a
                // block.
                self.sectors(inode, 0, attributes);
                return Ok(false);
            }
            self.salvaged(inode)?;
            return Ok(true);
        };
        if inode.has_flag(flags::EXTENTS)
            && !extent::is_well_formed(&self.checker.volume, inode, &map.index)?
        {
            let what = "an extent tree with a node that has no entries or too little room, or that \
                        begins elsewhere than its index says";
            self.checker.unexpected(problems::INODE_BLOCK_MAP, what.to_string(), at);
            self.salvaged(inode)?;
            return Ok(true);
        }
        if self.is_out_of_order(inode, kind, &map)? {
            let what =
                "blocks past its end that its length or its count of blocks rule out".to_string();
            self.checker.unexpected(problems::INODE_BLOCK_MAP, what, at);
            self.salvaged(inode)?;
            return Ok(true);
        }
        if kind == FileKind::Directory && self.reaches_too_far(inode, &map)? {
            let what = "a directory whose last extent reaches into something else".to_string();
            self.checker.unexpected(problems::INODE_BLOCK_MAP, what, at);
            self.salvaged(inode)?;
            return Ok(true);
        }
        let mut claims = Claims::default();
        for node in &map.index {
            // A cluster with a node has nothing else.
            claims.last = None;
            self.claim(Extent::new(node.block, 1), &mut claims);
        }
        claims.last = None;
        for run in &map.runs {
            self.claim(run.extent, &mut claims);
        }
        let follows = |pair: &[Mapping]| match pair {
            [one, next] => one.extent.end() == next.extent.start,
            _ => true,
        };
        let is_whole = map.runs.windows(2).all(follows);
        self.checker.report.tally.fragmented += u64::from(!is_whole);
        if claims.fixed > 0 {
            let what = format!("{} blocks are in the metadata of the file system", claims.fixed);
            self.checker.found(problems::INODE_BLOCK_RANGE, what, at);
        }
        if claims.duplicates > 0 {
            let what = format!("{} clusters are also used by something else", claims.duplicates);
            self.checker.found(problems::INODE_DUPLICATE_BLOCKS, what, at);
        }
        let astray = match kind {
            FileKind::Directory => self.strays(inode, &map),
            FileKind::Symlink => {
                let has_nodes = !inode.has_flag(flags::EXTENTS) && !map.index.is_empty();
                has_nodes || map.runs.iter().any(|run| run.lbn > Lbn::ZERO || run.extent.len > 1)
            }
            // The kernel and e2fsck read each of its blocks.
            _ if self.checker.volume.sb.own_file(inode.ino) == Some(OwnFile::Orphans) => {
                let end = inode.len.div_ceil(u64::from(self.checker.sb().block_size));
                map.runs.last().is_some_and(|run| (run.lbn + run.extent.len).get() > end)
            }
            _ => false,
        };
        if astray {
            // Its entries are read all the same.
            let is_marked_only =
                kind == FileKind::Directory && map.runs.iter().any(|run| run.unwritten);
            let what = format!("a {} with blocks where it can have none", kind_name(kind));
            self.checker.graded(is_marked_only, problems::INODE_BLOCK_MAP, what, at);
        }
        let is_misplaced = is_misplaced(self.checker.sb(), &map);
        if is_misplaced {
            let what = "blocks lie in a cluster otherwise than in the file".to_string();
            self.checker.unexpected(problems::INODE_BLOCK_MAP, what, at);
        }
        if claims.is_cut {
            self.mend_map(inode, Fix::Clear);
        } else if astray || is_misplaced || claims.duplicates + claims.fixed > 0 {
            self.mend_map(inode, Fix::Map);
        }
        let blocks = claims.clusters * u64::from(self.checker.sb().cluster_ratio);
        self.checker.report.tally.blocks += blocks;
        if claims.is_cut || astray {
            return Ok(true);
        }
        self.length(inode, kind, &map);
        if kind == FileKind::Symlink {
            self.target(inode, &map)?;
        }
        if kind == FileKind::Regular {
            self.large(inode);
        }
        self.sectors(inode, claims.clusters, attributes);
        Ok(false)
    }

    /// The feature that a file of this length needs.
    pub(super) fn large(&mut self, inode: &Inode) {
        let has_feature = self.checker.sb().has_ro_compat(ro_compat::LARGE_FILE);
        if inode.len > MOST_OF_SMALL && !has_feature && !self.checker.has_large {
            self.checker.has_large = true;
            let what = format!("{} bytes long, without the large_file feature", inode.len);
            self.checker.found(problems::SUPERBLOCK_LARGE_FILE, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::LargeFile);
        }
    }

    pub(super) fn claim(&mut self, run: Extent, claims: &mut Claims) {
        for cluster in self.checker.sb().clusters_of(run) {
            if self.checker.conflicts_left == 0 {
                claims.is_cut = true;
                return;
            }
            if claims.last.replace(cluster) == Some(cluster) && self.checker.sb().cluster_ratio > 1
            {
                continue;
            }
            claims.clusters += 1;
            let at = index(cluster);
            if self.checker.used.set(at) {
                continue;
            }
            self.checker.twice.set(at);
            let fixed = self.checker.fixed.get(at);
            // Files may share blocks on volumes with that feature.
            if !fixed && self.may_share() {
                self.checker.shares_left -= 1;
                continue;
            }
            debug_assert!(self.checker.conflicts_left > 0, "the limit ends a claim");
            self.checker.conflicts_left -= 1;
            let count = if fixed { &mut claims.fixed } else { &mut claims.duplicates };
            *count += 1;
        }
    }

    /// Whether one more cluster may belong to several files. Their number is limited, so that a
    /// hostile image cannot claim all of itself in each inode.
    fn may_share(&self) -> bool {
        self.checker.shares_left > 0 && self.checker.sb().has_ro_compat(ro_compat::SHARED_BLOCKS)
    }

    /// Whether a file's blocks reach past its length, and some of them are wrong, not the length.
    fn is_out_of_order(
        &self,
        inode: &Inode,
        kind: FileKind,
        map: &BlockMap,
    ) -> Result<bool, FsError> {
        let end = map.runs.last().map_or(0, |run| (run.lbn + run.extent.len).get());
        if kind == FileKind::Directory || inode.has_flag(flags::INLINE_DATA) {
            return Ok(false);
        }
        // The block of an append whose inode was not written may follow.
        let is_past = end > inode.len.div_ceil(u64::from(self.checker.sb().block_size)) + 1;
        let is_file = kind == FileKind::Regular && !self.checker.orphans.contains(&inode.ino);
        let is_asked = end > USABLE_BLOCKS || (is_file && is_past);
        Ok(is_asked && salvage(&self.checker.volume, inode)?.is_changed)
    }

    /// Whether the map of a directory has blocks behind its end that are not its own.
    fn reaches_too_far(&self, inode: &Inode, map: &BlockMap) -> Result<bool, FsError> {
        let end = inode.len.div_ceil(u64::from(self.checker.sb().block_size));
        let behind = Lbn::new(end);
        let is_there = map.find(behind).is_some_and(|run| !run.unwritten);
        if !inode.has_flag(flags::EXTENTS) || !is_there {
            return Ok(false);
        }
        Ok(salvage(&self.checker.volume, inode)?.block_of(behind).is_none())
    }

    /// Whether a directory has blocks that are marked as never written, or that lie behind a
    /// hole and past its end: no entry was ever put there (e2fsck, `PR_1_UNINIT_DBLOCK` and
    /// `PR_1_COLLAPSE_DBLOCK`).
    fn strays(&self, inode: &Inode, map: &BlockMap) -> bool {
        let blocks = inode.len.div_ceil(u64::from(self.checker.sb().block_size));
        let mut next = Lbn::ZERO;
        map.runs.iter().any(|run| {
            let is_behind_hole = run.lbn != next && run.lbn.get() >= blocks;
            next = run.lbn + run.extent.len;
            run.unwritten || is_behind_hole
        })
    }

    /// A file ends in its last written block or just before it; a directory
    /// behind its last one.
    fn length(&mut self, inode: &Inode, kind: FileKind, map: &BlockMap) {
        if inode.has_flag(flags::INLINE_DATA) {
            return self.inline_length(inode, kind);
        }
        let bsize = u64::from(self.checker.sb().block_size);
        let behind = |run: &seekless_fs::Mapping| (run.lbn + run.extent.len).get();
        let written = map.runs.iter().filter(|run| !run.unwritten).map(behind).max().unwrap_or(0);
        let end = written * bsize;
        let ino = inode.ino;
        let (wrong, fix) = match kind {
            FileKind::Directory => {
                // Blocks set aside for more names may lie behind its end.
                let spare = u64::from(self.checker.sb().raw.s_prealloc_dir_blocks);
                let most = inode.len + spare * bsize;
                let wrong = inode.len == 0
                    || !inode.len.is_multiple_of(bsize)
                    || end < inode.len
                    || end > most;
                // Without blocks there is not even a `.`; with blocks of a map, its names were
                // lost (e2fsck, `PR_1_ZERO_LENGTH_DIR` and `PR_2_DIRECTORY_HOLE`).
                let fix = match end {
                    0 if map.index.is_empty() => Fix::Clear(ino),
                    0 => Fix::Rebuild(ino),
                    end => Fix::Length(ino, end),
                };
                (wrong, fix)
            }
            FileKind::Regular => {
                // The length may end where the last block begins, as after an append that was cut
                // off; e2fsck allows it.
                let sealed = inode.has_flag(flags::VERITY);
                // Blocks of an extent tree are looked for up to its end only.
                let is_tree = inode.has_flag(flags::EXTENTS) && !map.index.is_empty();
                let last = written.checked_sub(1).map(|last| last * bsize + u64::from(is_tree));
                let wrong = last.is_some_and(|last| inode.len < last) && !sealed;
                (wrong && !self.checker.orphans.contains(&ino), Fix::Length(ino, end))
            }
            // Symlinks are never empty, files may be.
            FileKind::Symlink if inode.len == 0 => (true, Fix::Kind(ino, FileKind::Regular)),
            FileKind::Symlink => (inode.len >= bsize, Fix::Clear(ino)),
            _ => (inode.len != 0, Fix::Length(ino, 0)),
        };
        let is_long = inode.len > max_len(self.checker.sb(), inode.has_flag(flags::EXTENTS));
        let wrong = wrong || is_long;
        let high = kind != FileKind::Regular && inode.core.i_size_high.get() != 0;
        let wrong = wrong || (high && !self.checker.sb().has_incompat(incompat::LARGEDIR));
        let fix = match (kind, fix) {
            (FileKind::Symlink, Fix::Clear(_)) if inode.len > 0 && inode.len < bsize => {
                Fix::Length(ino, inode.len)
            }
            (_, fix) => fix,
        };
        if wrong {
            let what = format!("{} bytes long, with written blocks up to {end}", inode.len);
            // Its last extents lie past the length up to which e2fsck searches the tree, so that
            // e2fsck reports a wrong tree; unless none of them lies before it.
            let last = map.index.last().filter(|_| inode.has_flag(flags::EXTENTS));
            let is_cut = kind == FileKind::Regular
                && last.is_some_and(|leaf| leaf.first.get() < inode.len.div_ceil(bsize));
            let is_expected = kind != FileKind::Symlink && !is_cut;
            self.checker.graded(is_expected, problems::INODE_LENGTH, what, place(ino));
            let stage = if fix == Fix::Rebuild(ino) { Stage::Names } else { Stage::Inodes };
            self.checker.fix(stage, fix);
        }
    }

    /// Contents in an inode: a directory takes all the room, a file at most that.
    fn inline_length(&mut self, inode: &Inode, kind: FileKind) {
        let Ok(Some(value)) = inline_value(inode) else { return };
        let room = wide(inode.core.i_block.0.len()) + wide(value.len());
        if kind == FileKind::Symlink {
            // A target takes all the room; contents with a zero byte are those of a file
            // (e2fsck, `e2fsck_pass1_check_symlink`).
            if inode.len != room {
                let what = format!("a symlink of {} bytes, with room for {room}", inode.len);
                self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
                let is_target = !inode.core.i_block.0.contains(&0) && !value.contains(&0);
                let fix = if is_target {
                    Fix::Length(inode.ino, room)
                } else {
                    Fix::Kind(inode.ino, FileKind::Regular)
                };
                self.checker.fix(Stage::Inodes, fix);
            }
            return;
        }
        let is_directory = kind == FileKind::Directory;
        let is_wrong = if is_directory {
            inode.len != room || inode.core.i_size_high.get() != 0
        } else {
            inode.len > max_len(self.checker.sb(), inode.has_flag(flags::EXTENTS))
        };
        if is_wrong {
            let what = format!("{} bytes long, with room for {room} in the inode", inode.len);
            self.checker.expected(problems::INODE_LENGTH, what, place(inode.ino));
            // If only the upper half is wrong, the lower one is the length.
            let low = u64::from(inode.core.i_size_lo.get());
            let len = if is_directory { room } else { low.min(room) };
            self.checker.report.set_values(inode.len, len);
            self.checker.fix(Stage::Inodes, Fix::Length(inode.ino, len));
        }
    }

    /// A symlink's target has no zero byte and ends where its length says
    /// (e2fsck, `e2fsck_pass1_check_symlink`).
    fn target(&mut self, inode: &Inode, map: &BlockMap) -> Result<(), FsError> {
        let bsize = self.checker.volume.block_len();
        let is_told = inode.len == 0 || inode.len >= wide(bsize);
        if inode.has_flag(flags::INLINE_DATA) || is_told {
            return Ok(());
        }
        // An encrypted target begins with its length. A mark that is wrong is cleared.
        let is_encrypted = self.checker.policies.contains_key(&inode.ino);
        let ends = |target: &[u8]| match target.first_chunk() {
            Some(len) if is_encrypted => {
                let end = usize::from(u16::from_le_bytes(*len)) + size_of::<u16>();
                Some(end).filter(|end| *end < target.len())
            }
            _ => target.iter().position(|&byte| byte == 0),
        };
        let len = if self.checker.volume.inodes().is_fast_symlink(inode) {
            ends(&inode.core.i_block.0)
        } else {
            let mut block = vec![0; bsize];
            let first = map.runs.first().filter(|run| run.lbn == Lbn::ZERO);
            if let Some(run) = first {
                self.checker.volume.read_bytes(run.extent.start, 0, &mut block)?;
            }
            ends(&block)
        };
        if len.map(wide) != Some(inode.len) {
            let what = format!("a symlink of {} bytes whose target ends elsewhere", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
        }
        Ok(())
    }

    /// `i_blocks` counts all of an inode's clusters, and those of attributes.
    fn sectors(&mut self, inode: &Inode, clusters: u64, attributes: AttributeCost) {
        let clusters = clusters + attributes.clusters;
        self.charge(inode, clusters, attributes.inodes);
        let per_cluster = u64::from(self.checker.sb().block_size)
            * u64::from(self.checker.sb().cluster_ratio)
            / 512;
        let wanted = clusters * per_cluster;
        let said = self.checker.volume.inodes().allocated_sectors(inode);
        if said != wanted {
            let what = format!("has {said} sectors, should be {wanted}");
            self.checker.found(problems::INODE_BLOCK_COUNT, what, place(inode.ino));
            self.checker.report.set_values(said, wanted);
            self.checker.fix(Stage::Inodes, Fix::Sectors(inode.ino, wanted));
        }
    }

    /// Counts an inode, its clusters, and the inodes of its attribute values for its owners. The
    /// volume's own files belong to nobody, and values to the owners of their attributes.
    fn charge(&mut self, inode: &Inode, clusters: u64, values: u64) {
        let sb = self.checker.sb();
        let is_nobodys = sb.is_kept_unused(inode.ino)
            || sb.is_own(inode.ino)
            || self.checker.volume.inodes().is_value(inode);
        if sb.has_ro_compat(ro_compat::QUOTA) && !is_nobodys {
            let space = clusters * u64::from(sb.block_size) * u64::from(sb.cluster_ratio);
            let used = Usage { space, inodes: 1 + values };
            quota::charge(&mut self.checker.usage, inode, used);
            // `e2fsck_pass1` passes over the target of a symlink with inline data, and over the
            // inode with it. The kernel counts it.
            if inode.kind() == Some(FileKind::Symlink) && inode.has_flag(flags::INLINE_DATA) {
                quota::charge(&mut self.checker.uncounted_usage, inode, used);
            }
        }
    }

    /// Claims a block of attributes, once for all inodes that share it.
    pub(super) fn claim_shared(&mut self, run: Extent, ino: Ino) {
        let mut claims = Claims::default();
        self.claim(run, &mut claims);
        if claims.duplicates + claims.fixed > 0 {
            let what = "its attribute block is also used by something else".to_string();
            self.checker.found(problems::INODE_DUPLICATE_BLOCKS, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::CopyAttributes(ino));
        }
        self.checker.report.tally.blocks += 1;
    }
}
