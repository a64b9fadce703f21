//! The root file system of a container image: of an OCI image layout, in a
//! directory or an archive, or of an archive as `docker save` writes it.
//!
//! Layers are applied in order. In each, a `.wh.NAME` entry hides NAME of the
//! layers below, `.wh..wh..opq` all of its directory; entries of the same
//! layer are never hidden, wherever they stand.

mod docker;
mod store;

use crate::archive::{ArchiveSource, Contents, Layer};
use crate::options::TreeOptions;
use crate::tar::{self, read_into, spool_section};
use crate::unpack::Unpacker;
use oci_spec::OciSpecError;
use oci_spec::image::{Descriptor, DigestAlgorithm, ImageIndex, ImageManifest, MediaType};
use seekless_fs::tree::NodeId;
use seekless_fs::{FsError, tree::TreeBuilder};
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use store::{ArchiveKind, Section, Store};

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

/// Which image is taken where there are several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The machine it is for.
    pub platform: Platform,
    /// Its name, whole (`docker.io/library/debian:12`) or its end from a colon or
    /// slash on (`debian:12`, `12`; `debian` for `debian:latest`); any, when there
    /// is only one.
    pub tag: Option<String>,
}

impl Choice {
    /// Whether an image with these names is wanted.
    fn takes<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        let Some(tag) = &self.tag else { return true };
        // Without a tag in it, a name means the latest.
        let wanted = [tag.clone(), format!("{tag}:latest")];
        let is_end = |name: &str, tag: &String| {
            let before = name.strip_suffix(tag.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with([':', '/']))
        };
        names.any(|name| wanted.iter().any(|tag| is_end(name, tag)))
    }

    fn none(&self, store: &Store, names: &[String]) -> FsError {
        match &self.tag {
            Some(tag) => store.invalid(format!("no image has the tag {tag}{}", known(names))),
            None => store.invalid("contains no image"),
        }
    }

    fn several(&self, store: &Store, names: &[String]) -> FsError {
        store.invalid(format!("contains several images; select one with --tag{}", known(names)))
    }
}

/// The names there are, for a message.
fn known(names: &[String]) -> String {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { String::new() } else { format!(" (there are: {})", names.join(", ")) }
}

/// Manifests and indexes are small; what is larger is not read.
const JSON_MAX: u64 = 4 << 20;

/// Indexes that may lie in each other.
const NESTING_MAX: usize = 8;

/// How names of images stand in an index: as the layout's specification has it,
/// and as containerd writes it.
const NAME_KEYS: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Opens a layout directory.
///
/// # Errors
/// [`FsError::Container`] when a part is missing or does not match its digest;
/// [`FsError::Invalid`] when there is no one image to be taken; otherwise as for
/// archives.
pub fn open(
    path: &Path,
    choice: &Choice,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<ArchiveSource, FsError> {
    let store = Store::Directory(path.to_path_buf());
    Layout { store: &store, temp_dir, choice }.open(options)
}

/// What [`open_archive`] found.
pub(crate) enum Opened {
    /// The root file system of a container image.
    Image(ArchiveSource),
    /// No container image: the archive, to be taken as it is.
    Ordinary(tar::Spooled),
}

/// Opens an archive of container images, as `docker save`, `podman save` and
/// `skopeo copy` write them, if it is one.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_archive(
    archive: tar::Spooled,
    name: &str,
    choice: &Choice,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<Opened, FsError> {
    let store = match Store::in_archive(archive, name)? {
        ArchiveKind::Parts(store) => store,
        ArchiveKind::Ordinary(archive) => return Ok(Opened::Ordinary(archive)),
    };
    let layout = Layout { store: &store, temp_dir, choice };
    let is_layout = store.has("oci-layout") && store.has("index.json");
    let source = if is_layout { layout.open(options) } else { layout.open_saved(options) };
    Ok(Opened::Image(source?))
}

struct Layout<'a> {
    store: &'a Store,
    temp_dir: &'a Path,
    choice: &'a Choice,
}

