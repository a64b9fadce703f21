//! Extended attributes: blocks of them, which files may share, and inodes that
//! hold large values.

use super::checker::SharedBlock;
use super::fix::{Fix, Stage};
use super::inodes::{AttributeCost, InodePass};
use super::problems;
use crate::inode::Inode;
use crate::ondisk::{flags, special};
use crate::xattr::{AttributeFault, LargeValue, names_its_owner};
use seekless_fs::{FsError, Location};
use seekless_units::Extent;

impl InodePass<'_> {
    /// Checks an inode's attributes. Returns the clusters and inodes that they add to `i_blocks` and to
    /// quotas.
    pub(super) fn attributes(&mut self, inode: &Inode) -> Result<AttributeCost, FsError> {
        let place = Location::of("attributes").in_inode(inode.ino);
        if !self.checker.volume.attributes().may_be_in(inode) {
            return Ok(AttributeCost::default());
        }
        let values = self.checker.sound(
            self.checker.volume.attributes().values(inode),
            problems::INODE_ATTRIBUTES,
            place,
        )?;
        let fault = match &values {
            Some(_) => self.checker.volume.attributes().fault(inode)?,
            None => None,
        };
        let is_lost = values.is_none() || fault.is_some();
        if is_lost {
            self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        }
        if let Some((fault, at)) = fault {
            let (expected, what) = match fault {
                AttributeFault::Hash => (true, "the hash of an attribute does not match it"),
                AttributeFault::Collision => (false, "attributes overlap"),
                AttributeFault::Name => (false, "an attribute has no name space"),
            };
            self.checker.graded(expected, problems::INODE_ATTRIBUTES, what.to_string(), at);
        }
        let block = self.checker.volume.inodes().xattr_block_of(inode);
        // Only a block has a checksum. Attributes that are dropped need none.
        if !is_lost
            && block.is_some()
            && self.checker.checksum(
                self.checker.strict.attributes().values(inode),
                problems::INODE_ATTRIBUTES_CHECKSUM,
                place,
            )?
        {
            self.checker.fix(Stage::Inodes, Fix::SealAttributes(inode.ino));
        }
        let mut cost = AttributeCost::default();
        let cluster = (u64::from(self.checker.sb().block_size)
            * u64::from(self.checker.sb().cluster_ratio))
        .max(1);
        for value in values.unwrap_or_default() {
            if let Some(holder) = self.holder(inode, &value)? {
                *self.checker.values.entry(value.ino).or_default() += 1;
                cost.inodes += 1;
                if !names_its_owner(&holder, inode) {
                    cost.clusters += value.len.div_ceil(cluster);
                }
            }
        }
        let Some(block) = block else { return Ok(cost) };
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
            return Ok(cost);
        }
        cost.clusters += 1;
        Ok(cost)
    }

    /// The inode with a value of an inode's attribute; `None` where the value is lost, which is
    /// reported (e2fsck, `check_large_ea_inode`).
    fn holder(&mut self, inode: &Inode, value: &LargeValue) -> Result<Option<Inode>, FsError> {
        let place = Location::of("attributes").in_inode(inode.ino);
        let (ino, sb) = (value.ino, self.checker.sb());
        let is_ordinary = !sb.is_own(ino) && ino.get() != special::ROOT;
        let holder = match self.checker.volume.inodes().read(ino) {
            Ok(holder) => Some(holder).filter(|_| is_ordinary),
            Err(FsError::Corrupt { .. }) if self.checker.is_lost(ino) => return Ok(None),
            Err(FsError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let is_marked = holder.as_ref().is_some_and(|it| it.has_flag(flags::EA_INODE));
        let what = match holder {
            Some(holder) if value.is_in(&holder) || names_its_owner(&holder, inode) => {
                if !is_marked {
                    let what = format!("inode {ino} with a value is not marked as such");
                    self.checker.expected(problems::INODE_ATTRIBUTES, what, place);
                    self.checker.fix(Stage::Inodes, Fix::MarkValue(ino));
                }
                return Ok(Some(holder));
            }
            Some(_) if is_marked => "does not match the hash of the attribute",
            _ => "is not an attribute inode",
        };
        let what = format!("its value should be in inode {ino}, which {what}");
        self.checker.expected(problems::INODE_ATTRIBUTES, what, place);
        self.checker.fix(Stage::Inodes, Fix::DropAttributes(inode.ino));
        Ok(None)
    }
}
