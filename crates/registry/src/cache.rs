//! The cache: an OCI image layout whose blobs appear whole, and parts of blobs beside it.

use crate::reference::is_sha256;
use crate::{Part, RegistryError};
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::io::Errno;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The annotation of an index with the name of an image.
const NAME: &str = "org.opencontainers.image.ref.name";

/// Bytes of an index that is read.
const INDEX_MAX: u64 = 64 << 20;

const BUF: usize = 256 << 10;

/// A directory with blobs of images.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Opens a cache, created if it is missing.
    pub(crate) fn open(dir: &Path) -> Result<Self, RegistryError> {
        let cache = Self { dir: dir.to_path_buf() };
        for dir in [dir.join("blobs/sha256"), dir.join("partial")] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            made.map_err(|error| RegistryError::io(dir.display(), error))?;
        }
        let mark = dir.join("oci-layout");
        if !mark.exists() {
            cache.put(&mark, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        if !dir.join("index.json").exists() {
            cache.with_index(|_| {})?;
        }
        Ok(cache)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a blob.
    pub(crate) fn blob(&self, hex: &str) -> PathBuf {
        assert!(is_sha256(hex), "a digest was checked when it was read");
        self.dir.join("blobs/sha256").join(hex)
    }

    /// Whether a blob is there and as it should be. One that is not stays until another takes its
    /// place: another process may have put it there meanwhile, and a length that a manifest claims is
    /// no reason to remove a blob of other images.
    pub(crate) fn has(&self, part: &Part) -> Result<bool, RegistryError> {
        let path = self.blob(&part.sha256);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(RegistryError::io(path.display(), error)),
        };
        let io = |error| RegistryError::io(path.display(), error);
        if file.metadata().map_err(io)?.len() == part.len {
            let mut sum = Sha256::new();
            copy(&mut file, &mut sum).map_err(io)?;
            if hex(sum) == part.sha256 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a blob that does not fit into the file system, before it is filled. A manifest may claim any
    /// length.
    pub(crate) fn check_room(&self, len: u64) -> Result<(), RegistryError> {
        let io = |errno: Errno| RegistryError::io(self.dir.display(), errno.into());
        let room = statvfs(&self.dir).map_err(io)?;
        match u128::from(len) > u128::from(room.f_bavail) * u128::from(room.f_frsize) {
            true => Err(io(Errno::NOSPC)),
            false => Ok(()),
        }
    }

    /// The bytes of a blob of at most `max` bytes.
    pub(crate) fn read(&self, hex: &str, max: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.blob(hex)).ok()?;
        file.take(max).read_to_end(&mut bytes).ok()?;
        (self::hex(Sha256::new_with_prefix(&bytes)) == hex).then_some(bytes)
    }

    /// Adds a small blob.
    pub(crate) fn add(&self, hex: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.put(&self.blob(hex), bytes)
    }

    /// A file for the parts of a blob as they come, which no other process has open for that. `None`
    /// if another process has completed the blob meanwhile.
    pub(crate) fn partial(&self, part: &Part) -> Result<Option<Partial>, RegistryError> {
        let path = self.dir.join("partial").join(&part.sha256);
        let io = |error| RegistryError::io(path.display(), error);
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).append(true).create(true).mode(0o600);
            let file = options.open(&path).map_err(io)?;
            flock(&file, FlockOperation::LockExclusive).map_err(|errno| io(errno.into()))?;
            // Whoever had the lock may have completed the file, or removed it.
            let own = file.metadata().map_err(io)?;
            let is_same = fs::metadata(&path)
                .is_ok_and(|now| (now.dev(), now.ino()) == (own.dev(), own.ino()));
            if is_same {
                return Partial::new(file, path.clone(), own.len()).map(Some);
            }
            if self.has(part)? {
                return Ok(None);
            }
        }
    }

    /// Gives a complete partial file the name of its blob.
    pub(crate) fn complete(&self, partial: &Partial, part: &Part) -> Result<(), RegistryError> {
        let blob = self.blob(&part.sha256);
        let io = |error| RegistryError::io(blob.display(), error);
        // Not flushed: a blob without its bytes after a crash is found out by its digest.
        fs::rename(&partial.path, &blob).map_err(io)
    }

    /// Lists an image in the index, in place of another of its name.
    pub(crate) fn list(&self, name: &str, root: &Part) -> Result<(), RegistryError> {
        let entry = json!({
            "mediaType": root.media_type, "digest": format!("sha256:{}", root.sha256),
            "size": root.len, "annotations": { NAME: name },
        });
        self.with_index(|manifests| {
            let is_other = |old: &Value| {
                old.get("annotations").and_then(|notes| notes.get(NAME)) != Some(&Value::from(name))
            };
            manifests.retain(is_other);
            manifests.push(entry);
        })
    }

    /// Changes the list of images, which other processes may change too.
    fn with_index(&self, change: impl FnOnce(&mut Vec<Value>)) -> Result<(), RegistryError> {
        let path = self.dir.join("index.json");
        let io = |error| RegistryError::io(path.display(), error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(self.dir.join("partial/lock")).map_err(io)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| io(errno.into()))?;
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(INDEX_MAX).read_to_end(&mut text).map_err(io)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
        }
        // A list that cannot be read is begun again: the blobs are found without it.
        let index: Value = serde_json::from_slice(&text).unwrap_or_default();
        let mut manifests =
            index.get("manifests").and_then(Value::as_array).cloned().unwrap_or_default();
        change(&mut manifests);
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        self.put(&path, index.to_string().as_bytes())
    }

    /// Writes a file that appears whole.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
        let io = |error| RegistryError::io(path.display(), error);
        let mut file = tempfile::NamedTempFile::new_in(self.dir.join("partial")).map_err(io)?;
        file.write_all(bytes).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }
}

/// The first bytes of a blob.
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    len: u64,
    sum: Sha256,
}

impl Partial {
    /// Continues a file of `len` bytes.
    fn new(mut file: File, path: PathBuf, len: u64) -> Result<Self, RegistryError> {
        let mut sum = Sha256::new();
        copy(&mut file, &mut sum).map_err(|error| RegistryError::io(path.display(), error))?;
        Ok(Self { file, path, len, sum })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| RegistryError::io(self.path.display(), error))?;
        self.sum.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Begins again.
    pub(crate) fn clear(&mut self) -> Result<(), RegistryError> {
        let cut = self.file.set_len(0);
        cut.map_err(|error| RegistryError::io(self.path.display(), error))?;
        (self.sum, self.len) = (Sha256::new(), 0);
        Ok(())
    }

    /// The SHA-256 of the bytes, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        hex(self.sum.clone())
    }
}

/// The SHA-256 in hexadecimal.
pub(crate) fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn copy(from: &mut File, sum: &mut Sha256) -> io::Result<()> {
    let mut buf = vec![0; BUF];
    loop {
        match from.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(got) => sum.update(buf.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
