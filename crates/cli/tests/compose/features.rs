//! Disabled features: features that depend on them are left out too, with a message.

use crate::judges::{
    Mounted, Scratch, can_mount, failure, header, manifest, run, same, seekless, text,
};
use std::fs;

/// Features that may be disabled, each with the features that are left out with it.
const REMOVABLE: &[(&str, &str)] = &[
    ("has_journal", "orphan_file"),
    ("ext_attr", ""),
    ("resize_inode", ""),
    ("dir_index", ""),
    ("orphan_file", ""),
    ("extent", "64bit"),
    ("64bit", ""),
    ("flex_bg", ""),
    ("metadata_csum_seed", ""),
    ("sparse_super", "resize_inode"),
    ("large_file", "resize_inode"),
    ("huge_file", ""),
    ("dir_nlink", ""),
    ("extra_isize", ""),
    ("metadata_csum", "metadata_csum_seed"),
];

#[test]
fn every_feature_can_be_left_out() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("features");
    let tree = scratch.join("tree");
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    fs::write(format!("{tree}/dir/file"), vec![7; 300_000]).expect("write");
    for (feature, with) in REMOVABLE {
        let image = scratch.join(feature);
        let list = format!("^{feature}");
        let built = seekless(&["build", &tree, "-o", &image, "--size", "64M", "--features", &list]);
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        text(&built);
        let wanted = format!("{with} is disabled too: it depends on {feature}");
        assert_eq!(said.contains(&wanted), !with.is_empty(), "{feature}: {said}");
        run("e2fsck", &["-fn", &image]);
        let header = header(&image);
        let has = header.iter().find(|(name, _)| name == "Filesystem features").expect("features");
        let has: Vec<&str> = has.1.split_whitespace().collect();
        assert!(!has.contains(feature), "{feature}: {has:?}");
        assert!(with.is_empty() || !has.contains(with), "{feature}: {has:?}");
        let mounted = Mounted::new(&scratch, &image, "ro");
        assert_eq!(fs::read(mounted.path().join("dir/file")).expect("read").len(), 300_000);
    }
}

/// The example of `build --help`.
#[test]
fn an_image_without_its_journal() {
    let scratch = Scratch::new("no-journal");
    let (tree, old, new) = (scratch.join("tree"), scratch.join("old.img"), scratch.join("new.img"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), b"contents").expect("write");
    text(&seekless(&["build", &tree, "-o", &old]));
    let args = ["build", &old, "-o", &new, "--features", "^has_journal", "--inode-size", "512"];
    text(&seekless(&args));
    run("e2fsck", &["-fn", &new]);
    assert_eq!(text(&seekless(&["cat", &new, "/file"])), "contents");
}

#[test]
fn what_is_asked_for_and_made_impossible_is_refused() {
    let scratch = Scratch::new("contradiction");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir(&tree).expect("mkdir");
    let build = |list: &str| seekless(&["build", &tree, "-o", &image, "--features", list]);
    let (code, message) = failure(&build("^has_journal,orphan_file"));
    assert!(code == 2 && message.contains("orphan_file needs has_journal"), "{message}");
    // Attributes too large for the inode need a block, and the block needs the feature.
    let file = format!("{tree}/file");
    fs::write(&file, b"").expect("write");
    let value = vec![7; 800];
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&file, "user.long", &value, flags).expect("setxattr");
    let (code, message) = failure(&build("^ext_attr"));
    assert!(code == 5 && message.contains("ext_attr") && message.contains("file"), "{message}");
    text(&build(""));
}

/// Values that fit in a block one by one, but not together: as by the kernel, some have inodes of
/// their own. Those of symbolic links too, which e2fsck must not take for links with blocks.
#[test]
fn many_values_of_attributes() {
    let scratch = Scratch::new("features-values");
    let (tree, old, value) = (scratch.join("tree"), scratch.join("old"), scratch.join("value"));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/file"), "contents").expect("write");
    let options = ["-q", "-t", "ext4", "-b", "4096", "-O", "ea_inode", "-d", &tree, &old, "16M"];
    run("mke2fs", &options);
    let mut commands =
        format!("symlink one x\nsymlink fast {:a>59}\nsymlink slow {:a>60}\n", 'b', 'b');
    for n in 0..20 {
        fs::write(format!("{value}-{n}"), vec![n; 900]).expect("write");
        commands += &format!("ea_set -f {value}-{n} /file trusted.{n}\n");
    }
    // One alone: more would have a block in any case.
    for name in ["one", "fast", "slow"] {
        commands += &format!("ea_set -f {value}-7 /{name} trusted.alone\n");
    }
    let list = scratch.join("commands");
    fs::write(&list, commands).expect("write");
    run("debugfs", &["-w", "-f", &list, &old]);
    let listing = manifest(&old, &[]);
    assert_eq!(listing.matches("trusted.").count(), 23, "{listing}");
    for size in ["1024", "4096"] {
        let new = scratch.join(size);
        text(&seekless(&["build", &old, "-o", &new, "-b", size, "-O", "ea_inode"]));
        run("e2fsck", &["-fn", &new]);
        same("attributes", &listing, &manifest(&new, &[]));
        if can_mount() {
            let mounted = Mounted::new(&scratch, &new, "ro");
            same("attributes by the kernel", &listing, &manifest(mounted.text(), &[]));
        }
    }
    let args = ["build", &old, "-o", &scratch.join("without"), "-O", "^ea_inode"];
    let (code, said) = failure(&seekless(&args));
    assert!(code == 5 && said.contains("the ea_inode feature allows larger ones"), "{said}");
}
