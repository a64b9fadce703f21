//! `build --layers --reuse`: which images of an earlier run are used again. Images that are written
//! are compared with those of a run into an empty directory.

use crate::archives::owned;
use crate::judges::{check, failure, run, seekless, text};
use crate::per_layer::{archive, dir, file};
use crate::workshop::Workshop;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The layers of a container image: `lower`, and one that changes it.
fn stack(lower: &str) -> [Vec<u8>; 2] {
    let base = archive(&[
        dir("d", 0o755, 7),
        file("d/a", lower),
        file("d/b", "b"),
        owned("link", b'2', "d", (0o777, 0, 3), b""),
    ]);
    [base, archive(&[file("d/.wh.b", ""), file("d/c", "c")])]
}

/// A container image, and the directory of its layers' images.
struct Run {
    shop: Workshop,
    out: String,
}

impl Run {
    fn new(name: &str) -> Self {
        let shop = Workshop::new(name);
        let out = shop.scratch.join("out");
        Self { shop, out }
    }

    /// A layout with one image of these layers.
    fn layout(&self, name: &str, layers: &[Vec<u8>]) -> String {
        self.shop.layout(&[self.shop.image(name, layers)]);
        self.shop.pack(&format!("{name}.tar"))
    }

    fn build(&self, layout: &str, options: &[&str]) -> String {
        text(&seekless(&[&["build", layout, "--layers", "-o", &self.out], options].concat()))
    }

    fn refused(&self, layout: &str, options: &[&str]) -> (i32, String) {
        let args = [&["build", layout, "--layers", "-o", &self.out, "--reuse"], options].concat();
        failure(&seekless(&args))
    }

    fn list(&self) -> Value {
        let list = fs::read_to_string(Path::new(&self.out).join("layers.json")).expect("list");
        serde_json::from_str(&list).expect("JSON")
    }

    fn image(&self, nth: usize) -> PathBuf {
        let name = self.list()["layers"][nth]["file"].as_str().expect("file").to_string();
        Path::new(&self.out).join(name)
    }

    /// A file that is replaced gets another number.
    fn inode(&self, nth: usize) -> u64 {
        fs::metadata(self.image(nth)).expect("image").ino()
    }

    /// The directory has the images and the list that a run with `--reuse` into an empty one writes.
    fn is_as_fresh(&self, layout: &str, options: &[&str]) {
        let fresh = self.shop.scratch.join("fresh");
        let args = ["build", layout, "--layers", "-o", &fresh, "-q", "--reuse"];
        text(&seekless(&[&args, options].concat()));
        for entry in fs::read_dir(&fresh).expect("list") {
            let name = entry.expect("entry").file_name();
            let (one, other) = (Path::new(&fresh).join(&name), Path::new(&self.out).join(&name));
            run("cmp", &[one.to_str().expect("path"), other.to_str().expect("path")]);
        }
        fs::remove_dir_all(fresh).expect("remove");
    }
}

#[test]
fn equal_images_stay_and_others_are_replaced() {
    let it = Run::new("reuse");
    let layers = stack("a");
    let layout = it.layout("t", &layers);
    let first = it.build(&layout, &["--reuse"]);
    assert!(!first.contains("reused"), "{first}");
    let list = it.list();
    for nth in 0..2 {
        let sum = run("sha256sum", &[it.image(nth).to_str().expect("path")]);
        let sum = format!("sha256:{}", sum.split(' ').next().expect("sum"));
        assert_eq!(list["layers"][nth]["sha256"], sum);
        check(it.image(nth).to_str().expect("path"));
    }
    let before = [it.inode(0), it.inode(1)];
    let again = it.build(&layout, &["--reuse"]);
    assert_eq!(again.matches("reused").count(), 2, "{again}");
    assert_eq!((before, list), ([it.inode(0), it.inode(1)], it.list()));

    // A further layer: those below it stay.
    let third = archive(&[file("d/d", "d")]);
    let more = it.layout("more", &[&layers[..], &[third]].concat());
    let said = it.build(&more, &["--reuse"]);
    assert_eq!(said.matches("reused").count(), 2, "{said}");
    assert_eq!(before, [it.inode(0), it.inode(1)]);
    it.is_as_fresh(&more, &[]);

    // The same upper layer on another lower one.
    let other = it.layout("other", &[&stack("other")[..1], &layers[1..]].concat());
    let said = it.build(&other, &["--reuse"]);
    assert!(!said.contains("reused"), "{said}");
    it.is_as_fresh(&other, &[]);

    // Other options of the volume, of the tree and of the marks.
    for options in [
        &["-L", "new"][..],
        &["--owner", "5:6"],
        &["--exclude", "c"],
        &["--whiteouts", "overlay-user"],
        &["--uuid", "7f1d9c0e-3c5a-4a7e-9d2b-0123456789ab"],
    ] {
        it.build(&other, &[&["--reuse"], options].concat());
        it.is_as_fresh(&other, options);
        let said = it.build(&other, &[&["--reuse"], options].concat());
        assert_eq!(said.matches("reused").count(), 2, "{options:?}: {said}");
    }
}

