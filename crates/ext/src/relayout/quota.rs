//! Quota files brought up to date: a map that grew or shrank by a block changes its owner's usage.

use crate::inode::Inode;
use crate::ondisk::quota_leaf;
pub(crate) use crate::quota::files;
use crate::quota::{BLOCK, DEPTH, MAGICS, ROOT};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, range, truncated, wide};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;

/// Changes of usage by id, in bytes.
pub(crate) type Charges = BTreeMap<u32, i64>;

/// Eight bytes of a quota file to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaPatch {
    pub(crate) offset: u64,
    pub(crate) value: u64,
}

/// The patches that bring the quota file of inode `ino` up to date.
pub(crate) fn patches(
    volume: &Volume,
    ino: Ino,
    charges: &Charges,
) -> Result<Vec<QuotaPatch>, FsError> {
    let file = QuotaFile { volume, inode: volume.inodes().read(ino)? };
    file.check()?;
    charges
        .iter()
        .filter(|(_, bytes)| **bytes != 0)
        .map(|(&id, &bytes)| file.patch(id, bytes))
        .collect()
}

struct QuotaFile<'a> {
    volume: &'a Volume,
    inode: Inode,
}

impl QuotaFile<'_> {
    fn place(&self) -> Location {
        Location::of("quota file").in_inode(self.inode.ino)
    }

    fn block(&self, number: u64) -> Result<Vec<u8>, FsError> {
        let blocks = self.inode.len / BLOCK;
        if number >= blocks {
            return Err(range("quota block", number, blocks, self.place()));
        }
        let mut bytes = vec![0; index(BLOCK)];
        let at = ByteLen::new(number * BLOCK);
        self.volume.maps().read_mapped(&self.inode, at, &mut bytes)?;
        Ok(bytes)
    }

    fn check(&self) -> Result<(), FsError> {
        let head = self.block(0)?;
        let magic = le32(&head, 0).unwrap_or(0);
        if !MAGICS.contains(&magic) {
            let kind = Corruption::Magic { found: u64::from(magic) };
            return Err(FsError::corrupt(kind, self.place()));
        }
        match le32(&head, 4) {
            Some(1) => Ok(()),
            version => Err(FsError::Unsupported(format!("quota file version {version:?}"))),
        }
    }

    /// The change of the usage of `id`.
    fn patch(&self, id: u32, bytes: i64) -> Result<QuotaPatch, FsError> {
        let mut number = ROOT;
        for byte in id.to_be_bytes().into_iter().take(index(DEPTH)) {
            let node = self.block(number)?;
            let slot = usize::from(byte) * 4;
            number = u64::from(le32(&node, slot).unwrap_or(0));
            if number == 0 {
                return Err(invalid("quota id", u64::from(id), self.place()));
            }
        }
        let leaf = self.block(number)?;
        let entries =
            leaf.get(quota_leaf::HEADER..).unwrap_or_default().chunks_exact(quota_leaf::ENTRY);
        let is_own =
            |entry: &[u8]| le32(entry, 0) == Some(id) && entry.iter().any(|&byte| byte != 0);
        let (at, entry) = entries
            .enumerate()
            .find(|(_, entry)| is_own(entry))
            .ok_or_else(|| invalid("quota id", u64::from(id), self.place()))?;
        let old = entry.get(quota_leaf::CURRENT_SPACE..).and_then(<[u8]>::first_chunk);
        let old = u64::from_le_bytes(*old.ok_or_else(|| truncated(self.place()))?);
        let value = old
            .checked_add_signed(bytes)
            .ok_or_else(|| invalid("dqb_curspace", old, self.place()))?;
        let inside = quota_leaf::HEADER + at * quota_leaf::ENTRY + quota_leaf::CURRENT_SPACE;
        debug_assert!(inside + size_of::<u64>() <= index(BLOCK), "an entry lies in its leaf");
        Ok(QuotaPatch { offset: number * BLOCK + wide(inside), value })
    }
}
