//! Changes to the whole tree: SELinux contexts, names that become files.

use crate::judges::{
    Mounted, Scratch, can_mount, check, failure, manifest, ready, run, seekless, text,
};
use std::fs;
use std::os::unix::fs::symlink;

const CONTEXTS: &str = "\
/.*                 system_u:object_r:default_t:s0
/                   -d system_u:object_r:root_t:s0
/etc(/.*)?          system_u:object_r:etc_t:s0
/etc/hidden         <<none>>
/bin/.*             -- system_u:object_r:bin_t:s0
/bin/.*             -l system_u:object_r:link_t:s0
/lost\\+found       -d system_u:object_r:lost_found_t:s15:c0.c1023
/srv/www(/.*)?      system_u:object_r:httpd_t:s0
";

fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    fs::create_dir_all(format!("{tree}/etc")).expect("mkdir");
    fs::create_dir_all(format!("{tree}/bin")).expect("mkdir");
    for name in ["etc/passwd", "etc/hidden", "bin/tool", "other"] {
        fs::write(format!("{tree}/{name}"), name).expect("write");
    }
    symlink("tool", format!("{tree}/bin/link")).expect("symlink");
    fs::hard_link(format!("{tree}/bin/tool"), format!("{tree}/etc/tool")).expect("link");
    tree
}

#[test]
fn files_have_the_contexts_of_a_policy() {
    let scratch = Scratch::new("contexts");
    let (tree, image, contexts) = (tree(&scratch), scratch.join("image"), scratch.join("fc"));
    fs::write(&contexts, CONTEXTS).expect("write");
    let built = seekless(&["build", &tree, "-o", &image, "--file-contexts", &contexts]);
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    text(&built);
    // Both names are of one inode.
    let warned = "etc/tool: is another name of bin/tool, whose context it has instead of \
                  system_u:object_r:etc_t:s0";
    assert!(said.contains(warned), "{said}");
    check(&image);
    let wanted = [
        ("/", "root_t:s0"),
        ("/etc", "etc_t:s0"),
        ("/etc/passwd", "etc_t:s0"),
        ("/etc/tool", "bin_t:s0"),
        ("/bin", "default_t:s0"),
        ("/bin/tool", "bin_t:s0"),
        ("/bin/link", "link_t:s0"),
        ("/other", "default_t:s0"),
        ("/lost+found", "lost_found_t:s15:c0.c1023"),
    ];
    for (path, kind) in wanted {
        let value = scratch.join("value");
        run("debugfs", &["-R", &format!("ea_get -f {value} {path} security.selinux"), &image]);
        let stored = fs::read(&value).expect("a value");
        assert_eq!(stored, format!("system_u:object_r:{kind}\0").into_bytes(), "{path}");
    }
    assert!(!run("debugfs", &["-R", "ea_list /etc/hidden", &image]).contains("selinux"));
    if can_mount() {
        let mounted = Mounted::new(&scratch, &image, "ro");
        let names = ["-h", "-n", "security.selinux", "--only-values"];
        let link = format!("{}/bin/link", mounted.text());
        let value = run("getfattr", &[&names[..], &["--absolute-names", &link]].concat());
        assert_eq!(value.trim_end_matches('\0'), "system_u:object_r:link_t:s0");
    }
    // A context in the source is replaced, unless the line says <<none>>.
    let again = scratch.join("again");
    fs::write(&contexts, "/etc/passwd u:r:new_t:s0\n/other <<none>>\n").expect("write");
    let options = ["--file-contexts", &contexts, "--no-lost-found"];
    text(&seekless(
        &[&["build", &image, "-o", &again, "--mount-point", "/"], &options[..]].concat(),
    ));
    let listed = manifest(&again, &[]);
    let of =
        |path: &str| listed.lines().find(|line| line.starts_with(path)).expect(path).to_string();
    // The Base64 of "u:r:new_t:s0\0".
    assert!(of("./etc/passwd ").ends_with("xattr.security.selinux=dTpyOm5ld190OnMwAA=="));
    assert!(of("./other ").contains("xattr.security.selinux="));
}