#[test]
fn accesses_are_inputs() {
    let it = Run::new("reuse-traces");
    let layout = it.layout("t", &stack("a"));
    let trace = it.shop.scratch.join("boot.trace");
    let write = |path: &str| {
        let read = format!("{{\"op\":\"read\",\"path\":\"{path}\"}}\n");
        fs::write(&trace, format!("{{\"seekless_trace\":1}}\n{read}")).expect("write");
    };
    write("/d/c");
    it.build(&layout, &["--trace", &trace, "--reuse"]);
    let options = ["--trace", &trace, "--reuse"];
    let said = it.build(&layout, &options);
    assert_eq!(said.matches("reused").count(), 2, "{said}");
    // Only the lower layer has the file that is read now.
    write("/d/a");
    let said = it.build(&layout, &options);
    assert!(!said.contains("reused"), "{said}");
    it.is_as_fresh(&layout, &["--trace", &trace]);
}

#[test]
fn files_that_the_list_does_not_describe_are_not_trusted() {
    let it = Run::new("reuse-damage");
    let layout = it.layout("t", &stack("a"));
    it.build(&layout, &["--reuse"]);
    let (image, list) = (it.image(1), Path::new(&it.out).join("layers.json"));
    let (bytes, listed) = (fs::read(&image).expect("image"), fs::read(&list).expect("list"));
    let last = bytes.len() - 1;
    let mut damaged = bytes.clone();
    damaged[last] ^= 1;
    for wrong in [&damaged[..], &bytes[..last], &[]] {
        fs::write(&image, wrong).expect("write");
        let (code, said) = it.refused(&layout, &[]);
        assert!(code == 6 && said.contains("not the image that layers.json describes"), "{said}");
        assert_eq!(fs::read(&image).expect("image"), wrong, "it stays");
        let output = seekless(&["build", &layout, "--layers", "-o", &it.out, "--reuse", "--force"]);
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && warned.contains("it is replaced"), "{warned}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.matches("reused").count(), 1, "{said}");
        it.is_as_fresh(&layout, &[]);
    }
    // A file that is missing is written.
    fs::remove_file(&image).expect("remove");
    let said = it.build(&layout, &["--reuse"]);
    assert_eq!(said.matches("reused").count(), 1, "{said}");
    it.is_as_fresh(&layout, &[]);
    // A list of an older version, which has no digests; none; another file.
    let mut older = it.list();
    for layer in older["layers"].as_array_mut().expect("layers") {
        layer.as_object_mut().expect("layer").remove("inputs");
    }
    fs::write(&list, older.to_string()).expect("write");
    let (code, said) = it.refused(&layout, &[]);
    assert!(code == 6 && said.contains("00-") && said.contains("--force"), "{said}");
    fs::remove_file(&list).expect("remove");
    let (code, said) = it.refused(&layout, &[]);
    assert!(code == 6 && said.contains("00-") && said.contains("--force"), "{said}");
    for wrong in ["", "{}", "[]", "{\"layers\":1}"] {
        fs::write(&list, wrong).expect("write");
        let (code, said) = it.refused(&layout, &[]);
        assert!(code == 3 && said.contains("not a list of layers"), "{wrong}: {said}");
    }
    it.build(&layout, &["--reuse", "--force"]);
    assert_eq!(fs::read(&list).expect("list"), listed);
    // A run without the option computes no digests, without which no file is replaced.
    it.build(&layout, &["--force"]);
    assert!(
        it.list()["layers"][0]["sha256"].is_null() && it.list()["layers"][0]["inputs"].is_string()
    );
    let (code, said) = it.refused(&layout, &[]);
    assert!(code == 6 && said.contains("00-") && said.contains("--force"), "{said}");
    // Images are not used again unless that is asked for.
    let (code, said) = failure(&seekless(&["build", &layout, "--layers", "-o", &it.out]));
    assert!(code == 6 && said.contains("layers.json"), "{said}");
    let alone = seekless(&["build", &layout, "-o", &it.shop.scratch.join("x.img"), "--reuse"]);
    assert_eq!(alone.status.code(), Some(2));
}

#[test]
fn links_in_the_directory_stay() {
    let it = Run::new("reuse-links");
    let layout = it.layout("t", &stack("a"));
    it.build(&layout, &["--reuse"]);
    let (image, list) = (it.image(1), Path::new(&it.out).join("layers.json"));
    let elsewhere = |name: &str| PathBuf::from(it.shop.scratch.join(name));
    // The list may be a link: the file that it leads to is replaced.
    fs::rename(&list, elsewhere("list")).expect("rename");
    symlink(elsewhere("list"), &list).expect("link");
    let said = it.build(&layout, &["--reuse", "-L", "new"]);
    assert!(!said.contains("reused"), "{said}");
    assert!(list.is_symlink() && fs::metadata(&list).expect("list").is_file());
    it.is_as_fresh(&layout, &["-L", "new"]);
    // Only a file is an image of an earlier run.
    fs::rename(&image, elsewhere("image")).expect("rename");
    symlink(elsewhere("image"), &image).expect("link");
    let (code, said) = it.refused(&layout, &["-L", "new"]);
    assert!(code == 6 && said.contains("not the image that layers.json describes"), "{said}");
    assert!(image.is_symlink());
}
