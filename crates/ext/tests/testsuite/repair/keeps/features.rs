//! Damage that debugfs makes on volumes with clusters, quotas, and values of attributes in inodes of
//! their own.

use super::named::{after, debugfs};
use super::tree::{self, Tree};
use super::{Sound, bytes_made, judge};
use crate::holes;
use crate::repair::judge::{Scratch, bytes_of, e2fsck, findings, is_there, put};
use seekless_device::MemoryDevice;
use seekless_ext::{change_quotas, check, preen, quotas, repair};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{LimitChange, OwnerKind, QuotaChange, QuotaSelection};
use seekless_fs::{FsError, Timestamp};
use std::fs;
use std::sync::Arc;

const BIGALLOC: &[&str] = &["-t", "ext4", "-O", "bigalloc,^resize_inode", "-C", "8192"];
const BIGALLOC_PLAIN: &[&str] =
    &["-t", "ext4", "-O", "bigalloc,^resize_inode,^metadata_csum", "-C", "4096"];
const QUOTA: &[&str] = &[
    "-t",
    "ext4",
    "-I",
    "256",
    "-O",
    "quota,project",
    "-E",
    "quotatype=usrquota:grpquota:prjquota",
];
const VALUES: &[&str] = &["-t", "ext4", "-I", "256", "-O", "ea_inode,^metadata_csum"];

/// A volume with these options, after commands of debugfs and `e2fsck -fy`.
fn volume(options: &[&str], commands: &str) -> Sound {
    let source = Scratch::new("features-source");
    tree::populate(source.path());
    // The seed of hashes is set by an option of its own.
    let split = options.iter().position(|it| *it == "-E").unwrap_or(options.len());
    let (before, extended) = options.split_at(split);
    let extended: Vec<String> = extended
        .iter()
        .map(|it| {
            it.replace("quotatype", "hash_seed=0f6f8b9a-54c6-4b5b-8f0a-1c1f2f3f4f5f,quotatype")
        })
        .collect();
    let all: Vec<&str> =
        before.iter().copied().chain(extended.iter().map(String::as_str)).collect();
    // The usage in quotas does not include attributes.
    let made = bytes_made(&all, source.path(), "20M").expect("mke2fs");
    let image = Scratch::new("features-image");
    put(image.path(), &made);
    debugfs(image.path(), commands);
    e2fsck("-fy", image.path());
    assert_eq!(findings(image.path()), None, "{options:?}");
    let bytes = holes::take(image.path());
    let report = check(Arc::new(MemoryDevice::new(holes::copy(&bytes)))).expect("check");
    assert!(report.is_clean(), "{options:?}: {:#?}", report.findings);
    let tree = Tree::read(&bytes).expect("a sound volume");
    Sound { bytes, tree }
}

/// Damages a volume by commands: e2fsck finds something, `-p` decides as that of e2fsck, and a repair
/// ends, is clean to e2fsck, and keeps the names and contents that e2fsck keeps.
fn hold(sound: &Sound, commands: &str) {
    let bytes = after(sound, commands).unwrap_or_else(|| panic!("{commands}: nothing was changed"));
    let image = Scratch::new("features-damaged");
    put(image.path(), &bytes);
    assert!(findings(image.path()).is_some(), "{commands}: e2fsck finds nothing");
    let (code, said) = e2fsck("-fp", image.path());
    let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
    let preened = preen(device.clone()).unwrap_or_else(|error| panic!("{commands}: {error}"));
    let findings_of = &preened.report.findings;
    assert_eq!(
        preened.outcome == Outcome::Corrected,
        code <= 1,
        "{commands}: e2fsck -p {code}: {said}{findings_of:#?}"
    );
    if preened.outcome == Outcome::Corrected {
        put(image.path(), &bytes_of(device.as_ref()));
        assert_eq!(findings(image.path()), None, "{commands}: after -p");
    }
    let repaired = repair(Arc::new(MemoryDevice::new(holes::copy(&bytes)))).expect(commands);
    let findings_of = &repaired.report.findings;
    assert_eq!(repaired.outcome, Outcome::Corrected, "{commands}: {findings_of:#?}");
    assert_eq!(judge(sound, &bytes, image.path()), None, "{commands}");
}

