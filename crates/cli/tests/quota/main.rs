//! Quotas of images that are not in use. Of ext, e2fsck counts usage and debugfs reads the files; of
//! UFS, The Sleuth Kit reads the files and the images are made from trees that are counted here.

#[path = "../judges/mod.rs"]
mod judges;
mod ufs;

use judges::{Scratch, failure, ready, run, seekless, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

const KINDS: [&str; 3] = ["user", "group", "project"];
const IDS: [u32; 5] = [0, 7, 1000, 70_000, 3_000_000_000];

/// Numbers of a linear congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn id(&mut self) -> u32 {
        IDS[self.below(5) as usize]
    }
}

/// Only root may give files away.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    if !is_root {
        judges::skip("needs root");
    }
    is_root
}

/// A tree of files of several owners, with lists of their names.
fn tree(at: &Path, draw: &mut Draw) {
    for dir in ["etc", "d0", "d1", "d2"] {
        fs::create_dir_all(at.join(dir)).expect("mkdir");
    }
    fs::write(at.join("etc/passwd"), "root:x:0:0::/:\nalice:x:7:7::/:\nbob:x:1000:7::/:\n")
        .expect("write");
    fs::write(at.join("etc/group"), "wheel:x:0:\nstaff:x:7:\n").expect("write");
    fs::write(at.join("etc/projid"), "web:70000\n").expect("write");
    for n in 0..40 {
        let path = at.join(format!("d{}/{n}", draw.below(3)));
        let len = [0, 700, 9000, 200_000][draw.below(4) as usize];
        fs::write(&path, vec![1; draw.below(len + 1) as usize]).expect("write");
        chown(&path, Some(draw.id()), Some(draw.id())).expect("chown");
    }
}

fn answer(args: &[&str]) -> (i32, Value) {
    let output = seekless(args);
    let code = output.status.code().expect("exit code");
    let said = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    (code, serde_json::from_slice(said).expect("JSON"))
}

/// Limits and usage of an owner: space, soft, hard; inodes, soft, hard.
type Numbers = [u64; 6];

/// By kind and number.
type Quotas = BTreeMap<(String, u32), Numbers>;

fn reported(image: &str) -> Quotas {
    let (code, report) = answer(&["quota", "report", "--json", image]);
    assert_eq!(code, 0, "{report}");
    let mut quotas = Quotas::new();
    for book in report["quotas"].as_array().expect("quotas") {
        for owner in book["owners"].as_array().expect("owners") {
            let numbers = ["space", "inodes"].map(|resource| {
                ["used", "soft", "hard"].map(|field| owner[resource][field].as_u64().expect(field))
            });
            let kind = book["kind"].as_str().expect("kind").to_string();
            let id = owner["id"].as_u64().expect("id") as u32;
            let [[a, b, c], [d, e, f]] = numbers;
            quotas.insert((kind, id), [a, b, c, d, e, f]);
        }
    }
    quotas
}

/// The quotas as debugfs prints them; limits of space in units of 1 KiB.
fn by_debugfs(image: &str) -> Quotas {
    let mut quotas = Quotas::new();
    for kind in KINDS {
        let listing = run("debugfs", &["-R", &format!("list_quota {kind}"), image]);
        for line in listing.lines().skip(1) {
            let numbers: Vec<u64> =
                line.split_whitespace().map(|word| word.parse().expect(line)).collect();
            let [id, space, soft, hard, inodes, files_soft, files_hard] = numbers[..] else {
                panic!("{line}");
            };
            let numbers = [space, soft << 10, hard << 10, inodes, files_soft, files_hard];
            if numbers != [0; 6] {
                quotas.insert((kind.to_string(), id as u32), numbers);
            }
        }
    }
    quotas
}

/// The differences that e2fsck prints: id, counted usage, recorded usage.
type Wrong = BTreeSet<(u32, [u64; 2], Option<[u64; 2]>)>;

fn by_e2fsck(image: &str) -> Wrong {
    let output = Command::new("e2fsck").args(["-fn", image]).output().expect("e2fsck");
    let said = String::from_utf8_lossy(&output.stderr);
    let mut wrong = Wrong::new();
    for line in said.lines().filter(|line| line.starts_with("[QUOTA WARNING]")) {
        // It prints ids from 2^31 on as negative numbers.
        let words = line.split(|c: char| !c.is_ascii_digit() && c != '-');
        let numbers: Vec<u64> =
            words.filter_map(|word| word.parse::<i64>().ok()).map(|number| number as u64).collect();
        wrong.insert(match numbers[..] {
            [id] => (id as u32, [0, 0], None),
            // An entry without usage.
            [id, _, _, 0, 0] => (id as u32, [0, 0], None),
            [id, space, inodes, old_space, old_inodes] => {
                (id as u32, [space, inodes], Some([old_space, old_inodes]))
            }
            _ => panic!("{line}"),
        });
    }
    assert_eq!(output.status.code(), Some(if wrong.is_empty() { 0 } else { 4 }), "{said}");
    wrong
}

