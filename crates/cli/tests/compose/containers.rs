//! Archives of container images from docker, podman and skopeo, built from a file and from standard
//! input.

use crate::judges::{check, command, failure, manifest, run, seekless, text};
use crate::workshop::{Workshop, digest};
use std::fs::{self, File};
use std::path::Path;

impl Workshop {
    /// Builds from a file and from standard input, which must give the same image; returns the
    /// paths in it that begin with `f`.
    fn build(&self, source: &str, options: &[&str]) -> Vec<String> {
        let (image, piped) = (self.scratch.join("image"), self.scratch.join("piped"));
        text(&seekless(&[&["build", source, "-o", &image, "--force"], options].concat()));
        check(&image);
        if Path::new(source).is_file() {
            let mut from = command(&[&["build", "-", "-o", &piped, "--force"], options].concat());
            // Through a pipe, which cannot seek.
            let mut cat = std::process::Command::new("cat")
                .stdin(File::open(source).expect("open"))
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("cat");
            text(&from.stdin(cat.stdout.take().expect("pipe")).output().expect("seekless"));
            cat.wait().expect("cat");
            run("cmp", &[&image, &piped]);
        }
        let listing = manifest(&image, &[]);
        let names = listing.lines().filter_map(|line| line.split(' ').next());
        names.filter(|name| name.starts_with("./f")).map(str::to_string).collect()
    }
}

impl Workshop {
    /// An image of a layout for a platform.
    fn image_for(&self, platform: [&str; 3], layers: &[Vec<u8>]) -> serde_json::Value {
        let mut found = self.image("latest", layers);
        let [os, architecture, variant] = platform;
        found["platform"] = serde_json::json!({ "os": os, "architecture": architecture });
        if !variant.is_empty() {
            found["platform"]["variant"] = variant.into();
        }
        found
    }

    /// Renames the parts of a layout as skopeo does in a directory: the manifest of an image, or an
    /// index of several.
    fn as_skopeo(&self, outermost: &serde_json::Value) {
        let hex = |found: &serde_json::Value| {
            found["digest"].as_str().expect("digest").trim_start_matches("sha256:").to_string()
        };
        let blobs = self.dir.join("blobs/sha256");
        for blob in fs::read_dir(&blobs).expect("blobs") {
            let blob = blob.expect("blob");
            fs::rename(blob.path(), self.dir.join(blob.file_name())).expect("rename");
        }
        fs::remove_dir_all(self.dir.join("blobs")).expect("remove");
        let manifests = outermost["manifests"].as_array();
        for found in manifests.into_iter().flatten() {
            let name = hex(found);
            let to = self.dir.join(format!("{name}.manifest.json"));
            fs::rename(self.dir.join(name), to).expect("rename");
        }
        if manifests.is_some() {
            self.put("manifest.json", outermost.to_string().as_bytes());
        } else {
            let manifest = self.dir.join("manifest.json");
            fs::rename(self.dir.join(hex(outermost)), manifest).expect("rename");
        }
        self.put("version", b"Directory Transport Version: 1.1\n");
    }
}

fn two_images(shop: &Workshop) -> [Vec<Vec<u8>>; 2] {
    let base = shop.layer(&[("f-base", "base"), ("f-gone", "gone")]);
    let old = shop.layer(&[("f-old", "old")]);
    let new = shop.layer(&[("f-new", "new"), (".wh.f-gone", "")]);
    [vec![base.clone(), old], vec![base, new]]
}

