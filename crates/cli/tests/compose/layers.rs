//! Several sources in layers, compared with the results of the kernel's overlayfs and of tar.

use crate::judges::{
    Scratch, can_mount, check, command, failure, manifest, ready, run, same, seekless, text,
    timeless, unmount,
};
use crate::workshop::Workshop;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Makes a directory with files, links and modes: names that end with a slash are directories,
/// `a -> b` is a symlink, `a = b` a hard link.
fn tree(scratch: &Scratch, name: &str, entries: &[&str]) -> PathBuf {
    let root = scratch.path().join(name);
    fs::create_dir(&root).expect("mkdir");
    for entry in entries {
        if let Some((link, target)) = entry.split_once(" -> ") {
            symlink(target, root.join(link)).expect("symlink");
        } else if let Some((link, target)) = entry.split_once(" = ") {
            fs::hard_link(root.join(target), root.join(link)).expect("link");
        } else if let Some(dir) = entry.strip_suffix('/') {
            fs::create_dir_all(root.join(dir)).expect("mkdir");
        } else {
            fs::create_dir_all(root.join(entry).parent().expect("parent")).expect("mkdir");
            fs::write(root.join(entry), format!("{name}: {entry}")).expect("write");
        }
    }
    root
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn lower(scratch: &Scratch) -> PathBuf {
    let entries = [
        "etc/passwd",
        "etc/below",
        "usr/lib/a",
        "lib -> usr/lib",
        "dir/inner",
        "file",
        "one",
        "two = one",
        "three = one",
        "to-dir -> usr",
        "kept/",
    ];
    let root = tree(scratch, "lower", &entries);
    fs::set_permissions(root.join("etc"), Permissions::from_mode(0o700)).expect("chmod");
    root
}

fn upper(scratch: &Scratch) -> PathBuf {
    let entries = [
        "etc/passwd",
        "etc/above",
        "usr/lib/b",
        "dir",
        "file/inside",
        "two",
        "x",
        "y = x",
        "to-dir/own",
        "new -> nowhere",
    ];
    let root = tree(scratch, "upper", &entries);
    fs::set_permissions(root.join("etc"), Permissions::from_mode(0o2755)).expect("chmod");
    root
}

#[test]
fn directories_are_laid_over_one_another_as_overlayfs_does() {
    let scratch = Scratch::new("layers-overlay");
    let (lower, upper) = (lower(&scratch), upper(&scratch));
    let image = scratch.join("image");
    let built = seekless(&["build", shown(&lower), shown(&upper), "-o", &image]);
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(errors.contains("upper: the directory /to-dir replaces a symlink"), "{errors}");
    text(&built);
    check(&image);
    if !can_mount() {
        return;
    }
    let at = scratch.join("merged");
    fs::create_dir(&at).expect("mkdir");
    let options = format!("lowerdir={}:{}", upper.display(), lower.display());
    run("mount", &["-t", "overlay", "overlay", "-o", &options, &at]);
    let merged = manifest(&at, &[]);
    unmount(&at).expect("umount");
    same("overlayfs", &manifest(&image, &[]), &merged);
}

#[test]
fn archives_are_laid_over_one_another_as_tar_unpacks_them() {
    let scratch = Scratch::new("layers-tar");
    let (lower, upper) = (lower(&scratch), upper(&scratch));
    let (one, two) = (scratch.join("lower.tar"), scratch.join("upper.tar"));
    run("tar", &["-C", shown(&lower), "-cf", &one, "."]);
    // No entries for the root, /etc and /lib; /lib is a symlink in the lower layer.
    fs::create_dir(upper.join("lib")).expect("mkdir");
    fs::write(upper.join("lib/c"), "c").expect("write");
    let names = ["etc/passwd", "etc/above", "lib/c", "file", "two", "x", "y", "new"];
    run("tar", &[&["-C", shown(&upper), "-cf", &two][..], &names].concat());
    let at = scratch.join("unpacked");
    fs::create_dir(&at).expect("mkdir");
    for archive in [&one, &two] {
        run("tar", &["-C", &at, "--recursive-unlink", "-xpf", archive]);
    }
    let image = scratch.join("image");
    text(&seekless(&["build", &one, &two, "-o", &image]));
    check(&image);
    // Directories have the times of unpacking.
    same("tar", &timeless(&manifest(&image, &[])), &timeless(&manifest(&at, &[])));
    let listing = manifest(&image, &[]);
    assert!(listing.contains("./usr/lib/c ") && !listing.contains("./lib/c "), "{listing}");
    let etc = listing.lines().find(|line| line.starts_with("./etc ")).expect("etc");
    assert!(etc.contains("mode=0700"), "{etc}");
    // Directories without an entry get the requested owner.
    let (three, owned) = (scratch.join("deep.tar"), scratch.join("owned"));
    let deep = tree(&scratch, "deep", &["p/q/r"]);
    run("tar", &["-C", shown(&deep), "-cf", &three, "p/q/r"]);
    text(&seekless(&["build", &one, &three, "-o", &owned, "--owner", "7:8"]));
    let listing = manifest(&owned, &[]);
    assert!(listing.lines().skip(1).all(|line| line.contains(" uid=7 gid=8 ")), "{listing}");
    assert!(listing.contains("./p/q type=dir mode=0755 uid=7"), "{listing}");
    // The same with a pipe and an image as lower layers.
    let again = scratch.join("again");
    let mut piped = command(&["build", "-", &two, "-o", &again]);
    text(&piped.stdin(Stdio::from(File::open(&one).expect("open"))).output().expect("run"));
    run("cmp", &[&image, &again]);
    let base = scratch.join("base.img");
    text(&seekless(&["build", &one, "-o", &base]));
    text(&seekless(&["build", &base, &two, "-o", &again, "--force"]));
    same("image", &manifest(&image, &[]), &manifest(&again, &[]));
    for format in ["ufs2", "fat"] {
        let args = ["build", &one, &two, "-o", &again, "--force", "--format", format];
        let drop: &[&str] = if format == "fat" { &["--drop", "all"] } else { &[] };
        text(&seekless(&[&args[..], drop].concat()));
    }
}

#[test]
fn what_cannot_be_laid_over_one_another_is_refused() {
    let scratch = Scratch::new("layers-refused");
    let (lower, image) = (lower(&scratch), scratch.join("image"));
    let archive = scratch.join("below-file.tar");
    let below = tree(&scratch, "below", &["file/x"]);
    run("tar", &["-C", shown(&below), "-cf", &archive, "file/x"]);
    let cases: [(&[&str], i32, &str); 4] = [
        (&[shown(&lower), &archive], 4, "below-file.tar: file/x: a parent of this path is not"),
        (&["-", "-"], 4, "one source only"),
        (&[shown(&lower), &archive, "--tag", "1"], 4, "none of the sources"),
        (&[], 2, "required"),
    ];
    for (args, code, why) in cases {
        let output = seekless(&[&["build", "-o", &image], args].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(why), "{args:?}: {message}");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(!Path::new(&image).exists());
    }
    let inside = lower.join("image");
    let args = ["build", &archive, shown(&lower), "-o", shown(&inside)];
    assert!(failure(&seekless(&args)).1.contains("would lie inside"));
}

#[test]
fn container_images_go_below_files() {
    let shop = Workshop::new("layers-container");
    let layers = [shop.layer(&[("etc/os-release", "old"), ("f-base", "")])];
    shop.layout(&[shop.image("1", &layers), shop.image("2", &[])]);
    let over = tree(&shop.scratch, "over", &["etc/os-release"]);
    let image = shop.scratch.join("image");
    let args = ["build", shown(&shop.dir), shown(&over), "-o", &image, "--tag", "1"];
    text(&seekless(&args));
    assert_eq!(text(&seekless(&["cat", &image, "/etc/os-release"])), "over: etc/os-release");
    assert!(manifest(&image, &[]).contains("./f-base "));
}

/// The output of `sqfs2tar` is built as it is; SquashFS has whole seconds.
#[test]
fn a_squashfs_image_is_built_from_by_a_pipe() {
    if !["mksquashfs", "sqfs2tar"].into_iter().all(ready) {
        return;
    }
    let scratch = Scratch::new("layers-squashfs");
    let lower = lower(&scratch);
    run("setfattr", &["-n", "user.note", "-v", "kept", shown(&lower.join("file"))]);
    let (packed, image) = (scratch.join("packed"), scratch.join("image"));
    run("mksquashfs", &[shown(&lower), &packed, "-noappend", "-quiet"]);
    let mut unpack = std::process::Command::new("sqfs2tar")
        .args(["--root-becomes", ".", &packed])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqfs2tar");
    let mut build = command(&["build", "-", "-o", &image]);
    text(&build.stdin(unpack.stdout.take().expect("pipe")).output().expect("seekless"));
    assert!(unpack.wait().expect("sqfs2tar").success());
    let (image, lower) = (manifest(&image, &[]), manifest(shown(&lower), &[]));
    same("squashfs", &timeless(&image), &timeless(&lower));
}
