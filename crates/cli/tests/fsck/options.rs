//! Options of e2fsck: those that are done, accepted or refused.

use crate::judges::{self, Scratch, run, seekless, text};
use crate::{answer, changed, image, linked};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

#[test]
fn options_are_accepted_or_refused_by_name() {
    if !judges::ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-options");
    let image = image(&scratch);
    let program = linked(&scratch, "e2fsck");
    let accepted = "-E nodiscard,no_optimize_extents,readahead_kb=5,fixes_only,ea_ver=2";
    for options in [
        accepted,
        "-k -d -F -r",
        "-v -tt",
        "-C0",
        "-C -1",
        "-E inode_count_fullmap",
        "-j none",
        "-E unshare_blocks",
    ] {
        let (code, said) =
            answer(Command::new(&program).arg("-fp").args(options.split(' ')).arg(&image));
        assert_eq!(code, 0, "{options}: {said}");
    }
    let refused = [
        ("-c", 8),
        ("-l list", 8),
        ("-L list", 8),
        ("-E discard -z undo", 8),
        ("-E optimize_extents", 8),
        ("-E nonsense", 16),
        ("-E ea_ver=3", 16),
        ("-D -E fixes_only", 8),
        ("-s", 16),
        ("-S", 16),
        ("-b first", 16),
        ("-C 99", 8),
    ];
    let before = fs::read(&image).expect("image");
    for (options, code) in refused {
        let mut ours = Command::new(&program);
        let output = ours.arg("-fy").args(options.split(' ')).arg(&image).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options}: {said}");
        let option = options.split(' ').next().expect("option");
        assert!(said.contains(option), "{options}: {said}");
        // `seekless check` refuses the same.
        let args: Vec<&str> = ["check", "-y"].into_iter().chain(options.split(' ')).collect();
        let check = seekless(&[args.as_slice(), &[&image]].concat());
        assert_eq!(check.status.code(), Some(code), "{options}: {check:?}");
    }
    assert!(before == fs::read(&image).expect("image"), "a refusal changed it");
    assert_eq!(answer(Command::new(&program).arg("-V")).0, 0);
    assert_eq!(answer(&mut Command::new(&program)).0, 16);
    let fat = scratch.join("fat");
    text(&seekless(&["mkfs", "--format", "fat16", "--size", "16M", &fat]));
    assert_eq!(seekless(&["check", "-y", "-D", &fat]).status.code(), Some(16));
}

/// Directories are written to other clusters, and quotas count theirs.
#[test]
fn volumes_with_further_features_are_optimized() {
    if !judges::ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-optimized");
    image(&scratch);
    let (tree, image) = (scratch.join("tree"), scratch.join("optimized"));
    for feature in ["bigalloc,^resize_inode", "quota", "ea_inode", "verity"] {
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", feature, "-d", &tree, &image, "32M"]);
        run("sh", &["-c", &format!("e2fsck -fy {image} || test $? = 1")]);
        let before = fs::read(&image).expect("image");
        // Directories that become shorter change the usage of quotas, which counts as a correction.
        let done = seekless(&["check", "-y", "-D", &image]);
        assert!(matches!(done.status.code(), Some(0 | 1)), "{feature}: {done:?}");
        assert!(before != fs::read(&image).expect("image"), "{feature}: not written");
        run("e2fsck", &["-fn", &image]);
    }
}

/// Lines of `-C` are those of e2fsck: pass, position, maximum, name.
#[test]
fn the_progress_comes_to_a_descriptor() {
    if !judges::ready("e2fsck") {
        return;
    }
    let scratch = Scratch::new("fsck-progress");
    let image = image(&scratch);
    let lines = |program: &str| {
        let told = scratch.join("told");
        run("sh", &["-c", &format!("{program} -fn -C 7 {image} 7>{told}")]);
        fs::read_to_string(&told).expect("lines")
    };
    let check = |said: &str| {
        let mut last = (0, 0);
        for line in said.lines() {
            let mut words = line.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect(line);
            let (pass, done, of) = (number(), number(), number());
            assert!((pass, done) >= last && done <= of && pass <= 5, "{line}");
            assert_eq!(words.next(), Some("lab"), "{line}");
            last = (pass, done);
        }
        assert_eq!(last.0, 5, "{said}");
    };
    let program = linked(&scratch, "fsck.ext4").display().to_string();
    let (ours, theirs) = (lines(&program), lines("e2fsck"));
    check(&ours);
    check(&theirs);
    // A repair of `seekless check` tells it too.
    check(&lines(&format!("{} check", env!("CARGO_BIN_EXE_seekless"))));
    let quiet = format!("{program} -fn -C -7 {image} 7>{0}; cat {0}", scratch.join("quiet"));
    let said = run("sh", &["-c", &quiet]);
    assert!(!said.contains(" lab\n"), "{said}");
}

