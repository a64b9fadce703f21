//! Reflinks: ranges of an output file that share their blocks on the disk with other files of the
//! host, in place of copies.
//!
//! A reader of contents offers their place on the host ([`HostRange`]), a device offers the file that
//! it writes to ([`Reflink`]), and a copy from one to the other clones as much as it can. The system
//! call is behind [`CloneTarget`].

use seekless_units::ByteLen;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// A range of bytes of a regular file of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostRange<'a> {
    /// The file, open for reading.
    pub file: BorrowedFd<'a>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The reason why a range is copied.
#[derive(Debug)]
pub enum NotCloned {
    /// The contents are not bytes of a file of the host.
    NoFile,
    /// The range does not begin in the file as in the output, relative to blocks of this many
    /// bytes.
    Unaligned(u64),
    /// The system refused.
    System(io::Error),
}

/// An output file whose file system can share blocks between files.
pub trait CloneTarget: Sync {
    /// Block size of its file system, a power of two. Ranges that are shared consist of whole
    /// blocks in both files.
    fn block_size(&self) -> u64;

    /// The shortest range for which cloning is worthwhile, in bytes.
    fn shortest(&self) -> u64;

    /// Shares the blocks of a range, which are whole blocks, from byte `at` of the output on. After
    /// a failure the contents of the output's range are unspecified.
    ///
    /// # Errors
    /// The system's error. The caller then copies.
    fn clone_range(&self, from: HostRange<'_>, at: u64) -> io::Result<()>;

    /// Is told of every range that was long enough and could not be cloned.
    fn refused(&self, why: NotCloned);
}

/// The output file of a device, and the byte of it at which the device begins.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Reflink<'a> {
    target: &'a dyn CloneTarget,
    start: u64,
}

impl<'a> Reflink<'a> {
    /// A device that begins with the file.
    #[must_use]
    pub fn new(target: &'a dyn CloneTarget) -> Self {
        Self { target, start: 0 }
    }

    /// The part of the device from byte `offset` on.
    #[must_use]
    pub fn at(self, offset: ByteLen) -> Self {
        Self { start: self.start + offset.get(), ..self }
    }

    /// The shortest range for which cloning is worthwhile, in bytes.
    #[must_use]
    pub fn shortest(self) -> u64 {
        self.target.shortest()
    }

    /// Reports contents that are not stored in a file.
    pub fn no_file(self) {
        self.target.refused(NotCloned::NoFile);
    }

    /// Clones from `from` to byte `at` of the device, in multiples of `unit` (a power of two)
    /// counted from the beginning of the range. Returns the bytes of the range that were cloned;
    /// the others, at both ends or all of them, are to be copied.
    #[must_use]
    pub fn clone_range(self, from: HostRange<'_>, at: ByteLen, unit: u64) -> Option<Range<u64>> {
        if from.len < self.shortest() {
            return None;
        }
        let block = self.target.block_size();
        debug_assert!(block.is_power_of_two() && unit.is_power_of_two(), "{block}, {unit}");
        let to = self.start + at.get();
        let skip = to.next_multiple_of(block) - to;
        if from.offset % block != to % block || !skip.is_multiple_of(unit) {
            self.target.refused(NotCloned::Unaligned(block));
            return None;
        }
        let step = block.max(unit);
        let len = from.len.checked_sub(skip)? / step * step;
        if len == 0 || len < self.shortest() {
            return None;
        }
        debug_assert!((to + skip).is_multiple_of(block), "a block of the output begins");
        let whole = HostRange { file: from.file, offset: from.offset + skip, len };
        match self.target.clone_range(whole, to + skip) {
            Ok(()) => Some(skip..skip + len),
            Err(error) => {
                self.target.refused(NotCloned::System(error));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    /// Records the ranges that are cloned.
    #[derive(Default)]
    struct Recorder {
        cloned: Mutex<Vec<[u64; 3]>>,
        refused: Mutex<Vec<String>>,
    }

    impl CloneTarget for Recorder {
        fn block_size(&self) -> u64 {
            4096
        }

        fn shortest(&self) -> u64 {
            8192
        }

        fn clone_range(&self, from: HostRange<'_>, at: u64) -> io::Result<()> {
            self.cloned.lock().unwrap().push([from.offset, at, from.len]);
            Ok(())
        }

        fn refused(&self, why: NotCloned) {
            self.refused.lock().unwrap().push(format!("{why:?}"));
        }
    }

    /// The range that is cloned of `len` bytes from `offset` on to byte `at` of a device at `start`.
    fn cloned(offset: u64, len: u64, start: u64, at: u64, unit: u64) -> Result<[u64; 3], usize> {
        let target = Recorder::default();
        let file = std::fs::File::open("/dev/null").unwrap();
        let from = HostRange { file: file.as_fd(), offset, len };
        let reflink = Reflink::new(&target).at(ByteLen::new(start));
        let range = reflink.clone_range(from, ByteLen::new(at), unit);
        let calls = target.cloned.lock().unwrap().clone();
        match (range, calls.as_slice()) {
            (Some(range), &[call]) => {
                assert_eq!(call, [offset + range.start, start + at + range.start, call[2]]);
                assert_eq!(range.end - range.start, call[2]);
                assert!(call.iter().all(|value| value % 4096 == 0), "{call:?}");
                assert!(range.start % unit == 0 && call[2] % unit == 0, "{range:?}");
                Ok(call)
            }
            (None, []) => Err(target.refused.lock().unwrap().len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whole_blocks_of_both_files_are_cloned() {
        assert_eq!(cloned(0, 8192, 0, 4096, 4096), Ok([0, 4096, 8192]));
        // A tail is copied.
        assert_eq!(cloned(0, 12_287, 0, 4096, 4096), Ok([0, 4096, 8192]));
        assert_eq!(cloned(0, 8191, 0, 4096, 4096), Err(0));
        // Small blocks of the image, at a block of the host, and between two.
        assert_eq!(cloned(0, 20_000, 0, 8192, 1024), Ok([0, 8192, 16_384]));
        assert_eq!(cloned(1024, 20_000, 0, 9216, 1024), Ok([4096, 12_288, 16_384]));
        assert_eq!(cloned(0, 20_000, 0, 9216, 1024), Err(1));
        // What is left of it is too short.
        assert_eq!(cloned(1024, 8192, 0, 9216, 1024), Err(0));
        // Large blocks of the image are cloned as a whole.
        assert_eq!(cloned(0, 40_000, 0, 65_536, 32_768), Ok([0, 65_536, 32_768]));
        // A device that does not begin at a block.
        assert_eq!(cloned(0, 65_536, 512, 0, 512), Err(1));
        assert_eq!(cloned(0, 65_536, 512, 3584, 4096), Ok([0, 4096, 65_536]));
        assert_eq!(cloned(512, 65_536, 512, 0, 4096), Err(1), "not whole blocks of the image");
        assert_eq!(cloned(512, 65_536, 512, 0, 512), Ok([4096, 4096, 61_440]));
    }
}
