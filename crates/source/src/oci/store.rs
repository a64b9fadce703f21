//! Access to the parts of a container image: the files of a layout directory, or the members of an
//! archive, which are read in place.

use super::docker::{self, List};
use crate::tar;
use crate::tar::Member;
use rustix::io::Errno;
use seekless_fs::FsError;
use seekless_fs::term::Text;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of links in an archive followed for one part.
const LINKS_MAX: u32 = 16;

/// A run of bytes of a file, read from its start.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) file: Arc<File>,
    /// Offset in the file.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The name in messages.
    pub(super) name: String,
    at: u64,
}

impl Section {
    pub(super) fn new(file: Arc<File>, start: u64, len: u64, name: String) -> Self {
        Self { file, start, len, name, at: 0 }
    }

    /// The SHA-256 of all its bytes, in hexadecimal.
    pub(super) fn sha256(&self) -> io::Result<String> {
        let mut whole = Self { at: 0, ..self.clone() };
        let mut hasher = Sha256::new();
        let mut buf = vec![0; 256 << 10];
        loop {
            match whole.read(&mut buf)? {
                0 => return Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()),
                got => hasher.update(&buf[..got]),
            }
        }
    }
}

impl Read for Section {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let want = buf.len().min(left);
        loop {
            match rustix::io::pread(&self.file, &mut buf[..want], self.start + self.at) {
                Ok(got) => {
                    self.at += got as u64;
                    return Ok(got);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The files of an image, by path.
#[derive(Debug)]
pub(super) enum Store {
    /// Files of a directory, with its name in messages.
    Directory { dir: PathBuf, name: String },
    /// Members of an archive.
    Archive { file: Arc<File>, name: String, members: HashMap<Vec<u8>, Member> },
}

impl Store {
    /// Detects container images in an archive: it contains one if all parts of an image are
    /// present, whatever else it contains.
    pub(super) fn in_archive(archive: tar::Spooled, name: &str) -> Result<ArchiveKind, FsError> {
        let Some(members) = tar::members(&archive, name)? else {
            return Ok(ArchiveKind::Ordinary(None));
        };
        let file = archive.file.clone();
        let is_pure = members.keys().all(|path| may_belong(path));
        let has_digests = members.keys().any(|path| is_named_by_digest(path));
        let is_old = members.keys().any(|path| is_old_layer(path));
        let store = Self::Archive { file, name: name.into(), members };
        if store.has("oci-layout") && store.has("index.json") && super::has_index(&store)? {
            return Ok(ArchiveKind::Layout(store));
        }
        let list = docker::list(&store)?;
        let why = match list {
            List::Images => return Ok(ArchiveKind::Saved(store)),
            // Blobs, or layers under their digests, are of no use as files.
            List::Missing(_) if is_pure && has_digests => return Ok(ArchiveKind::Saved(store)),
            List::None if store.has("repositories") && is_old => {
                let what = "an archive of docker before 1.10, without a manifest.json";
                let help = "load it with docker load, and save it again";
                return Err(FsError::Unsupported(format!("{name}: {what} ({help})")));
            }
            _ if is_pure && store.has("oci-layout") && super::has_empty_index(&store)? => {
                return Ok(ArchiveKind::Layout(store));
            }
            _ if is_pure && (store.has("oci-layout") || has_digests) => {
                let what = "parts of a container image, but no valid index.json or manifest.json";
                return Err(store.broken(what));
            }
            List::Missing(part) => {
                Some(format!("its manifest.json names {part}, which is missing"))
            }
            List::Other(why) => Some(why),
            List::None if store.has("oci-layout") => {
                Some("it has an oci-layout, but no valid index.json".into())
            }
            List::None if store.has("repositories") => {
                Some("it has a file repositories, but no manifest.json".into())
            }
            List::None => None,
        };
        Ok(ArchiveKind::Ordinary(why))
    }

    /// The image's name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Directory { name, .. } | Self::Archive { name, .. } => name.clone(),
        }
    }

    /// The error for a missing part, or one that contradicts another.
    pub(super) fn broken(&self, what: impl std::fmt::Display) -> FsError {
        FsError::Container { name: self.name(), what: what.to_string() }
    }

    /// The error for a request that matches no image.
    pub(super) fn invalid(&self, what: impl std::fmt::Display) -> FsError {
        FsError::Invalid(format!("{}: {what}", self.name()))
    }

    pub(super) fn refused(&self, text: Text) -> FsError {
        FsError::Refused(Text::from(format!("{}: ", self.name())).then(text))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Self::Directory { dir, .. } => dir.join(path).is_file(),
            Self::Archive { .. } => self.open(path).is_ok(),
        }
    }

    /// Whether the store has blobs of a layout.
    pub(super) fn has_blobs(&self) -> bool {
        match self {
            Self::Directory { dir, .. } => dir.join("blobs/sha256").is_dir(),
            Self::Archive { members, .. } => {
                members.keys().any(|path| path.starts_with(b"blobs/sha256/"))
            }
        }
    }

    /// Opens a part by its path.
    pub(super) fn open(&self, path: &str) -> Result<Section, FsError> {
        match self {
            Self::Directory { dir, .. } => {
                let full = dir.join(path);
                let name = full.display().to_string();
                let io = |error| FsError::io(name.clone(), error);
                let file = File::open(&full).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => self.broken(format!("{path} is missing")),
                    _ => io(error),
                })?;
                let len = file.metadata().map_err(io)?.len();
                Ok(Section::new(Arc::new(file), 0, len, name))
            }
            Self::Archive { file, name, members } => {
                let shown = format!("{name}: {path}");
                // For names such as `./config.json`.
                let Ok(mut at) = tar::relative(path.as_bytes()) else {
                    return Err(self.broken(format!("{path}: not a path in the archive")));
                };
                for _ in 0..LINKS_MAX {
                    match members.get(&at) {
                        Some(Member::File { start, len }) => {
                            return Ok(Section::new(file.clone(), *start, *len, shown));
                        }
                        Some(Member::Link(target)) => at = target.clone(),
                        None => break,
                    }
                }
                Err(self.broken(format!("{path} is missing")))
            }
        }
    }
}

