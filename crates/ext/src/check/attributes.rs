//! Extended attributes: blocks of them, which files may share, and inodes that
//! hold large values.

use super::checker::SharedBlock;
use super::fix::{Fix, Stage};
use super::inodes::InodePass;
use super::problems;
use crate::inode::Inode;
use crate::ondisk::flags;
use crate::xattr::{AttributeFault, names_its_owner};
use seekless_fs::{FsError, Location};
use seekless_units::Extent;

impl InodePass<'_> {
    /// Checks an inode's attributes; returns the clusters that they add to `i_blocks`.
    pub(super) fn attributes(&mut self, inode: &Inode) -> Result<u64, FsError> {
        let place = Location::of("attributes").in_inode(inode.ino);
        let values = self.checker.sound(
            self.checker.volume.attributes().values(inode),
            problems::INODE_ATTRIBUTES,
            place,
        )?;
        if values.is_none() {
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        if values.is_some()
            && let Some((fault, at)) = self.checker.volume.attributes().fault(inode)?
        {
            let (expected, what) = match fault {
                AttributeFault::Hash => (true, "the hash of an attribute does not match it"),
                AttributeFault::Collision => (false, "attributes overlap"),
                AttributeFault::Name => (false, "an attribute has no name space"),
            };
            self.checker.graded(expected, problems::INODE_ATTRIBUTES, what.to_string(), at);
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        let strict = self.checker.strict.attributes().values(inode);
        if self.checker.checksum(strict, problems::INODE_ATTRIBUTES_CHECKSUM, place)? {
            self.checker.fix(Stage::Inodes, Fix::SealAttributes(inode.ino));
        }
        let mut clusters = 0u64;
        let cluster = (u64::from(self.checker.sb().block_size)
            * u64::from(self.checker.sb().cluster_ratio))
        .max(1);
        for (ino, len) in values.unwrap_or_default() {
            let times = self.checker.values.entry(ino).or_default();
            *times += 1;
            let holder = match self.checker.volume.inodes().read(ino) {
                Ok(holder) => Some(holder).filter(|holder| holder.has_flag(flags::EA_INODE)),
                Err(FsError::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
            match holder {
                Some(holder) if names_its_owner(&holder, inode) => {}
                Some(_) => clusters += len.div_ceil(cluster),
                None if self.checker.is_lost(ino) => {}
                None => {
                    let what = format!(
                        "its value should be in inode {ino}, which is not an attribute inode"
                    );
                    self.checker.unexpected(problems::INODE_ATTRIBUTES, what, place);
                    self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
                }
            }
        }
        let Some(block) = self.checker.volume.inodes().xattr_block_of(inode) else {
            return Ok(clusters);
        };
        if let Some(shared) = self.checker.shared.get_mut(&block) {
            shared.found += 1;
        } else if self.checker.volume.check_block(block, place).is_ok() {
            self.claim_shared(Extent::new(block, 1), inode.ino);
            // A block that cannot be read was reported above.
            if let Ok(Some(count)) = self.checker.volume.attributes().block_count(inode) {
                let shared = SharedBlock { count, found: 1, owner: inode.ino };
                self.checker.shared.insert(block, shared);
            }
        } else {
            let what = format!("attribute block {block} is outside the volume");
            self.checker.found(problems::INODE_BLOCK_RANGE, what, place);
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
            return Ok(clusters);
        }
        Ok(clusters + 1)
    }
}
