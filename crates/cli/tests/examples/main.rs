//! Runs the examples of `--help` and of the README as they are written, in a directory with the
//! files that they name. Examples that cannot be run are listed with the reason. Long ones are
//! listed too: they are stopped, and only have to be accepted.

mod figures;
#[path = "../judges/mod.rs"]
mod judges;
#[path = "../compose/workshop.rs"]
mod workshop;

use judges::{Scratch, ready, run, seekless, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use workshop::Workshop;

/// Beginnings of examples that are not run, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("seekless age --mounted /mnt", "ages a mounted file system"),
    ("seekless disk ", "mounts; run by tests/host"),
    ("dev=$(losetup", "goes with seekless disk"),
    ("mount $dev", "goes with seekless disk"),
    ("cat /mnt/d/stats", "goes with seekless disk"),
    ("seekless model import", "needs parameters of DiskSim"),
    ("seekless model validate --traces", "needs traces of drives"),
    ("seekless mount ", "mounts; run by tests/mount.rs and tests/ufs_mount"),
    ("chroot /mnt", "goes with seekless mount"),
    ("mnt/bin/rustc", "goes with seekless mount"),
    ("fusermount3 -u mnt", "goes with seekless mount"),
    ("seekless record ", "records a machine; run by tests/host"),
    ("seekless relayout ", "moves files of a machine; run by tests/relayout"),
    ("seekless watch ", "watches a machine; run by tests/relayout"),
    ("systemctl ", "needs systemd"),
    ("seekless score disk.img --trace boot.trace --verify-kernel", "mounts; run by tests/host"),
    ("seekless score old.img new.img --trace job.trace --verify-program", "the same"),
    ("seekless score disk.img --trace job.trace --verify-program", "the same"),
    ("skopeo ", "needs a registry; run by tests/compose"),
    ("seekless build docker://", "needs a registry; run by tests/registry"),
    ("blkparse ", "needs a log of blktrace"),
    ("strace ", "starts a program that is not there"),
    ("seekless crash replay log.img --image", "needs a log of the kernel's"),
    ("seekless generate man /usr", "writes to the system"),
    ("seekless generate completions bash > /etc", "writes to the system"),
    ("seekless build ~/.rustup", "needs a toolchain"),
    ("seekless build rootfs/ -o /dev/", "writes to a device; run by tests/devices"),
    ("seekless mkfs --format fat32 -n EFI /dev/", "the same"),
    ("seekless info /dev/", "reads a device; run by tests/devices"),
    ("seekless snapshot ", "needs a snapshot; run by tests/ufs"),
    ("seekless check --background mnt", "goes with seekless mount; run by tests/ufs"),
    ("seekless check --background -p mnt", "goes with seekless mount; run by tests/ufs_mount"),
    ("seekless prefetch boot.chunks /dev/", "reads a device; run by tests/devices"),
    ("seekless growfs /dev/", "writes to a device; run by tests/devices"),
    ("seekless growfs /mnt", "goes with seekless mount; run by tests/ufs_mount"),
    ("seekless ls -l disk.ufs@", "the same"),
    ("seekless cp -r disk.ufs@", "the same"),
    ("seekless check disk.ufs@", "the same"),
];

/// Beginnings of examples that take long.
const LONG: &[&str] = &[
    "seekless age disk.img --profile mail",
    "seekless age disk.img -o aged.img",
    "seekless age disk.img --ops 20000",
    "seekless lab run dirpref",
    "seekless lab sensitivity ",
    "seekless crash run --workload pairs",
    "seekless crash run --workload all",
    "seekless crash run --workload random:8",
    "seekless crash mutate",
];

/// A volume with quotas, at the paths of the examples, and a user.
const QUOTAS: &str = "rm -rf qt disk.ufs; mkdir -p qt/etc qt/admin; \
    echo alice:x:7:7::/: > qt/etc/passwd; \
    seekless build qt -o disk.ufs --format ufs2 --size 16M; \
    seekless quota check -y -u -g --user-file /admin/quota.user disk.ufs || true; \
    seekless quota check -y -u -g disk.ufs || true";

