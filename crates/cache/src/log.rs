//! A journal's interface to a log: how much goes into it, and the bytes of a transaction.
//!
//! A log encodes and counts, and writes nothing: its writes come back in [`Stage`]s, which the
//! cache performs, itself or through a caller that does not keep it locked meanwhile.

use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_fs::FsError;
use seekless_units::{BlockNo, Lba};

/// Bytes written at one place of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageWrite {
    /// The first sector.
    pub at: Lba,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// The writes that a completed stage has put on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stable {
    /// Nothing: a later stage flushes.
    #[default]
    Nothing,
    /// Its writes, each with force unit access. Of others that says nothing.
    Own,
    /// Its writes, and all others that had completed before: it ends with a flush.
    All,
}

/// Writes without an order among themselves. Nothing of the next stage may be
/// given to the device before this one is done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// The writes; none where only a flush is wanted.
    pub writes: Vec<StageWrite>,
    /// The writes on stable storage when the stage is done.
    pub stable: Stable,
}

impl Stage {
    /// A stage that is nothing but a flush.
    #[must_use]
    pub const fn flush() -> Self {
        Self { writes: Vec::new(), stable: Stable::All }
    }

    /// Adds a write, to the last one where it goes on at its end and both have no
    /// more than `most` bytes.
    pub fn push(&mut self, at: Lba, bytes: &[u8], most: usize) {
        if let Some(last) = self.writes.last_mut() {
            let sectors = last.bytes.len() as u64 / seekless_units::SECTOR;
            let joins = last.at.get().checked_add(sectors) == Some(at.get());
            if joins && last.bytes.len() + bytes.len() <= most {
                last.bytes.extend_from_slice(bytes);
                return;
            }
        }
        self.writes.push(StageWrite { at, bytes: bytes.to_vec() });
    }

    /// Bytes in its writes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.writes.iter().map(|write| write.bytes.len() as u64).sum()
    }

    /// Whether it writes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Performs it, and returns once all of it has completed: the next stage depends on that.
    /// Without `barriers` nothing is flushed: completed writes count as on the disk then.
    ///
    /// # Errors
    /// [`DeviceError`]; some of the writes may have been done.
    pub fn perform(&self, device: &dyn BlockDevice, barriers: bool) -> Result<(), DeviceError> {
        self.submit(device, barriers).wait(device)
    }

    /// Gives its writes to the device, and does not wait for them.
    pub(crate) fn submit(&self, device: &dyn BlockDevice, barriers: bool) -> Submitted {
        let durable = match self.stable {
            Stable::Own if barriers => Durable::OnCompletion,
            _ => Durable::AfterFlush,
        };
        let flushes = self.flushes(barriers);
        let mut submitted = Submitted { tickets: Vec::new(), result: Ok(()), flushes };
        for write in &self.writes {
            match device.submit(write.at, &write.bytes, durable) {
                Ok(ticket) => submitted.tickets.extend(ticket),
                Err(error) => {
                    submitted.result = Err(error);
                    break;
                }
            }
        }
        submitted
    }

    /// Whether it ends with a flush.
    pub(crate) fn flushes(&self, barriers: bool) -> bool {
        self.stable == Stable::All && barriers
    }

    /// Whether it leaves writes that wait for a flush.
    pub(crate) fn leaves_unflushed(&self, barriers: bool) -> bool {
        !(self.is_empty() || barriers && self.stable != Stable::Nothing)
    }
}

/// A stage whose writes were given to the device.
pub(crate) struct Submitted {
    /// Those that were taken and have not completed. They are waited for, whatever became
    /// of others.
    tickets: Vec<Ticket>,
    result: Result<(), DeviceError>,
    /// A flush is to follow them.
    flushes: bool,
}

impl Submitted {
    /// Waits for all of it.
    pub(crate) fn wait(mut self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        for ticket in std::mem::take(&mut self.tickets) {
            self.result = self.result.and(device.wait(ticket));
        }
        self.result?;
        if self.flushes { device.flush() } else { Ok(()) }
    }

    /// Whether all of its writes have completed, or failed: [`Submitted::wait`] then
    /// waits for nothing but a flush.
    pub(crate) fn is_over(&mut self, device: &dyn BlockDevice) -> bool {
        let result = &mut self.result;
        self.tickets.retain(|&ticket| match device.is_complete(ticket) {
            Ok(over) => !over,
            Err(error) => {
                if result.is_ok() {
                    *result = Err(error);
                }
                false
            }
        });
        self.tickets.is_empty()
    }
}

/// A block as a transaction has it.
#[derive(Clone, Copy, Debug)]
pub struct LogCopy<'a> {
    /// Where it belongs, counted in blocks of the log.
    pub home: BlockNo,
    /// All of it.
    pub bytes: &'a [u8],
}

/// A transaction to be committed: all of it is there after a recovery, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct LogTransaction<'a> {
    /// Blocks of which no copy in earlier transactions, nor in this one, may be
    /// written home any more; in increasing order.
    pub revokes: &'a [BlockNo],
    /// Blocks, in increasing order of their homes. None is also revoked.
    pub copies: &'a [LogCopy<'a>],
}

/// A ring of transactions on the device. A recovery brings home all that are
/// committed, in order, up to the first that is not.
pub trait Log: Send {
    /// Bytes in a block: of the log, and of the blocks whose copies it has.
    fn block_size(&self) -> u32;

    /// Blocks that all transactions together may take.
    fn capacity(&self) -> u64;

    /// Blocks that no transaction takes.
    fn free(&self) -> u64;

    /// Blocks that one transaction may take: a quarter of the log (jbd2:
    /// `j_max_transaction_buffers`).
    fn most(&self) -> u64;

    /// Blocks that a transaction with so many copies and revoked blocks takes.
    fn cost(&self, copies: u64, revokes: u64) -> u64;

    /// Makes the log ready for transactions; nothing is in it. These stages come
    /// before all others, and once.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn start(&mut self) -> Result<Vec<Stage>, FsError>;

    /// Lays out a transaction behind the others, and takes room for it. Once all stages are done it
    /// is committed. Writes home that it depends on must have completed before the first stage,
    /// which flushes them together with its own writes.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when it takes more than [`Log::most`], or than is free;
    /// [`FsError::Corrupt`] for a block that cannot be logged, the log's own say.
    /// Nothing has changed then.
    fn encode(&mut self, transaction: &LogTransaction<'_>) -> Result<Vec<Stage>, FsError>;

    /// Leaves out the oldest transactions, so many, all of them committed. Their
    /// blocks have been revoked, or their writes home have completed. The first stage
    /// flushes those writes. Their room counts as free at once: nothing may be encoded before
    /// the stages are done.
    fn retire(&mut self, oldest: usize) -> Vec<Stage>;

    /// Says that nothing waits in the log, and that there is no need of a recovery.
    /// All transactions have been left out. [`Log::start`] may follow.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn close(&mut self) -> Result<Vec<Stage>, FsError>;
}
