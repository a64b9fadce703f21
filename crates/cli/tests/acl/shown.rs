//! ACLs of images that are mounted read-only.

use super::{SHAPES, Scratch, Twins, UFS2, agree, make, ready, script};
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
        // Like the kernel's, a read-only mount refuses writes before it checks permissions.
        agree(&scratch, &theirs, &script(&at, all));
        mounted.end();
        assert!(theirs.contains("user:1000:r--") && theirs.contains("1\n"), "{theirs}");
    }
}

/// Formats without ACLs report that.
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

/// A copy has exactly the ACLs of the image: ACLs inherited from the directory of the copy are
/// removed.
#[test]
fn copies_have_the_lists_of_the_image() {
    if !ready() {
        return;
    }
    for shape in SHAPES {
        let mut twins = Twins::new(shape);
        twins.both(&format!("{CONTENT}\nlists ."));
        twins.both("mkfifo -m 640 d/pipe; setfacl -b d/pipe; setfacl -b -k d/sub; chmod 750 d/sub; lists d");
        twins.end("lists d; lists g");
        let image = twins.image.as_str();
        let twin = twins.scratch.join("twin");
        let to = KernelMount::new(&twins.scratch, &twin, "rw");
        let below = to.path().join("copies");
        script(to.path(), "mkdir copies; setfacl -d -m u:1002:rwx,g:2001:rwx copies");
        text(&seekless(&["cp", "-r", image, "/d", below.to_str().expect("path")]));
        let lists = "find d -not -type l | LC_ALL=C sort | xargs getfacl -n";
        agree(&twins.scratch, &script(to.path(), lists), &script(&below, lists));
    }
}

/// If an archive's ACL contradicts its mode, the mode follows the ACL, as in tar's extraction.
#[test]
fn the_list_of_an_archive_decides_on_the_mode() {
    if !ready() || !crate::judges::ready("python3") {
        return;
    }
    let scratch = Scratch::new("acl-tar");
    let (archive, image) = (scratch.join("tar"), scratch.join("image"));
    let make = "import io,sys,tarfile
with tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT) as tar:
    entry = tarfile.TarInfo('secret')
    entry.mode, entry.size = 0o644, 2
    entry.pax_headers = {'SCHILY.acl.access': 'user::rw-,user:1000:r--:1000,group::---,mask::r--,other::---'}
    tar.addfile(entry, io.BytesIO(b'x\\n'))";
    run("python3", &["-c", make, &archive]);
    text(&seekless(&["build", &archive, "-o", &image]));
    let kernel = KernelMount::new(&scratch, &image, "ro");
    let said = script(
        kernel.path(),
        "stat -c %a secret; as ann 022 cat secret; as bob 022 cat secret || echo refused",
    );
    assert_eq!(said, "640\nx\nrefused\n");
}
