//! Parts of older volumes that files of a new one continue: the places of names in directories, and
//! the inodes of large values of attributes.

use super::demand::TreeDemand;
use crate::dir::{Directory, entry_at};
use crate::encode::dirblocks::{DirFormat, record_len};
use crate::encode::places::{BEHIND_DOTS, OlderBlock, OlderNames, OlderNamesOfBlock};
use crate::htree::{self, Branch, DxChild};
use crate::image::ExtImage;
use seekless_fs::plan::{ObjectId, OlderFile};
use seekless_fs::{FsError, Location};
use seekless_units::{Ino, Lbn};
use std::collections::HashSet;
use std::sync::Arc;

/// The names of an older directory with their places. `None` for one whose blocks a new directory of
/// this format cannot have: another size, other checksums or hashes, a hole, inline data.
pub(crate) fn names_of(
    image: &ExtImage,
    ino: Ino,
    format: &DirFormat,
) -> Result<Option<OlderNames>, FsError> {
    let volume = image.volume();
    let sb = &volume.sb;
    if volume.block_len() != format.block_size || sb.has_metadata_csum() != format.checksums {
        return Ok(None);
    }
    let inode = volume.inodes().read_directory(ino)?;
    let dir = Directory::new(volume, &inode);
    let count = dir.blocks();
    if count == 0 || dir.present()?.len() as u64 != count {
        return Ok(None);
    }
    let is_hashed = volume.inodes().is_hashed(&inode);
    if is_hashed && !format.indexed {
        return Ok(None);
    }
    let levels = match is_hashed {
        true => {
            let place = Location::of("htree root").in_inode(ino);
            let root = dir.block(Lbn::ZERO)?;
            let Some((version, levels)) = htree::head(volume, &root, place)? else {
                return Ok(None);
            };
            if version != format.hash_version || sb.hash_seed() != format.hash_seed {
                return Ok(None);
            }
            Some(levels)
        }
        false => None,
    };
    let Some(index) = index_blocks(&dir, levels, count)? else { return Ok(None) };
    let mut blocks = Vec::new();
    for (lbn, children) in (0..).map(Lbn::new).zip(index) {
        blocks.push(match children {
            Some(children) => OlderBlock::Index(children),
            None => match entries(&dir, lbn, (format, is_hashed))? {
                Some(names) => OlderBlock::Names(names),
                None => return Ok(None),
            },
        });
    }
    Ok(Some(OlderNames { blocks, levels }))
}

/// For each block of a directory its children, if it is one of the index. `None` where the index
/// leads to a block twice, or out of the directory.
fn index_blocks(
    dir: &Directory<'_>,
    levels: Option<u8>,
    count: u64,
) -> Result<Option<Vec<Option<Vec<DxChild>>>>, FsError> {
    let mut index: Vec<Option<Vec<DxChild>>> = vec![None; count as usize];
    let mut level = vec![Lbn::ZERO];
    for depth in 0..levels.map_or(0, |levels| levels + 1) {
        let place = Location::of("htree node").in_inode(dir.inode.ino);
        let mut below = Vec::new();
        for lbn in level {
            let Some(slot) = index.get_mut(lbn.get() as usize).filter(|slot| slot.is_none()) else {
                return Ok(None);
            };
            let block = dir.block(lbn)?;
            let branch = Branch::of(dir.volume, &block, depth == 0, place)?;
            let children: Vec<DxChild> =
                (0..branch.count).map(|n| branch.child(&block, n)).collect();
            below.extend(children.iter().map(|child| child.lbn));
            *slot = Some(children);
        }
        level = below;
    }
    Ok(Some(index))
}

/// The names of a block with their offsets, without `.` and `..`. `None` if those are missing where
/// they should be, or names reach over the room for them.
fn entries(
    dir: &Directory<'_>,
    lbn: Lbn,
    (format, is_hashed): (&DirFormat, bool),
) -> Result<Option<OlderNamesOfBlock>, FsError> {
    let block = dir.block(lbn)?;
    let (mut at, mut dots, mut names) = (0, 0, Vec::new());
    while at < block.len() {
        let entry = entry_at(&block, at, dir.inodes(), dir.place())?;
        match (entry.ino, entry.name, at) {
            (Ino::ZERO, ..) => {}
            (_, b".", 0) | (_, b"..", 12) => dots += 1,
            (_, b"." | b"..", _) => return Ok(None),
            (_, name, _) if at + record_len(name.len()) > format.room() => return Ok(None),
            (_, name, _) => names.push((at, name.to_vec())),
        }
        at = entry.next;
    }
    let has_dots = lbn == Lbn::ZERO && !is_hashed;
    let are_behind = names.first().is_none_or(|&(first, _)| first >= BEHIND_DOTS);
    let is_sound = if has_dots { dots == 2 && are_behind } else { dots == 0 };
    Ok(is_sound.then_some(names))
}

/// The values of attributes in inodes of their own that older volumes have, too: the object of each,
/// and its inode there. `inodes` are those of the files of each volume.
pub(crate) fn values_of(
    images: &[Arc<ExtImage>],
    inodes: &[&[Ino]],
    demand: &TreeDemand<'_>,
) -> Result<Vec<(ObjectId, OlderFile)>, FsError> {
    let mut found = Vec::new();
    let lens: HashSet<u64> = demand.values.iter().map(|value| value.bytes.len() as u64).collect();
    let mut placed = HashSet::new();
    for (number, (image, inodes)) in images.iter().zip(inodes).enumerate() {
        let attributes = image.volume().attributes();
        let mut seen = HashSet::new();
        for &ino in inodes.iter().filter(|_| !lens.is_empty()) {
            let owner = image.volume().inodes().read(ino)?;
            for value in attributes.values(&owner)? {
                if !lens.contains(&value.len) || !seen.insert(value.ino) {
                    continue;
                }
                let bytes = attributes.value_bytes(&owner, &value)?;
                let object = demand.value_object(&bytes);
                if let Some(object) = object.filter(|&object| placed.insert(object)) {
                    let file = OlderFile { image: number, ino: value.ino, keeps_blocks: true };
                    found.push((object, file));
                }
            }
        }
    }
    Ok(found)
}
