//! Renaming: the new name first, then the old one goes.

use crate::Ids;
use crate::action::Action;
use crate::directories::index::Slot;
use crate::fault::Fault;
use crate::link_order::{LinkOrder, OrderedLinks};
use crate::namespace::Namespace;
use crate::namespace::not_found;
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::field::wide;
use seekless_fs::operate::RenameMode;
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;

/// A name in a directory.
pub(crate) type Name<'a> = (Ino, &'a [u8]);

impl<F: OrderedLinks> Namespace<'_, F> {
    pub(crate) fn rename_file(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        self.check_name(to.1)?;
        let is_dot = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dot(from.1) || is_dot(to.1) {
            return Err(FsError::Invalid("`.` and `..` cannot be renamed".into()));
        }
        self.open_dir_to_remove(from.0)?;
        self.open_dir(to.0)?;
        let (moved, kind) = self.removable(from.0, from.1)?;
        let target = self.live.directories().find(to.0, to.1)?;
        match (mode, &target) {
            (RenameMode::KeepTarget, Some(_)) => {
                return Err(FsError::Exists(String::from_utf8_lossy(to.1).into_owned()));
            }
            (RenameMode::Exchange, None) => return Err(not_found(to.1)),
            _ => {}
        }
        if target.as_ref().is_some_and(|target| target.ino == moved) {
            return Ok(());
        }
        if kind == FileKind::Directory && self.lies_below(to.0, moved)? {
            return Err(FsError::Invalid("a directory cannot be moved into itself".into()));
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => self.exchange(from, to, moved, target),
            Some(target) => self.rename_over(from, to, (moved, kind), target),
            None => self.rename_to_new(from, to, (moved, kind)),
        }
    }

    /// Whether a directory is another, or below it.
    fn lies_below(&mut self, dir: Ino, above: Ino) -> Result<bool, FsError> {
        let mut at = dir;
        // No path is longer than there are inodes.
        for _ in 0..self.live.volume.format.limits().inodes {
            if at == above {
                return Ok(true);
            }
            match self.live.directories().parent_of(at)? {
                parent if parent == at => return Ok(false),
                parent => at = parent,
            }
        }
        Ok(false)
    }

    fn rename_to_new(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
    ) -> Result<(), FsError> {
        let across = kind == FileKind::Directory && from.0 != to.0;
        self.check_room(moved, across.then_some(to.0))?;
        F::Order::move_to_new(self.live, from, to, (moved, kind))
    }

    /// A file gets a new name for another one.
    pub(crate) fn move_to_new(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
    ) -> Result<(), FsError> {
        let across = kind == FileKind::Directory && from.0 != to.0;
        let spot = self.live.directories().reserve(to.0, to.1)?;
        let mut after = Ids::from_slice(&[self.raise_links(moved)?]);
        after.push(self.live.volume.node(moved)?.pending.parent_link);
        let early = if across {
            self.prepare_new_parent(from, to.0, moved, false, &mut after)?
        } else {
            None
        };
        let role =
            if kind == FileKind::Directory { Role::EntryAddDirectory } else { Role::EntryAdd };
        let named =
            self.live.directories().insert(to.0, &spot, to.1, (moved, kind), role, &after)?;
        let late = across && early.is_none();
        let parent = if late { Some(self.set_dotdot(moved, to.0, &named)?) } else { early };
        self.remove_old_name(from, to.0, moved, &named, parent)
    }

    fn rename_over(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
        target: Slot,
    ) -> Result<(), FsError> {
        self.open_dir_to_remove(to.0)?;
        let (old, old_kind) = self.removable(to.0, to.1)?;
        let shown = || String::from_utf8_lossy(to.1).into_owned();
        match (kind == FileKind::Directory, old_kind == FileKind::Directory) {
            (true, false) => return Err(FsError::NotDirectory(shown())),
            (false, true) => return Err(FsError::IsDirectory(shown())),
            (true, true) if !self.live.directories().is_empty_dir(old)? => {
                return Err(FsError::NotEmpty(shown()));
            }
            _ => {}
        }
        debug_assert_eq!(old, target.ino);
        let across = kind == FileKind::Directory && from.0 != to.0;
        self.check_room(moved, across.then_some(to.0))?;
        F::Order::move_over(self.live, from, to, (moved, kind), (old, old_kind))
    }

    /// A file takes the name of another.
    pub(crate) fn move_over(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        (moved, kind): (Ino, FileKind),
        (old, old_kind): (Ino, FileKind),
    ) -> Result<(), FsError> {
        let across = kind == FileKind::Directory && from.0 != to.0;
        if kind == FileKind::Directory && !across {
            return self.rename_over_sibling(from, to.1, moved, old);
        }
        let mut after = Ids::from_slice(&[self.raise_links(moved)?]);
        // With `..` turned first, of the two names the new one is that which a
        // check keeps: at no time is there neither.
        let early = if across {
            self.prepare_new_parent(from, to.0, moved, true, &mut after)?
        } else {
            None
        };
        if old_kind == FileKind::Directory {
            after.extend(self.live.directories().changes_in_dir(old)?);
            after.extend(self.live.volume.leaving(old)?);
        }
        let changed = self.live.directories().redirect(to.0, to.1, (moved, kind), &after)?;
        let reached = self.live.volume.node(to.0)?.pending.reached_by.clone();
        let named: Ids = reached.into_iter().chain([changed]).collect();
        let late = across && early.is_none();
        let parent = if late { Some(self.set_dotdot(moved, to.0, &named)?) } else { early };
        if old_kind == FileKind::Directory {
            self.lose_dir(to.0, old, Some(changed))?;
        } else {
            self.lose_name(old, Some(changed))?;
        }
        self.remove_old_name(from, to.0, moved, &named, parent)
    }

    /// A directory takes the name of an empty one in the same parent. Both names
    /// lead to it for a while, and a check keeps the first in the parent
    /// (`fix_extraneous` in `pass2.c` of `fsck_ffs`): so that there always is
    /// something of the new name, it has to be the first, or to change with the
    /// old one in a single sector.
    fn rename_over_sibling(
        &mut self,
        from: Name<'_>,
        to: &[u8],
        moved: Ino,
        old: Ino,
    ) -> Result<(), FsError> {
        let dir = from.0;
        let unit = wide(self.live.volume.format.limits().dir_unit);
        let link_max = self.live.volume.format.limits().link_max;
        let place = |slot: Option<Slot>| {
            let slot = slot.ok_or_else(|| not_found(to))?;
            Ok::<_, FsError>((slot.at, slot.at / unit))
        };
        let (source, target) = (
            place(self.live.directories().find(dir, from.1)?)?,
            place(self.live.directories().find(dir, to)?)?,
        );
        let in_place = !self.live.volume.core.has(Fault::RenameOverOutOfPlace);
        let goes_behind = in_place && source.0 < target.0 && source.1 != target.1;
        let links = self.live.volume.node(moved)?.links;
        if goes_behind && links.checked_add(2).is_none_or(|links| links > link_max) {
            return Err(FsError::TooManyLinks(moved));
        }
        let mut after = self.live.directories().changes_in_dir(old)?;
        after.extend(self.live.volume.leaving(old)?);
        // With an older name elsewhere `..` would decide, and may not be turned.
        let older = self.live.volume.leaving(moved)?;
        after.extend(self.live.volume.core.unless(Fault::RenameOverWithOlderNames, older));
        if goes_behind {
            let counted = self.raise_links(moved)?;
            let (named, gone) =
                self.live.directories().move_behind(dir, from.1, target.1, counted)?;
            self.note_name(moved, dir, &named)?;
            self.note_leaving(moved, dir, gone)?;
            self.live.volume.core.cache.changes().defer(
                &[gone],
                Kind::NameRemoved,
                Action::DropLink(moved),
            );
            after.push(gone);
        }
        after.push(self.raise_links(moved)?);
        after.push(self.live.volume.node(moved)?.pending.parent_link);
        let (source, target) = (
            place(self.live.directories().find(dir, from.1)?)?,
            place(self.live.directories().find(dir, to)?)?,
        );
        let reached = self.live.volume.node(dir)?.pending.reached_by.clone();
        if source.1 != target.1 || !in_place {
            debug_assert!(target.0 < source.0 || !in_place, "the name that stays is the first");
            let changed =
                self.live.directories().redirect(dir, to, (moved, FileKind::Directory), &after)?;
            let named: Ids = reached.into_iter().chain([changed]).collect();
            self.lose_dir(dir, old, Some(changed))?;
            return self.remove_old_name(from, dir, moved, &named, None);
        }
        let changed = self.live.directories().replace_within_unit(dir, from.1, to, &after)?;
        let named: Ids = reached.into_iter().chain([changed]).collect();
        self.note_name(moved, dir, &named)?;
        self.note_leaving(moved, dir, changed)?;
        self.lose_dir(dir, old, Some(changed))?;
        self.live.volume.core.cache.changes().defer(
            &[changed],
            Kind::NameRemoved,
            Action::DropLink(moved),
        );
        self.live.volume.touch(moved)?;
        self.touch_dir(dir)
    }

    /// Refuses a rename whose links cannot be counted.
    fn check_room(&mut self, moved: Ino, new_parent: Option<Ino>) -> Result<(), FsError> {
        F::Order::check_links(self.live, moved)?;
        match new_parent {
            Some(parent) => {
                self.live.volume.node(parent)?;
                self.check_child(parent)
            }
            None => Ok(()),
        }
    }

    /// A directory gets another parent, and is counted there first: the new
    /// name waits for that.
    pub(crate) fn count_in_new_parent(
        &mut self,
        moved: Ino,
        parent: Ino,
    ) -> Result<ChangeId, FsError> {
        let counted = self.raise_links(parent)?;
        let node = self.live.volume.node(parent)?;
        node.effective += 1;
        let depth = node.depth + 1;
        let node = self.live.volume.node(moved)?;
        (node.depth, node.pending.parent_link) = (depth, counted);
        Ok(counted)
    }

    /// The changes that the new name of a directory waits for when it gets another parent: that
    /// this can be reached, and not by way of the directory itself. If the disk has never seen the
    /// old name, `..` may and must lead to the new parent before any name leads here; else the old
    /// name must be there first, and `..` comes later, unless it shall come `first`.
    fn prepare_new_parent(
        &mut self,
        from: Name<'_>,
        to: Ino,
        moved: Ino,
        first: bool,
        after: &mut Ids,
    ) -> Result<Option<ChangeId>, FsError> {
        let way = self.live.directories().way_to(to)?;
        after.extend(self.live.volume.core.unless(Fault::RenameIntoALoop, way));
        let counted = self.count_in_new_parent(moved, to)?;
        after.push(counted);
        let is_new = self.live.directories().is_name_pending(from.0, from.1)?;
        if !is_new {
            after.extend(self.live.directories().changes_to_name(from.0, from.1)?);
        }
        if !is_new && (!first || self.live.volume.core.has(Fault::TurnAfterRenameOver)) {
            return Ok(None);
        }
        let before: Ids = if is_new { Ids::from_slice(&[counted]) } else { after.clone() };
        let turned = self.set_dotdot(moved, to, &before)?;
        after.push(turned);
        Ok(Some(turned))
    }

    /// Then, once the new name is on the disk, `..` leads to the new parent. The old name and the
    /// old parent's count wait for the returned change: so whenever `..` and a name contradict each
    /// other there are two names.
    fn set_dotdot(
        &mut self,
        moved: Ino,
        parent: Ino,
        named: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        self.live.directories().redirect(moved, b"..", (parent, FileKind::Directory), named)
    }

    /// The old name goes, once the new one is on the disk.
    fn remove_old_name(
        &mut self,
        from: Name<'_>,
        to: Ino,
        moved: Ino,
        named: &Ids,
        new_parent: Option<ChangeId>,
    ) -> Result<(), FsError> {
        let way = if to == from.0 { Ids::new() } else { self.live.directories().way_to(to)? };
        self.note_name(moved, to, named)?;
        // The parent of the new name can be reached by then.
        let way = self.live.volume.core.unless(Fault::RenameIntoTheUnreached, way);
        let before: Ids = named.iter().copied().chain(new_parent).chain(way).collect();
        let before = self.live.volume.core.unless(Fault::RenameLosesBoth, before);
        let removed = self.live.directories().remove(from.0, from.1, &before)?;
        if let Some(dotdot) = new_parent {
            let old = self.live.volume.node(from.0)?;
            old.drop_effective_link();
            let mut after = Ids::from_slice(&[dotdot]);
            after.extend(removed);
            self.live.volume.core.cache.changes().defer(
                &after,
                Kind::NameRemoved,
                Action::DropLink(from.0),
            );
        }
        self.live.volume.touch(moved)?;
        self.touch_dir(from.0)?;
        if to != from.0 {
            self.touch_dir(to)?;
        }
        match removed {
            Some(id) => {
                self.note_leaving(moved, to, id)?;
                self.live.volume.core.cache.changes().defer(
                    &[id],
                    Kind::NameRemoved,
                    Action::DropLink(moved),
                );
                Ok(())
            }
            None => self.live.drop_link(moved),
        }
    }

    /// Two names change places: with one change, if they lie in one sector. Else, each may
    /// be the only one of its file, so a third leads to the second file meanwhile: it comes
    /// first and goes last. No such order serves directories, of which a check leaves one name
    /// only: the second would be left with the third name alone.
    fn exchange(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: Ino,
        target: Slot,
    ) -> Result<(), FsError> {
        let other = target.ino;
        self.open_dir_to_remove(to.0)?;
        self.removable(to.0, to.1)?;
        let (kind, other_kind) =
            (self.live.volume.node(moved)?.kind, self.live.volume.node(other)?.kind);
        if other_kind == FileKind::Directory && self.lies_below(from.0, other)? {
            return Err(FsError::Invalid("a directory cannot be moved into itself".into()));
        }
        self.check_room(moved, Some(to.0))?;
        self.check_room(other, Some(from.0))?;
        if self.live.links_last().is_ordered() {
            if from.0 == to.0 && self.live.links_last().lie_together(from, to)? {
                return self.exchange_together(from, to, moved, other);
            }
            if [kind, other_kind].contains(&FileKind::Directory) {
                let what = "exchanging a directory whose name lies in another sector";
                return Err(FsError::Unsupported(what.into()));
            }
        }
        let third = format!(".exchange-{moved}-{other}").into_bytes();
        if self.live.directories().find(to.0, &third)?.is_some() {
            return Err(FsError::Exists(String::from_utf8_lossy(&third).into_owned()));
        }
        let across = from.0 != to.0;
        let moves = |kind: FileKind| across && kind == FileKind::Directory;
        let spot = self.live.directories().reserve(to.0, &third)?;
        let mut first = self.live.directories().way_to(from.0)?;
        first.extend(self.live.directories().way_to(to.0)?);
        first.extend(F::Order::hold_named(self.live, other)?);
        first.extend([
            self.live.volume.node(moved)?.pending.parent_link,
            self.live.volume.node(other)?.pending.parent_link,
        ]);
        first.extend(self.live.volume.leaving(moved)?);
        first.extend(self.live.volume.leaving(other)?);
        let aside = self.live.directories().insert(
            to.0,
            &spot,
            &third,
            (other, other_kind),
            Role::EntryAdd,
            &first,
        )?;

        let mut after = aside.clone();
        after.extend(F::Order::hold_named(self.live, moved)?);
        after.extend(self.live.directories().changes_to_name(from.0, from.1)?);
        if moves(kind) {
            after.push(self.count_in_new_parent(moved, to.0)?);
        }
        let changed = self.live.directories().redirect(to.0, to.1, (moved, kind), &after)?;
        let turned =
            if moves(kind) { Some(self.set_dotdot(moved, to.0, &[changed])?) } else { None };

        let mut after: Ids = aside.into_iter().chain([changed]).chain(turned).collect();
        if moves(other_kind) {
            after.push(self.count_in_new_parent(other, from.0)?);
        }
        let back = self.live.directories().redirect(from.0, from.1, (other, other_kind), &after)?;
        let other_turned =
            if moves(other_kind) { Some(self.set_dotdot(other, from.0, &[back])?) } else { None };

        let after: Ids = [back].into_iter().chain(other_turned).collect();
        let removed = self.live.directories().remove(to.0, &third, &after)?;
        // Each has lost the name it had too many, and its old parent.
        F::Order::release_named(self.live, &[back], moved)?;
        let gone: Ids = removed.into_iter().chain([back]).collect();
        F::Order::release_named(self.live, &gone, other)?;
        for (turned, parent) in [(turned, from.0), (other_turned, to.0)] {
            let Some(turned) = turned else { continue };
            F::Order::lose_child(self.live, parent, turned)?;
        }
        self.note_leaving(moved, to.0, back)?;
        self.note_leaving(other, from.0, changed)?;
        if let Some(removed) = removed {
            self.note_leaving(other, from.0, removed)?;
        }
        self.note_name(moved, to.0, &Ids::from_slice(&[changed]))?;
        self.note_name(other, from.0, &Ids::from_slice(&[back]))?;
        for ino in [moved, other] {
            self.live.volume.touch(ino)?;
        }
        self.touch_dir(from.0)?;
        self.touch_dir(to.0)
    }

    /// Two names of one sector change places.
    fn exchange_together(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        moved: Ino,
        other: Ino,
    ) -> Result<(), FsError> {
        let dir = from.0;
        let mut after = self.live.links_last().links_of(moved)?;
        after.extend(self.live.links_last().links_of(other)?);
        after.extend([
            self.live.volume.node(moved)?.pending.parent_link,
            self.live.volume.node(other)?.pending.parent_link,
        ]);
        // With an older name elsewhere a check could keep that one.
        after.extend(self.live.volume.leaving(moved)?);
        after.extend(self.live.volume.leaving(other)?);
        let swapped = self.live.links_last().swap(from, to, &after)?;
        let reached = self.live.volume.node(dir)?.pending.reached_by.clone();
        let named: Ids = reached.into_iter().chain([swapped]).collect();
        for ino in [moved, other] {
            self.note_name(ino, dir, &named)?;
            self.note_leaving(ino, dir, swapped)?;
            self.live.volume.touch(ino)?;
        }
        self.touch_dir(dir)
    }
}
