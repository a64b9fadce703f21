//! Contents cloned into images (`--reflink`), on volumes of XFS and Btrfs: the same bytes as
//! copies, blocks that are really shared, and contents that stay when the source goes.

use crate::Device;
use crate::judges::{
    Mounted, Scratch, can_mount, check, failure, manifest, ready, run, same, seekless, text,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file systems that share blocks, with the commands that make them.
const KINDS: &[(&str, &[&str])] =
    &[("xfs", &["mkfs.xfs", "-q", "-m", "reflink=1"]), ("btrfs", &["mkfs.btrfs", "-q"])];

/// A mounted volume of 1 GiB, nearly all of it a hole; `None` if it cannot be made.
fn volume(scratch: &Scratch, kind: &str, make: &[&str]) -> Option<Mounted> {
    if !can_mount() || !ready(make[0]) || !ready("filefrag") {
        return None;
    }
    let image = scratch.join(kind);
    File::create(&image).expect("image").set_len(1 << 30).expect("length");
    run(make[0], &[&make[1..], &[image.as_str()]].concat());
    Some(Mounted::of_kind(scratch, &image, kind, "rw"))
}

fn on_each(name: &str, judge: impl Fn(&Scratch, &Path)) {
    for (kind, make) in KINDS {
        let scratch = Scratch::new(&format!("reflink-{name}-{kind}"));
        let Some(volume) = volume(&scratch, kind, make) else { return };
        judge(&scratch, volume.path());
    }
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().expect("path").into()
}

/// Bytes that differ in each block of 512 and from file to file.
fn bytes(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(4)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

const LENGTHS: &[usize] = &[
    1,
    511,
    4095,
    4096,
    4097,
    20_000,
    65_535,
    65_536,
    65_537,
    69_632,
    70_000,
    131_072,
    300_001,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    5_000_000,
];

/// Files with lengths around blocks, holes, unwritten blocks, hard links and long directories.
fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("many")).expect("mkdir");
    for (n, &len) in LENGTHS.iter().enumerate() {
        fs::write(tree.join(format!("length-{len}")), bytes(n as u32, len)).expect("write");
    }
    for n in 0..40 {
        let (name, len) = (format!("many/{n:03}"), 66_000 + n as usize * 3_111);
        fs::write(tree.join(name), bytes(100 + n, len)).expect("write");
    }
    for n in 0..600 {
        let name = format!("many/a name that makes the directory long, number {n}");
        fs::write(tree.join(name), n.to_string()).expect("write");
    }
    fs::hard_link(tree.join("length-1048577"), tree.join("linked")).expect("link");
    // Data at both ends of a hole, none of them at a multiple of blocks, and a hole at the end.
    let sparse = File::create(tree.join("sparse")).expect("create");
    sparse.write_all_at(&bytes(1000, 200_000), 0).expect("write");
    sparse.write_all_at(&bytes(1001, 200_000), 2_000_001).expect("write");
    sparse.set_len(4_000_000).expect("length");
    // Unwritten blocks read as zeros.
    let reserved = path(tree, "reserved");
    run("fallocate", &["-l", "600000", &reserved]);
    let reserved = File::options().write(true).open(reserved).expect("open");
    reserved.write_all_at(&bytes(1002, 100_000), 250_000).expect("write");
    // Blocks shared within the source.
    run("cp", &["--reflink=always", &path(tree, "length-5000000"), &path(tree, "copy")]);
    // An image's UUID follows from the times, and lengths of directories from the UUID. Blocks of
    // 1 KiB lie at those of the host by chance: the same ones each time.
    run("find", &[tree.to_str().expect("path"), "-exec", "touch", "-d", "@1000000000", "{}", "+"]);
}

/// Writes garbage behind the end of a file, in its last block, as other systems may leave it.
fn dirty_slack(image: &str, file: &str) {
    let (bytes, contents) = (fs::read(image).expect("image"), fs::read(file).expect("file"));
    let last = &contents[contents.len() - 512..];
    let end = bytes.windows(512).position(|window| window == last).expect("the file's end") + 512;
    assert!(bytes[end..end + 50].iter().all(|&byte| byte == 0), "the slack of the file");
    let image = File::options().write(true).open(image).expect("open");
    image.write_all_at(&[0xEE; 50], end as u64).expect("write");
}

