//! Verdicts, exit codes and lines beside those of e2fsck; the front end of util-linux.

use crate::judges::{self, Mounted, Scratch, attach, detach, run};
use crate::{answer, changed, image, linked};
use std::fs;
use std::process::Command;

/// The lines that both print: about the work before the check, and the state of the volume.
fn common(said: &str) -> Vec<&str> {
    let marks = [": clean", "check forced", "recovering", "Warning", "UNEXPECTED", " files ("];
    said.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
}

#[test]
fn e2fsck_and_the_binary_in_its_place_agree() {
    if !judges::ready("e2fsck") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-agree");
    let sound = image(&scratch);
    let make = |name: &str, commands: &[&str]| changed(&scratch, &sound, name, commands);
    fs::write(scratch.join("block"), [9; 1024]).expect("block");
    let write = format!("jw -b 9000 {}", scratch.join("block"));
    let wiped = scratch.join("wiped");
    fs::copy(&sound, &wiped).expect("copy");
    run("dd", &["if=/dev/zero", &format!("of={wiped}"), "bs=1024", "count=4", "conv=notrunc"]);
    let images = [
        sound.clone(),
        make("unclean", &["ssv state 0"]),
        make("errors", &["ssv state 3"]),
        make("often", &["ssv max_mnt_count 20", "ssv mnt_count 50"]),
        make("soon", &["ssv max_mnt_count 20", "ssv mnt_count 18"]),
        make("next", &["ssv max_mnt_count 20", "ssv mnt_count 19"]),
        make("long", &["ssv checkinterval 86400", "ssv lastcheck 20200101"]),
        make("future", &["ssv checkinterval 86400", "ssv lastcheck 20370101"]),
        make("pending", &["jo", &write, "jc"]),
        make("links", &["ssv state 0", "sif /file links_count 7"]),
        make("damaged", &["ssv state 0", "sif /file mode 0"]),
    ];
    let newer = make("newer", &["jo", &write, "jc", "feature FEATURE_R30"]);
    let options: [&[&str]; 8] =
        [&["-p"], &["-a", "-f"], &["-y"], &["-fy"], &["-n"], &["-fn"], &["-p", "-y"], &[]];
    let mut cases: Vec<(&String, &[&str])> = Vec::new();
    for image in &images {
        cases.extend(options.iter().map(|options| (image, *options)));
    }
    cases.extend([
        (&images[8], ["-p", "-E", "journal_only"].as_slice()),
        (&wiped, &["-fy", "-b", "8193", "-B", "1024"]),
        (&wiped, &["-fy", "-b", "8193"]),
        (&wiped, &["-fn", "-b", "8193", "-B", "1024"]),
        (&wiped, &["-fy", "-b", "8192", "-B", "1024"]),
        (&wiped, &["-y"]),
        (&wiped, &["-p", "-E", "journal_only"]),
        (&newer, &["-p"]),
        (&newer, &["-y"]),
        (&newer, &["-fy"]),
        (&images[8], &["-p", "-b", "8193"]),
        (&images[8], &["-fy", "-b", "8193"]),
        (&sound, &["-fy", "-b", "8193"]),
    ]);
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    let program = linked(&scratch, "fsck.ext4");
    for (image, options) in cases {
        fs::copy(image, &ours).expect("copy");
        fs::copy(image, &theirs).expect("copy");
        let (their_code, they_said) = answer(Command::new("e2fsck").args(options).arg(&theirs));
        let (our_code, we_said) = answer(Command::new(&program).args(options).arg(&ours));
        let what = format!("{image} {options:?}:\n{we_said}\n{they_said}");
        assert_eq!(our_code, their_code, "{what}");
        if !image.ends_with("wiped") && !options.contains(&"-b") {
            // e2fsck replays no journal in memory for -fn; the tables of a repair may differ.
            let is_same = their_code < 4 && !(image.ends_with("pending") && options == ["-fn"]);
            assert!(!is_same || common(&we_said) == common(&they_said), "{what}");
        }
        if our_code < 4 && !options.contains(&"-n") && !options.contains(&"-fn") {
            judges::check(&ours);
            let state = |image: &str| {
                let told = ["Filesystem state", "Mount count"];
                let lines = judges::header(image).into_iter();
                lines.filter(|(name, _)| told.contains(&name.as_str())).collect::<Vec<_>>()
            };
            assert_eq!(state(&ours), state(&theirs), "{what}");
        } else {
            let is_written = fs::read(&ours).expect("image") != fs::read(image).expect("image");
            // A journal is replayed before -p stops.
            assert!(!is_written, "written: {what}");
        }
    }
}