#[test]
fn a_mount_point_is_put_before_the_paths_of_contexts() {
    let scratch = Scratch::new("contexts-below");
    let (tree, image, contexts) = (tree(&scratch), scratch.join("image"), scratch.join("fc"));
    fs::write(&contexts, CONTEXTS).expect("write");
    let build = ["build", &tree, "-o", &image, "--force", "--no-lost-found"];
    let at = |path| {
        let options = ["--file-contexts", &contexts, "--mount-point", path];
        seekless(&[&build[..], &options].concat())
    };
    text(&at("/srv/www/"));
    for path in ["/", "/etc/passwd"] {
        let said = run("debugfs", &["-R", &format!("ea_get {path} security.selinux"), &image]);
        assert!(said.contains("httpd_t"), "{path}: {said}");
    }
    let (code, message) = failure(&at("srv"));
    assert!(code == 2 && message.contains("absolute path"), "{message}");
    let refused = seekless(&[&build[..], &["--mount-point", "/srv"]].concat());
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && message.contains("--file-contexts"), "{message}");
}

#[test]
fn contexts_of_layers_that_images_share_are_those_of_each_layer() {
    let scratch = Scratch::new("contexts-shared");
    let (tree, contexts) = (tree(&scratch), scratch.join("fc"));
    let upper = scratch.join("upper");
    fs::create_dir_all(format!("{upper}/etc")).expect("mkdir");
    fs::write(format!("{upper}/etc/new"), "new").expect("write");
    fs::write(&contexts, CONTEXTS).expect("write");
    let image = scratch.join("image");
    let options = ["--share", "--quiet", "--file-contexts", &contexts];
    text(&seekless(&[&["build", &tree, &upper, "-o", &image], &options[..]].concat()));
    check(&image);
    for path in ["/etc/new", "/etc/passwd"] {
        let said = run("debugfs", &["-R", &format!("ea_get {path} security.selinux"), &image]);
        assert!(said.contains("etc_t"), "{path}: {said}");
    }
}

#[test]
fn wrong_contexts_are_refused_with_their_line() {
    let scratch = Scratch::new("contexts-wrong");
    let (tree, image, contexts) = (tree(&scratch), scratch.join("image"), scratch.join("fc"));
    let build = ["build", &tree, "-o", &image, "--file-contexts", &contexts];
    for (lines, code, wanted) in [
        ("/a -q t\n", 3, "fc, line 1: '-q' is not a file type"),
        ("# \n/a(?!b) t\n", 4, "fc, line 2: /a(?!b): look-ahead is not supported"),
    ] {
        fs::write(&contexts, lines).expect("write");
        let (found, message) = failure(&seekless(&build));
        assert!(found == code && message.contains(wanted), "{found} {message}");
    }
    fs::remove_file(&contexts).expect("remove");
    assert_eq!(failure(&seekless(&build)).0, 6);
    let (code, message) = failure(&seekless(&[&build[..], &["--format", "ufs2"]].concat()));
    assert!(code == 2 && message.contains("--file-contexts is for ext images"), "{message}");
    assert!(!fs::exists(&image).expect("exists"));
}

#[test]
fn every_name_becomes_a_file() {
    let scratch = Scratch::new("hard-dereference");
    let (tree, image) = (tree(&scratch), scratch.join("image"));
    text(&seekless(&["build", &tree, "-o", &image, "--hard-dereference"]));
    check(&image);
    // GNU tar does the same.
    let archive = scratch.join("archive");
    run("tar", &["--hard-dereference", "-C", &tree, "-cf", &archive, "."]);
    let (ours, theirs) = (manifest(&image, &[]), manifest(&archive, &[]));
    assert!(ours.contains("./etc/tool type=file") && !ours.contains("hardlink"), "{ours}");
    crate::same("tar", &crate::judges::timeless(&ours), &crate::judges::timeless(&theirs));
    if ready("debugfs") {
        let inode = |path: &str| {
            let said = run("debugfs", &["-R", &format!("stat {path}"), &image]);
            said.split_whitespace().nth(1).expect("an inode").to_string()
        };
        assert_ne!(inode("/etc/tool"), inode("/bin/tool"));
    }
}
