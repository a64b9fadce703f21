//! SELinux contexts of files, by path: the files `file_contexts` of a policy, with the matching of
//! libselinux (`selabel_file(5)`); `tests/contexts.rs` compares the two.
//!
//! A line is `REGEX [TYPE] CONTEXT`. Of the lines that match a path and its type, one without
//! special characters decides before all others, then the last one. `<<none>>` leaves a file
//! without a context. As in libselinux, the directory at the start of an expression is compared on
//! its own (the stem), and `^` and `$` are put around the rest without a group, so that each belongs
//! to one alternative of `a|b`.
//!
//! - `expression`: expressions of PCRE2, in the syntax of the crate `regex`

mod expression;

use crate::list::{self, ListError, lines, shown, words};
use expression::{Expression, Fault};
use seekless_fs::FileKind;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the extended attribute with the context.
pub const SELINUX: &[u8] = b"security.selinux";

/// The context that leaves a file without one.
const NONE: &[u8] = b"<<none>>";

/// Contexts by path.
#[derive(Clone, Debug)]
pub struct FileContexts {
    /// Lines without special characters, by stem; the last of each list is tried first.
    exact: SpecList,
    /// The other lines.
    general: SpecList,
    /// Other names of directories, of the system's administrator and of the distribution.
    subs: Vec<Alias>,
    dist_subs: Vec<Alias>,
}

/// Lines in the order of the file, which can be found by the directory that their paths begin with.
#[derive(Clone, Debug, Default)]
struct SpecList {
    specs: Vec<Spec>,
    by_stem: HashMap<Vec<u8>, Vec<usize>>,
    without_stem: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Spec {
    expression: Expression,
    kind: Option<FileKind>,
    context: Vec<u8>,
}

/// A directory whose files have the contexts of another one.
#[derive(Clone, Debug)]
struct Alias {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl FileContexts {
    /// The paths that [`read`](Self::read) looks at: the file, and those beside it, which may not
    /// exist.
    pub fn files(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let suffixes = ["", ".homedirs", ".local", ".subs", ".subs_dist"];
        suffixes.map(|suffix| with_suffix(path, suffix)).into_iter()
    }

    /// Reads a file, and those beside it: `.homedirs` and `.local`, which add lines after its own,
    /// `.subs` and `.subs_dist`, which map directories to others.
    ///
    /// # Errors
    /// [`ListError`] for a file that cannot be read, a malformed line, and an expression with a
    /// construct that is not supported.
    pub fn read(path: &Path) -> Result<Self, ListError> {
        let mut contexts = Self {
            exact: SpecList::default(),
            general: SpecList::default(),
            subs: Vec::new(),
            dist_subs: Vec::new(),
        };
        contexts.add(path, &list::read(path)?)?;
        for suffix in [".homedirs", ".local"] {
            if let Some((path, text)) = beside(path, suffix)? {
                contexts.add(&path, &text)?;
            }
        }
        contexts.subs = aliases(path, ".subs")?;
        contexts.dist_subs = aliases(path, ".subs_dist")?;
        Ok(contexts)
    }

    fn add(&mut self, path: &Path, text: &[u8]) -> Result<(), ListError> {
        for (number, line) in lines(text) {
            let fields: Vec<&[u8]> = words(line).collect();
            let (regex, kind, context) = match *fields.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with(b"#") => continue,
                [regex, context] => (regex, None, context),
                [regex, kind, context] => {
                    let known = kind_of(kind).ok_or_else(|| {
                        let why = format!("'{}' is not a file type, such as -d", shown(kind));
                        ListError::line(path, number, why)
                    })?;
                    (regex, Some(known), context)
                }
                _ => {
                    let why = "not a line REGEX [TYPE] CONTEXT";
                    return Err(ListError::line(path, number, why));
                }
            };
            let stem = stem_of_regex(regex);
            let rest = regex.get(stem.len()..).unwrap_or_default();
            let expression = Expression::new(rest).map_err(|fault| {
                let regex = shown(regex);
                match fault {
                    Fault::Invalid(why) => ListError::line(path, number, format!("{regex}: {why}")),
                    Fault::Unsupported(what) => ListError::Unsupported {
                        path: path.to_path_buf(),
                        line: number,
                        why: format!("{regex}: {what} is not supported"),
                    },
                }
            })?;
            let specs =
                if has_special_characters(regex) { &mut self.general } else { &mut self.exact };
            specs.add(stem, Spec { expression, kind, context: context.to_vec() });
        }
        Ok(())
    }

