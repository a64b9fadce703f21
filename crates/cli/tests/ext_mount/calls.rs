//! The calls that docs/mount.md says mounts do not support, on each family of formats: the answers
//! are those of its table.

use crate::judges::{self, Scratch, run, seekless};
use crate::mounted::Mounted;
use crate::ready;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Prints a line for each call: its name, and the answer. Runs in the root of a mount.
const CALLS: &str = r#"
import ctypes, errno, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
f, g = os.open("f", os.O_RDWR), os.open("g", os.O_RDWR)
d = os.open(".", os.O_RDONLY)

def say(name, call):
    try:
        answer = call()
    except OSError as error:
        answer = errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")
    print(name, answer)

def libc_call(call, *args):
    if call(*args) != 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"

def control(name, at, request, argument):
    say(name, lambda: int.from_bytes(fcntl.ioctl(at, request, argument)[:4], "little"))

def fallocate(mode):
    return libc_call(libc.fallocate, f, mode, ctypes.c_long(4096), ctypes.c_long(4096))

for name, mode in [("FALLOC_FL_PUNCH_HOLE", 3), ("ZERO_RANGE", 16), ("COLLAPSE_RANGE", 8), ("INSERT_RANGE", 32)]:
    say(name, lambda: fallocate(mode))
say("O_TMPFILE", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
say("RENAME_WHITEOUT", lambda: libc_call(libc.renameat2, -100, b"f", -100, b"moved", 4))
say("SEEK_HOLE", lambda: os.lseek(f, 0, os.SEEK_HOLE))
control("FS_IOC_GETVERSION", f, 0x80087601, bytes(8))
control("FS_IOC_GETFSLABEL", f, 0x81009431, bytes(256))
control("FS_IOC_GETFSUUID", f, 0x80111500, bytes(17))
control("FS_IOC_FIEMAP", f, 0xC020660B, struct.pack("QQIIII", 0, 1 << 30, 0, 0, 8, 0) + bytes(8 * 56))
control("FIBMAP", f, 1, bytes(4))
control("FICLONE", g, 0x40049409, f)
control("FICLONERANGE", g, 0x4020940D, struct.pack("qQQQ", f, 0, 0, 0))
control("FIDEDUPERANGE", g, 0xC0189436, struct.pack("QQHHIqQQiI", 0, 4096, 1, 0, 0, f, 0, 0, 0, 0))
control("FIFREEZE", d, 0xC0045877, bytes(4))
control("FITHAW", d, 0xC0045878, bytes(4))
"#;

/// The calls of docs/mount.md's table, each with its answer.
fn documented() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mount.md");
    let page = fs::read_to_string(page).expect("docs/mount.md");
    let (_, behind) = page.split_once("## Calls that mounts do not support").expect("the section");
    let section = behind.split("\n## ").next().expect("its text");
    let mut calls = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let answer = cells[2].split([',', ';', ':', ' ']).next().expect("an answer");
        for name in cells[1].split('`').skip(1).step_by(2) {
            calls.insert(name.to_string(), answer.to_string());
        }
    }
    calls
}

#[test]
fn calls_that_mounts_do_not_support_have_the_answers_of_their_table() {
    if !ready() || !judges::ready("python3") {
        return;
    }
    let documented = documented();
    let scratch = Scratch::new("calls");
    let (image, at) = (scratch.join("image"), scratch.path().join("mnt"));
    for format in ["ext4", "ufs2", "fat32"] {
        let _ = fs::remove_file(&image);
        if format == "ext4" {
            run("mke2fs", &["-q", "-F", "-t", "ext4", &image, "48M"]);
        } else {
            judges::text(&seekless(&["mkfs", "--format", format, "--size", "48M", &image]));
        }
        let mounted = Mounted::new(&image, &at, "rw");
        for name in ["f", "g"] {
            fs::write(at.join(name), [1; 10_000]).expect("write");
        }
        let said = Command::new("python3").args(["-c", CALLS]).current_dir(&at).output();
        let said = said.expect("python3");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let said = String::from_utf8(said.stdout).expect("text");
        assert!(said.lines().count() > 16, "{said}");
        for line in said.lines() {
            let (name, answer) = line.split_once(' ').expect("a name and an answer");
            let wanted = documented.get(name).map_or("no row", String::as_str);
            // The end of the file, where no hole is told.
            let wanted = if name == "SEEK_HOLE" { "10000" } else { wanted };
            assert_eq!(answer, wanted, "{format}: {name}");
        }
        mounted.end();
    }
}
