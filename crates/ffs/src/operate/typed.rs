//! Entries of directories, with the kinds of files in them.

use crate::entry;
use crate::superblock::Super;
use seekless_fs::{FileKind, FsError, Location};
use seekless_live::{Codec, Entry};
use seekless_units::Ino;
use std::sync::Arc;

/// Directories with the kinds of files in their entries, which are those since
/// 4.4BSD.
pub struct Typed(pub(super) Arc<Super>);

impl Codec for Typed {
    const INO: usize = entry::INO.0;
    const LEN: usize = entry::LEN.0;
    const KIND: usize = entry::KIND.0;

    fn entries<'a>(
        &self,
        unit: &'a [u8],
        place: Location,
    ) -> impl Iterator<Item = Result<Entry<'a>, FsError>> {
        self.0.entries(unit, place).map(|found| {
            let found = found?;
            Ok(Entry {
                at: found.at,
                len: found.len,
                needed: found.needed(),
                ino: found.ino,
                kind: found.kind,
                is_name: found.is_name(),
                name: found.name,
            })
        })
    }

    fn needed(name_len: usize) -> usize {
        entry::needed(name_len)
    }

    fn kind_of(code: u8) -> Option<FileKind> {
        entry::kind_of(code)
    }

    fn code_of(&self, kind: FileKind) -> u8 {
        entry::code_of(kind)
    }

    fn put(&self, unit: &mut [u8], entry: &Entry<'_>) {
        let &Entry { at, len, ino, kind, name, .. } = entry;
        entry::put(self.0.order, unit, &entry::Entry { at, len, ino, kind, name });
    }

    fn put_len(&self, unit: &mut [u8], at: usize, len: usize) {
        entry::put_len(self.0.order, unit, at, len);
    }

    fn ino_bytes(&self, ino: Ino) -> [u8; 4] {
        let mut bytes = [0; 4];
        self.0.order.put_u32(&mut bytes, 0, ino.get());
        bytes
    }
}
