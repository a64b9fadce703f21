//! Extended attributes: blocks of them, which files may share, and inodes that
//! hold large values.

use super::Checker;
use super::fix::{Fix, Stage};
use crate::inode::Inode;
use crate::ondisk::flags;
use crate::xattr::{AttributeFault, names_its_owner};
use seekless_fs::{FsError, Location};
use seekless_units::{Extent, Ino};

/// A block of attributes.
pub(super) struct SharedBlock {
    /// Its reference count (`h_refcount`).
    pub(super) count: u32,
    /// Files that lead to it.
    pub(super) found: u32,
    /// The first of them.
    pub(super) owner: Ino,
}

impl Checker {
    /// Checks an inode's attributes; returns the clusters that they add to `i_blocks`.
    pub(super) fn attributes(&mut self, inode: &Inode) -> Result<u64, FsError> {
        let place = Location::of("attributes").in_inode(inode.ino);
        let values = self.sound(self.volume.xattr_values(inode), "inode.attributes", place)?;
        if values.is_none() {
            self.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        if values.is_some()
            && let Some((fault, at)) = self.volume.xattr_fault(inode)?
        {
            let (expected, what) = match fault {
                AttributeFault::Hash => (true, "the hash of an attribute does not match it"),
                AttributeFault::Collision => (false, "attributes overlap"),
                AttributeFault::Name => (false, "an attribute has no name space"),
            };
            self.graded(expected, "inode.attributes", what.to_string(), at);
            self.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        let strict = self.strict.xattr_values(inode);
        if self.checksum(strict, "inode.attributes-checksum", place)? {
            self.fix(Stage::Inodes, Fix::SealAttributes(inode.ino));
        }
        let mut clusters = 0u64;
        let cluster = (u64::from(self.sb().block_size) * u64::from(self.sb().cluster_ratio)).max(1);
        for (ino, len) in values.unwrap_or_default() {
            let times = self.values.entry(ino).or_default();
            *times += 1;
            let holder = match self.volume.inode(ino) {
                Ok(holder) => Some(holder).filter(|holder| holder.has_flag(flags::EA_INODE)),
                Err(FsError::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
            match holder {
                Some(holder) if names_its_owner(&holder, inode) => {}
                Some(_) => clusters += len.div_ceil(cluster),
                None if self.is_lost(ino) => {}
                None => {
                    let what = format!(
                        "its value should be in inode {ino}, which is not an attribute inode"
                    );
                    self.unexpected("inode.attributes", what, place);
                    self.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
                }
            }
        }
        let Some(block) = self.volume.xattr_block_of(inode) else { return Ok(clusters) };
        if let Some(shared) = self.shared.get_mut(&block) {
            shared.found += 1;
        } else if self.volume.check_block(block, place).is_ok() {
            self.claim_shared(Extent::new(block, 1), inode.ino);
            // A block that cannot be read was reported above.
            if let Ok(Some(count)) = self.volume.xattr_block_count(inode) {
                let shared = SharedBlock { count, found: 1, owner: inode.ino };
                self.shared.insert(block, shared);
            }
        } else {
            let what = format!("attribute block {block} is outside the volume");
            self.unexpected("inode.block-range", what, place);
            self.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
            return Ok(clusters);
        }
        Ok(clusters + 1)
    }
}
