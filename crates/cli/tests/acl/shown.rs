//! Lists of images that are mounted read-only.

use super::{SHAPES, Scratch, UFS2, agree, make, ready, script};
use crate::judges::{Mounted as KernelMount, run, seekless, text};
use crate::mounted::Mounted;

const CONTENT: &str = "mkdir d; chmod 750 d; setfacl -m u:1000:x d; echo 1 > d/f; chmod 640 d/f; setfacl -m u:1000:r,g:2001:rw d/f
    echo 2 > g; chmod 644 g; setfacl -m u:1001:--- g; setfacl -d -m g:2000:rwx d; mkdir d/sub";

#[test]
fn a_read_only_mount_shows_and_enforces_lists() {
    if !ready() {
        return;
    }
    for (how, _) in SHAPES.into_iter().filter(|(how, _)| how.first() != Some(&UFS2)) {
        let scratch = Scratch::new("acl-ro");
        let image = scratch.join("image");
        make(&image, how);
        let all =
            "show d; show g; as ann 022 cat d/f; as bob 022 cat g d/f; setfacl -b g; echo $?; true";
        let theirs = {
            let kernel = KernelMount::new(&scratch, &image, "rw");
            script(kernel.path(), CONTENT);
            drop(kernel);
            let kernel = KernelMount::new(&scratch, &image, "ro");
            script(kernel.path(), all)
        };
        let at = scratch.path().join("at");
        let mounted = Mounted::new(&image, &at, "ro");
        // A read-only mount refuses writing before it looks who asks: so does the kernel's.
        agree(&scratch, &theirs, &script(&at, all));
        mounted.end();
        assert!(theirs.contains("user:1000:r--") && theirs.contains("1\n"), "{theirs}");
    }
}

/// A format without lists says so.
#[test]
fn formats_without_lists_refuse_them() {
    if !ready() || !crate::judges::ready("mkfs.fat") {
        return;
    }
    let scratch = Scratch::new("acl-none");
    let (fat, ufs) = (scratch.join("fat"), scratch.join("ufs"));
    run("truncate", &["-s", "8M", &fat]);
    run("mkfs.fat", &["-n", "X", &fat]);
    text(&seekless(&["mkfs", "--format", "ufs1", "-s", "8M", &ufs]));
    for image in [&fat, &ufs] {
        let at = scratch.path().join("at");
        let mounted = Mounted::new(image, &at, "rw");
        let said = script(
            &at,
            "touch f; stat -c %a f; setfacl -m u:1000:r f 2>&1; getfacl -cn f; stat -c %a f; (umask 027; mkdir d); stat -c %a d",
        );
        assert!(said.contains("Operation not supported"), "{said}");
        assert!(!said.contains("user:1000"), "{said}");
        mounted.end();
    }
}
