//! Heads of the groups that a volume gets.

use crate::alloc::{GroupMut, identify_head, new_head, seal_group};
use crate::superblock::{Format, Super};
use seekless_fs::FsError;
use seekless_placement::GroupSummary;
use seekless_units::GroupNo;

/// Makes the heads of new groups. Whole groups differ in little else than their numbers, so that
/// most heads are copies of the one before.
pub(super) struct NewGroups<'a> {
    sb: &'a Super,
    secs: i64,
    /// The head made last, and the number of its group.
    last: Option<(GroupNo, Vec<u8>)>,
}

/// Inodes of a new group that are written at once: on UFS2 two blocks of them, as `newfs` and
/// `growfs` do, since the engine writes others when they are first needed.
pub(super) fn written_inodes(sb: &Super) -> u32 {
    match sb.format {
        Format::Ufs1 => sb.ipg,
        Format::Ufs2 => sb.ipg.min(2 * sb.inodes_per_block()),
    }
}

impl<'a> NewGroups<'a> {
    /// Groups of a grown volume, made at a time in seconds of the epoch.
    pub(super) fn new(sb: &'a Super, secs: i64) -> Self {
        Self { sb, secs, last: None }
    }

    /// The head of a group: a block with its check hash.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a superblock whose heads have no room for their maps.
    pub(super) fn head(&mut self, number: GroupNo) -> Result<&[u8], FsError> {
        self.make(number).map(|bytes| bytes.as_slice())
    }

    /// The counts of a group.
    ///
    /// # Errors
    /// As [`NewGroups::head`].
    pub(super) fn summary(&mut self, number: GroupNo) -> Result<GroupSummary, FsError> {
        let sb = self.sb;
        let bytes = self.make(number)?;
        Ok(GroupMut::check(sb, number, bytes)?.summary())
    }

    fn make(&mut self, number: GroupNo) -> Result<&mut Vec<u8>, FsError> {
        let bytes = match self.last.take() {
            Some((model, mut bytes)) if self.is_alike(model, number) => {
                identify_head(self.sb, number, &mut bytes);
                bytes
            }
            _ => new_head(self.sb, number, written_inodes(self.sb))?,
        };
        let (_, bytes) = self.last.insert((number, bytes));
        GroupMut::check(self.sb, number, bytes)?.touch(self.secs);
        seal_group(self.sb, bytes);
        Ok(bytes)
    }

    /// Whether two groups have their metadata in the same places and the summary area in neither.
    fn is_alike(&self, one: GroupNo, other: GroupNo) -> bool {
        let shape = |number| {
            let (blocks, metadata) = (self.sb.group_blocks(number), self.sb.group_metadata(number));
            let is_plain = !blocks.overlaps(self.sb.summaries);
            is_plain.then(|| (blocks.len, metadata.start - blocks.start))
        };
        shape(one).is_some_and(|one| Some(one) == shape(other))
    }
}
