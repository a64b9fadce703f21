//! Contents of a file in memory; holes take none.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are kept together.
const PAGE: u64 = 4096;

/// A file's contents. Pages of zeros are left out, so that equal contents are equal values;
/// versions of a file share the pages that they have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sparse {
    len: u64,
    /// By number; of `PAGE` bytes each, zeros past the end.
    pages: BTreeMap<u64, Arc<[u8]>>,
}

impl Sparse {
    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes, holes included.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A byte; zero in a hole, `None` past the end.
    #[must_use]
    pub fn get(&self, at: u64) -> Option<u8> {
        let page = || self.pages.get(&(at / PAGE));
        (at < self.len).then(|| page().map_or(0, |page| page[(at % PAGE) as usize]))
    }

    /// Writes bytes, and lengthens the file to their end.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        self.len = self.len.max(end);
        let mut done = 0;
        while done < bytes.len() {
            let here = at + done as u64;
            let within = (here % PAGE) as usize;
            let len = (PAGE as usize - within).min(bytes.len() - done);
            self.edit(here / PAGE, |page| {
                page[within..within + len].copy_from_slice(&bytes[done..done + len]);
            });
            done += len;
        }
    }

    /// Cuts the file, or lengthens it by a hole.
    pub fn resize(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            if !len.is_multiple_of(PAGE) && self.pages.contains_key(&(len / PAGE)) {
                self.edit(len / PAGE, |page| page[(len % PAGE) as usize..].fill(0));
            }
        }
        self.len = len;
    }

    fn edit(&mut self, number: u64, change: impl FnOnce(&mut [u8])) {
        let held = self.pages.get(&number);
        let mut page = held.map_or_else(|| vec![0; PAGE as usize], |page| page.to_vec());
        change(&mut page);
        if page.iter().all(|&byte| byte == 0) {
            self.pages.remove(&number);
        } else {
            self.pages.insert(number, page.into());
        }
    }

    /// The ranges outside of which it is zeros.
    pub fn written(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pages.keys().map(|page| page * PAGE..((page + 1) * PAGE).min(self.len))
    }

    /// Whether a stretch of it is these bytes.
    #[must_use]
    pub fn is_at(&self, at: u64, bytes: &[u8]) -> bool {
        if at + bytes.len() as u64 > self.len {
            return false;
        }
        let mut here = at;
        let mut left = bytes;
        while !left.is_empty() {
            let within = (here % PAGE) as usize;
            let (part, rest) = left.split_at(left.len().min(PAGE as usize - within));
            let equal = match self.pages.get(&(here / PAGE)) {
                Some(page) => page[within..within + part.len()] == *part,
                None => part.iter().all(|&byte| byte == 0),
            };
            if !equal {
                return false;
            }
            here += part.len() as u64;
            left = rest;
        }
        true
    }
}

impl From<&[u8]> for Sparse {
    fn from(bytes: &[u8]) -> Self {
        let mut sparse = Self::default();
        sparse.write(0, bytes);
        sparse
    }
}

impl PartialEq<[u8]> for Sparse {
    fn eq(&self, bytes: &[u8]) -> bool {
        self.len == bytes.len() as u64 && self.is_at(0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// The same operations on plain bytes give the same contents.
    #[test]
    fn it_is_what_plain_bytes_are() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let mut below = move |count: u64| rng.next_u64() % count;
        let (mut plain, mut sparse) = (Vec::new(), Sparse::default());
        for _ in 0..2000 {
            let at = below(30_000);
            if below(3) == 0 {
                plain.resize(at as usize, 0);
                sparse.resize(at);
            } else {
                let byte = [0, 7][below(2) as usize];
                let bytes = vec![byte; below(9000) as usize];
                let end = at as usize + bytes.len();
                plain.resize(plain.len().max(end), 0);
                plain[at as usize..end].copy_from_slice(&bytes);
                sparse.write(at, &bytes);
            }
            assert!(sparse == *plain.as_slice());
            assert_eq!(sparse, Sparse::from(plain.as_slice()));
            let zeros =
                |range: Range<u64>| range.map(|at| plain[at as usize]).all(|byte| byte == 0);
            let mut last = 0;
            for range in sparse.written() {
                assert!(zeros(last..range.start));
                last = range.end;
            }
            assert!(zeros(last..plain.len() as u64));
            assert_eq!(sparse.get(sparse.len()), None);
            let from = below(plain.len() as u64 + 1) as usize;
            let mut part = plain[from..].to_vec();
            part.truncate(below(9000) as usize);
            assert!(sparse.is_at(from as u64, &part));
            if let Some(last) = part.last_mut() {
                *last ^= 1;
                assert!(!sparse.is_at(from as u64, &part));
            }
            assert!(!sparse.is_at(plain.len() as u64, &[0]));
        }
    }

    #[test]
    fn a_hole_takes_no_room() {
        let mut sparse = Sparse::default();
        sparse.write(1 << 44, b"far");
        assert_eq!((sparse.len(), sparse.pages.len()), ((1 << 44) + 3, 1));
        sparse.resize(1 << 40);
        assert_eq!((sparse.len(), sparse.pages.len()), (1 << 40, 0));
    }
}
