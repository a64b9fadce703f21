//! The format of `docker save` and `podman save`: `manifest.json` lists the configuration and the
//! layers, which are plain archives, of each image.
//!
//! Format: moby, `image/spec/v1.2.md`, "Combined Image JSON + Filesystem
//! Changeset Format".

use super::store::{Section, Store};
use super::{Choice, JSON_MAX, Platform, whole_json};
use seekless_fs::FsError;
use serde::Deserialize;

/// An image in the list `manifest.json`.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    /// Go writes an empty list as `null`.
    #[serde(default)]
    layers: Option<Vec<String>>,
}

impl Saved {
    fn layers(&self) -> &[String] {
        self.layers.as_deref().unwrap_or_default()
    }

    /// The first missing part.
    fn missing(&self, store: &Store) -> Option<String> {
        let parts = std::iter::once(&self.config).chain(self.layers());
        parts.into_iter().find(|part| !store.has(part)).cloned()
    }
}

/// The fields used of an image's configuration.
#[derive(Deserialize, Debug)]
struct Config {
    rootfs: RootFs,
    #[serde(flatten)]
    machine: Machine,
}

#[derive(Deserialize, Debug)]
struct Machine {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

#[derive(Deserialize, Debug)]
struct RootFs {
    /// Go writes an empty list as `null`.
    diff_ids: Option<Vec<String>>,
}

/// The diff IDs of an image's configuration, which OCI took over.
pub(super) fn diff_ids(config: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let config: Config = serde_json::from_slice(config)?;
    Ok(config.rootfs.diff_ids.unwrap_or_default())
}

/// A layer, and the digest of its uncompressed contents.
pub(super) struct SavedLayer {
    pub(super) section: Section,
    pub(super) digest: String,
}

/// The kind of the file `manifest.json` of a store, which may be anything.
pub(super) enum List {
    /// The file is missing.
    None,
    /// A list of images, at least one of which has all its parts.
    Images,
    /// A list of images without their parts: the first missing part.
    Missing(String),
    /// Another file, and the reason why it is no list.
    Other(String),
}

/// Detects the kind of `manifest.json`.
pub(super) fn list(store: &Store) -> Result<List, FsError> {
    if !store.has("manifest.json") {
        return Ok(List::None);
    }
    let images = match json::<Vec<Saved>>(store, "manifest.json") {
        Ok(images) => images,
        Err(FsError::Container { what, .. }) => return Ok(List::Other(what)),
        Err(error) => return Err(error),
    };
    let mut missing = None;
    for image in &images {
        match image.missing(store) {
            None => return Ok(List::Images),
            Some(part) => missing = missing.or(Some(part)),
        }
    }
    let empty = || List::Other("manifest.json: an empty list".into());
    Ok(missing.map_or_else(empty, List::Missing))
}

/// The layers of the chosen image, the lowest first.
pub(super) fn layers(store: &Store, choice: &Choice) -> Result<Vec<SavedLayer>, FsError> {
    let images: Vec<Saved> = json(store, "manifest.json")?;
    let image = choose(store, &images, choice)?;
    let config: Config = json(store, &image.config)?;
    if let Machine { os: Some(os), architecture: Some(architecture), variant } = config.machine {
        choice.check_platform(store, &Platform { os, architecture, variant })?;
    }
    let digests = config.rootfs.diff_ids.unwrap_or_default();
    if digests.len() != image.layers().len() {
        let (named, told) = (image.layers().len(), digests.len());
        return Err(store.broken(format!("{named} layers, but {told} digests")));
    }
    let layer = |(path, digest): (&String, String)| {
        let Some(digest) = digest.strip_prefix("sha256:").map(str::to_string) else {
            return Err(FsError::Unsupported(format!("digest {digest}")));
        };
        Ok(SavedLayer { section: store.open(path)?, digest })
    };
    image.layers().iter().zip(digests).map(layer).collect()
}

fn json<T: for<'de> Deserialize<'de>>(store: &Store, path: &str) -> Result<T, FsError> {
    let section = store.open(path)?;
    if section.len > JSON_MAX {
        return Err(store.broken(format!("{path}: too large")));
    }
    serde_json::from_slice(&whole_json(section)?)
        .map_err(|error| store.broken(format!("{path}: {error}")))
}

fn choose<'a>(store: &Store, images: &'a [Saved], choice: &Choice) -> Result<&'a Saved, FsError> {
    let names = |image: &Saved| image.repo_tags.clone().unwrap_or_default();
    let fitting: Vec<&Saved> = images
        .iter()
        .filter(|image| choice.takes(names(image).iter().map(String::as_str)))
        .collect();
    let all = || images.iter().flat_map(names).collect::<Vec<String>>();
    match fitting.as_slice() {
        [] => Err(choice.none(store, "manifest.json", &all())),
        [first, rest @ ..] if rest.iter().all(|image| image.config == first.config) => Ok(first),
        _ => Err(choice.several(store, &all())),
    }
}