/// The kind of an archive.
pub(super) enum ArchiveKind {
    /// An OCI layout.
    Layout(Store),
    /// The format of `docker save` and many others.
    Saved(Store),
    /// Ordinary files; with the reason, if the archive resembles container images.
    Ordinary(Option<String>),
}

/// Whether an archive with an entry of this path may contain container images.
pub(super) fn is_mark(path: &[u8]) -> bool {
    let marks: [&[u8]; 3] = [b"oci-layout", b"manifest.json", b"repositories"];
    marks.contains(&path)
}

/// Whether a path is that of a layer's description in docker's old format.
fn is_old_layer(path: &[u8]) -> bool {
    let name = path.strip_suffix(b"/json").unwrap_or_default();
    name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit)
}

/// Whether archives of container images have such a path: an OCI layout (`blobs`, `index.json`,
/// `oci-layout`), the format of `docker save` (`manifest.json`, `repositories`, a directory or a
/// file named by a digest for each layer and configuration), or both at once.
fn may_belong(path: &[u8]) -> bool {
    let Ok(path) = std::str::from_utf8(path) else { return false };
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_digest =
        |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match first {
        "" | "oci-layout" | "index.json" | "manifest.json" | "repositories" => rest.is_empty(),
        "blobs" => true,
        _ if is_digest(first) => matches!(rest, "" | "VERSION" | "json" | "layer.tar"),
        _ => {
            let stem = first.strip_suffix(".json").or_else(|| first.strip_suffix(".tar"));
            rest.is_empty() && stem.is_some_and(is_digest)
        }
    }
}

/// Whether a path that `may_belong` accepts is that of a blob or of a layer under its digest.
fn is_named_by_digest(path: &[u8]) -> bool {
    let of_list = ["oci-layout", "index.json", "manifest.json", "repositories", "blobs", ""];
    path.starts_with(b"blobs/sha256/")
        || !path.starts_with(b"blobs") && !of_list.iter().any(|name| name.as_bytes() == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_images_are_told_by_their_names() {
        let digest = "0123456789abcdef".repeat(4);
        for path in ["", "oci-layout", "blobs", "blobs/sha256/x", "manifest.json", "repositories"] {
            assert!(may_belong(path.as_bytes()), "{path}");
        }
        for rest in ["", "/layer.tar", "/VERSION", "/json", ".json", ".tar"] {
            assert!(may_belong(format!("{digest}{rest}").as_bytes()), "{rest}");
        }
        for path in ["etc", "etc/passwd", "index.json/x", "manifest.json.bak", "abc.tar"] {
            assert!(!may_belong(path.as_bytes()), "{path}");
        }
        assert!(!may_belong(format!("{digest}/bin/sh").as_bytes()));
        assert!(!may_belong(b"\xFF"));
    }
}
