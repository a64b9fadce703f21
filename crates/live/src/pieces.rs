//! Operations too large for one transaction, done in several: each of them leaves a sound file
//! system, and operations to be continued after a crash are on a list of orphans.

use crate::{Format, Live, Names};
use seekless_fs::FsError;
use seekless_fs::field::{index, wide};
use seekless_units::Ino;

impl<F: Format> Live<F> {
    /// Ends an operation: actions made ready by it are done with it, and their changes are written
    /// with it.
    pub(crate) fn end_operation(&mut self) -> Result<(), FsError> {
        let mut done = self.run_actions();
        if self.core.cache.is_journalled() {
            done = done.and_then(|()| self.format.put_summaries(&mut self.core));
            if let Err(error) = &done {
                // A part of it is missing.
                self.core.cache.abort(&error.to_string());
            }
        }
        done.and_then(|()| self.core.cache.end())
    }

    /// Whether an operation that has failed may be committed as far as it came: it has refused
    /// before it changed anything, or undone its changes.
    pub(crate) fn is_undone(&self, error: &FsError) -> bool {
        let met_on_the_way =
            matches!(error, FsError::Device(_) | FsError::Corrupt { .. } | FsError::Io { .. });
        !(met_on_the_way && self.core.cache.operation_changed())
    }

    /// The operation goes on as another: a crash may leave only its changes so far.
    fn next_piece(&mut self) -> Result<(), FsError> {
        self.end_operation()?;
        self.core.cache.begin()
    }

    /// Cuts a file behind a length, but for the part that the operation under way has room for.
    /// Does nothing without a journal.
    pub(crate) fn cut_in_pieces(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        if !self.core.cache.is_journalled() {
            return Ok(());
        }
        let mut listed = false;
        loop {
            let next = self.format.cut_at_once(&mut self.core, ino, len)?;
            debug_assert!(next >= len, "it is cut to {len}, not to {next}");
            if next <= len {
                break;
            }
            if !listed {
                self.format.note_orphan(&mut self.core, ino, true)?;
                listed = true;
            }
            self.format.cut_behind(&mut self.core, ino, next)?;
            self.next_piece()?;
        }
        if listed && self.node(ino)?.links > 0 {
            self.format.note_orphan(&mut self.core, ino, false)?;
        }
        Ok(())
    }

    /// Deletes or cuts the orphans of a crash: files without names, or being cut.
    pub(crate) fn clear_orphans(&mut self) -> Result<(), FsError> {
        for ino in self.format.orphans(&mut self.core)? {
            let cleared = self.change(|live| {
                let node = live.node(ino)?;
                let (links, size) = (node.links, node.size);
                if links == 0 {
                    return F::Names::destroy(live, ino);
                }
                live.cut_in_pieces(ino, size)?;
                live.format.truncate(&mut live.core, ino, size)?;
                live.format.note_orphan(&mut live.core, ino, false)
            });
            match cleared {
                // It stays on the list, for a check to decide.
                Err(FsError::Corrupt { .. }) if self.core.cache.may_change() => {}
                cleared => cleared?,
            }
        }
        Ok(())
    }

    /// Writes bytes in as many operations as that takes. Returns how many there was
    /// space for.
    pub(crate) fn write_in_pieces(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let most = index(self.piece()).max(1);
        let mut done = 0usize;
        // Where there was space for a part, more may be had for the rest: blocks given up, and not
        // free yet.
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(wide(done));
            let piece = rest.get(..most).unwrap_or(rest);
            let ready = self.before_write(ino, at, wide(piece.len()));
            match ready.and_then(|()| self.change(|live| live.write_file(ino, at, piece))) {
                Ok(0) => break,
                Ok(written) => done = done.saturating_add(written),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// As [`Format::allocate_range`], in as many operations as that takes.
    pub(crate) fn allocate_in_pieces(
        &mut self,
        ino: Ino,
        from: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let piece = self.piece();
        let Some(end) = from.checked_add(len).filter(|_| len > piece) else {
            return self.change(|live| live.allocate_file(ino, from, len, keep_size));
        };
        let size = self.named_node(ino)?.size;
        let mut at = from;
        while at < end {
            let len = end.saturating_sub(at).min(piece);
            let done = self.change(|live| live.allocate_file(ino, at, len, keep_size));
            if done.is_err() {
                if self.node(ino)?.size > size {
                    self.change(|live| {
                        live.cut_in_pieces(ino, size)?;
                        live.format.truncate(&mut live.core, ino, size)
                    })?;
                }
                return done;
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Bytes of a file that one operation writes at most.
    fn piece(&self) -> u64 {
        let piece = self.core.cache.is_journalled().then(|| self.format.piece(&self.core));
        piece.unwrap_or(u64::MAX)
    }
}
