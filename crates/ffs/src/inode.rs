//! Inodes of both formats in native terms.

use crate::crc32c;
use crate::ondisk::{DIRECT, Dinode1, Dinode2, check_hash};
use crate::superblock::{Format, Order, same};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, parse, range, slice, truncated};
use seekless_fs::{Attr, DeviceNumber, FileKind, FsError, InodeLocation, Location, Timestamp};
use seekless_units::{BlockNo, Extent, Ino};
use std::mem::offset_of;
use zerocopy::byteorder::{BE, ByteOrder, LE};

/// Where a symlink's target may lie: the block numbers.
const UFS1_DB_AT: usize = offset_of!(Dinode1<LE>, di_db);
const UFS2_DB_AT: usize = offset_of!(Dinode2<LE>, di_db);

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    mode: u16,
    nlink: i16,
    uid: u32,
    gid: u32,
    pub(crate) len: u64,
    sectors: u64,
    times: [Timestamp; 3],
    birth: Option<Timestamp>,
    generation: u32,
    flags: u32,
    pub(crate) direct: [u64; DIRECT],
    pub(crate) indirect: [u64; 3],
    /// UFS2: bytes of extended attributes, and their blocks.
    pub(crate) ext_len: u32,
    pub(crate) ext_blocks: [u64; 2],
    /// The bytes of the block numbers.
    pub(crate) numbers: Vec<u8>,
}

impl Volume {
    /// Where an inode lies.
    pub(crate) fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let (group, slot) = self.inode_slot(ino)?;
        let size = self.sb.inode_size();
        let per_block = self.sb.bsize.checked_div(size).unwrap_or(1);
        let frags = u64::from(self.sb.frag);
        let start = self.sb.in_group(group, self.sb.iblkno);
        let block = u64::from(slot.checked_div(per_block).unwrap_or(0)).saturating_mul(frags);
        let blocks = u64::from(self.sb.ipg.div_ceil(per_block.max(1)));
        let table = Extent::new(start, blocks.saturating_mul(frags));
        Ok(InodeLocation {
            block: start.saturating_add(block),
            offset: slot.checked_rem(per_block).unwrap_or(0).saturating_mul(size),
            table,
            used_end: table.end(),
        })
    }

    /// Reads an inode and checks its hash.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode, FsError> {
        let place = Location::of("inode").in_inode(ino);
        let at = self.inode_location(ino)?;
        let block = self.block(at.block, index(self.sb.bsize), place)?;
        let size = index(self.sb.inode_size());
        let bytes = slice(&block, index(at.offset), size).ok_or_else(|| truncated(place))?;
        let lost = || truncated(place);
        match (self.sb.format, self.sb.order) {
            (Format::Ufs1, Order::Little) => {
                Ok(first(ino, &parse::<Dinode1<LE>>(bytes, 0).ok_or_else(lost)?, bytes))
            }
            (Format::Ufs1, Order::Big) => {
                Ok(first(ino, &parse::<Dinode1<BE>>(bytes, 0).ok_or_else(lost)?, bytes))
            }
            (Format::Ufs2, Order::Little) => {
                self.second(ino, &parse::<Dinode2<LE>>(bytes, 0).ok_or_else(lost)?, bytes)
            }
            (Format::Ufs2, Order::Big) => {
                self.second(ino, &parse::<Dinode2<BE>>(bytes, 0).ok_or_else(lost)?, bytes)
            }
        }
    }

    fn second<O: ByteOrder>(
        &self,
        ino: Ino,
        raw: &Dinode2<O>,
        bytes: &[u8],
    ) -> Result<Inode, FsError> {
        let place = Location::of("inode").in_inode(ino);
        if self.sb.has_check_hash(check_hash::INODE) && !self.ignore_checksums {
            let mut copy = bytes.to_vec();
            let at = offset_of!(Dinode2<LE>, di_ckhash);
            copy.get_mut(at..at.saturating_add(4)).ok_or_else(|| truncated(place))?.fill(0);
            same(raw.di_ckhash.get(), crc32c(&copy), place)?;
        }
        let time = |secs, nanos: u32| Timestamp { secs, nanos: nanos.min(999_999_999) };
        Ok(Inode {
            ino,
            mode: raw.di_mode.get(),
            nlink: raw.di_nlink.get(),
            uid: raw.di_uid.get(),
            gid: raw.di_gid.get(),
            len: raw.di_size.get(),
            sectors: raw.di_blocks.get(),
            times: [
                time(raw.di_atime.get(), raw.di_atimensec.get()),
                time(raw.di_mtime.get(), raw.di_mtimensec.get()),
                time(raw.di_ctime.get(), raw.di_ctimensec.get()),
            ],
            birth: Some(time(raw.di_birthtime.get(), raw.di_birthnsec.get())),
            generation: raw.di_gen.get(),
            flags: raw.di_flags.get(),
            direct: raw.di_db.map(zerocopy::byteorder::U64::get),
            indirect: raw.di_ib.map(zerocopy::byteorder::U64::get),
            ext_len: raw.di_extsize.get(),
            ext_blocks: raw.di_extb.map(zerocopy::byteorder::U64::get),
            numbers: bytes.get(UFS2_DB_AT..UFS2_DB_AT.saturating_add(120)).unwrap_or(&[]).to_vec(),
        })
    }

    /// An inode that is in use, with what it is.
    pub(crate) fn live_inode(&self, ino: Ino) -> Result<(Inode, FileKind), FsError> {
        let place = Location::of("inode").in_inode(ino);
        let (group, slot) = self.inode_slot(ino)?;
        if !self.cylinder_group(group)?.in_use(slot) {
            return Err(invalid("cg_inosused", 0, place));
        }
        let inode = self.inode(ino)?;
        let Some(kind) = FileKind::from_mode(inode.mode) else {
            return Err(invalid("di_mode", u64::from(inode.mode), place));
        };
        if inode.nlink <= 0 {
            return Err(invalid("di_nlink", u64::from(inode.nlink.cast_unsigned()), place));
        }
        if i64::try_from(inode.len).is_err() {
            return Err(range("di_size", inode.len, i64::MAX.cast_unsigned(), place));
        }
        Ok((inode, kind))
    }

    /// An inode that is a directory.
    pub(crate) fn dir_inode(&self, ino: Ino) -> Result<Inode, FsError> {
        match self.live_inode(ino)? {
            (inode, FileKind::Directory) => Ok(inode),
            _ => Err(FsError::NotDirectory(format!("inode {ino}"))),
        }
    }

    /// Whether a symlink's target lies where the block numbers would.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        inode.len < u64::from(self.sb.maxsymlinklen) || inode.sectors == 0
    }
}

