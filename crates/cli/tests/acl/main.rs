//! ACLs through mounts, compared with the kernel: the same commands of several users, on our mount
//! and on the kernel's mount of a twin image, have the same results, show the same ACLs and modes,
//! and grant the same accesses; so does the kernel's mount of our image afterwards. Needs root,
//! FUSE and loop devices; reports and passes without.

#[path = "../judges/mod.rs"]
mod judges;
#[path = "../judges/mounted.rs"]
mod mounted;

mod cases;
mod random;
mod shown;

use judges::{Mounted as KernelMount, Scratch, run, seekless, text};
use mounted::Mounted;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Shell functions of the scripts: `as USER UMASK COMMAND…`, with a user of this list.
const USERS: &str = r#"
as() {
    case $1 in
        root) who="--reuid 0 --regid 0 --clear-groups";;
        # Root without the capability to set set-group-id for any group.
        bound) who="--reuid 0 --regid 0 --clear-groups --bounding-set -fsetid";;
        ann) who="--reuid 1000 --regid 1000 --groups 1000,2000";;
        bob) who="--reuid 1001 --regid 1001 --groups 2000,2001";;
        cid) who="--reuid 1002 --regid 2001 --clear-groups";;
    esac
    local mask=$2
    shift 2
    setpriv $who sh -c "umask $mask; exec \"\$@\"" sh "$@"
}
# All lists below a directory.
lists() {
    find "$1" -not -type l 2>/dev/null | LC_ALL=C sort | xargs -d '\n' getfacl -n -p 2>/dev/null
}
# What there is below a directory, and who may do what with it.
show() {
    find "$1" | LC_ALL=C sort | xargs -d '\n' stat -c '%n %a %u:%g %h %F %t:%T'
    lists "$1"
    for user in root ann bob cid; do
        echo "== $user"
        as $user 022 find "$1" '(' -type f -o -type d ')' \
            '(' -readable -printf '%p r\n' -o -true ')' '(' -writable -printf '%p w\n' -o -true ')' \
            '(' -executable -printf '%p x\n' -o -true ')' 2>/dev/null | LC_ALL=C sort
    done
}
"#;

fn ready() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !fuse || !judges::can_mount() {
        judges::skip("needs root, /dev/fuse and loop devices");
        return false;
    }
    ["setfacl", "getfacl", "chacl", "setpriv"].into_iter().all(judges::ready)
}

/// Output of a script run in a directory. Error messages are left out: those of programs contain
/// paths.
fn script(at: &Path, text: &str) -> String {
    let whole = format!("cd \"$1\" || exit 99\n{USERS}\n{text}");
    let output = Command::new("bash").args(["-c", &whole, "bash"]).arg(at).output();
    let output = output.expect("bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Fails with the first differences between the kernel's output and ours.
fn agree(scratch: &Scratch, theirs: &str, ours: &str) {
    assert!(theirs.lines().count() > 1, "nothing to compare");
    if theirs == ours {
        return;
    }
    let paths = [("kernel", theirs), ("ours", ours)].map(|(name, said)| {
        let path = scratch.join(name);
        fs::write(&path, said).expect("write");
        path
    });
    let output = Command::new("diff").args(["-U", "12"]).args(&paths).output().expect("diff");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    panic!("{}", said.lines().take(60).collect::<Vec<_>>().join("\n"));
}

/// Two images of one shape, the first mounted by us, the second by the kernel.
struct Twins {
    image: String,
    is_ufs: bool,
    ours: Option<Mounted>,
    at: std::path::PathBuf,
    kernel: Option<KernelMount>,
    scratch: Scratch,
}

/// A shape of images: arguments of mke2fs, and mount options.
type Shape<'a> = (&'a [&'a str], &'a str);

const EXT4: Shape<'_> = (&["-t", "ext4"], "rw");
const SHAPES: [Shape<'_>; 6] = [
    EXT4,
    // No room in inodes: ACLs are stored in blocks.
    (&["-t", "ext2", "-I", "128", "-b", "1024"], "rw,softdep"),
    (&["-t", "ext4", "-O", "inline_data"], "rw,journal=data"),
    (&["-t", "ext4", "-O", "^has_journal"], "rw,sync"),
    // No kernel support for UFS2 here: the twin is ext4, and our read-only mount replaces the
    // kernel's.
    (&[UFS2], "rw"),
    (&[UFS2, "--big-endian"], "rw,async"),
];
/// First argument for UFS2, with ACLs enabled.
const UFS2: &str = "ufs2";

fn make(image: &str, how: &[&str]) {
    match how {
        [UFS2, more @ ..] => {
            text(&seekless(&[&["mkfs", "--format", "ufs2", "-s", "32M", image], more].concat()));
            text(&seekless(&["tune", image, "-a", "enable"]));
        }
        _ => drop(run("mke2fs", &[&["-q", "-F"], how, &[image, "32M"]].concat())),
    }
}

impl Twins {
    fn new((how, options): Shape<'_>) -> Self {
        let scratch = Scratch::new("acl");
        let (image, twin) = (scratch.join("image"), scratch.join("twin"));
        let is_ufs = how.first() == Some(&UFS2);
        make(&image, how);
        make(&twin, if is_ufs { EXT4.0 } else { how });
        let at = scratch.path().join("at");
        let ours = Mounted::new(&image, &at, options);
        let kernel = KernelMount::new(&scratch, &twin, "rw");
        // mke2fs creates this directory; mkfs of UFS2 does not.
        if is_ufs {
            fs::create_dir(at.join("lost+found")).expect("mkdir");
            run("chmod", &["700", at.join("lost+found").to_str().expect("path")]);
        }
        Self { image, is_ufs, ours: Some(ours), at, kernel: Some(kernel), scratch }
    }

    /// Output of a script, which must be the same on both mounts.
    fn both(&self, text: &str) -> String {
        let kernel = self.kernel.as_ref().expect("mounted");
        let (ours, theirs) = (script(&self.at, text), script(kernel.path(), text));
        agree(&self.scratch, &theirs, &ours);
        ours
    }

    /// Unmounts our image; the kernel's mount of it must show the same as its own.
    fn end(&mut self, text: &str) {
        self.ours.take().expect("mounted").end();
        let kernel = self.kernel.take().expect("mounted");
        if self.is_ufs {
            // As our mount will be.
            run("mount", &["-o", "remount,ro", kernel.text()]);
        }
        let theirs = script(kernel.path(), text);
        drop(kernel);
        if self.is_ufs {
            judges::text(&seekless(&["check", &self.image]));
            let ours = Mounted::new(&self.image, &self.at, "ro");
            agree(&self.scratch, &theirs, &script(&self.at, text));
            return ours.end();
        }
        run("e2fsck", &["-fn", &self.image]);
        let after = KernelMount::new(&self.scratch, &self.image, "rw");
        agree(&self.scratch, &theirs, &script(after.path(), text));
    }
}
