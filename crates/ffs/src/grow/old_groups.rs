//! Heads of the groups that a volume has already: verified, and changed.

use crate::alloc::{GroupMut, count_maps, identify_head, seal_group};
use crate::group::verify_group;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, low32};
use seekless_fs::{FsError, Location};
use seekless_placement::GroupSummary;
use seekless_units::{Extent, GroupNo};

fn place(number: GroupNo) -> Location {
    Location::of("cylinder group").in_group(number)
}

/// The head of a group of the volume.
pub(super) struct OldHead {
    pub(super) number: GroupNo,
    bytes: Vec<u8>,
}

impl OldHead {
    /// Reads the head of a group, of which nothing contradicts the format, and of which `listed` is
    /// the entry in the summary area.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for damage; errors of the device.
    pub(super) fn read(
        volume: &Volume,
        number: GroupNo,
        listed: GroupSummary,
    ) -> Result<Self, FsError> {
        let sb = &volume.sb;
        let mut bytes = vec![0; index(sb.bsize)];
        volume.read_bytes(sb.in_group(number, sb.cblkno), 0, &mut bytes)?;
        verify_group(sb, &bytes, number)?;
        let group = GroupMut::check(sb, number, &mut bytes)?;
        let no = |field, value| Err(invalid(field, value, place(number)));
        if let Some((field, at)) = group.misplaced_map() {
            return no(field, at);
        }
        if let Some(field) = group.wrong_field() {
            return no(field, 0);
        }
        if group.has_strays() || !group.rotors_are_within() {
            return no("maps and rotors", u64::from(number.get()));
        }
        let (stored, summary) = (group.stored_counts(), group.summary());
        if summary != listed {
            return no("cg_cs", u64::from(summary.nbfree));
        }
        let mut recounted = bytes.clone();
        let mut group = GroupMut::check(sb, number, &mut recounted)?;
        count_maps(&mut group);
        if group.stored_counts() != stored || !same_clusters(sb, number, &bytes, &recounted)? {
            return no("cg_frsum", u64::from(stored.free_frags));
        }
        Ok(Self { number, bytes })
    }

    /// Refuses a head that has a fragment of a run, which is in use, as free.
    pub(super) fn refuse_free(&mut self, sb: &Super, run: Extent) -> Result<(), FsError> {
        let number = self.number;
        let start = sb.group_blocks(number).start;
        let group = GroupMut::check(sb, number, &mut self.bytes)?;
        let mut blocks = run.start.get()..run.end().get();
        match blocks.find(|block| group.fragment_is_free(low32(block - start.get()))) {
            Some(block) => Err(invalid("cg_blksfree", block, place(number))),
            None => Ok(()),
        }
    }

    /// Makes the fragments free that the group of the grown volume has behind those it had, but for
    /// the summary area.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a superblock whose heads have no room for their maps.
    pub(super) fn extend(&mut self, old: &Super, new: &Super) -> Result<(), FsError> {
        let blocks = new.group_blocks(self.number);
        let added = old.group_blocks(self.number).len..blocks.len;
        identify_head(new, self.number, &mut self.bytes);
        let mut group = GroupMut::check(new, self.number, &mut self.bytes)?;
        for at in added {
            let is_free = !new.summaries.contains(blocks.start + at);
            group.set_fragment_free(low32(at), is_free);
        }
        count_maps(&mut group);
        Ok(())
    }

    /// Makes a run of fragments free.
    ///
    /// # Errors
    /// As [`OldHead::extend`].
    pub(super) fn free(&mut self, sb: &Super, run: Extent) -> Result<(), FsError> {
        let start = sb.group_blocks(self.number).start;
        let mut group = GroupMut::check(sb, self.number, &mut self.bytes)?;
        for block in run.start.get()..run.end().get() {
            group.set_fragment_free(low32(block - start.get()), true);
        }
        count_maps(&mut group);
        Ok(())
    }

    /// The group's counts.
    ///
    /// # Errors
    /// As [`OldHead::extend`].
    pub(super) fn summary(&self, sb: &Super) -> Result<GroupSummary, FsError> {
        let mut bytes = self.bytes.clone();
        Ok(GroupMut::check(sb, self.number, &mut bytes)?.summary())
    }

    /// The bytes to be written, with their time and check hash.
    ///
    /// # Errors
    /// As [`OldHead::extend`].
    pub(super) fn sealed(&self, sb: &Super, secs: i64) -> Result<Vec<u8>, FsError> {
        let mut bytes = self.bytes.clone();
        GroupMut::check(sb, self.number, &mut bytes)?.touch(secs);
        seal_group(sb, &mut bytes);
        Ok(bytes)
    }

    /// The same head, for a further change.
    pub(super) fn copy(&self) -> Self {
        Self { number: self.number, bytes: self.bytes.clone() }
    }
}

/// Whether two heads of a group have the same map of free blocks.
fn same_clusters(sb: &Super, number: GroupNo, one: &[u8], other: &[u8]) -> Result<bool, FsError> {
    let (mut one, mut other) = (one.to_vec(), other.to_vec());
    let one = GroupMut::check(sb, number, &mut one)?;
    let other = GroupMut::check(sb, number, &mut other)?;
    let blocks = low32(sb.group_blocks(number).len / u64::from(sb.frag));
    Ok((0..blocks).all(|at| one.block_is_free(at) == other.block_is_free(at)))
}
