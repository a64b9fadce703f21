//! The root file system of a container image: of an OCI image layout, in a directory or an archive,
//! of an archive written by `docker save`, or of a directory written by `skopeo copy`.
//!
//! Layers are applied in order. In each, a `.wh.NAME` entry hides NAME of the layers below,
//! `.wh..wh..opq` all of its directory; entries of the same layer are never hidden, whatever their
//! order.

mod alone;
mod apart;
mod choice;
mod docker;
mod parallel;
mod remote;
pub(crate) mod skopeo;
mod stack;
mod store;

pub(crate) use alone::open_alone;
pub use apart::{Apart, ApartLayer, Whiteouts};
pub use choice::{Choice, Platform};
pub use remote::{Blob, OpenRemote, Remote};

use crate::archive::ArchiveSource;
use crate::options::TreeOptions;
use crate::tar::{self, spool_section};
use oci_spec::OciSpecError;
use oci_spec::image::{
    self as spec, Descriptor, DigestAlgorithm, ImageIndex, ImageManifest, MediaType,
};
use seekless_fs::FsError;
use stack::LayerArchive;
pub(crate) use stack::Layers;
use std::cell::Cell;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::thread;
use store::{ArchiveKind, Section, Store};

/// Maximum size of manifests and indexes in bytes; larger ones are not read.
const JSON_MAX: u64 = 4 << 20;

/// Maximum depth of nested indexes.
const NESTING_MAX: usize = 8;

/// Annotations with an image's name in an index: that of the layout's specification, and
/// containerd's.
const NAME_KEYS: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// The layers of an image in a layout directory, or in one written by skopeo.
///
/// # Errors
/// [`FsError::Container`] when a part is missing or does not match its digest; [`FsError::Invalid`]
/// when the choice does not determine one image; [`FsError::Io`].
pub(crate) fn layers(
    path: &Path,
    choice: &Choice,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<Layers, FsError> {
    let store = Store::Directory { dir: path.to_path_buf(), name: path.display().to_string() };
    let form = if skopeo::is_image(path) { Form::Skopeo } else { Form::Oci };
    Layout { store: &store, form, temp_dir, choice, options, remote: None }.layers()
}

/// Layers that are fetched at once, more where there are more processors to unpack them.
const FETCHED: usize = 3;

/// The layers of an image of which nothing need be there yet. Several are fetched and unpacked at
/// once.
///
/// # Errors
/// As [`layers`], and as [`Remote::fetch`].
pub(crate) fn remote_layers(
    remote: &dyn Remote,
    name: &str,
    platform: Option<Platform>,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<Layers, FsError> {
    let store = Store::Directory { dir: remote.dir().to_path_buf(), name: name.into() };
    let choice = Choice { platform, tag: None };
    let (form, choice, remote) = (Form::Oci, &choice, Some(remote));
    Layout { store: &store, form, temp_dir, choice, options, remote }.layers()
}

/// The result of [`open_archive`].
pub(crate) enum Opened {
    /// The layers of a container image.
    Image(Layers),
    /// An ordinary archive's files.
    Ordinary(Box<ArchiveSource>),
}

/// Opens an archive: of container images, as written by `docker save`, `podman save`, `skopeo
/// copy`, crane, ko, kaniko, jib and Bazel, or of files.
///
/// # Errors
/// As [`layers`], and as for archives.
pub(crate) fn open_archive(
    archive: tar::Spooled,
    name: &str,
    choice: &Choice,
    temp_dir: &Path,
    options: &TreeOptions,
) -> Result<Opened, FsError> {
    // It is nearly always no image: then its entries are read only once.
    let has_mark = Cell::new(false);
    let visit = |path: &[u8]| {
        has_mark.set(has_mark.get() || store::is_mark(path));
        true
    };
    let ordinary = tar::from_spooled(archive.clone(), name.into(), options, visit);
    if !has_mark.get() {
        return Ok(Opened::Ordinary(Box::new(ordinary?)));
    }
    let form = Form::Oci;
    let layout = |store| Layout { store, form, temp_dir, choice, options, remote: None };
    match Store::in_archive(archive, name)? {
        ArchiveKind::Layout(store) => layout(&store).layers().map(Opened::Image),
        ArchiveKind::Saved(store) => layout(&store).saved_layers().map(Opened::Image),
        ArchiveKind::Ordinary(why) => {
            let ordinary = ordinary?;
            if let Some(why) = why {
                let taken = "taken as a plain archive, not as a container image";
                options.notices.tell(&format!("{name}: {taken}: {why}"));
            }
            Ok(Opened::Ordinary(Box::new(ordinary)))
        }
    }
}

/// Whether a layout's `index.json` is valid, or blobs show that it should be.
fn has_index(store: &Store) -> Result<bool, FsError> {
    let json = whole_json(store.open("index.json")?)?;
    Ok(store.has_blobs() || ImageIndex::from_reader(&json[..]).is_ok())
}

/// Whether a layout has an `index.json` that lists nothing.
fn has_empty_index(store: &Store) -> Result<bool, FsError> {
    Ok(store.has("index.json") && lists_nothing(&whole_json(store.open("index.json")?)?))
}

/// Whether an index lists nothing: a file without contents, or an object with no other fields than
/// those of an index, and no manifests.
fn lists_nothing(json: &[u8]) -> bool {
    const FIELDS: [&str; 5] =
        ["schemaVersion", "mediaType", "artifactType", "annotations", "manifests"];
    if json.trim_ascii().is_empty() {
        return true;
    }
    let Ok(serde_json::Value::Object(index)) = serde_json::from_slice(json) else { return false };
    let manifests = index.get("manifests");
    index.keys().all(|key| FIELDS.contains(&key.as_str()))
        && manifests.is_none_or(|list| {
            list.is_null() || list.as_array().is_some_and(|list| list.is_empty())
        })
}

/// The naming of an image's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Names of the OCI specification.
    Oci,
    /// File names of skopeo's directories.
    Skopeo,
}

struct Layout<'a> {
    store: &'a Store,
    form: Form,
    temp_dir: &'a Path,
    choice: &'a Choice,
    options: &'a TreeOptions,
    /// Where parts come from that are not in the store.
    remote: Option<&'a dyn Remote>,
}

