//! Contents of files, read and written as programs and kernels do.

use super::{CHUNK, Machine};
use crate::experiment::Format;
use seekless_fs::FsError;
use seekless_units::{ByteLen, Ino};

/// Kernels look for contiguous blocks no further than one level of a map reaches (`ufs_bmaparray`
/// in `ufs_bmap.c`).
pub(super) fn direct(format: &Format) -> u64 {
    const BLOCKS: u64 = 12;
    let block = format.block.map_or(0, |block| block.0.get());
    if format.kind.version().has_block_maps { BLOCKS * block } else { 0 }
}

/// Bytes of a block of files.
pub(super) fn block(format: &Format) -> u64 {
    let size = format.block.or(format.cluster);
    size.map_or(1, |size| size.0.get().max(1))
}

impl Machine {
    /// Unpacks a file's contents from an archive, and writes them.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub fn unpack(&mut self, ino: Ino, len: ByteLen) -> Result<(), FsError> {
        self.work_through(len.get(), self.cpu.unpack);
        self.write(ino, len)
    }

    /// Writes a file from its start.
    ///
    /// # Errors
    /// As [`seekless_fs::operate::Operate::write`].
    pub fn write(&mut self, ino: Ino, len: ByteLen) -> Result<(), FsError> {
        self.work_through(len.get(), self.cpu.copy);
        let mut at = ByteLen::ZERO;
        while at < len {
            let most = len.get() - at.get();
            let part = &self.bytes[..CHUNK.min(usize::try_from(most).unwrap_or(CHUNK))];
            let written = self.volumes[self.at].live().write(ino, at, part)?;
            if written < part.len() {
                return Err(FsError::NoSpace("the volume is full".into()));
            }
            at = ByteLen::new(at.get() + written as u64);
        }
        Ok(())
    }

    /// Takes a record from an archive and writes it to a file.
    ///
    /// # Errors
    /// As [`Machine::write`].
    pub(crate) fn write_record(
        &mut self,
        ino: Ino,
        at: ByteLen,
        len: usize,
    ) -> Result<(), FsError> {
        self.work_through(len as u64, self.cpu.unpack);
        self.work_through(len as u64, self.cpu.copy);
        if self.bytes.len() < len {
            self.bytes.resize(len, 0x5A);
        }
        let written = self.volumes[self.at].live().write(ino, at, &self.bytes[..len])?;
        match written < len {
            true => Err(FsError::NoSpace("the volume is full".into())),
            false => Ok(()),
        }
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// As [`Operate::attr`].
    pub(crate) fn len_of(&mut self, ino: Ino) -> Result<ByteLen, FsError> {
        self.compute(self.cpu.look.0);
        Ok(ByteLen::new(self.live().attr(ino)?.size))
    }

    /// Reads a file from its start to its end.
    ///
    /// # Errors
    /// As [`seekless_fs::operate::Operate::read`].
    pub fn read(&mut self, ino: Ino) -> Result<(), FsError> {
        self.compute(self.cpu.look.0);
        let mut buf = std::mem::take(&mut self.bytes);
        let mut at = ByteLen::ZERO;
        let done = loop {
            let reach = self.direct.saturating_sub(at.get());
            let reach = if reach == 0 { CHUNK as u64 } else { reach.min(CHUNK as u64) };
            match self.live().read(ino, at, &mut buf[..reach as usize]) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    at = ByteLen::new(at.get() + count as u64);
                    self.work_through(count as u64, self.cpu.copy);
                }
                Err(error) => break Err(error),
            }
        };
        self.bytes = buf;
        done
    }
}