/// The bytes of an image that lie in blocks shared with other files.
fn shared(image: &str) -> u64 {
    run("sync", &["-f", image]);
    let told = run("filefrag", &["-b1", "-v", image]);
    let length = |line: &str| -> u64 {
        let fields: Vec<&str> = line.split(':').collect();
        fields[3].trim().parse().unwrap_or_else(|_| panic!("{line}"))
    };
    told.lines().filter(|line| line.contains("shared")).map(length).sum()
}

/// Builds an image with clones and one with copies, which must be equal; returns their paths.
fn build(dir: &Path, tree: &str, options: &[&str]) -> (String, String) {
    let [cloned, copied] = ["cloned.img", "copied.img"].map(|name| path(dir, name));
    for (image, mode) in [(&cloned, "always"), (&copied, "never")] {
        let args = ["build", tree, "--force", "--reflink", mode, "-o", image];
        text(&seekless(&[&args[..], options].concat()));
    }
    run("cmp", &[&cloned, &copied]);
    (cloned, copied)
}

#[test]
fn a_cloned_image_equals_a_copied_one() {
    on_each("build", |_, dir| {
        let tree = path(dir, "tree");
        fill(Path::new(&tree));
        // Of small blocks, those that lie at blocks of the host by chance.
        for (options, is_ext, least) in [
            (&[][..], true, 10 << 20),
            (&["-b", "1024"], true, 64 << 10),
            (&["-b", "2048"], true, 64 << 10),
            (&["--format", "ext2", "--free", "40%"], true, 10 << 20),
            (&["--size", "600M", "-b", "1024"], true, 64 << 10),
            (&["--disk"], false, 10 << 20),
            (&["--verity"], true, 10 << 20),
            (&["--format", "ufs2"], false, 10 << 20),
            (&["--format", "ufs1", "-b", "8K", "-f", "1K"], false, 10 << 20),
            (&["--format", "fat32", "--drop", "all"], false, 0),
            (&["--format", "fat32", "--drop", "all", "--sectors-per-cluster", "8"], false, 0),
        ] {
            let (cloned, copied) = build(dir, &tree, options);
            if is_ext && options != ["--verity"] {
                check(&cloned);
            }
            assert_eq!(shared(&copied), 0, "{options:?}");
            let shared = shared(&cloned);
            assert!(shared >= least, "{options:?}: {shared} bytes are shared");
        }
    });
}

#[test]
fn contents_stay_when_the_source_is_overwritten_and_removed() {
    on_each("source", |_, dir| {
        let tree = path(dir, "tree");
        fill(Path::new(&tree));
        let (cloned, copied) = build(dir, &tree, &[]);
        for entry in fs::read_dir(&tree).expect("list").flatten() {
            if entry.file_type().expect("kind").is_file() {
                let file = File::options().write(true).open(entry.path()).expect("open");
                let len = file.metadata().expect("length").len() as usize;
                file.write_all_at(&vec![0xAA; len], 0).expect("overwrite");
                file.sync_all().expect("sync");
            }
        }
        fs::write("/proc/sys/vm/drop_caches", "1").expect("caches");
        run("cmp", &[&cloned, &copied]);
        fs::remove_dir_all(&tree).expect("remove");
        run("sync", &["-f", &cloned]);
        fs::write("/proc/sys/vm/drop_caches", "1").expect("caches");
        run("cmp", &[&cloned, &copied]);
        // And the other way round: changing the image leaves a source as it was.
        fill(Path::new(&tree));
        let (cloned, _) = build(dir, &tree, &[]);
        let len = fs::metadata(&cloned).expect("image").len() as usize;
        let mut image = File::options().write(true).open(&cloned).expect("open");
        image.write_all(&vec![0x55; len]).expect("overwrite");
        image.sync_all().expect("sync");
        for (n, &len) in LENGTHS.iter().enumerate() {
            let held = fs::read(Path::new(&tree).join(format!("length-{len}"))).expect("read");
            assert!(held == bytes(n as u32, len), "{len}");
        }
    });
}

