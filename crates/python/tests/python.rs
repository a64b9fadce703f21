//! Runs the tests in Python beside this file, with the module that cargo has built for this test.

#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python, where it has the modules that tests need. `.ci/judges` installs them.
fn interpreter(modules: &str) -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../judges/bin/python");
    let output = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    output.is_ok_and(|output| output.status.success()).then_some(python)
}

/// The program `seekless`, which a build of the workspace puts beside the tests.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("program");
    let program = test.parent()?.parent()?.join("seekless");
    program.exists().then_some(program)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("directory");
    for entry in fs::read_dir(from).expect("package") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name");
        if path.is_file() {
            fs::copy(&path, to.join(name)).expect("file");
        } else if name != "__pycache__" {
            copy(&path, &to.join(name));
        }
    }
}

/// The package as a wheel has it.
fn package(at: &Path) {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("python/seekless"), at);
    // Cargo puts it beside the program of this test.
    let program = std::env::current_exe().expect("program");
    let module = program.with_file_name("lib_seekless.so");
    fs::copy(&module, at.join("_seekless.abi3.so"))
        .unwrap_or_else(|error| panic!("{}: {error}", module.display()));
}

/// Runs pytest with the package in a directory.
fn pytest(python: &Path, work: &Path, args: &[&str], program: Option<&Path>) {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONPATH", work)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SEEKLESS_PACKAGE", work);
    if let Some(program) = program {
        command.env("SEEKLESS_PROGRAM", program);
    }
    let output = command.output().expect("pytest");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_tests_in_python_pass() {
    let Some(python) = interpreter("pytest, fsspec, pyarrow, mypy") else {
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
    pytest(
        &python,
        work.path(),
        &["tests", "--ignore=tests/test_fleet.py", "--ignore=tests/test_store.py"],
        None,
    );
}

#[test]
fn the_tests_on_a_cluster_pass() {
    let Some(python) = interpreter("pytest, fsspec, pyarrow, distributed") else {
        skip::skip("dask.distributed, pytest, fsspec or pyarrow is not installed (.ci/judges)");
        return;
    };
    let Some(program) = program() else {
        skip::skip("the program seekless is not built (cargo build -p seekless-cli)");
        return;
    };
    let work = tempfile::tempdir().expect("directory");
    package(&work.path().join("seekless"));
    pytest(
        &python,
        work.path(),
        &["--durations=5", "tests/test_fleet.py", "tests/test_store.py"],
        Some(&program),
    );
}
