//! Check hashes of metadata, which a format sets before blocks are written.

use crate::change::Role;
use seekless_units::BlockNo;

/// The format's sealing of a block of metadata that is about to be written: check hashes, which
/// depend on the changes rolled back in the copy.
pub trait Seal: Send {
    /// `bytes` are the whole block whose first fragment is `at`; parts of it
    /// that are not in memory are zero and are not written. `owner` is the one that
    /// [`BlockCache::set_owner`](crate::BlockCache::set_owner) was given for it.
    fn seal(&self, at: BlockNo, owner: Option<Owner>, bytes: &mut [u8]);

    /// Whether a block that is changed in this role must have an owner, or be written with the seal
    /// of its former contents.
    fn needs_owner(&self, role: Role) -> bool {
        let _ = role;
        false
    }
}

/// The owner of a block: for formats whose checksums depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// The block's use to its owner, in numbers of the format.
    pub kind: u8,
    /// The number of the inode, or of another owner.
    pub number: u32,
    /// The generation of the inode.
    pub generation: u32,
}
