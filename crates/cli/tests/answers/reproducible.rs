//! Inputs that make images differ: SOURCE_DATE_EPOCH, and a requested UUID.

use super::{at, errors, run, said, workshop};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Every command that reads SOURCE_DATE_EPOCH mentions it in its help.
#[test]
fn the_time_of_the_environment_is_in_the_help_of_what_heeds_it() {
    let scratch = workshop("epoch-help");
    let commands = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd");
    let mut heeding = 0;
    for entry in fs::read_dir(commands).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir()
            || !fs::read_to_string(&path).expect("source").contains("source_date_epoch()")
        {
            continue;
        }
        heeding += 1;
        let name = match path.file_stem().and_then(|name| name.to_str()).expect("name") {
            "compose" => "build",
            name => name,
        };
        let help = said(scratch.path(), &[name, "--help"]);
        assert!(help.contains("SOURCE_DATE_EPOCH"), "{name}");
    }
    assert!(heeding >= 2, "{heeding}");
}

#[test]
fn nothing_in_an_image_is_later_than_the_time_of_the_environment() {
    let scratch = workshop("epoch");
    let dir = scratch.path();
    for format in ["ext4", "ufs2"] {
        let name = format!("{format}.img");
        let build = ["build", "tree", "-o", &name, "--format", format];
        let built = at(dir, &build).env("SOURCE_DATE_EPOCH", "1000").output().expect("run");
        assert!(built.status.success(), "{}", errors(&built));
        let manifest = said(dir, &["manifest", &name, "--json"]);
        for line in manifest.lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(entry["time"], "1000.000000000", "{line}");
        }
    }
    for args in
        [&["build", "tree", "-o", "x.img"][..], &["mkfs", "--format", "ufs1", "-s", "8M", "x.img"]]
    {
        let output = at(dir, args).env("SOURCE_DATE_EPOCH", "soon").output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(errors(&output).contains("SOURCE_DATE_EPOCH is not a number of seconds"));
        assert!(!dir.join("x.img").exists());
    }
}

/// The identification of a new image, and its bytes.
fn made(dir: &Path, args: &[&str]) -> (Value, Vec<u8>) {
    let json = [args, &["--json", "--force"]].concat();
    let output = at(dir, &json).env("SOURCE_DATE_EPOCH", "1000").output().expect("run");
    assert!(output.status.success(), "{args:?}: {}", errors(&output));
    let fields: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let image = fields["path"].as_str().expect("path");
    let info = said(dir, &["info", image, "--json"]);
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert!(fields["uuid"].is_null() || fields["uuid"] == info["uuid"], "{fields}");
    (info["uuid"].clone(), fs::read(dir.join(image)).expect("image"))
}

#[test]
fn a_random_uuid_is_another_each_time_and_is_said() {
    let scratch = workshop("uuid");
    let dir = scratch.path();
    let makers: [&[&str]; 2] =
        [&["build", "tree", "-o", "x.img"], &["mkfs", "--format", "ufs2", "--size", "8M", "x.img"]];
    for args in makers {
        let first = made(dir, args);
        assert!(first == made(dir, args), "{args:?}: the same input gave other bytes");
        let random = [args, &["--uuid", "random"]].concat();
        let uuids = [0, 1, 2].map(|_| made(dir, &random).0);
        assert!(uuids.iter().all(|uuid| *uuid != first.0), "{args:?}: {uuids:?}");
        assert!(uuids[0] != uuids[1] && uuids[1] != uuids[2] && uuids[0] != uuids[2]);
        let line = said(dir, &[&random[..], &["--force"]].concat());
        let info = said(dir, &["info", "x.img", "--json"]);
        let info: Value = serde_json::from_str(&info).expect("JSON");
        let uuid = info["uuid"].as_str().expect("uuid");
        assert!(line.trim_end().ends_with(&format!(", UUID {uuid}")), "{line}");
        // Version 4, variant 1, of RFC 9562.
        if args[0] == "build" {
            let bytes = uuid.as_bytes();
            assert!(bytes[14] == b'4' && matches!(bytes[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
        }
    }
    // Invalid UUIDs are refused.
    for wrong in ["Random", "1234", "random "] {
        let output = run(dir, &["build", "tree", "-o", "y.img", "--uuid", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}
