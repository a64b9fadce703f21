//! Usage of users and groups, counted from the inodes.

use crate::inode::Inode;
use crate::ondisk::ROOT;
use crate::superblock::Super;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, slice, truncated};
use seekless_fs::{FsError, Location};
use seekless_live::{QuotaKind, Usage};
use seekless_units::{ByteLen, GroupNo, Ino};
use std::collections::BTreeMap;

/// Usage by owners.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    users: BTreeMap<u32, Usage>,
    groups: BTreeMap<u32, Usage>,
}

impl Counted {
    /// Counts the usage of all owners, without snapshots and quota files (`chkquota` of FreeBSD's
    /// `quotacheck`). `in_use` tells whether an inode of a group is in use.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for damaged inodes; errors of the device and of `in_use`.
    pub(crate) fn of(
        sb: &Super,
        device: &dyn BlockDevice,
        quota_files: &[Ino],
        in_use: &mut dyn FnMut(GroupNo, u32) -> Result<bool, FsError>,
    ) -> Result<Self, FsError> {
        let mut counted = Self::default();
        let (per_block, len) = (sb.inodes_per_block(), index(sb.inode_size()));
        let mut block = vec![0; index(sb.bsize)];
        for group in (0..sb.ncg).map(GroupNo::new) {
            for first in (0..sb.ipg).step_by(index(per_block)) {
                let mut used = Vec::new();
                for slot in first..sb.ipg.min(first + per_block) {
                    if in_use(group, slot)? {
                        used.push(Ino::new(group.get() * sb.ipg + slot));
                    }
                }
                let used = used.into_iter().filter(|ino| ino.get() >= ROOT);
                for (n, ino) in used.enumerate() {
                    let place = sb.inode_place(ino)?;
                    if n == 0 {
                        let at = place.block.get() * u64::from(sb.fsize);
                        device.read_bytes(ByteLen::new(at), &mut block)?;
                    }
                    let lost = || truncated(Location::of("inode").in_inode(ino));
                    let bytes = slice(&block, place.skip, len).ok_or_else(lost)?;
                    let inode = Inode::decode(sb, ino, bytes)?;
                    let is_file = inode.mode() != 0 && !inode.is_snapshot();
                    if is_file && !quota_files.contains(&ino) {
                        counted.add(&inode);
                    }
                }
            }
        }
        Ok(counted)
    }

    fn add(&mut self, inode: &Inode) {
        // Ids that would be negative are not counted (`quotacheck`).
        if i32::try_from(inode.uid).is_err() || i32::try_from(inode.gid).is_err() {
            return;
        }
        for (usage, id) in [(&mut self.users, inode.uid), (&mut self.groups, inode.gid)] {
            let usage = usage.entry(id).or_default();
            usage.sectors = usage.sectors.saturating_add(inode.sectors());
            usage.inodes += 1;
        }
    }

    /// The usage of users or of groups.
    pub(crate) fn of_kind(&self, kind: QuotaKind) -> &BTreeMap<u32, Usage> {
        match kind {
            QuotaKind::User => &self.users,
            QuotaKind::Group => &self.groups,
        }
    }
}