    /// The context of a file at an absolute path, without a zero byte at its end; `None` if no line
    /// matches, or if the one that does says `<<none>>`.
    #[must_use]
    pub fn of(&self, path: &[u8], kind: FileKind) -> Option<&[u8]> {
        let own = substituted(&self.subs, path);
        let path = own.as_deref().unwrap_or(path);
        let dist = substituted(&self.dist_subs, path);
        let path = dist.as_deref().unwrap_or(path);
        let found = self.exact.find(path, kind).or_else(|| self.general.find(path, kind))?;
        (found.context != NONE).then_some(found.context.as_slice())
    }
}

impl SpecList {
    fn add(&mut self, stem: &[u8], spec: Spec) {
        let at = self.specs.len();
        self.specs.push(spec);
        match stem {
            b"" => self.without_stem.push(at),
            stem => self.by_stem.entry(stem.to_vec()).or_default().push(at),
        }
    }

    /// The last line that matches.
    fn find(&self, path: &[u8], kind: FileKind) -> Option<&Spec> {
        let stem = stem_of_path(path);
        let below = path.get(stem.len()..).unwrap_or_default();
        let matching = |numbers: &[usize], path: &[u8]| -> Option<usize> {
            let is_match = |at: &&usize| {
                self.specs.get(**at).is_some_and(|spec| {
                    spec.kind.is_none_or(|wanted| wanted == kind) && spec.expression.is_match(path)
                })
            };
            numbers.iter().rev().find(is_match).copied()
        };
        let with_stem = self.by_stem.get(stem).and_then(|numbers| matching(numbers, below));
        // The later of the two decides.
        let at = with_stem.max(matching(&self.without_stem, path))?;
        self.specs.get(at)
    }
}

/// The file type of a line.
fn kind_of(text: &[u8]) -> Option<FileKind> {
    Some(match text {
        b"--" => FileKind::Regular,
        b"-d" => FileKind::Directory,
        b"-l" => FileKind::Symlink,
        b"-c" => FileKind::CharDevice,
        b"-b" => FileKind::BlockDevice,
        b"-p" => FileKind::Fifo,
        b"-s" => FileKind::Socket,
        _ => return None,
    })
}

/// The characters that are special for the order of lines.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'.' | b'^' | b'$' | b'?' | b'*' | b'+' | b'|' | b'[' | b'(' | b'{')
}

fn has_special_characters(regex: &[u8]) -> bool {
    let mut bytes = regex.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            byte if is_special(byte) => return true,
            _ => {}
        }
    }
    false
}

/// The directory in the root that an expression begins with, if it has no special characters.
fn stem_of_regex(regex: &[u8]) -> &[u8] {
    let stem = stem_of_path(regex);
    if stem.iter().any(|&byte| is_special(byte)) { b"" } else { stem }
}

/// The directory in the root that a path leads through: its part before the second slash.
fn stem_of_path(path: &[u8]) -> &[u8] {
    let slash = path.iter().skip(1).position(|&byte| byte == b'/');
    slash.and_then(|at| path.get(..at + 1)).unwrap_or_default()
}

/// A file with the same name and a suffix, and its text; `None` if it does not exist.
fn beside(path: &Path, suffix: &str) -> Result<Option<(PathBuf, Vec<u8>)>, ListError> {
    let path = with_suffix(path, suffix);
    match std::fs::read(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ListError::Io { path, error }),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The lines `FROM TO` of a file beside another.
fn aliases(path: &Path, suffix: &str) -> Result<Vec<Alias>, ListError> {
    let mut found = Vec::new();
    let Some((path, text)) = beside(path, suffix)? else { return Ok(found) };
    for (number, line) in lines(&text) {
        let fields: Vec<&[u8]> = words(line).collect();
        match *fields.as_slice() {
            [] => {}
            [first, ..] if first.starts_with(b"#") => {}
            [from, to] => found.push(Alias { from: from.to_vec(), to: to.to_vec() }),
            _ => return Err(ListError::line(&path, number, "not a line PATH OTHER-PATH")),
        }
    }
    Ok(found)
}

/// A path with its beginning replaced, by the last line that applies.
fn substituted(aliases: &[Alias], path: &[u8]) -> Option<Vec<u8>> {
    aliases.iter().rev().find_map(|Alias { from, to }| {
        let rest = path.strip_prefix(from.as_slice())?;
        match rest {
            [] => Some(to.clone()),
            [b'/', ..] if to == b"/" => Some(rest.to_vec()),
            [b'/', ..] => Some([to, rest].concat()),
            _ => None,
        }
    })
}
