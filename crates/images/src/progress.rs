//! The progress of long work.

use seekless_units::ByteLen;

/// A receiver of the progress of long work.
pub trait Progress: Send + Sync {
    /// Work on `total` bytes begins.
    fn begin(&self, total: ByteLen);

    /// `bytes` more are processed.
    fn advance(&self, bytes: ByteLen);

    /// `bytes` in all are processed.
    fn reach(&self, bytes: ByteLen);

    /// The work is complete.
    fn end(&self);
}

/// Progress without an observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn begin(&self, _total: ByteLen) {}
    fn advance(&self, _bytes: ByteLen) {}
    fn reach(&self, _bytes: ByteLen) {}
    fn end(&self) {}
}
