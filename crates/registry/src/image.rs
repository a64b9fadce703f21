//! An image of a registry, whose parts come into the cache when they are wanted.

use crate::cache::{Cache, Partial, hex};
use crate::reference::is_sha256;
use crate::transport::Transport;
use crate::{Access, Reference, RegistryError};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Maximum size of a manifest in bytes, as the distribution specification suggests.
const MANIFEST_MAX: u64 = 4 << 20;

/// The kinds of manifests that are supported.
const KINDS: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// How often the transfer of a blob may break off.
const BREAKS_MAX: u32 = 6;

/// Wait before a transfer is continued, times the number of breaks.
const PAUSE: Duration = Duration::from_millis(200);

const BUF: usize = 128 << 10;

/// A manifest, a configuration or a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its SHA-256: 64 lowercase hexadecimal digits.
    pub sha256: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its type.
    pub media_type: String,
}

/// The fields of a manifest that tell its kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    media_type: String,
}

/// An image of a registry.
pub struct RemoteImage {
    reference: Reference,
    cache: Cache,
    transport: Transport,
    root: Part,
}

impl RemoteImage {
    /// Finds an image and its manifest, or its index. One that is named by its digest needs no
    /// request if the cache has it.
    ///
    /// # Errors
    /// [`RegistryError`]; [`RegistryError::Unsupported`] for an image of docker's schema 1.
    pub fn find(reference: &Reference, access: &Access) -> Result<Self, RegistryError> {
        let cache = Cache::open(&access.cache_dir)?;
        let transport = Transport::new(reference, access)?;
        let cached = reference.digest().and_then(|hex| cache.read(hex, MANIFEST_MAX));
        let root = match cached {
            Some(bytes) => root_of(&bytes, "")?,
            None => fetch_root(reference, &transport, &cache)?,
        };
        Ok(Self { reference: reference.clone(), cache, transport, root })
    }

    /// The manifest, or the index.
    #[must_use]
    pub fn root(&self) -> &Part {
        &self.root
    }

    /// The cache, an OCI image layout.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.cache.dir()
    }

    /// Brings a part into the cache, its length and digest verified; `came` is called with numbers
    /// of bytes, in all the length. Several threads may fetch parts at once.
    ///
    /// # Errors
    /// [`RegistryError`]; [`RegistryError::Damaged`] if the digest does not match.
    pub fn fetch(&self, part: &Part, came: &dyn Fn(u64)) -> Result<(), RegistryError> {
        if !is_sha256(&part.sha256) {
            return Err(RegistryError::Damaged(format!("blob {}: not a digest", part.sha256)));
        }
        if self.cache.has(part)? {
            came(part.len);
            return Ok(());
        }
        let Some(mut partial) = self.cache.partial(part)? else {
            came(part.len);
            return Ok(());
        };
        // Begun by an earlier process.
        let is_continued = partial.len() > 0;
        if partial.len() > part.len {
            partial.clear()?;
        }
        self.cache.check_room(part.len - partial.len())?;
        came(partial.len());
        self.transfer(part, &mut partial, came)?;
        if partial.sha256() != part.sha256 && is_continued {
            // Its bytes may be those of a crash.
            partial.clear()?;
            self.transfer(part, &mut partial, &|_| {})?;
        }
        debug_assert!(partial.len() == part.len, "a transfer ends with the last byte");
        if partial.sha256() != part.sha256 {
            partial.clear()?;
            let (host, hex) = (self.transport.host(), &part.sha256);
            let what = format!("blob sha256:{hex}: what {host} sent does not match the digest");
            return Err(RegistryError::Damaged(what));
        }
        self.cache.complete(&partial, part)
    }

    /// Lists the image in the index of the cache, under its whole name, once all parts are there.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn keep(&self) -> Result<(), RegistryError> {
        self.cache.list(&self.reference.to_string(), &self.root)
    }

    /// Adds bytes until a partial file has the length of its part.
    fn transfer(
        &self,
        part: &Part,
        partial: &mut Partial,
        came: &dyn Fn(u64),
    ) -> Result<(), RegistryError> {
        let mut breaks = 0;
        while partial.len() < part.len {
            let Some(why) = self.transfer_once(part, partial, came)? else { continue };
            breaks += 1;
            if breaks == BREAKS_MAX {
                let (host, hex) = (self.transport.host(), &part.sha256);
                let what = format!("{host}: blob sha256:{hex} breaks off: {why}");
                return Err(RegistryError::Answer(format!("{what} ({BREAKS_MAX} attempts)")));
            }
            thread::sleep(PAUSE * breaks);
        }
        Ok(())
    }

    /// Makes one request; returns why it gave less than all.
    fn transfer_once(
        &self,
        part: &Part,
        partial: &mut Partial,
        came: &dyn Fn(u64),
    ) -> Result<Option<String>, RegistryError> {
        let is_manifest = KINDS.contains(&part.media_type.as_str());
        let folder = if is_manifest { "manifests" } else { "blobs" };
        let accepted: &[&str] = if is_manifest { &KINDS } else { &[] };
        let path = format!("{folder}/sha256:{}", part.sha256);
        let start = partial.len();
        let answer = self.transport.get(&path, accepted, start..part.len)?;
        let range = answer.headers().get("content-range").and_then(|value| value.to_str().ok());
        let is_continuation = answer.status() == 206
            && range.is_none_or(|range| range.starts_with(&format!("bytes {start}-")));
        if start > 0 && !is_continuation {
            // The server sends all of it, or has less than we have.
            partial.clear()?;
            if answer.status() != 200 {
                return Ok(Some(format!("it does not send bytes from {start} on")));
            }
        }
        let mut body = self.transport.paced(answer);
        let mut buf = vec![0; BUF];
        loop {
            let got = match body.read(&mut buf) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.transport.broken(error).map(Some),
            };
            let bytes = buf.get(..got).unwrap_or_default();
            if bytes.is_empty() {
                let is_whole = partial.len() == part.len;
                return Ok((!is_whole).then(|| "it is shorter than its descriptor says".into()));
            }
            if bytes.len() as u64 > part.len - partial.len() {
                partial.clear()?;
                let hex = &part.sha256;
                let what = format!("blob sha256:{hex}: longer than its descriptor says");
                return Err(RegistryError::Damaged(what));
            }
            let is_new = partial.len() >= start;
            partial.push(bytes)?;
            if is_new {
                came(bytes.len() as u64);
            }
        }
    }
}