/// Contents that were just written are on no disk yet.
#[test]
fn dirty_contents_are_cloned() {
    on_each("dirty", |_, dir| {
        let tree = dir.join("tree");
        fs::create_dir(&tree).expect("mkdir");
        for n in 0..20 {
            fs::write(tree.join(n.to_string()), bytes(n, 1_000_000)).expect("write");
        }
        build(dir, tree.to_str().expect("path"), &[]);
    });
}

/// Whatever can be said before contents are read is said then; in any case no image appears.
#[test]
fn what_cannot_be_cloned_is_said() {
    on_each("refused", |scratch, dir| {
        let (tree, image) = (path(dir, "tree"), path(dir, "image"));
        fs::create_dir(&tree).expect("mkdir");
        fs::write(path(dir, "tree/file"), bytes(1, 200_000)).expect("write");
        let elsewhere = scratch.join("elsewhere");
        fs::create_dir_all(&elsewhere).expect("mkdir");
        fs::write(format!("{elsewhere}/file"), bytes(1, 200_000)).expect("write");
        let archive = path(dir, "tree.tar");
        run("tar", &["-C", &tree, "-cf", &archive, "."]);
        let device = Device::new(scratch, "device", 16 << 20);
        // A block that is no multiple of the host's in front of the data.
        let unaligned =
            ["--format", "fat16", "--size", "16M", "--drop", "all", "--reserved-sectors", "3"];
        let fails = |source: &str, output: &str, options: &[&str], why: &str| {
            let args = ["build", source, "-o", output, "--reflink", "always"];
            let (code, message) = failure(&seekless(&[&args[..], options].concat()));
            let is_said = message.contains("--reflink always: nothing can be cloned: ");
            assert!(code == 4 && is_said && message.contains(why), "{message}");
            assert!(output != image || !Path::new(&image).exists(), "{message}");
        };
        fails(&elsewhere, &image, &[], "different file systems");
        fails(&archive, &image, &[], "not files of this system");
        fails(&tree, &image, &unaligned, "multiples of 4096 bytes");
        fails(&tree, &scratch.join("image"), &[], "Btrfs can, and XFS");
        fails(&tree, &path(dir, "image.qcow2"), &[], "qemu-img");
        fails(&tree, device.path(), &[], "block device");
        fails(&tree, "-", &[], "standard output");
        // Without it, all of that is copied.
        for source in [&elsewhere, &archive] {
            text(&seekless(&["build", source, "-o", &image, "--force"]));
            assert_eq!(shared(&image), 0, "{source}");
        }
        // Nothing is long enough to be cloned: that is no failure.
        fs::write(path(dir, "tree/file"), "short").expect("write");
        text(&seekless(&["build", &tree, "-o", &image, "--force", "--reflink", "always"]));
    });
}

/// A trace that reads some files of the tree of [`fill`].
fn trace(dir: &Path) -> String {
    let mut lines = "{\"seekless_trace\":1}\n".to_string();
    for name in ["length-5000000", "sparse", "length-70000", "many/011", "reserved", "many/007"] {
        lines += &format!("{{\"op\":\"read\",\"path\":\"/{name}\"}}\n");
    }
    let trace = path(dir, "trace");
    fs::write(&trace, lines).expect("trace");
    trace
}

/// Rearranges an image with clones and with copies, which must be equal.
fn optimize(dir: &Path, image: &str, options: &[&str], least: u64) -> String {
    let trace = trace(dir);
    let [cloned, copied] = ["fast.img", "fast-copied.img"].map(|name| path(dir, name));
    for (new, mode) in [(&cloned, "always"), (&copied, "never")] {
        let args = ["optimize", image, "--trace", &trace, "-o", new, "--force", "--reflink", mode];
        text(&seekless(&[&args[..], options].concat()));
    }
    run("cmp", &[&cloned, &copied]);
    let shared = shared(&cloned);
    assert!(shared >= least, "{options:?}: {shared} bytes are shared");
    cloned
}

