//! Volumes that begin with the same layers: each layer lies behind those below it, where it lies in
//! every volume that begins with these layers.
//!
//! The layout of the first layer alone is the base of that of the first two, and so on. Nothing but
//! the layers and the options decides on it.

use crate::freed::Freed;
use crate::kept::by_path;
use seekless_fs::FileKind;
use seekless_fs::plan::{Base, NewVolume, ObjectId, Plan};
use seekless_fs::source::Source;
use seekless_fs::tree::NodeId;
use seekless_units::{BlockNo, Extent, Ino};
use std::borrow::Cow;
use std::collections::HashMap;

/// Inode numbers that stay free between the directories of the first layer and its files, so that
/// few blocks of the inode table have all inodes that further layers change and add: in blocks of
/// 4096 bytes, 16 of inodes of 256 bytes.
const INODE_RESERVE: u32 = 256;

/// The base of the first layer: nothing has a place.
pub(crate) fn first() -> Base {
    Base { inode_reserve: Some(INODE_RESERVE), ..Base::default() }
}

/// The layout of the layers below, for a volume with one layer more: `old` has the files of the
/// layers below, `new` those of all. New contents begin at a multiple of `align` blocks.
///
/// Files that the new layer replaces keep their numbers only. So do, if freed blocks keep their
/// bytes, the directories that it changes.
pub(crate) fn base(
    (old, old_volume, plan): (&dyn Source, &dyn NewVolume, &Plan),
    (new, volume): (&dyn Source, &dyn NewVolume),
    align: u64,
    freed: Freed,
) -> Base {
    let (tree, below) = (new.tree(), old.tree());
    let mut same: Vec<Option<NodeId>> = vec![None; tree.nodes().len()];
    by_path(tree, below, |node, own| {
        let slot = &mut same[node.index()];
        *slot = slot.or(Some(own));
    });
    let mut objects: HashMap<ObjectId, ObjectId> = HashMap::new();
    let old_paths: HashMap<Cow<'_, [u8]>, ObjectId> =
        old_volume.added_paths().into_iter().collect();
    for (path, object) in volume.added_paths() {
        if let Some(&own) = old_paths.get(&path) {
            objects.insert(object, own);
        }
    }
    let (demand, old_demand) = (volume.demand(), old_volume.demand());
    let is_replaced = |node: NodeId, own: NodeId| {
        let (new, old) = (tree.node(node), below.node(own));
        new.kind == FileKind::Regular && (new.size, new.mtime) != (old.size, old.mtime)
    };
    let is_changed = |node: NodeId, own: NodeId| {
        let (entries, old) = (tree.children(node), below.children(own));
        entries.len() != old.len()
            || entries.iter().zip(old).any(|(entry, old)| {
                tree.name(entry) != below.name(old) || same[entry.node.index()] != Some(old.node)
            })
    };
    let mut base = first();
    base.keeps_freed = freed == Freed::Keep;
    for at in 0..demand.objects() {
        let object = ObjectId::new(at as u32);
        let node = same.get(at).copied().flatten();
        let of_node = node.map(|node| ObjectId::new(node.index() as u32));
        let Some(own) = of_node.or_else(|| objects.get(&object).copied()) else {
            base.plan.push(Ino::ZERO, [], []);
            continue;
        };
        let moves = node.is_some_and(|own| {
            let node = NodeId::new(at as u32);
            is_replaced(node, own) || base.keeps_freed && is_changed(node, own)
        });
        let attributes = old_demand.attribute_blocks(own) > 0;
        let wanted = demand.attribute_blocks(object) > 0;
        let blocks = plan.overhead(own).skip(usize::from(attributes && !wanted));
        let overhead = blocks.filter(|_| !moves).map(|block| Extent::new(block, 1));
        let data = plan.data(own).iter().copied().filter(|_| !moves);
        base.plan.push(plan.inodes[own.index()], data, overhead);
    }
    base.used = plan.extents();
    base.begin = base.used.last().map(|last| {
        let end = last.end().get();
        BlockNo::new(end.next_multiple_of(align))
    });
    base
}