/// The same by us, with the exit code.
fn compared(image: &str) -> (i32, Wrong) {
    let (code, found) = answer(&["quota", "check", "--json", image]);
    let usage = |usage: &Value| ["space", "inodes"].map(|it| usage[it].as_u64().expect(it));
    let differences = found["differences"].as_array().expect("differences");
    let wrong = differences.iter().map(|it| {
        let id = it["id"].as_u64().expect("id") as u32;
        let (counted, recorded) = (usage(&it["counted"]), usage(&it["recorded"]));
        // e2fsck prints no numbers of an entry that is missing.
        match recorded {
            [0, 0] => (id, [0, 0], None),
            _ => (id, counted, Some(recorded)),
        }
    });
    (code, wrong.collect())
}

#[test]
fn quotas_of_ext_by_e2fsck_and_debugfs() {
    if !is_root() || !ready("mke2fs") || !ready("debugfs") {
        return;
    }
    let scratch = Scratch::new("quota-ext");
    let image = scratch.join("image");
    let cases = [
        ["-b", "1024", "-O", "quota,project"],
        ["-b", "4096", "-O", "quota,project,^has_journal"],
        ["-b", "1024", "-O", "quota,project,bigalloc"],
        ["-b", "1024", "-O", "quota,project,^extent,^64bit,^metadata_csum"],
    ];
    for (seed, case) in (1..).zip(cases) {
        let mut draw = Draw(seed);
        let root = scratch.path().join(format!("tree{seed}"));
        tree(&root, &mut draw);
        let root = root.to_str().expect("path");
        let kinds = "quotatype=usrquota:grpquota:prjquota";
        run(
            "mke2fs",
            &[
                &["-q", "-F", "-t", "ext4", "-I", "256", "-E", kinds, "-d", root][..],
                &case,
                &[&image, "16M"],
            ]
            .concat(),
        );
        let mut limits: BTreeMap<(usize, u32), [u64; 4]> = BTreeMap::new();
        for round in 0..4 {
            // Usage by mke2fs, and after changes by debugfs, is stale.
            let expected = by_e2fsck(&image);
            assert!(!expected.is_empty());
            assert_eq!(compared(&image), (4, expected), "{case:?}, round {round}");
            let (code, refused) =
                answer(&["quota", "set", "--json", &image, "-u", "7", "--inodes-hard", "9"]);
            assert!(
                code == 4
                    && refused["error"]["message"]
                        .as_str()
                        .is_some_and(|why| why.contains("quota.usage")),
                "{refused}"
            );
            assert_eq!(answer(&["quota", "check", "-y", "--json", &image]).0, 1);
            assert_eq!(compared(&image), (0, Wrong::new()));
            assert!(by_e2fsck(&image).is_empty(), "{case:?}, round {round}");
            for _ in 0..5 {
                let (at, id) =
                    (draw.below(3) as usize, draw.id().wrapping_add(draw.below(2) as u32));
                let mut args: Vec<String> = ["quota", "set", "-q", &image].map(String::from).into();
                args.extend([format!("--{}", KINDS[at]), id.to_string()]);
                let numbers = limits.entry((at, id)).or_default();
                // Bytes are rounded up to 1 KiB.
                let options = ["space-soft", "space-hard", "inodes-soft", "inodes-hard"];
                for (n, option) in options.iter().enumerate() {
                    if n > 0 && draw.below(3) == 0 {
                        continue;
                    }
                    let limit = draw.below(4) * (1 + draw.below(200_000));
                    numbers[n] = if n < 2 { limit.next_multiple_of(1024) } else { limit };
                    args.extend([format!("--{option}"), limit.to_string()]);
                }
                text(&seekless(&args));
                assert!(by_e2fsck(&image).is_empty(), "{case:?}, {args:?}");
            }
            let quotas = reported(&image);
            assert_eq!(quotas, by_debugfs(&image), "{case:?}, round {round}");
            for ((at, id), [space_soft, space_hard, inodes_soft, inodes_hard]) in &limits {
                let numbers =
                    quotas.get(&(KINDS[*at].to_string(), *id)).copied().unwrap_or_default();
                let [_, a, b, _, c, d] = numbers;
                assert_eq!(
                    [a, b, c, d],
                    [*space_soft, *space_hard, *inodes_soft, *inodes_hard],
                    "{case:?}: {at} {id}"
                );
            }
            text(&seekless(&["check", &image]));
            for n in 0..3 {
                let (dir, file) = (draw.below(3), draw.below(40));
                let request = format!("sif /d{dir}/{file} {} {}", ["uid", "gid"][n % 2], draw.id());
                run("debugfs", &["-w", "-R", &request, &image]);
            }
            run("debugfs", &["-w", "-R", "sif /etc uid 1000", &image]);
            run("debugfs", &["-w", "-R", &format!("sif /etc/group uid {}", 7 + round), &image]);
        }
    }
}

