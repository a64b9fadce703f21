//! Bad blocks in an inode table: no file may get their inodes.

use super::judges::{Scratch, manifest, run, same, seekless, text};
use std::collections::HashSet;
use std::fs;

const FILES: u32 = 600;

/// An image with many small files in its first group, and larger ones with blocks in both groups.
fn make(scratch: &Scratch, options: &[&str]) -> String {
    let (tree, image) = (scratch.join("tree"), scratch.join("old"));
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..FILES {
        fs::write(format!("{tree}/{n:03}"), format!("file {n}")).expect("write");
    }
    for n in 0..40 {
        fs::write(format!("{tree}/large{n}"), vec![n; 300_000]).expect("write");
    }
    let made = ["-q", "-F", "-b", "1024", "-g", "8192", "-N", "1600", "-d", &tree];
    run("mke2fs", &[&made, options, &[&image, "16M"]].concat());
    image
}

/// First block of each group's inode table.
fn tables(image: &str) -> Vec<u64> {
    let said = run("dumpe2fs", &[image]);
    let starts = said.split("Inode table at ").skip(1);
    starts.map(|rest| rest.split('-').next().and_then(|n| n.parse().ok()).expect("table")).collect()
}

/// Deletes the files with inodes in a block of the `group`th inode table, marks the block as bad,
/// optimizes the image, and checks that no file has these inodes.
fn judge(options: &[&str], group: usize, block: u32) {
    let scratch = Scratch::new("bad-table");
    let (image, new) = (make(&scratch, options), scratch.join("new"));
    let said = run("dumpe2fs", &["-h", &image]);
    let field = |name: &str| -> u32 {
        let found = said.lines().find_map(|line| line.strip_prefix(name));
        found.and_then(|value| value.trim().parse().ok()).expect("a number")
    };
    let per_block = 1024 / field("Inode size:");
    let first = field("Inodes per group:") * group as u32 + block * per_block + 1;
    let inodes = first..first + per_block;
    let mut script = String::new();
    for ino in inodes.clone() {
        let name = run("debugfs", &["-R", &format!("ncheck {ino}"), &image]);
        if let Some((_, path)) = name.lines().nth(1).and_then(|line| line.split_once('\t')) {
            script += &format!("rm {path}\n");
        }
    }
    let bad = tables(&image)[group] + u64::from(block);
    script += &format!("sif <1> block[0] {bad}\nsif <1> blocks {}\n", 2);
    let commands = scratch.join("commands");
    fs::write(&commands, script).expect("write");
    run("debugfs", &["-w", "-f", &commands, &image]);
    let _ = std::process::Command::new("e2fsck").args(["-fy", &image]).output();
    run("e2fsck", &["-fn", &image]);
    assert!(run("debugfs", &["-R", "stat <1>", &image]).contains(&bad.to_string()), "repaired");

    // The last file comes first, so that each one gets another inode. Files that are not in the
    // trace get one in the group of their blocks.
    let listing = manifest(&image, &[]);
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    let names: String = (0..FILES).rev().map(|n| format!("/{n:03}\n")).collect();
    fs::write(&paths, names).expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    same("listing", &listing, &manifest(&new, &[]));
    let listed = run("debugfs", &["-R", "ls -l /", &new]);
    let number = |line: &str| line.split_whitespace().next()?.parse::<u32>().ok();
    let named: HashSet<u32> = listed.lines().filter_map(number).collect();
    assert!(named.len() > 500, "{listed}");
    assert!(inodes.clone().all(|ino| !named.contains(&ino)), "{options:?}, {inodes:?}");
}

#[test]
fn between_inodes_in_use() {
    for options in [&["-t", "ext2"][..], &["-t", "ext4"], &["-t", "ext4", "-I", "128"]] {
        judge(options, 0, 40);
    }
}

#[test]
fn in_a_table_that_was_never_written() {
    // Inodes of files whose blocks are in the second group.
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]] {
        judge(&[options, &["-E", "lazy_itable_init=1"]].concat(), 1, 0);
    }
}
