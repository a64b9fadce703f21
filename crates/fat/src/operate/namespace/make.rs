//! New files and directories.

use super::{Namespace, text};
use crate::ondisk::{self, ENTRY_SIZE, attr};
use crate::operate::chain::Chain;
use crate::operate::inodes::{DIRECTORY, FILE, WRITE};
use crate::operate::map::{Map, Node};
use crate::operate::slots::NewNames;
use seekless_cache::{Piece, Role};
use seekless_fs::field::byte;
use seekless_fs::operate::{NewFile, Ownership};
use seekless_fs::{FileKind, FsError};
use seekless_live::Ids;
use seekless_units::Ino;

impl Namespace<'_> {
    /// Makes a file. Its name may be written before anything else: an empty file has no clusters.
    pub(in crate::operate) fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        let is_dir = match new {
            NewFile::Regular => false,
            NewFile::Directory => true,
            NewFile::Symlink(_) => return Err(not_kept("symbolic links")),
            NewFile::Device(..) | NewFile::Special(_) => {
                return Err(not_kept("device nodes, pipes and sockets"));
            }
        };
        self.open_dir(dir)?;
        if matches!(name, b"." | b"..") || self.inodes.slot_of(self.core, dir, name)?.is_some() {
            return Err(FsError::Exists(text(name)));
        }
        let named = NewNames::new(self.dir(dir)?, name)?;
        let start = self.slots().find_slots(dir, named.slots(), None)?;
        let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
        let mut node = self.inodes.fresh(self.core, kind)?;
        let ino = node.ino;
        (node.links, node.effective) = (1, 1);
        node.perm = FILE;
        node.map = Map { first: 0, chain: Some(Chain::default()), attr: attr::ARCHIVE };
        let mut after = Ids::new();
        if is_dir {
            node.perm = DIRECTORY;
            node.map.attr = attr::DIRECTORY;
            (node.links, node.effective) = (2, 2);
            after = self.first_cluster(dir, &mut node)?;
        } else if owner.perm & WRITE == 0 {
            node.perm &= !WRITE;
            node.map.attr |= attr::READ_ONLY;
        }
        let slot = named.last_slot(start);
        let cached = named.entry(start, is_dir);
        after.extend(self.departures.of_names(self.core, dir, &cached));
        let entry = self.inodes.encode(&node, named.short());
        let role = if is_dir { Role::EntryAddDirectory } else { Role::EntryAdd };
        let id = self.slots().add_entry((dir, start), (&named, &entry), role, &after, None)?;
        node.pending.sized = id;
        if let Some(chain) = node.map.chain.as_ref().filter(|_| is_dir) {
            self.clusters.unnamed().note(self.core, id, chain);
        }
        let first = node.map.first;
        debug_assert!(!self.core.nodes.contains_key(&ino), "number {ino} is given once");
        self.core.nodes.insert(ino, node);
        let is_new = self.inodes.numbers_mut().claim(first, ino);
        debug_assert!(is_new, "cluster {first} begins one file");
        self.enter(dir, slot, named.slots(), cached)?;
        self.inodes.numbers_mut().settle(ino, (dir, slot));
        if is_dir {
            self.count_children(dir)?;
        }
        self.touch_dir(dir)?;
        Ok(ino)
    }

    /// The first cluster of a new directory: `.` and `..`, and its entry in the FAT. The returned
    /// changes must be on the disk before its name.
    fn first_cluster(&mut self, parent: Ino, node: &mut Node) -> Result<Ids, FsError> {
        let taken = self.clusters.take(None, 1)?;
        let first = taken.first().unwrap_or(0);
        debug_assert!(self.boot.is_cluster(first), "a directory has a cluster");
        let mut ids = self.slots().fill_clusters(&taken, ondisk::first::END)?;
        node.map.first = first;
        node.size = self.boot.cluster_bytes();
        node.sectors = node.size >> 9;
        let own = self.inodes.encode(node, *b".          ");
        let mut above = Node::empty(node.ino, FileKind::Directory);
        (above.mtime, above.atime, above.birth) = (node.mtime, node.atime, node.birth);
        above.map = Map { first: self.named_cluster(parent)?, ..node.map.clone() };
        let above = self.inodes.encode(&above, *b"..         ");
        let pieces =
            [Piece { offset: 0, bytes: &own }, Piece { offset: byte(ENTRY_SIZE), bytes: &above }];
        let sector = self.boot.sector_of(first);
        ids.push(self.core.cache.changes().change(sector, &pieces, Role::DirectoryInit, &[])?);
        ids.extend(self.clusters.put_chain(self.core, &taken)?);
        node.map.chain = Some(taken);
        Ok(ids)
    }

    /// The cluster in a `..` that leads to a directory: 0 for the root.
    pub(super) fn named_cluster(&mut self, dir: Ino) -> Result<u32, FsError> {
        let is_root = dir == crate::files::ROOT;
        Ok(if is_root { 0 } else { self.core.node(dir)?.map.first })
    }
}

fn not_kept(what: &str) -> FsError {
    FsError::NotPermitted(format!("FAT has no {what}"))
}
