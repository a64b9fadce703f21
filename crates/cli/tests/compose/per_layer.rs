//! Images of single layers, laid over one another by overlayfs, beside the image of all layers that
//! the kernel mounts, and umoci's unpacking. `SEEKLESS_LAYERED` sets the number of random stacks.

use crate::archives::{owned, pax};
use crate::judges::slice::some_or_all;
use crate::judges::{
    Mounted, Scratch, can_mount, check, failure, manifest, ready, run, same, seekless, text,
    unmount,
};
use crate::stacks::{Random, listing};
use crate::workshop::{Workshop, digest};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Random stacks that are compared.
const STACKS: u64 = 8;

/// An archive of these entries.
pub(crate) fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [&entries.concat()[..], &[0; 1024]].concat()
}

pub(crate) fn file(path: &str, contents: &str) -> Vec<u8> {
    owned(path, b'0', "", (0o644, 0, 7), contents.as_bytes())
}

pub(crate) fn dir(path: &str, mode: u32, owner: u32) -> Vec<u8> {
    owned(path, b'5', "", (mode, owner, 5), b"")
}

pub(crate) fn with_xattr(name: &str, value: &str, entry: Vec<u8>) -> Vec<u8> {
    [pax(&[(&format!("SCHILY.xattr.{name}"), value)]), entry].concat()
}

/// The images of an image's layers, and the list of them.
struct Images {
    dir: PathBuf,
    list: Value,
}

impl Images {
    fn build(shop: &Workshop, name: &str, layout: &str, options: &[&str]) -> Self {
        let dir = shop.scratch.join(name);
        let said = text(&seekless(
            &[&["build", layout, "--layers", "-o", &dir, "--json"], options].concat(),
        ));
        let dir = PathBuf::from(dir);
        let list = fs::read_to_string(dir.join("layers.json")).expect("list");
        assert_eq!(said, list, "what is printed is the list");
        Self { dir, list: serde_json::from_str(&list).expect("JSON") }
    }

    /// The images, the lowest first.
    fn paths(&self) -> Vec<String> {
        let layers = self.list["layers"].as_array().expect("layers").iter();
        let path = |layer: &Value| self.dir.join(layer["file"].as_str().expect("file"));
        layers.map(|layer| path(layer).to_str().expect("path").to_string()).collect()
    }

    /// The listing of one image, without `lost+found`.
    fn listing(&self, nth: usize) -> String {
        manifest(&self.paths()[nth], &["lost+found"])
    }
}

/// Images laid over one another by overlayfs.
pub(crate) struct Overlay {
    pub(crate) at: PathBuf,
    _layers: Vec<Mounted>,
}

impl Overlay {
    fn new(scratch: &Scratch, images: &Images, options: &str) -> Self {
        Self::of(scratch, &images.paths(), options)
    }

    /// Of images, the lowest first.
    pub(crate) fn of(scratch: &Scratch, images: &[String], options: &str) -> Self {
        let layers: Vec<Mounted> =
            images.iter().map(|image| Mounted::new(scratch, image, "ro")).collect();
        let (at, empty) = (scratch.path().join("merged"), scratch.path().join("empty"));
        [&at, &empty].into_iter().for_each(|dir| fs::create_dir_all(dir).expect("mkdir"));
        // overlayfs needs two layers at least.
        let mut lower: Vec<&str> = layers.iter().rev().map(Mounted::text).collect();
        lower.push(empty.to_str().expect("path"));
        let options = format!("ro,{options}lowerdir={}", lower.join(":"));
        run("mount", &["-t", "overlay", "overlay", "-o", &options, at.to_str().expect("path")]);
        Self { at, _layers: layers }
    }

