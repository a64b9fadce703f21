//! Entries of directories changed in place.

use super::Work;
use super::superblock::byte_of;
use crate::check::fix::Spot;
use crate::check::names::{CheckedEntry, code_of, place, tolerant};
use crate::encode::rewrite::seal_directory_block;
use crate::inode::Inode;
use crate::ondisk::{DirEntryHead, InodeCore, flags, incompat};
use crate::xattr::forget_data_hash;
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::{Ino, Lbn};
use std::mem::offset_of;

/// A change of one entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// It becomes unused.
    Remove,
    /// Bytes of its name that no path can have become dots, as in e2fsck.
    Respell,
    /// Its name ends in a zero byte.
    Terminate,
    /// It has this file type.
    Retype(FileKind),
    /// It has this many bytes.
    Span(u16),
    /// It is unused and has this length.
    Blank(u16),
    /// It leads to this inode.
    Lead(Ino),
}

impl Work<'_> {
    /// Changes an entry.
    pub(super) fn edit(&mut self, spot: Spot, edit: Edit) -> Result<(), FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(spot.dir)?;
        let typed = volume.sb.has_incompat(incompat::FILETYPE);
        if inode.has_flag(flags::INLINE_DATA) {
            let at = index(spot.at);
            return self.change(spot.dir, |inode| {
                inode.with_bytes(|raw| {
                    change(raw, at, edit, typed);
                    forget_data_hash(raw);
                });
            });
        }
        let bsize = u64::from(volume.sb.block_size);
        let lbn = Lbn::new(spot.at / bsize);
        let at = index(spot.at % bsize);
        self.with_block(&inode, lbn, |block| change(block, at, edit, typed))
    }

    /// Sets the `..` of a directory; whether there is one.
    pub(super) fn set_parent(&mut self, dir: Ino, to: Ino) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(dir)?;
        if inode.has_flag(flags::INLINE_DATA) {
            let at = offset_of!(InodeCore, i_block);
            self.change(dir, |inode| {
                inode.with_bytes(|raw| put(raw, at, &to.get().to_le_bytes()))
            })?;
            return Ok(true);
        }
        let Some(first) = volume.maps().map_block(&inode, Lbn::ZERO)? else { return Ok(false) };
        let bytes = self.disk.read(byte_of(&volume.sb, first.extent.start), volume.block_len())?;
        let inodes = volume.sb.raw.s_inodes_count.get();
        let mut at = 0;
        let _ = tolerant(&bytes, &mut at, inodes, place(dir));
        let from = at;
        match tolerant(&bytes, &mut at, inodes, place(dir)) {
            Some(CheckedEntry { entry: Some(entry), error: None }) if entry.name == b".." => {
                self.edit(Spot { dir, at: wide(from) }, Edit::Lead(to))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Renews the checksum of a block of a directory.
    pub(super) fn seal_block(&mut self, dir: Ino, lbn: Lbn) -> Result<(), FsError> {
        let inode = self.checker.volume.inodes().read(dir)?;
        self.with_block(&inode, lbn, |_| {})
    }

    /// Changes a block of a directory.
    pub(super) fn with_block(
        &mut self,
        inode: &Inode,
        lbn: Lbn,
        with: impl FnOnce(&mut [u8]),
    ) -> Result<(), FsError> {
        let volume = &self.checker.volume;
        let Some(run) = volume.maps().map_block(inode, lbn)? else { return Ok(()) };
        let at = byte_of(&volume.sb, run.extent.start);
        let mut bytes = self.disk.read(at, volume.block_len())?;
        with(&mut bytes);
        if volume.sb.has_metadata_csum() {
            let (hashed, seed) = (volume.inodes().is_hashed(inode), volume.inodes().seed(inode));
            let here = place(inode.ino).in_block(run.extent.start);
            // A block without room for a checksum is rewritten in another round.
            match seal_directory_block(&mut bytes, lbn, hashed, seed, here) {
                Err(FsError::Corrupt { .. }) => {}
                sealed => sealed?,
            }
        }
        self.disk.put(at, &bytes)
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = out.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Changes the entry at byte `at` of a block or of an inode.
fn change(bytes: &mut [u8], at: usize, edit: Edit, typed: bool) {
    let field = |offset: usize| at + offset;
    match edit {
        Edit::Remove => put(bytes, field(offset_of!(DirEntryHead, inode)), &[0; 4]),
        Edit::Lead(to) => {
            put(bytes, field(offset_of!(DirEntryHead, inode)), &to.get().to_le_bytes());
        }
        Edit::Respell | Edit::Terminate => {
            let len = bytes.get(field(offset_of!(DirEntryHead, name_len))).copied().unwrap_or(0);
            let name = field(size_of::<DirEntryHead>());
            let end = name + usize::from(len);
            if edit == Edit::Terminate {
                put(bytes, end, &[0]);
            } else {
                for byte in bytes.get_mut(name..end).unwrap_or_default() {
                    if matches!(*byte, 0 | b'/') {
                        *byte = b'.';
                    }
                }
            }
        }
        Edit::Retype(kind) => {
            let code = if typed { code_of(kind) } else { 0 };
            put(bytes, field(offset_of!(DirEntryHead, file_type)), &[code]);
        }
        Edit::Span(len) | Edit::Blank(len) => {
            if edit == Edit::Blank(len) {
                put(bytes, at, &[0; size_of::<DirEntryHead>()]);
            }
            put(bytes, field(offset_of!(DirEntryHead, rec_len)), &len.to_le_bytes());
        }
    }
}