#[test]
fn what_podman_saves() {
    let shop = Workshop::new("podman");
    let [old, new] = two_images(&shop);
    let saved = shop.saved(&["localhost/thing:1", "localhost/thing:latest"], &new);
    shop.put("manifest.json", serde_json::json!([saved]).to_string().as_bytes());
    shop.put("repositories", b"{}");
    let archive = shop.pack("one.tar");
    assert_eq!(shop.build(&archive, &[]), ["./f-base", "./f-new"]);
    // A compressed archive gives the same.
    run("gzip", &["-k", &archive]);
    assert_eq!(shop.build(&format!("{archive}.gz"), &[]), ["./f-base", "./f-new"]);

    let both =
        [shop.saved(&["thing:1"], &old), shop.saved(&["reg:5000/thing:2", "x/thing:latest"], &new)];
    shop.put("manifest.json", serde_json::json!(both).to_string().as_bytes());
    let archive = shop.pack("two.tar");
    for tag in ["1", "thing:1"] {
        assert_eq!(shop.build(&archive, &["--tag", tag]), ["./f-base", "./f-gone", "./f-old"]);
    }
    for tag in ["2", "thing:2", "reg:5000/thing:2", "thing", "latest"] {
        assert_eq!(shop.build(&archive, &["--tag", tag]), ["./f-base", "./f-new"]);
    }
    let image = shop.scratch.join("none");
    let (code, message) = failure(&seekless(&["build", &archive, "-o", &image]));
    assert!(code == 4 && message.contains("--tag"), "{message}");
    assert!(message.contains("thing:1") && message.contains("thing:2"), "{message}");
    for tag in ["3", "hing:1"] {
        let args = ["build", &archive, "-o", &image, "--tag", tag];
        let (_, message) = failure(&seekless(&args));
        assert!(message.contains(&format!("has the tag {tag}")), "{message}");
    }
    assert!(!Path::new(&image).exists());
}

/// Old versions of docker used a directory for each layer, with symlinks for equal layers.
#[test]
fn what_docker_saved_once() {
    let shop = Workshop::new("docker");
    let [_, layers] = two_images(&shop);
    let config = shop.config(&layers);
    let name = format!("{}.json", digest(&config));
    shop.put(&name, &config);
    let (first, second) = ("a".repeat(64), "b".repeat(64));
    let third = "c".repeat(64);
    shop.put(&format!("{first}/layer.tar"), &layers[0]);
    shop.put(&format!("{first}/VERSION"), b"1.0");
    shop.put(&format!("{first}/json"), b"{}");
    shop.put(&format!("{second}/json"), b"{}");
    shop.put(&format!("{third}/layer.tar"), &layers[1]);
    let link = shop.dir.join(&second).join("layer.tar");
    std::os::unix::fs::symlink(format!("../{third}/layer.tar"), link).expect("symlink");
    let paths = [format!("{first}/layer.tar"), format!("{second}/layer.tar")];
    let saved = serde_json::json!([{ "Config": name, "RepoTags": null, "Layers": paths }]);
    shop.put("manifest.json", saved.to_string().as_bytes());
    let archive = shop.pack("docker.tar");
    assert_eq!(shop.build(&archive, &[]), ["./f-base", "./f-new"]);
}

#[test]
fn layouts_in_directories_and_archives() {
    let shop = Workshop::new("layouts");
    let [old, new] = two_images(&shop);
    let (one, two) = (shop.image("1", &old), shop.image("2", &new));
    let mut latest = two.clone();
    latest["annotations"]["org.opencontainers.image.ref.name"] = "latest".into();
    shop.layout(&[two.clone(), latest]);
    let dir = shop.dir.to_str().expect("path").to_string();
    // Two tags of one image need no --tag.
    assert_eq!(shop.build(&dir, &[]), ["./f-base", "./f-new"]);
    shop.layout(&[one, two]);
    assert_eq!(shop.build(&dir, &["--tag", "1"]), ["./f-base", "./f-gone", "./f-old"]);
    let image = shop.scratch.join("none");
    let (code, message) = failure(&seekless(&["build", &dir, "-o", &image]));
    assert!(code == 4 && message.contains("--tag") && message.contains("1, 2"), "{message}");
    let archive = shop.pack("layout.tar");
    assert_eq!(shop.build(&archive, &["--tag", "2"]), ["./f-base", "./f-new"]);
    assert_eq!(shop.build(&archive, &["--tag", "1"]), ["./f-base", "./f-gone", "./f-old"]);
    // Changes a byte of a layer.
    let mut bytes = fs::read(&archive).expect("read");
    let at = bytes.windows(4).position(|bytes| bytes == b"base").expect("contents");
    bytes[at] ^= 1;
    fs::write(&archive, bytes).expect("write");
    let (code, message) = failure(&seekless(&["build", &archive, "-o", &image, "--tag", "1"]));
    assert!(code == 3 && message.contains("digest"), "{message}");
}

