//! Tells versions apart by what they measure with: a hash over the sources of
//! all crates that figures hang on, beside the package's version.

use std::io;
use std::path::{Path, PathBuf};

/// Where what figures hang on is, as directories beside this crate's.
pub(crate) const SOURCES: [&str; 13] = [
    "units/src",
    "device/src",
    "fs/src",
    "cache/src",
    "placement/src",
    "live/src",
    "ffs/src",
    "ext/src",
    "fat/src",
    "layout/src",
    "model/src",
    "model/presets",
    "lab/src",
];

fn main() -> io::Result<()> {
    let version = std::env::var("CARGO_PKG_VERSION").map_err(io::Error::other)?;
    let crates = Path::new("..");
    let here = SOURCES.iter().all(|dir| crates.join(dir).is_dir());
    // A packaged crate lies alone: its version says all.
    let engine = if here { format!("{version}+{:08x}", hash(crates)?) } else { version };
    println!("cargo::rustc-env=SEEKLESS_ENGINE={engine}");
    println!("cargo::rerun-if-changed=build.rs");
    if here {
        SOURCES.iter().for_each(|dir| println!("cargo::rerun-if-changed=../{dir}"));
    }
    Ok(())
}

/// FNV-1a over names and contents, in the order of names, folded to 32 bits.
pub(crate) fn hash(crates: &Path) -> io::Result<u32> {
    let mut paths = Vec::new();
    for dir in SOURCES {
        files(&crates.join(dir), &mut paths)?;
    }
    paths.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for path in paths {
        let name = path.strip_prefix(crates).map_err(io::Error::other)?;
        add(name.to_string_lossy().as_bytes());
        add(&std::fs::read(&path)?);
    }
    Ok((hash ^ (hash >> 32)) as u32)
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        match path.is_dir() {
            true => files(&path, found)?,
            // What editors leave is no source.
            false if hidden => {}
            false => found.push(path),
        }
    }
    Ok(())
}