#[test]
fn directories_are_written_again_with_d() {
    if !judges::ready("e2fsck") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-directories");
    let doomed: Vec<String> =
        (0..100).map(|number| format!("rm /many/a-name-of-some-length-{number}")).collect();
    let doomed: Vec<&str> = doomed.iter().map(String::as_str).collect();
    let image = changed(&scratch, &image(&scratch), "sparse", &doomed);
    let names = || judges::timeless(&judges::manifest(&image, &[]));
    let blocks = || {
        let said = run("debugfs", &["-R", "stat /many", &image]);
        let size = said.split("Size: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        size.and_then(|size| size.parse::<u64>().ok()).expect("size") / 1024
    };
    let (before, many) = (names(), blocks());
    let (code, said) = answer(Command::new(linked(&scratch, "fsck.ext4")).args(["-fyD", &image]));
    assert!(code == 0 && said.contains("FILE SYSTEM WAS MODIFIED"), "{said}");
    judges::check(&image);
    judges::same("names", &before, &names());
    assert!(blocks() < many, "{} of {many} blocks", blocks());
    // Nothing is left to do for e2fsck.
    let (code, said) = answer(Command::new("e2fsck").args(["-fn", &image]));
    assert_eq!(code, 0, "{said}");
}

#[test]
fn free_blocks_are_discarded() {
    if !judges::ready("e2fsck") || !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-discard");
    let image = changed(&scratch, &image(&scratch), "removed", &["rm /file"]);
    // Random bytes take room, wherever they are written.
    let noise: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = fs::read(&image).expect("image");
    let end = bytes.len() - noise.len();
    assert!(bytes[end..].iter().all(|&byte| byte == 0), "the last blocks are free");
    let mut with_noise = [&bytes[..end], &noise].concat();
    with_noise[..512].fill(0x55);
    fs::write(&image, &with_noise).expect("write");
    let allocated = || fs::metadata(&image).expect("image").blocks();
    let before = allocated();
    let names = judges::timeless(&judges::manifest(&image, &[]));
    let program = linked(&scratch, "fsck.ext4");
    let (code, said) = answer(Command::new(&program).args(["-fp", "-E", "discard", &image]));
    assert_eq!(code, 0, "{said}");
    assert!(allocated() + 2048 <= before, "{} of {before} sectors", allocated());
    judges::check(&image);
    judges::same("names", &names, &judges::timeless(&judges::manifest(&image, &[])));
    // The bytes of the boot loader stay.
    assert_eq!(fs::read(&image).expect("image")[..1024], with_noise[..1024]);
}

#[test]
fn json_has_the_values_that_a_repair_sets() {
    if !judges::ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-values");
    let commands = ["sif /file links_count 7", "sif /file blocks 8", "ssv state 0"];
    let image = changed(&scratch, &image(&scratch), "values", &commands);
    let report = seekless(&["--json", "check", "-y", &image]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let values = |code: &str| {
        let findings = report["findings"].as_array().expect("findings");
        let found = findings.iter().find(|it| it["code"] == code).expect(code);
        (found["values"]["old"].as_u64(), found["values"]["new"].as_u64())
    };
    assert_eq!(values("inode.links-high"), (Some(7), Some(1)));
    let said = run("debugfs", &["-R", "stat /file", &image]);
    let sectors = said.split("Blockcount: ").nth(1).and_then(|it| it.split_whitespace().next());
    let sectors = sectors.and_then(|it| it.parse().ok());
    assert_eq!(values("inode.block-count"), (Some(8), sectors));
    assert_eq!(values("superblock.not-clean"), (None, None));
}