/// A copy of the superblock does not say that the journal waits, which is replayed all the same.
#[test]
fn a_journal_is_replayed_where_a_copy_of_the_superblock_counts() {
    if !judges::ready("e2fsck") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-copy-and-journal");
    let block = scratch.join("block");
    fs::write(&block, [9; 1024]).expect("block");
    let write = format!("jw -b 9000 {block}");
    let pending = changed(&scratch, &image(&scratch), "pending", &["jo", &write, "jc"]);
    let copy = scratch.join("copy");
    for program in [linked(&scratch, "fsck.ext4"), "e2fsck".into()] {
        for options in ["-p", "-fy"] {
            fs::copy(&pending, &copy).expect("copy");
            let (code, said) =
                answer(Command::new(&program).args([options, "-b", "8193", copy.as_str()]));
            assert_eq!(code, 1, "{program:?} {options}: {said}");
            let bytes = fs::read(&copy).expect("image");
            assert!(bytes[9000 << 10..9001 << 10] == [9; 1024], "{program:?} {options}: {said}");
        }
    }
}

/// The journal is replayed where no host uses the volume, and afterwards none does.
#[test]
fn a_journal_under_multiple_mount_protection() {
    if !judges::ready("mke2fs") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-mmp");
    let (block, image) = (scratch.join("block"), scratch.join("image"));
    fs::write(&block, [9; 1024]).expect("block");
    let features = "mmp,^metadata_csum";
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features, &image, "16M"]);
    let write = format!("jw -b 9000 {block}");
    let pending = changed(&scratch, &image, "pending", &["jo", &write, "jc"]);
    let said = answer(Command::new("dumpe2fs").args(["-h", &pending])).1;
    let (_, rest) = said.split_once("MMP block number:").expect("dumpe2fs");
    let at: usize = rest.split_whitespace().next().expect("block").parse().expect("number");
    let sequence = |bytes: &[u8]| bytes[(at << 10) + 4..(at << 10) + 8].to_vec();
    let (copy, before) = (scratch.join("copy"), fs::read(&pending).expect("image"));
    let clean = sequence(&before);
    let program = linked(&scratch, "fsck.ext4");
    fs::copy(&pending, &copy).expect("copy");
    let (code, said) = answer(Command::new(&program).args(["-p", copy.as_str()]));
    assert!(code <= 1, "{said}");
    let bytes = fs::read(&copy).expect("image");
    assert!(bytes[9000 << 10..9001 << 10] == [9; 1024], "not replayed: {said}");
    assert_eq!(sequence(&bytes), clean);
    // A check that was cut off, or runs elsewhere.
    let mut used = before;
    used[(at << 10) + 4..(at << 10) + 8].copy_from_slice(&0xE24D_4D50_u32.to_le_bytes());
    for options in [&["-p"][..], &["-y"], &["-fy"], &["-p", "-E", "journal_only"]] {
        fs::write(&copy, &used).expect("copy");
        let output = Command::new(&program).args(options).arg(&copy).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(8) && said.contains("mmp"), "{options:?}: {said}");
        assert!(used == fs::read(&copy).expect("image"), "{options:?}: written");
    }
}

#[test]
fn fsck_of_util_linux_runs_it() {
    if !judges::can_mount() || !judges::ready("fsck") {
        return;
    }
    let scratch = Scratch::new("fsck-util-linux");
    let damaged = changed(&scratch, &image(&scratch), "links", &["sif /file links_count 7"]);
    let folder = linked(&scratch, "fsck.ext4").parent().expect("folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").expect("PATH"));
    let device = attach(&damaged, false);
    let fsck = |options: &[&str]| {
        let mut fsck = Command::new("fsck");
        answer(fsck.env("PATH", &path).args(["-t", "ext4", "-V"]).args(options).arg(&device))
    };
    let (first, second) = (fsck(&["-a", "-C0", "-f"]), fsck(&["-a", "-C0"]));
    detach(&device);
    assert!(first.1.contains(&folder) && first.1.contains("7 links, should be 1"), "{first:?}");
    assert_eq!(first.0, 1, "{first:?}");
    assert!(second.0 == 0 && second.1.contains("lab: clean, "), "{second:?}");
    judges::check(&damaged);
}

