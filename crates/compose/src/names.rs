//! Names of FAT volumes, which are the same in any case.

use seekless_fs::tree::{NodeId, Tree};
use std::collections::HashMap;

/// The names of a tree, without regard to case.
pub(crate) struct Names<'a> {
    tree: &'a Tree,
    /// Of directories in which a name was searched.
    folded: HashMap<NodeId, HashMap<Vec<u16>, Vec<u8>>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        Self { tree, folded: HashMap::new() }
    }

    /// A path as the source has it, as far as it has it.
    pub(crate) fn in_source(&mut self, path: &[u8]) -> Vec<u8> {
        let mut found: Vec<u8> = Vec::with_capacity(path.len());
        let mut dir = Some(NodeId::ROOT);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let here = dir.and_then(|dir| self.child(dir, name));
            let name = here.as_deref().unwrap_or(name);
            found.push(b'/');
            found.extend_from_slice(name);
            dir = dir.and_then(|dir| match name {
                b"." => Some(dir),
                b".." => Some(self.tree.parent(dir)),
                _ => self.tree.child(dir, name).map(|entry| entry.node),
            });
        }
        found
    }

    /// A directory's own spelling of a name that it does not have as it stands.
    fn child(&mut self, dir: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        if self.tree.child(dir, name).is_some() {
            return None;
        }
        let tree = self.tree;
        let names = self.folded.entry(dir).or_insert_with(|| {
            let all = tree.children(dir).iter().map(|entry| tree.name(entry));
            all.filter_map(|name| Some((seekless_fat::fold_name(name)?, name.to_vec()))).collect()
        });
        names.get(&seekless_fat::fold_name(name)?).cloned()
    }
}
