//! Operations of a workload.

use std::fmt;

/// A path from the root, without a slash at its start.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path(Vec<String>);

impl Path {
    /// A path of its parts; `None` when there is none, or one is no name.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let parts: Vec<String> =
            text.split('/').filter(|part| !part.is_empty()).map(str::to_string).collect();
        let sound = |part: &String| part != "." && part != ".." && !part.contains('\0');
        (!parts.is_empty() && parts.iter().all(sound)).then_some(Self(parts))
    }

    /// Its last part.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.0.last().map_or(b"", |name| name.as_bytes())
    }

    /// The parts before the last.
    pub fn parents(&self) -> impl Iterator<Item = &[u8]> {
        let count = self.0.len().saturating_sub(1);
        self.0.iter().take(count).map(|part| part.as_bytes())
    }

    /// All parts.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|part| part.as_bytes())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// An operation. Offsets and lengths are in bytes; where a path is `None`, the
/// file that was opened last is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes a file if there is none, and opens it.
    Open(Path),
    /// Closes the file that is open.
    Close,
    /// Makes a directory.
    Mkdir(Path),
    /// Gives a file a second name.
    Link(Path, Path),
    /// Makes a symbolic link: target, name.
    Symlink(String, Path),
    /// Removes a file's name.
    Unlink(Path),
    /// Removes an empty directory.
    Rmdir(Path),
    /// Renames; an existing file of the new name goes.
    Rename(Path, Path),
    /// Lets two names change places.
    Exchange(Path, Path),
    /// Writes bytes that tell this write from all others.
    Write(Option<Path>, u64, u64),
    /// Writes at the file's end.
    Append(Option<Path>, u64),
    /// Cuts a file, or lengthens it by a hole.
    Truncate(Option<Path>, u64),
    /// Allocates a range that reads as zeros, and lengthens the file to its end.
    Fallocate(Option<Path>, u64, u64),
    /// Sets an extended attribute to a value of this length.
    SetXattr(Option<Path>, String, u64),
    /// Removes an extended attribute.
    RemoveXattr(Option<Path>, String),
    /// Makes a file or directory durable.
    Fsync(Option<Path>),
    /// Makes everything durable.
    Sync,
    /// Tells the device of all free blocks.
    Trim,
    /// Lets this many seconds pass, in which the syncer works.
    Pass(u32),
    /// Writes some of the writable blocks, drawn from a seed.
    Writeback(u64),
    /// Puts a mark into the log.
    Checkpoint(String),
}

impl Op {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Close => "close",
            Self::Mkdir(_) => "mkdir",
            Self::Link(..) => "link",
            Self::Symlink(..) => "symlink",
            Self::Unlink(_) => "unlink",
            Self::Rmdir(_) => "rmdir",
            Self::Rename(..) => "rename",
            Self::Exchange(..) => "exchange",
            Self::Write(..) => "write",
            Self::Append(..) => "append",
            Self::Truncate(..) => "truncate",
            Self::Fallocate(..) => "fallocate",
            Self::SetXattr(..) => "setxattr",
            Self::RemoveXattr(..) => "removexattr",
            Self::Fsync(_) => "fsync",
            Self::Sync => "sync",
            Self::Trim => "trim",
            Self::Pass(_) => "pass",
            Self::Writeback(_) => "writeback",
            Self::Checkpoint(_) => "checkpoint",
        }
    }
}

/// A path, if there is one, and a space.
struct Maybe<'a>(&'a Option<Path>);

impl fmt::Display for Maybe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |path| write!(f, " {path}"))
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Close | Self::Sync | Self::Trim => f.write_str(name),
            Self::Open(path) | Self::Mkdir(path) | Self::Unlink(path) | Self::Rmdir(path) => {
                write!(f, "{name} {path}")
            }
            Self::Link(from, to) | Self::Rename(from, to) | Self::Exchange(from, to) => {
                write!(f, "{name} {from} {to}")
            }
            Self::Symlink(target, path) => write!(f, "{name} {target} {path}"),
            Self::Write(path, at, len) | Self::Fallocate(path, at, len) => {
                write!(f, "{name}{} {at} {len}", Maybe(path))
            }
            Self::Append(path, len) | Self::Truncate(path, len) => {
                write!(f, "{name}{} {len}", Maybe(path))
            }
            Self::SetXattr(path, attribute, len) => {
                write!(f, "{name}{} {attribute} {len}", Maybe(path))
            }
            Self::RemoveXattr(path, attribute) => write!(f, "{name}{} {attribute}", Maybe(path)),
            Self::Fsync(path) => write!(f, "{name}{}", Maybe(path)),
            Self::Pass(seconds) => write!(f, "{name} {seconds}"),
            Self::Writeback(seed) => write!(f, "{name} {seed}"),
            Self::Checkpoint(label) if label.is_empty() => f.write_str(name),
            Self::Checkpoint(label) => write!(f, "{name} {label}"),
        }
    }
}