#[test]
fn a_mounted_volume_is_only_looked_at() {
    if !judges::can_mount() {
        return;
    }
    let scratch = Scratch::new("fsck-mounted");
    let image = image(&scratch);
    let program = linked(&scratch, "e2fsck");
    let mounted = Mounted::new(&scratch, &image, "ro");
    for options in ["-n", "-p", "-fn"] {
        let (ours, we_said) = answer(Command::new(&program).args([options, &image]));
        let expected = if options == "-p" { 8 } else { 0 };
        assert_eq!(ours, expected, "{options}: {we_said}");
        let warns = we_said.starts_with(&format!("Warning!  {image} is mounted.\n"));
        assert_eq!(warns, options != "-p", "{options}: {we_said}");
    }
    drop(mounted);
}

/// A tree with programs and the libraries that they need.
fn root_with(scratch: &Scratch, programs: &[(&str, &str)]) -> String {
    let root = scratch.join("root");
    for folder in ["proc", "dev", "bin"] {
        fs::create_dir_all(format!("{root}/{folder}")).expect("mkdir");
    }
    fs::write(format!("{root}/file"), [5; 100]).expect("write");
    for (program, name) in programs {
        fs::copy(program, format!("{root}/bin/{name}")).expect("program");
        let (_, needed) = answer(Command::new("ldd").arg(program));
        for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = format!("{root}{library}");
            let folder = to.rsplit_once('/').expect("folder").0;
            fs::create_dir_all(folder).expect("mkdir");
            fs::copy(library, &to).expect("library");
        }
    }
    root
}

#[test]
fn a_root_that_is_mounted_read_only_is_repaired() {
    if !judges::can_mount() || !judges::ready("ldd") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-root");
    let e2fsck = run("sh", &["-c", "command -v e2fsck"]);
    let programs = [(env!("CARGO_BIN_EXE_seekless"), "fsck.ext4"), (e2fsck.trim(), "e2fsck.real")];
    let (tree, sound) = (root_with(&scratch, &programs), scratch.join("image"));
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-L", "root", "-d", &tree, &sound, "256M"]);
    let damaged = changed(&scratch, &sound, "damaged", &["sif /file links_count 7"]);
    let copy = scratch.join("copy");
    for (options, code) in [("-n", 0), ("-fn", 4), ("-fp", 3), ("-fy", 3), ("-p", 0)] {
        for program in ["fsck.ext4", "e2fsck.real"] {
            run("cp", &["--sparse=always", &damaged, &copy]);
            let device = attach(&copy, false);
            let at = scratch.join("at");
            let script = format!(
                "mkdir -p {at} && mount -o ro {device} {at} && mount -t proc proc {at}/proc && \
                 mount --bind /dev {at}/dev && exec chroot {at} /bin/{program} {options} {device}"
            );
            let (ended, said) = answer(Command::new("unshare").args(["-m", "sh", "-c", &script]));
            detach(&device);
            assert_eq!(ended, code, "{program} {options}: {said}");
            assert_eq!(said.contains("REBOOT SYSTEM"), code == 3, "{program} {options}: {said}");
            if code == 3 {
                judges::check(&copy);
            }
        }
    }
}

#[test]
fn fsck_fat_and_the_binary_in_its_place_agree() {
    if !judges::ready("fsck.fat") || !judges::ready("mkfs.fat") || !judges::ready("mcopy") {
        return;
    }
    let scratch = Scratch::new("fsck-fat");
    let (image, file) = (scratch.join("image"), scratch.join("file"));
    fs::write(&file, [1; 3000]).expect("file");
    run("truncate", &["-s", "4M", &image]);
    run("mkfs.fat", &["-n", "LABEL", &image]);
    run("mcopy", &["-i", &image, &file, "::/one"]);
    let program = linked(&scratch, "fsck.vfat");
    let ask = |options: &[&str]| answer(Command::new(&program).args(options).arg(&image));
    for options in [["-n"].as_slice(), &["-a", "-w", "-V"], &["-p", "-v"], &["-y"], &["-n", "-l"]] {
        let (code, said) = ask(options);
        assert_eq!(code, 0, "{options:?}: {said}");
        assert_eq!(said.contains("one\n"), options.contains(&"-l"), "{said}");
    }
    for (options, code) in [(["-r"].as_slice(), 8), (&["-a", "-t"], 8), (&["-a", "-X"], 16)] {
        assert_eq!(ask(options).0, code, "{options:?}");
    }
    // The second FAT differs.
    let mut bytes = fs::read(&image).expect("image");
    let sector = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let second = (sector(14) + sector(22)) * sector(11);
    bytes[second + 30] ^= 0x5A;
    fs::write(&image, bytes).expect("write");
    assert_eq!(ask(&["-n"]).0, 4);
    assert_eq!(ask(&["-a"]).0, 1);
    run("fsck.fat", &["-n", &image]);
    assert_eq!(ask(&["-n"]).0, 0);
}
