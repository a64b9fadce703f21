//! Images from trees: read by mtools, judged by fsck.fat, the same in two runs.

use crate::judges::{Scratch, command, failure, manifest, ready, run, same, seekless, text};
use crate::read::comparable;
use crate::shapes;
use crate::workshop::Workshop;
use crate::{fsck, mtools, populate};
use seekless_device::FileDevice;
use seekless_fat::FatImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

fn judged() -> bool {
    ["fsck.fat", "mcopy", "mdir"].iter().all(|program| ready(program))
}

fn open(image: &str) -> FatImage {
    let device = Arc::new(FileDevice::open(Path::new(image)).expect("open"));
    FatImage::open(device, OpenOptions::default()).expect("image")
}

/// Copies a whole image out with mtools; returns a listing of the copy.
fn copied(scratch: &Scratch, image: &str) -> String {
    let out = scratch.join("copied");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).expect("mkdir");
    mtools("mcopy", image, &["-s", "-m", "-Q", "::*", &out]);
    // mtools does not keep the times of directories.
    let listing = comparable(&manifest(&out, &[]));
    timeless_directories(&listing)
}

fn timeless_directories(listing: &str) -> String {
    let line = |line: &str| match line.split_once(" type=dir") {
        Some((name, _)) => format!("{name} type=dir\n"),
        None => format!("{line}\n"),
    };
    listing.lines().map(line).collect()
}

#[test]
fn every_shape_holds_a_tree() {
    if !judged() {
        return;
    }
    let scratch = Scratch::new("fat-build");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    // mtools has no name for this file.
    let astral = format!("{tree}/DIR/smile 😀.md");
    let wanted = comparable(&manifest(&tree, &[]));
    for (n, shape) in shapes::all().into_iter().filter(|shape| shape.clusters > 1000).enumerate() {
        let what = format!("{shape:?}");
        let (size, format) = (shape.bytes().to_string(), format!("fat{}", shape.bits));
        let [sector, cluster, fats] =
            [shape.sector, shape.cluster, shape.fats].map(|number| number.to_string());
        let mut args = vec!["build", &tree, "-o", &image, "--force", "--size", &size];
        args.extend(["--format", &format, "-S", &sector, "--sectors-per-cluster", &cluster]);
        args.extend(["--fats", &fats, "-L", "A TREE"]);
        args.extend(if shape.aligned { None } else { Some("--no-align") });
        text(&seekless(&args));
        fsck(&image);
        same(&what, &wanted, &comparable(&manifest(&image, &[])));
        if n.is_multiple_of(7) {
            let (wanted, got) = (timeless_directories(&wanted), copied(&scratch, &image));
            same(&what, &wanted, &got);
        }
    }
    fs::write(&astral, "smile").expect("write");
    run("touch", &["-d", "@1700000000", &astral, &format!("{tree}/DIR")]);
    text(&seekless(&["build", &tree, "-o", &image, "--force", "--format", "fat16"]));
    fsck(&image);
    same("astral", &comparable(&manifest(&tree, &[])), &comparable(&manifest(&image, &[])));
}

#[test]
fn fitted_images_are_small_and_the_same_whatever_the_source() {
    if !judged() || !ready("tar") {
        return;
    }
    let scratch = Scratch::new("fat-fitted");
    let (tree, tar) = (scratch.join("tree"), scratch.join("tree.tar"));
    populate(Path::new(&tree));
    run("tar", &["--owner=0", "--group=0", "--sort=name", "-cf", &tar, "-C", &tree, "."]);
    let bytes: u64 = 200_000;
    for (format, most) in [("fat12", bytes), ("fat16", 10 << 20), ("fat32", 35 << 20)] {
        let images = [scratch.join("a"), scratch.join("b"), scratch.join("c")];
        let other = scratch.join("other.ext4");
        text(&seekless(&["build", &tree, "-o", &other, "--force"]));
        for (image, source) in images.iter().zip([&tree, &tar, &other]) {
            let mut args = vec!["build", source, "-o", image, "--format", format, "--force"];
            args.extend(["-L", "SAME", "--exclude", "lost+found"]);
            let output = command(&args).env("SOURCE_DATE_EPOCH", "1600000000").output();
            text(&output.expect("seekless"));
            fsck(image);
            run("cmp", &[&images[0], image]);
        }
        let len = fs::metadata(&images[0]).expect("metadata").len();
        assert!(len < most, "{format}: {len} bytes");
        // Another tree gives another volume ID.
        let id = |image: &str| open(image).geometry().uuid;
        let changed = scratch.join("changed");
        let args = ["build", &tree, "-o", &changed, "--format", format, "--exclude", "DIR"];
        text(&seekless(&[&args[..], &["--force"]].concat()));
        assert_ne!(id(&images[0]), id(&changed));
    }
}

