//! Faults in mapped files: the kernel's reads besides the touched page.
//!
//! Source: `do_sync_mmap_readahead` and `do_async_mmap_readahead` of `mm/filemap.c`.
//! Around the page as much as a stream is read ahead, half of it before the page; from 6.17 on, in
//! an executable mapping, as much from the page on, within the mapping. Pages in memory are left
//! out. Pages around the touched one are mapped with it if they are in memory (`do_fault_around`),
//! and do not fault any more.

use super::{PAGE, ReadAhead, Replay};
use object::elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Ino};

/// Pages that are mapped together, if they are there (`fault_around_bytes`).
const FAULT_AROUND: u64 = 16;

/// The head of a program or a library, with its program headers: these follow the
/// header, of 64 bytes, and each has 56.
const HEAD: usize = 4096;

impl Replay<'_> {
    /// Pages of a mapped file that a program touches.
    pub(super) fn fault(&mut self, pid: u32, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        for (from, to) in self.near_data(ino, from, to)? {
            self.fault_pages(pid, ino, from, to)?;
        }
        Ok(())
    }

    /// The parts of a range of pages at which a fault may read data: pages with data, and as many
    /// pages around them as read-ahead covers. Elsewhere in a hole a fault reads nothing, and a
    /// sparse file has up to 2^52 such pages.
    fn near_data(&mut self, ino: Ino, from: u64, to: u64) -> Result<Vec<(u64, u64)>, FsError> {
        let reach = self.limits().read_ahead.max(FAULT_AROUND);
        let mut near: Vec<(u64, u64)> = Vec::new();
        for (first, end) in self.spans(ino, from.saturating_sub(reach), to + reach)? {
            let (first, end) = (first.saturating_sub(reach).max(from), (end + reach).min(to));
            match near.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ if first < end => near.push((first, end)),
                _ => {}
            }
        }
        Ok(near)
    }

    fn fault_pages(&mut self, pid: u32, ino: Ino, from: u64, to: u64) -> Result<(), FsError> {
        self.map(ino)?;
        let limits = self.limits();
        for page in from..to {
            let within = self.executable(ino, page);
            let Some(file) = self.files.get_mut(&ino) else { return Ok(()) };
            let pages = file.attr.size.div_ceil(PAGE).max(1);
            let state = self.states.entry((pid, ino)).or_insert_with(|| ReadAhead::new(limits));
            let mapped = self.mapped.entry((pid, ino)).or_default();
            if mapped.run_at(page).is_none() {
                // Where the mapping begins in memory is not known: aligned as the file is.
                let first = page - page % FAULT_AROUND;
                let there = file.pages.unmarked(first, pages.min(first + FAULT_AROUND));
                let new = there.into_iter().flat_map(|(from, to)| mapped.add(from, to)).count();
                state.mapped(u32::try_from(new).unwrap_or(u32::MAX));
            }
            let mut fetched = Vec::new();
            if !mapped.add(page, page + 1).is_empty() {
                fetched = state.fault(&mut file.pages, page, within, pages);
            }
            self.touch_data(ino, page, page + 1)?;
            for (first, end) in fetched {
                self.read_data(ino, first, end)?;
            }
        }
        Ok(())
    }

    /// The page behind the executable segment that a page lies in, if it lies in one
    /// and the kernel cares.
    fn executable(&mut self, ino: Ino, page: u64) -> Option<u64> {
        if !self.machine.executable_forward {
            return None;
        }
        if !self.segments.contains_key(&ino) {
            let mut head = vec![0; HEAD];
            // A file that cannot be read here, as an encrypted one, is taken for no program.
            let len = self.image.read(ino, ByteLen::ZERO, &mut head).unwrap_or(0);
            self.segments.insert(ino, executable_segments(&head[..len]));
        }
        let found = self.segments[&ino].iter().find(|(from, to)| (*from..*to).contains(&page));
        found.map(|(_, to)| *to)
    }
}

/// The pages of a program's or library's executable segments, as they are mapped:
/// each from its first to the one behind its last; none of any other file. `head` is
/// the first page of the file, or all of it.
#[must_use]
pub fn executable_segments(head: &[u8]) -> Vec<(u64, u64)> {
    match object::FileKind::parse(head) {
        Ok(object::FileKind::Elf64) => segments_of::<FileHeader64<object::Endianness>>(head),
        Ok(object::FileKind::Elf32) => segments_of::<FileHeader32<object::Endianness>>(head),
        _ => None,
    }
    .unwrap_or_default()
}

fn segments_of<H: FileHeader<Endian = object::Endianness>>(head: &[u8]) -> Option<Vec<(u64, u64)>> {
    let header = H::parse(head).ok()?;
    let order = header.endian().ok()?;
    let all = header.program_headers(order, head).ok()?;
    let executable = all
        .iter()
        .filter(|one| one.p_type(order) == PT_LOAD && one.p_flags(order).contains(PF_X))
        .map(|one| {
            let (offset, len) = one.file_range(order);
            (offset / PAGE, (offset + len).div_ceil(PAGE))
        });
    Some(executable.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_segments_are_found() {
        let itself = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = executable_segments(&itself[..HEAD]);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 < found[0].1 && found[0].1 * PAGE < itself.len() as u64 + PAGE);
        assert!(executable_segments(b"#!/bin/sh\n").is_empty());
        assert!(executable_segments(&itself[..60]).is_empty(), "cut short");
        assert!(executable_segments(&[]).is_empty());
    }
}
