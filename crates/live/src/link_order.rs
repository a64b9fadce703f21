//! The relation on the disk between the links of inodes and the names that lead to them, so that a
//! check repairs the state after a crash without asking.

use crate::action::Action;
use crate::links_last::FULL;
use crate::{Ids, Linked, Live, Named};
use seekless_cache::{ChangeId, Kind};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;

/// A format with inodes, and the order in which its check needs their links and names.
pub trait OrderedLinks: Linked + Named {
    /// The order: [`CountFirst`] or [`CountLast`].
    type Order: LinkOrder<Self>;
}

/// The order of links and names. Functions are called within an operation.
pub trait LinkOrder<F: OrderedLinks> {
    /// The link count of a new inode on the disk until its first name is there; `links` is its
    /// count afterwards.
    fn links_at_first(links: u16) -> u16;

    /// The change that the name of a new directory waits for; `counted` is the change that counts
    /// the directory's `..` in its parent.
    fn parent_link(counted: ChangeId) -> ChangeId;

    /// Counts the first name of a new file, which is on the disk once the changes `named` are.
    fn add_first_name(live: &mut Live<F>, ino: Ino, dir: Ino, named: &Ids) -> Result<(), FsError>;

    /// Removes one of the names of a file.
    fn remove_name(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError>;

    /// Removes the name of an empty directory.
    fn remove_dir(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError>;

    /// Refuses to move a file with the maximum of links, where a move adds one for a while.
    fn check_links(live: &mut Live<F>, moved: Ino) -> Result<(), FsError>;

    /// Gives a file a new name, and removes its old one.
    fn move_to_new(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
    ) -> Result<(), FsError>;

    /// Gives a file the name of another file, and removes its old one.
    fn move_over(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
        old: (Ino, FileKind),
    ) -> Result<(), FsError>;

    /// Counts one more name of a file for a while. Returns the changes that must be on the disk
    /// before that name.
    fn hold_named(live: &mut Live<F>, ino: Ino) -> Result<Ids, FsError>;

    /// Takes that count back once the changes `after` are on the disk.
    fn release_named(live: &mut Live<F>, after: &[ChangeId], ino: Ino) -> Result<(), FsError>;

    /// A directory has a name less of two that a crash has left it; the change `removed` takes it
    /// from the disk.
    fn lose_second_name(
        live: &mut Live<F>,
        ino: Ino,
        removed: Option<ChangeId>,
    ) -> Result<(), FsError>;

    /// Counts one subdirectory less in a directory; the change `turned` points the `..` of the
    /// subdirectory elsewhere.
    fn lose_child(live: &mut Live<F>, dir: Ino, turned: ChangeId) -> Result<(), FsError>;

    /// The changes that must be on the disk for an inode without names to be cleared there.
    fn before_clearing(live: &mut Live<F>, ino: Ino) -> Result<Ids, FsError>;
}

/// An inode has at least as many links as there are names that lead to it; one that is in use
/// without a name gets one (`fsck_ffs -p`).
#[derive(Clone, Copy, Debug)]
pub enum CountFirst {}

impl<F: OrderedLinks> LinkOrder<F> for CountFirst {
    fn links_at_first(links: u16) -> u16 {
        links
    }

    fn parent_link(counted: ChangeId) -> ChangeId {
        counted
    }

    fn add_first_name(_: &mut Live<F>, _: Ino, _: Ino, _: &Ids) -> Result<(), FsError> {
        Ok(())
    }

    fn remove_name(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        let removed = live.directories().remove(dir, name, &[])?;
        live.namespace().touch_dir(dir)?;
        live.namespace().lose_name(ino, removed)
    }

    fn remove_dir(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        // Names that went from it to elsewhere must be there first.
        let mut before = live.directories().changes_in_dir(ino)?;
        before.extend(live.volume.leaving(ino)?);
        let removed = live.directories().remove(dir, name, &before)?;
        live.namespace().lose_dir(dir, ino, removed)?;
        live.namespace().touch_dir(dir)
    }

    fn check_links(live: &mut Live<F>, moved: Ino) -> Result<(), FsError> {
        let link_max = live.volume.format.limits().link_max;
        // It has both names for a while.
        if live.volume.node(moved)?.links >= link_max {
            return Err(FsError::TooManyLinks(moved));
        }
        Ok(())
    }

    fn move_to_new(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
    ) -> Result<(), FsError> {
        live.namespace().move_to_new(from, to, moved)
    }

    fn move_over(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
        old: (Ino, FileKind),
    ) -> Result<(), FsError> {
        live.namespace().move_over(from, to, moved, old)
    }

    fn hold_named(live: &mut Live<F>, ino: Ino) -> Result<Ids, FsError> {
        Ok(Ids::from_slice(&[live.namespace().raise_links(ino)?]))
    }

    fn release_named(live: &mut Live<F>, after: &[ChangeId], ino: Ino) -> Result<(), FsError> {
        let mut changes = live.volume.core.cache.changes();
        changes.defer(after, Kind::NameRemoved, Action::DropLink(ino));
        Ok(())
    }

    /// Both names were counted.
    fn lose_second_name(
        live: &mut Live<F>,
        ino: Ino,
        removed: Option<ChangeId>,
    ) -> Result<(), FsError> {
        live.namespace().lose_name(ino, removed)
    }

    fn lose_child(live: &mut Live<F>, dir: Ino, turned: ChangeId) -> Result<(), FsError> {
        live.volume.node(dir)?.drop_effective_link();
        let mut changes = live.volume.core.cache.changes();
        changes.defer(&[turned], Kind::NameRemoved, Action::DropLink(dir));
        Ok(())
    }

    fn before_clearing(_: &mut Live<F>, _: Ino) -> Result<Ids, FsError> {
        Ok(Ids::new())
    }
}

/// An inode with links has a name; a name of an inode without links is taken away, and links are
/// counted (`e2fsck -p`).
#[derive(Clone, Copy, Debug)]
pub enum CountLast {}

impl<F: OrderedLinks> LinkOrder<F> for CountLast {
    fn links_at_first(_: u16) -> u16 {
        0
    }

    fn parent_link(_: ChangeId) -> ChangeId {
        ChangeId::COMMITTED
    }

    fn add_first_name(live: &mut Live<F>, ino: Ino, dir: Ino, named: &Ids) -> Result<(), FsError> {
        live.links_last().count_named(ino, dir, named)
    }

    fn remove_name(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        live.links_last().withdraw(dir, name, ino)?;
        live.namespace().touch_dir(dir)
    }

    fn remove_dir(live: &mut Live<F>, dir: Ino, name: &[u8], ino: Ino) -> Result<(), FsError> {
        live.links_last().withdraw_dir(dir, name, ino)?;
        live.namespace().touch_dir(dir)
    }

    fn check_links(live: &mut Live<F>, moved: Ino) -> Result<(), FsError> {
        live.links_last().make_room(moved, FULL)
    }

    fn move_to_new(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
    ) -> Result<(), FsError> {
        live.links_last().move_to_new(from, to, moved)
    }

    fn move_over(
        live: &mut Live<F>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: (Ino, FileKind),
        old: (Ino, FileKind),
    ) -> Result<(), FsError> {
        live.links_last().move_over(from, to, moved, old)
    }

    fn hold_named(live: &mut Live<F>, ino: Ino) -> Result<Ids, FsError> {
        live.links_last().hold(ino)
    }

    fn release_named(live: &mut Live<F>, after: &[ChangeId], ino: Ino) -> Result<(), FsError> {
        live.links_last().release(ino, after)
    }

    /// A directory that moves is counted for one name.
    fn lose_second_name(
        live: &mut Live<F>,
        ino: Ino,
        removed: Option<ChangeId>,
    ) -> Result<(), FsError> {
        live.links_last().note_gone(ino, removed)?;
        live.volume.touch(ino)
    }

    fn lose_child(live: &mut Live<F>, dir: Ino, _: ChangeId) -> Result<(), FsError> {
        live.links_last().lose_child(dir)
    }

    /// Names that the disk still has lead to it until they are gone there, and one of them may be
    /// another file's by now.
    fn before_clearing(live: &mut Live<F>, ino: Ino) -> Result<Ids, FsError> {
        live.volume.leaving(ino)
    }
}
