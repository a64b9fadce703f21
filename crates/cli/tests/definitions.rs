//! Disks of several partitions by definitions of repart.d(5), beside those of systemd-repart.

#[path = "judges/mod.rs"]
mod judges;

use judges::{
    Scratch, can_mount, check, failure, ready, run, same, seekless, text, timeless, unmount,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Command;

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A small system.
fn tree(scratch: &Scratch) -> String {
    let tree = scratch.join("tree");
    for dir in ["usr/bin", "usr/lib", "etc", "var/log", "boot/EFI", "home/me"] {
        fs::create_dir_all(format!("{tree}/{dir}")).expect("mkdir");
    }
    for number in 0..60u32 {
        let bytes: Vec<u8> = (0..number * 500).flat_map(u32::to_le_bytes).collect();
        fs::write(format!("{tree}/usr/lib/lib{number}.so"), bytes).expect("write");
    }
    fs::write(format!("{tree}/usr/bin/tool"), "a tool").expect("write");
    let executable = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(format!("{tree}/usr/bin/tool"), executable).expect("chmod");
    fs::hard_link(format!("{tree}/usr/bin/tool"), format!("{tree}/usr/bin/also")).expect("link");
    symlink("usr/bin", format!("{tree}/bin")).expect("symlink");
    fs::write(format!("{tree}/etc/fstab"), "# none\n").expect("write");
    fs::write(format!("{tree}/boot/EFI/LOADER.EFI"), vec![7; 300_000]).expect("write");
    fs::write(format!("{tree}/home/me/notes"), "notes").expect("write");
    tree
}

/// Writes definitions, by their names.
fn define(scratch: &Scratch, name: &str, files: &[(&str, String)]) -> String {
    let dir = scratch.join(name);
    fs::create_dir_all(&dir).expect("mkdir");
    for (name, text) in files {
        fs::write(format!("{dir}/{name}.conf"), format!("[Partition]\n{text}")).expect("write");
    }
    dir
}

/// The entries of a table, as sfdisk reads them, without identifiers.
fn entries(disk: &str) -> Vec<BTreeMap<String, Value>> {
    let table: Value = serde_json::from_str(&run("sfdisk", &["--json", disk])).expect("JSON");
    let all = table["partitiontable"]["partitions"].as_array().expect("partitions");
    let entry = |one: &Value| {
        let fields = one.as_object().expect("an entry").iter();
        let kept = fields.filter(|(name, _)| !matches!(name.as_str(), "node" | "uuid"));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    all.iter().map(entry).collect()
}

/// Copies a partition to a file.
fn extract(disk: &str, number: usize, to: &str) {
    let all = entries(disk);
    let of = |name: &str| all[number - 1][name].as_u64().expect("a number") * 512;
    let (start, mut bytes) = (of("start"), vec![0; of("size") as usize]);
    File::open(disk).expect("open").read_exact_at(&mut bytes, start).expect("read");
    fs::write(to, bytes).expect("write");
}

/// Definitions by a seed, all of which both programs understand. systemd-repart makes ext4 of at
/// least 32M.
fn random_definitions(numbers: &mut Numbers) -> Vec<(String, String)> {
    let count = 1 + numbers.below(5);
    (0..count)
        .map(|number| {
            let kind = numbers.one(&[
                "root",
                "usr",
                "home",
                "var",
                "srv",
                "tmp",
                "esp",
                "xbootldr",
                "swap",
                "linux-generic",
                "root-arm64",
                "usr-x86",
                "773f91ef-66d4-49b5-bd83-d683bf40ad16",
            ]);
            let mut text = format!("Type={kind}\n");
            match numbers.below(3) {
                0 if kind != "swap" && kind != "esp" && kind != "xbootldr" => {
                    text += numbers.one(&[
                        "Format=ext4\nCopyFiles=/:/\n",
                        "CopyFiles=/usr:/\nMakeDirectories=/a/b /c\n",
                        "Format=ext4\nCopyFiles=/usr/bin:/programs\nCopyFiles=/etc\n",
                        "Format=ext4\n",
                    ]);
                    text += &format!("SizeMinBytes={}M\n", 40 + numbers.below(20));
                }
                1 if kind == "swap" => text += "Format=swap\n",
                _ => {
                    let least = 1 + numbers.below(30);
                    text += &format!("SizeMinBytes={least}M\n");
                    if numbers.below(3) == 0 {
                        text += &format!("SizeMaxBytes={}M\n", least + numbers.below(100));
                    }
                }
            }
            if numbers.below(2) == 0 {
                text += &format!("Weight={}\n", numbers.below(3000));
            }
            if numbers.below(4) == 0 {
                text += &format!("PaddingWeight={}\n", numbers.below(1000));
            }
            if numbers.below(4) == 0 {
                let least = 4 * numbers.below(2000);
                text += &format!("PaddingMinBytes={least}K\nPaddingMaxBytes=50M\n");
            }
            if numbers.below(4) == 0 {
                text += &format!("Label=part {number}\n");
            }
            // libfdisk takes bits from 48 on.
            let flags = ["Flags=0x5000000000000000\n", "NoAuto=yes\n", "ReadOnly=yes\n"];
            let known = match kind {
                "esp" | "linux-generic" => 1,
                "swap" => 2,
                kind if kind.len() == 36 => 1,
                _ => 3,
            };
            if numbers.below(3) == 0 {
                text += numbers.one(&flags[..known]);
            }
            (format!("{}0-part", number + 1), text)
        })
        .collect()
}

#[test]
fn systemd_repart_makes_the_same_partitions() {
    if !ready("systemd-repart") || !ready("sfdisk") || !ready("rsync") || !can_mount() {
        return;
    }
    let scratch = Scratch::new("repart");
    let tree = tree(&scratch);
    for seed in 0..16 {
        let mut numbers = Numbers(seed);
        let files = random_definitions(&mut numbers);
        let shown: String = files.iter().map(|(name, text)| format!("{name}:\n{text}")).collect();
        let files: Vec<_> =
            files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        let dir = define(&scratch, &format!("repart-{seed}"), &files);
        let size = format!("{}K", (450 << 10) + 4 * numbers.below(50_000));
        let (ours, its) = (scratch.join("ours"), scratch.join("its"));
        let _ = (fs::remove_file(&ours), fs::remove_file(&its));
        text(&seekless(&["build", &tree, "--definitions", &dir, "--size", &size, "-o", &ours]));
        let (root, dir) = (format!("--root={tree}"), format!("--definitions={dir}"));
        let size = format!("--size={size}");
        let more = ["--empty=create", "--dry-run=no", "--seed=random", &its];
        run("systemd-repart", &[&[root.as_str(), &dir, &size], &more[..]].concat());
        assert_eq!(entries(&ours), entries(&its), "{shown}");
        assert_eq!(
            fs::metadata(&ours).expect("made").len(),
            fs::metadata(&its).expect("made").len()
        );
        assert!(run("sfdisk", &["--verify", &ours]).contains("No errors detected"), "{shown}");
        for (number, (name, text)) in (1..).zip(&files) {
            if !text.contains("CopyFiles") {
                continue;
            }
            let number_text = number.to_string();
            let part = scratch.join("part");
            extract(&ours, number, &part);
            check(&part);
            let of = |disk: &str| contents(disk, &number_text);
            same(&format!("{name} of\n{shown}"), &of(&ours), &of(&its));
            let other = scratch.join("other");
            extract(&its, number, &other);
            assert_eq!(differences(&scratch, &part, &other), "", "{name} of\n{shown}");
        }
    }
}

/// The files that differ between two images mounted by the kernel, as rsync lists them: contents,
/// owners, modes, times of files, links, extended attributes and access control lists.
fn differences(scratch: &Scratch, one: &str, other: &str) -> String {
    let mounts = [(one, scratch.join("mnt-one")), (other, scratch.join("mnt-other"))];
    for (image, mount) in &mounts {
        fs::create_dir_all(mount).expect("mkdir");
        run("mount", &["-o", "ro,loop", image, mount]);
    }
    let flags = ["-aHAXn", "--omit-dir-times", "--delete", "--checksum", "--itemize-changes"];
    let [(_, from), (_, to)] = &mounts;
    let paths = [format!("{from}/"), format!("{to}/"), "--exclude=/lost+found".into()];
    let listed = Command::new("rsync").args(flags).args(&paths).output();
    for (_, mount) in &mounts {
        unmount(mount).expect("umount");
    }
    let listed = listed.expect("rsync");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

/// The manifest of a partition, without times and without `lost+found`.
fn contents(disk: &str, number: &str) -> String {
    let excluded = ["--exclude", "/lost+found"];
    let args = [&["manifest", disk, "--partition", number][..], &excluded].concat();
    timeless(&text(&seekless(&args)))
}

#[test]
fn a_hash_tree_is_that_of_its_data() {
    let scratch = Scratch::new("definitions-verity");
    let tree = tree(&scratch);
    let dir = define(
        &scratch,
        "repart.d",
        &[
            ("10-esp", "Type=esp\nCopyFiles=/boot:/\n".into()),
            ("20-usr", "Type=usr\nCopyFiles=/usr:/\nVerity=data\nVerityMatchKey=usr\n".into()),
            (
                "30-tree",
                "Type=usr-verity\nVerity=hash\nVerityMatchKey=usr\nSizeMinBytes=0\n".into(),
            ),
            ("40-swap", "Type=swap\nFormat=swap\nLabel=pages\nUUID=null\n".into()),
            ("50-var", "Type=var\nFormat=ext4\nWeight=2000\n".into()),
        ],
    );
    let disk = scratch.join("disk");
    let options = ["build", &tree, "--definitions", &dir, "--size", "300M", "-o"];
    let told = text(&seekless(&[&options[..], &[&disk, "--json"]].concat()));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let of = |number: usize, field: &str| told["partitions"][number - 1][field].clone();
    let root = of(3, "root_hash").as_str().expect("a hash").to_owned();
    // The identifiers of both are the halves of the hash.
    let digits = |number| of(number, "uuid").as_str().expect("text").replace('-', "");
    assert_eq!(digits(2) + &digits(3), root);
    assert_eq!(of(4, "uuid"), "00000000-0000-0000-0000-000000000000");
    assert_eq!((of(1, "format"), of(2, "files")), ("vfat".into(), 64.into()));
    let (data, hashes) = (scratch.join("data"), scratch.join("hashes"));
    extract(&disk, 2, &data);
    extract(&disk, 3, &hashes);
    check(&data);
    if ready("veritysetup") {
        run("veritysetup", &["verify", &data, &hashes, &root]);
        let mut bytes = fs::read(&data).expect("read");
        bytes[9000] ^= 1;
        fs::write(&data, bytes).expect("write");
        let verified = Command::new("veritysetup").args(["verify", &data, &hashes, &root]).output();
        assert!(!verified.expect("veritysetup").status.success());
    }
    let (esp, swap) = (scratch.join("esp"), scratch.join("swap"));
    extract(&disk, 1, &esp);
    extract(&disk, 4, &swap);
    if ready("fsck.fat") {
        run("fsck.fat", &["-n", &esp]);
        assert!(run("mdir", &["-b", "-i", &esp, "::EFI"]).contains("LOADER.EFI"));
    }
    let label = run("blkid", &["-p", "-o", "export", &swap]);
    assert!(label.contains("TYPE=swap") && label.contains("LABEL=pages"), "{label}");
    // Two file systems without files have identifiers of their own, and so have all partitions.
    let ids: Vec<String> = (1..=5).map(digits).collect();
    assert!((1..5).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
    // The same bytes again, and in another format.
    let again = scratch.join("again");
    text(&seekless(&[&options[..], &[&again]].concat()));
    run("cmp", &[&disk, &again]);
    if ready("qemu-img") {
        let qcow2 = scratch.join("disk.qcow2");
        text(&seekless(&[&options[..], &[&qcow2]].concat()));
        run("qemu-img", &["compare", "-q", &disk, &qcow2]);
    }
    // The program lists the partitions.
    let listed = text(&seekless(&["info", &disk]));
    for name in ["esp", "usr-x86-64", "usr-x86-64-verity", "pages", "var"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
}

#[test]
fn traces_lead_to_the_partition_that_has_the_file() {
    let scratch = Scratch::new("definitions-trace");
    let tree = tree(&scratch);
    let dir = define(
        &scratch,
        "repart.d",
        &[
            ("10-usr", "Type=usr\nCopyFiles=/usr:/\n".into()),
            ("20-root", "Type=root\nCopyFiles=/etc\nCopyFiles=/home/me:/me\n".into()),
        ],
    );
    let mut numbers = Numbers(4);
    let paths: Vec<String> = (0..25).map(|_| format!("lib/lib{}.so", numbers.below(60))).collect();
    let trace = |name: &str, above: &str| {
        let (list, trace) = (scratch.join("list"), scratch.join(name));
        let lines: String = paths.iter().map(|path| format!("{above}/{path}\n")).collect();
        fs::write(&list, lines).expect("write");
        text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
        trace
    };
    let (recorded, mounted) = (trace("recorded", "/usr"), trace("mounted", ""));
    let (plain, sorted) = (scratch.join("plain"), scratch.join("sorted"));
    let build = ["build", &tree, "--definitions", &dir, "-o"];
    text(&seekless(&[&build[..], &[&plain]].concat()));
    text(&seekless(&[&build[..], &[&sorted, "--trace", &recorded]].concat()));
    let seeks = |disk: &str| {
        let score = ["score", disk, "--partition", "1", "--trace", &mounted, "--json"];
        let value: Value = serde_json::from_str(&text(&seekless(&score))).expect("JSON");
        value["seeks"].as_u64().expect("seeks")
    };
    let (before, after) = (seeks(&plain), seeks(&sorted));
    assert!(after < 6 && before > 2 * after, "{before} to {after}");
    // Without a size the disk is as small as it may be.
    assert_eq!(fs::metadata(&plain).expect("made").len(), 22 << 20);
}

#[test]
fn what_cannot_be_made_is_refused_by_name() {
    let scratch = Scratch::new("definitions-refused");
    let tree = tree(&scratch);
    let image = scratch.join("image");
    let refused = |dir: &str, more: &[&str]| {
        let args = [&["build", &tree, "--definitions", dir, "-o", &image], more].concat();
        let (code, message) = failure(&seekless(&args));
        assert!(!fs::exists(&image).expect("look"), "{message}");
        (code, message)
    };
    for (name, definition, code, message) in [
        ("setting", "Colour=red", 3, "one.conf, line 2: Colour= is no setting"),
        ("format", "Format=btrfs", 4, "one.conf, line 2: Format=btrfs is not supported"),
        ("encrypt", "Encrypt=key-file", 4, "Encrypt= is not supported"),
        ("missing", "CopyFiles=/opt/none:/", 6, "/opt/none"),
        ("alone", "Verity=hash\nVerityMatchKey=a", 3, "one partition has the data"),
        ("most", "CopyFiles=/:/\nSizeMaxBytes=1M", 5, "SizeMaxBytes=1M"),
        ("blocks", "CopyBlocks=/nowhere", 6, "/nowhere"),
    ] {
        let dir = define(&scratch, name, &[("one", definition.into())]);
        let (found, said) = refused(&dir, &[]);
        assert!(found == code && said.contains(message), "{name}: {found} {said}");
        assert!(said.contains("one.conf"), "{name}: {said}");
    }
    let two = [("one", "Type=root\nFormat=ext4".into()), ("two", "Type=home\nFormat=ext4".into())];
    let dir = define(&scratch, "two", &two);
    let (code, said) = refused(&dir, &["--size", "20M"]);
    assert!(code == 5 && said.contains("at least 23068672 bytes"), "{said}");
    for more in [&["--size", "+20M"][..], &["--size", "100000001"]] {
        assert_eq!(refused(&dir, more).0, 2, "{more:?}");
    }
    for more in [&["--label", "x"][..], &["--disk"], &["--verity"], &["--free", "20%"]] {
        let args = [&["build", &tree, "--definitions", &dir, "-o", &image], more].concat();
        assert_eq!(seekless(&args).status.code(), Some(2), "{more:?}");
    }
    fs::create_dir(format!("{dir}/one.conf.d")).expect("mkdir");
    let (code, said) = refused(&dir, &[]);
    assert!(code == 4 && said.contains("one.conf.d"), "{said}");
    let empty = scratch.join("empty");
    fs::create_dir(&empty).expect("mkdir");
    assert_eq!(refused(&empty, &[]).0, 2);
    let (code, said) = refused(&scratch.join("nowhere"), &[]);
    assert!(code == 6 && said.contains("nowhere"), "{said}");
    // Without SOURCE nothing can be copied.
    let dir = define(&scratch, "copies", &[("one", "CopyFiles=/usr:/".into())]);
    let (code, said) = failure(&seekless(&["build", "--definitions", &dir, "-o", &image]));
    assert!(code == 6 && said.contains("/usr"), "{said}");
}

#[test]
fn bytes_of_files_and_empty_file_systems_need_no_source() {
    let scratch = Scratch::new("definitions-blocks");
    let tree = tree(&scratch);
    let (root, disk) = (scratch.join("root"), scratch.join("disk"));
    text(&seekless(&["build", &tree, "-o", &root, "--size", "20M"]));
    let files = [
        ("10-root", format!("Type=root\nCopyBlocks={root}\n")),
        ("20-home", "Type=home\nFormat=ext2\nSizeMinBytes=12M\nSizeMaxBytes=12M\n".into()),
        ("30-data", "Label=data\nSizeMinBytes=4K\nSizeMaxBytes=4K\n".into()),
    ];
    let dir = define(&scratch, "repart.d", &files);
    text(&seekless(&["build", "--definitions", &dir, "-o", &disk, "-b", "1K"]));
    let (copy, home) = (scratch.join("copy"), scratch.join("home"));
    extract(&disk, 1, &copy);
    run("cmp", &[&root, &copy]);
    extract(&disk, 2, &home);
    check(&home);
    let shape = text(&seekless(&["info", "--json", &disk, "--partition", "home"]));
    let shape: Value = serde_json::from_str(&shape).expect("JSON");
    assert_eq!((&shape["format"], &shape["block_size"]), (&"ext2".into(), &1024.into()));
    assert_eq!(entries(&disk)[2]["size"], 8);
}

#[test]
fn a_file_system_has_little_more_room_than_its_files_need() {
    let scratch = Scratch::new("definitions-inodes");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    let disk = scratch.join("disk");
    for mebibytes in [30u64, 31, 63, 100] {
        let bytes: Vec<u8> = (0..mebibytes << 18).flat_map(|n| (n as u32).to_le_bytes()).collect();
        fs::write(format!("{tree}/large"), bytes).expect("write");
        let one = [("one", "Type=root\nCopyFiles=/\n".to_owned())];
        let dir = define(&scratch, "repart.d", &one);
        text(&seekless(&["build", &tree, "--definitions", &dir, "-o", &disk, "--force"]));
        let part = scratch.join("part");
        extract(&disk, 1, &part);
        check(&part);
        let len = fs::metadata(&part).expect("made").len() >> 20;
        assert!(len <= mebibytes + mebibytes / 10 + 8, "{len} for {mebibytes}");
    }
}
