//! The same tree from every kind of source.

use crate::judges::{
    Scratch, can_mount, check, command, failure, manifest, run, same, seekless, text,
};
use crate::sample;
use std::fs::{self, File};
use std::path::Path;

/// Files that GNU tar does not store.
const NOT_IN_TAR: &[&str] = &["socket"];

fn tar(scratch: &Scratch, from: &str) -> String {
    let archive = scratch.join("tree.tar");
    let form = ["--format=pax", "--xattrs", "--xattrs-include=*", "--acls", "--sparse"];
    let rest = ["--exclude=socket", "-C", from, "-cf", &archive, "."];
    run("tar", &[&form[..], &rest].concat());
    archive
}

fn judge(scratch: &Scratch, image: &str) {
    check(image);
    same("the image", &manifest(sample(), NOT_IN_TAR), &manifest(image, NOT_IN_TAR));
    let mounted = crate::Mounted::new(scratch, image, "ro");
    same("the mount", &manifest(sample(), NOT_IN_TAR), &manifest(mounted.text(), NOT_IN_TAR));
}

#[test]
fn archives_plain_packed_and_piped() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("tar");
    let archive = tar(&scratch, sample());
    let image = scratch.join("image");
    text(&seekless(&["build", &archive, "-o", &image]));
    judge(&scratch, &image);
    for packer in ["zstd", "gzip"] {
        let packed = scratch.join(packer);
        let packing = format!("{packer} -c < '{archive}' > '{packed}'");
        run("sh", &["-c", &packing]);
        let other = scratch.join(&format!("{packer}.img"));
        text(&seekless(&["build", &packed, "-o", &other]));
        run("cmp", &[&image, &other]);
        let other = scratch.join(&format!("{packer}.piped"));
        let mut piped = command(&["build", "-", "-o", &other]);
        text(&piped.stdin(File::open(&packed).expect("packed")).output().expect("seekless"));
        run("cmp", &[&image, &other]);
    }
}

#[test]
fn an_image_as_source() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("image");
    let (first, second) = (scratch.join("first"), scratch.join("second"));
    text(&seekless(&["build", sample(), "-o", &first, "-O", "^has_journal,^orphan_file"]));
    text(&seekless(&["build", &first, "-o", &second, "-I", "512"]));
    judge(&scratch, &second);
}

/// Writes a blob named by its digest; returns digest and size.
fn blob(layout: &Path, contents: &[u8]) -> (String, usize) {
    let dir = layout.join("blobs/sha256");
    fs::create_dir_all(&dir).expect("mkdir");
    let path = dir.join("new");
    fs::write(&path, contents).expect("write");
    let sum = run("sha256sum", &[&path]);
    let digest = sum.split(' ').next().expect("digest").to_string();
    fs::rename(&path, dir.join(&digest)).expect("rename");
    (digest, contents.len())
}

#[test]
fn layers_of_a_container_image() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("oci");
    let layout = scratch.path().join("layout");
    let lower = fs::read(tar(&scratch, sample())).expect("tar");
    // The second layer removes a file and a directory, and adds a file.
    let upper = scratch.path().join("upper");
    fs::create_dir_all(upper.join("sizes")).expect("mkdir");
    fs::create_dir_all(upper.join("links")).expect("mkdir");
    for path in ["sizes/.wh.of-4096", ".wh.names", "links/.wh..wh..opq", "links/new"] {
        fs::write(upper.join(path), b"new").expect("write");
    }
    let upper = fs::read(tar(&scratch, upper.to_str().expect("path"))).expect("tar");
    let layers: Vec<_> = [lower, upper]
        .iter()
        .map(|layer| blob(&layout, layer))
        .map(|(digest, size)| {
            let kind = "application/vnd.oci.image.layer.v1.tar";
            serde_json::json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
        })
        .collect();
    let diffs: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": diffs }
    });
    let (digest, size) = blob(&layout, config.to_string().as_bytes());
    let manifest_json = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": format!("sha256:{digest}"), "size": size
        },
        "layers": layers
    });
    let (digest, size) = blob(&layout, manifest_json.to_string().as_bytes());
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{digest}"), "size": size
        }]
    });
    fs::write(layout.join("index.json"), index.to_string()).expect("write");
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("write");
    let image = scratch.join("image");
    text(&seekless(&["build", layout.to_str().expect("path"), "-o", &image]));
    check(&image);
    let listing = manifest(&image, &[]);
    assert!(!listing.contains("./sizes/of-4096 ") && listing.contains("./sizes/of-4097 "));
    assert!(!listing.contains("./names"), "a directory that was taken away");
    assert!(listing.contains("./links/new ") && !listing.contains("./links/to-10 "));
    // Files that the second layer does not touch are unchanged.
    let rest = |listing: &str| {
        let touched = ["./names", "./sizes", "./links", ". "];
        let kept = listing.lines().filter(|line| !touched.iter().any(|t| line.starts_with(t)));
        kept.collect::<Vec<_>>().join("\n")
    };
    same("the image", &rest(&manifest(sample(), NOT_IN_TAR)), &rest(&listing));
}

