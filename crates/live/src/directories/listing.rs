//! Directories listed.

use crate::directories::Directories;
use crate::{Codec, Linked};
use seekless_fs::field::wide;
use seekless_fs::{DirEntry, FsError, Location};
use seekless_units::Ino;
use std::ops::ControlFlow;

impl<F: Linked> Directories<'_, F> {
    /// Visits the entries behind a cookie: an entry's is the byte behind its
    /// first.
    pub(crate) fn entries_after(
        &mut self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let size = self.dir_size(dir)?;
        let len = self.volume.format.limits().dir_unit;
        let mut at = after / self.unit() * self.unit();
        while at < size {
            let bytes = self.dir_bytes(dir, at, size)?;
            for (base, unit) in (at..).step_by(len).zip(bytes.chunks(len)) {
                let place = Location::of("directory").in_inode(dir);
                for entry in self.volume.format.codec().entries(unit, place) {
                    let entry = entry?;
                    let cookie = base + wide(entry.at) + 1;
                    if !entry.is_name || cookie <= after {
                        continue;
                    }
                    let kind = F::Codec::kind_of(entry.kind);
                    let shown = DirEntry { name: entry.name, ino: entry.ino, kind, cookie };
                    if visit(shown).is_break() {
                        return Ok(());
                    }
                }
            }
            at += wide(bytes.len());
        }
        Ok(())
    }
}