/// Commands to run before all examples that contain a string.
const BEFORE: &[(&str, &str)] = &[
    ("seekless age disk.img", "cp ufs.img disk.img"),
    ("seekless age card.img", "seekless mkfs --format fat16 --size 16M card.img"),
    ("seekless tune ", "cp ufs.img disk.img"),
    ("seekless quota ", QUOTAS),
    // A partition that is larger than the volume in it: 65,536 sectors.
    (
        "seekless growfs bsd.img",
        "truncate -s 64M bsd.img; printf '\\000\\000\\001\\000' | \
         dd of=bsd.img bs=1 seek=458 conv=notrunc status=none",
    ),
    ("seekless check -", "cp ufs.img disk.img"),
    ("seekless build ", "cp disk.img old.img; rm disk.img new.img"),
    ("seekless mkfs ", "rm disk.img"),
    ("--lost free esp.img", "seekless mkfs --format fat16 --size 16M --force esp.img"),
    ("--like esp.img", "seekless build esp/ -o esp.img --format fat32 --drop owners,modes --force"),
    ("--like week1.layout", "seekless layout week1.img -o week1.layout"),
    ("lab run ./mine.toml", "cp small.toml mine.toml"),
    ("lab show dirpref > mine.toml", "rm mine.toml"),
    ("-o rootfs.mtree", "rm rootfs.mtree"),
    ("-o job.trace", "rm job.trace"),
    (
        "seekless prefetch boot.chunks disk",
        "seekless trace export --format chunks boot.trace --image disk.img -o boot.chunks",
    ),
    ("-o fast.img", "rm fast.img"),
    ("-o week2.img", "rm week2.img"),
    ("-o disk.qcow2", "rm disk.qcow2"),
    ("-o fast.qcow2", "rm -f fast.qcow2"),
    ("-o aged.qcow2", "rm -f aged.qcow2"),
    ("-o part1", "rm -r part1"),
    ("-o states1", "rm states1"),
    ("seekless optimize before.img", "rm after.img"),
];

/// Files that the examples name.
const FIXTURES: &str = r#"
mkdir -p rootfs/bin rootfs/etc rootfs/boot rootfs/usr/lib rootfs/usr/share/doc/job
echo '#!/bin/sh' > rootfs/bin/job; chmod 755 rootfs/bin/job
echo ID=example > rootfs/etc/os-release; echo host > rootfs/etc/hostname
head -c 300000 /dev/zero > rootfs/boot/vmlinuz
for n in $(seq 60); do head -c $((n * 997)) /dev/zero | tr '\0' x > rootfs/usr/lib/$n; done
echo text > rootfs/usr/share/doc/job/README
tar -C rootfs -cf rootfs.tar .
gzip -k rootfs.tar; cp rootfs.tar.gz layer.tar.gz; zstd -q rootfs.tar
mkdir -p overlay/etc; echo example > overlay/etc/hostname
mkdir -p esp/EFI/BOOT; echo loader > esp/EFI/BOOT/BOOTX64.EFI
chmod 755 esp esp/EFI esp/EFI/BOOT; chmod 644 esp/EFI/BOOT/BOOTX64.EFI; tar -C esp -cf esp.tar .
seekless build rootfs -o disk.img --size 24M
qemu-img convert -f raw -O qcow2 disk.img disk.qcow2
cp disk.img old.img; cp disk.img new.img; cp disk.img before.img
for name in base derived week1 week2 app1 app2 app3 a b; do cp disk.img $name.img; done
truncate -s 32M cloud.img; dd if=disk.img of=cloud.img bs=1M seek=1 conv=notrunc status=none
printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\300\000\000' |
    dd of=cloud.img bs=1 seek=446 conv=notrunc status=none