/// A missing or unreadable part is corruption, and the message names it.
#[test]
fn images_in_pieces_are_corrupt() {
    let shop = Workshop::new("pieces");
    let [old, _] = two_images(&shop);
    let refused = |source: &str, part: &str| {
        let image = shop.scratch.join("image");
        let (code, message) = failure(&seekless(&["build", source, "-o", &image]));
        assert!(code == 3 && message.contains(part), "{message}");
        assert!(!Path::new(&image).exists());
    };
    shop.layout(&[shop.image("latest", &old)]);
    let dir = shop.dir.to_str().expect("path").to_string();
    let layer = format!("blobs/sha256/{}", digest(&old[1]));
    fs::remove_file(shop.dir.join(&layer)).expect("remove");
    refused(&dir, &format!("{layer} is missing"));
    let index = fs::read(shop.dir.join("index.json")).expect("read");
    shop.put("index.json", b"[");
    refused(&dir, "index.json: EOF");
    shop.put("index.json", &index);
    refused(&shop.pack("layout.tar"), &format!("{layer} is missing"));
}

/// An archive that only resembles a container image is built as an ordinary one.
#[test]
fn ordinary_archives_stay_ordinary() {
    let shop = Workshop::new("ordinary");
    for (name, files) in [
        ("web", &[("manifest.json", "{\"name\": \"app\"}"), ("index.json", "[]")][..]),
        ("list", &[("manifest.json", "[1, 2]")]),
        ("more", &[("oci-layout", "{}"), ("index.json", "{}"), ("f-own", "")]),
    ] {
        for (file, contents) in files {
            shop.put(file, contents.as_bytes());
        }
        let archive = shop.pack(name);
        shop.build(&archive, &[]);
        let listing = manifest(&shop.scratch.join("image"), &[]);
        for (file, _) in files {
            assert!(listing.contains(&format!("./{file} ")), "{name}: {listing}");
        }
        let image = shop.scratch.join("none");
        let args = ["build", &archive, "-o", &image, "--tag", "1"];
        let refused = seekless(&args);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains("not a container image, so it has no tag"), "{name}: {said}");
    }
}

/// Parts of an image without a valid manifest are not taken for files of a tree.
#[test]
fn images_without_a_valid_list_are_refused() {
    let shop = Workshop::new("no-list");
    let [old, _] = two_images(&shop);
    let refused = |archive: &str| {
        let image = shop.scratch.join("image");
        let (code, message) = failure(&seekless(&["build", archive, "-o", &image]));
        assert!(code == 3 && message.contains("parts of a container image"), "{message}");
        assert!(!Path::new(&image).exists());
    };
    shop.saved(&["thing:1"], &old);
    shop.put("manifest.json", b"[ no json");
    refused(&shop.pack("broken.tar"));
    shop.layout(&[shop.image("latest", &old)]);
    fs::remove_file(shop.dir.join("index.json")).expect("remove");
    refused(&shop.pack("unlisted.tar"));
    // Without other parts, files of these names are ordinary.
    shop.put("manifest.json", b"{\"name\": \"an extension\"}");
    let archive = shop.pack("ordinary.tar");
    let image = shop.scratch.join("image");
    text(&seekless(&["build", &archive, "-o", &image]));
    assert!(manifest(&image, &[]).contains("./manifest.json"));
}