fn first<O: ByteOrder>(ino: Ino, raw: &Dinode1<O>, bytes: &[u8]) -> Inode {
    let time =
        |secs: i32, nanos: u32| Timestamp { secs: i64::from(secs), nanos: nanos.min(999_999_999) };
    Inode {
        ino,
        mode: raw.di_mode.get(),
        nlink: raw.di_nlink.get(),
        uid: raw.di_uid.get(),
        gid: raw.di_gid.get(),
        len: raw.di_size.get(),
        sectors: u64::from(raw.di_blocks.get()),
        times: [
            time(raw.di_atime.get(), raw.di_atimensec.get()),
            time(raw.di_mtime.get(), raw.di_mtimensec.get()),
            time(raw.di_ctime.get(), raw.di_ctimensec.get()),
        ],
        birth: None,
        generation: raw.di_gen.get(),
        flags: raw.di_flags.get(),
        direct: raw.di_db.map(|number| u64::from(number.get())),
        indirect: raw.di_ib.map(|number| u64::from(number.get())),
        ext_len: 0,
        ext_blocks: [0; 2],
        numbers: bytes.get(UFS1_DB_AT..UFS1_DB_AT.saturating_add(60)).unwrap_or(&[]).to_vec(),
    }
}

impl Inode {
    /// `di_mode`: zero when it is not in use.
    pub(crate) fn mode(&self) -> u16 {
        self.mode
    }

    /// `di_nlink`.
    pub(crate) fn nlink(&self) -> i16 {
        self.nlink
    }

    /// `di_blocks`, in units of 512 bytes.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether `di_flags` has the bit.
    pub(crate) fn is(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    /// What `statx` tells.
    pub(crate) fn attr(&self, kind: FileKind) -> Attr {
        let [atime, mtime, ctime] = self.times;
        Attr {
            ino: self.ino,
            kind,
            perm: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            nlink: u32::from(self.nlink.cast_unsigned()),
            size: self.len,
            sectors: self.sectors,
            atime,
            mtime,
            ctime,
            crtime: self.birth,
            device: self.device(kind),
            generation: self.generation,
            flags: linux_flags(self.flags),
            project: 0,
        }
    }

    /// A device's number as FreeBSD's `major` and `minor` take it apart.
    fn device(&self, kind: FileKind) -> DeviceNumber {
        if !matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return DeviceNumber::default();
        }
        let raw = self.direct.first().copied().unwrap_or(0);
        let low = |value: u64| u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0);
        DeviceNumber {
            major: low(raw >> 32) & 0xFFFF_FF00 | low(raw >> 8) & 0xFF,
            minor: low(raw >> 24) & 0xFF00 | low(raw) & 0xFFFF_00FF,
        }
    }

    /// The first fragment of one of its direct blocks, if it has one.
    pub(crate) fn direct_block(&self, at: u64) -> Option<BlockNo> {
        let number = self.direct.get(index(at)).copied()?;
        (number != 0).then(|| BlockNo::new(number))
    }
}

/// BSD's file flags in the bits that `lsattr` knows: no dump, immutable (for
/// the user or the system), append only.
pub(crate) fn linux_flags(flags: u32) -> u32 {
    const PAIRS: [(u32, u32); 5] =
        [(1, 0x40), (2, 0x10), (0x2_0000, 0x10), (4, 0x20), (0x4_0000, 0x20)];
    PAIRS.iter().filter(|(bsd, _)| flags & bsd != 0).fold(0, |all, (_, linux)| all | linux)
}
