//! Reading files: runs found, then read in as few requests as may be.

use crate::Format;
use crate::features::InlineData;
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_units::{BlockNo, Ino};

/// A stretch of a file that lies in one piece.
struct Stretch {
    at: BlockNo,
    skip: usize,
    /// Bytes of the buffer.
    from: usize,
    to: usize,
}

impl<F: Format> Volume<F> {
    /// Reads a range that lies within the file; holes are zeros.
    pub(crate) fn read_bytes(
        &mut self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        self.node(ino)?;
        let inside = match self.format.inline_data() {
            Some(format) => format.contents_inside(&mut self.core, ino)?,
            None => None,
        };
        if let Some(all) = inside {
            let from = all.get(index(offset)..).unwrap_or_default();
            buf.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
            return Ok(());
        }
        let limits = *self.format.limits();
        let bsize = u64::from(limits.block);
        let frag = bsize / u64::from(limits.unit);
        let waits = self.core.delayed.has(ino);
        let mut open: Option<Stretch> = None;
        let mut done = 0usize;
        while done < buf.len() {
            let at = offset + wide(done);
            let skip = index(at % bsize);
            let left = buf.len() - done;
            let end = done + (index(limits.block) - skip).min(left);
            let lbn = at / bsize;
            if waits && self.core.delayed.get(ino, lbn).is_some() {
                self.read_stretch(open.take(), buf)?;
                let block = self.core.delayed.get(ino, lbn).unwrap_or_default();
                let to = buf.get_mut(done..end).unwrap_or_default().iter_mut();
                to.zip(block.iter().skip(skip)).for_each(|(to, &from)| *to = from);
                done = end;
                continue;
            }
            let found = self.format.lookup_block(&mut self.core, ino, lbn)?;
            match (&mut open, found) {
                (Some(run), Some(block)) if run.follows(block, frag, limits.block) => run.to = end,
                (_, Some(block)) => {
                    self.read_stretch(open.take(), buf)?;
                    open = Some(Stretch { at: block, skip, from: done, to: end });
                }
                (_, None) => {
                    self.read_stretch(open.take(), buf)?;
                    buf.get_mut(done..end).unwrap_or_default().fill(0);
                }
            }
            done = end;
        }
        self.read_stretch(open, buf)
    }

    fn read_stretch(&mut self, run: Option<Stretch>, buf: &mut [u8]) -> Result<(), FsError> {
        let Some(run) = run else { return Ok(()) };
        let part = buf.get_mut(run.from..run.to).unwrap_or_default();
        self.core.cache.blocks_mut().read_run(run.at, run.skip, part)
    }
}

impl Stretch {
    /// Whether a block lies right behind the stretch so far.
    fn follows(&self, block: BlockNo, frag: u64, bsize: u32) -> bool {
        let bytes = self.skip + self.to - self.from;
        let blocks = bytes / index(bsize);
        let whole = bytes.is_multiple_of(index(bsize));
        whole && self.at + wide(blocks) * frag == block
    }
}
