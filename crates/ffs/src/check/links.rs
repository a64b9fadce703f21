//! Phase 4: link counts.

use super::checker::{CheckedInode, Checker};
use super::fix::{Fix, Stage};
use super::problems;
use seekless_fs::{FileKind, Location};
use seekless_units::Ino;

/// The highest link count of an inode.
const MOST_LINKS: i64 = 32767;

/// Phase 4: link counts.
pub(super) struct LinkPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> LinkPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }

    pub(super) fn links(&mut self) {
        let mut found = Vec::new();
        for (&ino, seen) in &self.checker.seen {
            // The names in a directory that could not be read are unknown; an unconnected one was
            // reported as such.
            if seen.kind == FileKind::Directory && !seen.is_connected(ino) {
                continue;
            }
            found.push((ino, seen.links, seen.names));
        }
        for (ino, links, names) in found {
            debug_assert!(names >= 0, "{names} names");
            let place = Location::of("inode").in_inode(ino);
            let what = format!("{links} links, should be {names}");
            if names == 0 {
                let what =
                    format!("in use with {links} links, but not referenced by any directory entry");
                self.checker.for_want_of_names(problems::INODE_UNREFERENCED, what, place);
                let (stage, fix) = self.unreferenced(ino, links);
                self.checker.fix(stage, fix);
                continue;
            } else if links > names {
                self.checker.for_want_of_names(problems::INODE_LINKS_HIGH, what, place);
            } else if links < names.min(MOST_LINKS) {
                self.checker.found(problems::INODE_LINKS_LOW, what, place);
            } else {
                continue;
            }
            let said = u64::try_from(links).unwrap_or(0);
            let links = u16::try_from(names.min(MOST_LINKS)).unwrap_or(0);
            self.checker.report.set_values(said, links.into());
            self.checker.fix(Stage::Links, Fix::Links(ino, links));
        }
    }

    /// The repair of a file without a name.
    fn unreferenced(&self, ino: Ino, links: i64) -> (Stage, Fix) {
        if links <= 0 {
            (Stage::Unreferenced, Fix::Clear(ino))
        } else {
            (Stage::Connections, Fix::Connect(ino))
        }
    }
}

impl CheckedInode {
    pub(super) fn is_connected(&self, ino: Ino) -> bool {
        ino.get() == crate::ondisk::ROOT || self.named_in.is_some()
    }
}
