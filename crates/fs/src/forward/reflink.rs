//! Contents that are cloned instead of copied.

use super::{Forward, Piece};
use crate::FsError;
use crate::plan::Placed;
use crate::source::Content;
use seekless_device::Reflink;
use seekless_units::{ByteLen, Extent};

impl Forward<'_> {
    /// Clones whole blocks of the pieces, in their order, and returns the pieces that are left to
    /// be copied, in the same order. Short pieces cost no system call.
    pub(super) fn clone_pieces(
        &self,
        pieces: Vec<Piece>,
        reflink: Reflink<'_>,
    ) -> Result<Vec<Piece>, FsError> {
        let mut left = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let is_long = piece.placed.extent.len * self.block_bytes() >= reflink.shortest();
            match if is_long { self.contents.open(piece.object)? } else { None } {
                Some(content) => self.clone_piece(piece, content, reflink, &mut left)?,
                None => left.push(piece),
            }
        }
        Ok(left)
    }

    /// Clones as much of a piece as possible, and adds the rest to `left`.
    fn clone_piece(
        &self,
        piece: Piece,
        mut content: Box<dyn Content + '_>,
        reflink: Reflink<'_>,
        left: &mut Vec<Piece>,
    ) -> Result<(), FsError> {
        let block = self.block_bytes();
        let Placed { lbn, extent } = piece.placed;
        let part = |from: u64, to: u64| {
            let extent = Extent::new(extent.start + from, to - from);
            Piece { placed: Placed { lbn: lbn + from, extent }, ..piece }
        };
        let len = extent.len * block;
        // Bytes of the piece: those looked at, and blocks: those cloned or left.
        let (mut at, mut done) = (0, 0);
        while at < len {
            let Some(range) = content.host_range(lbn.get() * block + at, len - at) else { break };
            let found = range.len;
            debug_assert!(found > 0 && found <= len - at, "a part of the piece");
            let place = ByteLen::new(extent.start.get() * block + at);
            if let Some(cloned) = reflink.clone_range(range, place, block) {
                let (from, to) = ((at + cloned.start) / block, (at + cloned.end) / block);
                // As after a read: all parts of a file must be of the version that was walked.
                content.verify()?;
                if from > done {
                    left.push(part(done, from));
                }
                done = to;
                (self.progress)(cloned.end - cloned.start);
            }
            at += found;
        }
        if at == 0 {
            reflink.no_file();
        }
        if extent.len > done {
            left.push(part(done, extent.len));
        }
        Ok(())
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Contents;
    use super::*;
    use crate::plan::ObjectId;
    use seekless_device::{
        BlockDevice, CloneTarget, DeviceError, HostRange, MemoryDevice, NotCloned,
    };
    use seekless_units::{BlockNo, Lba, Lbn};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BLOCK: u64 = 1024;
    const HOST_BLOCK: u64 = 4096;
    const SHORTEST: u64 = 16_384;

    /// A device that notes what is cloned to it, and refuses sources at byte 0.
    struct Output {
        memory: MemoryDevice,
        cloned: Mutex<Vec<[u64; 3]>>,
        refused: AtomicU64,
    }

    impl CloneTarget for Output {
        fn block_size(&self) -> u64 {
            HOST_BLOCK
        }

        fn shortest(&self) -> u64 {
            SHORTEST
        }

        fn clone_range(&self, from: HostRange<'_>, at: u64) -> io::Result<()> {
            if from.offset == 0 {
                return Err(io::ErrorKind::CrossesDevices.into());
            }
            self.cloned.lock().unwrap().push([from.offset, at, from.len]);
            Ok(())
        }

        fn refused(&self, _: NotCloned) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl BlockDevice for Output {
        fn len(&self) -> ByteLen {
            self.memory.len()
        }

        fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.memory.read(at, buf)
        }

        fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
            self.memory.write(at, buf)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn reflink(&self) -> Option<Reflink<'_>> {
            Some(Reflink::new(self))
        }
    }

    /// Objects of 40,000 bytes of 1, each in runs of the host's file that begin at these bytes.
    struct Files {
        host: File,
        runs: Vec<Vec<(u64, u64)>>,
        is_changed: bool,
    }

    struct Opened<'a>(&'a Files, &'a [(u64, u64)]);

    impl Content for Opened<'_> {
        fn read_at(&mut self, _: u64, buf: &mut [u8]) -> Result<(), FsError> {
            buf.fill(1);
            Ok(())
        }

        fn verify(&mut self) -> Result<(), FsError> {
            if self.0.is_changed {
                return Err(FsError::SourceChanged("file".into()));
            }
            Ok(())
        }

        fn host_range(&self, offset: u64, len: u64) -> Option<HostRange<'_>> {
            let mut start = 0;
            for &(at, run) in self.1 {
                if offset < start + run {
                    let skip = offset - start;
                    let (len, offset) = (len.min(run - skip), at + skip);
                    return Some(HostRange { file: self.0.host.as_fd(), offset, len });
                }
                start += run;
            }
            None
        }
    }

    impl Contents for Files {
        fn is_whole(&self, _: ObjectId) -> bool {
            false
        }

        fn fill(&self, _: ObjectId, _: u64, out: &mut [u8]) -> Result<(), FsError> {
            out.fill(1);
            Ok(())
        }

        fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
            Ok(Some(Box::new(Opened(self, &self.runs[object.index()]))))
        }
    }

    /// Writes one piece of 40 blocks for each object, the first at block `first`.
    fn write(
        runs: &[&[(u64, u64)]],
        first: u64,
        is_changed: bool,
    ) -> (Result<(), FsError>, Output, Vec<u8>) {
        let memory = MemoryDevice::new(vec![0; 1 << 20]);
        let output = Output { memory, cloned: Mutex::default(), refused: AtomicU64::new(0) };
        let runs = runs.iter().map(|runs| runs.to_vec()).collect::<Vec<_>>();
        let piece = |object: usize| Piece {
            object: ObjectId::new(object as u32),
            placed: Placed {
                lbn: Lbn::new(0),
                extent: Extent::new(BlockNo::new(first + 40 * object as u64), 40),
            },
        };
        let pieces: Vec<Piece> = (0..runs.len()).map(piece).collect();
        let contents = Files { host: File::open("/dev/null").unwrap(), runs, is_changed };
        let told = AtomicU64::new(0);
        let progress = |bytes| {
            told.fetch_add(bytes, Ordering::Relaxed);
        };
        let (device, all) = (&output, 40 * BLOCK * pieces.len() as u64);
        let forward =
            Forward { block_size: BLOCK as u32, device, progress: &progress, contents: &contents };
        let written = forward.run(pieces);
        if written.is_ok() {
            assert_eq!(told.load(Ordering::Relaxed), all, "all bytes are told");
        }
        let mut bytes = vec![0; 1 << 20];
        output.memory.read(Lba::ZERO, &mut bytes).unwrap();
        (written, output, bytes)
    }

    /// Every byte is either cloned or written, and none both.
    fn assert_exact(output: &Output, bytes: &[u8], first: u64, objects: u64) {
        let mut seen = bytes.to_vec();
        for &[_, at, len] in output.cloned.lock().unwrap().iter() {
            for byte in &mut seen[at as usize..(at + len) as usize] {
                *byte += 1;
            }
        }
        let (from, to) = ((first * BLOCK) as usize, ((first + 40 * objects) * BLOCK) as usize);
        assert!(seen[from..to].iter().all(|&byte| byte == 1));
        assert!(seen[..from].iter().chain(&seen[to..]).all(|&byte| byte == 0));
    }

    #[test]
    fn everything_is_cloned_or_written_once() {
        let len = 40 * BLOCK;
        for (first, runs, wanted) in [
            // At a block of the host: all but the tail.
            (8, &[&[(4096, 40_000)][..]][..], vec![[4096, 8192, 36_864]]),
            // Between two: a head is written, too.
            (9, &[&[(5120, 40_000)]], vec![[8192, 12_288, 36_864]]),
            // Not as in the file.
            (9, &[&[(4096, 40_000)]], vec![]),
            // Two runs, the second in another phase; then one that is too short.
            (8, &[&[(8192, 20_480), (1024, 20_480)]], vec![[8192, 8192, 20_480]]),
            (
                8,
                &[&[(8192, 20_480), (40_960, 20_480)]],
                vec![[8192, 8192, 20_480], [40_960, 28_672, 20_480]],
            ),
            (8, &[&[(8192, 8192), (40_960, 32_768)]], vec![[40_960, 16_384, 32_768]]),
            // Refused by the system, and no file at all.
            (8, &[&[(0, len)], &[]], vec![]),
            (8, &[&[(0, len)], &[(4096, len)]], vec![[4096, 49_152, len]]),
        ] {
            let (written, output, bytes) = write(runs, first, false);
            written.unwrap();
            assert_eq!(*output.cloned.lock().unwrap(), wanted, "{first}: {runs:?}");
            assert_exact(&output, &bytes, first, runs.len() as u64);
        }
    }

    #[test]
    fn a_file_that_changed_while_it_was_cloned_is_refused() {
        let (written, ..) = write(&[&[(4096, 40_960)]], 8, true);
        assert!(matches!(written, Err(FsError::SourceChanged(_))), "{written:?}");
    }
}
