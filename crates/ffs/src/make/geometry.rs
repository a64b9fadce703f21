//! The layout of a new file system.

use super::options::{MakeOptions, Version};
use crate::ondisk::CylinderGroup;
use crate::superblock::{Format, MAX_CONTIG, MOST_INODES_UFS1, SUMMARY, Super};
use seekless_fs::FsError;
use seekless_units::{BlockNo, Extent};
use zerocopy::byteorder::LE;

/// Bytes of a group's head in front of its bitmaps.
const HEAD: u64 = size_of::<CylinderGroup<LE>>() as u64;
/// Room for a superblock or a copy of it.
const SUPERBLOCK_ROOM: u64 = 8192;
/// `CGSIZEFUDGE`: the bytes of its block that a head leaves free, for tools that think that a head
/// is larger.
const SLACK: u64 = 8;
/// A volume is divided into at least this many groups (`MINCYLGRPS`).
const LEAST_GROUPS: u64 = 4;

/// The shape of a file system, in fragments unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) version: Version,
    pub(crate) bsize: u32,
    pub(crate) fsize: u32,
    pub(crate) frag: u32,
    pub(crate) size: u64,
    pub(crate) ncg: u32,
    pub(crate) fpg: u32,
    pub(crate) ipg: u32,
    pub(crate) sblkno: u32,
    pub(crate) cblkno: u32,
    pub(crate) iblkno: u32,
    pub(crate) dblkno: u32,
    pub(crate) contigsumsize: u32,
    /// The summary area of an older volume; otherwise it is the first data of the first group.
    own_summaries: Option<Extent>,
    /// Where its superblock is, if it is an older volume's.
    own_superblock: Option<u64>,
}

/// The starts of the parts of a group's head, in bytes, and its end.
pub(crate) struct HeadLayout {
    pub(crate) inodes: u64,
    pub(crate) frags: u64,
    pub(crate) cluster_counts: u64,
    pub(crate) clusters: u64,
    pub(crate) end: u64,
}

impl MakeOptions {
    /// Checks that such a file system can be made, without making it.
    ///
    /// # Errors
    /// As [`make`](super::make), but for errors of the device.
    pub fn validate(&self) -> Result<(), FsError> {
        Geometry::new(self).map(|_| ())
    }
}

impl Geometry {
    pub(crate) fn new(options: &MakeOptions) -> Result<Self, FsError> {
        options.check()?;
        let (bsize, fsize) = (options.block_size, options.fragment_size);
        let frag = bsize / fsize;
        let whole = |bytes: u64| (bytes.div_ceil(u64::from(fsize)) as u32).next_multiple_of(frag);
        let mut geometry = Self {
            version: options.version,
            bsize,
            fsize,
            frag,
            size: options.size.get() / u64::from(fsize),
            ncg: 0,
            fpg: 0,
            ipg: 0,
            sblkno: 0,
            cblkno: 0,
            iblkno: 0,
            dblkno: 0,
            contigsumsize: options.maxcontig().min(MAX_CONTIG),
            own_summaries: None,
            own_superblock: None,
        };
        if geometry.contigsumsize <= 1 {
            geometry.contigsumsize = 0;
        }
        geometry.sblkno = whole(geometry.superblock_at() + SUPERBLOCK_ROOM);
        geometry.cblkno = geometry.sblkno + whole(SUPERBLOCK_ROOM);
        geometry.iblkno = geometry.cblkno + frag;
        geometry.limit_size()?;
        let inode_every = geometry.divide(options)?;
        geometry.enlarge_last_group(inode_every, options)?;
        geometry.check_room(options)?;
        debug_assert!(geometry.head_bytes() <= u64::from(bsize), "a head fits in its block");
        debug_assert!(geometry.dblkno < geometry.fpg, "a group has room for data");
        debug_assert!(
            geometry.version == Version::Ufs2 || geometry.ipg <= MOST_INODES_UFS1,
            "UFS1 counts a group's inodes in 16 bits"
        );
        Ok(geometry)
    }

