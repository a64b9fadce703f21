//! Runs the tests in Python beside this file, with the module that cargo has built for this test.

#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python with the modules that the tests need, which `.ci/judges` installs.
fn interpreter() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../judges/bin/python");
    let modules = "import pytest, fsspec, pyarrow, mypy";
    let output = Command::new(&python).args(["-c", modules]).output();
    output.is_ok_and(|output| output.status.success()).then_some(python)
}

/// The package as a wheel has it.
fn package(at: &Path) {
    fs::create_dir(at).expect("directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/seekless");
    for entry in fs::read_dir(sources).expect("package") {
        let path = entry.expect("entry").path();
        if path.is_file() {
            fs::copy(&path, at.join(path.file_name().expect("name"))).expect("file");
        }
    }
    // Cargo puts it beside the program of this test.
    let program = std::env::current_exe().expect("program");
    let module = program.with_file_name("lib_seekless.so");
    fs::copy(&module, at.join("_seekless.abi3.so"))
        .unwrap_or_else(|error| panic!("{}: {error}", module.display()));
}

#[test]
fn the_tests_in_python_pass() {
    let Some(python) = interpreter() else {
        skip::skip("pytest, fsspec, pyarrow or mypy is not installed (.ci/judges)");
        return;
    };
    let work = tempfile::tempdir().expect("directory");
    package(&work.path().join("seekless"));
    // Entry points are found where a package is installed: those of the wheel are in its project.
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("pyproject.toml");
    let project = fs::read_to_string(project).expect("project");
    let table = "[project.entry-points.\"fsspec.specs\"]";
    let (_, table) = project.split_once(table).expect("entry points");
    let points = table.lines().skip(1).take_while(|line| !line.is_empty());
    let points: Vec<_> = points.map(|line| line.replace('"', "")).collect();
    let info = work.path().join("seekless-0.dist-info");
    fs::create_dir(&info).expect("directory");
    let metadata = "Metadata-Version: 2.1\nName: seekless\nVersion: 0\n";
    fs::write(info.join("METADATA"), metadata).expect("file");
    let points = format!("[fsspec.specs]\n{}\n", points.join("\n"));
    fs::write(info.join("entry_points.txt"), points).expect("file");
    let output = Command::new(&python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONPATH", work.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SEEKLESS_PACKAGE", work.path())
        .output()
        .expect("pytest");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
