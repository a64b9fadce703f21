//! Versions with other sources have other names.

#[path = "../build.rs"]
#[allow(dead_code, reason = "its main is for cargo to call")]
mod build;

use build::{SOURCES, hash};
use seekless_lab::run::VERSION;
use std::fs;

#[test]
fn every_source_counts_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let crates = dir.path();
    for source in SOURCES {
        fs::create_dir_all(crates.join(source).join("deep")).unwrap();
        fs::write(crates.join(source).join("deep/a.rs"), source).unwrap();
    }
    let before = hash(crates).unwrap();
    for source in SOURCES {
        let path = crates.join(source).join("deep/a.rs");
        fs::write(&path, "other").unwrap();
        assert_ne!(hash(crates).unwrap(), before, "{source}");
        fs::write(&path, source).unwrap();
        let moved = crates.join(source).join("deep/b.rs");
        fs::rename(&path, &moved).unwrap();
        assert_ne!(hash(crates).unwrap(), before, "{source}");
        fs::rename(&moved, &path).unwrap();
    }
    fs::write(crates.join("lab/src/.lib.rs.swp"), "an editor's").unwrap();
    fs::create_dir(crates.join("lab/tests")).unwrap();
    fs::write(crates.join("lab/tests/a.rs"), "").unwrap();
    assert_eq!(hash(crates).unwrap(), before);
}

#[test]
fn the_version_has_the_hash_of_what_it_was_built_of() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (version, engine) = VERSION.split_once('+').unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert_eq!(engine, format!("{:08x}", hash(&here.join("..")).unwrap()));
}
