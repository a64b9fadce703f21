//! `ls`, `cat` and `cp` on images made by mke2fs, including hostile ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
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

/// A tree with a large file, with its image.
fn large(scratch: &Scratch) -> String {
    let tree = scratch.path("tree");
    fs::create_dir(&tree).expect("directory");
    fs::write(format!("{tree}/large"), vec![b'x'; 900_000]).expect("file");
    fs::hard_link(format!("{tree}/large"), format!("{tree}/same")).expect("link");
    symlink("large", format!("{tree}/symlink")).expect("symlink");
    scratch.image(&tree)
}

/// Names in a directory.
fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("directory");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_file_that_is_there_stays_until_the_copy_is_complete() {
    let scratch = Scratch::new("cp-whole");
    let image = large(&scratch);
    let to = scratch.path("to");
    fs::create_dir(&to).expect("directory");
    fs::write(format!("{to}/large"), "kept").expect("file");
    // A file may have 512 KiB: the limit stands for a disk that is full.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 512; exec {} cp {image} /large {to}",
        env!("CARGO_BIN_EXE_seekless")
    );
    let failed = Command::new("bash").args(["-c", &limited]).output().expect("bash");
    assert_eq!(failed.status.code(), Some(6), "{failed:?}");
    assert_eq!(names(&to), ["large"]);
    assert_eq!(fs::read(format!("{to}/large")).expect("file"), b"kept");
    // Names in the way are replaced, whatever has them, and other names of a file stay.
    fs::hard_link(format!("{to}/large"), format!("{to}/kept")).expect("link");
    symlink("kept", format!("{to}/same")).expect("symlink");
    fs::write(format!("{to}/symlink"), "old").expect("file");
    for _ in 0..2 {
        let copied = seekless(&["cp", "-r", &image, "/", &to]);
        assert!(copied.status.success(), "{copied:?}");
        assert_eq!(names(&to), ["kept", "large", "lost+found", "same", "symlink"]);
        assert_eq!(fs::read(format!("{to}/kept")).expect("file"), b"kept");
        assert_eq!(fs::read(format!("{to}/large")).expect("file").len(), 900_000);
        let inode = |name: &str| {
            let meta = fs::symlink_metadata(format!("{to}/{name}")).expect("metadata");
            (meta.ino(), meta.nlink())
        };
        assert_eq!(inode("large"), inode("same"));
        assert_eq!(inode("large").1, 2);
        let target = fs::read_link(format!("{to}/symlink")).expect("symlink");
        assert_eq!(target, Path::new("large"));
    }
}

#[test]
fn a_copy_of_a_tree_spares_the_image() {
    let scratch = Scratch::new("cp-image");
    let image = large(&scratch);
    let to = scratch.path("to");
    fs::create_dir(&to).expect("directory");
    fs::rename(&image, format!("{to}/large")).expect("rename");
    let image = format!("{to}/large");
    let before = fs::read(&image).expect("image");
    let copied = seekless(&["cp", "-r", &image, "/", &to]);
    let told = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert_eq!(copied.status.code(), Some(6), "{told}");
    assert!(told.contains("large: is the image itself"), "{told}");
    assert!(fs::read(&image).expect("image") == before);
    assert_eq!(fs::read(format!("{to}/same")).expect("file").len(), 900_000);
}