    /// The shape of a volume.
    pub(crate) fn of(sb: &Super) -> Self {
        Self {
            version: match sb.format {
                Format::Ufs1 => Version::Ufs1,
                Format::Ufs2 => Version::Ufs2,
            },
            bsize: sb.bsize,
            fsize: sb.fsize,
            frag: sb.frag,
            size: sb.size,
            ncg: sb.ncg,
            fpg: sb.fpg,
            ipg: sb.ipg,
            sblkno: sb.sblkno,
            cblkno: sb.cblkno,
            iblkno: sb.iblkno,
            dblkno: sb.dblkno,
            contigsumsize: sb.tuning.contigsumsize,
            own_summaries: Some(sb.summaries),
            own_superblock: Some(sb.at),
        }
    }

    /// Limits size and inodes of a volume that becomes larger to the format's numbers.
    ///
    /// # Errors
    /// [`FsError::Invalid`] with the limit that is exceeded.
    pub(crate) fn check_limits(&self) -> Result<(), FsError> {
        self.limit_size()?;
        self.limit_inodes()
    }

    /// Limits the inodes of all groups to those that inode numbers of 32 bits reach.
    fn limit_inodes(&self) -> Result<(), FsError> {
        let inodes = u128::from(self.size.div_ceil(u64::from(self.fpg))) * u128::from(self.ipg);
        if inodes > (1 << 32) - u128::from(self.inodes_per_block()) {
            return Err(FsError::Invalid(format!(
                "{inodes} inodes exceed the limit of the format"
            )));
        }
        Ok(())
    }

    /// Limits the size to the format's numbers.
    fn limit_size(&self) -> Result<(), FsError> {
        if self.size > i64::MAX as u64 / u64::from(self.fsize) {
            return Err(FsError::Invalid("too large for the format".into()));
        }
        if self.version == Version::Ufs1 && self.size > i32::MAX as u64 {
            return Err(FsError::Invalid(
                "too large for UFS1, which is limited to 2^31 - 1 fragments".into(),
            ));
        }
        Ok(())
    }

    /// Divides the volume into groups: enough fragments for a block of inodes, then as many more
    /// blocks as the head has bits for, while there are [`LEAST_GROUPS`]. Returns the number of
    /// fragments per inode.
    fn divide(&mut self, options: &MakeOptions) -> Result<u64, FsError> {
        let fsize = u64::from(self.fsize);
        // Inode numbers have 32 bits.
        let most_inodes = (1 << 32) - u64::from(self.inodes_per_block());
        let least = 1 + self.size / most_inodes;
        let wanted = options.bytes_per_inode.map_or(2 * fsize, u64::from);
        let mut density = wanted.max(least * fsize);
        let inode_every = loop {
            let inode_every = (density / fsize).max(1);
            if inode_every < least {
                return Err(FsError::Invalid(format!(
                    "blocks of {} bytes are too small for so large a file system",
                    self.bsize
                )));
            }
            self.smallest_group(inode_every);
            if self.head_bytes() + SLACK < u64::from(self.bsize) {
                break inode_every;
            }
            debug_assert!(density > fsize, "an inode for each fragment fits");
            density -= fsize;
        };
        let frag = u64::from(self.frag);
        let most = options.blocks_per_group.map_or(i32::MAX as u64, |most| u64::from(most) * frag);
        while u64::from(self.fpg) < most {
            self.set_inodes(inode_every);
            let fits = self.version == Version::Ufs2 || self.ipg <= MOST_INODES_UFS1;
            if fits && self.size / u64::from(self.fpg) < LEAST_GROUPS {
                break;
            }
            let used = self.head_bytes() + SLACK;
            if fits && used == u64::from(self.bsize) {
                break;
            }
            if !fits || used > u64::from(self.bsize) {
                self.fpg -= self.frag;
                self.set_inodes(inode_every);
                break;
            }
            self.fpg += self.frag;
        }
        Ok(inode_every)
    }

