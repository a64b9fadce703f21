//! Quota files brought up to date: a map that grew or shrank by a block changes its owner's usage.

use crate::inode::Inode;
use crate::ondisk::{QuotaEntry, QuotaLeafHead, flags};
use crate::quota::{BLOCK, DEPTH, MAGICS, ROOT};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, le32, range, wide};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Changes of usage by id, in bytes.
pub(crate) type Charges = BTreeMap<u32, i64>;

/// Eight bytes of a quota file to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaPatch {
    pub(crate) offset: u64,
    pub(crate) value: u64,
}

/// Whether an inode's blocks count towards the usage of its owner, by its flags. Values of
/// attributes count for the files that have them, by their lengths (`ext4_xattr_inode_alloc_quota`).
pub(crate) fn counts_blocks(inode_flags: u32) -> bool {
    inode_flags & flags::EA_INODE == 0
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
        let entries = leaf.get(size_of::<QuotaLeafHead>()..).unwrap_or_default();
        let mut entries = entries.chunks_exact(size_of::<QuotaEntry>()).enumerate();
        let (at, entry) = entries
            .find_map(|(at, bytes)| {
                let entry = QuotaEntry::read_from_bytes(bytes).ok()?;
                let is_used = bytes.iter().any(|&byte| byte != 0);
                (is_used && entry.dqb_id.get() == id).then_some((at, entry))
            })
            .ok_or_else(|| invalid("quota id", u64::from(id), self.place()))?;
        let old = entry.dqb_curspace.get();
        let value = old
            .checked_add_signed(bytes)
            .ok_or_else(|| invalid("dqb_curspace", old, self.place()))?;
        let inside = size_of::<QuotaLeafHead>()
            + at * size_of::<QuotaEntry>()
            + offset_of!(QuotaEntry, dqb_curspace);
        debug_assert!(inside + size_of::<u64>() <= index(BLOCK), "an entry lies in its leaf");
        Ok(QuotaPatch { offset: number * BLOCK + wide(inside), value })
    }
}
