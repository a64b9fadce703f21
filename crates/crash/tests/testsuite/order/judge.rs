//! Programs that we did not write, and room for the images they look at.

#[path = "../../../../fs/tests/shared/skip.rs"]
mod skip;
#[path = "../../../../fs/tests/shared/unmount.rs"]
pub(crate) mod unmount;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is gone when the test ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("seekless-order-{name}-{}-{number}", std::process::id());
        // Mounts that are written to wait for their disk: in memory there is none.
        let memory = Path::new("/dev/shm").join(&name);
        if fs::create_dir(&memory).is_ok() {
            return Self(memory);
        }
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("scratch directory");
        Self(dir)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether all these programs are installed, and whoever runs the test may mount
/// if that is needed.
pub(crate) fn ready(programs: &[&str], mounts: bool) -> bool {
    for program in programs {
        let look = format!("command -v {program}");
        if !output(Command::new("sh").args(["-c", &look])).status.success() {
            skip::skip(&format!("{program} is not installed"));
            return false;
        }
    }
    let user = output(Command::new("id").arg("-u"));
    if mounts && String::from_utf8_lossy(&user.stdout).trim() != "0" {
        skip::skip("mounting needs root");
        return false;
    }
    true
}

/// Runs a program to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    let output = command.env("LC_ALL", "C").env("PATH", path()).output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Where programs are: those of an administrator may not be in the user's path.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = output(Command::new(program).args(args));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The exit status of a check, and what it prints.
pub(crate) fn check(program: &str, option: &str, image: &Path) -> (i32, String) {
    let output = output(Command::new(program).arg(option).arg(image));
    let code = output.status.code().unwrap_or_else(|| panic!("{program} {option}: {output:?}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (code, text + &String::from_utf8_lossy(&output.stderr))
}

/// The path of an image as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of characters")
}
