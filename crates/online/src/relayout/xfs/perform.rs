//! Pieces of files given the blocks that a donor holds, while others use the files.

use super::plan::Piece;
use super::reason::Reason;
use super::target::Target;
use super::tree::MountedTree;
use crate::relayout::Halt;
use rustix::fs::Advice;
use rustix::io::Errno;
use seekless_host::fiemap::{self, flag};
use seekless_host::xfs::{self, Donor};
use seekless_images::Error;
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// The most that is exchanged at once: bytes. It is copied anew when the file is written to
/// meanwhile, and a signal waits for it.
const LONGEST: u64 = 8 << 20;

/// How often a range of a file that others write to is tried.
const TRIES: u32 = 4;

/// What was done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Blocks that were moved.
    pub(crate) moved: u64,
    /// Blocks that should have been.
    pub(crate) left: u64,
    /// Files of which something stayed, by inode number, and why.
    pub(crate) reasons: BTreeMap<u64, Reason>,
}

/// Moves files of a volume.
pub(crate) struct Mover<'a, 'h> {
    pub(crate) target: &'a Target,
    pub(crate) halt: &'a mut Halt<'h>,
    pub(crate) observer: &'a dyn seekless_images::Progress,
    pub(crate) counts: Counts,
}

impl Mover<'_, '_> {
    /// Gives pieces the blocks that `donor` holds, in their order. Those that were moved.
    ///
    /// # Errors
    /// When the process shall end, or the system does not do what it must. Files are whole
    /// then, too.
    pub(crate) fn apply(
        &mut self,
        tree: &MountedTree,
        mut donor: Donor,
        pieces: &[Piece],
    ) -> Result<(), Error> {
        let mut open: Option<(Ino, Result<File, Reason>)> = None;
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
        donor: &mut Donor,
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
                        self.leave(tree.real(piece.ino), len - given, Reason::Changed);
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

    /// Gives a file its blocks for some of its bytes, or says why they stay. Bytes.
    fn tried(
        &mut self,
        donor: &mut Donor,
        file: &File,
        at: u64,
        end: u64,
    ) -> Result<Result<u64, Reason>, Error> {
        let mut reason = Reason::Busy;
        for _ in 0..TRIES {
            (self.halt)()?;
            let check = |at, len| is_as_planned(file, at, len);
            let error = match donor.give(file, at, end, &check) {
                Ok(given) => return Ok(Ok(given)),
                Err(error) => error,
            };
            reason = match Errno::from_io_error(&error) {
                Some(Errno::BUSY | Errno::INTR) => Reason::Busy,
                Some(Errno::INVAL) => Reason::Changed,
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => return Ok(Err(Reason::Room)),
                Some(Errno::TXTBSY) => return Ok(Err(Reason::Swap)),
                Some(Errno::PERM) => return Ok(Err(Reason::Protected)),
                _ => return Err(self.target.failed(&error)),
            };
        }
        Ok(Err(reason))
    }

    /// Counts what stays.
    fn leave(&mut self, real: u64, blocks: u64, reason: Reason) {
        self.counts.left += blocks;
        self.counts.reasons.entry(real).or_insert(reason);
    }
}

/// Opens a file to move it.
fn opened(target: &Target, tree: &MountedTree, ino: Ino) -> Result<File, Reason> {
    let file = tree.open(ino).map_err(io::Error::from);
    let file =
        file.and_then(|file| xfs::open_keeping_times(&target.on, &file)).map_err(|error| {
            match error.kind() {
                io::ErrorKind::ExecutableFileBusy => Reason::Running,
                io::ErrorKind::PermissionDenied => Reason::Protected,
                io::ErrorKind::WouldBlock => Reason::Busy,
                // Removed, or another file by now.
                _ => Reason::Changed,
            }
        })?;
    // Nothing comes to memory that is not moved; where it does, it is no failure.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// Whether bytes of a file all have a place of their own and were written: a plan is of a
/// moment ago, and a hole that is copied would be one no more.
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
