//! Inodes of both formats in native terms.

use crate::checksum::crc32c;
use crate::ondisk::{DIRECT, Dinode1, Dinode2, SNAPSHOT, check_hash};
use crate::superblock::{Format, Order, Super, same};
use crate::volume::Volume;
use seekless_fs::field::{byte, index, invalid, low32, parse, range, slice, truncated, wide};
use seekless_fs::{
    Attr, DeviceNumber, FileKind, FsError, InodeLocation, Location, Timestamp, inode_flag,
};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::mem::offset_of;
use zerocopy::byteorder::{BE, ByteOrder, LE, U64};

/// Most bytes of block numbers in an inode.
const NUMBERS: usize = 120;

/// The offset of the block numbers in an inode, and their length. A short symlink's target takes
/// their place.
pub(crate) fn numbers(format: Format) -> (usize, usize) {
    match format {
        Format::Ufs1 => (offset_of!(Dinode1<LE>, di_db), 60),
        Format::Ufs2 => (offset_of!(Dinode2<LE>, di_db), NUMBERS),
    }
}

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    mode: u16,
    nlink: i16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) len: u64,
    sectors: u64,
    /// Times of access, change of the data, and change of the inode.
    pub(crate) times: [Timestamp; 3],
    pub(crate) birth: Option<Timestamp>,
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    pub(crate) direct: [u64; DIRECT],
    pub(crate) indirect: [u64; 3],
    /// UFS2: bytes of extended attributes, and their blocks.
    pub(crate) ext_len: u32,
    pub(crate) ext_blocks: [u64; 2],
    /// `di_modrev`: the mount that a journal belongs to.
    pub(crate) revision: u64,
    /// A directory's depth below the root, where that is recorded; the next file of a list
    /// (`di_freelink`) for one that is in use without a name.
    pub(crate) depth: u32,
    /// The bytes of the block numbers, with zeros behind those of UFS1.
    pub(crate) numbers: [u8; NUMBERS],
}

/// The place of an inode on the disk: the first fragment of its block, and the byte there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DinodePlace {
    pub(crate) block: BlockNo,
    pub(crate) skip: usize,
}

impl Super {
    /// The group of an inode, and its place there.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<(GroupNo, u32), FsError> {
        let count = self.inodes();
        if ino.get() >= count {
            let place = Location::of("inode number").in_inode(ino);
            return Err(range("inode", u64::from(ino.get()), u64::from(count), place));
        }
        Ok((GroupNo::new(ino.get() / self.ipg), ino.get() % self.ipg))
    }

    /// Inodes in a block.
    pub(crate) fn inodes_per_block(&self) -> u32 {
        self.bsize / self.inode_size()
    }

    /// Where an inode lies.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<DinodePlace, FsError> {
        let (group, slot) = self.inode_slot(ino)?;
        let (size, per_block) = (self.inode_size(), self.inodes_per_block());
        let (block, within) = (u64::from(slot / per_block), slot % per_block);
        let start = self.in_group(group, self.iblkno);
        Ok(DinodePlace { block: start + block * u64::from(self.frag), skip: index(within * size) })
    }

    /// The fragment of an inode.
    pub(crate) fn inode_fragment(&self, ino: Ino) -> Result<Extent, FsError> {
        let place = self.inode_place(ino)?;
        let within = wide(place.skip / index(self.fsize));
        Ok(Extent::new(place.block + within, 1))
    }
}

