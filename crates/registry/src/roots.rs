//! Certificates by which servers are believed.

use crate::{Reference, RegistryError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Directories with a directory of further certificates for each host, as docker and podman have
/// them (`containers-certs.d(5)`).
const OF_HOSTS: [&str; 2] = ["/etc/containers/certs.d", "/etc/docker/certs.d"];

/// The roots for a host: those of the first bundle that is there, and those that this machine has
/// for the host. Without a bundle, as in an initramfs, the roots of Mozilla are taken.
pub(crate) fn of(bundles: &[PathBuf], reference: &Reference) -> Result<RootCerts, RegistryError> {
    let mut roots = Vec::new();
    let mut has_bundle = false;
    for bundle in bundles {
        match std::fs::read(bundle) {
            Ok(pem) => {
                read(&pem, bundle, &mut roots)?;
                has_bundle = true;
                break;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(RegistryError::io(bundle.display(), error)),
        }
    }
    let mut is_extended = false;
    for dir in OF_HOSTS {
        let Ok(entries) = Path::new(dir).join(reference.host()).read_dir() else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "crt") {
                let pem = std::fs::read(&path);
                let pem = pem.map_err(|error| RegistryError::io(path.display(), error))?;
                read(&pem, &path, &mut roots)?;
                is_extended = true;
            }
        }
    }
    if has_bundle || is_extended {
        Ok(RootCerts::new_with_certs(&roots))
    } else {
        Ok(RootCerts::WebPki)
    }
}

fn read(
    pem: &[u8],
    path: &Path,
    roots: &mut Vec<Certificate<'static>>,
) -> Result<(), RegistryError> {
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
            Ok(_) => {}
            Err(error) => {
                let what = format!("{}: not a file of certificates: {error}", path.display());
                return Err(RegistryError::Answer(what));
            }
        }
    }
    Ok(())
}
