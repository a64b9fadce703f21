//! Architecture rules that no compiler checks: the dependencies allowed between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Allowed dependencies of each crate. A crate exists to forbid dependencies, so a new crate needs
/// a row here.
const ALLOWED: &[(&str, &[&str])] = &[
    ("seekless-units", &[]),
    ("seekless-device", &["seekless-units"]),
    ("seekless-fs", &["seekless-device", "seekless-units"]),
    ("seekless-cache", &["seekless-device", "seekless-fs", "seekless-units"]),
    (
        "seekless-ext",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-fs",
            "seekless-live",
            "seekless-placement",
            "seekless-units",
        ],
    ),
    (
        "seekless-fat",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-fs",
            "seekless-live",
            "seekless-placement",
            "seekless-units",
        ],
    ),
    (
        "seekless-ffs",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-fs",
            "seekless-live",
            "seekless-placement",
            "seekless-units",
        ],
    ),
    (
        "seekless-formats",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-ext",
            "seekless-fat",
            "seekless-ffs",
            "seekless-fs",
            "seekless-live",
            "seekless-placement",
            "seekless-units",
        ],
    ),
    (
        "seekless-images",
        &[
            "seekless-device",
            "seekless-formats",
            "seekless-fs",
            "seekless-host",
            "seekless-partition",
            "seekless-qcow2",
            "seekless-simg",
            "seekless-source",
            "seekless-units",
            "seekless-vhd",
        ],
    ),
    ("seekless-live", &["seekless-cache", "seekless-device", "seekless-fs", "seekless-units"]),
    (
        "seekless-capture",
        &[
            "seekless-fs",
            "seekless-host",
            "seekless-images",
            "seekless-layout",
            "seekless-report",
            "seekless-units",
        ],
    ),
    ("seekless-placement", &["seekless-units"]),
    ("seekless-crash", &["seekless-cache", "seekless-device", "seekless-fs", "seekless-units"]),
    (
        "seekless-source",
        &[
            "seekless-device",
            "seekless-fs",
            "seekless-qcow2",
            "seekless-simg",
            "seekless-units",
            "seekless-vhd",
        ],
    ),
    ("seekless-layout", &["seekless-device", "seekless-fs", "seekless-model", "seekless-units"]),
    (
        "seekless-lab",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-formats",
            "seekless-fs",
            "seekless-layout",
            "seekless-model",
            "seekless-placement",
            "seekless-units",
        ],
    ),
    (
        "seekless-boots",
        &[
            "seekless-capture",
            "seekless-compose",
            "seekless-host",
            "seekless-images",
            "seekless-lab",
            "seekless-layout",
            "seekless-serve",
            "seekless-units",
        ],
    ),
    ("seekless-host", &[]),
    (
        "seekless-online",
        &[
            "seekless-device",
            "seekless-ext",
            "seekless-fs",
            "seekless-host",
            "seekless-images",
            "seekless-layout",
            "seekless-units",
        ],
    ),
    ("seekless-partition", &["seekless-device", "seekless-units"]),
    ("seekless-prefetch", &["seekless-units"]),
    ("seekless-qcow2", &["seekless-device", "seekless-units"]),
    ("seekless-simg", &["seekless-device", "seekless-units"]),
    ("seekless-vhd", &["seekless-device", "seekless-units"]),
    ("seekless-model", &["seekless-units"]),
    ("seekless-verity", &["seekless-device", "seekless-units"]),
    ("seekless-registry", &[]),
    ("seekless-report", &["seekless-units"]),
    (
        "seekless-serve",
        &[
            "seekless-cache",
            "seekless-device",
            "seekless-formats",
            "seekless-fs",
            "seekless-host",
            "seekless-images",
            "seekless-layout",
            "seekless-model",
            "seekless-report",
            "seekless-units",
        ],
    ),
    (
        "seekless-compose",
        &[
            "seekless-device",
            "seekless-ext",
            "seekless-fat",
            "seekless-ffs",
            "seekless-formats",
            "seekless-fs",
            "seekless-host",
            "seekless-images",
            "seekless-layout",
            "seekless-partition",
            "seekless-registry",
            "seekless-source",
            "seekless-summary",
            "seekless-units",
            "seekless-verity",
        ],
    ),
    ("seekless-summary", &["seekless-layout", "seekless-units"]),
    (
        "seekless",
        &[
            "seekless-capture",
            "seekless-compose",
            "seekless-ext",
            "seekless-fat",
            "seekless-ffs",
            "seekless-formats",
            "seekless-fs",
            "seekless-host",
            "seekless-images",
            "seekless-layout",
            "seekless-serve",
            "seekless-units",
        ],
    ),
    ("seekless-python", &["seekless"]),
    (
        "seekless-cli",
        &[
            "seekless-boots",
            "seekless-cache",
            "seekless-capture",
            "seekless-compose",
            "seekless-crash",
            "seekless-device",
            "seekless-ext",
            "seekless-fat",
            "seekless-ffs",
            "seekless-formats",
            "seekless-fs",
            "seekless-lab",
            "seekless-layout",
            "seekless-host",
            "seekless-images",
            "seekless-model",
            "seekless-online",
            "seekless-partition",
            "seekless-placement",
            "seekless-prefetch",
            "seekless-registry",
            "seekless-report",
            "seekless-serve",
            "seekless-source",
            "seekless-summary",
            "seekless-units",
            "seekless-verity",
        ],
    ),
];

