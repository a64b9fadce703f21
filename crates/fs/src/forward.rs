//! The forward pass: file contents are written in disk order, read on several threads. Contents
//! that are whole blocks of files of the host are cloned before, where the output can share blocks.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values are of our own plan, not an image's"
)]

mod reflink;

use crate::FsError;
use crate::plan::{ObjectId, Placed, Plan};
use crate::source::Content;
use seekless_device::BlockDevice;
use seekless_units::{ByteLen, Lba};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes that a worker gathers before it writes them at once: small enough to still be in the
/// processor's cache when they are written.
const BATCH_BYTES: u64 = 512 << 10;

/// The source of the objects' contents.
pub trait Contents: Sync {
    /// Whether each run of an object must be filled by a single call, whatever its length.
    fn is_whole(&self, object: ObjectId) -> bool;

    /// Fills `out`, whose contents are arbitrary, with an object's data from logical block `lbn`
    /// on; bytes past its end are zeroed.
    ///
    /// # Errors
    /// The error of the data's source.
    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError>;

    /// Opens the contents of an object that may lie in a file of the host; its blocks contain them
    /// from byte 0 on. By default, no object has such contents.
    ///
    /// # Errors
    /// The error of the data's source.
    fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
        let _ = object;
        Ok(None)
    }
}

/// A run of an object's data with its location on the disk.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The object.
    pub object: ObjectId,
    /// The logical blocks and their location.
    pub placed: Placed,
}

/// The data runs of a plan, without maps and attributes.
#[must_use]
pub fn pieces(plan: &Plan) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(plan.data.len());
    for at in 0..plan.data_start.len().saturating_sub(1) {
        let object = ObjectId::new(at as u32);
        pieces.extend(plan.data(object).iter().map(|&placed| Piece { object, placed }));
    }
    pieces
}

/// A part of a piece in a worker's batch.
#[derive(Clone, Copy)]
struct Part {
    object: ObjectId,
    lbn: u64,
    blocks: u64,
}

/// The position in the list of pieces at which the next batch begins.
#[derive(Default)]
struct Cursor {
    piece: usize,
    /// Blocks of the piece that are already taken.
    done: u64,
}

/// A pass over a device.
#[allow(missing_debug_implementations)]
pub struct Forward<'a> {
    /// Bytes in a block.
    pub block_size: u32,
    /// The device to which the image is written.
    pub device: &'a dyn BlockDevice,
    /// Called with the number of bytes of every write, from several threads.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// The source of the contents.
    pub contents: &'a dyn Contents,
}

impl Forward<'_> {
    /// Writes all pieces. Workers take the next batch in disk order, so the disk sees one forward
    /// pass although files are read in parallel.
    ///
    /// # Errors
    /// The first error of the contents or the device.
    pub fn run(&self, mut pieces: Vec<Piece>) -> Result<(), FsError> {
        pieces.sort_unstable_by_key(|piece| piece.placed.extent.start);
        if let Some(reflink) = self.device.reflink() {
            pieces = self.clone_pieces(pieces, reflink)?;
        }
        let cursor = Mutex::new(Cursor::default());
        // One write at a time: the kernel would make writers to one file wait for each other
        // anyway, spinning.
        let writing = Mutex::new(());
        let failed = AtomicBool::new(false);
        let first_error = Mutex::new(None);
        let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let worked = self.work(&pieces, &cursor, &writing, &failed);
                    if let Err(error) = worked {
                        failed.store(true, Ordering::Relaxed);
                        let mut slot = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                        slot.get_or_insert(error);
                    }
                });
            }
        });
        match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn work(
        &self,
        pieces: &[Piece],
        cursor: &Mutex<Cursor>,
        writing: &Mutex<()>,
        failed: &AtomicBool,
    ) -> Result<(), FsError> {
        let (mut buf, mut parts) = (Vec::new(), Vec::new());
        while !failed.load(Ordering::Relaxed) {
            let start = {
                let mut cursor = cursor.lock().unwrap_or_else(PoisonError::into_inner);
                self.take_batch(pieces, &mut cursor, &mut parts)
            };
            let Some(start) = start else { break };
            self.read_batch(&parts, &mut buf)?;
            let at = ByteLen::new(start * u64::from(self.block_size));
            {
                let _turn = writing.lock().unwrap_or_else(PoisonError::into_inner);
                self.device.write(Lba::containing(at), &buf)?;
            }
            (self.progress)(buf.len() as u64);
        }
        Ok(())
    }

    /// Takes the next parts that are contiguous on the disk. Returns their first block; `None` at
    /// the end.
    fn take_batch(
        &self,
        pieces: &[Piece],
        cursor: &mut Cursor,
        parts: &mut Vec<Part>,
    ) -> Option<u64> {
        parts.clear();
        let mut left = (BATCH_BYTES / u64::from(self.block_size)).max(1);
        let (mut start, mut end) = (None, 0);
        while let Some(&Piece { object, placed }) = pieces.get(cursor.piece) {
            let from = placed.extent.start.get() + cursor.done;
            if left == 0 || start.is_some_and(|_| from != end) {
                break;
            }
            start.get_or_insert(from);
            let rest = placed.extent.len - cursor.done;
            let blocks = if self.contents.is_whole(object) { rest } else { rest.min(left) };
            parts.push(Part { object, lbn: placed.lbn.get() + cursor.done, blocks });
            left = left.saturating_sub(blocks);
            end = from + blocks;
            if blocks == rest {
                *cursor = Cursor { piece: cursor.piece + 1, done: 0 };
            } else {
                cursor.done += blocks;
            }
        }
        start
    }

    fn read_batch(&self, parts: &[Part], buf: &mut Vec<u8>) -> Result<(), FsError> {
        let bs = self.block_size as usize;
        let total: u64 = parts.iter().map(|part| part.blocks).sum();
        buf.resize(total as usize * bs, 0);
        let mut at = 0;
        for part in parts {
            let len = part.blocks as usize * bs;
            self.contents.fill(part.object, part.lbn, &mut buf[at..at + len])?;
            at += len;
        }
        Ok(())
    }
}
