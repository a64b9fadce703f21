//! The bytes of quota files: records by id, in two formats.

use crate::ondisk::{QUOTA_MAGIC, QUOTA_VERSION, Quota32, Quota64, QuotaHeader};
use crate::superblock::Order;
use seekless_fs::field::{byte, index, invalid, parse, wide};
use seekless_fs::{FsError, Location, Mapping};
use seekless_live::{Allowance, Quota, QuotaKind};
use seekless_units::{ByteLen, Ino};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use zerocopy::byteorder::{BE, ByteOrder, LE};
use zerocopy::{Immutable, IntoBytes};

/// The bytes of a record.
pub(crate) type RecordBytes = SmallVec<[u8; 64]>;

/// The names of quota files, where none are given (`QUOTAFILENAME`, `INITQFNAMES`).
pub(crate) const USUAL: [&str; 2] = ["quota.user", "quota.group"];

/// Bytes of a quota file that are read together.
const PIECE: u64 = 1 << 20;

/// Most records of a file that are neither zeros nor of an id that is not counted. All of them are
/// kept in memory.
const MOST_RECORDS: usize = 1 << 20;

/// A quota file in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaFile {
    pub(crate) kind: QuotaKind,
    pub(crate) ino: Ino,
    pub(crate) format: QuotaFormat,
}

/// The format of a quota file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuotaFormat {
    /// Numbers of 32 bits, in the byte order of the system that wrote it, and no header.
    Words(Order),
    /// A header, and numbers of 64 bits.
    LongWords,
}

impl QuotaFormat {
    /// The format of a file by its first bytes, at least those of a header if it is as long.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a header of another version: the kernel would take it for limits of
    /// the format without a header, `quotacheck` refuses it.
    pub(crate) fn of(head: &[u8], order: Order) -> Result<Self, FsError> {
        let Some(header) = parse::<QuotaHeader>(head, 0) else { return Ok(Self::Words(order)) };
        if header.dqh_magic != QUOTA_MAGIC {
            return Ok(Self::Words(order));
        }
        let lens = [header.dqh_hdrlen.get(), header.dqh_reclen.get()];
        let place = Location::of("quota file");
        if header.dqh_version.get() != QUOTA_VERSION {
            return Err(invalid("dqh_version", u64::from(header.dqh_version.get()), place));
        }
        let expected = [byte(size_of::<QuotaHeader>()), byte(size_of::<Quota64>())];
        match lens == expected {
            true => Ok(Self::LongWords),
            false => Err(invalid("dqh_hdrlen or dqh_reclen", u64::from(lens[0]), place)),
        }
    }

    /// The header of a file without records.
    pub(crate) fn header() -> [u8; size_of::<QuotaHeader>()] {
        let header = QuotaHeader {
            dqh_magic: QUOTA_MAGIC,
            dqh_version: QUOTA_VERSION.into(),
            dqh_hdrlen: byte(size_of::<QuotaHeader>()).into(),
            dqh_reclen: byte(size_of::<Quota64>()).into(),
            dqh_unused: [0; 44],
        };
        zerocopy::transmute!(header)
    }

    fn header_len(self) -> u64 {
        match self {
            Self::Words(_) => 0,
            Self::LongWords => wide(size_of::<QuotaHeader>()),
        }
    }

    fn record_len(self) -> u64 {
        match self {
            Self::Words(_) => wide(size_of::<Quota32<LE>>()),
            Self::LongWords => wide(size_of::<Quota64>()),
        }
    }

    /// The byte at which the record of an id begins.
    pub(crate) fn place(self, id: u32) -> u64 {
        self.header_len() + u64::from(id) * self.record_len()
    }