#[test]
fn what_fat_has_no_place_for_is_refused_by_name_or_dropped_and_counted() {
    let scratch = Scratch::new("fat-losses");
    let image = scratch.join("image");
    type Spoil = fn(&Path);
    let cases: [(&str, &str, &str, Spoil); 10] = [
        ("owners", "file: owner 5:7", "1 owner", |root| {
            run("chown", &["5:7", root.join("file").to_str().expect("path")]);
        }),
        ("modes", "file: mode 0755", "1 mode", |root| {
            fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o755))
                .expect("chmod");
        }),
        ("links", "file: 2 names", "1 hard link became", |root| {
            fs::hard_link(root.join("file"), root.join("other")).expect("link");
        }),
        ("symlinks", "dir/link: FAT has no symlinks", "1 symlink", |root| {
            symlink("file", root.join("dir/link")).expect("symlink");
        }),
        ("devices", "fifo: FAT has no FIFOs", "1 device", |root| {
            run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
        }),
        ("names", "what?: a name with '?'", "1 file with an impossible", |root| {
            fs::write(root.join("what?"), "x").expect("write");
        }),
        ("names", "ends.: a name that ends with a dot", "1 file with an", |root| {
            fs::write(root.join("ends."), "x").expect("write");
        }),
        ("names", "tab\t: a name with the control character 0x09", "1 file with an", |root| {
            fs::write(root.join("tab\t"), "x").expect("write");
        }),
        ("names", "bad:dir: a name with ':'", "3 files with impossible", |root| {
            fs::create_dir_all(root.join("bad:dir/below")).expect("mkdir");
            fs::write(root.join("bad:dir/below/file"), "x").expect("write");
        }),
        ("names", "not UTF-8", "1 file with an", |root| {
            use std::os::unix::ffi::OsStrExt;
            fs::write(root.join(std::ffi::OsStr::from_bytes(b"a\xFFb")), "x").expect("write");
        }),
    ];
    for (drop, refused, counted, spoil) in cases {
        if drop == "owners" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let tree = scratch.join("tree");
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
        fs::write(format!("{tree}/file"), "contents").expect("write");
        spoil(Path::new(&tree));
        let args = ["build", &tree, "-o", &image, "--format", "fat12", "--force"];
        let own: &[&str] = if drop == "owners" { &[] } else { &["--owner", "0:0"] };
        let args = [&args[..], own].concat();
        let (code, message) = failure(&seekless(&args));
        assert_eq!(code, 4, "{message}");
        assert!(
            message.contains(refused) && message.contains(&format!("--drop {drop}")),
            "{message}"
        );
        assert!(!Path::new(&image).exists(), "something was written");
        for list in [drop, "all"] {
            let output = seekless(&[&args[..], &["--drop", list]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            text(&output);
            assert!(said.contains(counted), "--drop {list}: {said}");
            if ready("fsck.fat") {
                fsck(&image);
            }
            assert_eq!(text(&seekless(&["cat", &image, "/file"])), "contents");
            if drop == "links" {
                assert_eq!(text(&seekless(&["cat", &image, "/other"])), "contents");
            }
        }
        fs::remove_file(&image).expect("remove");
    }
}

#[test]
fn names_that_differ_in_case_only_are_an_error_with_both() {
    let scratch = Scratch::new("fat-case");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    for (one, other) in [("README", "readme"), ("Äpfel.txt", "äPFEL.TXT"), ("Ж", "ж")] {
        fs::write(format!("{tree}/dir/{one}"), "1").expect("write");
        fs::write(format!("{tree}/dir/{other}"), "2").expect("write");
        let args = ["build", &tree, "-o", &image, "--format", "fat12", "--drop", "all"];
        let (code, message) = failure(&seekless(&args));
        assert_eq!(code, 4, "{message}");
        for part in ["dir: ", &format!("'{one}'"), &format!("'{other}'")] {
            assert!(message.contains(part), "{part}: {message}");
        }
        fs::remove_file(format!("{tree}/dir/{one}")).expect("remove");
    }
}

#[test]
fn ten_thousand_names_of_one_beginning_get_short_names() {
    if !judged() {
        return;
    }
    let scratch = Scratch::new("fat-many");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/many")).expect("mkdir");
    for n in 0..10_000 {
        fs::write(format!("{tree}/many/the same beginning {n:05}.text"), "").expect("write");
    }
    // A file with the name of a generated short name keeps its name.
    fs::write(format!("{tree}/many/THESAM~3.TEX"), "mine").expect("write");
    text(&seekless(&["build", &tree, "-o", &image, "--format", "fat16", "--drop", "owners"]));
    let report = fsck(&image);
    assert!(report.contains("10003 files") || report.contains("10002 files"), "{report}");
    assert_eq!(text(&seekless(&["cat", &image, "/many/THESAM~3.TEX"])), "mine");
    assert_eq!(mtools("mdir", &image, &["-b", "::/many"]).lines().count(), 10_001);
    let shorts = mtools("mdir", &image, &["::/many"]);
    for short in ["THESAM~1 TEX", "THESA~99 TEX", "THES~999 TEX", "THE~9999 TEX", "TH~10001 TEX"] {
        assert!(shorts.contains(short), "no {short}");
    }
    // A directory has room for 65,536 entries; each of these names takes four.
    for n in 10_000..16_500 {
        fs::write(format!("{tree}/many/the same beginning {n:05}.text"), "").expect("write");
    }
    let args = ["build", &tree, "-o", &image, "--format", "fat16", "--drop", "owners", "--force"];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 5 && message.contains("many: the directory needs 66"), "{code} {message}");
}

