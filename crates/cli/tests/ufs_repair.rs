//! `seekless check -p` and `-y`: exit codes, JSON, and repaired images as seen by other readers.
//! Those need The Sleuth Kit, GRUB and dissect.ffs; reports and passes without.

#[allow(dead_code, reason = "what the check says is judged elsewhere")]
#[path = "../../ffs/tests/testsuite/damage/golden.rs"]
mod golden;
#[path = "../../ffs/tests/testsuite/damage/images.rs"]
mod images;
mod judges;
#[allow(dead_code, reason = "not every test does all to its patient")]
#[path = "../../ffs/tests/testsuite/damage/patient.rs"]
mod patient;

use golden::{CASES, Case};
use judges::{Scratch, dissect, manifest, ready, run, seekless, text};
use patient::Patient;
use std::fs;
use std::process::Command;

/// The cases of an image, each with the damaged bytes.
fn patients(image: &str) -> impl Iterator<Item = (&'static Case, Vec<u8>)> {
    let cases = CASES.iter().filter(move |case| case.fits(image));
    cases.map(move |case| {
        let mut patient = Patient::new(image);
        (case.recipe)(&mut patient);
        (case, patient.bytes)
    })
}

/// Every third case of an image. The other byte orders, versions and judges have the others.
fn every_third(image: &str, first: usize) -> impl Iterator<Item = (&'static Case, Vec<u8>)> {
    patients(image).skip(first).step_by(3)
}

fn code(args: &[&str]) -> i32 {
    seekless(args).status.code().expect("an exit code")
}

fn repaired(image: &str, what: &str, bytes: &[u8]) {
    fs::write(image, bytes).expect("image");
    assert_eq!(code(&["check", "-y", image]), 1, "{what}");
    text(&seekless(&["check", image]));
}

