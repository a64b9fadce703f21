//! Input of policies besides free space: the size of flexible groups, hashes of names, and which
//! group a directory's children were last given.

use crate::hash::name_hash;
use crate::ondisk::{hash_version, incompat};
use crate::superblock::Super;
use seekless_units::{GroupNo, Ino};
use std::collections::BTreeMap;

/// Most directories whose last group is remembered.
const MOST_REMEMBERED: usize = 1 << 16;

/// Groups in a flexible group; 1 without, and for sizes that the kernel rejects
/// (`ext4_fill_flex_info`).
pub(super) fn groups_per_flex(sb: &Super) -> u32 {
    let log = u32::from(sb.raw.s_log_groups_per_flex);
    let log = if sb.has_incompat(incompat::FLEX_BG) { log } else { 0 };
    1u32.checked_shl(log).unwrap_or(1)
}

/// The hash of a name that places a directory of the root, and a file in its parent's window:
/// half-MD4 of signed bytes, for indexes of any version and signedness (`find_group_orlov`).
pub(super) fn placement_hash(sb: &Super, name: &[u8]) -> Option<u32> {
    let hash = name_hash(hash_version::HALF_MD4, sb.hash_seed(), name);
    hash.map(|hash| hash.major)
}

/// The group that was chosen last for a name in a directory (`i_last_alloc_group`), not
/// kept on the disk. The kernel forgets it when it drops the directory's inode from
/// memory; here it outlives the node, and all are forgotten when there are too many.
#[derive(Default)]
pub(super) struct LastGroups(BTreeMap<Ino, GroupNo>);

impl LastGroups {
    pub(super) fn of(&self, dir: Ino) -> Option<GroupNo> {
        self.0.get(&dir).copied()
    }

    pub(super) fn note(&mut self, dir: Ino, group: GroupNo) {
        if self.0.len() >= MOST_REMEMBERED && !self.0.contains_key(&dir) {
            self.0.clear();
        }
        self.0.insert(dir, group);
    }

    /// Forgets a deleted directory: its number may become another's.
    pub(super) fn forget(&mut self, dir: Ino) {
        self.0.remove(&dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_limit_to_what_is_remembered() {
        let mut last = LastGroups::default();
        let most = u32::try_from(MOST_REMEMBERED).unwrap();
        (0..most).for_each(|n| last.note(Ino::new(n), GroupNo::new(n % 7)));
        last.note(Ino::new(5), GroupNo::new(9));
        assert_eq!(last.of(Ino::new(5)), Some(GroupNo::new(9)));
        assert_eq!(last.of(Ino::new(6)), Some(GroupNo::new(6)));
        last.forget(Ino::new(6));
        assert_eq!(last.of(Ino::new(6)), None);
        last.note(Ino::new(6), GroupNo::new(1));
        last.note(Ino::new(most), GroupNo::new(2));
        assert_eq!(last.of(Ino::new(most)), Some(GroupNo::new(2)));
        assert_eq!(last.0.len(), 1);
    }
}
