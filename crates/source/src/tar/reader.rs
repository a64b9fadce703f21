//! Reading an archive's headers, one entry after another. Contents are only skipped.

use super::header::{BLOCK, Header, sparse_extension};
use super::pax::{Overrides, parse_decimal};
use seekless_fs::{ArchiveFault, FsError};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Maximum size of an extended header in bytes. The system's own limits (64 KiB per set of
/// attributes, 4 KiB per path) are far below.
const EXTENSION_MAX: u64 = 4 << 20;

/// Bytes in a record: an archive is padded to whole records.
const RECORD: u64 = 20 * BLOCK as u64;

/// Bytes in which a sound header is sought where the first one is not sound.
const SEARCHED: u64 = 1 << 20;

/// Bytes read at once: a header, usually with its preceding PAX header.
const WINDOW: usize = 4096;

/// An entry, described by its headers.
pub(super) struct Entry {
    /// Offset of its header.
    pub(super) offset: u64,
    pub(super) block: [u8; BLOCK],
    pub(super) extra: Overrides,
    /// Offset of its contents.
    pub(super) data: u64,
    /// Bytes of contents in the archive.
    pub(super) stored: u64,
    /// Sparse files only: length, and runs of the stored bytes.
    pub(super) sparse: Option<(u64, Vec<(u64, u64)>)>,
}

impl Entry {
    pub(super) fn header(&self) -> Header<'_> {
        Header(&self.block)
    }

    /// The path, from the header with the highest precedence.
    pub(super) fn path(&self) -> Vec<u8> {
        let path = self.extra.sparse.name.as_ref().or(self.extra.path.as_ref());
        path.cloned().unwrap_or_else(|| self.header().path())
    }
}