printf '\125\252' | dd of=cloud.img bs=1 seek=510 conv=notrunc status=none
seekless mkfs --format ufs2 --size 24M ufs.img
cp cloud.img bsd.img; dd if=ufs.img of=bsd.img bs=1M seek=1 conv=notrunc status=none
seekless manifest rootfs -o rootfs.mtree
printf "/.*\tsystem_u:object_r:default_t:s0\n" > file_contexts
printf "/dev d 755 0 0\n/dev/null c 666 0 0 1 3\n" > device_table.txt
mkdir repart.d; printf '[Partition]\nType=esp\nCopyFiles=/boot:/\n' > repart.d/10-esp.conf
printf '[Partition]\nType=root\nCopyFiles=/\n' > repart.d/20-root.conf
printf '%s\n' /bin/job /etc/os-release /usr/lib/7 /usr/lib/50 > hot-files.txt
seekless trace import --paths hot-files.txt -o boot.trace
for day in job monday tuesday rustc make.1 make.2; do cp boot.trace $day.trace; done
printf '[[run]]\ndevice = "gp3"\nhost = "m5"\nsource = "s"\nthinktime_us = 3.0\n' > results.toml
printf 'results = [{ rw = "randread", iodepth = 32, iops = 3000 }]\n' >> results.toml
echo '{"time":9000000000,"op":"stat","path":"/"}' >>job.trace
for one in one two; do seekless trace summarize monday.trace -o $one.parquet; done
seekless optimize disk.img --trace boot.trace -o fast.img; cp fast.img after.img
printf '%s\n' '1700000000.000001 openat(AT_FDCWD</srv/root>, "/srv/root/bin/job", O_RDONLY) = 3</srv/root/bin/job>' \
    '1700000000.000020 read(3</srv/root/bin/job>, "x"..., 4096) = 1' > boot.strace
printf '%s\n' '{"op":"read","offset":0,"bytes":20971520,"submitted_ns":1}' > io.jsonl
seekless model show gp3 > mine.toml
seekless model show cheetah-9lp > hdd.toml
seekless lab show dirpref | sed -e 's/directories = 6596, files = 13868/directories = 130, files = 260/' \
    -e 's/categories = 50/categories = 5/' > small.toml
for n in 1 2 3 4; do seekless lab run small.toml --only first --shard $n/4 -o part$n > done; done
seekless lab merge part1 part2 part3 part4 -o all > done; cp -r all merged
printf '%s\n' 'create a' 'begin' 'write a 0 5000' 'fsync a' > script.txt
seekless crash run --workload create --discipline softdep --format ufs2 --sample 5 --log-out log.img > done
for n in 1 2 3 4; do seekless crash run --workload create --discipline softdep --format ufs2 \
    --shard $n/4 -o states$n > done; done
"#;

/// The examples at the end of a help text.
fn examples_in(help: &str) -> Vec<String> {
    let behind = help.split("\nExamples:\n").nth(1).unwrap_or_default();
    let lines = behind.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    let mut examples: Vec<String> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        match examples.last_mut() {
            // A quoted string continues.
            Some(last) if last.matches('\'').count() % 2 == 1 => {
                last.push('\n');
                last.push_str(line);
            }
            _ => examples.push(line.trim().to_string()),
        }
    }
    examples
}

/// The examples of a command and of all its subcommands.
fn examples_of(command: &[&str], into: &mut Vec<String>) {
    let help = text(&seekless(&[command, &["--help"]].concat()));
    let examples = examples_in(&help);
    assert!(!examples.is_empty(), "seekless {}: no examples", command.join(" "));
    into.extend(examples);
    let behind = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let below = behind.lines().take_while(|line| !line.is_empty());
    let names = below.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        if name != "help" {
            examples_of(&[command, &[name]].concat(), into);
        }
    }
}

fn examples_of_readme() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(path).expect("README.md");
    let lines = readme.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(str::to_string).collect()
}

