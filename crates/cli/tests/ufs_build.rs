//! `seekless build --format ufs1|ufs2`: read completely by our own reader, by The Sleuth Kit, GRUB
//! and dissect.ffs. Needs these; reports and passes without.

mod judges;

use judges::{
    Scratch, can_mount, command, dissect, failure, manifest, ready, run, same, seekless, text,
    timeless, unmount,
};
use seekless_device::FileDevice;
use seekless_ffs::FfsImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::{Extent, GroupNo, Ino};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// Sizes of blocks and fragments.
const SHAPES: [(&str, &str); 6] = [
    ("4096", "512"),
    ("8192", "1024"),
    ("16384", "2048"),
    ("32768", "4096"),
    ("65536", "8192"),
    ("8192", "8192"),
];

fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// Files of every kind.
fn populate(root: &Path) {
    for dir in ["dir/below/further", "many", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    // Every number of fragments; sizes around the twelfth block.
    for n in 0..24 {
        fs::write(root.join(format!("dir/{n}")), noise(n * 1000 + n, n as u32)).expect("write");
    }
    for blocks in [4096 * 12, 8192 * 12, 16384 * 12] {
        for (n, len) in [blocks - 1, blocks, blocks + 1].into_iter().enumerate() {
            let name = format!("edge-{blocks}-{n}");
            fs::write(root.join(name), noise(len, len as u32)).expect("write");
        }
    }
    fs::write(root.join("double"), noise(20 << 20, 78)).expect("write");
    for n in 0..1500 {
        fs::write(root.join(format!("many/a name of some length {n}")), b"x").expect("write");
    }
    let long = root.join("dir/below").join("n".repeat(255));
    fs::write(long, b"long name").expect("write");
    fs::hard_link(root.join("double"), root.join("dir/hard")).expect("link");
    for len in [5, 59, 60, 119, 120, 1000] {
        symlink("l".repeat(len), root.join(format!("dir/link{len}"))).expect("symlink");
    }
    for (name, len, at) in [("sparse", 90 << 20, 50 << 20), ("small", 70_000, 40_000)] {
        let file = fs::File::create(root.join(name)).expect("create");
        file.set_len(len).expect("length");
        file.write_at(&noise(6000, 5), at).expect("write");
    }
    fs::File::create(root.join("hole")).expect("create").set_len(500_000).expect("length");
    fs::set_permissions(root.join("dir/3"), fs::Permissions::from_mode(0o4751)).expect("chmod");
    run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
    // Device nodes, if permitted.
    for (name, kind, major, minor) in [("null", "c", "1", "3"), ("disk", "b", "8", "200")] {
        let path = root.join(name);
        let _ = Command::new("mknod").arg(path).args([kind, major, minor]).output();
    }
}

/// Sets short and long extended attributes; false if the file system does not support them.
fn add_attributes(root: &Path) -> bool {
    let set = |name: &str, value: &str, path: &str| {
        let path = root.join(path);
        let done = Command::new("setfattr").args(["-n", name, "-v", value]).arg(path).output();
        done.is_ok_and(|output| output.status.success())
    };
    set("user.note", "hello", "dir/3")
        && set("user.other", "", "dir/3")
        && set("user.long", &"v".repeat(3500), "dir/4")
}

/// Checks that every fragment is free, metadata, or used by exactly one file, and that the counters
/// agree. Returns the number of fragments without an owner.
fn account(image: &str, what: &str, frag: u64) -> usize {
    let device = FileDevice::open(Path::new(image)).expect("image");
    let image = FfsImage::open(Arc::new(device), OpenOptions::default()).expect(what);
    let geometry = image.geometry().clone();
    let mut owners = vec![0u8; geometry.blocks as usize];
    let mut take = |run: Extent, whose: &str| {
        for at in run.start.get()..run.end().get() {
            owners[at as usize] += 1;
            assert_eq!(owners[at as usize], 1, "{what}: fragment {at} twice ({whose})");
        }
    };
    let (mut free, mut directories) = (0, 0);
    for group in (0..geometry.groups).map(GroupNo::new) {
        let group = image.group(group).expect(what);
        group.free.iter().for_each(|&run| take(run, "free"));
        group.metadata.iter().for_each(|it| take(it.extent, "metadata"));
        free += group.free_blocks;
        directories += group.directories;
    }
    assert_eq!(free, geometry.free_blocks, "{what}");
    let (mut seen, mut found) = (vec![image.root()], 1);
    let mut stack = vec![image.root()];
    while let Some(ino) = stack.pop() {
        let map = image.block_map(ino).expect(what);
        map.runs.iter().for_each(|run| take(run.extent, &format!("inode {ino}")));
        map.index.iter().for_each(|index| take(Extent::new(index.block, frag), "a map"));
        let mut entries: Vec<Ino> = Vec::new();
        let kind = image.attr(ino).expect(what).kind;
        if kind != seekless_fs::FileKind::Directory {
            continue;
        }
        let listed = image.read_dir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry.ino);
            }
            ControlFlow::Continue(())
        });
        listed.expect(what);
        for ino in entries.into_iter().filter(|ino| !seen.contains(ino)).collect::<Vec<_>>() {
            if seen.contains(&ino) {
                continue;
            }
            seen.push(ino);
            stack.push(ino);
            let attr = image.attr(ino).expect(what);
            found += u32::from(attr.kind == seekless_fs::FileKind::Directory);
        }
    }
    assert_eq!(directories, found, "{what}: directories");
    owners.into_iter().filter(|&owners| owners == 0).count()
}