#[test]
fn a_trace_orders_clusters_and_entries() {
    let scratch = Scratch::new("fat-trace");
    let (tree, image, trace) = (scratch.join("tree"), scratch.join("image"), scratch.join("trace"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(format!("{tree}/dir/{name}"), name.repeat(10_000)).expect("write");
    }
    fs::write(format!("{tree}/cold"), vec![1; 300_000]).expect("write");
    // In another case, as firmware may spell it.
    fs::write(scratch.join("list"), "/DIR/d\n/dir/B\n").expect("write");
    let list = scratch.join("list");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    for format in ["fat12", "fat16", "fat32"] {
        let args = ["build", &tree, "-o", &image, "--format", format, "--drop", "owners,modes"];
        let with = ["--trace", &trace, "--force", "--chunk", "64K"];
        text(&seekless(&[&args[..], &with].concat()));
        if ready("fsck.fat") {
            fsck(&image);
        }
        let opened = open(&image);
        let start = |path: &str| {
            let ino = resolve(&opened, path.as_bytes()).expect(path);
            opened.block_map(ino).expect("map").runs[0].extent.start.get()
        };
        let mut order =
            ["a", "b", "c", "d", "e"].map(|name| (start(&format!("/dir/{name}")), name));
        order.sort();
        assert_eq!(order.map(|(_, name)| name), ["d", "b", "a", "c", "e"], "{format}");
        let mut names = Vec::new();
        let dir = resolve(&opened, b"/dir").expect("dir");
        opened
            .read_dir(dir, 2, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                ControlFlow::Continue(())
            })
            .expect("names");
        assert_eq!(names, ["d", "b", "a", "c", "e"], "{format}");
        // The data that the trace reads begins at a chunk.
        let first = if format == "fat32" { start("/") } else { start("/dir") };
        let bytes = first * u64::from(opened.geometry().block_size);
        assert!(bytes % (64 << 10) < u64::from(opened.geometry().cluster_blocks) * 512, "{bytes}");
    }
}

#[test]
fn a_size_that_is_too_small_says_what_is_needed() {
    let scratch = Scratch::new("fat-small");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(&tree).expect("mkdir");
    fs::write(format!("{tree}/big"), vec![7; 3 << 20]).expect("write");
    let args = ["build", &tree, "-o", &image, "--format", "fat16", "--drop", "all"];
    let (code, message) = failure(&seekless(&[&args[..], &["--size", "2200K"]].concat()));
    assert!(code == 5 && message.contains("a volume of at least"), "{code} {message}");
    let needed = message
        .split_whitespace()
        .find_map(|word| word.parse::<u64>().ok().filter(|n| *n > 3 << 20));
    let needed = needed.expect("a size").to_string();
    text(&seekless(&[&args[..], &["--size", &needed]].concat()));
    // Options of other formats are refused for FAT, and those of FAT for other formats.
    for (given, says) in [
        (&["--format", "fat32", "--features", "extent"][..], "is for ext images"),
        (&["--format", "ext4", "--drop", "modes"], "--drop is for FAT"),
        (&["--format", "ufs2", "-R", "9"], "is for FAT"),
        (&["--format", "fat32", "--soft-updates"], "is for UFS"),
    ] {
        let (code, message) =
            failure(&seekless(&[&["build", &tree, "-o", &image], given].concat()));
        assert!(code == 2 && message.contains(says), "{message}");
    }
}

/// An EFI system partition from the layers of a container image: the second layer replaces a file
/// of the first. (Times before 1980 become the earliest of FAT.)
#[test]
fn container_images_become_efi_system_partitions() {
    if !judged() || !ready("tar") {
        return;
    }
    let shop = Workshop::new("fat-oci");
    let old = shop.layer(&[("EFI/BOOT/BOOTX64.EFI", "old loader"), ("EFI/readme.txt", "stays")]);
    let new = shop.layer(&[("EFI/BOOT/BOOTX64.EFI", "new loader")]);
    let image = shop.image("esp", &[old, new]);
    shop.layout(&[image]);
    let dir = shop.dir.to_str().expect("path").to_string();
    let esp = shop.scratch.join("esp.img");
    let args = ["build", &dir, "-o", &esp, "--format", "fat32", "-L", "EFI", "--drop", "modes"];
    let output = seekless(&[&args[..], &["--owner", "0:0"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    text(&output);
    assert!(said.contains("files have timestamps that"), "{said}");
    fsck(&esp);
    assert_eq!(mtools("mtype", &esp, &["::/EFI/BOOT/BOOTX64.EFI"]), "new loader");
    assert_eq!(mtools("mtype", &esp, &["::/efi/README.TXT"]), "stays");
}
