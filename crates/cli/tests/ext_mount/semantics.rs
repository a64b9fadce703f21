//! Calls of programs, with results that Linux' ext4 decides: they are the same on a mount of ours and
//! on the kernel's. And the memory that a server takes for a long `fallocate`.

use crate::judges::{self, Mounted as KernelMount, Scratch, run, same, seekless};
use crate::mounted::Mounted;
use crate::ready;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Prints a line for each call. Runs in the root of a mount.
const CALLS: &str = r#"
import errno, fcntl, os, struct, time
def say(name, call):
    try:
        answer = call()
    except OSError as error:
        answer = errno.errorcode[error.errno]
    print(name, answer)

def as_user(call):
    child = os.fork()
    if child == 0:
        os.setgroups([]); os.setgid(1000); os.setuid(1000)
        call()
        os._exit(0)
    return os.waitpid(child, 0)[1]

open("f", "w").write("0123456789")

SECOND = 10**9
for at in [-1, -999999999, -SECOND, -SECOND - 1, -3 * SECOND // 2, 1, 2**31 * SECOND + 5,
           -2**31 * SECOND, -2**31 * SECOND + 1, -2**31 * SECOND - 1, 15032385535 * SECOND + 7,
           15032385536 * SECOND + 7, -2**63 * SECOND + 5, (2**63 - 1) * SECOND]:
    os.utime("f", ns=(at, at))
    print(at, os.stat("f").st_mtime_ns, os.stat("f").st_atime_ns)

for flags in range(5):
    for name in ["user.there", "user.not", "user.", "user", "none.there", "system.none"]:
        os.setxattr("f", "user.there", b"1")
        say(f"setxattr {name} {flags}", lambda: os.setxattr("f", name, b"2", flags))
        say(f"getxattr {name}", lambda: os.getxattr("f", name))
        say(f"removexattr {name}", lambda: os.removexattr("f", name))
os.setxattr("f", "user.there", b"1")
os.setxattr("f", "trusted.there", b"1")
say("listed", lambda: sorted(os.listxattr("f")))
say("listed to a user", lambda: as_user(lambda: print(os.listxattr("f"), flush=True)))

for caller in ["root", "user"]:
    for mode in [0o6777, 0o2767, 0o755]:
        open("g", "w").write("x"); os.chmod("g", mode)
        os.chown("g", 1000, 1000); os.chmod("g", mode); os.utime("g", (1, 1))
        call = lambda: os.posix_fallocate(os.open("g", os.O_RDWR), 0, 20000)
        call() if caller == "root" else as_user(call)
        seen = os.stat("g")
        print("fallocate", caller, oct(mode), oct(seen.st_mode), seen.st_size, seen.st_mtime > 1)

f = os.open("f", os.O_RDONLY)
for flags in [0x40, 0x40, 0]:
    before = os.fstat(f).st_ctime_ns
    time.sleep(0.02)
    old = struct.unpack("i", fcntl.ioctl(f, 0x80086601, bytes(8))[:4])[0]
    fcntl.ioctl(f, 0x40086602, struct.pack("q", old & ~0x40 | flags))
    print("flags", hex(flags), os.fstat(f).st_ctime_ns > before)
"#;

fn calls_in(root: &Path) -> String {
    let said = Command::new("python3").args(["-u", "-c", CALLS]).current_dir(root).output();
    let said = said.expect("python3");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

#[test]
fn times_attributes_and_allocations_are_those_of_the_kernel() {
    if !ready() || !judges::ready("python3") {
        return;
    }
    let scratch = Scratch::new("semantics");
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    for image in [&ours, &theirs] {
        run("mke2fs", &["-q", "-F", "-t", "ext4", image, "16M"]);
    }
    let at = scratch.path().join("mnt");
    let mounted = Mounted::new(&ours, &at, "rw");
    let seen = calls_in(&at);
    mounted.end();
    let kernel = KernelMount::new(&scratch, &theirs, "rw");
    let expected = calls_in(kernel.path());
    assert!(expected.lines().count() > 100, "{expected}");
    same("the kernel", &expected, &seen);
}

/// Peak memory of a server, in KiB.
fn peak(server: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{server}/status")).expect("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    peak.split_whitespace().next().expect("number").parse().expect("number")
}

/// Where a file is lengthened by zeros in the cache, a server needs no more memory for more of them. One
/// for which there is no room keeps its length.
#[test]
fn long_allocations_take_no_more_memory_than_the_cache() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("allocation");
    let (image, at) = (scratch.join("image"), scratch.path().join("mnt"));
    for format in ["ext2", "ufs2", "fat32"] {
        let _ = fs::remove_file(&image);
        if format == "ext2" {
            run("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "4096", &image, "160M"]);
        } else {
            judges::text(&seekless(&["mkfs", "--format", format, "--size", "160M", &image]));
        }
        let mounted = Mounted::new(&image, &at, "rw,async,cache=4M");
        let file = at.join("long");
        let path = file.to_str().expect("path");
        run("fallocate", &["-l", "130M", path]);
        assert_eq!(fs::metadata(&file).expect("stat").len(), 130 << 20, "{format}");
        fs::remove_file(&file).expect("remove");
        run("truncate", &["-s", "120M", path]);
        let open = fs::OpenOptions::new().write(true).open(&file).expect("open");
        open.write_all_at(b"end", 130 << 20).expect("write");
        let peak = peak(mounted.server.id());
        assert!(peak < 100_000, "{format}: {peak} KiB for 130 MiB");
        if format == "fat32" {
            for len in [200 << 20, u64::from(u32::MAX) + 1] {
                let error = open.set_len(len).expect_err("no room");
                assert!(matches!(error.raw_os_error(), Some(28 | 27)), "{len}: {error}");
                let error = open.write_all_at(b"end", len).expect_err("no room");
                assert!(matches!(error.raw_os_error(), Some(28 | 27)), "{len}: {error}");
            }
        }
        assert_eq!(open.metadata().expect("stat").len(), (130 << 20) + 3, "{format}");
        let mut end = [1; 6];
        let read = fs::File::open(&file).expect("open");
        read.read_exact_at(&mut end, (130 << 20) - 3).expect("read");
        assert_eq!(&end, b"\0\0\0end", "{format}");
        drop((open, read));
        mounted.end();
        match format {
            "ext2" => judges::check(&image),
            "fat32" => drop(run("fsck.fat", &["-n", &image])),
            _ => drop(judges::text(&seekless(&["check", "-n", &image]))),
        }
    }
}
