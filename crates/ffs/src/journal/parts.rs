//! Parts of files, as the kernel numbers them.

use crate::ondisk::DIRECT;
use crate::superblock::Super;
use seekless_fs::field::{invalid, wide};
use seekless_fs::{FsError, Location};

/// The place of errors in the journal.
pub(super) fn place() -> Location {
    Location::of("journal")
}

/// A part of a file that has fragments of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum FilePart {
    /// A block of its contents.
    Data(u64),
    /// One of two blocks with extended attributes.
    Attributes(usize),
    /// An index block: the levels below it, itself included, and the first block that it maps.
    Index { levels: u32, first: u64 },
}

impl FilePart {
    /// A part by the kernel's number for it (`ufs_lbn_t`): blocks from 0, attributes -1 and -2, and
    /// index blocks by the first block that they map, negative, less their level.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a number that no file has.
    pub(super) fn of(sb: &Super, number: i64) -> Result<Self, FsError> {
        let wrong = || invalid("jb_lbn", number.cast_unsigned(), place());
        if let Ok(block) = u64::try_from(number) {
            return roots(sb)
                .last()
                .and_then(|&(_, first, span)| first.checked_add(span))
                .filter(|&end| block < end)
                .map(|_| Self::Data(block))
                .ok_or_else(wrong);
        }
        match number {
            -1 => return Ok(Self::Attributes(0)),
            -2 => return Ok(Self::Attributes(1)),
            _ => {}
        }
        // The blocks that index blocks map first are multiples of four.
        let level = number.unsigned_abs() % 4;
        let first = number.unsigned_abs().checked_sub(level).ok_or_else(wrong)?;
        let levels = u32::try_from(level).map_err(|_| wrong())? + 1;
        let within = |&(root, start, span): &(u32, u64, u64)| {
            let each = sb.pointers().checked_pow(levels);
            levels <= root
                && (start..start + span).contains(&first)
                && each.is_some_and(|each| (first - start).is_multiple_of(each))
        };
        match roots(sb).iter().any(within) {
            true => Ok(Self::Index { levels, first }),
            false => Err(wrong()),
        }
    }
}

/// The three trees of a file: their levels, the first block that each maps, and how many.
pub(super) fn roots(sb: &Super) -> Vec<(u32, u64, u64)> {
    let mut first = wide(DIRECT);
    let mut span = 1u64;
    let mut roots = Vec::new();
    for levels in 1..=3 {
        // 2^48 at most.
        span *= sb.pointers();
        roots.push((levels, first, span));
        first += span;
    }
    roots
}