/// Grace periods, flags, names, and selections that are refused.
#[test]
fn reports_for_people() {
    if !is_root() || !ready("mke2fs") {
        return;
    }
    let scratch = Scratch::new("quota-people");
    let (image, root) = (scratch.join("image"), scratch.path().join("tree"));
    tree(&root, &mut Draw(9));
    chown(root.join("d0"), Some(7), Some(7)).expect("chown");
    let root = root.to_str().expect("path");
    run("mke2fs", &["-q", "-t", "ext4", "-O", "quota", "-d", root, &image, "16M"]);
    assert_eq!(seekless(&["quota", "check", "-y", &image]).status.code(), Some(1));
    text(&seekless(&["quota", "grace", &image, "-u", "--space", "36h", "--inodes", "90"]));
    text(&seekless(&["quota", "set", &image, "--user", "alice", "--space-soft", "1K"]));
    text(&seekless(&["quota", "set", &image, "--user", "5", "--inodes-hard", "17"]));
    assert!(by_e2fsck(&image).is_empty());
    let report = text(&seekless(&["quota", "report", "-u", &image]));
    assert!(report.contains("quotas of users; grace periods: space 36h, inodes 90s"), "{report}");
    let line = |name: &str| {
        let line = report.lines().find(|line| line.split(' ').next() == Some(name));
        line.expect(name).split_whitespace().collect::<Vec<_>>()
    };
    let alice = line("alice");
    assert_eq!((alice[1], alice[3], alice[4]), ("+-", "1K", "0"), "{report}");
    assert!(alice[5].starts_with("20") && alice[6].contains(':'), "{report}");
    assert_eq!(line("5"), ["5", "--", "0", "0", "0", "-", "0", "0", "17", "-"]);
    assert!(report.contains("\nbob ") && !report.contains("staff"), "{report}");
    let numeric = text(&seekless(&["quota", "report", "-n", &image]));
    assert!(numeric.contains("\n1000 ") && numeric.contains("groups") && !numeric.contains("bob"));
    for (args, code, wanted) in [
        (&["set", &image, "-u", "carol", "--space-soft", "1"][..], 2, "no user 'carol'"),
        (&["set", &image, "-P", "1", "--space-soft", "1"], 2, "no quotas of projects"),
        (&["set", &image, "-u", "1", "-g", "1", "--space-soft", "1"], 2, "cannot be used with"),
        (&["set", &image, "-u", "1"], 2, "required"),
        (&["report", "--user-file", "x", &image], 2, "have no paths"),
        (&["grace", &image, "-u", "--space", "0"], 2, "such as 7d"),
        (&["check", "-P", &image], 16, "no quotas of projects"),
        (&["check", "--none", &image], 16, "--none"),
        (&["check", "/dev/null/none"], 8, "none"),
    ] {
        let refused = seekless(&[&["quota"][..], args].concat());
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(code) && why.contains(wanted), "{args:?}: {why}");
    }
    // Without the feature, and other formats.
    run("mke2fs", &["-q", "-F", "-t", "ext4", &image, "4M"]);
    let (code, why) = failure(&seekless(&["quota", "report", &image]));
    assert!(code == 4 && why.contains("feature quota"), "{why}");
    text(&seekless(&["mkfs", "--force", "--format", "fat16", "--size", "16M", &image]));
    let (code, why) = failure(&seekless(&["quota", "report", &image]));
    assert!(code == 4 && why.contains("FAT images have no quotas"), "{why}");
}
