//! Where everything of a new file system lies.

use super::options::{MakeOptions, Version};
use crate::ondisk::CylinderGroup;
use crate::superblock::{MAX_CONTIG, SUMMARY};
use seekless_fs::FsError;
use zerocopy::byteorder::LE;

/// Bytes of a group's head in front of its bitmaps.
const HEAD: u64 = size_of::<CylinderGroup<LE>>() as u64;
/// Room for a superblock or a copy of it.
const SUPERBLOCK_ROOM: u64 = 8192;
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
}

/// Where the parts of a group's head begin, in bytes, and where it ends.
pub(crate) struct HeadLayout {
    pub(crate) inodes: u64,
    pub(crate) frags: u64,
    pub(crate) cluster_counts: u64,
    pub(crate) clusters: u64,
    pub(crate) end: u64,
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
            contigsumsize: options.maxcontig.min(MAX_CONTIG),
        };
        if geometry.contigsumsize <= 1 {
            geometry.contigsumsize = 0;
        }
        geometry.sblkno = whole(geometry.superblock_at() + SUPERBLOCK_ROOM);
        geometry.cblkno = geometry.sblkno + whole(SUPERBLOCK_ROOM);
        geometry.iblkno = geometry.cblkno + frag;
        geometry.divide(options)?;
        Ok(geometry)
    }

    /// Divides the volume into groups as large as their heads allow.
    fn divide(&mut self, options: &MakeOptions) -> Result<(), FsError> {
        let density = u64::from(options.bytes_per_inode.unwrap_or(2 * self.fsize));
        let frag = u64::from(self.frag);
        let per_block = u64::from(self.bsize / self.inode_size());
        let wanted = self.size.div_ceil(LEAST_GROUPS).next_multiple_of(frag);
        let most = u64::from(options.blocks_per_group.unwrap_or(u32::MAX));
        let (mut low, mut high) = (1, most.min(wanted.min(u64::from(self.bsize) * 8) / frag));
        // The most blocks whose bitmaps fit in one block.
        while low < high {
            let middle = (low + high).div_ceil(2);
            self.shape(middle * frag, density, per_block);
            if self.head_layout().end <= u64::from(self.bsize) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.shape(low * frag, density, per_block);
        self.drop_small_tail();
        let inodes = u64::from(self.ncg) * u64::from(self.ipg);
        if inodes > u64::from(u32::MAX) / 2 || self.size > i64::MAX as u64 / u64::from(self.fsize) {
            return Err(FsError::Invalid(format!("{inodes} inodes are too many for the format")));
        }
        if self.version == Version::Ufs1 && self.size > i32::MAX as u64 {
            return Err(FsError::Invalid("too large for UFS1, which counts 2^31 fragments".into()));
        }
        let first = u64::from(self.dblkno) + self.summary_frags() + frag;
        if self.ncg == 0 || first > self.group_frags(0) {
            return Err(FsError::NoSpace(format!(
                "{} bytes are too few: a group's metadata take {}",
                options.size,
                first * u64::from(self.fsize)
            )));
        }
        Ok(())
    }

    fn shape(&mut self, fpg: u64, density: u64, per_block: u64) {
        let bytes = fpg * u64::from(self.fsize);
        let ipg = bytes.div_ceil(density).max(1).next_multiple_of(per_block);
        self.fpg = fpg as u32;
        self.ipg = ipg as u32;
        let table = ipg * u64::from(self.inode_size()) / u64::from(self.fsize);
        self.dblkno = self.iblkno + table as u32;
        self.ncg = self.size.div_ceil(fpg.max(1)) as u32;
    }

    /// Leaves out a last group that has no room for a block of data.
    fn drop_small_tail(&mut self) {
        self.size -= self.size % u64::from(self.frag);
        let last = self.size % u64::from(self.fpg);
        if last != 0 && last < u64::from(self.dblkno) + u64::from(self.frag) {
            self.size -= last;
        }
        self.ncg = self.size.div_ceil(u64::from(self.fpg)) as u32;
    }

    pub(crate) fn inode_size(&self) -> u32 {
        match self.version {
            Version::Ufs1 => 128,
            Version::Ufs2 => 256,
        }
    }

    /// Where the superblock lies, in bytes.
    pub(crate) fn superblock_at(&self) -> u64 {
        match self.version {
            Version::Ufs1 => 8192,
            Version::Ufs2 => 65536,
        }
    }

    /// Fragments that hold so many bytes.
    pub(crate) fn frags(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.fsize))
    }

    pub(crate) fn summary_frags(&self) -> u64 {
        self.frags(u64::from(self.ncg) * SUMMARY)
    }

    /// Fragments of a group.
    pub(crate) fn group_frags(&self, group: u32) -> u64 {
        let start = u64::from(group) * u64::from(self.fpg);
        self.size.saturating_sub(start).min(u64::from(self.fpg))
    }

    /// A fragment of a group.
    pub(crate) fn in_group(&self, group: u32, at: u32) -> u64 {
        u64::from(group) * u64::from(self.fpg) + u64::from(at)
    }

    /// `CGSIZE` and the offsets in front of it.
    pub(crate) fn head_layout(&self) -> HeadLayout {
        let old = self.version == Version::Ufs1;
        head_layout(old, self.ipg, self.fpg, self.frag, self.contigsumsize)
    }
}

/// Where `newfs` puts the parts of a head, for groups of so many inodes and
/// fragments; `old` for UFS1.
pub(crate) fn head_layout(
    old: bool,
    ipg: u32,
    fpg: u32,
    frag: u32,
    contigsumsize: u32,
) -> HeadLayout {
    // UFS1 keeps tables of block positions, of one cylinder, in front.
    let inodes = if old { HEAD + 4 + 2 } else { HEAD };
    let frags = inodes + u64::from(ipg).div_ceil(8);
    let end = frags + u64::from(fpg).div_ceil(8);
    if contigsumsize == 0 {
        return HeadLayout { inodes, frags, cluster_counts: 0, clusters: 0, end };
    }
    // The counts are numbered from 1: their place is one word earlier.
    let cluster_counts = end.next_multiple_of(4) - 4;
    let clusters = cluster_counts + u64::from(contigsumsize + 1) * 4;
    let end = clusters + u64::from(fpg / frag).div_ceil(8);
    HeadLayout { inodes, frags, cluster_counts, clusters, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;

    /// What `newfs` prints for a disk of this size and its defaults: the first
    /// copy of the superblock lies at sector 192.
    #[test]
    fn the_first_copy_lies_where_newfs_puts_it() {
        let options = MakeOptions::new(Version::Ufs2, ByteLen::new(10 << 30));
        let geometry = Geometry::new(&options).unwrap();
        assert_eq!(geometry.sblkno * (geometry.fsize / 512), 192);
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
                assert!(end > u64::from(bsize) * 9 / 10, "{bsize}/{fsize}: only {end} used");
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
