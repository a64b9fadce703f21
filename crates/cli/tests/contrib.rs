//! The recipes of `contrib`, each with the tool that it is for: `contrib/run` says how.

mod judges;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib")
}

/// Runs the test of a recipe; `contrib/run` fails where its tool is missing and judges are required.
fn try_recipe(name: &str) {
    let output = Command::new(directory().join("run"))
        .arg(name)
        .env("SEEKLESS", env!("CARGO_BIN_EXE_seekless"))
        .output()
        .expect("contrib/run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    if said.contains(": left out: ") {
        judges::skip(said.trim());
    }
}

macro_rules! recipes {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                try_recipe($name);
            }
        )*

        #[test]
        fn each_recipe_is_tried() {
            let tried = BTreeSet::from([$($name.to_owned(),)* "mkosi".to_owned()]);
            let entries = std::fs::read_dir(directory()).expect("list");
            let paths = entries.map(|entry| entry.expect("entry").path());
            let name = |path: PathBuf| path.file_name()?.to_str().map(str::to_owned);
            let there = paths.filter(|path| path.is_dir()).filter_map(name);
            assert_eq!(there.collect::<BTreeSet<_>>(), tried);
        }
    };
}

recipes! {
    systemd_repart: "systemd-repart",
    buildroot: "buildroot",
    yocto: "yocto",
    nix: "nix",
    firecracker: "firecracker",
    containerd: "containerd",
    github_action: "github-action",
    gitlab: "gitlab",
}