/// A number that debugfs prints last.
fn number(sound: &Sound, command: &str) -> u64 {
    let image = Scratch::new("features-number");
    put(image.path(), &sound.bytes);
    let said = debugfs(image.path(), command);
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.next_back().unwrap_or_else(|| panic!("{command}: {said}"))
}

/// Clusters of 8 blocks: wrong counts, lost directories and files, blocks of another file, and those
/// that lie in a cluster otherwise than in the file.
#[test]
fn clusters_are_repaired() {
    if !is_there() {
        return;
    }
    for options in [BIGALLOC, BIGALLOC_PLAIN] {
        let sound = volume(options, "");
        let own = number(&sound, "bmap /large 0\n");
        let other = number(&sound, "bmap /many/a-name-of-some-length-30 0\n");
        let third = number(&sound, "bmap /deep/er/still/leaf 0\n");
        let free = number(&sound, "ffb 1\n").max(own + 4000);
        for commands in [
            "sif /large blocks 1\n".to_string(),
            format!("sif /large block[5] {}\n", own + 1),
            format!("sif /large block[5] {other}\n"),
            format!("sif /deep/er/still/leaf block[5] {other}\n"),
            format!("sif /deep/er/still/leaf block[5] {}\n", other + 1),
            format!("sif /deep/er/twig file_acl {third}\n"),
            "sif /many mode 0\n".into(),
            "clri /deep/er\n".into(),
            "clri <11>\n".into(),
            "clri <2>\n".into(),
            "clri <8>\n".into(),
            format!("setb {free}\n"),
            format!("freeb {own}\n"),
            "set_bg 0 block_bitmap 1\n".into(),
            "set_bg 0 free_blocks_count 1\n".into(),
        ] {
            hold(&sound, &commands);
        }
    }
}

/// The place of an inode of the first group.
fn inode_at(bytes: &[u8], ino: u32) -> usize {
    let table = u32::from_le_bytes(bytes[2056..2060].try_into().expect("4 bytes"));
    let size = u16::from_le_bytes(bytes[1112..1114].try_into().expect("2 bytes"));
    table as usize * 1024 + (ino as usize - 1) * usize::from(size)
}

/// A cluster has blocks of one logical cluster, or one block of a map.
#[test]
fn a_cluster_is_used_once_in_a_file() {
    if !is_there() {
        return;
    }
    let sound = volume(BIGALLOC_PLAIN, "");
    let check_repaired = |bytes: Vec<u8>| {
        let device = Arc::new(MemoryDevice::new(bytes));
        let repaired = repair(device.clone()).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report.findings);
        let codes: Vec<&str> = repaired.report.findings.iter().map(|it| it.code()).collect();
        let ours = bytes_of(device.as_ref());
        let image = Scratch::new("features-cluster");
        put(image.path(), &ours);
        assert_eq!(findings(image.path()), None, "{codes:?}");
        (codes, ours)
    };
    // The only node of a map, behind the first block of the contents.
    let first = number(&sound, "bmap /holes 0\n") as usize;
    let leaf = inode_at(&sound.bytes, Tree::ino(&sound.bytes, "/holes")) + 40 + 16;
    let node = u32::from_le_bytes(sound.bytes[leaf..leaf + 4].try_into().expect("4 bytes"));
    let mut bytes = sound.bytes.clone();
    bytes.copy_within(node as usize * 1024..(node as usize + 1) * 1024, (first + 1) * 1024);
    let moved = u32::try_from(first + 1).expect("a small volume");
    bytes[leaf..leaf + 4].copy_from_slice(&moved.to_le_bytes());
    let (codes, ours) = check_repaired(bytes);
    assert!(codes.contains(&"inode.duplicate-blocks"), "{codes:?}");
    let lost = Tree::read(&ours).expect("a volume").lost(&sound.tree, &sound.tree);
    assert_eq!(lost, Vec::<String>::new());
    // Blocks 0 and 1, and 6 and 7, in the same cluster of four blocks.
    let file = "/deep/er/still/leaf";
    let start = number(&sound, &format!("bmap {file} 0\n"));
    let words = [(0, 0x2_F30A), (4, 2), (6, 6), (7, 2), (8, start + 2)];
    let set = words.map(|(word, value)| format!("sif {file} block[{word}] {value}\n"));
    let bytes = after(&sound, &format!("{}sif {file} size 8192\n", set.concat()));
    let (codes, ours) = check_repaired(bytes.expect("a change"));
    assert!(codes.contains(&"inode.block-map"), "{codes:?}");
    let ours = Sound { tree: Tree::read(&ours).expect("a volume"), bytes: ours };
    let block = |n| number(&ours, &format!("bmap {file} {n}\n"));
    assert_ne!(block(0) / 4, block(6) / 4);
}