#[test]
fn exit_codes_are_those_of_fsck() {
    let scratch = Scratch::new("repair-codes");
    let image = scratch.join("image");
    let mut seen = [false; 2];
    for (case, bytes) in patients("ufs2-be") {
        let what = case.name;
        fs::write(&image, &bytes).expect("image");
        assert_eq!(code(&["check", &image]), 4, "{what}");
        assert_eq!(code(&["check", "-n", &image]), 4, "{what}");
        assert!(fs::read(&image).expect("image") == bytes, "{what}: something was written");
        let preen = seekless(&["check", "-p", &image]);
        let said = String::from_utf8_lossy(&preen.stdout).into_owned();
        if case.after_a_crash {
            assert_eq!(preen.status.code(), Some(1), "{what}: {said}");
        } else {
            assert_eq!(preen.status.code(), Some(4), "{what}: {said}");
            assert!(said.contains("unexpected inconsistency"), "{what}: {said}");
            assert!(fs::read(&image).expect("image") == bytes, "{what}: something was written");
            assert_eq!(code(&["check", "-y", &image]), 1, "{what}");
        }
        seen[usize::from(case.after_a_crash)] = true;
        for option in ["-n", "-p", "-y"] {
            assert_eq!(code(&["check", option, &image]), 0, "{what} {option}");
        }
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn what_cannot_be_checked_is_an_operational_error() {
    let scratch = Scratch::new("repair-errors");
    let image = scratch.join("image");
    for option in ["-n", "-p", "-y"] {
        assert_eq!(code(&["check", option, &image]), 8, "no file, {option}");
    }
    fs::write(&image, vec![0; 1 << 20]).expect("image");
    for option in ["-n", "-p", "-y"] {
        let output = seekless(&["check", option, &image]);
        assert_eq!(output.status.code(), Some(8), "nothing in it, {option}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with("seekless: ") && said.contains("no known file system"), "{said}");
    }
    for wrong in [&["-p", "-y"][..], &["-n", "-y"], &["--no-such"], &[]] {
        let wrong = [&["check"], wrong].concat();
        assert_eq!(code(&wrong), 16, "{wrong:?}");
        assert_eq!(code(&[&["--json"], &wrong[..]].concat()), 16, "{wrong:?}");
    }
    assert_eq!(code(&["check", "--help"]), 0);
    // Other commands keep their exit codes.
    assert_eq!(code(&["info"]), 2);
}

#[test]
fn findings_say_in_json_whether_they_were_repaired() {
    let scratch = Scratch::new("repair-json");
    let image = scratch.join("image");
    let (_, bytes) = patients("ufs1-le").find(|(case, _)| case.name == "a lost name").expect("it");
    fs::write(&image, bytes).expect("image");
    let report = |option: &str| -> serde_json::Value {
        let output = seekless(&["check", option, "--json", &image]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let found = report("-n");
    assert_eq!((&found["mode"], &found["outcome"]), (&"check".into(), &"left".into()), "{found}");
    assert_eq!(found["findings"][0]["repaired"], false, "{found}");
    assert_eq!(found["findings"][0]["code"], "inode.unreferenced", "{found}");
    assert_eq!(found["findings"][0]["class"], "expected", "{found}");
    assert_eq!(found["findings"][0]["phase"], 4, "{found}");
    assert_eq!(found["findings"][0]["number"], 1, "{found}");
    assert!(found["findings"][0]["location"]["inode"].is_u64(), "{found}");
    let repaired = report("-y");
    assert_eq!((&repaired["mode"], &repaired["clean"]), (&"repair".into(), &true.into()));
    let findings = repaired["findings"].as_array().expect("findings");
    assert!(findings.iter().all(|finding| finding["repaired"] == true), "{repaired}");
    assert_eq!(report("-p")["outcome"], "clean");
    let names = text(&seekless(&["ls", &image, "/lost+found"]));
    assert!(names.contains('#'), "{names}");
}

#[test]
fn an_image_in_use_is_checked_but_not_repaired() {
    let scratch = Scratch::new("repair-locked");
    let image = scratch.join("image");
    let (_, bytes) = patients("ufs2-le").next().expect("a case");
    fs::write(&image, &bytes).expect("image");
    let path = std::path::Path::new(&image);
    let lock = seekless_device::FileDevice::open_locked(path).expect("lock");
    for option in ["-p", "-y"] {
        let output = seekless(&["check", option, &image]);
        assert_eq!(output.status.code(), Some(8), "{option}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("in use"), "{said}");
    }
    assert!(fs::read(&image).expect("image") == bytes, "something was written");
    assert_eq!(code(&["check", "-n", &image]), 4);
    drop(lock);
    assert_eq!(code(&["check", "-p", &image]), 1);
}

/// The Sleuth Kit reads UFS1 in both byte orders; for UFS2 it expects the superblock at FreeBSD's
/// offset, and makefs has put it elsewhere.
#[test]
fn the_sleuth_kit_reads_every_repaired_image() {
    if !ready("fsstat") || !ready("tsk_recover") || !ready("rsync") {
        return;
    }
    for (first, name) in ["ufs1-le", "ufs1-be"].into_iter().enumerate() {
        let scratch = Scratch::new("repair-tsk");
        let (image, ours, theirs) =
            (scratch.join("image"), scratch.join("ours"), scratch.join("theirs"));
        for (case, bytes) in every_third(name, first) {
            let what = format!("{name}: {}", case.name);
            repaired(&image, &what, &bytes);
            run("fsstat", &[&image]);
            let names = run("fls", &["-r", "-p", "-u", &image]);
            let listed =
                manifest(&image, &[]).lines().filter(|line| line.contains(" type=")).count();
            // The Sleuth Kit shows a virtual folder for files without a name.
            let names: Vec<&str> =
                names.lines().filter(|line| !line.ends_with("$OrphanFiles")).collect();
            assert_eq!(names.len() + 1, listed, "{what}: {names:?}");
            text(&seekless(&["cp", "-r", &image, "/", &ours]));
            run("tsk_recover", &["-a", &image, &theirs]);
            let args = ["-rcni", "--delete", "--min-size=1", &format!("{ours}/"), &theirs];
            let difference = run("rsync", &args);
            let is_file = |line: &&str| line.starts_with(">f") || line.starts_with("*deleting");
            let files: Vec<&str> = difference.lines().filter(is_file).collect();
            assert!(files.is_empty(), "{what}: {files:?}");
            fs::remove_dir_all(&ours).expect("rm");
            fs::remove_dir_all(&theirs).expect("rm");
        }
    }
}

#[test]
fn grub_reads_every_repaired_image() {
    if !ready("grub-fstest") {
        return;
    }
    let scratch = Scratch::new("repair-grub");
    let image = scratch.join("image");
    for (first, name) in [(2, "ufs1-le"), (1, "ufs2-le")] {
        for (case, bytes) in every_third(name, first) {
            let what = format!("{name}: {}", case.name);
            repaired(&image, &what, &bytes);
            let said = run("grub-fstest", &[&image, "ls", "(loop0)/"]);
            let names = text(&seekless(&["ls", &image, "/"]));
            for name in names.split_whitespace() {
                assert!(said.contains(name), "{what}: {name} is not in {said}");
            }
        }
    }
}

/// Volumes with a journal of soft updates that were not unmounted (`journaled::images` of the
/// crash tests): the journal recovers them, and other readers read them then.
#[test]
fn other_readers_read_volumes_that_a_journal_recovered() {
    let scratch = Scratch::new("repair-journal");
    let image = scratch.join("image");
    let images: [(&str, &[u8]); 2] = [
        ("ufs1", include_bytes!("../../ffs/tests/images/suj-ufs1.img.gz")),
        ("ufs2", include_bytes!("../../ffs/tests/images/suj-ufs2.img.gz")),
    ];
    for (what, packed) in images {
        let bytes = images::unpack(packed);
        fs::write(&image, &bytes).expect("image");
        let report = |option: &str, wanted: i32| -> serde_json::Value {
            let output = seekless(&["check", option, "--json", &image]);
            assert_eq!(output.status.code(), Some(wanted), "{what} {option}");
            serde_json::from_slice(&output.stdout).expect("JSON")
        };
        assert_eq!(report("-n", 4)["findings"][0]["code"], "journal.pending", "{what}");
        assert!(fs::read(&image).expect("image") == bytes, "{what}: something was written");
        let refused = seekless(&["tune", "-L", "label", &image]);
        assert!(!refused.status.success(), "{what}: it was not unmounted");
        assert_eq!(report("-p", 1)["outcome"], "corrected", "{what}");
        for option in ["-n", "-p", "-y"] {
            assert_eq!(report(option, 0)["outcome"], "clean", "{what} {option}");
        }
        let names = text(&seekless(&["ls", &image, "/kept"]));
        assert!(names.contains("whole"), "{what}: {names}");
        let listed = manifest(&image, &[]);
        if ready("fsstat") && ready("fls") {
            run("fsstat", &[&image]);
            let names = run("fls", &["-r", "-p", "-u", &image]);
            let names = names.lines().filter(|line| !line.ends_with("$OrphanFiles")).count();
            let listed = listed.lines().filter(|line| line.contains(" type=")).count();
            assert_eq!(names + 1, listed, "{what}");
        }
        if dissect::ready() {
            dissect::agrees(what, &dissect::of_manifest(&listed), &image);
        }
        text(&seekless(&["tune", "-L", "label", &image]));
        // A journal that is not whole is not used.
        let mut damaged = bytes.clone();
        let header = |at: &usize| damaged[*at..*at + 8] == 9u64.to_le_bytes();
        let oldest = (0..damaged.len()).step_by(512).find(header).expect("the oldest segment");
        damaged[oldest..oldest + 512].fill(0);
        fs::write(&image, &damaged).expect("image");
        assert_eq!(report("-n", 4)["findings"][0]["code"], "journal.damaged", "{what}");
        assert_eq!(report("-p", 4)["outcome"], "left", "{what}");
        assert!(fs::read(&image).expect("image") == damaged, "{what}: something was written");
        assert_eq!(report("-y", 1)["outcome"], "corrected", "{what}");
        assert_eq!(report("-n", 0)["outcome"], "clean", "{what}");
        if dissect::ready() {
            dissect::agrees(what, &dissect::of_manifest(&manifest(&image, &[])), &image);
        }
    }
}

#[test]
fn dissect_reads_every_repaired_image() {
    if !dissect::ready() {
        return;
    }
    let scratch = Scratch::new("repair-dissect");
    let image = scratch.join("image");
    for (case, bytes) in patients("ufs2-le") {
        repaired(&image, case.name, &bytes);
        dissect::agrees(case.name, &dissect::of_manifest(&manifest(&image, &[])), &image);
    }
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Images with check hashes, several groups and uninitialised inodes.
#[test]
fn images_of_freebsd_are_repaired() {
    let images = dissect::images();
    if !dissect::ready() || images.is_empty() {
        judges::skip("there are no images of FreeBSD (.ci/judges)");
        return;
    }
    let scratch = Scratch::new("repair-freebsd");
    let image = scratch.join("image");
    let mut agreed = 0;
    for packed in &images {
        let sound = Command::new("gzip").arg("-dc").arg(packed).output().expect("gzip").stdout;
        let busy = |at: &usize| sound[*at..*at + 512].iter().any(|&byte| byte != 0);
        let busy: Vec<usize> = (0..sound.len() - 511).step_by(512).filter(busy).collect();
        for seed in 0..8 {
            let what = format!("{}, seed {seed}", packed.display());
            let mut random = Random(seed);
            let mut bytes = sound.clone();
            for _ in 0..20 {
                let at = busy[random.below(busy.len())] + random.below(512);
                bytes[at] = random.below(256) as u8;
            }
            fs::write(&image, &bytes).expect("image");
            let code = code(&["check", "-y", &image]);
            assert!(code == 0 || code == 1, "{what}: {code}");
            text(&seekless(&["check", &image]));
            let wanted = dissect::of_manifest(&manifest(&image, &[]));
            // Readers display damaged names and targets differently.
            if !wanted.iter().any(|line| line.contains('\\')) {
                dissect::agrees(&what, &wanted, &image);
                agreed += 1;
            }
        }
    }
    assert!(agreed > 16, "only {agreed} were judged");
}

/// Addresses of the fragments of a file, as The Sleuth Kit lists them; those of indirect blocks are
/// not among them.
fn fragments(image: &str, ino: &str) -> Vec<u64> {
    let told = run("istat", &[image, ino]);
    let list = told.split("Direct Blocks:").nth(1).expect("a list of blocks");
    let list = list.split("Indirect Blocks:").next().expect("its end");
    list.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// A file's contents, as The Sleuth Kit reads them.
fn contents(image: &str, ino: &str) -> Vec<u8> {
    Command::new("icat").args([image, ino]).output().expect("icat").stdout
}

/// One block of a file of many becomes a hole where its number is none, and a copy where it is that of
/// another file, which stays whole. The pointer lies in the inode, or in an indirect block.
#[test]
fn the_sleuth_kit_reads_files_with_holes_and_copied_blocks() {
    if !["fls", "istat", "icat"].into_iter().all(ready) {
        return;
    }
    let scratch = Scratch::new("repair-blocks");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    let block = 32768;
    let filled = |seed: usize| -> Vec<u8> {
        (0..block * 16).map(|at| (at * 31 + at / 4093 * 17 + seed) as u8 | 1).collect()
    };
    let (first, second) = (filled(3), filled(101));
    fs::create_dir(&tree).expect("mkdir");
    fs::write(format!("{tree}/first"), &first).expect("write");
    fs::write(format!("{tree}/second"), &second).expect("write");
    for (format, width) in [("ufs1", 4), ("ufs2", 8)] {
        let build = ["build", &tree, "-o", &image, "--format", format, "--force", "--size", "8M"];
        text(&seekless(&build));
        let sound = fs::read(&image).expect("image");
        let names = run("fls", &[&image]);
        let ino = |name: &str| -> String {
            let line = names.lines().find(|line| line.ends_with(name)).expect(name);
            line.split([' ', ':']).nth(1).expect("inode").into()
        };
        let (one, two) = (ino("first"), ino("second"));
        let (of_one, of_two) = (fragments(&image, &one), fragments(&image, &two));
        let per_block = block / 4096;
        let pointer = |number: u64| number.to_le_bytes()[..width].to_vec();
        // Blocks 5 and 14 of the second file: twelve pointers are in the inode.
        for nth in [5, 14] {
            let is_at = |pointers: &[u64]| {
                let wanted: Vec<u8> = pointers.iter().flat_map(|&number| pointer(number)).collect();
                let found = sound.windows(wanted.len()).enumerate();
                let places: Vec<usize> = found
                    .filter(|(at, bytes)| at % 4 == 0 && *bytes == wanted)
                    .map(|(at, _)| at)
                    .collect();
                assert_eq!(places.len(), 1, "{format}: pointers of the second file");
                places[0]
            };
            let at = is_at(&[of_two[nth * per_block], of_two[(nth + 1) * per_block]]);
            for (what, wrong) in [("a hole", u64::from(u32::MAX >> 1)), ("a copy", of_one[40])] {
                let mut bytes = sound.clone();
                bytes[at..at + width].copy_from_slice(&pointer(wrong));
                repaired(&image, &format!("{format}: {what} in block {nth}"), &bytes);
                assert!(contents(&image, &one) == first, "{format}: {what}: the first file");
                let mut wanted = second.clone();
                let range = nth * block..(nth + 1) * block;
                match what {
                    "a hole" => wanted[range].fill(0),
                    _ => wanted[range].copy_from_slice(&first[5 * block..6 * block]),
                }
                assert!(contents(&image, &two) == wanted, "{format}: {what} in block {nth}");
                let (of_one, of_two) = (fragments(&image, &one), fragments(&image, &two));
                let is_shared = of_two.iter().any(|number| *number > 0 && of_one.contains(number));
                assert!(!is_shared, "{format}: {what} in block {nth}");
            }
        }
    }
}