    /// Makes a group of the fewest fragments that need a block of inodes.
    fn smallest_group(&mut self, inode_every: u64) {
        self.ipg = self.inodes_per_block();
        let least = (inode_every * u64::from(self.ipg)).min(self.size);
        for _ in 0..2 {
            self.fpg = self.metadata_frags().max(u32::try_from(least).unwrap_or(u32::MAX));
            self.set_inodes(inode_every);
        }
    }

    /// Inodes for the fragments of a group, in whole blocks.
    fn set_inodes(&mut self, inode_every: u64) {
        let inodes = u64::from(self.fpg).div_ceil(inode_every) as u32;
        self.ipg = inodes.next_multiple_of(self.inodes_per_block());
        self.dblkno = self.iblkno + self.ipg / (self.inodes_per_block() / self.frag);
        self.ncg = self.size.div_ceil(u64::from(self.fpg).max(1)) as u32;
    }

    /// The start of a group's data, the least size of a group.
    fn metadata_frags(&self) -> u32 {
        let table = self.ipg / (self.inodes_per_block() / self.frag);
        (self.iblkno + table).next_multiple_of(self.frag)
    }

    /// Makes all groups smaller until the last one has room for its metadata.
    fn enlarge_last_group(
        &mut self,
        inode_every: u64,
        options: &MakeOptions,
    ) -> Result<(), FsError> {
        loop {
            let least = u64::from(self.metadata_frags());
            if self.size < least || u64::from(self.fpg) < least {
                return Err(self.too_small(options, least));
            }
            let last = self.size % u64::from(self.fpg);
            if last == 0 || last >= least {
                break;
            }
            self.fpg -= self.frag;
            self.set_inodes(inode_every);
        }
        // The last block that was tried may have had fewer inodes.
        self.dblkno = self.iblkno + self.ipg / (self.inodes_per_block() / self.frag);
        self.ncg = self.size.div_ceil(u64::from(self.fpg)) as u32;
        Ok(())
    }

    /// Checks that the first group has room for the summary area and a root.
    fn check_room(&self, options: &MakeOptions) -> Result<(), FsError> {
        let frag = u64::from(self.frag);
        self.limit_inodes()?;
        let first = u64::from(self.dblkno) + self.summary_frags().next_multiple_of(frag) + frag;
        if first > self.group_frags(0) || self.size < 8 * frag {
            return Err(self.too_small(options, first.max(8 * frag)));
        }
        Ok(())
    }

    fn too_small(&self, options: &MakeOptions, least: u64) -> FsError {
        FsError::NoSpace(format!(
            "{} bytes are too few: the metadata of a cylinder group needs {}",
            options.size,
            least * u64::from(self.fsize)
        ))
    }

    fn inodes_per_block(&self) -> u32 {
        self.bsize / self.inode_size()
    }

    /// `CGSIZE`: the size of a head, for kernels that check whether it fits.
    pub(crate) fn head_bytes(&self) -> u64 {
        let old = self.version == Version::Ufs1;
        head_bytes(old, self.ipg, self.fpg, self.frag, self.contigsumsize)
    }

    pub(crate) fn inode_size(&self) -> u32 {
        match self.version {
            Version::Ufs1 => 128,
            Version::Ufs2 => 256,
        }
    }

    /// The place of the superblock, in bytes.
    pub(crate) fn superblock_at(&self) -> u64 {
        self.own_superblock.unwrap_or(match self.version {
            Version::Ufs1 => 8192,
            Version::Ufs2 => 65536,
        })
    }

