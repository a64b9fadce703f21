//! The contents that a file may have after a crash.

use super::{Oracle, Violation};
use crate::driver::kind_name;
use crate::history::{Contents, FileId, values_in};
use seekless_fs::{Attr, FileKind, FsError};
use seekless_units::{ByteLen, Ino};

/// Longest file that is read as a whole.
const WHOLE: u64 = 16 << 20;

/// Bytes of a file that are compared together.
const SECTOR: usize = 512;

impl Oracle<'_> {
    /// The violations of an inode, if it is to be a file of the history.
    pub(super) fn file(&self, file: FileId, ino: Ino) -> Vec<Violation> {
        let path = self.path(file);
        let attr = match self.image.attr(ino) {
            Ok(attr) => attr,
            Err(error) => return vec![Violation::new("unreadable", format!("{path}: {error}"))],
        };
        let known = &self.history.files[file];
        let from = self.window.of_contents(file);
        if attr.kind != known.kind {
            let (is, was) = (kind_name(attr.kind), kind_name(known.kind));
            let code = self.code_of(from, "kind");
            return vec![Violation::new(&code, format!("{path} is a {is}, expected a {was}"))];
        }
        let mut found = Vec::new();
        if attr.perm != known.perm {
            let code = self.code_of(from, "mode");
            found.push(Violation::new(&code, format!("{path} has mode {:o}", attr.perm)));
        }
        let versions: Vec<&Contents> = values_in(&known.versions, from, self.window.upto).collect();
        // Whether it was promised at all: else it may be as it was at first.
        let promised = known.versions.first().is_some_and(|&(made, _)| made <= from);
        let result = match known.kind {
            FileKind::Regular => self.regular(&attr, &versions, promised),
            FileKind::Symlink => self.symlink(ino, &versions, promised),
            _ => Ok(None),
        };
        let result = result.and_then(|wrong| match wrong {
            None => self.xattrs(ino, &versions, promised),
            wrong => Ok(wrong),
        });
        match result {
            Ok(None) => {}
            Ok(Some((what, why))) => {
                let code = if promised { self.code_of(from, what) } else { format!("new.{what}") };
                found.push(Violation::new(&code, format!("{path} {why}")));
            }
            Err(error) => {
                found.push(Violation::new("unreadable", format!("{path}: {error}")));
            }
        }
        found
    }

    fn regular(
        &self,
        attr: &Attr,
        versions: &[&Contents],
        promised: bool,
    ) -> Result<Option<(&'static str, String)>, FsError> {
        let sizes = || versions.iter().map(|version| version.bytes.len());
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let least = if promised { least } else { 0 };
        if attr.size < least || attr.size > most {
            return Ok(Some((
                "size",
                format!("has {} bytes, expected {least} to {most}", attr.size),
            )));
        }
        let held = self.held(attr, versions)?;
        // Most files are a version as it was.
        let is = |version: &&Contents| {
            let bytes = &version.bytes;
            bytes.len() == attr.size && held.iter().all(|(at, held)| bytes.is_at(*at, held))
        };
        if versions.iter().any(is) {
            return Ok(None);
        }
        // A sector that equals one of a version is allowed; the others are compared by bytes.
        let sectors =
            held.iter().flat_map(|(at, held)| (*at..).step_by(SECTOR).zip(held.chunks(SECTOR)));
        let of_none = sectors.filter(|&(at, sector)| {
            !versions.iter().any(|version| version.bytes.is_at(at, sector))
        });
        let mut bytes = of_none.flat_map(|(at, sector)| (at..).zip(sector.iter().copied()));
        let wrong = bytes.find(|&(at, byte)| !self.byte_may_be(at, byte, versions, promised));
        Ok(wrong.map(|(at, byte)| {
            let what = if promised { "contents" } else { "stale-data" };
            (what, format!("has {byte:#04x} at byte {at}, which was never written there"))
        }))
    }

    /// The contents of a file, by place: all of it, or of a long one the parts that are not holes
    /// both in the image and in every version.
    fn held(&self, attr: &Attr, versions: &[&Contents]) -> Result<Vec<(u64, Vec<u8>)>, FsError> {
        let mut ranges = Vec::new();
        if attr.size <= WHOLE {
            ranges.push(0..attr.size);
        } else {
            ranges = versions.iter().flat_map(|version| version.bytes.written()).collect();
            let unit = u64::from(self.image.geometry().block_size);
            for run in self.image.block_map(attr.ino)?.runs {
                let at = run.lbn.get() * unit;
                ranges.push(at..at + run.extent.len * unit);
            }
            ranges.sort_unstable_by_key(|range| range.start);
        }
        let mut done = 0;
        let mut held = Vec::new();
        for range in ranges {
            let start = range.start.max(done);
            let end = range.end.min(attr.size);
            done = done.max(end);
            let len = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
            if len == 0 {
                continue;
            }
            let mut bytes = vec![0; len];
            let mut read = 0;
            while read < len {
                let at = ByteLen::new(start + read as u64);
                match self.image.read(attr.ino, at, &mut bytes[read..])? {
                    0 => break,
                    more => read += more,
                }
            }
            held.push((start, bytes));
        }
        Ok(held)
    }

    /// Whether a byte of a file may have its value.
    fn byte_may_be(&self, at: u64, byte: u8, versions: &[&Contents], promised: bool) -> bool {
        let mut all = true;
        let mut first = None;
        for version in versions {
            match version.bytes.get(at) {
                Some(written) if written == byte => return true,
                Some(written) => all &= *first.get_or_insert(written) == written,
                None => all = false,
            }
        }
        // A byte that no operation since has changed is as it was.
        if all && promised {
            return false;
        }
        // A hole, or not written yet.
        byte == 0 || !self.promises.contents
    }

    fn symlink(
        &self,
        ino: Ino,
        versions: &[&Contents],
        promised: bool,
    ) -> Result<Option<(&'static str, String)>, FsError> {
        if !promised && !self.promises.contents {
            return Ok(None);
        }
        let target = self.image.read_link(ino)?;
        if versions.iter().any(|version| version.bytes == target[..]) {
            return Ok(None);
        }
        Ok(Some(("target", format!("has the target `{}`", target.escape_ascii()))))
    }

    fn xattrs(
        &self,
        ino: Ino,
        versions: &[&Contents],
        promised: bool,
    ) -> Result<Option<(&'static str, String)>, FsError> {
        let held = self.image.xattrs(ino)?;
        let same = |version: &&&Contents| {
            version.xattrs.len() == held.len()
                && held.iter().all(|xattr| version.xattrs.get(&xattr.name) == Some(&xattr.value))
        };
        // A file that is new may have none yet.
        if (!promised && held.is_empty()) || versions.iter().any(|version| same(&version)) {
            return Ok(None);
        }
        Ok(Some(("attributes", format!("has {} attributes that it never had", held.len()))))
    }
}
