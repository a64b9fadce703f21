//! Names made and removed.

pub(crate) mod rename;

use crate::action::Action;
use crate::directories::entries::EntryUnit;
use crate::fault::Fault;
use crate::link_order::{LinkOrder, OrderedLinks};
use crate::node::Node;
use crate::volume::parents::note_parent;
use crate::{Codec, Contents, Entry, Ids, Linked, Live};
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::field::wide;
use seekless_fs::operate::{NewFile, Ownership};
use seekless_fs::{FileKind, FsError, Location, Xattr};
use seekless_units::{BlockNo, Ino};

/// Set-group-id.
const SETGID: u16 = 0o2000;

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) fn not_found(name: &[u8]) -> FsError {
    FsError::NotFound(text(name))
}

/// The kind of a new file.
fn kind_of(new: &NewFile<'_>) -> FileKind {
    match new {
        NewFile::Regular => FileKind::Regular,
        NewFile::Directory => FileKind::Directory,
        NewFile::Symlink(_) => FileKind::Symlink,
        NewFile::Device(kind, _) | NewFile::Special(kind) => *kind,
    }
}

/// Names made and removed: those of files, and the links that count them. The new name of a file
/// comes first, then the old one goes.
pub(crate) struct Namespace<'a, F: Linked> {
    live: &'a mut Live<F>,
}

impl<'a, F: OrderedLinks> Namespace<'a, F> {
    /// The names of an image in use.
    pub(crate) fn new(live: &'a mut Live<F>) -> Self {
        Self { live }
    }
}

