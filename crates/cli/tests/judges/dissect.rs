//! An independent reader of UFS: dissect.ffs, installed by `.ci/judges`, and images made by FreeBSD
//! from its tests.

use super::ON_DISK;
use std::path::PathBuf;

/// Whether dissect.ffs is installed; reports if not.
pub(crate) fn ready() -> bool {
    super::python::ready("dissect.ffs")
}

/// Images made by FreeBSD, compressed.
pub(crate) fn images() -> Vec<PathBuf> {
    let dir = std::fs::read_dir(format!("{ON_DISK}/../judges/images"));
    let mut found: Vec<PathBuf> =
        dir.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Prints path, length and SHA-256 of each file as dissect.ffs reads it.
const DISSECT: &str = r#"
import hashlib, sys
from dissect.ffs import ffs
with open(sys.argv[1], "rb") as image:
    stack = [("", ffs.FFS(image).root)]
    while stack:
        path, node = stack.pop()
        for name, child in node.listdir().items():
            at = f"{path}/{name}"
            # It shows entries that are not used, too.
            if name in (".", "..") or child.inum == 0:
                continue
            if child.is_dir():
                stack.append((at, child))
            elif child.is_file():
                digest = hashlib.sha256(child.open().read()).hexdigest()
                print(f".{at} size={child.size} sha256digest={digest}")
            elif child.is_symlink():
                print(f".{at} link={child.link}")
"#;

/// Converts our listing to the same form, with names as they are stored.
pub(crate) fn of_manifest(manifest: &str) -> Vec<String> {
    let line = |line: &str| {
        let path = line.split(' ').next()?.replace("\\040", " ").replace("\\s", " ");
        let path = path.replace("\\043", "#");
        let word = |key: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(key)).map(|value| format!("{key}{value}"))
        };
        if line.contains("type=link") {
            return Some(format!("{path} {}", word("link=")?));
        }
        Some(format!("{path} {} {}", word("size=")?, word("sha256digest=")?))
    };
    let mut lines: Vec<String> = manifest.lines().filter_map(line).collect();
    lines.sort();
    lines
}

/// Fails unless dissect.ffs finds exactly the wanted files in an image.
pub(crate) fn agrees(what: &str, wanted: &[String], image: &str) {
    let said = super::python::run(DISSECT, &[image]);
    let mut said: Vec<String> = said.lines().map(str::to_string).collect();
    said.sort();
    let pairs = wanted.iter().zip(&said).find(|(wanted, said)| wanted != said);
    assert!(pairs.is_none() && said.len() == wanted.len(), "{what}: {pairs:?}");
}
