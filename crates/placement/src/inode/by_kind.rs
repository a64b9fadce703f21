//! ext's rule for inodes.

use super::others::{Order, Others};
use super::windows::Windows;
use super::{InodePlace, InodePlacement, NewInode};
use crate::Groups;
use crate::directory::DirectoryPlacement;
use seekless_units::GroupNo;

/// ext's placement: one rule for the groups of directories, another for those of all other files,
/// and optionally [`Windows`], which select the slot in a group.
pub(super) struct ByKind {
    pub(super) directories: Box<dyn DirectoryPlacement>,
    pub(super) others: Others,
    pub(super) windows: Option<Windows>,
    /// For the current search: the group of the parent's window, and the groups of the rule for
    /// this kind.
    order: (Option<GroupNo>, Order),
}

impl ByKind {
    pub(super) fn new(
        directories: Box<dyn DirectoryPlacement>,
        others: Others,
        windows: Option<Windows>,
    ) -> Self {
        Self { directories, others, windows, order: (None, Order::from(GroupNo::ZERO)) }
    }
}

impl InodePlacement for ByKind {
    fn goal(&mut self, groups: &Groups, new: &NewInode<'_>) -> InodePlace {
        self.directories.begin(groups);
        let order = if new.is_directory {
            let group = self.directories.prefer(groups, new);
            if self.directories.hashes_groups() { Order::Hashed(group) } else { Order::from(group) }
        } else {
            self.others.order(groups, new, self.directories.as_mut())
        };
        let group = order.first(groups);
        let windows = self.windows.as_ref().filter(|_| !new.is_directory);
        let own = windows.filter(|windows| windows.has(new.parent.at));
        self.order = (own.map(|_| new.parent.at.group), order);
        InodePlace { group, slot: 0 }
    }

    fn order(&self, groups: &Groups, goal: InodePlace) -> Box<dyn Iterator<Item = GroupNo>> {
        let (own, order) = &self.order;
        let mut all = order.all(groups).peekable();
        let is_first = all.peek() == Some(&goal.group);
        let first = (!is_first).then_some(goal.group);
        Box::new((*own).into_iter().chain(first).chain(all))
    }

    fn taken(&mut self, new: &NewInode<'_>, goal: InodePlace, at: Option<InodePlace>) {
        let preferred = if new.is_directory { goal.group } else { new.parent.at.group };
        self.directories.allocated(preferred, new.is_directory);
        let Some(at) = at else { return };
        self.directories.taken(at.group, new.is_directory);
        if let Some(windows) = self.windows.as_mut().filter(|_| new.is_directory) {
            windows.made(at);
        }
    }

    fn given_back(&mut self, at: InodePlace, is_directory: bool) {
        self.directories.given_back(is_directory);
        if let Some(windows) = self.windows.as_mut().filter(|_| is_directory) {
            windows.gone(at);
        }
    }

    fn blocks_changed(&mut self, by: i64) {
        self.directories.blocks_changed(by);
    }

    fn hashes(&self, is_directory: bool) -> bool {
        is_directory || self.windows.as_ref().is_some_and(Windows::is_hashed)
    }

    fn windows(&mut self) -> Option<&mut Windows> {
        self.windows.as_mut()
    }
}