    pub(crate) fn listing(&self) -> String {
        manifest(self.at.to_str().expect("path"), &["lost+found"])
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if unmount(&self.at).is_err() {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

/// The names that the kernel lists and finds in a tree, in every directory: a mark that is listed but
/// not found is an error.
fn walk(dir: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("entry").path();
        let meta =
            fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        count += 1;
        if meta.is_dir() {
            count += walk(&path);
        }
    }
    count
}

/// The overlay of the layers' images has the files of the image of all of them.
fn compare(shop: &Workshop, layout: &str, images: &Images, what: &str) {
    let whole = shop.scratch.join("whole.img");
    text(&seekless(&["build", layout, "-o", &whole, "-q", "--force"]));
    let wanted = Mounted::new(&shop.scratch, &whole, "ro");
    let overlay = Overlay::new(&shop.scratch, images, "");
    let wanted_listing = manifest(wanted.text(), &["lost+found"]);
    same(what, &overlay.listing(), &wanted_listing);
    assert_eq!(walk(&overlay.at), walk(wanted.path()), "{what}");
}

/// A listing without the words that begin with `start`.
fn without_words(listing: &str, start: &str) -> String {
    let line = |line: &str| {
        let words = line.split(' ').filter(|word| !word.starts_with(start));
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    listing.lines().map(line).collect()
}

/// A path in which `p` and `q` are mostly directories and other names mostly files, so that few
/// entries are below files.
fn random_path(random: &mut Random, is_dir: bool) -> String {
    let mut names: Vec<&str> =
        (0..random.next(4)).map(|_| ["p", "q"][random.next(2) as usize]).collect();
    let last = if is_dir != (random.next(8) == 0) { ["p", "q"] } else { ["c", "d"] };
    names.push(last[random.next(2) as usize]);
    names.join("/")
}

/// A layer of which every kind of entry is made at random. `files` are the paths of files that this
/// layer or one below it has had.
fn random_layer(random: &mut Random, is_lowest: bool, files: &mut Vec<String>) -> Vec<u8> {
    let (mut whiteouts, mut entries) = (Vec::new(), Vec::new());
    for _ in 0..4 + random.next(12) {
        let kind = random.next(20);
        let is_dir = kind < 6 || kind > 15 && random.next(2) == 0;
        let path = random_path(random, is_dir);
        let numbers = (
            // Without the bit for groups: umoci's missing directories inherit it from the system.
            [0o755, 0o700, 0o711, 0o1777][random.next(4) as usize],
            random.next(3) as u32 * 1000,
            random.next(1 << 30) as u32,
        );
        let entry = match kind {
            0..6 => owned(&path, b'5', "", numbers, b""),
            6..10 => {
                let contents = vec![b'x'; random.next(9000) as usize];
                files.push(path.clone());
                owned(&path, b'0', "", numbers, &contents)
            }
            10..12 => {
                let target = ["", "/", "../"][random.next(3) as usize].to_string();
                let is_dir = random.next(2) == 0;
                owned(&path, b'2', &(target + &random_path(random, is_dir)), numbers, b"")
            }
            12..14 if !files.is_empty() => {
                let target = &files[random.next(files.len() as u64) as usize];
                owned(&path, b'1', target, numbers, b"")
            }
            14 => owned(&path, b'6', "", numbers, b""),
            15 => owned(&path, b'3', "1:3", numbers, b""),
            _ if is_lowest => continue,
            _ => {
                // Mostly something that there was.
                let known = files.get(random.next(2 * files.len() as u64 + 1) as usize);
                let path = known.unwrap_or(&path);
                let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
                let name = if random.next(3) == 0 { ".wh..opq" } else { name };
                let path = format!("{dir}/.wh.{name}");
                whiteouts.push(owned(path.trim_start_matches('/'), b'0', "", numbers, b""));
                continue;
            }
        };
        let name =
            ["", "", "user.note", "trusted.overlay.opaque", "trusted.t"][random.next(5) as usize];
        // The kernel has no attributes of users on other files.
        let takes = entry[156] == b'5' || entry[156] == b'0';
        let value = ["y", "some text"][random.next(2) as usize];
        entries.push(match name {
            "" => entry,
            name if takes => with_xattr(name, value, entry),
            _ => entry,
        });
    }
    whiteouts.append(&mut entries);
    archive(&whiteouts)
}

#[test]
fn random_layers_over_one_another() {
    if !can_mount() || !ready("umoci") {
        return;
    }
    let wanted = std::env::var("SEEKLESS_LAYERED").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(some_or_all(STACKS / 2, STACKS));
    let (mut compared, mut by_umoci, mut marks) = (0, 0, 0);
    for seed in 0..wanted * 8 {
        let shop = Workshop::new(&format!("layered-{seed}"));
        let (mut random, mut files) = (Random(seed), Vec::new());
        let layers: Vec<Vec<u8>> = (0..2 + random.next(4))
            .map(|nth| random_layer(&mut random, nth == 0, &mut files))
            .collect();
        shop.layout(&[shop.image("t", &layers)]);
        let layout = shop.dir.to_str().expect("path").to_string();
        let out = shop.scratch.join("refused");
        let whole = seekless(&["build", &layout, "-o", &shop.scratch.join("w.img"), "-q"]);
        if !whole.status.success() {
            // A hard link to a file that is no longer there, an entry below a file.
            let refused = seekless(&["build", &layout, "--layers", "-o", &out]);
            assert_eq!(refused.status.code(), whole.status.code(), "seed {seed}");
            assert!(!Path::new(&out).exists(), "seed {seed}");
            continue;
        }
        let images = Images::build(&shop, "images", &layout, &[]);
        images.paths().iter().for_each(|image| check(image));
        compare(&shop, &layout, &images, &format!("seed {seed}: the overlay is the left one"));
        let all: String = (0..layers.len()).map(|nth| images.listing(nth)).collect();
        marks += all
            .lines()
            .filter(|line| line.contains("type=char") && line.contains("device=linux,0,0"))
            .count();
        let again = Images::build(&shop, "again", &layout, &[]);
        for (one, other) in images.paths().iter().zip(again.paths()) {
            run("cmp", &[one, &other]);
        }
        let bundle = shop.scratch.join("bundle");
        let unpacked = Command::new("umoci")
            .args(["unpack", "--image", &format!("{layout}:t"), &bundle])
            .output()
            .expect("umoci");
        if unpacked.status.success() {
            let overlay = Overlay::new(&shop.scratch, &images, "");
            // umoci leaves out attributes of overlayfs.
            let merged = without_words(
                &listing(overlay.at.to_str().expect("path")),
                "xattr.trusted.overlay.",
            );
            let theirs = listing(&format!("{bundle}/rootfs"));
            same(&format!("seed {seed}: umoci is the right one"), &merged, &theirs);
            by_umoci += 1;
        }
        compared += 1;
        if compared == wanted {
            break;
        }
    }
    assert!(compared == wanted && by_umoci > wanted / 4, "{compared} stacks, {by_umoci} by umoci");
    assert!(marks as u64 > compared / 2, "{marks} whiteouts");
}

/// A base, and a layer that hides and replaces files of it in every way, with no entries for
/// directories on the way.
fn base_and_changes() -> [Vec<u8>; 2] {
    let base = archive(&[
        dir("d", 0o750, 1000),
        with_xattr("user.note", "base", dir("d/e", 0o2711, 33)),
        file("d/e/gone", "gone"),
        file("d/e/stays", "stays"),
        dir("opaque", 0o700, 7),
        file("opaque/hidden", "hidden"),
        dir("was-dir", 0o755, 0),
        file("was-dir/below", "below"),
        file("was-file", "file"),
        owned("link", b'2', "d/e", (0o777, 0, 3), b""),
        file("first", "linked"),
        owned("d/second", b'1', "first", (0o644, 0, 3), b""),
        dir("again", 0o755, 0),
        file("again/old", "old"),
        with_xattr("user.overlay.opaque", "y", dir("own", 0o755, 0)),
    ]);
    let changes = archive(&[
        file("d/e/.wh.gone", ""),
        file("opaque/.wh..wh..opq", ""),
        file(".wh.again", ""),
        file(".wh.nothing", ""),
        file("opaque/shown", "shown"),
        file("was-dir", "now a file"),
        dir("was-file", 0o755, 0),
        // Below a symlink of the base.
        file("link/new", "new"),
        owned("third", b'1', "first", (0o644, 0, 3), b""),
        dir("again", 0o711, 0),
        file("again/new", "new"),
    ]);
    [base, changes]
}

#[test]
fn marks_of_overlayfs_and_attributes_of_directories_without_entries() {
    let shop = Workshop::new("marks");
    let layers = base_and_changes();
    shop.layout(&[shop.image("t", &layers)]);
    let layout = shop.dir.to_str().expect("path").to_string();
    for (form, attribute) in [("overlay", "trusted"), ("overlay-user", "user")] {
        let images = Images::build(&shop, form, &layout, &["--whiteouts", form]);
        let paths = images.paths();
        paths.iter().for_each(|image| check(image));
        assert_eq!(images.list["whiteouts"], form);
        for (nth, (layer, path)) in layers.iter().zip(&paths).enumerate() {
            let hex = digest(layer);
            let one = &images.list["layers"][nth];
            assert_eq!(one["diff_id"], format!("sha256:{hex}"));
            assert_eq!(one["digest"], format!("sha256:{hex}"));
            assert_eq!(one["file"], format!("{nth:02}-{}.img", &hex[..12]));
            assert_eq!(one["bytes"], fs::metadata(path).expect("image").len());
            assert_eq!((&one["order"], &one["format"]), (&nth.into(), &"ext4".into()));
        }
        let chained = format!("sha256:{} sha256:{}", digest(&layers[0]), digest(&layers[1]));
        let chain = format!("sha256:{}", digest(chained.as_bytes()));
        assert_eq!(images.list["layers"][1]["chain_id"], chain);
        let found = images.listing(1);
        let line = |path: &str| {
            let start = format!("./{path} ");
            let line = found.lines().find(|line| line.starts_with(&start));
            line.unwrap_or_else(|| panic!("{path} is missing:\n{found}")).to_string()
        };
        let gone = line("d/e/gone");
        assert!(gone.contains("type=char") && gone.contains("device=linux,0,0"), "{gone}");
        // Directories on the way have the attributes of the base.
        assert!(line("d").contains("mode=0750 uid=1000"), "{found}");
        assert!(line("d/e").contains("mode=2711 uid=33"), "{found}");
        assert!(line("d/e").contains("xattr.user.note="), "{found}");
        assert!(line("opaque").contains("mode=0700 uid=7"), "{found}");
        let opaque = format!("xattr.{attribute}.overlay.opaque=eQ==");
        for path in ["opaque", "again"] {
            assert!(line(path).contains(&opaque), "{path}:\n{found}");
        }
        assert!(!line("was-file").contains("opaque="), "{found}");
        assert!(line("again").contains("mode=0711"), "{found}");
        // A file that gets another name is there with all its names.
        for path in ["first", "d/second", "third"] {
            assert!(line(path).contains("nlink=3"), "{found}");
        }
        line("d/e/new");
        // An attribute of the archive that would be a mark.
        let escaped = ["", "overlay."][usize::from(form == "overlay-user")];
        let own = format!("xattr.user.overlay.{escaped}opaque=eQ==");
        assert!(images.listing(0).contains(&own), "{own}");
        for path in ["d/e/stays", "again/old", "nothing", "link", ".wh."] {
            assert!(!found.contains(&format!("./{path}")), "{path}:\n{found}");
        }
        if can_mount() {
            let whole = shop.scratch.join("whole.img");
            text(&seekless(&["build", &layout, "-o", &whole, "-q", "--force"]));
            let options = if attribute == "user" { "userxattr," } else { "" };
            let overlay = Overlay::new(&shop.scratch, &images, options);
            let wanted = Mounted::new(&shop.scratch, &whole, "ro");
            same(form, &overlay.listing(), &manifest(wanted.text(), &["lost+found"]));
        }
    }
}

/// The root of a layer is merged whatever its attributes say, so an opaque root hides name by name.
#[test]
fn a_layer_hides_all_of_the_root() {
    let shop = Workshop::new("opaque-root");
    let base = archive(&[dir("a", 0o755, 0), file("a/old", ""), file("b", "b"), file("c", "c")]);
    let above = archive(&[file(".wh..wh..opq", ""), file("a/new", ""), file("b", "new")]);
    shop.layout(&[shop.image("t", &[base, above])]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let images = Images::build(&shop, "images", &layout, &[]);
    let found = images.listing(1);
    let names: Vec<&str> =
        found.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["./a", "./a/new", "./b", "./c"]);
    assert!(found.contains("./c type=char mode=0000"), "{found}");
    assert!(found.lines().any(|line| line.starts_with("./a ") && line.contains("opaque=eQ==")));
    if can_mount() {
        compare(&shop, &layout, &images, "opaque root");
    }
}

#[test]
fn archives_are_kept_as_they_are() {
    let shop = Workshop::new("keep");
    let [base, _] = base_and_changes();
    let above = archive(&[file("d/e/.wh.gone", ""), file("opaque/.wh..wh..opq", "")]);
    let layers = [base, above];
    shop.layout(&[shop.image("t", &layers)]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let images = Images::build(&shop, "images", &layout, &["--whiteouts", "keep"]);
    for (nth, layer) in layers.iter().enumerate() {
        let alone = shop.scratch.join("alone.tar");
        fs::write(&alone, layer).expect("write");
        check(&images.paths()[nth]);
        same("keep", &images.listing(nth), &manifest(&alone, &[]));
    }
}

/// Layers compressed and in an archive of docker give the same images, and the digest is that of the
/// compressed blob.
#[test]
fn layers_of_layouts_and_archives_are_the_same() {
    let shop = Workshop::new("forms");
    let layers = base_and_changes();
    shop.layout(&[shop.image("t", &layers)]);
    let layout = shop.pack("layout.tar");
    let wanted = Images::build(&shop, "wanted", &layout, &[]);
    let saved = shop.saved(&["thing:1"], &layers);
    shop.put("manifest.json", serde_json::json!([saved]).to_string().as_bytes());
    let saved = Images::build(&shop, "saved", &shop.pack("saved.tar"), &[]);
    assert_eq!(wanted.list, saved.list);
    for (one, other) in wanted.paths().iter().zip(saved.paths()) {
        run("cmp", &[one, &other]);
    }
    // `--uuid` gives each layer one of its own, the same each time.
    let uuid = "7f1d9c0e-3c5a-4a7e-9d2b-0123456789ab";
    let images = Images::build(&shop, "uuid", &layout, &["--uuid", uuid]);
    let of = |image: &String| run("blkid", &["-p", "-s", "UUID", "-o", "value", image]);
    let found: Vec<String> = images.paths().iter().map(of).collect();
    assert!(found[0] != found[1] && !found.iter().any(|one| one.trim() == uuid), "{found:?}");
    let again = Images::build(&shop, "again", &layout, &["--uuid", uuid]);
    assert_eq!(found, again.paths().iter().map(of).collect::<Vec<_>>());
}

/// Layers without entries, one twice, and one that changes nothing but a mode.
#[test]
fn layers_that_change_little() {
    let shop = Workshop::new("little");
    let nothing = archive(&[]);
    let base = archive(&[dir("d", 0o755, 0), file("d/x", "x"), file("y", "y")]);
    let mode = archive(&[dir("d", 0o700, 9)]);
    let layers = [nothing.clone(), base.clone(), base, mode, nothing.clone()];
    shop.layout(&[shop.image("t", &layers), shop.image("empty", &[nothing.clone(), nothing])]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let images = Images::build(&shop, "images", &layout, &["--tag", "t"]);
    let names = |nth: usize| -> Vec<String> {
        let found = images.listing(nth);
        let name = |line: &str| line.split(' ').next().map(String::from);
        found.lines().skip(2).filter_map(name).collect()
    };
    assert!(names(0).is_empty() && names(4).is_empty());
    assert_eq!(names(1), ["./d", "./d/x", "./y"]);
    assert_eq!(names(2), names(1));
    assert_eq!(names(3), ["./d"]);
    assert!(images.listing(3).contains("./d type=dir mode=0700 uid=9"));
    // The root of an image without entries has the attributes that the options give it.
    let options = ["--tag", "empty", "--owner", "5:6"];
    let images = Images::build(&shop, "empty", &layout, &options);
    let whole = shop.scratch.join("whole.img");
    text(&seekless(&[&["build", &layout, "-o", &whole, "-q"], &options[..]].concat()));
    let wanted = manifest(&whole, &["lost+found"]);
    assert!(wanted.contains("uid=5 gid=6"), "{wanted}");
    for nth in 0..2 {
        same("empty", &images.listing(nth), &wanted);
    }
}

/// Each image begins with the blocks that a trace of the whole reads of it.
#[test]
fn traces_are_split() {
    let shop = Workshop::new("traces");
    let contents = "x".repeat(9000);
    let base = archive(&[
        dir("d", 0o755, 0),
        file("d/a", &contents),
        file("d/b", &contents),
        file("d/c", &contents),
        owned("link", b'2', "d", (0o777, 0, 3), b""),
    ]);
    let above = archive(&[file("d/b", &contents), file("d/e", &contents), file("d/f", &contents)]);
    shop.layout(&[shop.image("t", &[base, above])]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let trace = shop.scratch.join("boot.trace");
    let read = |path: &str| format!("{{\"op\":\"read\",\"path\":\"{path}\"}}\n");
    let events = ["/d/c", "/link/f", "/d/a", "/link/b"].map(read).concat();
    fs::write(&trace, format!("{{\"seekless_trace\":1}}\n{events}")).expect("write");
    let plain = Images::build(&shop, "plain", &layout, &[]);
    let traced = Images::build(&shop, "traced", &layout, &["--trace", &trace]);
    let block = |images: &Images, nth: usize, path: &str| -> u64 {
        let said = run("debugfs", &["-R", &format!("bmap {path} 0"), &images.paths()[nth]]);
        said.trim().parse().unwrap_or_else(|_| panic!("{path}: {said}"))
    };
    let is_first =
        |images: &Images, nth, one, other| block(images, nth, one) < block(images, nth, other);
    for (nth, one, other) in [(0, "/d/c", "/d/a"), (1, "/d/f", "/d/b"), (1, "/d/b", "/d/e")] {
        assert!(is_first(&traced, nth, one, other), "{nth}: {one} before {other}");
    }
    assert!(is_first(&plain, 0, "/d/a", "/d/c") && is_first(&plain, 1, "/d/b", "/d/f"));
    traced.paths().iter().for_each(|image| check(image));
}

/// Archives are compared with the diff IDs of the configuration, as umoci and containerd do.
#[test]
fn diff_ids_are_compared() {
    let layers = base_and_changes();
    let named = |diffs: &[String]| {
        let root = serde_json::json!({ "type": "layers", "diff_ids": diffs });
        serde_json::json!({ "architecture": "amd64", "os": "linux", "rootfs": root })
            .to_string()
            .into_bytes()
    };
    let right = layers.each_ref().map(|layer| format!("sha256:{}", digest(layer)));
    let swapped = [right[1].clone(), right[0].clone()];
    let unknown = [right[0].clone(), "sha512:00".to_string()];
    for (nth, (config, code, why)) in [
        (named(&swapped), 3, "do not match the diff ID"),
        (named(&right[..1]), 3, "2 layers, but 1 diff IDs"),
        (named(&unknown), 4, "digest sha512:00"),
        (b"{}".to_vec(), 3, "rootfs"),
    ]
    .into_iter()
    .enumerate()
    {
        let shop = Workshop::new(&format!("diff-ids-{nth}"));
        shop.layout(&[shop.configured("t", &layers, &config)]);
        let layout = shop.dir.to_str().expect("path").to_string();
        let out = shop.scratch.join("out");
        for form in ["overlay", "keep"] {
            let args = ["build", &layout, "--layers", "-o", &out, "--whiteouts", form];
            let (found, said) = failure(&seekless(&args));
            assert!(found == code && said.contains(why), "{nth}: {found}: {said}");
            assert!(!Path::new(&out).exists());
        }
        if nth == 0 && ready("umoci") {
            let bundle = shop.scratch.join("bundle");
            let args = ["unpack", "--image", &format!("{layout}:t"), &bundle];
            let output = Command::new("umoci").args(args).output().expect("umoci");
            assert!(!output.status.success(), "umoci takes it");
        }
    }
}

#[test]
fn more_layers_than_overlayfs_takes() {
    let shop = Workshop::new("many");
    let one = archive(&[file("a", "a")]);
    shop.layout(&[shop.image("t", &vec![one; 501])]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let out = shop.scratch.join("out");
    let (code, said) = failure(&seekless(&["build", &layout, "--layers", "-o", &out]));
    assert!(code == 4 && said.contains("501 layers, of which overlayfs takes 500"), "{said}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn refusals() {
    let shop = Workshop::new("refusals");
    let layers = base_and_changes();
    shop.layout(&[shop.image("t", &layers)]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let out = shop.scratch.join("out");
    let refused = |source: &str, options: &[&str], code: i32, why: &str| {
        let args = [&["build", source, "--layers", "-o", &out], options].concat();
        let output = seekless(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(why), "{options:?}: {said}");
        assert!(!Path::new(&out).exists(), "{options:?}");
    };
    refused(&layout, &["--format", "fat32"], 2, "FAT has no device nodes");
    for option in [
        &["--size", "1G"][..],
        &["--free", "5"],
        &["--like", "x"],
        &["--share"],
        &["--disk"],
        &["--verity"],
        &["--definitions", "x"],
        &["--output-format", "qcow2"],
        &["--partition", "1"],
        &["--manifest", "x"],
        &["-D", "x"],
        &["--file-contexts", "x"],
        &["--hard-dereference"],
    ] {
        refused(&layout, option, 2, option[0].trim_start_matches("-D"));
    }
    refused(&layout, &["-E", "offset=1M"], 2, "-E offset");
    refused(&layout, &["overlay"], 2, "one source");
    // A hard link to a file of another archive.
    refused(&layout, &["--whiteouts", "keep"], 3, "third");
    refused("-", &["-o", "-"], 2, "cannot be used multiple times");
    refused(&layout, &["--format", "ufs2"], 4, "trusted.overlay.opaque");
    refused(&layout, &["--format", "ufs2", "--drop-xattrs"], 2, "--drop-xattrs");
    let alone = shop.scratch.join("alone.tar");
    fs::write(&alone, &layers[0]).expect("write");
    refused(&alone, &[], 2, "no layers");
    // A device that overlayfs would take for a whiteout.
    let device = archive(&[owned("dev/zero", b'3', "0:0", (0o600, 0, 0), b"")]);
    let other = Workshop::new("refusals-device");
    other.layout(&[other.image("t", &[device])]);
    refused(other.dir.to_str().expect("path"), &[], 4, "dev/zero: a character device 0:0");
    // As for the image of all layers, an entry that no tree can have is no wrong option.
    let long = [pax(&[("path", &"n".repeat(256))]), file("short", "")].concat();
    let other = Workshop::new("refusals-name");
    other.layout(&[other.image("t", &[archive(&[long])])]);
    refused(other.dir.to_str().expect("path"), &[], 4, "longer than 255 bytes");
    // Without --force existing files keep their contents, and no new file is left beside them.
    Images::build(&shop, "out", &layout, &[]);
    let before = run("ls", &["-la", "--time-style=full-iso", &out]);
    let (code, said) = failure(&seekless(&["build", &layout, "--layers", "-o", &out]));
    assert!(code == 6 && said.contains("--force"), "{said}");
    assert_eq!(before, run("ls", &["-la", "--time-style=full-iso", &out]));
    fs::remove_file(format!("{out}/layers.json")).expect("remove");
    let (code, said) = failure(&seekless(&["build", &layout, "--layers", "-o", &out]));
    assert!(code == 6 && said.contains("00-"), "{said}");
    text(&seekless(&["build", &layout, "--layers", "-o", &out, "--force"]));
    assert!(Path::new(&out).join("layers.json").exists());
}

/// UFS has no attributes `trusted`; those of users are kept.
#[test]
fn layers_as_ufs() {
    let shop = Workshop::new("ufs");
    shop.layout(&[shop.image("t", &base_and_changes())]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let options = ["--format", "ufs2", "--whiteouts", "overlay-user"];
    let images = Images::build(&shop, "images", &layout, &options);
    let found = images.listing(1);
    assert!(found.contains("xattr.user.overlay.opaque=eQ=="), "{found}");
    assert!(found.contains("./d/e/gone type=char mode=0000"), "{found}");
    assert_eq!(images.list["layers"][0]["format"], "ufs2");
    for image in images.paths() {
        text(&seekless(&["check", &image]));
    }
}
