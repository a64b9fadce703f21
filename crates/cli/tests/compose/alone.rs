//! The image of the archive of one layer (`--whiteouts` without `--layers`), laid over another one by
//! overlayfs, beside the image of both layers that the kernel mounts. `SEEKLESS_ALONE` sets the number
//! of random stacks.

use crate::archives::{owned, pax};
use crate::judges::{Mounted, can_mount, check, failure, manifest, same, seekless, text};
use crate::per_layer::{Overlay, archive, dir, file, with_xattr};
use crate::stacks::Random;
use crate::workshop::Workshop;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Random stacks that are compared.
const STACKS: u64 = 14;

/// Archives whose images are made one by one, with entries for all directories.
fn complete_layers() -> [Vec<u8>; 2] {
    let base = archive(&[
        dir("./", 0o755, 0),
        dir("d", 0o750, 1000),
        file("d/gone", "gone"),
        file("d/stays", "stays"),
        dir("opaque", 0o700, 7),
        file("opaque/hidden", "hidden"),
        dir("again", 0o755, 0),
        file("again/old", "old"),
        file("replaced", "old"),
        dir("deep", 0o755, 3),
        dir("deep/tree", 0o755, 3),
        file("deep/tree/file", "below"),
    ]);
    let changes = archive(&[
        dir("./", 0o711, 5),
        dir("d", 0o755, 1001),
        file("d/.wh.gone", ""),
        file("d/.wh.never", ""),
        with_xattr("user.note", "new", dir("opaque", 0o700, 8)),
        file("opaque/.wh..wh..opq", ""),
        file("opaque/shown", "shown"),
        file(".wh.again", ""),
        dir("again", 0o711, 0),
        file("again/new", "new"),
        file(".wh.replaced", ""),
        file("replaced", "new"),
        dir("deep", 0o755, 4),
        file("deep/.wh.tree", ""),
        dir(".wh..wh.plnk", 0o700, 0),
        file(".wh..wh.plnk/12.34", ""),
    ]);
    [base, changes]
}

/// The image of each archive alone, as tar2ext4 of hcsshim makes it, laid over the other by the
/// kernel, is the image of both.
#[test]
fn archives_of_single_layers() {
    let shop = Workshop::new("alone");
    let layers = complete_layers();
    shop.layout(&[shop.image("t", &layers)]);
    let layout = shop.dir.to_str().expect("path").to_string();
    let at = |name: &str| shop.scratch.join(name);
    let whole = at("whole.img");
    text(&seekless(&["build", &layout, "-o", &whole, "-q"]));
    for (nth, layer) in layers.iter().enumerate() {
        fs::write(at(&format!("{nth}.tar")), layer).expect("archive");
    }
    let (tar, out) = (at("1.tar"), at("out.img"));
    for (form, options) in [("overlay", ""), ("overlay-user", "userxattr,")] {
        let images: Vec<String> = (0..2)
            .map(|nth| {
                let image = at(&format!("{form}-{nth}.img"));
                let from = at(&format!("{nth}.tar"));
                text(&seekless(&["build", &from, "-o", &image, "-q", "--whiteouts", form]));
                check(&image);
                image
            })
            .collect();
        let found = manifest(&images[1], &["lost+found"]);
        let marks = found.lines().filter(|line| line.contains("device=linux,0,0")).count();
        // Nothing shows that a name is not below.
        assert_eq!(marks, 3, "{found}");
        assert!(!found.contains(".wh."), "{found}");
        if can_mount() {
            let overlay = Overlay::of(&shop.scratch, &images, options);
            let wanted = Mounted::new(&shop.scratch, &whole, "ro");
            let wanted = manifest(wanted.text(), &["lost+found"]);
            same(form, &overlay.listing(), &wanted);
            assert!(!overlay.at.join("d/never").exists());
        }
    }
    text(&seekless(&["build", &tar, "-o", &out, "-q", "--whiteouts", "keep"]));
    assert!(manifest(&out, &[]).contains("./d/.wh.gone "));

    // Attributes of overlayfs in an archive are no marks.
    let own = archive(&[with_xattr("trusted.overlay.opaque", "y", dir("own", 0o755, 0))]);
    fs::write(&tar, own).expect("archive");
    text(&seekless(&["build", &tar, "-o", &out, "-q", "--force", "--whiteouts", "overlay"]));
    assert!(manifest(&out, &[]).contains("xattr.trusted.overlay.overlay.opaque="));

    let refused = |args: &[&str], code: i32, why: &str| {
        let none = at("none.img");
        let args = [&["build", "-o", &none, "--whiteouts", "overlay"], args].concat();
        let (found, said) = failure(&seekless(&args));
        assert!(found == code && said.contains(why), "{args:?}: {found} {said}");
        assert!(!Path::new(&none).exists());
    };
    fs::create_dir(at("dir")).expect("mkdir");
    refused(&[&at("dir")], 2, "not the archive of one layer");
    refused(&[&layout], 2, "not the archive of one layer");
    refused(&[&at("0.tar"), &tar], 2, "one source");
    refused(&[&tar, "--format", "fat"], 2, "FAT has no device nodes");
    fs::write(&tar, archive(&[file(".wh..wh..opq", "")])).expect("archive");
    refused(&[&tar], 4, "hides all files of the layers below");
    let device = owned("a/null", b'3', "0:0", (0o600, 0, 3), b"");
    fs::write(&tar, archive(&[device])).expect("archive");
    refused(&[&tar], 4, "a/null: a character device 0:0");
    // An entry that no tree can have is no wrong option.
    let long = [pax(&[("path", &"n".repeat(256))]), file("short", "")].concat();
    fs::write(&tar, archive(&[long])).expect("archive");
    refused(&[&tar], 4, "longer than 255 bytes");
}

