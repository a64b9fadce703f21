//! Manifests of `mtree(5)`: as the source of attributes, and of a whole tree.
//!
//! - `vis`: escaped texts
//! - `keywords`: the keywords of an entry
//! - `follow`: a tree changed as a manifest says
//! - `digests`: contents compared with their digests

mod digests;
mod follow;
mod keywords;
mod vis;

use super::extra::mtime_of_list;
use crate::list::{self, ListError, lines, path_of, shown};
pub use follow::ManifestRole;
use follow::os_path;
use keywords::Keywords;
use seekless_fs::{FileKind, Timestamp};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A manifest, read from a file.
#[derive(Clone, Debug)]
pub struct Manifest {
    path: PathBuf,
    /// The time of files of which it has none.
    mtime: Timestamp,
    entries: Vec<ManifestEntry>,
    /// Keywords that have no effect.
    idle: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct ManifestEntry {
    line: usize,
    /// Relative to the root.
    path: Vec<u8>,
    keywords: Keywords,
}

/// Where in a manifest its reader is.
struct Reading {
    /// The directories entered by entries without a slash, the root as an empty name.
    entered: Vec<Vec<u8>>,
    /// Keywords of `/set`.
    common: Keywords,
    idle: BTreeSet<String>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`ListError`] for a file that cannot be read, and for a malformed line.
    pub fn read(path: &Path) -> Result<Self, ListError> {
        let text = list::read(path)?;
        let mut reading =
            Reading { entered: Vec::new(), common: Keywords::default(), idle: BTreeSet::new() };
        let mut entries = Vec::new();
        for (line, text) in joined(&text) {
            let found = reading.line(&text).map_err(|why| ListError::line(path, line, why))?;
            entries.extend(found.map(|(path, keywords)| ManifestEntry { line, path, keywords }));
        }
        let (path, mtime) = (path.to_path_buf(), mtime_of_list(path)?);
        Ok(Self { path, mtime, entries, idle: reading.idle })
    }

    /// The regular files of the host from which contents are read.
    pub(super) fn host_files(&self, role: ManifestRole) -> impl Iterator<Item = PathBuf> {
        let of_entry = move |entry: &ManifestEntry| match &entry.keywords.contents {
            None if role != ManifestRole::Whole => None,
            contents => Some(os_path(contents.as_deref().unwrap_or(&entry.path))),
        };
        self.entries.iter().filter_map(of_entry).filter(|path| path.is_file())
    }
}

impl Reading {
    /// Reads a line; returns the entry that it has.
    fn line(&mut self, line: &[u8]) -> Result<Option<(Vec<u8>, Keywords)>, String> {
        let words = words(line);
        let Some((first, rest)) = words.split_first() else { return Ok(None) };
        match *first {
            [b'#', ..] => return Ok(None),
            b"/set" => {
                for word in rest {
                    self.common.set(word, &mut self.idle)?;
                }
                return Ok(None);
            }
            b"/unset" => {
                for word in rest {
                    self.common.unset(word);
                }
                return Ok(None);
            }
            b".." => {
                self.entered.pop().ok_or("'..' without a directory that was entered")?;
                return Ok(None);
            }
            _ => {}
        }
        if first.contains(&b'=') {
            return Err(format!("'{}': a line begins with a path", shown(first)));
        }
        let mut keywords = self.common.clone();
        for word in rest {
            keywords.set(word, &mut self.idle)?;
        }
        let name = vis::decoded(first)?;
        if first.contains(&b'/') {
            return Ok(Some((path_of(&[&name])?, keywords)));
        }
        let name = if name == b"." { Vec::new() } else { name };
        let mut parts: Vec<&[u8]> = self.entered.iter().map(Vec::as_slice).collect();
        parts.push(&name);
        let path = path_of(&parts)?;
        if keywords.kind == Some(FileKind::Directory) {
            self.entered.push(name);
        }
        Ok(Some((path, keywords)))
    }
}

/// The lines, those that end in a backslash joined with the next, each with the number of its
/// first.
fn joined(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut continues = false;
    for (number, line) in lines(text) {
        let is_comment = !continues && line.trim_ascii_start().starts_with(b"#");
        let slashes = line.iter().rev().take_while(|&&byte| byte == b'\\').count();
        let is_open = !is_comment && slashes % 2 == 1;
        let part = if is_open { line.strip_suffix(b"\\").unwrap_or(line) } else { line };
        match found.last_mut() {
            Some((_, before)) if continues => before.extend_from_slice(&[b" ", part].concat()),
            _ => found.push((number, part.to_vec())),
        }
        continues = is_open;
    }
    found
}

/// The words of a line; a space behind a backslash belongs to a word.
fn words(line: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    for (at, byte) in line.iter().enumerate() {
        if byte.is_ascii_whitespace() && !is_quoted {
            words.push(line.get(start..at).unwrap_or_default());
            start = at + 1;
        }
        is_quoted = *byte == b'\\' && !is_quoted;
    }
    words.push(line.get(start..).unwrap_or_default());
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("m");
        std::fs::write(&path, text).expect("write");
        let manifest = Manifest::read(&path).map_err(|error| {
            error.to_string().rsplit("/m, ").next().unwrap_or_default().to_string()
        })?;
        Ok(manifest.entries.iter().map(|entry| shown(&entry.path)).collect())
    }

    #[test]
    fn relative_and_whole_paths() {
        let text = "#mtree\n/set type=file mode=0644\n. type=dir\n  a\n  d type=dir \\\n   uid=1\n    b\n\
                    ..\n  c\n./x/y\n  e\n..\n";
        let wanted = ["", "a", "d", "d/b", "c", "x/y", "e"];
        assert_eq!(paths(text).unwrap(), wanted);
        assert_eq!(paths("a\\040b\nc\\ d\n").unwrap(), ["a b", "c d"]);
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        for (text, wanted) in [
            ("a\n..\n", "line 2: '..' without a directory that was entered"),
            ("a \\\n mode=8\n", "line 1: mode=8: not a mode in octal"),
            ("\nuid=0 a\n", "line 2: 'uid=0': a line begins with a path"),
            ("./../a\n", "line 1: a path with .."),
            ("a type=door\n", "line 1: type=door: not a type of file"),
            ("a sha256=12\n", "line 1: sha256=12: not a digest"),
            ("a uid=-1\n", "line 1: uid=-1: not a number"),
            ("a device=hpux,1\n", "line 1: device=hpux,1: not a device number"),
            ("a\\q\n", "line 1: 'a\\q': an unknown escape"),
        ] {
            assert_eq!(paths(text).unwrap_err(), wanted);
        }
    }
}