/// rsync is as thorough as our own listing, and independent of it.
#[test]
fn rsync_finds_nothing_to_copy() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("rsync");
    let image = scratch.join("image");
    // A file with gigabytes of zeros would only take time.
    let excludes = ["sparse/large", "holes/sparse", "holes/nothing"];
    let mut args = vec!["build", sample(), "-o", &image];
    for exclude in excludes {
        args.extend(["--exclude", exclude]);
    }
    text(&seekless(&args));
    let mounted = crate::Mounted::new(&scratch, &image, "ro");
    let (from, to) = (format!("{}/", sample()), format!("{}/", mounted.text()));
    let mut args = vec!["-aHAXSnic", "--delete", "--modify-window=-1", "--exclude=lost+found"];
    args.extend(["--exclude=sparse/large", "--exclude=holes/sparse", "--exclude=holes/nothing"]);
    args.extend([from.as_str(), to.as_str()]);
    let found = run("rsync", &args);
    // Both sides lack the excluded names.
    assert_eq!(found, "", "rsync would change something");
}

/// The patterns of files come before those of the command line, wherever they stand there.
#[test]
fn patterns_are_read_from_files() {
    let scratch = Scratch::new("exclude-from");
    let (patterns, image) = (scratch.join("patterns"), scratch.join("image"));
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("doc/sub")).expect("mkdir");
    for name in ["a.o", "kept.o", "doc/x", "doc/sub/copyright", "f\u{e9}"] {
        fs::write(tree.join(name), name).expect("write");
    }
    let tree = tree.to_str().expect("path");
    let listed = |args: &[&str]| {
        let out = ["-o", &image, "--force"];
        text(&seekless(&[&["build", tree][..], &out, args].concat()));
        manifest(&image, &["lost+found"])
    };
    fs::write(&patterns, b"# objects\n*.o\n/doc/x\r\nf\xc3?\nno[\n").expect("write");
    let listing = listed(&["--exclude", "!kept.o", "--exclude-from", &patterns]);
    let entries = listing.lines().filter(|line| line.starts_with('.'));
    let names: Vec<_> = entries.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, [".", "./doc", "./doc/sub", "./doc/sub/copyright", "./kept.o"]);
    let same_patterns = ["*.o", "/doc/x", "f?", "!kept.o"].map(|it| ["--exclude", it]).concat();
    let listing_of_two = listed(&same_patterns);
    assert_ne!(listing_of_two, listing, "of two bytes one is a ?");
    let output = seekless(&["build", tree, "-o", &image, "--force", "--exclude-from", &patterns]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("pattern 'no[' matches nothing"), "{said}");
    // A pipe is read once, for all openings of the sources.
    let layer = scratch.path().join("layer");
    fs::create_dir(&layer).expect("mkdir");
    fs::write(layer.join("b.o"), "b").expect("write");
    let share = ["--share", "-o", &image, "--force", "-q", "--exclude-from", "/dev/stdin"];
    let sources = ["build", tree, layer.to_str().expect("path")];
    let piped =
        format!("printf '\\357\\273\\277*.o\n' | '{}' \"$@\"", env!("CARGO_BIN_EXE_seekless"));
    run("sh", &[&["-c", &piped, "sh"][..], &sources, &share].concat());
    assert!(!manifest(&image, &[]).contains(".o "), "a pattern behind a byte order mark");
    let none = scratch.join("none");
    let args = ["build", tree, "-o", &image, "--force", "--exclude-from", &none];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 6 && message.contains(&none), "{code}: {message}");
}