/// What a path of a random stack is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dir,
    Other,
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// A layer with entries for all its directories, which hides only what there is: overlayfs does not
/// find other whiteouts that it lists. `whole` has the paths of the layers below, and gets those of
/// this one.
fn random_layer(random: &mut Random, whole: &mut BTreeMap<String, Kind>) -> Vec<u8> {
    let mut own: BTreeMap<String, Kind> = BTreeMap::new();
    let (mut hidden, mut opaque) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..4 + random.next(10) {
        let known: Vec<String> = whole.keys().cloned().collect();
        let is_mark = random.next(3) == 0 && !known.is_empty();
        let path = match is_mark {
            true => known[random.next(known.len() as u64) as usize].clone(),
            false => {
                let names = (0..=random.next(3)).map(|_| ["a", "b", "c"][random.next(3) as usize]);
                names.collect::<Vec<_>>().join("/")
            }
        };
        let is_file = |path: &str| is_file_in(&own, path);
        let is_marked = |path: &str| hidden.contains(path) || opaque.contains(path);
        let has_marks = hidden.iter().any(|mark: &String| is_below(mark, &path));
        if parents(&path).any(|dir| is_file(dir) || is_mark && is_marked(dir)) {
            continue;
        }
        let makes_opaque = whole.get(&path) == Some(&Kind::Dir) && random.next(2) == 0;
        if is_mark && (has_marks || makes_opaque && is_file(&path)) {
            continue;
        }
        parents(&path).for_each(|dir| _ = own.insert(dir.into(), Kind::Dir));
        match (is_mark, makes_opaque) {
            (true, true) => {
                own.insert(path.clone(), Kind::Dir);
                opaque.insert(path);
            }
            (true, false) => {
                // A directory of that name may take its place.
                if random.next(3) == 0 && !is_file_in(&own, &path) {
                    own.insert(path.clone(), Kind::Dir);
                }
                hidden.insert(path);
            }
            (false, _) if random.next(3) == 0 && !is_file_in(&own, &path) => {
                own.insert(path, Kind::Dir);
            }
            // A mark would be in a directory that only this layer has.
            (false, _) if !own.contains_key(&path) && !has_marks => {
                own.insert(path, Kind::Other);
            }
            (false, _) => {}
        }
    }
    whole.retain(|path, _| {
        let goes = hidden.contains(path) || hidden.iter().any(|dir| is_below(path, dir));
        !goes && !opaque.iter().any(|dir| is_below(path, dir))
    });
    let mut entries = vec![dir("./", 0o755, 0)];
    for (path, kind) in &own {
        let numbers = ([0o755, 0o700, 0o1711][random.next(3) as usize], random.next(3) as u32, 9);
        entries.push(match (kind, random.next(4)) {
            (Kind::Dir, _) => owned(path, b'5', "", numbers, b""),
            (Kind::Other, 0) => owned(path, b'2', "../a/b", numbers, b""),
            (Kind::Other, 1) => with_xattr("user.note", "own", file(path, "noted")),
            (Kind::Other, _) => {
                owned(path, b'0', "", numbers, &vec![b'x'; random.next(9000) as usize])
            }
        });
        if *kind == Kind::Other {
            whole.retain(|old, _| !is_below(old, path));
        }
        whole.insert(path.clone(), *kind);
    }
    let mark = |path: &String| match path.rsplit_once('/') {
        Some((dir, name)) => file(&format!("{dir}/.wh.{name}"), ""),
        None => file(&format!(".wh.{path}"), ""),
    };
    let mut marks: Vec<Vec<u8>> = hidden.iter().map(mark).collect();
    marks.extend(opaque.iter().map(|dir| file(&format!("{dir}/.wh..wh..opq"), "")));
    // Whiteouts may come before and after the entries.
    let at = [0, entries.len()][random.next(2) as usize];
    entries.splice(at..at, marks);
    archive(&entries)
}

