//! The same file system laid out again: every inode and block may get another number, every byte
//! that a user can see stays.
//!
//! Fixed metadata (superblocks, descriptors, bitmaps, inode tables, journal, quota and orphan
//! files) keeps its place, so any geometry works: only files move. Directory blocks keep their
//! contents and order, with inode numbers replaced; hashes of names do not change, so an index
//! stays valid. Orphans stay orphans, under their new numbers: the next mount finishes them.
//!
//! - [`survey`]: the files of the image, and the blocks that may move
//! - [`room`]: the space for them
//! - [`orphans`]: lists of inodes that the next mount deletes
//! - [`quota`]: usage brought up to date
//! - [`write`]: the new image
//! - [`in_place`]: or the same image, in steps

mod in_place;
mod orphans;
pub(crate) mod quota;
mod room;
pub(crate) mod survey;
pub(crate) mod write;

pub use in_place::{Mover, recover};

use crate::image::ExtImage;
use crate::ondisk::{compat, flags, incompat};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::plan::{Demand, ObjectId, Plan, Rearrange, Space};
use seekless_units::{ByteLen, Ino};
use survey::Survey;

/// An image about to be laid out again.
pub struct Relayout<'a> {
    survey: Survey<'a>,
}

impl<'a> Relayout<'a> {
    /// Examines an image: all of it is checked first, since the new layout would repeat any damage.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first finding of the check that a crash
    /// does not leave; [`FsError::Corrupt`] when the image contradicts itself
    /// in another way.
    pub fn new(image: &'a ExtImage) -> Result<Self, FsError> {
        image.refuse_damage()?;
        Ok(Self { survey: Survey::new(image)? })
    }
}

/// Blocks are counted in clusters.
impl Rearrange for Relayout<'_> {
    fn demand(&self) -> &dyn Demand {
        &self.survey
    }

    fn space(&self) -> Space {
        self.survey.space()
    }

    fn object(&self, ino: Ino) -> Option<ObjectId> {
        self.survey.object(ino)
    }

    fn cluster_blocks(&self) -> u64 {
        self.survey.cluster
    }

    fn size(&self) -> ByteLen {
        let sb = &self.survey.volume.sb;
        ByteLen::new(sb.blocks * u64::from(sb.block_size))
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        write::RelayoutWriter { survey: &self.survey, plan, device, progress }.run()
    }
}

/// Whether an inode's map is an extent tree.
fn uses_extents(inode_flags: u32) -> bool {
    inode_flags & flags::EXTENTS != 0
}

/// Features under which inode numbers are part of the contents.
fn keeps_numbers(image: &ExtImage) -> bool {
    image.volume().sb.has_compat(compat::STABLE_INODES)
}

/// Whether blocks may lie beyond 32 bits.
fn is_64bit(image: &ExtImage) -> bool {
    image.volume().sb.has_incompat(incompat::BIT64)
}
