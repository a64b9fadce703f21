//! Container images in registries, fetched into a cache.
//!
//! The protocol is that of the OCI distribution specification, of which only reading is needed. The
//! cache is an OCI image layout: whatever reads such a layout reads the image.
//!
//! - [`Reference`]: names of images
//! - [`RemoteImage`]: an image, whose parts are fetched when they are wanted
//! - [`Access`]: where credentials, certificates and the cache are
//! - `transport`: requests, authenticated and repeated; `challenge`: how a registry wants to be
//!   authenticated; `credentials`: files of docker and podman, and their helpers; `roots`: whose
//!   certificates are believed; `answers`: reasons that servers give; `redirect`: other servers;
//!   `pace`: the least rate
//! - `cache`: blobs under their digests, and parts of them
//!
//! Nothing that a registry sends is believed: each part has the length and the SHA-256 that its
//! descriptor says, manifests have at most 4 MiB, and nothing is waited for without a limit. The
//! environment is not read, except for the variables of proxies, by ureq.
//!
//! ```
//! use seekless_registry::Reference;
//!
//! let image: Reference = "docker://debian:12".parse()?;
//! assert_eq!(image.to_string(), "docker.io/library/debian:12");
//! # Ok::<(), seekless_registry::RegistryError>(())
//! ```

mod answers;
mod cache;
mod challenge;
mod credentials;
mod error;
mod image;
mod pace;
mod redirect;
mod reference;
mod roots;
mod transport;

pub use error::RegistryError;
pub use image::{Part, RemoteImage};
pub use reference::{Reference, SCHEME};

use std::path::PathBuf;
use std::time::Duration;

/// How registries are reached, and where images are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The directory of the cache.
    pub cache_dir: PathBuf,
    /// Files with credentials, as podman and docker have them; the first that has some counts.
    pub credential_files: Vec<PathBuf>,
    /// Files with certificates by which servers are believed; the first that exists counts.
    pub certificates: Vec<PathBuf>,
    /// Whether servers need a certificate that is valid. This machine needs none, but if it has
    /// one, that must be valid too.
    pub verifies_tls: bool,
    /// The longest time in which nothing comes, or less than 1 KiB in each second.
    pub timeout: Duration,
}

impl Access {
    /// Access without credentials to servers that have a valid certificate; 30 seconds.
    #[must_use]
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            credential_files: Vec::new(),
            certificates: BUNDLES.iter().map(PathBuf::from).collect(),
            verifies_tls: true,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Where systems keep the certificates that they believe in (Debian and Alpine; Fedora; openSUSE;
/// FreeBSD and others).
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
