//! The help of `mount`: the options of every format, and those of each.

use seekless_formats::{FORMATS, KnownFormat};
use std::fmt::Write as _;

const EXAMPLES: &str = "\
Examples:
  seekless mount disk.img /mnt
  seekless mount disk.img /mnt --record boot.trace
  chroot /mnt /bin/job; umount /mnt
  seekless mount ufs.img /mnt -o rw,softdep,dirs=orlov,cache=256M
  seekless mount ext4.img /mnt -o rw,journal=data
  seekless mount --set max_softdeps=4496,tickdelay=20,counters=0 /mnt
  seekless mount --counters --json /mnt

";

const COMMON: &str = "\
Mount options (-o) for read-write mounts:
  rw                              mount read-write; required by the options below
  softdep, async, sync, normal    when changes are written: ordered by soft updates
                                  (softdep, the default on UFS and FAT); delayed, in
                                  any order; synchronously; or names and inodes
                                  synchronously and the rest delayed (normal, the
                                  default on ext images without a journal)
  journal=ordered|writeback|data  images with a journal: what of the contents of
                                  files is kept in order with it (default: ordered)
  cache=SIZE                      size of the block cache (default: 64M)
  ages=classic|freebsd            how long changes may be delayed: 10, 15 and 30
                                  seconds for inodes, directories and files, or
                                  28, 29 and 30
  max_softdeps=N, max_undo=SIZE   softdep: maximum number of pending changes, and of
                                  bytes kept to undo them with (default: 400000, 64M)
  tickdelay=N                     softdep: ticks (1/100 s), 2 to 3000, for which
                                  callers are delayed above these limits (default: 2)
  nobarriers                      do not flush the image after each round of writes
  discard, nodiscard              tell the device of freed blocks, which become holes in
                                  an image file (default: if the volume asks for it)
  force                           mount even if the file system is not clean
  seed=N                          random seed of the policies
";

const END: &str = "\
For all mounts: ro, suid, dev, noexec and their opposites (default: nosuid, nodev)
and allow_other. Access times are not updated (noatime).

Returns when the directory is mounted, and serves it in the background until it is
unmounted or a signal (INT, TERM, HUP) is received; then the server unmounts it, writes
what is left and completes the trace. umount does not wait for that: until then the
image, or the trace, is locked, so `flock disk.img true` waits for it.
With -f the command itself is the server; its exit code tells whether all was written.
--counters prints the counters of a read-write mount so far, and --set changes some of
its settings; SIGUSR1 has the server print them (with -f or -v), -v or --json at the
end. Needs root or fusermount3.";

/// Column of the help of an option.
const COLUMN: usize = 34;
/// Width of a line.
const WIDTH: usize = 84;

/// The text behind the list of options of the command.
pub(super) fn after_help() -> String {
    let mut text = format!("{EXAMPLES}{COMMON}");
    for known in FORMATS {
        write_options(&mut text, known);
    }
    text + "\n" + END
}

fn write_options(text: &mut String, known: &KnownFormat) {
    let _ = writeln!(text, "\nOptions of {} images:", known.family);
    for parameter in known.mount_parameters {
        let mut line = format!("  {:1$}", parameter.to_string(), COLUMN - 2);
        for word in parameter.help.split(' ') {
            if line.len() + word.len() > WIDTH {
                let _ = writeln!(text, "{}", line.trim_end());
                line = " ".repeat(COLUMN);
            }
            line += word;
            line.push(' ');
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
