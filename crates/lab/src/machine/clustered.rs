//! Reading as FreeBSD's kernels do it (`cluster_read` of `vfs_cluster.c`, 2005): a call reads the
//! whole blocks that it still needs in one request, as far as they are contiguous; a file's last
//! block, if it is not full, is read by itself; and a file that is read in order is read ahead, by
//! as many blocks as it was called for, eight at most, and from there on by the blocks that fit in
//! one request.
//!
//! Read-ahead is requested at once and waited for here, too: the drive has nothing else to do, and
//! the processor only the copying of a block.

use super::Machine;
use seekless_fs::FsError;
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeSet;

/// `vfs.read_max`: blocks that are read ahead at most.
const READ_MAX: u64 = 8;
/// Bytes by which calls are counted to know how far to read ahead (`BKVASIZE`).
const COUNTED: u64 = 16_384;

/// A sequential read of a file, with read-ahead in clusters (`cluster_read`).
struct ClusteredRead {
    ino: Ino,
    len: u64,
    block: u64,
    /// Bytes of the largest request.
    most: u64,
    /// Blocks up to here are in memory.
    have: u64,
    /// Blocks at which it is read on ahead (`B_RAM`).
    marks: BTreeSet<u64>,
    /// How far to read ahead (`f_seqcount`).
    sequence: u64,
}

impl ClusteredRead {
    /// The blocks that a run from one on may have: whole ones, in one request.
    fn run(&self, first: u64, wanted: u64) -> u64 {
        let whole = (self.len / self.block).saturating_sub(first);
        wanted.min((self.most / self.block).max(1)).min(whole)
    }
}

impl Machine {
    /// Reads a file into an archive with records of so many bytes, of which `place` bytes are
    /// there already: by calls that end where records do if the kernel is FreeBSD's, else as
    /// [`Machine::read`]. Returns its length.
    ///
    /// # Errors
    /// As [`seekless_fs::operate::Operate::read`].
    pub(crate) fn read_into(
        &mut self,
        ino: Ino,
        record: u64,
        place: u64,
    ) -> Result<ByteLen, FsError> {
        if self.cluster_read {
            return self.read_records(ino, (record, place));
        }
        self.read(ino)?;
        Ok(ByteLen::new(self.live().attr(ino)?.size))
    }

    /// Reads a file from its start to its end by calls that end where an archive's records
    /// of so many bytes do, of which `place` bytes are full already. Returns its length.
    ///
    /// # Errors
    /// As [`seekless_fs::operate::Operate::read`].
    fn read_records(&mut self, ino: Ino, (record, place): (u64, u64)) -> Result<ByteLen, FsError> {
        self.compute(self.cpu.look.0);
        let len = self.live().attr(ino)?.size;
        let (block, most) = (self.block, self.most_read);
        let sequence = 1;
        let mut reading =
            ClusteredRead { ino, len, block, most, have: 0, marks: BTreeSet::new(), sequence };
        let mut at = 0;
        while at < len {
            let part = (len - at).min(record - (place + at) % record);
            reading.sequence = (reading.sequence + part.div_ceil(COUNTED)).min(127);
            for lbn in at / block..(at + part).div_ceil(block) {
                self.read_block(&mut reading, lbn, at + part)?;
            }
            self.work_through(part, self.cpu.copy);
            at += part;
        }
        Ok(ByteLen::new(len))
    }

    /// Has a block in memory, of a call that ends at a byte.
    fn read_block(
        &mut self,
        reading: &mut ClusteredRead,
        lbn: u64,
        end: u64,
    ) -> Result<(), FsError> {
        let (block, len) = (reading.block, reading.len);
        if (lbn + 1) * block >= len {
            return if lbn < reading.have { Ok(()) } else { self.bring(reading, lbn, 1) };
        }
        let ahead = reading.sequence.min(READ_MAX).min((len / block).saturating_sub(lbn));
        let mut next = lbn + 1;
        if lbn < reading.have {
            if !reading.marks.remove(&lbn) {
                return Ok(());
            }
            next = reading.have;
        } else {
            let run = reading.run(lbn, (end - lbn * block).div_ceil(block)).max(1);
            self.bring(reading, lbn, run)?;
            // The second block, and the last; or the only one.
            reading.marks.extend([lbn + u64::from(run > 1), lbn + run - 1]);
            next = next.max(lbn + run);
        }
        while next < lbn + ahead {
            let run = reading.run(next, u64::MAX);
            if run == 0 {
                break;
            }
            self.bring(reading, next, run)?;
            reading.marks.extend([next, next + run - 1]);
            next += run;
        }
        Ok(())
    }

    /// Reads blocks, but no further than one level of the map reaches.
    fn bring(
        &mut self,
        reading: &mut ClusteredRead,
        first: u64,
        count: u64,
    ) -> Result<(), FsError> {
        let ClusteredRead { ino, len, block, .. } = *reading;
        let (mut from, to) = (first * block, ((first + count) * block).min(len));
        let mut buf = std::mem::take(&mut self.bytes);
        while from < to {
            let border = if from < self.direct { self.direct.min(to) } else { to };
            let part = ((border - from) as usize).min(buf.len());
            if let Err(error) = self.live().read(ino, ByteLen::new(from), &mut buf[..part]) {
                self.bytes = buf;
                return Err(error);
            }
            from += part as u64;
        }
        self.bytes = buf;
        reading.have = first + count;
        Ok(())
    }
}
