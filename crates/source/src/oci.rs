//! An OCI image layout: the root file system of a container image.
//!
//! Layers are applied in order. In each, a `.wh.NAME` entry hides NAME of the
//! layers below, `.wh..wh..opq` all of its directory; entries of the same
//! layer are never hidden, wherever they stand.

use crate::archive::{ArchiveSource, Contents, Layer};
use crate::options::TreeOptions;
use crate::tar::{self, read_into, spool};
use crate::unpack::Unpacker;
use oci_spec::image::{Descriptor, DigestAlgorithm, ImageIndex, ImageManifest, MediaType};
use seekless_fs::tree::NodeId;
use seekless_fs::{FsError, tree::TreeBuilder};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// A machine that a container image may be for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Platform {
    /// `linux` ...
    pub os: String,
    /// `amd64`, `arm64` ... as Go has them.
    pub architecture: String,
}

impl Default for Platform {
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into() }
    }
}

/// Manifests and indexes are small; what is larger is not read.
const JSON_MAX: u64 = 4 << 20;

/// Indexes that may lie in each other.
const NESTING_MAX: usize = 8;

/// Opens a layout directory.
///
/// # Errors
/// [`FsError::Invalid`] when blobs do not match their digests or there is no
/// image for the platform; otherwise as for archives.
pub fn open(
    path: &Path,
    platform: &Platform,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<ArchiveSource, FsError> {
    let layout = Layout { path, temp_dir };
    let manifest = layout.manifest(platform)?;
    let mut unpacker = Unpacker::new(options.clone());
    let mut contents = Contents::default();
    for descriptor in manifest.layers() {
        let layer = layout.layer(descriptor, &mut contents)?;
        apply_whiteouts(&mut unpacker, &mut contents, layer)?;
        read_into(&mut unpacker, &mut contents, layer, |path| whiteout(path).is_none())?;
    }
    Ok(ArchiveSource::new(unpacker.finish()?, contents))
}

struct Layout<'a> {
    path: &'a Path,
    temp_dir: &'a Path,
}

impl Layout<'_> {
    fn invalid(&self, what: impl std::fmt::Display) -> FsError {
        FsError::Invalid(format!("{}: {what}", self.path.display()))
    }

    fn open_file(path: &Path) -> Result<File, FsError> {
        File::open(path).map_err(|error| FsError::io(path.display().to_string(), error))
    }

    /// Opens a blob whose length and digest are right, at its start.
    fn blob(&self, descriptor: &Descriptor) -> Result<(File, PathBuf), FsError> {
        let digest = descriptor.digest();
        if *digest.algorithm() != DigestAlgorithm::Sha256 {
            return Err(FsError::Unsupported(format!("digest {digest}")));
        }
        let path = self.path.join("blobs/sha256").join(digest.digest());
        let mut file = Self::open_file(&path)?;
        let io = |error| FsError::io(path.display().to_string(), error);
        let len = file.metadata().map_err(io)?.len();
        if len != descriptor.size() {
            return Err(self.invalid(format!("blob {digest}: {len} bytes, not as described")));
        }
        let found = sha256(&mut file).map_err(io)?;
        if found != digest.digest() {
            return Err(self.invalid(format!("blob {digest}: contents do not match the digest")));
        }
        file.rewind().map_err(io)?;
        Ok((file, path))
    }

    fn json(&self, descriptor: &Descriptor) -> Result<impl Read, FsError> {
        if descriptor.size() > JSON_MAX {
            return Err(self.invalid(format!("blob {}: too large", descriptor.digest())));
        }
        Ok(self.blob(descriptor)?.0.take(JSON_MAX))
    }

    /// The manifest of the image for a platform, or of the only image.
    fn manifest(&self, platform: &Platform) -> Result<ImageManifest, FsError> {
        let file = Self::open_file(&self.path.join("index.json"))?;
        let mut index =
            ImageIndex::from_reader(file.take(JSON_MAX)).map_err(|error| self.invalid(error))?;
        for _ in 0..NESTING_MAX {
            let chosen = self.choose(&index, platform)?.clone();
            let json = self.json(&chosen)?;
            if *chosen.media_type() == MediaType::ImageIndex {
                index = ImageIndex::from_reader(json).map_err(|error| self.invalid(error))?;
            } else {
                return ImageManifest::from_reader(json).map_err(|error| self.invalid(error));
            }
        }
        Err(self.invalid("indexes nested too deeply"))
    }

    fn choose<'i>(
        &self,
        index: &'i ImageIndex,
        platform: &Platform,
    ) -> Result<&'i Descriptor, FsError> {
        let manifests = index.manifests();
        if let [only] = manifests.as_slice() {
            return Ok(only);
        }
        let fits = |descriptor: &&Descriptor| {
            descriptor.platform().as_ref().is_some_and(|found| {
                found.os().to_string() == platform.os
                    && found.architecture().to_string() == platform.architecture
            })
        };
        let mut fitting = manifests.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(self.invalid("several images for this platform")),
            _ => {
                let Platform { os, architecture } = platform;
                Err(self.invalid(format!("no image for {os}/{architecture}")))
            }
        }
    }

    fn layer(&self, descriptor: &Descriptor, contents: &mut Contents) -> Result<Layer, FsError> {
        // Compression is told by the blob's own magic number.
        let known = match descriptor.media_type() {
            MediaType::ImageLayer | MediaType::ImageLayerGzip | MediaType::ImageLayerZstd => true,
            MediaType::Other(name) => name.contains("docker.image.rootfs.diff.tar"),
            _ => false,
        };
        if !known {
            let what = descriptor.media_type();
            return Err(FsError::Unsupported(format!("layer of type {what}")));
        }
        let (file, path) = self.blob(descriptor)?;
        let name = path.display().to_string();
        let spooled = spool(file, &name, self.temp_dir)?;
        contents.add_archive(spooled.file, name, spooled.len)
    }
}

fn sha256(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buf = vec![0; 256 << 10];
    loop {
        match file.read(&mut buf)? {
            0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            got => hasher.update(&buf[..got]),
        }
    }
}

/// What a whiteout hides.
enum Whiteout<'a> {
    /// All that is in the directory.
    Opaque(&'a [u8]),
    /// One name in the directory.
    Name(&'a [u8], &'a [u8]),
}

fn whiteout(path: &[u8]) -> Option<Whiteout<'_>> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    match name.strip_prefix(b".wh.")? {
        b".wh..opq" => Some(Whiteout::Opaque(dir)),
        hidden => Some(Whiteout::Name(dir, hidden)),
    }
}

/// Takes what a layer hides out of the layers below.
fn apply_whiteouts(
    unpacker: &mut Unpacker,
    contents: &mut Contents,
    layer: Layer,
) -> Result<(), FsError> {
    let mut opaque: HashSet<NodeId> = HashSet::new();
    let mut hidden: Vec<(NodeId, Vec<u8>)> = Vec::new();
    tar::paths(contents, layer, &mut |path| match whiteout(path) {
        Some(Whiteout::Opaque(dir)) => opaque.extend(unpacker.find(dir).ok().flatten()),
        Some(Whiteout::Name(dir, name)) => {
            if let Some(dir) = unpacker.find(dir).ok().flatten() {
                hidden.push((dir, name.to_vec()));
            }
        }
        None => {}
    })?;
    let builder: &mut TreeBuilder = unpacker.builder();
    for (dir, name) in hidden {
        builder.remove(dir, &name);
    }
    if !opaque.is_empty() {
        builder.clear(&opaque);
    }
    Ok(())
}
