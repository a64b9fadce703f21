//! Undo files: the overwritten blocks of a changed image, as e2fsprogs' `e2undo` puts them back.
//!
//! The format is that of `lib/ext2fs/undo_io.c`, version 2: a header, a copy of the superblock as
//! it is after the change, then blocks of keys, each followed by the blocks that its keys describe.
//! Blocks of the file are as long as those of the file system.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "offsets are of our own making"
)]

use crate::checksum::crc32c;
use crate::ondisk::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, ro_compat};
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::FromBytes;

const MAGIC: &[u8; 8] = b"E2UNDO02";
/// Bytes of the header in front of its checksum, which it covers.
const HEADER_SUMMED: usize = 508;
const KEY_MAGIC: u32 = 0xCADE_CADE;
/// Bytes of a key, and of the head of a block of them.
const KEY: u64 = 16;
/// Blocks that one key describes, at most.
const KEY_BLOCKS: u64 = 512;
/// The offset of the superblock's magic number.
const MAGIC_AT: usize = std::mem::offset_of!(Superblock, s_magic);
/// Blocks of the file before the first block of keys.
const SUPERBLOCK_BLOCK: u64 = 1;
const FIRST_KEYS: u64 = 2;

/// An image whose changes can be undone: blocks are saved, durably, before they are overwritten.
#[allow(missing_debug_implementations)]
pub struct UndoDevice {
    base: Arc<dyn BlockDevice>,
    undo: Mutex<UndoFile>,
}

struct Key {
    block: u64,
    sum: u32,
    bytes: u32,
}

struct UndoFile {
    file: File,
    /// Bytes in a block.
    block: u64,
    saved: HashSet<u64>,
    /// Keys of the block that is being filled, and its place.
    keys: Vec<Key>,
    keys_at: u64,
    /// Blocks of the file so far.
    end: u64,
    keys_in_all: u64,
    superblock: Vec<u8>,
}

impl UndoDevice {
    /// Saves in `file`, which is empty, the blocks that are overwritten on `base`, an image with
    /// blocks of `block_size` bytes.
    ///
    /// # Errors
    /// Errors of the device and the file.
    pub fn new(base: Arc<dyn BlockDevice>, file: File, block_size: u32) -> Result<Self, FsError> {
        let mut undo = UndoFile {
            file,
            block: u64::from(block_size),
            saved: HashSet::new(),
            keys: Vec::new(),
            keys_at: FIRST_KEYS,
            end: FIRST_KEYS,
            keys_in_all: 0,
            superblock: Vec::new(),
        };
        undo.take_superblock(base.as_ref())?;
        undo.write_header(false).and_then(|()| undo.file.sync_data()).map_err(failed)?;
        Ok(Self { base, undo: Mutex::new(undo) })
    }

    /// Marks the change as complete: `e2undo` then takes the file without `-f`, as long as nobody
    /// else changes the image.
    ///
    /// # Errors
    /// Errors of the device and the file.
    pub fn finish(&self) -> Result<(), FsError> {
        let mut undo = self.undo.lock().unwrap_or_else(PoisonError::into_inner);
        undo.take_superblock(self.base.as_ref())?;
        undo.write_header(true).and_then(|()| undo.file.sync_all()).map_err(failed)?;
        Ok(())
    }

    fn save(&self, at: Lba, len: usize) -> Result<(), DeviceError> {
        let mut undo = self.undo.lock().unwrap_or_else(PoisonError::into_inner);
        let start = at.to_bytes().get();
        undo.save(self.base.as_ref(), start, start + len as u64)
    }

    /// Keeps a copy of the superblock in its current state.
    fn note_superblock(&self, at: Lba, len: usize) -> Result<(), DeviceError> {
        let start = at.to_bytes().get();
        let end = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64;
        if start >= end || start + len as u64 <= SUPERBLOCK_OFFSET {
            return Ok(());
        }
        let mut undo = self.undo.lock().unwrap_or_else(PoisonError::into_inner);
        undo.take_superblock(self.base.as_ref())?;
        undo.write_header(false).map_err(failed)
    }
}

fn failed(source: io::Error) -> DeviceError {
    DeviceError::Open { source: io::Error::new(source.kind(), format!("undo file: {source}")) }
}

