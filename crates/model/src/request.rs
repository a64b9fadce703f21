//! Requests to a device, and completions.

use seekless_units::{Lba, Nanos};

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Transfer of sectors to the host.
    Read,
    /// Transfer of sectors from the host.
    Write,
    /// Completes when every write submitted before it is on stable storage; does not delay later
    /// requests.
    Flush,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// First sector; meaningless for a flush.
    pub at: Lba,
    /// Number of sectors, at least one; zero for a flush.
    pub sectors: u32,
    /// A write that completes only when it is on stable storage itself (force unit access),
    /// whatever cache the device has.
    pub durable: bool,
}

impl Request {
    /// A read of `sectors` sectors from `at`.
    #[must_use]
    pub const fn read(at: Lba, sectors: u32) -> Self {
        Self { op: Op::Read, at, sectors, durable: false }
    }

    /// A write of `sectors` sectors from `at`.
    #[must_use]
    pub const fn write(at: Lba, sectors: u32) -> Self {
        Self { op: Op::Write, at, sectors, durable: false }
    }

    /// A flush of the device's cache.
    #[must_use]
    pub const fn flush() -> Self {
        Self { op: Op::Flush, at: Lba::ZERO, sectors: 0, durable: false }
    }

    /// The same write, complete only when it is on stable storage.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The sector after the last one; saturates.
    #[must_use]
    pub const fn end(self) -> Lba {
        Lba::new(self.at.get().saturating_add(self.sectors as u64))
    }
}

/// The caller's name for a request, returned in its completion. The models ignore it; two requests
/// may share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u64);

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The name under which it was submitted.
    pub tag: Tag,
    /// The time of completion.
    pub at: Nanos,
}
