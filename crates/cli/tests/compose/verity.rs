//! Hash trees of dm-verity, judged by veritysetup: it verifies them, and makes the same bytes from
//! the same salt and UUID.

use crate::judges::{Scratch, check, failure, ready, run, seekless, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..40u32 {
        let bytes: Vec<u8> = (0..n * 5000).flat_map(u32::to_le_bytes).collect();
        fs::write(format!("{tree}/{n}"), bytes).expect("write");
    }
    tree
}

/// JSON output of a build.
fn built(args: &[&str]) -> serde_json::Value {
    let said = text(&seekless(&[&["build", "--json", "--force"], args].concat()));
    serde_json::from_str(&said).expect("JSON")
}

/// Salt and UUID in the superblock of a hash tree.
fn marks(tree: &[u8]) -> (String, String) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let uuid = hex(&tree[16..32]);
    let parts = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
    (hex(&tree[88..120]), parts.join("-"))
}

#[test]
fn veritysetup_verifies_a_tree_and_makes_the_same() {
    if !ready("veritysetup") {
        return;
    }
    let scratch = Scratch::new("verity");
    let source = tree(&scratch);
    let (image, apart) = (scratch.join("image"), scratch.join("apart"));
    let (hash, root_file, judge) =
        (scratch.join("hash"), scratch.join("root"), scratch.join("judge"));
    for options in [
        &[][..],
        &["-b", "1024"],
        &["--size", "100M"],
        &["--format", "ufs2"],
        &["--format", "fat32", "--drop", "all"],
        &["--format", "fat12", "--drop", "all", "--size", "31M"],
    ] {
        let told = built(&[&[&source, "-o", &image, "--verity"], options].concat());
        let root = told["root_hash"].as_str().expect("root hash").to_string();
        let offset = told["hash_offset"].as_u64().expect("offset").to_string();
        let at = format!("--hash-offset={offset}");
        run("veritysetup", &["verify", &image, &image, &root, &at]);
        if options.is_empty() {
            check(&image);
        }

        let args = [&source, "-o", &apart, "--verity-tree", &hash, "--root-hash-file", &root_file];
        let told = built(&[&args[..], options].concat());
        assert_eq!(told["root_hash"], root.as_str(), "{options:?}");
        assert_eq!(fs::read_to_string(&root_file).expect("root hash"), root);
        run("veritysetup", &["verify", &apart, &hash, &root]);
        // Appended to the image, the tree is the same, and so is the image in front of it.
        let (whole, data) = (fs::read(&image).expect("image"), fs::read(&apart).expect("image"));
        let tree = fs::read(&hash).expect("tree");
        let offset: usize = offset.parse().expect("number");
        assert!(whole[..data.len()] == data && whole[offset..] == tree, "{options:?}");

        let (salt, uuid) = marks(&tree);
        let _ = fs::remove_file(&judge);
        let size = u32::from_le_bytes(tree[64..68].try_into().expect("four bytes"));
        let size = format!("--data-block-size={size}");
        let (salt, uuid) = (format!("--salt={salt}"), format!("--uuid={uuid}"));
        let said = run("veritysetup", &["format", &apart, &judge, &salt, &uuid, &size]);
        assert!(said.contains(&root), "{options:?}: {said}");
        run("cmp", &[&hash, &judge]);
    }
}

#[test]
fn a_byte_that_changes_is_found() {
    if !ready("veritysetup") {
        return;
    }
    let scratch = Scratch::new("verity-changed");
    let source = tree(&scratch);
    let image = scratch.join("image");
    let told = built(&[&source, "-o", &image, "--verity"]);
    let (root, offset) =
        (told["root_hash"].as_str().expect("root"), told["hash_offset"].as_u64().expect("offset"));
    let at = format!("--hash-offset={offset}");
    let file = File::options().write(true).open(&image).expect("open");
    file.write_all_at(&[0x5A], offset - 1).expect("write");
    let found = Command::new("veritysetup").args(["verify", &image, &image, root, &at]).output();
    assert!(!found.expect("veritysetup").status.success());
    // The same image gives the same tree; another UUID makes another image.
    let again = built(&[&source, "-o", &image, "--verity"]);
    assert_eq!(again["root_hash"], root);
    let other = built(&[&source, "-o", &image, "--verity", "--uuid", "random"]);
    assert_ne!(other["root_hash"], root);
    // Commands that read the image see the file system only.
    assert_eq!(seekless(&["cat", &image, "/1"]).stdout.len(), 20_000);
    let line = text(&seekless(&["build", &source, "-o", &image, "--verity", "--force"]));
    assert!(line.contains(&format!(", root hash {root}, hash offset {offset}")), "{line}");
}

#[test]
fn files_that_get_in_each_others_way_are_refused() {
    let scratch = Scratch::new("verity-refused");
    let source = tree(&scratch);
    let (image, hash) = (scratch.join("image"), scratch.join("hash"));
    let (same, again) = (scratch.join("./image"), scratch.join("./hash"));
    let cases: [&[&str]; 6] = [
        &["--verity-tree", &image],
        &["--verity-tree", &same],
        &["--verity-tree", &hash, "--root-hash-file", &again],
        &["--root-hash-file", &hash],
        &["--verity", "--verity-tree", &hash],
        &["--verity-tree", &hash, "--root-hash-file", &hash],
    ];
    for options in cases {
        let args = [&["build", &source, "-o", &image], options].concat();
        assert_eq!(seekless(&args).status.code(), Some(2), "{options:?}");
        assert!(!Path::new(&image).exists() && !Path::new(&hash).exists());
    }
    fs::write(&hash, "there").expect("write");
    let args = ["build", &source, "-o", &image, "--verity-tree", &hash];
    assert!(failure(&seekless(&args)).1.contains("already exists"));
    assert!(!Path::new(&image).exists());
    assert_eq!(fs::read_to_string(&hash).expect("read"), "there");
}
