//! Gives pieces of files the blocks of a donor, while the files are in use.

use super::plan::Piece;
use super::reason::XfsReason;
use super::target::XfsTarget;
use super::tree::MountedTree;
use crate::relayout::Halt;
use rustix::fs::Advice;
use rustix::io::Errno;
use seekless_host::fiemap::{self, flag};
use seekless_host::xfs::{self, XfsDonor};
use seekless_images::Error;
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Maximum number of bytes exchanged at once. They are copied again if the file is written to
/// meanwhile, and a signal waits for it.
const LONGEST: u64 = 8 << 20;

/// Number of tries for a range of a file that others write to.
const TRIES: u32 = 4;

/// Numbers of blocks moved on an XFS, and of those that remain.
#[derive(Clone, Debug, Default)]
pub(crate) struct XfsMoveCounts {
    /// Blocks moved.
    pub(crate) moved: u64,
    /// Blocks that should have been moved.
    pub(crate) left: u64,
    /// Files with contents that stayed, by inode number, and the reason.
    pub(crate) reasons: BTreeMap<u64, XfsReason>,
}

/// Moves files of an XFS.
pub(crate) struct XfsMover<'a, 'h> {
    pub(crate) target: &'a XfsTarget,
    pub(crate) halt: &'a mut Halt<'h>,
    pub(crate) observer: &'a dyn seekless_images::Progress,
    pub(crate) counts: XfsMoveCounts,
}

impl XfsMover<'_, '_> {
    /// Gives pieces the blocks of `donor`, in their order, and counts them.
    ///
    /// # Errors
    /// When the process must end, or a system call fails. Files are whole then, too.
    pub(crate) fn apply(
        &mut self,
        tree: &MountedTree,
        mut donor: XfsDonor,
        pieces: &[Piece],
    ) -> Result<(), Error> {
        let mut open: Option<(Ino, Result<File, XfsReason>)> = None;
        for piece in pieces {
            let (_, file) = match open.take().filter(|(ino, _)| *ino == piece.ino) {
                Some(known) => open.insert(known),
                None => open.insert((piece.ino, opened(self.target, tree, piece.ino))),
            };
            match file {
                Ok(file) => self.give(tree, &mut donor, file, *piece)?,
                Err(reason) => {
                    self.leave(tree.real(piece.ino), piece.len, *reason);
                    donor.skip(piece.len * self.target.block_size())?;
                }
            }
        }
        Ok(())
    }

    /// Gives a piece its blocks, part by part.
    fn give(
        &mut self,
        tree: &MountedTree,
        donor: &mut XfsDonor,
        file: &File,
        piece: Piece,
    ) -> Result<(), Error> {
        let bs = self.target.block_size();
        let most = (LONGEST / bs).max(1);
        let (mut at, end) = (piece.lbn, piece.lbn + piece.len);
        while at < end {
            let len = most.min(end - at);
            let given = match self.tried(donor, file, at * bs, (at + len) * bs)? {
                Ok(bytes) => {
                    let given = bytes.div_ceil(bs);
                    if given < len {
                        self.leave(tree.real(piece.ino), len - given, XfsReason::Changed);
                    }
                    given
                }
                Err(reason) => {
                    self.leave(tree.real(piece.ino), len, reason);
                    donor.skip(len * bs)?;
                    0
                }
            };
            self.counts.moved += given;
            self.observer.advance(ByteLen::new(len * bs));
            at += len;
        }
        Ok(())
    }

    /// Gives a file the blocks for a range of its bytes. Returns the number of bytes, or the reason
    /// why they stay.
    fn tried(
        &mut self,
        donor: &mut XfsDonor,
        file: &File,
        at: u64,
        end: u64,
    ) -> Result<Result<u64, XfsReason>, Error> {
        let mut reason = XfsReason::Busy;
        for _ in 0..TRIES {
            (self.halt)()?;
            let check = |at, len| is_as_planned(file, at, len);
            let error = match donor.give(file, at, end, &check) {
                Ok(given) => return Ok(Ok(given)),
                Err(error) => error,
            };
            reason = match Errno::from_io_error(&error) {
                Some(Errno::BUSY | Errno::INTR) => XfsReason::Busy,
                Some(Errno::INVAL) => XfsReason::Changed,
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => return Ok(Err(XfsReason::Room)),
                Some(Errno::TXTBSY) => return Ok(Err(XfsReason::Swap)),
                Some(Errno::PERM) => return Ok(Err(XfsReason::Protected)),
                _ => return Err(self.target.failed(&error)),
            };
        }
        Ok(Err(reason))
    }

    /// Counts blocks that stay.
    fn leave(&mut self, real: u64, blocks: u64, reason: XfsReason) {
        self.counts.left += blocks;
        self.counts.reasons.entry(real).or_insert(reason);
    }
}

/// Opens a file to move it.
fn opened(target: &XfsTarget, tree: &MountedTree, ino: Ino) -> Result<File, XfsReason> {
    let file = tree.open(ino).map_err(io::Error::from);
    let file =
        file.and_then(|file| xfs::open_keeping_times(&target.on, &file)).map_err(|error| {
            match error.kind() {
                io::ErrorKind::ExecutableFileBusy => XfsReason::Running,
                io::ErrorKind::PermissionDenied => XfsReason::Protected,
                io::ErrorKind::WouldBlock => XfsReason::Busy,
                // Removed, or replaced by another file.
                _ => XfsReason::Changed,
            }
        })?;
    // No read-ahead: only moved pages come into memory. A failure is ignored.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// Whether a range of a file is fully allocated, written and unshared: a plan may be outdated, and
/// copying a hole would fill it.
fn is_as_planned(file: &File, at: u64, len: u64) -> io::Result<bool> {
    let mut known = at;
    let odd = flag::NOWHERE | flag::UNWRITTEN | flag::SHARED;
    for extent in fiemap::extents_of(file, at, len)? {
        if extent.logical > known || extent.flags & odd != 0 {
            return Ok(false);
        }
        known = known.max(extent.logical + extent.len);
    }
    Ok(known >= at + len)
}