/// Of two names of a directory, that in the directory of its `..` stays.
#[test]
fn a_directory_keeps_the_name_that_it_leads_to() {
    if !is_there() {
        return;
    }
    let sound = volume(VALUES, "");
    let inline = volume(&["-t", "ext4", "-I", "256", "-O", "inline_data"], "");
    for sound in [sound, inline] {
        let bytes = after(&sound, "ln /deep/er/still /lost+found/still\n").expect("a change");
        let device = Arc::new(MemoryDevice::new(bytes));
        let repaired = repair(device.clone()).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report.findings);
        let ours = bytes_of(device.as_ref());
        let lost = Tree::read(&ours).expect("a volume").lost(&sound.tree, &sound.tree);
        assert_eq!(lost, Vec::<String>::new());
        let image = Scratch::new("features-names");
        put(image.path(), &ours);
        assert_eq!(findings(image.path()), None);
    }
}

/// Quotas: files of other owners, files that are gone, and quota files with damage.
#[test]
fn quotas_are_repaired() {
    if !is_there() {
        return;
    }
    let owners = "sif /large uid 1000\nsif /deep/er/still/leaf uid 70000\nsif /holes gid 5\n\
                  sif /slow projid 9\n";
    let sound = volume(QUOTA, owners);
    let project = {
        let image = Scratch::new("features-project");
        put(image.path(), &sound.bytes);
        let said = debugfs(image.path(), "ssv\nstats -h\n");
        let line = said.lines().find(|line| line.starts_with("Project quota inode:"));
        line.and_then(|line| line.split_whitespace().next_back()).expect("a number").to_string()
    };
    for commands in [
        "sif /large uid 7\n".to_string(),
        "sif /large gid 7\n".into(),
        "sif /large projid 7\n".into(),
        "sif /large blocks 0\n".into(),
        "clri /large\n".into(),
        "clri /many\n".into(),
        "sif /large flags 0x80000\nsif /large block[4] 3\n".into(),
        "zap_block -f <3> -o 4 -l 1 -p 9 0\n".into(),
        "zap_block -f <3> -o 24 -l 4 -p 255 0\n".into(),
        "zap_block -f <4> -o 8 -l 1 -p 77 1\n".into(),
        "zap_block -f <4> 0\n".into(),
        "zap_block -f <4> 4\n".into(),
        format!("zap_block -f <{project}> -o 40 -l 1 -p 5 5\n"),
        format!("sif <{project}> size 1024\n"),
        "sif <3> size 0\n".into(),
        "sif <3> block[5] 3\n".into(),
        "sif <3> mode 040755\n".into(),
        "clri <3>\n".into(),
        format!("clri <{project}>\n"),
        "feature -quota\n".into(),
    ] {
        hold(&sound, &commands);
    }
}