/// The only crate with unsafe code.
const UNSAFE_CRATE: &str = "host";

/// Crates of other authors that only one of ours may use.
const RESERVED: &[(&str, &str)] = &[
    ("fuser", "seekless-serve"),
    ("clap", "seekless-cli"),
    ("indicatif", "seekless-cli"),
    ("pyo3", "seekless-python"),
    ("ureq", "seekless-registry"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Dependencies of each crate of the workspace, without those of tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("string").to_string();
    let list = |value: &serde_json::Value| value.as_array().expect("list").clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let used = list(&package["dependencies"])
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .map(|dependency| text(&dependency["name"]))
                .collect();
            (text(&package["name"]), used)
        })
        .collect()
}

#[test]
fn no_crate_knows_more_than_it_may() {
    let crates = dependencies();
    assert!(crates.len() > 5, "only {} crates found", crates.len());
    for (name, used) in &crates {
        let row = ALLOWED.iter().find(|(known, _)| known == name);
        let (_, allowed) = row.unwrap_or_else(|| panic!("{name} has no row in ALLOWED"));
        for dependency in used.iter().filter(|used| crates.contains_key(*used)) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
        for (foreign, owner) in RESERVED {
            assert!(!used.contains(*foreign) || name == owner, "only {owner} may use {foreign}");
        }
    }
}

/// Collects the Rust files below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn nothing_is_unsafe_and_every_crate_takes_the_lints() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 50, "only {} files found", files.len());
    // Composed of parts, so that this file does not match.
    let forbidden = ["fn ", "impl ", "extern ", "trait ", "{"];
    let forbidden = forbidden.map(|next| format!("{} {next}", "unsafe"));
    let allowed = concat!("allow(unsafe", "_code");
    for path in files {
        if path.starts_with(root().join("crates").join(UNSAFE_CRATE)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source");
        let bad = forbidden.iter().map(String::as_str).chain([allowed]);
        for word in bad {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for entry in std::fs::read_dir(root().join("crates")).expect("crates") {
        let manifest = entry.expect("entry").path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("Cargo.toml");
        if manifest.parent().is_some_and(|dir| dir.ends_with(UNSAFE_CRATE)) {
            assert!(text.contains("undocumented_unsafe_blocks = \"deny\""));
            continue;
        }
        assert!(text.contains("[lints]\nworkspace = true"), "{}: no lints", manifest.display());
    }
}

/// Examples that are compiled and run.
#[test]
fn every_library_has_an_example() {
    for (name, _) in ALLOWED.iter().filter(|(name, _)| *name != "seekless-cli") {
        let folder = name.strip_prefix("seekless-").unwrap_or(name);
        let mut files = Vec::new();
        sources(&root().join("crates").join(folder).join("src"), &mut files);
        let begins = |line: &str| matches!(line.trim(), "//! ```" | "/// ```");
        let has = |path: &PathBuf| std::fs::read_to_string(path).unwrap().lines().any(begins);
        assert!(files.iter().any(has), "{name} has no example in its documentation");
    }
}

/// Crates whose library is not compiled for tests have none in it.
#[test]
fn no_test_is_left_out() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("crates")).expect("crates") {
        let dir = entry.expect("entry").path();
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).expect("Cargo.toml");
        if !manifest.contains("[lib]\ntest = false") {
            continue;
        }
        seen += 1;
        let mut files = Vec::new();
        sources(&dir.join("src"), &mut files);
        for path in files {
            let text = std::fs::read_to_string(&path).expect("source");
            assert!(!text.contains("#[test]"), "{} has a test", path.display());
        }
    }
    assert!(seen > 0, "no such crate");
}

/// An offset in a structure of the disk stands next to the structure, in `ondisk.rs`, where it can
/// be compared with the format's description. Constants are recognized by their names.
#[test]
fn offsets_of_formats_are_in_ondisk() {
    let mut found = Vec::new();
    for format in ["ext", "ffs", "fat"] {
        let mut files = Vec::new();
        sources(&root().join("crates").join(format).join("src"), &mut files);
        assert!(files.iter().any(|path| path.ends_with("ondisk.rs")), "{format}");
        for path in files.iter().filter(|path| !path.ends_with("ondisk.rs")) {
            let text = std::fs::read_to_string(path).expect("source");
            found.extend(
                text.lines()
                    .filter_map(|line| offset(line).map(|_| (path.clone(), line.to_string()))),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The name of a constant that is a byte offset, written as a number.
fn offset(line: &str) -> Option<&str> {
    let (_, declared) = line.split_once("const ")?;
    let (name, rest) = declared.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    let is_offset = name.ends_with("_AT") || name.ends_with("_OFFSET");
    let is_number = value.starts_with(|first: char| first.is_ascii_digit());
    (is_offset && is_number && matches!(kind, "usize" | "u64" | "u32")).then_some(name)
}

#[test]
fn offsets_are_recognized() {
    assert_eq!(offset("    pub(crate) const SPACE_AT: usize = 48;"), Some("SPACE_AT"));
    for other in ["const LOOKED_AT: usize = offset_of!(Inode, i_mode);", "let space_at = 48;"] {
        assert_eq!(offset(other), None);
    }
}
