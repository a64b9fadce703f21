//! How container images of registries are fetched: options, and variables of the environment.

use crate::args::Global;
use crate::progress;
use clap::Args;
use seekless_compose::registries::Registries;
use seekless_registry::Access;
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of sources `docker://...`.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct RegistryArgs {
    /// Where images of registries are kept, an OCI layout [default: seekless/images in
    /// $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Whether registries need TLS and a valid certificate; this machine may have a registry
    /// without TLS [default: true]
    #[arg(long, value_name = "BOOL")]
    src_tls_verify: Option<bool>,
    /// Seconds after which a registry that sends nothing, or less than 1 KiB/s, is given up
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    registry_timeout: Option<u64>,
}

impl RegistryArgs {
    /// Access with these options, and with the files of credentials of skopeo, podman and docker.
    pub(crate) fn registries(&self, global: &Global) -> Registries {
        let progress = Arc::new(progress::shown(global));
        let cache = self.cache_dir.clone().or_else(|| in_home("XDG_CACHE_HOME", ".cache", CACHE));
        let Some(cache) = cache else { return Registries { access: None, progress } };
        let mut access = Access::new(cache);
        access.credential_files = credential_files();
        access.verifies_tls = self.src_tls_verify.unwrap_or(true);
        if let Some(bundle) = variable("SSL_CERT_FILE") {
            access.certificates = vec![bundle];
        }
        if let Some(seconds) = self.registry_timeout {
            access.timeout = Duration::from_secs(seconds);
        }
        Registries { access: Some(access), progress }
    }
}

/// The cache, in the directory of caches.
const CACHE: &str = "seekless/images";

/// The files of credentials, in the order of skopeo (`containers-auth.json(5)`).
fn credential_files() -> Vec<PathBuf> {
    if let Some(file) = variable("REGISTRY_AUTH_FILE") {
        return vec![file];
    }
    let file = "containers/auth.json";
    let of_session = variable("XDG_RUNTIME_DIR").map(|dir| dir.join(file));
    let of_user = in_home("XDG_CONFIG_HOME", ".config", file);
    let of_docker = in_home("DOCKER_CONFIG", ".docker", "config.json");
    [of_session, of_user, of_docker].into_iter().flatten().collect()
}

/// A path in the directory of a variable or, without it, in a directory of the user.
fn in_home(name: &str, default: &str, path: &str) -> Option<PathBuf> {
    let dir = variable(name).or_else(|| Some(variable("HOME")?.join(default)));
    dir.map(|dir| dir.join(path))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