/// Makes the files that the examples name.
fn fixtures(bin: &Path) -> Workshop {
    let shop = Workshop::new("examples");
    let layers = [shop.layer(&[("etc/os-release", "ID=debian")])];
    let tagged = [shop.saved(&["debian:12"], &layers), shop.saved(&["debian:11"], &layers)];
    shop.put("manifest.json", serde_json::json!(tagged).to_string().as_bytes());
    let images = shop.pack("images.tar");
    let one = shop.saved(&["debian:12"], &layers);
    shop.put("manifest.json", serde_json::json!([one]).to_string().as_bytes());
    let saved = shop.pack("saved.tar");
    shop.layout(&[shop.image("latest", &layers)]);
    let layout = shop.scratch.join("oci-layout");
    fs::rename(&shop.dir, &layout).expect("rename");
    fs::create_dir(&shop.dir).expect("mkdir");
    for made in [&images, &saved, &layout] {
        run("cp", &["-r", made, shop.dir.to_str().expect("path")]);
    }
    // Replaces docker, whose output an example pipes.
    let docker = format!("#!/bin/sh\nexec cat {saved}\n");
    fs::write(bin.join("docker"), docker).expect("write");
    fs::set_permissions(bin.join("docker"), fs::Permissions::from_mode(0o755)).expect("chmod");
    let made = shell(bin, &shop.dir, &format!("set -e\n{FIXTURES}"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    shop
}

fn shell(bin: &Path, dir: &Path, script: &str) -> std::process::Output {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"));
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(dir).env("PATH", path).env("TMPDIR", judges::scratch());
    shell.output().expect("sh")
}

/// Runs an example as written; returns the error, if any.
fn failure_of(example: &str, bin: &Path, fixtures: &Path, dir: &str) -> Option<String> {
    run("cp", &["-a", "--sparse=always", fixtures.to_str().expect("path"), dir]);
    let before: String = BEFORE
        .iter()
        .filter(|(part, _)| example.contains(part))
        .map(|(_, script)| format!("{script}\n"))
        .collect();
    let long = LONG.iter().any(|start| example.starts_with(start));
    // Only seekless is stopped, not the programs of the shell.
    let limit = if long { "seekless() { timeout -s INT 1 seekless \"$@\"; }\n" } else { "" };
    let done = shell(bin, Path::new(dir), &format!("set -e\n{before}set -- \n{limit}{example}\n"));
    fs::remove_dir_all(dir).expect("remove");
    let code = done.status.code();
    let stopped = long && matches!(code, Some(124 | 130));
    let said = String::from_utf8_lossy(&done.stderr);
    (code != Some(0) && !stopped).then(|| format!("{example}\n  ended with {code:?}: {said}"))
}

#[test]
fn every_example_does_what_it_says() {
    if !["zstd", "jq", "file", "qemu-img"].into_iter().all(ready) {
        return;
    }
    let scratch = Scratch::new("examples-run");
    let bin = scratch.path().join("bin");
    fs::create_dir(&bin).expect("mkdir");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_seekless"), bin.join("seekless")).expect("link");
    let shop = fixtures(&bin);
    let mut examples = Vec::new();
    examples_of(&[], &mut examples);
    assert!(examples.len() > 90, "{}", examples.len());
    let of_readme = examples_of_readme();
    assert!(of_readme.len() > 5, "{of_readme:?}");
    examples.extend(of_readme);
    for (start, _) in NOT_RUN {
        assert!(examples.iter().any(|example| example.starts_with(start)), "no example: {start}");
    }
    for start in LONG {
        assert!(examples.iter().any(|example| example.starts_with(start)), "no example: {start}");
    }
    for (part, _) in BEFORE {
        assert!(examples.iter().any(|example| example.contains(part)), "no example: {part}");
    }
    let run_here = |example: &&String| !NOT_RUN.iter().any(|(start, _)| example.starts_with(start));
    let waiting = Mutex::new(examples.iter().filter(run_here));
    let failures = Mutex::new(Vec::new());
    // Each has a copy of the fixtures.
    thread::scope(|scope| {
        for worker in 0..3 {
            let dir = scratch.join(&format!("run-{worker}"));
            let (waiting, failures, bin, shop) = (&waiting, &failures, &bin, &shop);
            scope.spawn(move || {
                while let Some(example) = { waiting.lock().expect("no panic").next() } {
                    let failure = failure_of(example, bin, &shop.dir, &dir);
                    failures.lock().expect("no panic").extend(failure);
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
