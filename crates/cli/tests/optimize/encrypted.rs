//! Encrypted directories: data written with the key is readable with the key after the image was
//! optimized without it.

use crate::judges::{Mounted, Scratch, can_mount, manifest, run, same, seekless, text};
use std::fs;
use std::path::Path;

/// Adds a key to a mount; gives a directory, if there is one, a v2 policy with the key.
const KEY: &str = "
import fcntl, os, struct, sys
key = bytes(range(64))
arg = bytearray(struct.pack('<II32sII32s', 2, 0, b'', len(key), 0, b'') + key)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(fd, 3 << 30 | 80 << 16 | 0x66 << 8 | 23, arg)
if len(sys.argv) > 2:
    policy = struct.pack('<BBBBB3s16s', 2, 1, 4, 0, 0, b'', bytes(arg[8:24]))
    fd = os.open(sys.argv[2], os.O_RDONLY)
    fcntl.ioctl(fd, 2 << 30 | 12 << 16 | 0x66 << 8 | 19, policy)
";

fn with_key(mount: &Path) -> String {
    run("python3", &["-c", KEY, mount.to_str().expect("path")]);
    manifest(mount.join("secret").to_str().expect("path"), &[])
}

#[test]
fn an_encrypted_directory_keeps_its_contents() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("encrypted");
    let (old, new) = (scratch.join("old"), scratch.join("new"));
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "encrypt", &old, "128M"]);
    let before = {
        let mounted = Mounted::new(&scratch, &old, "rw");
        let secret = mounted.path().join("secret");
        fs::create_dir(&secret).expect("mkdir");
        run("python3", &["-c", KEY, mounted.text(), secret.to_str().expect("path")]);
        for n in 0..700 {
            fs::write(secret.join(format!("name-{n}")), vec![b'a'; n * 10]).expect("write");
            fs::write(mounted.path().join(format!("plain-{n}")), vec![b'b'; n]).expect("write");
        }
        fs::create_dir(secret.join("below")).expect("mkdir");
        fs::write(secret.join("below/file"), b"contents").expect("write");
        std::os::unix::fs::symlink("target", secret.join("link")).expect("symlink");
        manifest(secret.to_str().expect("path"), &[])
    };
    // Stored names may contain slashes and zero bytes.
    let checked = text(&seekless(&["check", &old]));
    assert!(checked.contains("in order"), "{checked}");
    // Without the key, the trace has the directory, its inodes and files beside it.
    let paths: String = (0..700).rev().step_by(3).map(|n| format!("/plain-{n}\n")).collect();
    let (list, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&list, paths + "/secret\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    text(&seekless(&["optimize", &old, "--trace", &trace, "-o", &new]));
    run("e2fsck", &["-fn", &new]);
    same("as stored", &manifest(&old, &[]), &manifest(&new, &[]));
    let mounted = Mounted::new(&scratch, &new, "rw");
    same("with the key", &before, &with_key(mounted.path()));
}