impl Volume {
    /// The places of an inode and of its table.
    pub(crate) fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let at = self.sb.inode_place(ino)?;
        let (group, _) = self.sb.inode_slot(ino)?;
        let blocks = u64::from(self.sb.ipg.div_ceil(self.sb.inodes_per_block()));
        let start = self.sb.in_group(group, self.sb.iblkno);
        let table = Extent::new(start, blocks * u64::from(self.sb.frag));
        Ok(InodeLocation { block: at.block, offset: byte(at.skip), table, used_end: table.end() })
    }

    /// Reads an inode and checks its hash.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode, FsError> {
        let place = Location::of("inode").in_inode(ino);
        let at = self.sb.inode_place(ino)?;
        let block = self.block(at.block, index(self.sb.bsize), place)?;
        let size = index(self.sb.inode_size());
        let bytes = slice(&block, at.skip, size).ok_or_else(|| truncated(place))?;
        if self.sb.has_check_hash(check_hash::INODE) && !self.ignore_checksums {
            verify(&self.sb, ino, bytes)?;
        }
        Inode::decode(&self.sb, ino, bytes)
    }

    /// An inode that is in use, with its file type.
    pub(crate) fn live_inode(&self, ino: Ino) -> Result<(Inode, FileKind), FsError> {
        let place = Location::of("inode").in_inode(ino);
        let (group, slot) = self.sb.inode_slot(ino)?;
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
}

/// Checks the hash that an inode of UFS2 may have.
pub(crate) fn verify(sb: &Super, ino: Ino, bytes: &[u8]) -> Result<(), FsError> {
    let at = offset_of!(Dinode2<LE>, di_ckhash);
    let stored = sb.order.get_u32(bytes, at).unwrap_or(0);
    let mut copy = bytes.to_vec();
    sb.order.put_u32(&mut copy, at, 0);
    same(stored, crc32c(&copy), Location::of("inode").in_inode(ino))
}

fn first<O: ByteOrder>(ino: Ino, raw: &Dinode1<O>) -> Inode {
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
        revision: raw.di_modrev.get(),
        depth: raw.di_oldids.get(),
        numbers: [0; NUMBERS],
    }
}

fn second<O: ByteOrder>(ino: Ino, raw: &Dinode2<O>) -> Inode {
    Inode {
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
        direct: raw.di_db.map(U64::get),
        indirect: raw.di_ib.map(U64::get),
        ext_len: raw.di_extsize.get(),
        ext_blocks: raw.di_extb.map(U64::get),
        revision: raw.di_modrev.get(),
        depth: raw.di_dirdepth.get(),
        numbers: [0; NUMBERS],
    }
}

fn time(secs: impl Into<i64>, nanos: u32) -> Timestamp {
    Timestamp { secs: secs.into(), nanos: nanos.min(999_999_999) }
}

impl Inode {
    /// An inode's bytes in native terms.
    pub(crate) fn decode(sb: &Super, ino: Ino, bytes: &[u8]) -> Result<Self, FsError> {
        debug_assert_eq!(bytes.len(), index(sb.inode_size()), "the bytes of one inode");
        let place = Location::of("inode").in_inode(ino);
        let lost = || truncated(place);
        let mut inode = match (sb.format, sb.order) {
            (Format::Ufs1, Order::Little) => {
                first(ino, &parse::<Dinode1<LE>>(bytes, 0).ok_or_else(lost)?)
            }
            (Format::Ufs1, Order::Big) => {
                first(ino, &parse::<Dinode1<BE>>(bytes, 0).ok_or_else(lost)?)
            }
            (Format::Ufs2, Order::Little) => {
                second(ino, &parse::<Dinode2<LE>>(bytes, 0).ok_or_else(lost)?)
            }
            (Format::Ufs2, Order::Big) => {
                second(ino, &parse::<Dinode2<BE>>(bytes, 0).ok_or_else(lost)?)
            }
        };
        let (at, len) = numbers(sb.format);
        let raw = slice(bytes, at, len).ok_or_else(lost)?;
        inode.numbers.iter_mut().zip(raw).for_each(|(to, &from)| *to = from);
        Ok(inode)
    }

    /// The target of a symlink that is stored in place of the block numbers, if it is.
    pub(crate) fn short_target(&self, sb: &Super) -> Option<Result<&[u8], FsError>> {
        if self.len >= u64::from(sb.maxsymlinklen) && self.sectors != 0 {
            return None;
        }
        let (_, room) = numbers(sb.format);
        let held = self.numbers.get(..index(self.len)).filter(|held| held.len() <= room);
        let place = Location::of("symlink").in_inode(self.ino);
        Some(held.ok_or_else(|| range("di_size", self.len, wide(room), place)))
    }

