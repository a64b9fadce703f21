//! What makes images differ: the time of the environment.

use super::{at, errors, said, workshop};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Every command that reads the variable says so in its help.
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
        let name = path.file_stem().and_then(|name| name.to_str()).expect("name");
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