impl Layout<'_> {
    /// The layers of a layout's image.
    fn layers(&self) -> Result<Layers, FsError> {
        let manifest = self.manifest()?;
        let layers = manifest.layers();
        let mut threads = parallel::processors();
        if let Some(remote) = self.remote {
            layers.iter().try_for_each(|layer| self.check_layer(layer))?;
            remote.announce(&layers.iter().map(Blob::of).collect::<Vec<_>>());
            threads = threads.max(FETCHED);
        }
        let spooled = |number: usize| self.layer(&layers[number]);
        let gathered = Layers::gather(self.options, |take| {
            parallel::in_order(layers.len(), threads, spooled, take)
        })?;
        let diff_ids = self.diff_ids(&manifest);
        if let Some(remote) = self.remote {
            // Not needed here, but by others who read the layout. It is JSON, and no longer.
            self.json(manifest.config())?;
            remote.complete()?;
        }
        Ok(Layers { diff_ids, ..gathered })
    }

    /// The diff IDs of an image's configuration, one for each layer; `None` for an artifact's
    /// configuration, which has none.
    fn diff_ids(&self, manifest: &ImageManifest) -> Result<Option<Vec<String>>, FsError> {
        let config = manifest.config();
        let is_image = match config.media_type() {
            MediaType::ImageConfig => true,
            MediaType::Other(name) => name.contains("docker.container.image"),
            _ => false,
        };
        if !is_image {
            return Ok(None);
        }
        let found = docker::diff_ids(&self.json(config)?)
            .map_err(|error| self.store.broken(format!("blob {}: {error}", config.digest())))?;
        let (layers, told) = (manifest.layers().len(), found.len());
        if layers != told {
            return Err(self.store.broken(format!("{layers} layers, but {told} diff IDs")));
        }
        Ok(Some(found))
    }

    /// The layers of an image written by `docker save`.
    fn saved_layers(&self) -> Result<Layers, FsError> {
        let saved = docker::layers(self.store, self.choice)?;
        let spooled = |number: usize| {
            let docker::SavedLayer { section, digest } = &saved[number];
            let layer = self.spool(section)?;
            let name = section.name.clone();
            let whole = Section::new(layer.file.clone(), layer.base, layer.len, name.clone());
            let found = whole.sha256().map_err(|error| FsError::io(&name, error))?;
            if found != *digest {
                let what = "contents do not match the digest".into();
                return Err(FsError::Container { name, what });
            }
            Ok(LayerArchive { archive: layer, name, digest: found })
        };
        let threads = parallel::processors();
        Layers::gather(self.options, |take| parallel::in_order(saved.len(), threads, spooled, take))
    }

    /// A layer's archive, decompressed if necessary.
    fn spool(&self, section: &Section) -> Result<tar::Spooled, FsError> {
        let Section { file, start, len, name, .. } = section;
        let plain = tar::Spooled { file: file.clone(), base: *start, len: *len };
        spool_section(section.clone(), plain, name, self.temp_dir)
    }

    /// Refuses an image whose configuration is for another machine than the requested one.
    fn check_platform(&self, manifest: &ImageManifest) -> Result<(), FsError> {
        if self.choice.platform.is_none() {
            return Ok(());
        }
        let json = self.json(manifest.config())?;
        match serde_json::from_slice::<spec::Platform>(&json) {
            Ok(platform) => self.choice.check_platform(self.store, &Platform::from(&platform)),
            // The configuration of an artifact may lack a platform.
            Err(_) => Ok(()),
        }
    }

    /// Opens a blob after checking its length and digest.
    fn blob(&self, descriptor: &Descriptor) -> Result<Section, FsError> {
        let blob = self.unverified(descriptor)?;
        self.verify(&blob, descriptor)?;
        Ok(blob)
    }

    /// Opens a blob after checking its length.
    fn unverified(&self, descriptor: &Descriptor) -> Result<Section, FsError> {
        let digest = descriptor.digest();
        if *digest.algorithm() != DigestAlgorithm::Sha256 {
            return Err(FsError::Unsupported(format!("digest {digest}")));
        }
        let is_manifest = is_manifest(descriptor.media_type());
        let path = match self.form {
            Form::Oci => format!("blobs/sha256/{}", digest.digest()),
            Form::Skopeo => skopeo::blob_path(digest.digest(), is_manifest),
        };
        if let Some(remote) = self.remote {
            remote.fetch(&Blob::of(descriptor))?;
        }
        let blob = self.store.open(&path)?;
        if blob.len != descriptor.size() {
            let what =
                format!("blob {digest}: {} bytes, which does not match its descriptor", blob.len);
            return Err(self.store.broken(what));
        }
        Ok(blob)
    }

    /// Checks the digest of a blob.
    fn verify(&self, blob: &Section, descriptor: &Descriptor) -> Result<(), FsError> {
        if self.remote.is_some() {
            // Done when it came.
            return Ok(());
        }
        let digest = descriptor.digest();
        let found = blob.sha256().map_err(|error| FsError::io(&blob.name, error))?;
        if found != digest.digest() {
            let what = format!("blob {digest}: contents do not match the digest");
            return Err(self.store.broken(what));
        }
        Ok(())
    }

    fn json(&self, descriptor: &Descriptor) -> Result<Vec<u8>, FsError> {
        if descriptor.size() > JSON_MAX {
            let what = format!("blob {}: too large", descriptor.digest());
            return Err(self.store.broken(what));
        }
        whole_json(self.blob(descriptor)?)
    }

    /// The document from which all others are found: its name, its contents, and whether it is an
    /// index.
    fn outermost(&self) -> Result<(String, Vec<u8>, bool), FsError> {
        if let Some(remote) = self.remote {
            let Blob { sha256, media_type, .. } = remote.root();
            let json = whole_json(self.store.open(&format!("blobs/sha256/{sha256}"))?)?;
            let is_index = is_index(&MediaType::from(media_type.as_str()));
            return Ok((format!("blob sha256:{sha256}"), json, is_index));
        }
        let name = match self.form {
            Form::Oci => "index.json",
            Form::Skopeo => "manifest.json",
        };
        let json = whole_json(self.store.open(name)?)?;
        if self.form == Form::Oci {
            return Ok((name.into(), json, true));
        }
        let value: serde_json::Value = serde_json::from_slice(&json)
            .map_err(|error| self.store.broken(format_args!("{name}: {error}")))?;
        if let Some(tag) = &self.choice.tag {
            let why = format!("a directory of skopeo has no tags, so none is {tag}");
            return Err(self.store.invalid(why));
        }
        Ok((name.into(), json, value.get("manifests").is_some()))
    }

    /// The manifest of the chosen image.
    fn manifest(&self) -> Result<ImageManifest, FsError> {
        let (mut part, mut json, mut has_several) = self.outermost()?;
        // Whether an index contains the image's platform.
        let mut is_told = false;
        for level in 0..=NESTING_MAX {
            let unreadable = |error| self.unreadable(&part, &error);
            if !has_several {
                let manifest = ImageManifest::from_reader(&json[..]).map_err(unreadable)?;
                if !is_told {
                    self.check_platform(&manifest)?;
                }
                return Ok(manifest);
            }
            if lists_nothing(&json) {
                return Err(self.choice.none(self.store, &part, &[]));
            }
            let index = ImageIndex::from_reader(&json[..]).map_err(unreadable)?;
            // Only the outermost index has names.
            let chosen = self.choose(&part, &index, level == 0)?;
            is_told = chosen.platform().is_some();
            json = self.json(chosen)?;
            part = format!("blob {}", chosen.digest());
            has_several = is_index(chosen.media_type());
        }
        Err(self.store.broken("indexes nested too deeply"))
    }

    /// The error for a part that is no JSON, or JSON of another schema. The crate's own message
    /// says that parsing failed, its cause says where.
    fn unreadable(&self, part: &str, error: &OciSpecError) -> FsError {
        match error.source() {
            Some(cause) => self.store.broken(format_args!("{part}: {cause}")),
            None => self.store.broken(format_args!("{part}: {error}")),
        }
    }

    fn choose<'i>(
        &self,
        part: &str,
        index: &'i ImageIndex,
        is_outermost: bool,
    ) -> Result<&'i Descriptor, FsError> {
        let names = |descriptor: &Descriptor| -> Vec<String> {
            let notes = descriptor.annotations().as_ref();
            let name = |key: &&str| notes.and_then(|notes| notes.get(*key)).cloned();
            NAME_KEYS.iter().filter_map(name).collect()
        };
        let wanted = self.choice.platform.clone().unwrap_or_default();
        let platform = |descriptor: &Descriptor| descriptor.platform().as_ref().map(Platform::from);
        // Attestations of buildx are no images.
        let is_image =
            |found: &Platform| (&*found.os, &*found.architecture) != ("unknown", "unknown");
        let named: Vec<&Descriptor> = index
            .manifests()
            .iter()
            // Descriptors of unknown types must be ignored.
            .filter(|descriptor| is_manifest(descriptor.media_type()))
            .filter(|descriptor| platform(descriptor).as_ref().is_none_or(is_image))
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
            return Err(self.choice.none(self.store, part, &all()));
        }
        if let Some(one) = same(&named) {
            if let Some(found) = platform(one) {
                self.choice.check_platform(self.store, &found)?;
            }
            return Ok(one);
        }
        let found: Vec<Platform> = named.iter().filter_map(|one| platform(one)).collect();
        let with = |is_fitting: &dyn Fn(&Platform) -> bool| -> Vec<&'i Descriptor> {
            let fits =
                |one: &&&'i Descriptor| platform(one).is_some_and(|found| is_fitting(&found));
            named.iter().filter(fits).copied().collect()
        };
        let fitting = with(&|found| wanted.takes(found));
        let usual = with(&|found| wanted.takes(found) && found.is_usual());
        match same(&fitting).or_else(|| same(&usual)) {
            Some(one) => Ok(one),
            None if fitting.is_empty() && !found.is_empty() => {
                Err(choice::no_image_for(self.store, &wanted, &found))
            }
            None if usual.is_empty() && wanted.variant.is_none() && !fitting.is_empty() => {
                Err(choice::several_variants(self.store, &wanted, &found))
            }
            None => Err(self.choice.several(self.store, &all())),
        }
    }

    /// A layer, decompressed while its digest is computed.
    fn layer(&self, descriptor: &Descriptor) -> Result<LayerArchive, FsError> {
        self.check_layer(descriptor)?;
        let blob = self.unverified(descriptor)?;
        let spooled = thread::scope(|scope| {
            let verified = scope.spawn(|| self.verify(&blob, descriptor));
            let spooled = self.spool(&blob);
            match verified.join() {
                Ok(verified) => verified.and(spooled),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        let digest = descriptor.digest().digest().to_string();
        Ok(LayerArchive { archive: spooled, name: blob.name, digest })
    }

    /// Refuses a layer of a type that is not supported.
    fn check_layer(&self, descriptor: &Descriptor) -> Result<(), FsError> {
        // Compression is detected by the blob's own magic number.
        let known = match descriptor.media_type() {
            MediaType::ImageLayer | MediaType::ImageLayerGzip | MediaType::ImageLayerZstd => true,
            // Layers that their makers keep to their own servers; here they lie with the image.
            MediaType::ImageLayerNonDistributable
            | MediaType::ImageLayerNonDistributableGzip
            | MediaType::ImageLayerNonDistributableZstd => true,
            MediaType::Other(name) => {
                let is_layer = |kind| name.contains(kind);
                is_layer("docker.image.rootfs.diff.tar")
                    || is_layer("docker.image.rootfs.foreign.diff.tar")
            }
            _ => false,
        };
        if !known {
            let what = descriptor.media_type();
            let (name, digest) = (self.store.name(), descriptor.digest());
            return Err(FsError::Unsupported(format!("{name}: layer {digest} of type {what}")));
        }
        Ok(())
    }
}

/// Whether a descriptor refers to another index.
fn is_index(media_type: &MediaType) -> bool {
    match media_type {
        MediaType::ImageIndex => true,
        MediaType::Other(name) => name.contains("docker.distribution.manifest.list"),
        _ => false,
    }
}

/// Whether a descriptor refers to a manifest or an index.
fn is_manifest(media_type: &MediaType) -> bool {
    let is_docker = |name: &String| name.contains("docker.distribution.manifest.v");
    match media_type {
        MediaType::ImageManifest => true,
        MediaType::Other(name) => is_docker(name) || is_index(media_type),
        _ => is_index(media_type),
    }
}

/// Reads a small file, at most `JSON_MAX` bytes.
fn whole_json(section: Section) -> Result<Vec<u8>, FsError> {
    let name = section.name.clone();
    let mut bytes = Vec::new();
    section.take(JSON_MAX).read_to_end(&mut bytes).map_err(|error| FsError::io(name, error))?;
    Ok(bytes)
}