    /// The same inode with another length.
    pub(crate) fn with_len(&self, len: u64) -> Self {
        Self { len, ..self.clone() }
    }

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

    /// Whether it is a snapshot: a regular file with the flag, whose map has marks.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.is(SNAPSHOT) && FileKind::from_mode(self.mode) == Some(FileKind::Regular)
    }

    /// Whether `di_flags` has the bit.
    pub(crate) fn is(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    /// The fields of `statx`.
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
            device: device_of(kind, self.direct.first().copied().unwrap_or(0)),
            generation: self.generation,
            flags: linux_flags(self.flags),
            project: 0,
        }
    }

    /// The first fragment of one of its direct blocks, if it has one.
    pub(crate) fn direct_block(&self, at: u64) -> Option<BlockNo> {
        let number = self.direct.get(index(at)).copied()?;
        (number != 0).then(|| BlockNo::new(number))
    }
}

/// The number in place of the first block of a device, as built by FreeBSD's `makedev` (`sys/types.h`).
/// UFS1 has place for 32 bits.
pub(crate) fn raw_device(device: DeviceNumber) -> u64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    (major & 0xFFFF_FF00) << 32 | (major & 0xFF) << 8 | (minor & 0xFF00) << 24 | minor & 0xFFFF_00FF
}

/// The device behind a file, split as by FreeBSD's `major` and `minor` from the number in place of
/// its first block.
pub(crate) fn device_of(kind: FileKind, raw: u64) -> DeviceNumber {
    if !matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
        return DeviceNumber::default();
    }
    DeviceNumber {
        major: low32(raw >> 32) & 0xFFFF_FF00 | low32(raw >> 8) & 0xFF,
        minor: low32(raw >> 24) & 0xFF00 | low32(raw) & 0xFFFF_00FF,
    }
}

/// Flags of [`inode_flag`] that a file keeps in a UFS image.
pub const KEPT_FLAGS: u32 = inode_flag::NODUMP | inode_flag::IMMUTABLE | inode_flag::APPEND;

/// The flags of `lsattr` as BSD's file flags, those that only the superuser can take away.
pub(crate) fn bsd_flags(flags: u32) -> u32 {
    const PAIRS: [(u32, u32); 3] = [
        (inode_flag::NODUMP, 1),
        (inode_flag::IMMUTABLE, 0x2_0000),
        (inode_flag::APPEND, 0x4_0000),
    ];
    PAIRS.iter().filter(|(linux, _)| flags & linux != 0).fold(0, |all, (_, bsd)| all | bsd)
}

/// BSD's file flags in the bits of `lsattr`: no dump, immutable (for the user or the system),
/// append only.
pub(crate) fn linux_flags(flags: u32) -> u32 {
    let set = LINUX_FLAGS.iter().filter(|(bsd, ..)| flags & bsd != 0);
    set.fold(0, |all, (_, _, linux)| all | linux)
}

/// BSD's flags of a file that are `linux`' and, of those Linux has no bit for, the same as before.
/// A bit that stays set keeps its owner; a new one is the system's where there are two.
pub(crate) fn with_linux_flags(flags: u32, linux: u32) -> u32 {
    LINUX_FLAGS.iter().fold(flags, |flags, &(bsd, new, bit)| match linux & bit != 0 {
        true if flags & bsd == 0 => flags | new,
        true => flags,
        false => flags & !bsd,
    })
}

/// BSD's bits that mean the same, the one that is set, and Linux' bit.
const LINUX_FLAGS: [(u32, u32, u32); 3] = [
    (0x1, 0x1, inode_flag::NODUMP),
    (0x2_0002, 0x2_0000, inode_flag::IMMUTABLE),
    (0x4_0004, 0x4_0000, inode_flag::APPEND),
];
