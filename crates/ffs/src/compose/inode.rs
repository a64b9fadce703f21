//! Inodes to be written.

use crate::make::encode::Page;
use crate::make::options::Version;
use crate::ondisk::{Dinode1, Dinode2};
use seekless_fs::Timestamp;
use seekless_fs::tree::OtherTimes;
use std::mem::offset_of;
use zerocopy::byteorder::LE;

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) mode: u16,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) sectors: u64,
    pub(super) mtime: Timestamp,
    pub(super) times: OtherTimes,
    pub(super) generation: u32,
    /// As BSD has them.
    pub(super) flags: u32,
    /// Directories only: the depth below the root.
    pub(super) depth: u32,
    pub(super) direct: [u64; 12],
    pub(super) indirect: [u64; 3],
    /// A short symlink's target, in place of the numbers.
    pub(super) target: Option<Vec<u8>>,
    /// UFS2: bytes of extended attributes and their blocks.
    pub(super) attributes: (u32, [u64; 2]),
}

/// The nearest time that an inode can store.
pub(super) fn storable(time: Timestamp, version: Version) -> Timestamp {
    if version == Version::Ufs2 {
        return time;
    }
    match i32::try_from(time.secs) {
        Ok(_) => time,
        Err(_) if time.secs < 0 => Timestamp { secs: i64::from(i32::MIN), nanos: 0 },
        Err(_) => Timestamp { secs: i64::from(i32::MAX), nanos: 999_999_999 },
    }
}

/// Sets the generation of the inode at byte `at` of a table.
pub(super) fn put_generation(version: Version, page: &mut Page, at: usize, generation: u32) {
    let field = match version {
        Version::Ufs1 => offset_of!(Dinode1<LE>, di_gen),
        Version::Ufs2 => offset_of!(Dinode2<LE>, di_gen),
    };
    page.u32(at + field, generation);
}

impl Record {
    /// Writes the inode at byte `at` of its table.
    pub(super) fn encode(&self, version: Version, page: &mut Page, at: usize) {
        debug_assert!(i16::try_from(self.links).is_ok(), "{} links", self.links);
        let fits =
            |target: &Vec<u8>| target.len() < if version == Version::Ufs1 { 60 } else { 120 };
        debug_assert!(self.target.as_ref().is_none_or(fits), "a short target");
        match version {
            Version::Ufs1 => self.encode_first(page, at),
            Version::Ufs2 => self.encode_second(page, at),
        }
    }

    fn encode_first(&self, page: &mut Page, base: usize) {
        macro_rules! set {
            ($width:ident, $($field:ident: $value:expr),+ $(,)?) => {
                $(page.$width(base + offset_of!(Dinode1<LE>, $field), $value);)+
            };
        }
        let fit = |time| storable(time, Version::Ufs1);
        let (atime, mtime) = (fit(self.times.atime), fit(self.mtime));
        let ctime = fit(self.times.ctime);
        set!(u16, di_mode: self.mode, di_nlink: self.links as u16);
        set!(u64, di_size: self.size);
        set!(u32,
            di_oldids: self.depth,
            di_atime: atime.secs as u32, di_atimensec: atime.nanos,
            di_mtime: mtime.secs as u32, di_mtimensec: mtime.nanos,
            di_ctime: ctime.secs as u32, di_ctimensec: ctime.nanos,
            di_blocks: self.sectors as u32, di_gen: self.generation, di_flags: self.flags,
            di_uid: self.uid, di_gid: self.gid,
        );
        let numbers = base + offset_of!(Dinode1<LE>, di_db);
        match &self.target {
            Some(target) => page.raw(numbers, target),
            None => {
                for (n, &number) in self.direct.iter().chain(&self.indirect).enumerate() {
                    page.u32(numbers + n * 4, number as u32);
                }
            }
        }
    }

    fn encode_second(&self, page: &mut Page, base: usize) {
        macro_rules! set {
            ($width:ident, $($field:ident: $value:expr),+ $(,)?) => {
                $(page.$width(base + offset_of!(Dinode2<LE>, $field), $value);)+
            };
        }
        let seconds = |time: Timestamp| time.secs.cast_unsigned();
        let OtherTimes { atime, ctime, crtime } = self.times;
        set!(u16, di_mode: self.mode, di_nlink: self.links as u16);
        set!(u32,
            di_uid: self.uid, di_gid: self.gid, di_gen: self.generation, di_flags: self.flags,
            di_mtimensec: self.mtime.nanos, di_atimensec: atime.nanos,
            di_ctimensec: ctime.nanos, di_birthnsec: crtime.nanos,
            di_extsize: self.attributes.0, di_dirdepth: self.depth,
        );
        set!(u64,
            di_size: self.size, di_blocks: self.sectors,
            di_atime: seconds(atime), di_mtime: seconds(self.mtime),
            di_ctime: seconds(ctime), di_birthtime: seconds(crtime),
        );
        let areas = base + offset_of!(Dinode2<LE>, di_extb);
        for (n, &number) in self.attributes.1.iter().enumerate() {
            page.u64(areas + n * 8, number);
        }
        let numbers = base + offset_of!(Dinode2<LE>, di_db);
        match &self.target {
            Some(target) => page.raw(numbers, target),
            None => {
                for (n, &number) in self.direct.iter().chain(&self.indirect).enumerate() {
                    page.u64(numbers + n * 8, number);
                }
            }
        }
    }
}
