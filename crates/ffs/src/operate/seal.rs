//! Check hashes, renewed in blocks that are about to be written.

use crate::alloc::seal_group;
use crate::checksum::crc32c;
use crate::ondisk::{Dinode2, check_hash};
use crate::superblock::{Format, Super};
use seekless_cache::{Owner, Seal};
use seekless_fs::field::index;
use seekless_units::{BlockNo, GroupNo};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::byteorder::LE;

/// Renews the hashes of groups and inodes.
pub(super) struct Sealer(Arc<Super>);

impl Sealer {
    /// `None` where the volume has no such hashes.
    pub(super) fn of(sb: &Arc<Super>) -> Option<Box<dyn Seal>> {
        let bits = [check_hash::GROUP, check_hash::INODE];
        let needed = bits.iter().any(|&bit| sb.has_check_hash(bit));
        needed.then(|| -> Box<dyn Seal> { Box::new(Self(Arc::clone(sb))) })
    }
}

impl Seal for Sealer {
    fn seal(&self, at: BlockNo, _: Option<Owner>, bytes: &mut [u8]) {
        let sb = &self.0;
        let group = at.get() / u64::from(sb.fpg);
        let group = GroupNo::new(u32::try_from(group).unwrap_or(u32::MAX));
        if sb.in_group(group, sb.cblkno) == at {
            seal_group(sb, bytes);
            return;
        }
        let inodes = sb.in_group(group, sb.iblkno)..sb.in_group(group, sb.dblkno);
        let hashed = sb.format == Format::Ufs2 && sb.has_check_hash(check_hash::INODE);
        if !hashed || !inodes.contains(&at) {
            return;
        }
        debug_assert!(bytes.len().is_multiple_of(index(sb.inode_size())), "whole inodes");
        for inode in bytes.chunks_exact_mut(index(sb.inode_size())) {
            if inode.iter().any(|&byte| byte != 0) {
                let at = offset_of!(Dinode2<LE>, di_ckhash);
                sb.order.put_u32(inode, at, 0);
                let hash = crc32c(inode);
                sb.order.put_u32(inode, at, hash);
            }
        }
    }
}