#[test]
fn trees_come_back_whole() {
    let scratch = Scratch::new("ufs-build");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let plain = manifest(&tree, &[]);
    assert!(plain.lines().count() > 1500);
    let shapes = SHAPES.iter().flat_map(|shape| {
        ["ufs1", "ufs2"].into_iter().flat_map(move |format| {
            [None, Some("--big-endian")].into_iter().map(move |order| (shape, format, order))
        })
    });
    for ((block, fragment), format, order) in shapes {
        let what = format!("{format} {block}/{fragment} {order:?}");
        let mut args = vec!["build", &tree, "-o", &image, "--force", "--format", format];
        args.extend(["-b", block, "-f", fragment]);
        args.extend(order);
        text(&seekless(&args));
        same(&what, &plain, &manifest(&image, &[]));
        let frag = block.parse::<u64>().expect("number") / fragment.parse::<u64>().expect("number");
        assert_eq!(account(&image, &what, frag), 0, "{what}: lost");
        text(&seekless(&["check", &image]));
    }
    // Other sources: a UFS image, and an archive of tar.
    let (second, tar) = (scratch.join("second"), scratch.join("tar"));
    let build = ["build", &image, "-o", &second, "--format", "ufs1", "-b", "8192", "-f", "1024"];
    text(&seekless(&build));
    same("from an image", &plain, &manifest(&second, &[]));
    run("tar", &["--format=posix", "-C", &tree, "-cf", &tar, "."]);
    let build = ["build", &tar, "-o", &second, "--force", "--format", "ufs2"];
    text(&seekless(&build));
    same("from a tar", &timeless(&manifest(&tar, &[])), &timeless(&manifest(&second, &[])));
    account(&second, "from a tar", 8);
}

#[test]
fn attributes_come_back_where_the_format_has_them() {
    let scratch = Scratch::new("ufs-xattr");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    for n in 0..6 {
        fs::write(format!("{tree}/dir/{n}"), noise(n * 700, 3)).expect("write");
    }
    if !add_attributes(Path::new(&tree)) {
        judges::skip("no extended attributes here");
        return;
    }
    let wanted = manifest(&tree, &[]);
    for (block, fragment) in SHAPES {
        let shape = ["-b", block, "-f", fragment];
        let args = [&["build", &tree, "-o", &image, "--force", "--format", "ufs2"], &shape[..]];
        text(&seekless(&args.concat()));
        same(block, &wanted, &manifest(&image, &[]));
        account(&image, block, 8);
    }
    // UFS1 has no extended attributes, and neither version supports those specific to Linux.
    let args = ["build", &tree, "-o", &image, "--force", "--format", "ufs1"];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 4 && message.contains("--drop-xattrs"), "{code} {message}");
    text(&seekless(&[&args[..], &["--drop-xattrs"]].concat()));
    assert!(!manifest(&image, &[]).contains("xattr"));
    let acl = Command::new("setfacl").args(["-m", "u:7:r", &format!("{tree}/dir/1")]).output();
    if acl.is_ok_and(|output| output.status.success()) {
        let args = ["build", &tree, "-o", &image, "--force", "--format", "ufs2"];
        let (code, message) = failure(&seekless(&args));
        let named = message.contains("posix_acl_access") && message.contains("dir/1");
        assert!(code == 4 && named && message.contains("--drop-xattrs"), "{code} {message}");
    }
}

