//! Hashed directories: whether a lookup finds the entries of their blocks.

use crate::casefold;
use crate::dir::{Directory, for_each};
use crate::hash::name_hash;
use crate::htree;
use seekless_fs::FsError;
use seekless_units::Lbn;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Most faults that are reported for one directory.
const MOST: usize = 20;

/// A fault of a directory's index.
pub(super) struct IndexFault {
    pub(super) what: String,
    /// The fault lies in the index alone; else the index contradicts the blocks.
    pub(super) is_plain: bool,
}

/// Faults of the index of a directory that has the index flag.
pub(super) fn faults(dir: &Directory<'_>) -> Result<Vec<IndexFault>, FsError> {
    let Some(leaves) = htree::leaves(dir)? else {
        // Names whose hash needs a key are not looked at.
        let keyed = dir.folds_case() && dir.inode.has_flag(crate::ondisk::flags::ENCRYPT);
        let what = "its index has an unknown hash version or structure".to_string();
        let fault = IndexFault { what, is_plain: true };
        return Ok(if keyed { Vec::new() } else { vec![fault] });
    };
    if let Some(number) = htree::reserved(dir)? {
        let what = format!("its index has {number} in a reserved field");
        return Ok(vec![IndexFault { what, is_plain: true }]);
    }
    let in_order = leaves.leaves.iter().all(htree::Leaf::is_in_order);
    let mut faults = Vec::new();
    let mut reached: HashSet<Lbn> = leaves.index.iter().copied().collect();
    for leaf in &leaves.leaves {
        if !reached.insert(leaf.lbn) {
            faults.push(format!("block {} is referenced twice", leaf.lbn));
        } else if let Some(name) = stray(dir, leaves.version, leaf)? {
            let name = name.escape_ascii();
            faults.push(format!("`{name}` in block {} is not in the block for its hash", leaf.lbn));
        }
    }
    for lbn in dir.present()? {
        if !reached.contains(&lbn) {
            faults.push(format!("no index entry points to block {lbn}"));
        }
    }
    faults.truncate(MOST);
    Ok(faults.into_iter().map(|what| IndexFault { what, is_plain: !in_order }).collect())
}

/// Finds a name of a leaf that a lookup would not find there.
fn stray(dir: &Directory<'_>, version: u8, leaf: &htree::Leaf) -> Result<Option<Vec<u8>>, FsError> {
    let block = dir.block(leaf.lbn)?;
    let mut found = None;
    let _ = for_each(&block, dir.inodes(), dir.place(), &mut |entry| {
        let folded = if dir.folds_case() { casefold::fold(entry.name) } else { None };
        let hashed = folded.as_deref().map_or(entry.name, str::as_bytes);
        let hash = name_hash(version, dir.volume.sb.hash_seed(), hashed);
        if hash.is_some_and(|hash| leaf.holds(hash.major)) {
            return ControlFlow::Continue(());
        }
        found = Some(entry.name.to_vec());
        ControlFlow::Break(())
    })?;
    Ok(found)
}
