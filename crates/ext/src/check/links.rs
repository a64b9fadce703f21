//! Pass 4: link counts, and inodes without a name.

use super::checker::Checker;
use super::fix::{Fix, Stage};
use super::problems;
use super::seen::CheckedInode;
use crate::ondisk::{flags, ro_compat};
use crate::xattr::value_count;
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;

/// The maximum link count; a directory with more has 1.
pub(super) const LINK_MAX: u64 = 65_000;

/// Pass 4: counts of links.
pub(super) struct LinkPass<'a> {
    checker: &'a mut Checker,
}

impl<'a> LinkPass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl LinkPass<'_> {
    pub(super) fn links(&mut self) {
        let all = std::mem::take(&mut self.checker.seen);
        let mut nameless = Vec::new();
        for (ino, seen) in all.iter().filter(|(_, seen)| !seen.is_special) {
            // The value of an attribute needs no name.
            let is_held = seen.names == 0 && self.checker.values.contains_key(&ino);
            if !is_held {
                let is_dir = seen.kind == FileKind::Directory;
                let is_placed = !is_dir || all.place_of(ino).named_in.is_some();
                self.links_of(ino, seen, is_placed, &mut nameless);
            }
        }
        debug_assert!(self.checker.seen.is_empty(), "no inodes are found in this pass");
        self.checker.seen = all;
        for &ino in &nameless {
            self.checker.fix(Stage::Connections, Fix::Connect(ino));
        }
        if let Some(first) = nameless.first() {
            let count = nameless.len();
            let what =
                format!("{count} files may have names only in directories that could not be read");
            let place = Location::of("inode").in_inode(*first);
            self.checker.unexpected(problems::INODE_UNREFERENCED, what, place);
        }
        self.shared_blocks();
    }

    /// Whether a directory is marked as one with an index.
    fn has_index(&self, ino: Ino) -> bool {
        let inode = self.checker.volume.inodes().read(ino);
        inode.is_ok_and(|inode| inode.has_flag(flags::INDEX))
    }

    /// Gathers inodes without a name in `nameless` where not all names could be read.
    fn links_of(
        &mut self,
        ino: Ino,
        seen: &CheckedInode,
        is_placed: bool,
        nameless: &mut Vec<Ino>,
    ) {
        let place = Location::of("inode").in_inode(ino);
        let is_dir = seen.kind == FileKind::Directory;
        let is_root = ino.get() == crate::ondisk::special::ROOT;
        if !is_placed && !is_root {
            // Reported as not connected.
            return;
        }
        if seen.names == 0 {
            if self.checker.orphans.contains(&ino) || seen.is_magic {
                return;
            }
            if self.checker.may_have_more_names() {
                nameless.push(ino);
            } else {
                let what = format!(
                    "in use with {} links, but not referenced by any directory entry",
                    seen.links
                );
                self.checker.graded(seen.is_empty, problems::INODE_UNREFERENCED, what, place);
                if seen.is_empty {
                    self.checker.fix(Stage::Unreferenced, Fix::Clear(ino));
                } else {
                    self.checker.fix(Stage::Connections, Fix::Connect(ino));
                }
            }
            return;
        }
        let links = u64::from(seen.links);
        let has_nlink = self.checker.sb().has_ro_compat(ro_compat::DIR_NLINK);
        let is_over = is_dir && seen.names > LINK_MAX;
        if is_over && !has_nlink && !self.checker.has_many_links {
            self.checker.has_many_links = true;
            let what =
                format!("{} links of a directory, without the dir_nlink feature", seen.names);
            self.checker.found(problems::SUPERBLOCK_FEATURES, what, place);
            self.checker.fix(Stage::Links, Fix::ManyLinks);
        }
        let many = (has_nlink && seen.names >= LINK_MAX) || is_over;
        if links == seen.names || (is_dir && many && links == 1) {
            return;
        }
        // It had more subdirectories than can be counted: the count stays at 1 when they are removed.
        if is_dir && links == 1 && self.has_index(ino) {
            return;
        }
        if links > seen.names && self.checker.may_have_more_names() {
            return;
        }
        let what = format!("{links} links, should be {}", seen.names);
        let problem =
            if links > seen.names { problems::INODE_LINKS_HIGH } else { problems::INODE_LINKS_LOW };
        self.checker.found(problem, what, place);
        let most = if many && is_dir { 1 } else { seen.names.min(LINK_MAX) };
        let links = u16::try_from(most).unwrap_or(u16::MAX);
        self.checker.report.set_values(seen.links.into(), links.into());
        self.checker.fix(Stage::Links, Fix::Links(ino, links));
    }

    /// Compares the counts of values in inodes of their own with the attributes that have them
    /// (e2fsck, `check_ea_inode`).
    pub(super) fn value_counts(&mut self) -> Result<(), FsError> {
        let mut values: Vec<(Ino, u64)> =
            self.checker.values.iter().map(|(&ino, &count)| (ino, count)).collect();
        values.sort_unstable();
        for (ino, count) in values {
            let Some(seen) = self.checker.seen.get(ino).filter(|seen| seen.names == 0) else {
                continue;
            };
            let place = Location::of("inode").in_inode(ino);
            let links = seen.links;
            let said = value_count(&self.checker.volume.inodes().read(ino)?);
            if let Some(said) = said.filter(|said| *said != count) {
                let what = format!("the value of {said} attributes, should be of {count}");
                self.checker.expected(problems::ATTRIBUTES_COUNT, what, place);
                self.checker.report.set_values(said, count);
                self.checker.fix(Stage::Links, Fix::ValueShares(ino, count));
            }
            if links != 1 {
                let what = format!("{links} links, should be 1");
                let is_high = links > 1;
                let problem =
                    if is_high { problems::INODE_LINKS_HIGH } else { problems::INODE_LINKS_LOW };
                self.checker.found(problem, what, place);
                self.checker.report.set_values(links.into(), 1);
                self.checker.fix(Stage::Links, Fix::Links(ino, 1));
            }
        }
        Ok(())
    }

    fn shared_blocks(&mut self) {
        let mut wrong: Vec<_> = self
            .checker
            .shared
            .iter()
            .filter(|(_, shared)| shared.count != shared.found)
            .map(|(&block, shared)| (block, shared.count, shared.found, shared.owner))
            .collect();
        wrong.sort_unstable();
        for (block, count, found, owner) in wrong {
            let what = format!("reference count {count}, should be {found}");
            let place = Location::of("attribute block").in_inode(owner).in_block(block);
            self.checker.unexpected(problems::ATTRIBUTES_COUNT, what, place);
            self.checker.report.set_values(count.into(), found.into());
            self.checker.fix(Stage::Links, Fix::Shares(block, found));
        }
    }
}