/// A layout with an empty index, in a directory or an archive, has nothing to build.
#[test]
fn empty_indexes_contain_no_image() {
    let shop = Workshop::new("empty-index");
    let image = shop.scratch.join("image");
    let listed = br#"{"schemaVersion": 2, "manifests": []}"#;
    for (n, index) in
        [&b""[..], b"\n", b"{}", br#"{"schemaVersion": 2}"#, listed].iter().enumerate()
    {
        for has_blobs in [false, true] {
            shop.put("oci-layout", br#"{"imageLayoutVersion": "1.0.0"}"#);
            shop.put("index.json", index);
            if has_blobs {
                shop.put("blobs/sha256/none", b"");
            }
            let refused = |source: &str| {
                let (code, message) = failure(&seekless(&["build", source, "-o", &image]));
                assert_eq!(code, 4, "{source}: {message}");
                let said = format!("{source}: index.json: contains no image");
                assert!(message.contains(&said), "{message}");
            };
            refused(shop.dir.to_str().expect("path"));
            refused(&shop.pack(&format!("empty-{n}-{has_blobs}.tar")));
        }
    }
    assert!(!Path::new(&image).exists());
}

#[test]
fn platforms_are_chosen_with_their_variants() {
    let shop = Workshop::new("platforms");
    let layer = |name: &str| [shop.layer(&[(name, "")])];
    let platforms = [["linux", "arm", "v6"], ["linux", "arm", "v7"], ["linux", "arm64", "v8"]];
    let images: Vec<_> = platforms
        .iter()
        .map(|platform| shop.image_for(*platform, &layer(&format!("f-{}", platform[2]))))
        .collect();
    shop.layout(&images);
    let dir = shop.dir.to_str().expect("path").to_string();
    for (platform, file) in [
        ("linux/arm/v6", "./f-v6"),
        ("linux/arm/v7", "./f-v7"),
        ("linux/arm", "./f-v7"),
        ("linux/armel", "./f-v6"),
        ("linux/arm64", "./f-v8"),
        ("linux/aarch64/v8", "./f-v8"),
    ] {
        assert_eq!(shop.build(&dir, &["--platform", platform]), [file], "{platform}");
    }
    let image = shop.scratch.join("none");
    let refused = |source: &str, platform: &str| {
        failure(&seekless(&["build", source, "-o", &image, "--platform", platform])).1
    };
    let message = refused(&dir, "linux/arm/v5");
    assert!(
        message.contains("(there are: linux/arm/v6, linux/arm/v7, linux/arm64/v8)"),
        "{message}"
    );
    // A single image is refused too if another platform was requested, even if only its
    // configuration names its platform.
    shop.layout(&images[2..]);
    assert!(refused(&dir, "linux/amd64").contains("no image for linux/amd64 (there are"));
    let plain = layer("f-plain");
    shop.layout(&[shop.image("latest", &plain)]);
    assert!(refused(&dir, "linux/arm64").contains("(there are: linux/amd64)"));
    assert_eq!(shop.build(&dir, &["--platform", "linux/amd64"]), ["./f-plain"]);
    fs::remove_dir_all(&shop.dir).expect("remove");
    fs::create_dir(&shop.dir).expect("mkdir");
    let saved = shop.saved(&["thing:1"], &plain);
    shop.put("manifest.json", serde_json::json!([saved]).to_string().as_bytes());
    let archive = shop.pack("saved.tar");
    assert!(refused(&archive, "linux/riscv64").contains("no image for linux/riscv64"));
    assert_eq!(shop.build(&archive, &["--platform", "linux/x86_64"]), ["./f-plain"]);
}

#[test]
fn what_skopeo_copies_to_a_directory() {
    let shop = Workshop::new("skopeo");
    let [_, new] = two_images(&shop);
    let one = shop.image("latest", &new);
    shop.as_skopeo(&one);
    let dir = shop.dir.to_str().expect("path").to_string();
    assert_eq!(shop.build(&dir, &[]), ["./f-base", "./f-new"]);
    assert_eq!(shop.build(&dir, &["--platform", "linux/amd64"]), ["./f-base", "./f-new"]);
    let image = shop.scratch.join("none");
    let refused =
        |options: &[&str]| failure(&seekless(&[&["build", &dir, "-o", &image], options].concat()));
    assert!(refused(&["--tag", "1"]).1.contains("has no tags"));
    assert!(refused(&["--platform", "linux/arm64"]).1.contains("no image for linux/arm64"));
    let layer = shop.dir.join(digest(&new[1]));
    fs::write(&layer, "damaged").expect("write");
    let (code, message) = refused(&[]);
    assert!(code == 3 && message.contains("does not match its descriptor"), "{message}");
    fs::remove_file(layer).expect("remove");
    assert!(refused(&[]).1.contains("is missing"));

    // With --all: an index, and manifests under names of their own.
    fs::remove_dir_all(&shop.dir).expect("remove");
    fs::create_dir(&shop.dir).expect("mkdir");
    let arm = shop.image_for(["linux", "arm64", ""], &new[..1]);
    let amd = shop.image_for(["linux", "amd64", ""], &new);
    shop.as_skopeo(&serde_json::json!({ "schemaVersion": 2, "manifests": [arm, amd] }));
    assert_eq!(shop.build(&dir, &["--platform", "linux/amd64"]), ["./f-base", "./f-new"]);
    assert_eq!(shop.build(&dir, &["--platform", "linux/arm64"]), ["./f-base", "./f-gone"]);
    // A directory of files that contains a file of that name is an ordinary source.
    let plain = shop.scratch.join("plain");
    fs::create_dir(&plain).expect("mkdir");
    fs::write(format!("{plain}/version"), "1.0").expect("write");
    fs::write(format!("{plain}/manifest.json"), "{}").expect("write");
    shop.build(&plain, &[]);
    assert!(manifest(&shop.scratch.join("image"), &[]).contains("./version "));
}

/// Packs the prepared files in the given order of names.
fn pack_in_order(shop: &Workshop, name: &str, names: &[&str]) -> String {
    let archive = shop.scratch.join(name);
    let dir = shop.dir.to_str().expect("path");
    run("tar", &[&["-C", dir, "-cf", &archive][..], names].concat());
    fs::remove_dir_all(&shop.dir).expect("remove");
    fs::create_dir(&shop.dir).expect("mkdir");
    archive
}

/// Builders name the parts of an image as they like and in any order; files that do not belong to
/// the image are ignored.
#[test]
fn what_other_builders_write() {
    let shop = Workshop::new("builders");
    let [_, layers] = two_images(&shop);
    let hex: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let config = shop.config(&layers);
    let digest_of_config = format!("sha256:{}", digest(&config));
    let gz = |hex: &String| format!("{hex}.tar.gz");
    for (builder, config_name, names, packed) in [
        ("crane", &*digest_of_config, [gz(&hex[0]), gz(&hex[1])], true),
        ("kaniko", &*digest_of_config, hex.clone().try_into().expect("two"), false),
        ("digests", &*digest_of_config, [0, 1].map(|at| format!("sha256:{}", hex[at])), true),
        ("jib", "config.json", [gz(&hex[0]), gz(&hex[1])], true),
        ("bazel", "bazel/config.json", ["0/layer.tar".into(), "1/layer.tar".into()], false),
        ("by-hand", "./c", ["./layer0/layer.tar".into(), "layer1/layer.tar".into()], false),
    ] {
        let list = serde_json::json!([
            { "Config": config_name, "RepoTags": ["a:1"], "Layers": names }
        ]);
        for order in [["manifest.json", "0-notes"], ["0-notes", "manifest.json"]] {
            shop.put(config_name, &config);
            shop.put("0-notes", b"not a part");
            shop.put("manifest.json", list.to_string().as_bytes());
            for (name, layer) in names.iter().zip(&layers) {
                shop.put(name, layer);
                if packed {
                    let path = shop.dir.join(name);
                    let path = path.to_str().expect("path");
                    run("sh", &["-c", "gzip -nc \"$0\" > \"$0.z\" && mv \"$0.z\" \"$0\"", path]);
                }
            }
            let first =
                |name: &str| name.trim_start_matches("./").split('/').next().map(String::from);
            let parts: Vec<String> =
                names.iter().map(String::as_str).chain([config_name]).filter_map(first).collect();
            let mut all: Vec<&str> = parts.iter().map(String::as_str).collect();
            all.dedup();
            all.insert(0, order[0]);
            all.push(order[1]);
            let archive = pack_in_order(&shop, &format!("{builder}-{}.tar", order[0]), &all);
            assert_eq!(shop.build(&archive, &["--tag", "1"]), ["./f-base", "./f-new"], "{builder}");
            run("zstd", &["-q", &archive]);
            let packed = format!("{archive}.zst");
            assert_eq!(shop.build(&packed, &[]), ["./f-base", "./f-new"], "{builder}");
        }
    }
    // Without any layer, as Go writes it.
    shop.put("c", &shop.config(&[]));
    shop.put("manifest.json", br#"[{"Config": "c", "RepoTags": null, "Layers": null}]"#);
    assert_eq!(shop.build(&shop.pack("scratch.tar"), &[]), Vec::<String>::new());
    // A layout is recognised too, whatever other files are in the archive.
    shop.layout(&[shop.image("latest", &layers)]);
    shop.put("0-notes", b"not a part");
    assert_eq!(shop.build(&shop.pack("layout.tar"), &[]), ["./f-base", "./f-new"]);
}

/// An archive that only looks like an image is built as it is, with a warning.
#[test]
fn archives_that_only_look_like_images_are_told() {
    let shop = Workshop::new("looks");
    let image = shop.scratch.join("image");
    for (name, files, why) in [
        ("broken", &[("manifest.json", "[ no json"), ("f", "")][..], "manifest.json: "),
        (
            "missing",
            &[("manifest.json", r#"[{"Config": "c", "Layers": ["l.tar"]}]"#), ("c", "{}")],
            "names l.tar, which is missing",
        ),
        ("old", &[("repositories", "{}"), ("f", "")], "repositories"),
        ("layout", &[("oci-layout", "{}"), ("f", "")], "no valid index.json"),
    ] {
        for (file, contents) in files {
            shop.put(file, contents.as_bytes());
        }
        let archive = shop.pack(name);
        let built = seekless(&["build", &archive, "-o", &image, "--force"]);
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(built.status.success(), "{said}");
        assert!(said.contains("taken as a plain archive") && said.contains(why), "{name}: {said}");
        for (file, _) in files {
            assert!(manifest(&image, &[]).contains(&format!("./{file} ")), "{name}");
        }
        let built = seekless(&["build", "--json", &archive, "-o", &image, "--force"]);
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        let warning = said.lines().next().map(serde_json::from_str::<serde_json::Value>);
        let warning = warning.expect("a warning").expect("JSON");
        assert!(warning["warning"].as_str().is_some_and(|text| text.contains(why)), "{said}");
    }
    // Docker before 1.10: layers in directories, and no manifest.json.
    let layer = shop.layer(&[("f-old", "")]);
    let id = "a".repeat(64);
    shop.put(&format!("{id}/layer.tar"), &layer);
    shop.put(&format!("{id}/json"), b"{}");
    shop.put("repositories", b"{}");
    let (code, message) =
        failure(&seekless(&["build", &shop.pack("old.tar"), "-o", &image, "--force"]));
    assert!(code == 4 && message.contains("docker before 1.10"), "{message}");
}

/// Descriptors that the image specification requires to ignore, and ones refused by name.
#[test]
fn descriptors_of_unknown_types() {
    let shop = Workshop::new("descriptors");
    let [_, layers] = two_images(&shop);
    let empty = vec![0; 1024];
    let image = shop.image("latest", &[layers[0].clone(), empty, layers[1].clone(), Vec::new()]);
    let other = shop.blob("application/vnd.example+json", b"{}");
    let nested = serde_json::json!({ "schemaVersion": 2, "manifests": [other, image] });
    let nested =
        shop.blob("application/vnd.oci.image.index.v1+json", nested.to_string().as_bytes());
    shop.layout(&[other, nested]);
    let dir = shop.dir.to_str().expect("path").to_string();
    assert_eq!(shop.build(&dir, &[]), ["./f-base", "./f-new"]);
    let config = shop.blob("application/vnd.oci.image.config.v1+json", &shop.config(&layers[..1]));
    let with_layer = |layer: serde_json::Value| {
        let list = serde_json::json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
        shop.layout(&[
            shop.blob("application/vnd.oci.image.manifest.v1+json", list.to_string().as_bytes())
        ]);
    };
    for kind in [
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        with_layer(shop.blob(kind, &layers[0]));
        assert_eq!(shop.build(&dir, &[]), ["./f-base", "./f-gone"], "{kind}");
        // Its makers may have kept it to themselves.
        let mut elsewhere = shop.blob(kind, &layers[0]);
        elsewhere["digest"] = serde_json::json!(format!("sha256:{}", "5e".repeat(32)));
        elsewhere["urls"] = serde_json::json!(["https://example.com/layer"]);
        with_layer(elsewhere);
        let none = shop.scratch.join("none");
        let (code, message) = failure(&seekless(&["build", &dir, "-o", &none]));
        assert!(code == 3 && message.contains("5e5e5e"), "{code} {message}");
    }
    let kind = "application/vnd.example.layer.v1.tar";
    with_layer(shop.blob(kind, &layers[0]));
    let (code, message) = failure(&seekless(&["build", &dir, "-o", &shop.scratch.join("none")]));
    assert!(code == 4 && message.contains(kind), "{message}");
}