/// Fetches the manifest, or the index, that a name stands for.
fn fetch_root(
    reference: &Reference,
    transport: &Transport,
    cache: &Cache,
) -> Result<Part, RegistryError> {
    let answer =
        transport.get(&format!("manifests/{}", reference.version()), &KINDS, 0..MANIFEST_MAX)?;
    let text = |name: &str| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_string()
    };
    let (told, kind) = (text("docker-content-digest"), text("content-type"));
    let mut bytes = Vec::new();
    let mut body = transport.paced(answer).take(MANIFEST_MAX + 1);
    if let Err(error) = body.read_to_end(&mut bytes) {
        let why = transport.broken(error)?;
        let what = format!("{}: the manifest breaks off: {why}", transport.host());
        return Err(RegistryError::Answer(what));
    }
    if bytes.len() as u64 > MANIFEST_MAX {
        return Err(RegistryError::Damaged("the manifest is larger than 4M".into()));
    }
    let found = root_of(&bytes, &kind)?;
    let wanted = reference.digest().or_else(|| told.strip_prefix("sha256:"));
    if let Some(wanted) = wanted.filter(|wanted| *wanted != found.sha256) {
        let wanted = crate::answers::printable(wanted);
        let what = format!("manifest sha256:{wanted}: what {} sent", transport.host());
        return Err(RegistryError::Damaged(format!("{what} does not match the digest")));
    }
    cache.add(&found.sha256, &bytes)?;
    Ok(found)
}

/// A manifest as a part: its kind is the one that it says itself, or else that of the answer.
fn root_of(bytes: &[u8], content_type: &str) -> Result<Part, RegistryError> {
    // The parser's message may show a part of it.
    let unreadable = |error: serde_json::Error| {
        let why = crate::answers::printable(&error.to_string());
        RegistryError::Damaged(format!("the manifest: {why}"))
    };
    let kind: Kind = serde_json::from_slice(bytes).map_err(unreadable)?;
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    if kind.schema_version == 1 || content_type.contains("docker.distribution.manifest.v1") {
        let what = "an image of docker's schema 1";
        let help = "convert it: skopeo copy --format v2s2";
        return Err(RegistryError::Unsupported(format!("{what} ({help})")));
    }
    let told = [kind.media_type.as_str(), content_type];
    let known = KINDS.iter().find(|known| told.contains(known));
    let Some(media_type) = known.map(|known| (*known).to_string()) else {
        // A manifest may lack its type, and the cache has no header.
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        let [index, manifest, ..] = KINDS;
        let is_untold = kind.media_type.is_empty();
        let media_type = match (value.get("manifests"), value.get("layers")) {
            (Some(_), None) if is_untold => index,
            (None, Some(_)) if is_untold => manifest,
            _ => {
                let told = if is_untold { content_type } else { &kind.media_type };
                let told = crate::answers::printable(told);
                return Err(RegistryError::Unsupported(format!("manifest of type '{told}'")));
            }
        };
        return Ok(part(bytes, media_type));
    };
    Ok(part(bytes, &media_type))
}

fn part(bytes: &[u8], media_type: &str) -> Part {
    let sha256 = hex(Sha256::new_with_prefix(bytes));
    Part { sha256, len: bytes.len() as u64, media_type: media_type.into() }
}
