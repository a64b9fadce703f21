//! Counts everything in an image again: from the root down, by the reader.

use seekless_device::MemoryDevice;
use seekless_ffs::FfsImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{BlockNo, Extent, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Panics where the image is not what `fsck_ffs` would leave.
pub(crate) fn recount(device: &Arc<MemoryDevice>) {
    let image = FfsImage::open(device.clone(), OpenOptions::default()).unwrap();
    let shape = image.geometry().clone();
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut used = vec![false; shape.blocks as usize];
    let mut take = |run: Extent, who: &str| {
        for block in run.start.get()..run.end().get() {
            assert!(!used[block as usize], "{who}: fragment {block} has two owners");
            used[block as usize] = true;
        }
    };
    let mut seen = BTreeSet::new();
    let mut todo = vec![(image.root(), image.root())];
    while let Some((dir, parent)) = todo.pop() {
        assert!(seen.insert(dir), "directory {dir} has two names");
        image
            .read_dir(dir, 0, &mut |entry| {
                *links.entry(entry.ino).or_default() += 1;
                match entry.name {
                    b"." => assert_eq!(entry.ino, dir),
                    b".." => assert_eq!(entry.ino, parent),
                    _ if image.attr(entry.ino).unwrap().kind == FileKind::Directory => {
                        todo.push((entry.ino, dir));
                    }
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    for (&ino, &count) in &links {
        let attr = image.attr(ino).unwrap();
        assert_eq!(attr.nlink, count, "links of inode {ino}");
        let map = image.block_map(ino).unwrap();
        let mut frags = 0;
        for run in &map.runs {
            take(run.extent, &format!("inode {ino}"));
            frags += run.extent.len;
        }
        let per_block = u64::from(block_size(&shape.features) / shape.block_size);
        for index in &map.index {
            take(Extent::new(index.block, per_block), &format!("index of inode {ino}"));
            frags += per_block;
        }
        if let Some(at) = map.xattr_block {
            let bytes: usize = image
                .xattrs(ino)
                .unwrap()
                .iter()
                .map(|x| {
                    (7 + x.name.len() - 5).next_multiple_of(8) + x.value.len().next_multiple_of(8)
                })
                .sum();
            let mut left = (bytes as u64).div_ceil(u64::from(shape.block_size));
            // Those of one block only can be told from outside.
            assert!(left <= per_block, "attributes longer than a block");
            take(Extent::new(at, left), &format!("attributes of inode {ino}"));
            frags += std::mem::take(&mut left);
        }
        let sectors = frags * u64::from(shape.block_size) / 512;
        assert_eq!(attr.sectors, sectors, "sectors of inode {ino}");
    }
    let mut directories = BTreeMap::<GroupNo, u32>::new();
    for dir in &seen {
        *directories.entry(image.group_of(*dir)).or_default() += 1;
    }
    let mut free_frags = 0;
    let mut free_inodes = 0;
    for number in (0..shape.groups).map(GroupNo::new) {
        let group = image.group(number).unwrap();
        for fixed in &group.metadata {
            take(fixed.extent, "metadata");
        }
        free_frags += group.free_blocks;
        free_inodes += group.free_inodes;
        assert_eq!(group.directories, directories.get(&number).copied().unwrap_or(0));
        for run in group.free {
            take(run, "free");
        }
    }
    let lost = used.iter().position(|used| !used);
    assert_eq!(lost.map(|at| BlockNo::new(at as u64)), None, "neither in use nor free");
    assert_eq!(shape.free_blocks, free_frags);
    assert_eq!(shape.free_inodes, free_inodes);
    // Inodes 0 and 1 are nobody's.
    assert_eq!(shape.inodes - free_inodes - 2, links.len() as u32, "inodes in use");
}

fn block_size(features: &[String]) -> u32 {
    let size = features.iter().find_map(|feature| feature.strip_prefix("block-size="));
    size.unwrap().parse().unwrap()
}

trait Groups {
    fn group_of(&self, ino: Ino) -> GroupNo;
}

impl Groups for FfsImage {
    fn group_of(&self, ino: Ino) -> GroupNo {
        GroupNo::new(ino.get() / self.geometry().inodes_per_group)
    }
}
