//! The format of `skopeo copy ... dir:DIR`: `manifest.json` is the manifest of an image, or with
//! `--all` an index of several; blobs are named by their digests alone, the manifests of an index
//! by digest and `.manifest.json`.
//!
//! Format: containers/image, `directory/directory_transport.go`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The beginning of the file `version`; 1.1 is the latest.
const MARK: &[u8] = b"Directory Transport Version: ";

/// Whether a directory is such an image.
pub(crate) fn is_image(dir: &Path) -> bool {
    let mut start = Vec::new();
    let version = File::open(dir.join("version"));
    let read = version.map(|file| file.take(MARK.len() as u64).read_to_end(&mut start));
    matches!(read, Ok(Ok(_))) && start == MARK && dir.join("manifest.json").is_file()
}

/// The path of a blob in it.
pub(super) fn blob_path(digest: &str, is_manifest: bool) -> String {
    if is_manifest { format!("{digest}.manifest.json") } else { digest.into() }
}
