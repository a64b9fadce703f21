//! `ls`, `cat` and `cp` on images made by mke2fs, including hostile ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of a test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("seekless-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("scratch");
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("path").to_string()
    }

    /// Makes an image of the directory `from`, without checksums so that tests can patch it.
    fn image(&self, from: &str) -> String {
        let image = self.path("image");
        let size = ["-q", "-F", "-t", "ext4", "-O", "^metadata_csum,^has_journal", "-d"];
        let made = Command::new("mke2fs").args(size).args([from, &image, "4M"]).output();
        assert!(made.expect("mke2fs").status.success());
        image
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn seekless(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekless")).args(args).output().expect("seekless")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("utf-8")
}

/// Replaces all occurrences of bytes in an image.
fn patch(image: &str, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(image).expect("image");
    let places: Vec<_> =
        (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "nothing to patch");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(image, bytes).expect("image");
}

fn sample(dir: &Path) {
    fs::create_dir_all(dir.join("sub/deeper")).expect("mkdir");
    fs::write(dir.join("hello"), b"hello\n").expect("write");
    fs::write(dir.join("sub/deeper/data"), vec![7; 100_000]).expect("write");
    std::os::unix::fs::symlink("/etc/passwd", dir.join("sub/link")).expect("symlink");
    fs::hard_link(dir.join("hello"), dir.join("sub/again")).expect("link");
    let sparse = fs::File::create(dir.join("sparse")).expect("create");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 3_000_000).expect("write");
}

#[test]
fn what_goes_in_comes_out() {
    let scratch = Scratch::new("roundtrip");
    let from = scratch.path("from");
    sample(Path::new(&from));
    let image = scratch.image(&from);
    assert_eq!(text(&seekless(&["cat", &image, "/hello"])), "hello\n");
    assert_eq!(text(&seekless(&["ls", &image])), "hello\nlost+found\nsparse\nsub\n");
    assert!(text(&seekless(&["ls", "-l", &image, "/sub"])).contains(" link -> /etc/passwd\n"));
    assert!(text(&seekless(&["ls", "-R", &image])).contains("\n/sub/deeper:\ndata\n"));
    let json = text(&seekless(&["ls", "--json", &image, "/hello"]));
    assert!(json.contains(r#""mode":"100"#) && json.contains(r#""nlink":2"#), "{json}");
    let to = scratch.path("to");
    text(&seekless(&["cp", "-r", &image, "/", &to]));
    fs::remove_dir(format!("{to}/lost+found")).expect("lost+found");
    let same = Command::new("diff").args(["-r", "--no-dereference", &from, &to]).output();
    assert_eq!(text(&same.expect("diff")), "");
    let linked = fs::metadata(format!("{to}/hello")).expect("stat");
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&linked), 2);
    let sparse = fs::metadata(format!("{to}/sparse")).expect("stat");
    assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) < 100, "holes were filled");
    // A single file, to a new name and into a directory.
    text(&seekless(&["cp", &image, "/hello", &scratch.path("new")]));
    text(&seekless(&["cp", &image, "/sub/again", &scratch.path("to/sub/deeper")]));
    assert_eq!(fs::read(scratch.path("new")).expect("new"), b"hello\n");
    assert_eq!(fs::read(scratch.path("to/sub/deeper/again")).expect("again"), b"hello\n");
    assert_eq!(seekless(&["cp", &image, "/sub", &to]).status.code(), Some(2));
    assert_eq!(seekless(&["cat", &image, "/nowhere"]).status.code(), Some(6));
}

#[test]
fn names_that_climb_out_are_refused() {
    let scratch = Scratch::new("climb");
    let from = scratch.path("from");
    fs::create_dir_all(&from).expect("mkdir");
    fs::write(format!("{from}/XX_escaped"), b"evil").expect("write");
    fs::write(format!("{from}/good"), b"good").expect("write");
    let image = scratch.image(&from);
    patch(&image, b"XX_escaped", b"../escaped");
    let output = seekless(&["cp", "-r", &image, "/", &scratch.path("to")]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(!Path::new(&scratch.path("escaped")).exists());
    assert_eq!(fs::read(scratch.path("to/good")).expect("good"), b"good");
}

#[test]
fn a_symlink_in_the_image_is_never_written_through() {
    let scratch = Scratch::new("through");
    let (from, outside) = (scratch.path("from"), scratch.path("outside"));
    fs::create_dir_all(format!("{from}/name_2")).expect("mkdir");
    fs::create_dir_all(&outside).expect("mkdir");
    fs::write(format!("{from}/name_2/evil"), b"evil").expect("write");
    std::os::unix::fs::symlink(&outside, format!("{from}/name_1")).expect("symlink");
    let image = scratch.image(&from);
    // Two entries of one name: a symlink out of the destination, and a directory.
    patch(&image, b"name_2", b"name_1");
    let output = seekless(&["cp", "-r", &image, "/", &scratch.path("to")]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_dir(&outside).expect("outside").count(), 0);
}
