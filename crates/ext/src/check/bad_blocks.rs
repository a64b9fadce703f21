//! Pass 1, the list of bad blocks: those that the volume's own metadata lie in (e2fsck,
//! `process_bad_block` and `handle_fs_bad_blocks`).

use super::fix::{Fix, Stage};
use super::inodes::{InodePass, place};
use super::problems;
use crate::inode::Inode;
use crate::ondisk::special;
use crate::part::Part;
use seekless_fs::extents::union;
use seekless_fs::{FsError, Location};
use seekless_units::{Extent, GroupNo, Ino};

/// Checks the list of bad blocks.
pub(super) struct BadBlockCheck<'w, 'a> {
    pass: &'w mut InodePass<'a>,
}

impl<'w, 'a> BadBlockCheck<'w, 'a> {
    /// As a part of the pass over inodes.
    pub(super) fn of(pass: &'w mut InodePass<'a>) -> Self {
        Self { pass }
    }

    /// Compares the list of bad blocks, whose blocks are claimed, with the metadata. Copies of the
    /// superblock may lie in them, and inodes in them are not used.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn metadata(&mut self, inode: &Inode) -> Result<(), FsError> {
        let volume = &self.pass.checker.volume;
        let bad = match volume.maps().blocks_of_any_kind(inode) {
            // It was reported with the map.
            Err(FsError::Corrupt { .. }) => return Ok(()),
            bad => union(bad?),
        };
        let is_bad = |run: Extent| {
            let next = bad.partition_point(|it| it.end() <= run.start);
            bad.get(next).is_some_and(|it| it.overlaps(run))
        };
        let is_primary = volume.descriptors().copies(GroupNo::ZERO).into_iter().any(is_bad);
        let mut lost = Vec::new();
        for number in (0..volume.sb.groups).map(GroupNo::new) {
            let group = volume.descriptors().read(number)?;
            for part in [Part::BlockBitmap, Part::InodeBitmap] {
                let run = part.of(&group, 1);
                if is_bad(run) && !self.pass.checker.is_lost_part(number, part) {
                    lost.push((number, part, run.start));
                }
            }
        }
        // A list that cannot be read was reported just now.
        let unusable = volume.inodes().in_bad_blocks().unwrap_or_default();
        if unusable.first() == Some(&Ino::new(special::BAD_BLOCKS)) {
            let what = "the list of bad blocks has the block of its own inode".to_string();
            self.pass.checker.unexpected(problems::INODE_RESERVED, what, place(inode.ino));
            self.pass.checker.fix(Stage::Inodes, Fix::Clear(inode.ino));
            return Ok(());
        }
        self.pass.checker.unusable = unusable;
        if is_primary {
            let what = "the list of bad blocks has blocks of the primary superblock or descriptors";
            self.pass.checker.unexpected(
                problems::INODE_RESERVED,
                what.to_string(),
                place(inode.ino),
            );
            self.pass.checker.fix(Stage::Inodes, Fix::Map(inode.ino));
        }
        for (number, part, at) in lost {
            let what = format!("its {} at {at} is a bad block", part.name());
            let place = Location::of("group descriptor").in_group(number);
            self.pass.checker.unexpected(problems::GROUP_HEAD, what, place);
            self.pass.checker.fix(Stage::Parts, Fix::Place(number, part));
        }
        Ok(())
    }
}