#[test]
fn an_image_is_rearranged_by_clones() {
    on_each("optimize", |_, dir| {
        let (tree, image) = (path(dir, "tree"), path(dir, "image"));
        fill(Path::new(&tree));
        for (options, rebuild, is_ext, least) in [
            (&[][..], &[][..], true, 10 << 20),
            (&["-b", "1024"], &[], true, 0),
            (&[], &["--inode-size", "512"], true, 10 << 20),
            (&["--disk"], &["--partition", "2"], false, 10 << 20),
            (&["--format", "fat32", "--drop", "all", "--sectors-per-cluster", "8"], &[], false, 0),
        ] {
            let args = ["build", &tree, "-o", &image, "--force", "--reflink", "never"];
            text(&seekless(&[&args[..], options].concat()));
            dirty_slack(&image, &format!("{tree}/many/039"));
            let new = optimize(dir, &image, rebuild, least);
            if is_ext {
                check(&new);
            }
            if options != ["--disk"] {
                same("the new image", &manifest(&new, &[]), &manifest(&image, &[]));
            }
            // The new image stays when the old one goes.
            let held = fs::read(&new).expect("image");
            let old = File::options().write(true).open(&image).expect("open");
            old.write_all_at(&vec![0xAA; 8 << 20], 0).expect("overwrite");
            drop(old);
            fs::remove_file(&image).expect("remove");
            run("sync", &["-f", &new]);
            fs::write("/proc/sys/vm/drop_caches", "1").expect("caches");
            assert!(fs::read(&new).expect("image") == held, "{options:?}");
        }
    });
}

#[test]
fn an_aged_copy_is_a_clone_that_changes() {
    on_each("age", |_, dir| {
        let (tree, image) = (path(dir, "tree"), path(dir, "image"));
        fill(Path::new(&tree));
        text(&seekless(&["build", &tree, "-o", &image, "--size", "64M"]));
        let before = fs::read(&image).expect("image");
        let [cloned, copied] = ["aged.img", "aged-copied.img"].map(|name| path(dir, name));
        for (new, mode) in [(&cloned, "always"), (&copied, "never")] {
            text(&seekless(&["age", &image, "-o", new, "--ops", "300", "--reflink", mode]));
        }
        run("cmp", &[&cloned, &copied]);
        assert!(shared(&cloned) >= 10 << 20);
        assert!(fs::read(&image).expect("image") == before, "the image has changed");
        check(&cloned);
    });
}

#[test]
fn files_are_cloned_out_of_an_image() {
    on_each("cp", |scratch, dir| {
        let (tree, image) = (path(dir, "tree"), path(dir, "image"));
        fill(Path::new(&tree));
        let wanted = manifest(&tree, &[]);
        for (options, least) in [
            (&[][..], 10 << 20),
            (&["-b", "1024"], 0),
            (&["--format", "ufs2"], 10 << 20),
            (&["--disk"], 10 << 20),
        ] {
            let args = ["build", &tree, "-o", &image, "--force", "--reflink", "never"];
            text(&seekless(&[&args[..], options].concat()));
            let out = path(dir, "out");
            let place: &[&str] = if options == ["--disk"] { &["--partition", "2"] } else { &[] };
            let args = ["cp", "-r", &image, "/", &out, "--reflink", "always"];
            fs::create_dir(&out).expect("mkdir");
            text(&seekless(&[&args[..], place].concat()));
            let shared: u64 =
                LENGTHS.iter().map(|len| shared(&format!("{out}/length-{len}"))).sum();
            assert!(shared >= least / 4, "{options:?}: {shared}");
            // The files stay when the image goes.
            fs::write(&image, vec![0xAA; 40 << 20]).expect("overwrite");
            fs::remove_file(&image).expect("remove");
            run("sync", &["-f", &out]);
            fs::write("/proc/sys/vm/drop_caches", "1").expect("caches");
            same("the files", &manifest(&out, &[]), &wanted);
            fs::remove_dir_all(&out).expect("remove");
        }
        text(&seekless(&["build", &tree, "-o", &image]));
        let away = scratch.join("away");
        let args = ["cp", &image, "/length-300001", &away, "--reflink", "always"];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 4 && message.contains("nothing can be cloned"), "{message}");
        text(&seekless(&args[..4]));
        assert!(fs::read(&away).expect("file").len() == 300_001);
    });
}