/// The entries of an archive.
pub(super) struct Reader<'a> {
    file: &'a File,
    /// Offset of the archive in the file.
    base: u64,
    name: &'a str,
    len: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    global: Overrides,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a File, base: u64, len: u64, name: &'a str) -> Self {
        let global = Overrides::default();
        Self { file, base, name, len, at: 0, window: Vec::new(), window_at: 0, global }
    }

    /// The error for a fault in the entry whose header is at `offset`.
    fn error_in(&self, offset: u64, path: &[u8], fault: ArchiveFault) -> FsError {
        self.error(offset, fault.of_entry(path))
    }

    /// The error for a sound but unsupported entry whose header is at `offset`.
    pub(super) fn unsupported(&self, offset: u64, path: &[u8], what: &str) -> FsError {
        FsError::Unsupported(self.about(offset, path, what))
    }

    /// A message about the entry whose header is at `offset`.
    pub(super) fn about(&self, offset: u64, path: &[u8], what: &str) -> String {
        let path = String::from_utf8_lossy(path);
        format!("{}: byte {offset}: {path}: {what}", self.name)
    }

    pub(super) fn error(&self, offset: u64, fault: ArchiveFault) -> FsError {
        FsError::Archive { archive: self.name.to_string(), offset, fault }
    }

    /// The next block; `None` at the end of the archive.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, FsError> {
        if self.at == self.len {
            return Ok(None);
        }
        let within = self.at.checked_sub(self.window_at).map(|skip| skip as usize);
        let cached = within.and_then(|skip| self.window.get(skip..skip.checked_add(BLOCK)?));
        if cached.is_none() {
            let want = (self.len - self.at).min(WINDOW as u64) as usize;
            if want < BLOCK {
                return Err(self.error(self.at, ArchiveFault::Truncated));
            }
            self.window.resize(want, 0);
            self.read(self.at, want)?;
            self.window_at = self.at;
        }
        let skip = (self.at - self.window_at) as usize;
        let mut block = [0; BLOCK];
        block.copy_from_slice(&self.window[skip..skip + BLOCK]);
        self.at += BLOCK as u64;
        Ok(Some(block))
    }

    fn read(&mut self, at: u64, want: usize) -> Result<(), FsError> {
        let read = self.file.read_exact_at(&mut self.window[..want], self.base + at);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.error(at, ArchiveFault::Truncated),
            _ => FsError::io(self.name, error),
        })
    }

    /// Whether the archive begins with an entry, if only with a damaged one.
    pub(super) fn begins_with_entry(&mut self) -> Result<bool, FsError> {
        let Some(first) = self.block()? else { return Ok(false) };
        self.at = 0;
        let header = Header(&first);
        Ok(!header.is_end() && (header.is_sound() || header.is_damaged()))
    }

    /// Refuses a file that does not begin with an entry, unless it is an empty archive. The fault is
    /// that of a damaged archive, or of another kind of file ([`ArchiveFault::Foreign`]).
    pub(super) fn check_start(&mut self) -> Result<(), FsError> {
        let Some(fault) = self.first_fault()? else { return Ok(()) };
        let fault = if self.has_header()? { fault } else { ArchiveFault::Foreign(fault.into()) };
        Err(self.error(0, fault))
    }

    /// The fault of the first block. Archivers write an archive without entries as two blocks of
    /// zeros, followed only by zeros up to the end of a record.
    fn first_fault(&mut self) -> Result<Option<ArchiveFault>, FsError> {
        if self.len < BLOCK as u64 {
            return Ok(Some(ArchiveFault::Truncated));
        }
        let first = self.more()?;
        let header = Header(&first);
        let mut fault = None;
        if !header.is_end() {
            fault = Some(ArchiveFault::Checksum).filter(|_| !header.is_sound());
        } else if self.len > RECORD || self.len < 2 * BLOCK as u64 {
            fault = Some(ArchiveFault::Zeros);
        } else {
            while let (None, Some(block)) = (&fault, self.block()?) {
                fault = Some(ArchiveFault::Zeros).filter(|_| !Header(&block).is_end());
            }
        }
        self.at = 0;
        Ok(fault)
    }

    /// Whether a file that does not begin with a sound header is an archive all the same: the first
    /// header is a damaged one, or there is a sound one in the next blocks.
    fn has_header(&mut self) -> Result<bool, FsError> {
        let end = self.len.min(SEARCHED);
        debug_assert!(self.at == 0, "the search begins at the first block");
        while self.at + BLOCK as u64 <= end {
            let is_first = self.at == 0;
            let block = self.more()?;
            let header = Header(&block);
            if !header.is_end() && (header.is_sound() || is_first && header.is_damaged()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next block, which must exist.
    fn more(&mut self) -> Result<[u8; BLOCK], FsError> {
        let at = self.at;
        self.block()?.ok_or_else(|| self.error(at, ArchiveFault::Truncated))
    }

    /// Skips `bytes` of contents and their padding.
    fn skip(&mut self, bytes: u64) -> Result<(), FsError> {
        let padded = bytes.checked_next_multiple_of(BLOCK as u64);
        let end = self.at.checked_add(bytes).filter(|&end| end <= self.len);
        match (end, padded) {
            // The padding of the last entry may be missing.
            (Some(_), Some(padded)) => {
                self.at = self.at.saturating_add(padded).min(self.len);
                Ok(())
            }
            _ => Err(self.error(self.at, ArchiveFault::Truncated)),
        }
    }

    /// The contents of an extended header.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, FsError> {
        if size > EXTENSION_MAX {
            let what = format!("extended header of {size} bytes, more than 4M");
            return Err(self.unsupported(self.at, b"extended header", &what));
        }
        if size > self.len - self.at {
            return Err(self.error(self.at, ArchiveFault::Truncated));
        }
        let mut bytes = Vec::with_capacity(size as usize + BLOCK);
        while (bytes.len() as u64) < size {
            bytes.extend_from_slice(&self.more()?);
        }
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    /// The next entry; `None` at the end of the archive.
    ///
    /// Among several PAX headers in front of an entry the last one counts, and it takes precedence
    /// over GNU's entries for long names, whatever their order.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, FsError> {
        let mut extra = self.global.clone();
        let mut records = Vec::new();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let offset = self.at;
            let Some(block) = self.block()? else { return Ok(None) };
            let header = Header(&block);
            if header.is_end() {
                return Ok(None);
            }
            if !header.is_sound() {
                return Err(self.error(offset, ArchiveFault::Checksum));
            }
            let path = header.path();
            let size = header.size().map_err(|fault| self.error_in(offset, &path, fault))?;
            match header.kind() {
                kind @ (b'x' | b'X' | b'g') => {
                    let found = self.extension(size)?;
                    let fault = |fault| self.error_in(offset, &path, fault);
                    if kind == b'g' {
                        let mut global = self.global.clone();
                        global.read(&found).map_err(fault)?;
                        self.global = global;
                    } else {
                        records = found;
                    }
                    extra = self.global.clone();
                    extra.read(&records).map_err(|fault| self.error_in(offset, &path, fault))?;
                }
                b'L' => long_name = Some(c_string(self.extension(size)?)),
                b'K' => long_link = Some(c_string(self.extension(size)?)),
                // A volume label.
                b'V' => self.skip(size)?,
                b'M' | b'N' => {
                    let what = "entry of a multi-volume archive, or with names of old GNU tar";
                    return Err(self.unsupported(offset, &path, what));
                }
                _ => {
                    extra.path = extra.path.or(long_name);
                    extra.link_path = extra.link_path.or(long_link);
                    return self.entry(offset, block, extra, size).map(Some);
                }
            }
        }
    }

    fn entry(
        &mut self,
        offset: u64,
        block: [u8; BLOCK],
        extra: Overrides,
        size: u64,
    ) -> Result<Entry, FsError> {
        let header = Header(&block);
        let path = extra.path.clone().unwrap_or_else(|| header.path());
        let size = extra.size.unwrap_or(size);
        // Only these have contents: in other kinds the size may have another meaning, such as the
        // size of a hard link's file.
        let holds = match header.kind() {
            b'S' | b'D' => true,
            b'0' | 0 | b'7' => !path.ends_with(b"/"),
            b'1' => self.has_link_contents(size)?,
            _ => false,
        };
        let mut stored = if holds { size } else { 0 };
        let fault = |reader: &Self, fault| reader.error_in(offset, &path, fault);
        let mut sparse = None;
        if header.kind() == b'S' && header.is_ustar() {
            return Err(self.unsupported(offset, &path, "sparse file in the format of star"));
        }
        if header.kind() == b'S' && header.is_gnu() {
            let (mut runs, mut more, real) = header.sparse().map_err(|f| fault(self, f))?;
            while more {
                let next = self.more()?;
                more = sparse_extension(&next, &mut runs).map_err(|f| fault(self, f))?;
            }
            sparse = Some((real, runs));
        } else if holds && extra.sparse.is_present() {
            let real = extra.sparse.real_size.unwrap_or(stored);
            let before = self.at;
            let runs = match (extra.sparse.major, extra.sparse.minor) {
                (Some(1), Some(0)) => self.leading_map(stored)?,
                (None | Some(0), _) => extra.sparse.runs.clone().unwrap_or_default(),
                _ => {
                    return Err(self.unsupported(offset, &path, "unknown format of a sparse file"));
                }
            };
            stored = stored
                .checked_sub(self.at - before)
                .ok_or_else(|| fault(self, ArchiveFault::SparseMap))?;
            sparse = Some((real, runs));
        }
        if let Some((real, runs)) = &mut sparse {
            check_map(*real, runs, stored).map_err(|f| fault(self, f))?;
        }
        let data = self.at;
        self.skip(stored).map_err(|error| match error {
            FsError::Archive { fault: found, .. } => fault(self, found),
            error => error,
        })?;
        Ok(Entry { offset, block, extra, data, stored, sparse })
    }

    /// Whether a hard link is followed by the contents of its file, as POSIX.1-2001 allows: there
    /// is no valid header right behind it, but there is one after `size` bytes.
    fn has_link_contents(&mut self, size: u64) -> Result<bool, FsError> {
        let at = self.at;
        let end = size.checked_next_multiple_of(BLOCK as u64).and_then(|len| at.checked_add(len));
        let (Some(end), true) = (end.filter(|&end| end <= self.len), size > 0) else {
            return Ok(false);
        };
        let mut look = |at| -> Result<(bool, bool), FsError> {
            self.at = at;
            let block = if self.len - at < BLOCK as u64 { None } else { self.block()? };
            let header = block.as_ref().map(Header);
            let is_end = header.as_ref().is_none_or(Header::is_end);
            Ok((is_end, header.is_some_and(|header| !header.is_end() && header.is_sound())))
        };
        let ((is_end, is_header), (ends_behind, has_header_behind)) = (look(at)?, look(end)?);
        self.at = at;
        Ok(!is_header && (has_header_behind || (ends_behind && !is_end)))
    }

    /// Reads the map at the start of a file's contents in sparse format 1.0: decimal numbers on
    /// lines of their own, the first their count, padded to blocks.
    fn leading_map(&mut self, stored: u64) -> Result<Vec<(u64, u64)>, FsError> {
        let start = self.at;
        let mut text = Vec::new();
        let mut numbers = Vec::new();
        loop {
            if self.at - start >= stored {
                return Err(self.error(start, ArchiveFault::SparseMap));
            }
            text.extend_from_slice(&self.more()?);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let number = parse_decimal(&text[..end]);
                numbers.push(number.ok_or_else(|| self.error(start, ArchiveFault::SparseMap))?);
                text.drain(..=end);
                if numbers.len() as u64 > numbers[0].saturating_mul(2) {
                    break;
                }
            }
            if numbers.first().is_some_and(|&n| numbers.len() as u64 > n.saturating_mul(2)) {
                return Ok(numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
            }
        }
    }
}

/// Checks that the runs are in order, within the file and all stored; drops empty ones.
fn check_map(real: u64, runs: &mut Vec<(u64, u64)>, stored: u64) -> Result<(), ArchiveFault> {
    runs.retain(|&(_, len)| len > 0);
    let (mut end, mut sum) = (0u64, 0u64);
    for &(offset, len) in &*runs {
        if offset < end {
            return Err(ArchiveFault::SparseMap);
        }
        end = offset.checked_add(len).ok_or(ArchiveFault::SparseMap)?;
        sum = sum.saturating_add(len);
    }
    if end > real || sum > stored { Err(ArchiveFault::SparseMap) } else { Ok(()) }
}

fn c_string(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