    /// The records that lie wholly in some bytes from byte `at` of the file on, by id; those that
    /// have neither limits nor usage are left out.
    pub(crate) fn records(self, at: u64, bytes: &[u8]) -> impl Iterator<Item = (u32, Quota)> + '_ {
        let (first, len) = (self.header_len(), self.record_len());
        let number = at.saturating_sub(first).div_ceil(len);
        // The first record that begins within.
        let begin = number.saturating_mul(len).saturating_add(first);
        let skip = index(begin.saturating_sub(at));
        let rest = bytes.get(skip..).unwrap_or_default();
        let records = (number..).zip(rest.chunks_exact(index(len)));
        records.filter_map(move |(id, raw)| {
            let quota = self.decode(raw).filter(|quota| !quota.is_empty())?;
            Some((u32::try_from(id).ok()?, quota))
        })
    }

    fn decode(self, raw: &[u8]) -> Option<Quota> {
        match self {
            Self::Words(Order::Little) => Some(words(&parse::<Quota32<LE>>(raw, 0)?)),
            Self::Words(Order::Big) => Some(words(&parse::<Quota32<BE>>(raw, 0)?)),
            Self::LongWords => Some(long_words(&parse::<Quota64>(raw, 0)?)),
        }
    }

    /// The bytes of a record. Numbers that the format has no place for become its largest.
    pub(crate) fn encode(self, quota: &Quota) -> RecordBytes {
        let bytes = |raw: &dyn Raw| RecordBytes::from_slice(raw.raw());
        match self {
            Self::Words(Order::Little) => bytes(&cut::<LE>(quota)),
            Self::Words(Order::Big) => bytes(&cut::<BE>(quota)),
            Self::LongWords => bytes(&whole(quota)),
        }
    }
}

/// Reads contents of a file from a byte on, and returns the number of bytes.
type ReadAt<'a> = dyn FnMut(ByteLen, &mut [u8]) -> Result<usize, FsError> + 'a;

/// Reads the records of a quota file of ids that are counted. Holes have none.
///
/// `runs` are those of its data, in fragments of `fsize` bytes; `read` reads its contents.
///
/// # Errors
/// [`FsError::Unsupported`] for more than [`MOST_RECORDS`]; errors of reading.
pub(crate) fn read_records(
    format: QuotaFormat,
    runs: &[Mapping],
    fsize: u32,
    read: &mut ReadAt<'_>,
) -> Result<BTreeMap<u32, Quota>, FsError> {
    let fsize = u64::from(fsize);
    let mut quotas = BTreeMap::new();
    for run in runs {
        let (mut at, len) = (run.lbn.get() * fsize, run.extent.len * fsize);
        let end = at + len;
        while at < end {
            let mut bytes = vec![0; index(PIECE.min(end - at))];
            let len = read(ByteLen::new(at), &mut bytes)?;
            if len == 0 {
                break;
            }
            let records = format.records(at, bytes.get(..len).unwrap_or_default());
            quotas.extend(records.filter(|(id, _)| i32::try_from(*id).is_ok()));
            if quotas.len() > MOST_RECORDS {
                return Err(FsError::Unsupported(format!("more than {MOST_RECORDS} records")));
            }
            at += wide(len);
        }
    }
    Ok(quotas)
}

/// A record as bytes.
trait Raw {
    fn raw(&self) -> &[u8];
}

impl<T: IntoBytes + Immutable> Raw for T {
    fn raw(&self) -> &[u8] {
        self.as_bytes()
    }
}

fn words<O: ByteOrder>(raw: &Quota32<O>) -> Quota {
    Quota {
        space: Allowance {
            hard: raw.dqb_bhardlimit.get().into(),
            soft: raw.dqb_bsoftlimit.get().into(),
            used: raw.dqb_curblocks.get().into(),
            expires: raw.dqb_btime.get().into(),
        },
        inodes: Allowance {
            hard: raw.dqb_ihardlimit.get().into(),
            soft: raw.dqb_isoftlimit.get().into(),
            used: raw.dqb_curinodes.get().into(),
            expires: raw.dqb_itime.get().into(),
        },
    }
}

fn long_words(raw: &Quota64) -> Quota {
    Quota {
        space: Allowance {
            hard: raw.dqb_bhardlimit.get(),
            soft: raw.dqb_bsoftlimit.get(),
            used: raw.dqb_curblocks.get(),
            expires: raw.dqb_btime.get(),
        },
        inodes: Allowance {
            hard: raw.dqb_ihardlimit.get(),
            soft: raw.dqb_isoftlimit.get(),
            used: raw.dqb_curinodes.get(),
            expires: raw.dqb_itime.get(),
        },
    }
}

