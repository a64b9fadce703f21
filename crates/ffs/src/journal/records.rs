//! The records of a journal, checked.

use super::parts::{FilePart, place};
use crate::ondisk::{
    JOURNAL_RECORD, JournalBlock, JournalLength, JournalMove, JournalReference, journal_op,
};
use crate::superblock::{Order, Super};
use seekless_fs::field::{index, invalid, parse, range, truncated};
use seekless_fs::{FileKind, FsError};
use seekless_units::{BlockNo, Extent, Ino};
use zerocopy::byteorder::{BE, ByteOrder, LE};

/// A place in a directory: the byte at which an entry begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Slot {
    pub(super) dir: Ino,
    pub(super) at: u64,
}

/// A name of a file that is added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    pub(super) ino: Ino,
    pub(super) slot: Slot,
    /// The file's links before.
    pub(super) links: u16,
    pub(super) kind: FileKind,
}

/// The part of a file that fragments are, or were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner {
    pub(super) ino: Ino,
    pub(super) part: FilePart,
}

/// A run of fragments of one block that a file takes or gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) owner: Owner,
    pub(super) extent: Extent,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JournalRecord {
    Add(Reference),
    Remove(Reference),
    /// A name moves within a block of its directory.
    Move {
        ino: Ino,
        from: Slot,
        to: u64,
    },
    Allocate(Run),
    Free(Run),
    /// A file is cut to a length in bytes.
    Cut {
        ino: Ino,
        len: u64,
    },
    /// All of a file was durable.
    Synced(Ino),
}

impl JournalRecord {
    /// The file that it is about.
    pub(super) fn ino(&self) -> Ino {
        match self {
            Self::Add(name) | Self::Remove(name) => name.ino,
            Self::Allocate(run) | Self::Free(run) => run.owner.ino,
            Self::Move { ino, .. } | Self::Cut { ino, .. } | Self::Synced(ino) => *ino,
        }
    }

    /// Takes the 32 bytes of a record apart.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for an unknown operation, and for a place that the volume does not have.
    pub(super) fn decode(sb: &Super, bytes: &[u8]) -> Result<Self, FsError> {
        debug_assert_eq!(bytes.len(), JOURNAL_RECORD, "the bytes of one record");
        match sb.order {
            Order::Little => decode::<LE>(sb, bytes),
            Order::Big => decode::<BE>(sb, bytes),
        }
    }
}

fn decode<O: ByteOrder>(sb: &Super, bytes: &[u8]) -> Result<JournalRecord, FsError> {
    let lost = || truncated(place());
    let reference: JournalReference<O> = parse(bytes, 0).ok_or_else(lost)?;
    let ino = file(sb, "jr_ino", reference.jr_ino.get())?;
    match reference.jr_op.get() {
        op @ (journal_op::ADD_REFERENCE | journal_op::REMOVE_REFERENCE) => {
            let dir = file(sb, "jr_parent", reference.jr_parent.get())?;
            let mode = reference.jr_mode.get();
            let no_kind = || invalid("jr_mode", u64::from(mode), place());
            let reference = Reference {
                ino,
                slot: Slot { dir, at: offset("jr_diroff", reference.jr_diroff.get())? },
                links: reference.jr_nlink.get(),
                kind: FileKind::from_mode(mode).ok_or_else(no_kind)?,
            };
            Ok(match op {
                journal_op::ADD_REFERENCE => JournalRecord::Add(reference),
                _ => JournalRecord::Remove(reference),
            })
        }
        journal_op::MOVE_REFERENCE => {
            let record: JournalMove<O> = parse(bytes, 0).ok_or_else(lost)?;
            let dir = file(sb, "jm_parent", record.jm_parent.get())?;
            let at = offset("jm_oldoff", record.jm_oldoff.get())?;
            let to = offset("jm_newoff", record.jm_newoff.get())?;
            Ok(JournalRecord::Move { ino, from: Slot { dir, at }, to })
        }
        op @ (journal_op::NEW_BLOCK | journal_op::FREE_BLOCK) => {
            let record: JournalBlock<O> = parse(bytes, 0).ok_or_else(lost)?;
            let part = FilePart::of(sb, record.jb_lbn.get())?;
            let extent = fragments(sb, record.jb_blkno.get(), record.jb_frags.get())?;
            let run = Run { owner: Owner { ino, part }, extent };
            Ok(match op {
                journal_op::NEW_BLOCK => JournalRecord::Allocate(run),
                _ => JournalRecord::Free(run),
            })
        }
        journal_op::TRUNCATE => {
            let record: JournalLength<O> = parse(bytes, 0).ok_or_else(lost)?;
            Ok(JournalRecord::Cut { ino, len: offset("jt_size", record.jt_size.get())? })
        }
        journal_op::SYNC => Ok(JournalRecord::Synced(ino)),
        op => Err(invalid("jr_op", u64::from(op), place())),
    }
}

/// An inode of a file.
fn file(sb: &Super, field: &'static str, number: u32) -> Result<Ino, FsError> {
    let ino = Ino::new(number);
    if ino < Ino::new(crate::ondisk::ROOT) || number >= sb.inodes() {
        return Err(range(field, u64::from(number), u64::from(sb.inodes()), place()));
    }
    Ok(ino)
}

/// A number of bytes in a file.
fn offset(field: &'static str, bytes: i64) -> Result<u64, FsError> {
    u64::try_from(bytes).map_err(|_| invalid(field, bytes.cast_unsigned(), place()))
}

/// A run of fragments within one block for data.
fn fragments(sb: &Super, start: i64, count: u16) -> Result<Extent, FsError> {
    let start = offset("jb_blkno", start)?;
    let within = start % u64::from(sb.frag) + u64::from(count);
    if count == 0 || within > u64::from(sb.frag) {
        return Err(range("jb_frags", u64::from(count), u64::from(sb.frag), place()));
    }
    let run = Extent::new(BlockNo::new(start), u64::from(count));
    data_run(sb, run)?;
    Ok(run)
}

/// Checks that a run of fragments lies in the volume, and outside of its own metadata.
///
/// # Errors
/// [`FsError::Corrupt`].
pub(super) fn data_run(sb: &Super, run: Extent) -> Result<(), FsError> {
    let wrong = || range("block number", run.start.get(), sb.size, place());
    let end = run.start.get().checked_add(run.len).filter(|&end| end <= sb.size);
    end.ok_or_else(wrong)?;
    let metadata = sb.group_metadata(sb.group_of(run.start));
    if run.start == BlockNo::ZERO || run.overlaps(metadata) || run.overlaps(sb.summaries) {
        return Err(invalid("block number", run.start.get(), place()));
    }
    Ok(())
}

/// The records of a segment's bytes, whose sectors each begin with a header.
///
/// # Errors
/// As [`JournalRecord::decode`].
pub(super) fn decode_all(
    sb: &Super,
    bytes: &[u8],
    sector: u32,
    count: u64,
) -> Result<Vec<JournalRecord>, FsError> {
    let in_sectors = bytes.chunks(index(sector));
    let all = in_sectors.flat_map(|sector| sector.chunks_exact(JOURNAL_RECORD).skip(1));
    all.take(index(count)).map(|bytes| JournalRecord::decode(sb, bytes)).collect()
}