#[test]
fn dissect_reads_them_whole() {
    if !dissect::ready() {
        return;
    }
    let scratch = Scratch::new("ufs-dissect");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    populate(Path::new(&tree));
    let wanted = dissect::of_manifest(&manifest(&tree, &[]));
    assert!(wanted.len() > 1500, "{}", wanted.len());
    for format in ["ufs1", "ufs2"] {
        for (block, fragment) in [("16384", "2048"), ("4096", "512")] {
            let args = ["build", &tree, "-o", &image, "--force", "--format", format];
            text(&seekless(&[&args[..], &["-b", block, "-f", fragment]].concat()));
            dissect::agrees(&format!("{format} {block}"), &wanted, &image);
        }
    }
}

#[test]
fn the_sleuth_kit_and_grub_read_them_whole() {
    if !ready("fls") || !ready("icat") || !ready("grub-fstest") {
        return;
    }
    let scratch = Scratch::new("ufs-judges");
    let (tree, image, copy) = (scratch.join("tree"), scratch.join("image"), scratch.join("copy"));
    populate(Path::new(&tree));
    // One process per file: other tests cover the many small ones.
    fs::remove_dir_all(format!("{tree}/many")).expect("rm");
    fs::create_dir(format!("{tree}/many")).expect("mkdir");
    for (format, order) in [("ufs1", None), ("ufs1", Some("--big-endian")), ("ufs2", None)] {
        let what = format!("{format} {order:?}");
        let mut args = vec!["build", &tree, "-o", &image, "--force", "--format", format];
        args.extend(["-b", "8192", "-f", "1024"]);
        args.extend(order);
        text(&seekless(&args));
        let listing = run("fls", &["-r", "-p", "-F", &image]);
        let mut regular = 0;
        for line in listing.lines().filter(|line| line.starts_with("r/r ")) {
            let (ino, path) = line[4..].split_once(":\t").expect("an entry");
            let out = fs::File::create(&copy).expect("copy");
            let done = Command::new("icat").args([&image, ino]).stdout(Stdio::from(out)).status();
            assert!(done.expect("icat").success(), "{what}: {path}");
            run("cmp", &[&copy, &format!("{tree}/{path}")]);
            regular += 1;
            if order.is_none() && !path.contains("nnnn") {
                let inside = format!("(loop0)/{path}");
                run("grub-fstest", &[&image, "cmp", &inside, &format!("{tree}/{path}")]);
            }
        }
        assert!(regular > 35, "{what}: {regular} files in {listing}");
        let report = run("fsstat", &[&image]);
        assert!(report.contains("UFS"), "{report}");
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes_and_traces_move_them() {
    let scratch = Scratch::new("ufs-twice");
    let (tree, trace) = (scratch.join("tree"), scratch.join("trace"));
    populate(Path::new(&tree));
    let images = ["a", "b", "hot"].map(|name| scratch.join(name));
    let options = ["--format", "ufs2", "-b", "8192", "-f", "1024"];
    for image in &images[..2] {
        text(&seekless(&[&["build", &tree, "-o", image][..], &options].concat()));
    }
    run("cmp", &[&images[0], &images[1]]);
    let touched: Vec<String> =
        (0..60).map(|n| format!("/many/a name of some length {}", n * 23 % 1500)).collect();
    fs::write(&trace, touched.join("\n") + "\n").expect("trace");
    let imported = scratch.join("imported");
    text(&seekless(&["trace", "import", "--paths", &trace, "-o", &imported]));
    let hot = [&["build", &tree, "-o", &images[2], "--trace", &imported][..], &options].concat();
    text(&seekless(&hot));
    same("with a trace", &manifest(&tree, &[]), &manifest(&images[2], &[]));
    assert_eq!(account(&images[2], "with a trace", 8), 0);
    let spread = |image: &str| -> u64 {
        let device = FileDevice::open(Path::new(image)).expect("image");
        let image = FfsImage::open(Arc::new(device), OpenOptions::default()).expect("image");
        let place = |path: &String| {
            let ino = seekless_fs::inspect::resolve(&image, path.as_bytes()).expect("there");
            image.block_map(ino).expect("map").runs[0].extent.start.get()
        };
        let places: Vec<u64> = touched.iter().map(place).collect();
        places.iter().max().expect("some") - places.iter().min().expect("some")
    };
    let (cold, warm) = (spread(&images[0]), spread(&images[2]));
    // Sixty fragments of one byte each, in blocks of eight.
    assert!(warm <= 64 && cold > 10 * warm, "{cold} without, {warm} with a trace");
}

#[test]
fn sizes_and_refusals() {
    let scratch = Scratch::new("ufs-sizes");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..300 {
        fs::write(format!("{tree}/{n}"), noise(n * 50, 9)).expect("write");
    }
    let build = |more: &[&str]| {
        let args = [&["build", &tree, "-o", &image, "--force", "--format", "ufs2"][..], more];
        command(&args.concat()).output().expect("seekless")
    };
    let length = || fs::metadata(&image).expect("image").len();
    text(&build(&[]));
    let fitted = length();
    assert!(fitted < 6 << 20, "{fitted}");
    text(&build(&["--size", "64M"]));
    assert_eq!(length(), 64 << 20);
    same("64M", &manifest(&tree, &[]), &manifest(&image, &[]));
    let (code, message) = failure(&build(&["--size", "2M"]));
    assert!(code == 5 && message.contains("at least"), "{code} {message}");
    // The size in the message is sufficient.
    let least = message.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max();
    text(&build(&["--size", &least.expect("a size").to_string()]));
    for wrong in [
        &["--features", "extent"][..],
        &["--inode-size", "256"],
        &["-m", "5.5"],
        &["-f", "3000"],
        &["-b", "1024"],
    ] {
        let (code, message) = failure(&build(wrong));
        assert_eq!(code, 2, "{wrong:?}: {message}");
    }
    let ext = ["build", &tree, "-o", &image, "--force", "--soft-updates"];
    let (code, message) = failure(&seekless(&ext));
    assert!(code == 2 && message.contains("--format ufs1"), "{code} {message}");
}

#[test]
fn a_killed_build_leaves_the_old_image_or_none() {
    let scratch = Scratch::new("ufs-kill");
    let (tree, whole, image) = (scratch.join("tree"), scratch.join("whole"), scratch.join("image"));
    populate(Path::new(&tree));
    let args = ["build", &tree, "--format", "ufs2", "-o"];
    let started = Instant::now();
    text(&seekless(&[&args[..], &[&whole]].concat()));
    let usual = started.elapsed();
    let mut killed = 0;
    for round in 0..12u32 {
        let old = round % 2 == 1;
        if old {
            fs::write(&image, b"old").expect("write");
        }
        let force: &[&str] = if old { &["--force"] } else { &[] };
        let args = [&args[..], &[&image], force].concat();
        let mut child = command(&args).stderr(Stdio::null()).spawn().expect("seekless");
        std::thread::sleep(usual * round / 11);
        child.kill().expect("kill");
        let done = child.wait().expect("wait").success();
        killed += u32::from(!done);
        match fs::read(&image) {
            Err(_) => assert!(!old && !done, "round {round}: the file is gone"),
            Ok(bytes) if bytes == b"old" => assert!(old && !done, "round {round}"),
            Ok(_) => drop(run("cmp", &[&whole, &image])),
        }
        let _ = fs::remove_file(&image);
    }
    assert!(killed > 2, "only {killed} builds were killed");
}

#[test]
fn a_full_disk_is_named() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("ufs-full");
    let (tree, to) = (scratch.join("tree"), scratch.join("to"));
    populate(Path::new(&tree));
    fs::create_dir(&to).expect("mkdir");
    run("mount", &["-t", "tmpfs", "-o", "size=2M", "tmpfs", &to]);
    let image = format!("{to}/image");
    let built = seekless(&["build", &tree, "-o", &image, "--format", "ufs2"]);
    let left = fs::read_dir(&to).expect("list").count();
    unmount(&to).expect("umount");
    let (code, message) = failure(&built);
    assert!(code == 5 && message.contains("No space left"), "{code} {message}");
    assert_eq!(left, 0);
}