fn cut<O: ByteOrder>(quota: &Quota) -> Quota32<O> {
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (earliest, latest) = (i64::from(i32::MIN), i64::from(i32::MAX));
    let time = |value: i64| i32::try_from(value.clamp(earliest, latest)).unwrap_or(i32::MAX);
    Quota32 {
        dqb_bhardlimit: word(quota.space.hard).into(),
        dqb_bsoftlimit: word(quota.space.soft).into(),
        dqb_curblocks: word(quota.space.used).into(),
        dqb_ihardlimit: word(quota.inodes.hard).into(),
        dqb_isoftlimit: word(quota.inodes.soft).into(),
        dqb_curinodes: word(quota.inodes.used).into(),
        dqb_btime: time(quota.space.expires).into(),
        dqb_itime: time(quota.inodes.expires).into(),
    }
}

fn whole(quota: &Quota) -> Quota64 {
    Quota64 {
        dqb_bhardlimit: quota.space.hard.into(),
        dqb_bsoftlimit: quota.space.soft.into(),
        dqb_curblocks: quota.space.used.into(),
        dqb_ihardlimit: quota.inodes.hard.into(),
        dqb_isoftlimit: quota.inodes.soft.into(),
        dqb_curinodes: quota.inodes.used.into(),
        dqb_btime: quota.space.expires.into(),
        dqb_itime: quota.inodes.expires.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [QuotaFormat; 3] =
        [QuotaFormat::Words(Order::Little), QuotaFormat::Words(Order::Big), QuotaFormat::LongWords];

    fn quota(most: u64, times: i64) -> impl Strategy<Value = Quota> {
        let one = move || (0..=most, 0..=most, 0..=most, -times - 1..=times);
        (one(), one()).prop_map(|(a, b)| {
            let of = |(hard, soft, used, expires)| Allowance { hard, soft, used, expires };
            Quota { space: of(a), inodes: of(b) }
        })
    }

    #[test]
    fn the_format_is_known_by_the_header() {
        let header = QuotaFormat::header();
        let of = |head: &[u8]| QuotaFormat::of(head, Order::Big);
        assert_eq!(&header[..20], b"QUOTA64\0\x20\x08\x11\x04\0\0\0\x40\0\0\0\x40");
        assert_eq!(of(&header).unwrap(), QuotaFormat::LongWords);
        // A shorter file has no header.
        assert_eq!(of(&header[..63]).unwrap(), QuotaFormat::Words(Order::Big));
        assert_eq!(of(&[]).unwrap(), QuotaFormat::Words(Order::Big));
        for at in 0..20 {
            let mut damaged = header;
            damaged[at] ^= 0x40;
            match of(&damaged) {
                Ok(format) => assert!(at < 8 && format == QuotaFormat::Words(Order::Big), "{at}"),
                Err(error) => assert!(at >= 8 && matches!(error, FsError::Corrupt { .. }), "{at}"),
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_become_the_largest() {
        let one = Allowance { hard: 1 << 32, soft: 7, used: u64::MAX, expires: i64::MAX };
        let quota = Quota { space: one, inodes: one };
        let raw = QuotaFormat::Words(Order::Big).encode(&quota);
        assert_eq!(raw[..12], *b"\xff\xff\xff\xff\0\0\0\x07\xff\xff\xff\xff");
        assert_eq!(raw[24..], *b"\x7f\xff\xff\xff\x7f\xff\xff\xff");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            small in quota(u64::from(u32::MAX), i64::from(i32::MAX)),
            large in quota(u64::MAX, i64::MAX),
            id in any::<u32>(),
        ) {
            for format in FORMATS {
                let quota = if format == QuotaFormat::LongWords { large } else { small };
                let raw = format.encode(&quota);
                let found: Vec<_> = format.records(format.place(id), &raw).collect();
                let expected = if quota.is_empty() { vec![] } else { vec![(id, quota)] };
                prop_assert_eq!(found, expected);
            }
        }

        /// Whatever the bytes are, and wherever they are cut.
        #[test]
        fn any_bytes_are_records(
            bytes in proptest::collection::vec(any::<u8>(), 0..700),
            cut in 0usize..700,
            at in any::<u64>(),
        ) {
            for format in FORMATS {
                format.records(at, &bytes).for_each(drop);
                let cut = cut.min(bytes.len()) / 64 * 64;
                let (head, rest) = bytes.split_at(cut);
                let parts = format.records(0, head).chain(format.records(wide(cut), rest));
                prop_assert_eq!(
                    parts.collect::<Vec<_>>(),
                    format.records(0, &bytes).collect::<Vec<_>>()
                );
            }
            QuotaFormat::of(&bytes, Order::Little).map(drop).unwrap_or_default();
        }
    }
}