/// A volume without room for another quota file.
fn full_volume() -> Sound {
    let block = Scratch::new("features-block");
    put(block.path(), &[1; 1024]);
    let large = Scratch::new("features-filling");
    let empty = volume(QUOTA, "").bytes;
    let free = u32::from_le_bytes(empty[1036..1040].try_into().expect("4 bytes"));
    put(large.path(), &vec![7; (free as usize - 200) * 1024]);
    let mut commands = format!("write {} filling\n", large.path().display());
    for n in 0..400 {
        commands += &format!("write {} filling-{n}\n", block.path().display());
    }
    let sound = volume(QUOTA, &commands);
    let counts = u32::from_le_bytes(sound.bytes[1036..1040].try_into().expect("4 bytes"));
    assert!(counts < 4, "{counts} blocks are free");
    sound
}

/// The old quota file makes room for another one.
#[test]
fn quotas_of_a_full_volume_are_repaired() {
    if is_there() {
        hold(&full_volume(), "sif /large uid 7\n");
    }
}

/// Limits of an owner without an entry do not overwrite the file with the limits of all others.
#[test]
fn limits_on_a_full_volume_are_refused() {
    if !is_there() {
        return;
    }
    let sound = full_volume();
    let device = Arc::new(MemoryDevice::new(sound.bytes));
    let hard = LimitChange { soft: None, hard: Some(9) };
    let all = QuotaSelection::default();
    let set = |id| {
        let change = QuotaChange::Limits { id, space: LimitChange::default(), inodes: hard };
        let now = Timestamp { secs: 1_700_000_000, nanos: 0 };
        change_quotas(device.clone(), &all, OwnerKind::User, &change, now)
    };
    set(0).expect("an entry in place");
    let books = || quotas(device.clone(), &all, OpenOptions::default()).expect("quotas");
    let before = books();
    let why = set(77_777_777).expect_err("no room");
    assert!(matches!(why, FsError::NoSpace(_)), "{why}");
    assert_eq!(books(), before);
    let image = Scratch::new("features-full");
    put(image.path(), &bytes_of(device.as_ref()));
    assert_eq!(findings(image.path()), None);
}

/// A number of a quota file in the superblock that is that of another file: the file stays.
#[test]
fn a_file_is_not_taken_for_quotas() {
    if !is_there() {
        return;
    }
    let sound = volume(QUOTA, "");
    let large = Tree::ino(&sound.bytes, "/large");
    let numbers = ["usr_quota_inum", "grp_quota_inum", "prj_quota_inum"];
    let set = |field| format!("ssv {field} {large}\n");
    // Also one that is marked as quota files are, and the number of another kind of quotas.
    let immutable = format!("sif /large flags 0x80010\n{}", set("prj_quota_inum"));
    let shared = ["ssv usr_quota_inum 4\n".into(), "ssv prj_quota_inum 3\n".into(), immutable];
    for field in numbers.map(set).into_iter().chain(shared) {
        let bytes = after(&sound, &field).expect("a change");
        let device = Arc::new(MemoryDevice::new(bytes));
        let repaired = repair(device.clone()).expect("repair");
        assert_eq!(
            repaired.outcome,
            Outcome::Corrected,
            "{field}: {:#?}",
            repaired.report.findings
        );
        let ours = bytes_of(device.as_ref());
        let image = Scratch::new("features-number");
        put(image.path(), &ours);
        assert_eq!(findings(image.path()), None, "{field}");
        let lost = Tree::read(&ours).expect("a volume").lost(&sound.tree, &sound.tree);
        assert_eq!(lost, Vec::<String>::new(), "{field}");
    }
}

