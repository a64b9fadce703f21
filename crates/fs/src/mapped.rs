//! Contents of a file in an image, found by its block map.

use crate::FsError;
use crate::inspect::Mapping;
use crate::source::Content;
use seekless_device::{BlockDevice, HostRange};
use seekless_units::ByteLen;
use std::borrow::Cow;

/// The contents of a file whose runs are known. Bytes outside of them, in unwritten ones, and behind
/// the end of the file are zeros.
#[allow(missing_debug_implementations)]
pub struct MappedContent<'a> {
    /// In logical order.
    runs: Cow<'a, [Mapping]>,
    block_size: u64,
    /// The end of the file.
    end: u64,
    device: &'a dyn BlockDevice,
}

/// Where bytes of a file are.
enum Storage {
    /// On the device, from this byte on.
    Device(u64),
    /// Nowhere: they are zeros.
    Nowhere,
}

impl<'a> MappedContent<'a> {
    /// The runs, in blocks of `block_size` bytes, are on the device and in logical order.
    pub fn new(
        runs: impl Into<Cow<'a, [Mapping]>>,
        block_size: u32,
        device: &'a dyn BlockDevice,
    ) -> Self {
        let runs = runs.into();
        debug_assert!(runs.is_sorted_by_key(|run| run.lbn), "runs are in logical order");
        Self { runs, block_size: u64::from(block_size).max(1), end: u64::MAX, device }
    }

    /// The same contents up to byte `end`, where the file ends: its last blocks may have others
    /// behind it.
    #[must_use]
    pub fn up_to(self, end: u64) -> Self {
        Self { end, ..self }
    }

    /// Where byte `offset` is, and how many of `len` bytes follow it there.
    fn storage(&self, offset: u64, len: u64) -> (Storage, u64) {
        if offset >= self.end {
            return (Storage::Nowhere, len);
        }
        let len = len.min(self.end - offset);
        let lbn = offset / self.block_size;
        let first = self.runs.partition_point(|run| run.lbn.get() + run.extent.len <= lbn);
        let Some(run) = self.runs.get(first) else { return (Storage::Nowhere, len) };
        let bytes = |blocks: u64| blocks * self.block_size;
        let start = bytes(run.lbn.get());
        if offset < start {
            return (Storage::Nowhere, len.min(start - offset));
        }
        let skip = offset - start;
        let len = len.min(bytes(run.extent.len) - skip);
        if run.unwritten {
            return (Storage::Nowhere, len);
        }
        (Storage::Device(bytes(run.extent.start.get()) + skip), len)
    }
}

impl Content for MappedContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (storage, len) = self.storage(at, rest.len() as u64);
            debug_assert!(len > 0, "bytes are somewhere");
            let here = usize::try_from(len).unwrap_or(usize::MAX).clamp(1, rest.len());
            let (here, behind) = rest.split_at_mut(here);
            match storage {
                Storage::Device(from) => self.device.read_bytes(ByteLen::new(from), here)?,
                Storage::Nowhere => here.fill(0),
            }
            at += here.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
        match self.storage(offset, len) {
            (Storage::Device(from), len) => self.device.host_range(ByteLen::new(from), len),
            (Storage::Nowhere, _) => None,
        }
    }
}