    /// Fragments for this many bytes.
    pub(crate) fn frags(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.fsize))
    }

    pub(crate) fn summary_frags(&self) -> u64 {
        match self.own_summaries {
            Some(area) => area.len,
            None => self.frags(u64::from(self.ncg) * SUMMARY),
        }
    }

    /// Fragments for data, as the superblock counts them: all but the metadata of groups and the
    /// summary area.
    pub(crate) fn data_frags(&self) -> u64 {
        let each = u64::from(self.dblkno - self.sblkno);
        // The first group has the boot area in front of its copy of the superblock.
        let metadata = u64::from(self.dblkno) + u64::from(self.ncg - 1) * each;
        self.size - metadata - self.summary_frags()
    }

    /// The summary area.
    pub(crate) fn summaries(&self) -> Extent {
        let first = || BlockNo::new(u64::from(self.dblkno));
        let start = self.own_summaries.map_or_else(first, |area| area.start);
        Extent::new(start, self.summary_frags())
    }

    /// Places the summary area.
    pub(crate) fn place_summaries(&mut self, area: Extent) {
        self.own_summaries = Some(area);
    }

    /// Whether a fragment can belong to a file.
    pub(crate) fn is_data(&self, at: u64) -> bool {
        if at >= self.size || self.summaries().contains(BlockNo::new(at)) {
            return false;
        }
        let (group, within) = (at / u64::from(self.fpg), at % u64::from(self.fpg));
        let first = if group == 0 { 0 } else { self.sblkno };
        !(u64::from(first)..u64::from(self.dblkno)).contains(&within)
    }

    /// Fragments of a group.
    pub(crate) fn group_frags(&self, group: u32) -> u64 {
        debug_assert!(group < self.ncg, "group {group} of {}", self.ncg);
        let start = u64::from(group) * u64::from(self.fpg);
        (self.size - start).min(u64::from(self.fpg))
    }

    /// A fragment of a group.
    pub(crate) fn in_group(&self, group: u32, at: u32) -> u64 {
        debug_assert!(group < self.ncg && at < self.fpg, "fragment {at} of group {group}");
        u64::from(group) * u64::from(self.fpg) + u64::from(at)
    }

    /// The layout of a head.
    pub(crate) fn head_layout(&self) -> HeadLayout {
        let tables = if self.version == Version::Ufs1 { TABLES } else { 0 };
        head_layout(tables, self.ipg, self.fpg, self.frag, self.contigsumsize)
    }
}

/// A size in fragments for a volume with groups of `fpg`: without a last group of fewer than
/// `least`, which has no room behind its metadata.
pub(crate) fn without_small_group(size: u64, fpg: u64, least: u64) -> u64 {
    let last = size % fpg;
    if last < least { size - last } else { size }
}

/// Tables before the maps in a head of UFS1: block positions, here of one cylinder with one
/// position.
const TABLES: u64 = 4 + 2;

/// `CGSIZE` of FreeBSD's `fs.h`: the bytes of a head with its maps, including the alignment of the
/// counts of clusters.
pub(crate) fn head_bytes(old: bool, ipg: u32, fpg: u32, frag: u32, contigsumsize: u32) -> u64 {
    let tables = if old { TABLES } else { 0 };
    let clusters = match contigsumsize {
        0 => 0,
        longest => u64::from(longest) * 4 + u64::from(fpg / frag).div_ceil(8),
    };
    HEAD + tables + u64::from(ipg).div_ceil(8) + u64::from(fpg).div_ceil(8) + 4 + clusters
}