fn is_file_in(own: &BTreeMap<String, Kind>, path: &str) -> bool {
    own.get(path) == Some(&Kind::Other)
}

#[test]
fn random_archives_over_one_another() {
    if !can_mount() {
        return;
    }
    let wanted = std::env::var("SEEKLESS_ALONE").ok().and_then(|text| text.parse().ok());
    let mut marks = 0;
    for seed in 0..wanted.unwrap_or(STACKS) {
        let shop = Workshop::new(&format!("alone-{seed}"));
        let (mut random, mut whole) = (Random(seed), BTreeMap::new());
        let layers: Vec<Vec<u8>> =
            (0..2 + random.next(3)).map(|_| random_layer(&mut random, &mut whole)).collect();
        shop.layout(&[shop.image("t", &layers)]);
        let at = |name: &str| shop.scratch.join(name);
        let layout = shop.dir.to_str().expect("path");
        text(&seekless(&["build", layout, "-o", &at("whole.img"), "-q"]));
        let image = |(nth, layer): (usize, &Vec<u8>)| {
            let (from, image) = (at(&format!("{nth}.tar")), at(&format!("{nth}.img")));
            fs::write(&from, layer).expect("archive");
            text(&seekless(&["build", &from, "-o", &image, "-q", "--whiteouts", "overlay"]));
            check(&image);
            marks += manifest(&image, &[]).matches("device=linux,0,0").count();
            image
        };
        let images: Vec<String> = layers.iter().enumerate().map(image).collect();
        let overlay = Overlay::of(&shop.scratch, &images, "");
        let expected = Mounted::new(&shop.scratch, &at("whole.img"), "ro");
        let expected = manifest(expected.text(), &["lost+found"]);
        same(&format!("seed {seed}: the overlay is the left one"), &overlay.listing(), &expected);
        // The model that chose the whiteouts knew what there was.
        let found = expected.lines().filter(|line| line.starts_with("./")).count();
        assert_eq!(found, whole.len(), "seed {seed}");
    }
    assert!(marks > 4, "{marks} whiteouts");
}
