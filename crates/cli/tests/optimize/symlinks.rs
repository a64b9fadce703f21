//! An access through a symlink reads the symlink's inode first: it is placed with the file.

use super::judges::{Scratch, run, seekless, text};
use std::fs;
use std::os::unix::fs::symlink;

/// Inode number of a path.
fn inode(image: &str, path: &str) -> u32 {
    let said = run("debugfs", &["-R", &format!("stat {path}"), image]);
    let number = said.split("Inode:").nth(1).and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{path}: {said}"))
}

#[test]
fn symlinks_lie_before_what_they_lead_to() {
    let scratch = Scratch::new("symlinks");
    let (tree, image, new) = (scratch.join("tree"), scratch.join("old"), scratch.join("new"));
    fs::create_dir_all(format!("{tree}/usr/lib")).expect("mkdir");
    fs::create_dir_all(format!("{tree}/etc")).expect("mkdir");
    for n in 0..500 {
        fs::write(format!("{tree}/usr/lib/lib{n}.so.1.2"), format!("{n}")).expect("write");
    }
    let links = [
        ("usr/lib/lib300.so.1", "lib300.so.1.2"),
        ("usr/lib/lib300.so", "lib300.so.1"),
        ("etc/library", "/lib/lib300.so"),
        ("lib", "usr/lib"),
        ("etc/up", "../../../usr/lib/./lib400.so.1.2"),
        // Dangling, circular, and through a regular file.
        ("etc/gone", "nowhere"),
        ("etc/round", "round"),
        ("etc/through", "../usr/lib/lib300.so.1.2/x"),
        ("etc/other", "/usr/lib/lib10.so.1.2"),
    ];
    for (name, target) in links {
        symlink(target, format!("{tree}/{name}")).expect("symlink");
    }
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &tree, &image, "16M"]);
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&paths, "/usr/lib/lib300.so.1.2\n/usr/lib/lib400.so.1.2\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    for more in [&[][..], &["--inode-size", "512"]] {
        text(&seekless(&[&["optimize", &image, "--trace", &trace, "-o", &new], more].concat()));
        run("e2fsck", &["-fn", &new]);
        let [first, last] = ["/usr", "/usr/lib/lib400.so.1.2"].map(|path| inode(&new, path));
        // The directories, both files, and the five symlinks that lead to any of them.
        assert_eq!(last - first, 8, "{first} to {last}");
        let between = |path: &str| (first..=last).contains(&inode(&new, path));
        for (name, _) in &links[..5] {
            assert!(between(&format!("/{name}")), "{name}");
        }
        for (name, _) in &links[5..] {
            assert!(!between(&format!("/{name}")), "{name}");
        }
        fs::remove_file(&new).expect("remove");
    }
}
