//! Errors in text files that list files, one entry on a line.

use seekless_fs::DeviceNumber;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error in a list, with its file and line.
#[derive(Debug)]
pub enum ListError {
    /// The file cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A line is malformed, or does not fit the tree.
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// A line needs something that is not supported.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
}

impl ListError {
    /// An error in a line of a file.
    pub(crate) fn line(path: &Path, line: usize, why: impl Into<String>) -> Self {
        Self::Line { path: path.to_path_buf(), line, why: why.into() }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Line { path, line, why } | Self::Unsupported { path, line, why } => {
                write!(f, "{}, line {line}: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for ListError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Line { .. } | Self::Unsupported { .. } => None,
        }
    }
}

/// Reads a list.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ListError> {
    std::fs::read(path).map_err(|error| ListError::Io { path: path.to_path_buf(), error })
}

/// The lines of a list with their numbers.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .enumerate()
        .map(|(at, line)| (at + 1, line))
}

/// The words of a line, between spaces and tabs.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Longest path in a list, in bytes: `PATH_MAX` of Linux. Longer ones would take memory for every
/// directory on the way.
const PATH_MAX: usize = 4096;

/// A path relative to the root of a tree, from parts of it.
pub(crate) fn path_of(parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    let names = parts.iter().flat_map(|part| part.split(|&byte| byte == b'/'));
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return Err("a path with ..".into());
    }
    let path = names.join(&b'/');
    if path.len() > PATH_MAX {
        return Err(format!("a path of more than {PATH_MAX} bytes"));
    }
    Ok(path)
}

/// A device number in the ranges of Linux: the formats have no place for others.
pub(crate) fn device(major: u32, minor: u32) -> Result<DeviceNumber, String> {
    if major > 0xfff || minor > 0xf_ffff {
        return Err(format!("device numbers end at 4095,1048575, before {major},{minor}"));
    }
    Ok(DeviceNumber { major, minor })
}

/// A text for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