impl Layout<'_> {
    /// An image of a layout.
    fn open(&self, options: &TreeOptions) -> Result<ArchiveSource, FsError> {
        let manifest = self.manifest()?;
        let mut stack = Stack::new(options);
        for descriptor in manifest.layers() {
            let blob = self.layer(descriptor)?;
            stack.add(self.spool(&blob)?, blob.name)?;
        }
        stack.finish()
    }

    /// An image that `docker save` wrote.
    fn open_saved(&self, options: &TreeOptions) -> Result<ArchiveSource, FsError> {
        let mut stack = Stack::new(options);
        for docker::SavedLayer { section, digest } in docker::layers(self.store, self.choice)? {
            let layer = self.spool(&section)?;
            let name = section.name;
            let whole = Section::new(layer.file.clone(), layer.base, layer.len, name.clone());
            let found = whole.sha256().map_err(|error| FsError::io(&name, error))?;
            if found != digest {
                let what = "contents do not match the digest".into();
                return Err(FsError::Container { name, what });
            }
            stack.add(layer, name)?;
        }
        stack.finish()
    }

    /// A layer's archive, unpacked if it is compressed.
    fn spool(&self, section: &Section) -> Result<tar::Spooled, FsError> {
        let Section { file, start, len, name, .. } = section;
        let plain = tar::Spooled { file: file.clone(), base: *start, len: *len };
        spool_section(section.clone(), plain, name, self.temp_dir)
    }

    /// Opens a blob whose length and digest are right.
    fn blob(&self, descriptor: &Descriptor) -> Result<Section, FsError> {
        let digest = descriptor.digest();
        if *digest.algorithm() != DigestAlgorithm::Sha256 {
            return Err(FsError::Unsupported(format!("digest {digest}")));
        }
        let blob = self.store.open(&format!("blobs/sha256/{}", digest.digest()))?;
        if blob.len != descriptor.size() {
            let what =
                format!("blob {digest}: {} bytes, which does not match its descriptor", blob.len);
            return Err(self.store.broken(what));
        }
        let found = blob.sha256().map_err(|error| FsError::io(&blob.name, error))?;
        if found != digest.digest() {
            let what = format!("blob {digest}: contents do not match the digest");
            return Err(self.store.broken(what));
        }
        Ok(blob)
    }

    fn json(&self, descriptor: &Descriptor) -> Result<Vec<u8>, FsError> {
        if descriptor.size() > JSON_MAX {
            let what = format!("blob {}: too large", descriptor.digest());
            return Err(self.store.broken(what));
        }
        whole_json(self.blob(descriptor)?)
    }

    /// The manifest of the image that is wanted.
    fn manifest(&self) -> Result<ImageManifest, FsError> {
        let index = whole_json(self.store.open("index.json")?)?;
        let mut index = ImageIndex::from_reader(&index[..])
            .map_err(|error| self.unreadable("index.json", &error))?;
        for level in 0..NESTING_MAX {
            // Only the outermost index has names.
            let chosen = self.choose(&index, level == 0)?.clone();
            let json = self.json(&chosen)?;
            let unreadable = |error| self.unreadable(&format!("blob {}", chosen.digest()), &error);
            if is_index(chosen.media_type()) {
                index = ImageIndex::from_reader(&json[..]).map_err(unreadable)?;
            } else {
                return ImageManifest::from_reader(&json[..]).map_err(unreadable);
            }
        }
        Err(self.store.broken("indexes nested too deeply"))
    }

    /// A part that is no JSON, or not the JSON it should be. The crate's own
    /// message says that it failed, its cause where.
    fn unreadable(&self, part: &str, error: &OciSpecError) -> FsError {
        match error.source() {
            Some(cause) => self.store.broken(format_args!("{part}: {cause}")),
            None => self.store.broken(format_args!("{part}: {error}")),
        }
    }

    fn choose<'i>(
        &self,
        index: &'i ImageIndex,
        is_outermost: bool,
    ) -> Result<&'i Descriptor, FsError> {
        let names = |descriptor: &Descriptor| -> Vec<String> {
            let notes = descriptor.annotations().as_ref();
            let name = |key: &&str| notes.and_then(|notes| notes.get(*key)).cloned();
            NAME_KEYS.iter().filter_map(name).collect()
        };
        let Platform { os, architecture } = &self.choice.platform;
        let is_for = |descriptor: &&&Descriptor, wanted: (&str, &str)| {
            descriptor.platform().as_ref().is_some_and(|found| {
                (found.os().to_string().as_str(), found.architecture().to_string().as_str())
                    == wanted
            })
        };
        let named: Vec<&Descriptor> = index
            .manifests()
            .iter()
            // What buildx says of how an image was made is no image.
            .filter(|descriptor| !is_for(&descriptor, ("unknown", "unknown")))
            .filter(|descriptor| {
                !is_outermost || self.choice.takes(names(descriptor).iter().map(String::as_str))
            })
            .collect();
        let all = || index.manifests().iter().flat_map(names).collect::<Vec<String>>();
        let same = |these: &[&'i Descriptor]| {
            let (first, rest) = these.split_first()?;
            let same = rest.iter().all(|descriptor| descriptor.digest() == first.digest());
            same.then_some(*first)
        };
        if named.is_empty() {
            return Err(self.choice.none(self.store, &all()));
        }
        if let Some(one) = same(&named) {
            return Ok(one);
        }
        let fitting: Vec<&Descriptor> = named
            .iter()
            .filter(|descriptor| is_for(descriptor, (os, architecture)))
            .copied()
            .collect();
        let has_platforms = named.iter().any(|descriptor| descriptor.platform().is_some());
        match same(&fitting) {
            Some(one) => Ok(one),
            None if fitting.is_empty() && has_platforms => {
                Err(self.store.invalid(format!("no image for {os}/{architecture}")))
            }
            None => Err(self.choice.several(self.store, &all())),
        }
    }

    fn layer(&self, descriptor: &Descriptor) -> Result<Section, FsError> {
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
        self.blob(descriptor)
    }
}

/// Whether a descriptor leads to another index.
fn is_index(media_type: &MediaType) -> bool {
    match media_type {
        MediaType::ImageIndex => true,
        MediaType::Other(name) => name.contains("docker.distribution.manifest.list"),
        _ => false,
    }
}

/// All of a small file.
fn whole_json(section: Section) -> Result<Vec<u8>, FsError> {
    let name = section.name.clone();
    let mut bytes = Vec::new();
    section.take(JSON_MAX).read_to_end(&mut bytes).map_err(|error| FsError::io(name, error))?;
    Ok(bytes)
}

/// Layers laid over each other.
struct Stack {
    unpacker: Unpacker,
    contents: Contents,
}

impl Stack {
    fn new(options: &TreeOptions) -> Self {
        Self { unpacker: Unpacker::new(options.clone()), contents: Contents::default() }
    }

    /// Adds the next layer.
    fn add(&mut self, layer: tar::Spooled, name: String) -> Result<(), FsError> {
        let layer = self.contents.add_archive(layer, name)?;
        apply_whiteouts(&mut self.unpacker, &mut self.contents, layer)?;
        let wanted = |path: &[u8]| whiteout(path).is_none();
        read_into(&mut self.unpacker, &mut self.contents, layer, wanted)
    }

    fn finish(self) -> Result<ArchiveSource, FsError> {
        Ok(ArchiveSource::new(self.unpacker.finish()?, self.contents))
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