/// Values in inodes of their own: their counts, links, hashes and marks, and attributes whose value
/// is lost.
#[test]
fn values_are_repaired() {
    if !is_there() {
        return;
    }
    let value = Scratch::new("features-value");
    fs::write(value.path(), vec![b'w'; 3000]).expect("value");
    let from = value.path().display();
    let commands = format!("ea_set -f {from} /large user.big\nea_set -f {from} /holes user.big\n");
    let sound = volume(VALUES, &commands);
    let holder = (11..number(&sound, "ffi\n")).rev().find(|ino| {
        let image = Scratch::new("features-holder");
        put(image.path(), &sound.bytes);
        debugfs(image.path(), &format!("stat <{ino}>\n")).contains("Flags: 0x280000")
    });
    let holder = holder.expect("an inode with a value");
    for commands in [
        format!("sif <{holder}> version 7\n"),
        format!("sif <{holder}> links_count 2\n"),
        format!("sif <{holder}> flags 0x80000\n"),
        format!("sif <{holder}> atime @5\n"),
        format!("clri <{holder}>\n"),
        format!("sif <{holder}> block[5] {}\n", number(&sound, "bmap /large 3\n")),
        "sif /large file_acl 0\n".into(),
        "sif /large blocks 0\n".into(),
        "clri /holes\n".into(),
        "feature -ea_inode\nsif /large blocks 2\n".into(),
    ] {
        hold(&sound, &commands);
    }
    // Nothing that is to be repaired.
    let bytes = after(&sound, &format!("sif <{holder}> faddr 5\n")).expect("a change");
    let image = Scratch::new("features-address");
    put(image.path(), &bytes);
    assert_eq!(findings(image.path()), None);
    let report = check(Arc::new(MemoryDevice::new(bytes))).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// A file with the mark of a value keeps its name.
#[test]
fn a_file_that_is_marked_as_a_value_stays() {
    if !is_there() {
        return;
    }
    let sound = volume(VALUES, "");
    for commands in
        ["sif /large flags 0x280000\n", "sif /large flags 0x280000\nsif /large links_count 5\n"]
    {
        let bytes = after(&sound, commands).expect("a change");
        let scratch = Scratch::new("features-marked");
        assert_eq!(judge(&sound, &bytes, scratch.path()), None, "{commands}");
    }
}

/// Damage that sends a table of the only group to where a bitmap lies: the bitmap is put elsewhere.
#[test]
fn a_bitmap_gives_way_to_a_table() {
    if !is_there() {
        return;
    }
    let sound = volume(VALUES, "");
    let word = |at: usize| u32::from_le_bytes(sound.bytes[at..at + 4].try_into().expect("4 bytes"));
    let table = word(2048 + 8);
    for (at, to) in [(2048, table + 3), (2052, table), (2052, table + 40)] {
        let mut bytes = sound.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
        let scratch = Scratch::new("features-bitmap");
        let repaired = repair(Arc::new(MemoryDevice::new(holes::copy(&bytes)))).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{at}: {:#?}", repaired.report.findings);
        assert_eq!(judge(&sound, &bytes, scratch.path()), None, "{at}");
    }
}

/// Times before 1970 as older kernels wrote them, an extent tree without its flag, a number behind
/// those of the resize inode, and a torn attribute under a checksum: `-p` repairs them.
#[test]
fn a_preen_repairs_what_that_of_e2fsck_does() {
    if !is_there() {
        return;
    }
    let sound = volume(&["-t", "ext4", "-I", "256", "-O", "metadata_csum"], "");
    for commands in [
        "sif /large mtime @0x90000000\nsif /large mtime_extra 3\n",
        "sif /large crtime @0x90000000\nsif /large crtime_extra 7\n",
        "sif /large flags 0\n",
    ] {
        hold(&sound, commands);
    }
    // A directory with an entry of an inode that there cannot be, and an index.
    let image = Scratch::new("features-index");
    put(image.path(), &sound.bytes);
    e2fsck("-fyD", image.path());
    let bytes = holes::take(image.path());
    let sound = Sound { tree: Tree::read(&bytes).expect("a volume"), bytes };
    let block = number(&sound, "bmap /many 1\n") as usize * 1024;
    let mut damaged = sound.bytes.clone();
    damaged[block + 2] = 0xFF;
    let repaired = repair(Arc::new(MemoryDevice::new(holes::copy(&damaged)))).expect("repair");
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report.findings);
    assert_eq!(judge(&sound, &damaged, image.path()), None);
}
