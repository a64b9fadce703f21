//! Flags of files in a source image, and files sealed by fs-verity, judged by debugfs and e2fsck.

use super::judges::{Scratch, check, failure, run, seekless, text};
use std::fs;

/// Flags besides `EXT4_EXTENTS_FL`, by the name of the file.
const FLAGS: [(&str, u32); 11] = [
    ("immutable", 0x10),
    ("append", 0x20),
    ("nodump", 0x40),
    ("noatime", 0x80),
    ("journalled", 0x4000),
    ("dax", 0x200_0000),
    ("dir", 0x1_0000),
    // The ext4 driver does not act on these, but lsattr shows them.
    ("secure", 0x1),
    ("undeletable", 0x2),
    ("compressed", 0x4),
    ("untailed", 0x8000),
];

/// Length of the sealed file, offset of its hash tree, and end of the stored data.
const SIZE: usize = 100_000;
const SEAL: usize = 131_072;
const END: usize = SEAL + 69_632;

fn debugfs(image: &str, command: &str) -> String {
    run("debugfs", &["-w", "-R", command, image])
}

fn flags_of(image: &str, path: &str) -> u32 {
    let said = debugfs(image, &format!("stat {path}"));
    let hex = said.split("Flags: 0x").nth(1).expect("flags").split_whitespace().next();
    u32::from_str_radix(hex.expect("a number"), 16).expect("hexadecimal")
}

/// Stored data of a sealed file: its contents, zeros up to a multiple of 64 KiB, hashes.
fn stored() -> Vec<u8> {
    let mut random = 7u32;
    let mut bytes: Vec<u8> = (0..END)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8 | 1
        })
        .collect();
    bytes[SIZE..SEAL].fill(0);
    bytes
}

/// An ext4 image with such files, made by mke2fs and debugfs: kernels without fs-verity cannot seal
/// files.
fn source(scratch: &Scratch) -> String {
    let (tree, image, sealed) = (scratch.join("tree"), scratch.join("old"), scratch.join("stored"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    for (name, _) in FLAGS.iter().filter(|(name, _)| *name != "dir") {
        fs::write(format!("{tree}/{name}"), name).expect("write");
    }
    fs::write(&sealed, stored()).expect("write");
    run(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity", "-d", &tree, &image, "64M"],
    );
    debugfs(&image, &format!("write {sealed} sealed"));
    debugfs(&image, &format!("sif sealed size {SIZE}"));
    debugfs(&image, "sif sealed flags 0x180000");
    for (name, flags) in FLAGS {
        debugfs(&image, &format!("sif {name} flags {:#x}", 0x8_0000 | flags));
    }
    check(&image);
    image
}

/// All stored data of the sealed file, with its hashes.
fn stored_in(scratch: &Scratch, image: &str) -> Vec<u8> {
    let (copy, out) = (scratch.join("copy"), scratch.join("out"));
    run("cp", &[image, &copy]);
    debugfs(&copy, "sif sealed flags 0x80000");
    debugfs(&copy, &format!("sif sealed size {END}"));
    debugfs(&copy, &format!("dump sealed {out}"));
    fs::read(&out).expect("dumped")
}

fn judge(scratch: &Scratch, image: &str) {
    check(image);
    text(&seekless(&["check", image]));
    for (name, flags) in FLAGS {
        assert_eq!(flags_of(image, name) & !0x8_1000, flags, "{name} in {image}");
    }
    assert_eq!(flags_of(image, "sealed"), 0x18_0000);
    assert!(debugfs(image, "stats").contains("verity"));
    assert!(stored_in(scratch, image) == stored(), "{image}: other bytes");
    let contents = seekless(&["cat", image, "/sealed"]).stdout;
    assert!(contents == stored()[..SIZE], "{image}: other contents");
}

#[test]
fn flags_and_seals_go_into_an_image_of_an_image() {
    let scratch = Scratch::new("flags");
    let old = source(&scratch);
    let new = scratch.join("new");
    text(&seekless(&["build", &old, "-o", &new]));
    judge(&scratch, &new);
    // In a layer over another source, and with files small enough for inodes.
    let empty = scratch.join("empty");
    fs::create_dir(&empty).expect("mkdir");
    let layered = scratch.join("layered");
    let args = ["build", &empty, &old, "-o", &layered, "--features", "inline_data"];
    text(&seekless(&args));
    check(&layered);
    assert!(stored_in(&scratch, &layered) == stored(), "other bytes");
    // Optimized into a new file system.
    let (trace, other) = (scratch.join("trace"), scratch.join("other"));
    fs::write(scratch.join("paths"), "/sealed\n/append\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
    let args = ["optimize", &old, "--trace", &trace, "--inode-size", "512", "-o", &other];
    text(&seekless(&args));
    judge(&scratch, &other);
}

#[test]
fn flags_that_an_image_cannot_have_are_said() {
    let scratch = Scratch::new("flags-lost");
    let old = source(&scratch);
    let new = scratch.join("new");
    let warned = |args: &[&str]| {
        let output = seekless(&[&["build", &old, "--force", "-o", &new], args].concat());
        text(&output);
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    for args in [&["--features", "^verity"][..], &["--compat", "rhel7"], &["--format", "ext2"]] {
        let said = warned(args);
        assert!(said.contains("1 file with flags that the image cannot have: verity"), "{said}");
        check(&new);
        assert_eq!(flags_of(&new, "sealed") & 0x10_0000, 0);
        assert_eq!(flags_of(&new, "immutable") & 0x10, 0x10);
    }
    let said = warned(&["--format", "fat32", "--drop", "all"]);
    assert!(said.contains("12 files with flags") && said.contains("immutable, append"), "{said}");
    // UFS supports three of the flags, and they survive the way back to ext4.
    let said = warned(&["--format", "ufs2"]);
    assert!(said.contains("9 files with flags"), "{said}");
    let back = scratch.join("back");
    text(&seekless(&["build", &new, "-o", &back]));
    for (name, flags) in &FLAGS[..3] {
        assert_eq!(flags_of(&back, name) & 0xFF, *flags, "{name}");
    }
    // The descriptor is located from the end of a block.
    let args = ["build", &old, "--force", "-o", &new, "-b", "1024"];
    let (code, said) = failure(&seekless(&args));
    assert!(code == 4 && said.contains("sealed by fs-verity on blocks of 4096 bytes"), "{said}");
}

/// Properties that no built image supports: a warning, or a refusal if contents would be lost.
#[test]
fn projects_case_and_keys() {
    let scratch = Scratch::new("flags-features");
    let (tree, old, new) = (scratch.join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    fs::write(format!("{tree}/file"), "contents").expect("write");
    let features = "encrypt,casefold,project,quota";
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", features, "-d", &tree, &old, "32M"]);
    debugfs(&old, "sif dir flags 0x40080000");
    debugfs(&old, "sif file projid 77");
    let output = seekless(&["build", &old, "-o", &new]);
    text(&output);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("2 files with flags") && said.contains(": project, casefold"), "{said}");
    check(&new);
    assert_eq!(flags_of(&new, "dir"), 0x8_0000);
    assert_eq!(flags_of(&new, "file"), 0x8_0000);
    debugfs(&old, "sif file flags 0x80800");
    let (code, said) = failure(&seekless(&["build", &old, "--force", "-o", &new]));
    assert!(code == 4 && said.contains("/file: is encrypted"), "{said}");
    // It can be listed all the same.
    assert!(text(&seekless(&["manifest", &old])).contains("./file "));
}