/// The parts of a head as `newfs` places them, behind `tables` bytes of old tables, for groups of
/// this many inodes and fragments.
pub(crate) fn head_layout(
    tables: u64,
    ipg: u32,
    fpg: u32,
    frag: u32,
    contigsumsize: u32,
) -> HeadLayout {
    let inodes = HEAD + tables;
    let frags = inodes + u64::from(ipg).div_ceil(8);
    let end = frags + u64::from(fpg).div_ceil(8);
    if contigsumsize == 0 {
        return HeadLayout { inodes, frags, cluster_counts: 0, clusters: 0, end };
    }
    // The counts are numbered from 1: their place is one word earlier.
    let cluster_counts = end.next_multiple_of(4) - 4;
    let clusters = cluster_counts + (u64::from(contigsumsize) + 1) * 4;
    let end = clusters + u64::from(fpg / frag).div_ceil(8);
    HeadLayout { inodes, frags, cluster_counts, clusters, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;

    /// The output of `newfs` for a disk of this size and its defaults: the first copy of the
    /// superblock lies at sector 192.
    #[test]
    fn the_first_copy_lies_where_newfs_puts_it() {
        let options = MakeOptions::new(Version::Ufs2, ByteLen::new(10 << 30));
        let geometry = Geometry::new(&options).unwrap();
        assert_eq!(geometry.sblkno * (geometry.fsize / 512), 192);
    }

    /// The output of `newfs` for disks of 10 and of 1 GiB, as published: sectors; then groups,
    /// blocks in a group, inodes in a group. Until FreeBSD 12 a kernel moved 128 KiB at once, four
    /// blocks.
    #[test]
    fn groups_are_those_of_newfs() {
        for (sectors, maxcontig, ncg, blocks, ipg) in [
            (20_971_520, Some(4), 17, 20_035, 80_256),
            (20_971_520, None, 17, 20_007, 80_128),
            (2_097_152, Some(4), 4, 8_193, 32_896),
            (2_097_152, None, 4, 8_193, 32_896),
        ] {
            let mut options = MakeOptions::new(Version::Ufs2, ByteLen::new(sectors * 512));
            options.maxcontig = maxcontig;
            let geometry = Geometry::new(&options).unwrap();
            let shape = (geometry.ncg, geometry.fpg / geometry.frag, geometry.ipg);
            assert_eq!(shape, (ncg, blocks, ipg), "{sectors} {maxcontig:?}");
        }
    }

    #[test]
    fn groups_are_no_larger_than_asked_for() {
        let mut options = MakeOptions::new(Version::Ufs1, ByteLen::new(991 * (8 << 20)));
        (options.block_size, options.fragment_size) = (8192, 1024);
        (options.bytes_per_inode, options.blocks_per_group) = (Some(4096), Some(1024));
        let geometry = Geometry::new(&options).unwrap();
        assert_eq!((geometry.ncg, geometry.fpg, geometry.ipg), (991, 8192, 2048));
        options.size = ByteLen::new(5324 * (8 << 20));
        assert_eq!(Geometry::new(&options).unwrap().ncg, 5324);
    }

    #[test]
    fn heads_fit_in_a_block_and_hardly_less() {
        for (bsize, fsize) in
            [(4096, 512), (8192, 1024), (16384, 2048), (65536, 8192), (4096, 4096)]
        {
            for version in [Version::Ufs1, Version::Ufs2] {
                let mut options = MakeOptions::new(version, ByteLen::new(64 << 30));
                (options.block_size, options.fragment_size) = (bsize, fsize);
                let geometry = Geometry::new(&options).unwrap();
                let end = geometry.head_layout().end;
                assert!(end <= u64::from(bsize), "{bsize}/{fsize}: {end}");
                let full = end > u64::from(bsize) * 9 / 10;
                let inodes = geometry.ipg + bsize / geometry.inode_size() > MOST_INODES_UFS1;
                assert!(full || inodes, "{version:?} {bsize}/{fsize}: only {end} used");
                assert_eq!(
                    geometry.size.div_ceil(u64::from(geometry.fpg)),
                    u64::from(geometry.ncg)
                );
            }
        }
    }

    #[test]
    fn what_is_too_small_is_refused() {
        let options = MakeOptions::new(Version::Ufs2, ByteLen::new(100_000));
        assert!(matches!(Geometry::new(&options), Err(FsError::NoSpace(_))));
    }
}