impl UndoFile {
    fn put(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, block * self.block)
    }

    fn take_superblock(&mut self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device.read_bytes(ByteLen::new(SUPERBLOCK_OFFSET), &mut bytes)?;
        self.superblock = bytes;
        Ok(())
    }

    /// The header, and the superblock's copy, which must not be taken for a file system.
    fn write_header(&self, is_finished: bool) -> io::Result<()> {
        let mut copy = self.superblock.clone();
        for byte in &mut copy[MAGIC_AT..MAGIC_AT + 2] {
            *byte = !*byte;
        }
        self.put(SUPERBLOCK_BLOCK, &copy)?;
        let has_own_sum = Superblock::read_from_bytes(&self.superblock)
            .is_ok_and(|sb| sb.s_feature_ro_compat.get() & ro_compat::METADATA_CSUM != 0);
        let sum = if has_own_sum { 0 } else { crc32c(!0, &self.superblock) };
        let block = self.block as u32;
        let mut header = Vec::with_capacity(HEADER_SUMMED + 4);
        header.extend_from_slice(MAGIC);
        for word in [self.keys_in_all, SUPERBLOCK_BLOCK, FIRST_KEYS] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        for word in [block, block, sum, u32::from(is_finished)] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.resize(HEADER_SUMMED, 0);
        let sum = crc32c(!0, &header);
        header.extend_from_slice(&sum.to_le_bytes());
        self.put(0, &header)
    }

    fn write_keys(&self) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.block as usize);
        bytes.extend_from_slice(&KEY_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        for key in &self.keys {
            bytes.extend_from_slice(&key.block.to_le_bytes());
            bytes.extend_from_slice(&key.sum.to_le_bytes());
            bytes.extend_from_slice(&key.bytes.to_le_bytes());
        }
        debug_assert!(bytes.len() as u64 <= self.block, "keys of {} bytes", bytes.len());
        bytes.resize(self.block as usize, 0);
        let sum = crc32c(!0, &bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        self.put(self.keys_at, &bytes)
    }

    /// Saves the blocks of a range of bytes that were not saved before: their contents, then the
    /// keys, then the header; all are durable on return.
    fn save(&mut self, device: &dyn BlockDevice, from: u64, to: u64) -> Result<(), DeviceError> {
        let (mut at, end) = (from / self.block, to.div_ceil(self.block));
        let mut has_saved = false;
        while at < end {
            if self.saved.contains(&at) {
                at += 1;
                continue;
            }
            let most = (end - at).min(KEY_BLOCKS);
            let run = (1..most).find(|n| self.saved.contains(&(at + n))).unwrap_or(most);
            self.save_run(device, at, run)?;
            has_saved = true;
            at += run;
        }
        if has_saved {
            self.write_keys().map_err(failed)?;
            self.write_header(false).map_err(failed)?;
            self.file.sync_data().map_err(failed)?;
        }
        Ok(())
    }

    fn save_run(&mut self, device: &dyn BlockDevice, at: u64, run: u64) -> Result<(), DeviceError> {
        // A full block of keys.
        if self.keys.len() as u64 == self.block / KEY - 1 {
            self.write_keys().map_err(failed)?;
            self.keys.clear();
            self.keys_at = self.end;
        }
        if self.keys.is_empty() {
            self.end = self.keys_at + 1;
        }
        debug_assert!(run > 0 && run <= KEY_BLOCKS, "a key describes {run} blocks");
        debug_assert!(!self.saved.contains(&at), "block {at} is saved once");
        debug_assert!((self.keys.len() as u64) < self.block / KEY - 1, "there is room for a key");
        let start = at * self.block;
        let len = (run * self.block).min(device.len().get().saturating_sub(start));
        let mut bytes = vec![0; len as usize];
        device.read_bytes(ByteLen::new(start), &mut bytes)?;
        debug_assert!(self.end > self.keys_at, "blocks lie behind their keys");
        self.put(self.end, &bytes).map_err(failed)?;
        self.end += run;
        self.keys.push(Key { block: at, sum: crc32c(!0, &bytes), bytes: len as u32 });
        self.keys_in_all += 1;
        self.saved.extend(at..at + run);
        Ok(())
    }
}

impl BlockDevice for UndoDevice {
    fn len(&self) -> ByteLen {
        self.base.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.save(at, buf.len())?;
        self.base.write(at, buf)?;
        self.note_superblock(at, buf.len())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn forget(&self, at: ByteLen, len: u64) -> Result<(), DeviceError> {
        self.base.forget(at, len)
    }
}