impl<F: OrderedLinks> Namespace<'_, F> {
    /// Refuses invalid new names.
    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), FsError> {
        let limit = self.live.volume.format.limits().name_max;
        if name.len() > limit {
            return Err(FsError::NameTooLong { len: name.len(), limit });
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(FsError::Invalid(format!("{:?} is not a valid file name", text(name))));
        }
        Ok(())
    }

    /// A directory that names may be added to.
    pub(crate) fn open_dir(&mut self, dir: Ino) -> Result<&mut Node<F::Map>, FsError> {
        let node = self.live.volume.dir_node(dir)?;
        if node.effective == 0 {
            return Err(crate::gone(dir));
        }
        if node.restrictions.immutable {
            return Err(FsError::NotPermitted(format!("inode {dir} is immutable")));
        }
        Ok(node)
    }

    /// A directory that names may be taken from.
    pub(crate) fn open_dir_to_remove(&mut self, dir: Ino) -> Result<(), FsError> {
        if self.open_dir(dir)?.restrictions.append_only {
            return Err(FsError::NotPermitted(format!("inode {dir} can only be appended to")));
        }
        Ok(())
    }

    pub(crate) fn make_file(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        self.check_name(name)?;
        let limits = *self.live.volume.format.limits();
        self.open_dir(dir)?;
        if self.live.directories().find(dir, name)?.is_some() || matches!(name, b"." | b"..") {
            return Err(FsError::Exists(text(name)));
        }
        if matches!(new, NewFile::Directory) {
            self.check_child(dir)?;
        }
        if let NewFile::Symlink(target) = new
            && (target.is_empty() || target.len() > limits.target_max)
        {
            return Err(FsError::NameTooLong { len: target.len(), limit: limits.target_max });
        }
        self.live.volume.format.check_new(new)?;
        let inherited = self.live.volume.inherited(dir, new, owner.perm)?;
        let owner = Ownership { perm: inherited.perm, ..owner };
        let spot = self.live.directories().reserve(dir, name)?;
        let is_directory = matches!(new, NewFile::Directory);
        let (ino, bitmap) = self.live.volume.format.take_inode(
            &mut self.live.volume.core,
            dir,
            name,
            is_directory,
        )?;
        match self.make_inode(dir, ino, new, owner) {
            Ok(mut contents) => {
                contents.after.push(bitmap);
                self.publish(dir, name, &spot, ino, &contents, &inherited.lists)?;
            }
            Err(error) => {
                self.live.volume.core.nodes.remove(&ino);
                self.live.volume.format.give_inode(
                    &mut self.live.volume.core,
                    ino,
                    is_directory,
                )?;
                return Err(error);
            }
        }
        Ok(ino)
    }

    /// The node of a new file, with its contents; nothing leads there yet.
    fn make_inode(
        &mut self,
        dir: Ino,
        ino: Ino,
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Contents, FsError> {
        let now = self.live.volume.core.now();
        let parent = self.live.volume.dir_node(dir)?;
        let (gid, handed_down) = match parent.perm & SETGID {
            0 => (owner.gid, 0),
            _ => (parent.gid, SETGID),
        };
        let depth = parent.depth + 1;
        let kind = kind_of(new);
        let mut node = Node::empty(ino, kind);
        node.perm = owner.perm & 0o7777;
        (node.uid, node.gid) = (owner.uid, gid);
        (node.links, node.effective) = (1, 1);
        (node.atime, node.mtime, node.ctime) = (now, now, now);
        if kind == FileKind::Directory {
            node.perm |= handed_down;
            node.depth = depth;
            (node.links, node.effective) = (2, 2);
        }
        if let NewFile::Device(_, number) = new {
            node.device = *number;
        }
        self.live.volume.core.admit_inode(node.uid, node.gid)?;
        self.live.volume.format.fit_new(&mut self.live.volume.core, dir, &mut node, new)?;
        self.live.volume.core.nodes.insert_new(ino, node);
        match new {
            NewFile::Directory => {
                let unit = self.first_unit(ino, dir);
                self.first_block(ino, &unit, Role::DirectoryInit)
            }
            NewFile::Symlink(target) => self.store_target(ino, target),
            _ => Ok(Contents::default()),
        }
    }

    fn store_target(&mut self, ino: Ino, target: &[u8]) -> Result<Contents, FsError> {
        if self.live.volume.format.keeps_in_inode(target) {
            let node = self.live.volume.node(ino)?;
            node.size = wide(target.len());
            node.target = Some(target.into());
            return Ok(Contents::default());
        }
        self.first_block(ino, target, Role::Data)
    }

    /// The first block of a new file, with bytes in it.
    fn first_block(&mut self, ino: Ino, bytes: &[u8], role: Role) -> Result<Contents, FsError> {
        let mut fill = |to: &mut [u8]| to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        self.live.volume.format.first_block(
            &mut self.live.volume.core,
            ino,
            bytes.len(),
            role,
            &mut fill,
        )
    }

    /// The first unit of a new directory: `.` and `..`, in the place of the first
    /// entry that is not used.
    fn first_unit(&self, ino: Ino, parent: Ino) -> Vec<u8> {
        let mut unit = vec![0; self.live.volume.format.limits().dir_unit];
        let codec = self.live.volume.format.codec();
        codec.blank(&mut unit);
        let first = codec.entries(&unit, Location::of("directory").in_inode(ino)).next();
        let len = first.and_then(Result::ok).map_or(0, |first| first.len);
        debug_assert!(len > 0, "a unit begins with an entry");
        let own = F::Codec::needed(1);
        let rest = len.saturating_sub(own);
        let kind = codec.code_of(FileKind::Directory);
        for (at, len, ino, name) in [(0, own, ino, &b"."[..]), (own, rest, parent, b"..")] {
            let needed = F::Codec::needed(name.len());
            let entry = Entry { at, len, needed, ino, kind, is_name: true, name };
            codec.put(&mut unit, &entry);
        }
        unit
    }

    /// Lets a name lead to a new inode.
    fn publish(
        &mut self,
        dir: Ino,
        name: &[u8],
        spot: &EntryUnit,
        ino: Ino,
        contents: &Contents,
        lists: &[Xattr],
    ) -> Result<(), FsError> {
        debug_assert!(contents.run.is_none_or(|run| run.start != BlockNo::ZERO));
        let links = self.live.volume.node(ino)?.links;
        self.live.volume.node(ino)?.links = F::Order::links_at_first(links);
        let init =
            self.live.volume.format.put_new(&mut self.live.volume.core, ino, &contents.after)?;
        self.live.volume.node(ino)?.links = links;
        self.live.give_lists(ino, lists)?;
        let node = self.live.volume.node(ino)?;
        let kind = node.kind;
        // It must not be found without its lists.
        let whole: Ids = match lists {
            [] => Ids::from_slice(&[init]),
            _ => node.pending.fresh.iter().copied().collect(),
        };
        let init_first = self.live.volume.core.unless(Fault::EntryBeforeInode, whole);
        let (role, after) = if kind == FileKind::Directory {
            let counted = F::Order::parent_link(self.gain_child(dir)?);
            self.live.volume.node(ino)?.pending.parent_link = counted;
            let counted = self.live.volume.core.unless(Fault::EntryBeforeParentLink, Some(counted));
            (Role::EntryAddDirectory, init_first.into_iter().chain(counted).collect::<Ids>())
        } else {
            (Role::EntryAdd, init_first.into_iter().collect())
        };
        let named = self.live.directories().insert(dir, spot, name, (ino, kind), role, &after)?;
        F::Order::add_first_name(self.live, ino, dir, &named)?;
        self.note_name(ino, dir, &named)?;
        self.touch_dir(dir)
    }

    /// Notes the changes that must be on the disk for a file to have its latest name, besides those
    /// for the names it has.
    pub(crate) fn note_name(&mut self, ino: Ino, dir: Ino, ids: &Ids) -> Result<(), FsError> {
        self.live.volume.node(ino)?;
        let node = self.live.volume.core.nodes.get_mut(&ino).ok_or_else(|| crate::gone(ino))?;
        note_parent(&mut node.parents, dir);
        ids.iter().for_each(|&id| {
            node.pending.named_by.note_name(&mut self.live.volume.core.cache, dir, id)
        });
        let linked = node.pending.linked;
        self.live.links_last().note_links_due(dir, linked)
    }

    /// A directory's names have changed.
    pub(crate) fn touch_dir(&mut self, dir: Ino) -> Result<(), FsError> {
        let now = self.live.volume.core.now();
        let node = self.live.volume.node(dir)?;
        (node.mtime, node.ctime) = (now, now);
        self.live.volume.format.put_attributes(&mut self.live.volume.core, dir)
    }

    /// Refuses one more directory in another, where that cannot be counted.
    pub(crate) fn check_child(&mut self, dir: Ino) -> Result<(), FsError> {
        let link_max = self.live.volume.format.limits().link_max;
        let node = self.live.volume.core.node(dir)?;
        if node.links >= link_max && !self.live.volume.format.goes_uncounted(node) {
            return Err(FsError::TooManyLinks(dir));
        }
        Ok(())
    }

    /// Whether the directories in a directory are not counted any more.
    pub(crate) fn is_uncounted(&mut self, dir: Ino) -> Result<bool, FsError> {
        let node = self.live.volume.core.node(dir)?;
        Ok(node.links == 1 && self.live.volume.format.goes_uncounted(node))
    }

    /// A directory has one more in it.
    pub(crate) fn gain_child(&mut self, dir: Ino) -> Result<ChangeId, FsError> {
        self.live.volume.dir_node(dir)?;
        self.check_child(dir)?;
        if self.is_uncounted(dir)? {
            return Ok(ChangeId::COMMITTED);
        }
        let link_max = self.live.volume.format.limits().link_max;
        let node = self.live.volume.dir_node(dir)?;
        if node.links >= link_max {
            (node.links, node.effective) = (1, 1);
        } else {
            node.links += 1;
            node.effective += 1;
        }
        self.live.volume.format.put_links(&mut self.live.volume.core, dir, Role::LinkCount, &[])
    }

    /// Counts one name more, in memory and on the disk.
    pub(crate) fn raise_links(&mut self, ino: Ino) -> Result<ChangeId, FsError> {
        let link_max = self.live.volume.format.limits().link_max;
        let node = self.live.volume.node(ino)?;
        if node.links >= link_max {
            return Err(FsError::TooManyLinks(ino));
        }
        node.links += 1;
        self.live.volume.format.put_links(&mut self.live.volume.core, ino, Role::LinkCount, &[])
    }

    pub(crate) fn link_file(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.check_name(name)?;
        self.open_dir(dir)?;
        let link_max = self.live.volume.format.limits().link_max;
        self.live.links_last().make_room(ino, link_max)?;
        let node = self.live.volume.node(ino)?;
        if node.kind == FileKind::Directory
            || node.restrictions.immutable
            || node.restrictions.append_only
        {
            return Err(FsError::NotPermitted(format!("inode {ino}")));
        }
        if node.effective == 0 {
            return Err(crate::gone(ino));
        }
        if node.links >= link_max {
            return Err(FsError::TooManyLinks(ino));
        }
        let kind = node.kind;
        if self.live.directories().find(dir, name)?.is_some() || matches!(name, b"." | b"..") {
            return Err(FsError::Exists(text(name)));
        }
        let spot = self.live.directories().reserve(dir, name)?;
        let counted = self.raise_links(ino)?;
        let node = self.live.volume.node(ino)?;
        node.effective += 1;
        let named = self.live.directories().insert(
            dir,
            &spot,
            name,
            (ino, kind),
            Role::EntryAdd,
            &[counted],
        )?;
        self.note_name(ino, dir, &named)?;
        self.live.volume.touch(ino)?;
        self.touch_dir(dir)
    }

    /// A name that may be removed, and its inode.
    pub(crate) fn removable(&mut self, dir: Ino, name: &[u8]) -> Result<(Ino, FileKind), FsError> {
        let slot = self.live.directories().find(dir, name)?.ok_or_else(|| not_found(name))?;
        let node = self.live.volume.node(slot.ino)?;
        if node.restrictions.keep_its_names() {
            return Err(FsError::NotPermitted(text(name)));
        }
        Ok((slot.ino, node.kind))
    }

    pub(crate) fn unlink_file(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.open_dir_to_remove(dir)?;
        let (ino, kind) = self.removable(dir, name)?;
        if kind == FileKind::Directory {
            return Err(FsError::IsDirectory(text(name)));
        }
        F::Order::remove_name(self.live, dir, name, ino)
    }

    /// A file has a name less; its count on the disk drops once that is so there.
    pub(crate) fn lose_name(&mut self, ino: Ino, removed: Option<ChangeId>) -> Result<(), FsError> {
        let node = self.live.volume.node(ino)?;
        node.drop_effective_link();
        self.live.volume.touch(ino)?;
        self.live.volume.count_free(ino);
        match self.live.volume.core.unless(Fault::LinksEarly, removed) {
            Some(id) => {
                self.live.volume.core.cache.changes().defer(
                    &[id],
                    Kind::NameRemoved,
                    Action::DropLink(ino),
                );
                Ok(())
            }
            None => self.live.drop_link(ino),
        }
    }

    pub(crate) fn remove_dir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match name {
            b"." => return Err(FsError::Invalid("`.` cannot be removed".into())),
            b".." => return Err(FsError::NotEmpty(text(name))),
            _ => {}
        }
        self.open_dir_to_remove(dir)?;
        let (ino, kind) = self.removable(dir, name)?;
        if kind != FileKind::Directory {
            return Err(FsError::NotDirectory(text(name)));
        }
        if !self.live.directories().is_empty_dir(ino)? {
            return Err(FsError::NotEmpty(text(name)));
        }
        F::Order::remove_dir(self.live, dir, name, ino)
    }

    /// Notes the change that takes an older name of a file from the disk; the file now has a name
    /// in the directory `to`.
    pub(crate) fn note_leaving(&mut self, ino: Ino, to: Ino, by: ChangeId) -> Result<(), FsError> {
        self.live.links_last().note_gone(ino, Some(by))?;
        if self.live.volume.node(ino)?.kind == FileKind::Directory {
            self.live.volume.node(to)?;
            let node = self.live.volume.core.nodes.get_mut(&to).ok_or_else(|| crate::gone(to))?;
            node.pending.arriving.note(&self.live.volume.core.cache, by);
        }
        Ok(())
    }

    /// A directory has lost its name in its parent.
    pub(crate) fn lose_dir(
        &mut self,
        parent: Ino,
        ino: Ino,
        removed: Option<ChangeId>,
    ) -> Result<(), FsError> {
        let above = self.live.volume.node(parent)?;
        above.drop_effective_link();
        self.live.volume.node(ino)?.effective = 0;
        self.live.volume.touch(ino)?;
        self.live.volume.count_free(ino);
        match removed {
            Some(id) => {
                self.live.volume.core.cache.changes().defer(
                    &[id],
                    Kind::NameRemoved,
                    Action::DropDirectory { ino, parent },
                );
                Ok(())
            }
            None => self.live.drop_directory(ino, parent),
        }
    }
}
