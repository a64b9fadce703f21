//! The journal's file: `.sujournal` in the root.

use super::parts::place;
use super::records::JournalRecord;
use crate::inode::Inode;
use crate::ondisk::{JOURNAL_FLAGS, JOURNAL_LEAST, JOURNAL_MODE, JOURNAL_NAME, ROOT};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::invalid;
use seekless_units::{Extent, Ino};

/// The longest journal that is read, in bytes: twice the longest that tunefs makes.
const LONGEST: u64 = 64 << 20;

/// The file of a journal.
pub(super) enum Found {
    Journal(Box<Inode>),
    Missing,
    /// There is none that belongs to the last mount, for a reason.
    Unusable(String),
}

/// Finds the journal of the last mount (`suj_verifyino`).
///
/// # Errors
/// [`FsError::Corrupt`] when the root or the inode cannot be read.
pub(super) fn find(volume: &Volume) -> Result<Found, FsError> {
    let Some(inode) = file(volume)? else {
        return Ok(Found::Missing);
    };
    let attributes = [
        (inode.nlink() == 1, "links"),
        (inode.flags & JOURNAL_FLAGS == JOURNAL_FLAGS, "flags"),
        (inode.mode() == JOURNAL_MODE, "mode"),
        (inode.len >= JOURNAL_LEAST, "length"),
    ];
    if let Some((_, what)) = attributes.into_iter().find(|(is_right, _)| !is_right) {
        let what = format!("inode {}, .sujournal, has another {what} than a journal", inode.ino);
        return Ok(Found::Unusable(what));
    }
    if inode.revision != volume.sb.tuning.mtime.cast_unsigned() {
        return Ok(Found::Unusable("it is one of another mount".into()));
    }
    if inode.len > LONGEST {
        let what = format!("inode {}, .sujournal, has more than {LONGEST} bytes", inode.ino);
        return Ok(Found::Unusable(what));
    }
    Ok(Found::Journal(Box::new(inode)))
}

/// The inode of the journal's file, if there is one.
fn file(volume: &Volume) -> Result<Option<Inode>, FsError> {
    let root = volume.inode(Ino::new(ROOT))?;
    let found = volume.find(&root, JOURNAL_NAME)?;
    found.map(|(ino, _)| volume.inode(ino)).transpose()
}

/// Checks that no record is about the journal's own file or its blocks, which no mount changes.
///
/// # Errors
/// [`FsError::Corrupt`].
pub(super) fn check_apart(
    inode: &Inode,
    runs: &[Extent],
    records: &[JournalRecord],
) -> Result<(), FsError> {
    let mut own = runs.to_vec();
    own.sort_unstable_by_key(|run| run.start);
    for record in records {
        let wrong = |field, number| Err(invalid(field, number, place().in_inode(inode.ino)));
        if record.ino() == inode.ino {
            return wrong("inode of a record", u64::from(inode.ino.get()));
        }
        let (JournalRecord::Allocate(run) | JournalRecord::Free(run)) = record else { continue };
        let behind = own.partition_point(|own| own.start < run.extent.end());
        if own.get(..behind).and_then(<[_]>::last).is_some_and(|own| own.overlaps(run.extent)) {
            return wrong("jb_blkno", run.extent.start.get());
        }
    }
    Ok(())
}

/// The runs of the journal's fragments; `None` if the file has holes.
///
/// # Errors
/// [`FsError::Corrupt`] when the map of the file cannot be read, or has a fragment twice.
pub(super) fn runs(volume: &Volume, inode: &Inode) -> Result<Option<Vec<Extent>>, FsError> {
    let runs = volume.runs(inode, &crate::bmap::EVERYTHING)?;
    let mapped: u64 = runs.iter().map(|run| run.extent.len).sum();
    let is_whole = mapped * u64::from(volume.sb.fsize) >= inode.len;
    let runs: Vec<Extent> = runs.into_iter().map(|run| run.extent).collect();
    let mut sorted = runs.clone();
    sorted.sort_unstable_by_key(|run| run.start);
    let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
    if let Some((first, _)) = pairs.find(|(first, next)| first.overlaps(**next)) {
        let place = place().in_inode(inode.ino).in_block(first.start);
        return Err(invalid("owners of a block", 2, place));
    }
    Ok(is_whole.then_some(runs))
}
