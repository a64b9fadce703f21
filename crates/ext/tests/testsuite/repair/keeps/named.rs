//! Damage that debugfs makes: each case lost files or stopped a repair once.

use super::{Sound, VOLUMES, judge, sound};
use crate::holes;
use crate::repair::judge::{Scratch, bytes_of, e2fsck, findings, is_there, put};
use crate::repair::keeps::tree::Tree;
use seekless_device::MemoryDevice;
use seekless_ext::{preen, repair};
use seekless_fs::check::Outcome;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Runs commands of debugfs on an image; what it prints.
pub(super) fn debugfs(image: &Path, commands: &str) -> String {
    let mut child = Command::new("debugfs")
        .args(["-w", "-f", "-"])
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("debugfs");
    child.stdin.take().expect("stdin").write_all(commands.as_bytes()).expect("write");
    let said = child.wait_with_output().expect("debugfs");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// A volume after commands of debugfs; `None` if they have changed nothing.
pub(super) fn after(sound: &Sound, commands: &str) -> Option<Vec<u8>> {
    let image = Scratch::new("keeps-named");
    holes::put(image.path(), &sound.bytes);
    debugfs(image.path(), commands);
    let bytes = holes::take(image.path());
    (bytes != sound.bytes).then_some(bytes)
}

/// As [`after`], of commands that change something.
fn changed(sound: &Sound, commands: &str) -> Vec<u8> {
    after(sound, commands).unwrap_or_else(|| panic!("{commands}: nothing was changed"))
}

/// Repairs an image; what it contains then.
fn repaired(bytes: Vec<u8>) -> (Tree, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = repair(device.clone()).expect("repair");
    assert_eq!(repaired.outcome, Outcome::Corrected, "{:#?}", repaired.report.findings);
    let bytes = bytes_of(device.as_ref());
    let image = Scratch::new("keeps-repaired");
    holes::put(image.path(), &bytes);
    assert_eq!(findings(image.path()), None);
    (Tree::read(&bytes).expect("a sound volume"), bytes)
}

#[test]
fn nothing_is_lost_where_e2fsck_loses_nothing() {
    if !is_there() {
        return;
    }
    let cases = [
        "clri <8>",
        "sif <8> links_count 0",
        "clri <7>",
        "sif /deep block[4] 32769",
        "sif /many block[4] 32769",
        "ssv journal_inum 0",
        "sif /deep mode 010755",
        "sif /many mode 0",
    ];
    for (name, ..) in VOLUMES {
        let sound = sound(name);
        let scratch = Scratch::new(name);
        for commands in cases {
            // Files in inodes have no such block, and some volumes have no journal.
            let image = Scratch::new("keeps-named");
            holes::put(image.path(), &sound.bytes);
            debugfs(image.path(), commands);
            let bytes = holes::take(image.path());
            if bytes == sound.bytes {
                continue;
            }
            let wrong = judge(&sound, &bytes, scratch.path());
            assert_eq!(wrong, None, "{name}: {commands}");
        }
    }
}

/// A repair corrects superblocks with which e2fsck stops, from a copy of the superblock or from other
/// fields; a preen writes nothing.
#[test]
fn a_superblock_that_e2fsck_cannot_correct() {
    if !is_there() {
        return;
    }
    let uuid = "ssv journal_uuid 00000000-0000-0000-0000-000000000001";
    let cases = ["ssv first_data_block 0", uuid];
    let mut corrected = [0; 2];
    for (name, ..) in VOLUMES {
        let sound = sound(name);
        for (commands, corrected) in cases.into_iter().zip(&mut corrected) {
            let Some(damaged) = after(&sound, commands) else { continue };
            let image = Scratch::new("keeps-given-up");
            holes::put(image.path(), &damaged);
            let said = Command::new("e2fsck").args(["-fy"]).arg(image.path()).output();
            let code = said.expect("e2fsck").status.code().expect("an exit code");
            assert!(code >= 4, "{name}: {commands}: e2fsck ends with {code}");
            let device = Arc::new(MemoryDevice::new(holes::copy(&damaged)));
            let outcome = preen(device.clone()).map(|preened| preened.outcome);
            assert!(!matches!(outcome, Ok(Outcome::Clean | Outcome::Corrected)), "{name}");
            assert!(bytes_of(device.as_ref()) == damaged, "{name}: {commands}: preened");
            if name == "single" && commands != uuid {
                // It has no copy of the superblock.
                let error = repair(device.clone()).expect_err("no superblock");
                assert!(error.to_string().contains("s_first_data_block"), "{error}");
                assert!(bytes_of(device.as_ref()) == damaged, "{name}: {commands}: written");
                continue;
            }
            let (tree, _) = repaired(damaged);
            let lost = tree.lost(&sound.tree, &sound.tree);
            assert_eq!(lost, Vec::<String>::new(), "{name}: {commands}");
            *corrected += 1;
        }
    }
    assert!(corrected.iter().all(|&count| count > 0), "{corrected:?}");
}

/// Faults in blocks of directories that e2fsck asks about: an entry of 8 bytes, one that covers the
/// checksum of its block, and a number in a reserved field of an index.
#[test]
fn entries_and_indexes_that_e2fsck_asks_about() {
    if !is_there() {
        return;
    }
    let mut seen = [0; 3];
    for (name, ..) in VOLUMES {
        let sound = sound(name);
        let scratch = Scratch::new("keeps-entries");
        let first = |path: &str| {
            let said = debugfs(scratch.path(), &format!("bmap {path} 0"));
            let number =
                said.lines().filter_map(|line| line.trim().parse::<usize>().ok()).next_back();
            number.filter(|&number| number > 0).map(|number| number * 1024)
        };
        let mut damaged = Vec::new();
        put(scratch.path(), &sound.bytes);
        if let Some(at) = first("/deep") {
            let (last, len) = last_entry(&sound.bytes[at..at + 1024]);
            let end = last + len;
            let mut bytes = sound.bytes.clone();
            let used = (8 + usize::from(bytes[at + last + 6])).next_multiple_of(4);
            // The rest of its room is an entry of 8 bytes and another one, both unused.
            let pieces = [(last, used), (last + used, 8), (last + used + 8, len - used - 8)];
            for (number, (piece, len)) in pieces.into_iter().enumerate() {
                let len = u16::try_from(len).expect("a length");
                let from = if number == 0 { 4 } else { 0 };
                let head = [[0; 4], [len.to_le_bytes(), [0; 2]].concat().try_into().expect("four")];
                let (piece, head) = (at + piece, head.concat());
                let kept = if number == 0 { 6 } else { 8 };
                bytes[piece + from..piece + kept].copy_from_slice(&head[from..kept]);
            }
            damaged.push((0, bytes));
            if end < 1024 {
                let mut bytes = sound.bytes.clone();
                let len = u16::try_from(1024 - last).expect("a length");
                bytes[at + last + 4..at + last + 6].copy_from_slice(&len.to_le_bytes());
                damaged.push((1, bytes));
            }
        }
        put(scratch.path(), &sound.bytes);
        // It makes indexes for directories of several blocks.
        e2fsck("-fyD", scratch.path());
        let said = debugfs(scratch.path(), "stat /many");
        let is_indexed = said.contains("Flags: 0x1000") || said.contains("Flags: 0x81000");
        if let Some(root) = first("/many").filter(|_| is_indexed) {
            let mut bytes = holes::take(scratch.path());
            bytes[root + 24] = 66;
            damaged.push((2, bytes));
        }
        for (kind, bytes) in damaged {
            let code = e2fsck("-fn", {
                put(scratch.path(), &bytes);
                scratch.path()
            });
            assert!(code.0 >= 4, "{name}, {kind}: e2fsck finds nothing");
            let report = seekless_ext::check(Arc::new(MemoryDevice::new(holes::copy(&bytes))));
            let found = report.expect("a report").findings;
            let is_told = found.iter().any(|it| it.code().starts_with("directory."));
            assert!(is_told, "{name}, {kind}: {found:#?}");
            assert_eq!(judge(&sound, &bytes, scratch.path()), None, "{name}, {kind}");
            seen[kind] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

/// Where the last entry of names in a block begins, and its length.
fn last_entry(block: &[u8]) -> (usize, usize) {
    let len = |at: usize| usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]]));
    let is_sum = |at: usize| at + 12 == block.len() && block[at + 7] == 0xDE;
    let mut at = 0;
    loop {
        let next = at + len(at);
        if next == block.len() || is_sum(next) {
            return (at, len(at));
        }
        at = next;
    }
}

/// A pipe that is said to have its contents in its inode keeps its name.
#[test]
fn a_pipe_with_inline_data() {
    if !is_there() {
        return;
    }
    let sound = sound("ext4");
    let commands = "mknod pipe p\nsif /pipe flags 0x10000000\nsif /pipe size 112\n";
    let (tree, bytes) = repaired(changed(&sound, commands));
    assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new());
    assert!(Tree::ino(&bytes, "/pipe") > 2);
}

/// A `lost+found` whose inode was cleared is made again, and a preen does so too.
#[test]
fn a_cleared_lost_found_is_made_again() {
    if !is_there() {
        return;
    }
    for (name, ..) in VOLUMES {
        let sound = sound(name);
        let damaged = changed(&sound, "clri <11>");
        let (tree, bytes) = repaired(damaged.clone());
        assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new(), "{name}");
        assert!(Tree::read(&damaged).is_none() || tree.len() == sound.tree.len(), "{name}");
        assert!(Tree::ino(&bytes, "/lost+found") > 2, "{name}");
        let device = Arc::new(MemoryDevice::new(damaged));
        let preened = preen(device.clone()).expect("preen");
        if preened.outcome == Outcome::Corrected {
            assert!(Tree::ino(&bytes_of(device.as_ref()), "/lost+found") > 2, "{name}");
        }
    }
}

/// A journal without an inode is found through the superblock, and stays.
#[test]
fn a_cleared_journal_inode_is_restored() {
    if !is_there() {
        return;
    }
    let sound = sound("plain");
    let (tree, bytes) = repaired(changed(&sound, "clri <8>"));
    assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new());
    let features = u32::from_le_bytes(bytes[1024 + 92..1024 + 96].try_into().expect("four bytes"));
    assert!(features & 4 != 0, "has_journal is gone");
}

/// Committed transactions are written back though the descriptor that leads to the journal
/// is damaged, or the superblock does not say that there are any.
#[test]
fn committed_transactions_are_not_lost() {
    if !is_there() {
        return;
    }
    let sound = sound("plain");
    let image = Scratch::new("keeps-journal");
    holes::put(image.path(), &sound.bytes);
    let block = debugfs(image.path(), "bmap /large 0\n");
    let block: usize =
        block.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a block");
    let new = Scratch::new("keeps-block");
    fs::write(new.path(), [0x5A; 1024]).expect("block");
    let write = format!("jo\njw -b {block} {}\njc\n", new.path().display());
    let waiting = changed(&sound, &write);
    assert!(waiting[block * 1024..][..1024] != [0x5A; 1024], "it was written home");
    let damage: [fn(&mut Vec<u8>); 3] = [
        |_| {},
        // bg_inode_table of group 0.
        |bytes| bytes[2056..2058].fill(0xFF),
        // needs_recovery.
        |bytes| bytes[1024 + 96] &= !4,
    ];
    for (n, damage) in damage.into_iter().enumerate() {
        let mut bytes = waiting.clone();
        damage(&mut bytes);
        let (_, bytes) = repaired(bytes);
        assert!(bytes[block * 1024..][..1024] == [0x5A; 1024], "case {n}: the transaction is lost");
    }
}

/// Where the only descriptor leads to another place, the table is looked for by the root
/// directory. `e2fsck -fy` loses all files of these volumes.
#[test]
fn the_table_of_the_only_group_is_found() {
    if !is_there() {
        return;
    }
    let sound = sound("single");
    for damage in [
        |bytes: &mut [u8]| bytes[2056] ^= 0x20,
        |bytes: &mut [u8]| bytes[2056..2060].fill(0xFF),
        |bytes: &mut [u8]| bytes[2056..2060].fill(0),
    ] {
        let mut bytes = sound.bytes.clone();
        damage(&mut bytes);
        let (tree, _) = repaired(bytes);
        assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new());
    }
}

/// A table that resize2fs moved away is still in free blocks, with a sound root. It is not taken
/// for the table where the root of that is damaged.
#[test]
fn a_table_of_the_past_is_not_the_table() {
    if !is_there() {
        return;
    }
    let sound = sound("single");
    let word = |at: usize| u32::from_le_bytes(sound.bytes[at..at + 4].try_into().expect("4 bytes"));
    let (inodes, inode_size, table) = (word(1024 + 0x28), 256, word(2048 + 8));
    let (start, len) = (table as usize * 1024, inodes as usize * inode_size);
    let mut bytes = sound.bytes.clone();
    let old = bytes.len() - len;
    assert!(bytes[old..].iter().all(|&byte| byte == 0), "the end of the volume is in use");
    bytes.copy_within(start..start + len, old);
    // The past had fewer files.
    let new = Tree::ino(&sound.bytes, "/many") as usize - 1;
    bytes[old + new * inode_size..][..40 * inode_size].fill(0);
    bytes[start + inode_size..][..inode_size].fill(0);
    let image = Scratch::new("keeps-past");
    assert_eq!(judge(&sound, &bytes, image.path()), None);
}

/// A journal that claims a file's blocks on a full volume goes, not the file.
#[test]
fn a_file_is_worth_more_than_a_journal() {
    if !is_there() {
        return;
    }
    let sound = sound("ext3");
    let image = Scratch::new("keeps-full");
    holes::put(image.path(), &sound.bytes);
    let filler = Scratch::new("keeps-filler");
    fs::write(filler.path(), vec![7; 12 << 20]).expect("file");
    debugfs(image.path(), &format!("write {} filler\n", filler.path().display()));
    let block = debugfs(image.path(), "bmap /many/a-name-of-some-length-30 0\n");
    let block: u64 =
        block.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a block");
    debugfs(image.path(), &format!("sif <8> block[3] {block}\n"));
    let (tree, _) = repaired(holes::take(image.path()));
    assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new());
}

/// A journal whose map leads into a file, all of it, on a full volume: with the copy of its map in
/// the superblock it is found again, without it goes. The file keeps its contents.
#[test]
fn a_file_with_a_whole_journal_in_it_stays() {
    if !is_there() {
        return;
    }
    let image = Scratch::new("keeps-inside");
    fs::write(image.path(), sound("plain").bytes).expect("image");
    // Of more blocks than a file may share before its map is given up.
    let contents: Vec<u8> = (0..3u32 << 20).map(|at| ((at * 31) >> 7) as u8).collect();
    let filler = Scratch::new("keeps-inside-filler");
    fs::write(filler.path(), &contents).expect("file");
    let source = filler.path().display();
    debugfs(image.path(), &format!("write {source} wanted\nwrite {source} a\nwrite {source} b\n"));
    let block = debugfs(image.path(), "bmap wanted 50\n");
    let block: u64 =
        block.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a block");
    let sound = holes::take(image.path());
    let tree = Tree::read(&sound).expect("a sound volume");
    for copy in ["", "ssv jnl_backup_type 0\n"] {
        holes::put(image.path(), &sound);
        debugfs(image.path(), &format!("{copy}sif <8> block[5] {block}\n"));
        let damaged = holes::take(image.path());
        assert!(damaged != sound, "nothing was changed");
        let (found, _) = repaired(damaged);
        assert_eq!(found.lost(&tree, &tree), Vec::<String>::new(), "{copy}");
    }
}

/// An extent that leads into another file: both files stay, the other one with its contents.
#[test]
fn a_file_with_most_of_another_in_it_stays() {
    if !is_there() {
        return;
    }
    let image = Scratch::new("keeps-shared");
    fs::write(image.path(), sound("plain").bytes).expect("image");
    let source = Scratch::new("keeps-shared-source");
    let contents: Vec<u8> = (0..2u32 << 20).map(|at| ((at * 31) >> 7) as u8).collect();
    fs::write(source.path(), contents).expect("file");
    let path = source.path().display();
    debugfs(image.path(), &format!("write {path} damaged\nwrite {path} other\n"));
    let block = debugfs(image.path(), "bmap other 3\n");
    let block: u64 =
        block.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a block");
    let bytes = holes::take(image.path());
    let tree = Tree::read(&bytes).expect("a sound volume");
    let sound = Sound { bytes, tree };
    let damaged = changed(&sound, &format!("sif damaged block[5] {block}\n"));
    assert_eq!(judge(&sound, &damaged, image.path()), None);
}

/// A journal whose inode is shorter than it gets its length from the superblock's copy.
#[test]
fn a_journal_of_a_wrong_length_is_restored() {
    if !is_there() {
        return;
    }
    for name in ["plain", "ext4", "ext3"] {
        let sound = sound(name);
        for len in [1, 49_363, 65_536] {
            let (tree, bytes) = repaired(changed(&sound, &format!("sif <8> size {len}\n")));
            assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new(), "{name}, {len}");
            let compat = u32::from_le_bytes(bytes[1024 + 0x5C..][..4].try_into().expect("4 bytes"));
            assert_ne!(compat & 4, 0, "{name}, {len}: has_journal");
        }
    }
}

/// A repair that needs a free block does not take that of a directory whose mode is wrong.
#[test]
fn a_copy_does_not_take_the_block_of_a_directory() {
    if !is_there() {
        return;
    }
    for name in ["plain", "ext3"] {
        let sound = sound(name);
        let image = Scratch::new("keeps-mode");
        holes::put(image.path(), &sound.bytes);
        let block = debugfs(image.path(), "bmap /many/a-name-of-some-length-30 0\n");
        let block: u64 =
            block.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a block");
        // A block of contents as that of attributes is copied.
        let commands = format!("sif /deep/er mode 020755\nsif /fast file_acl {block}\n");
        let damaged = changed(&sound, &commands);
        assert_eq!(judge(&sound, &damaged, image.path()), None, "{name}");
    }
}

/// The resize inode is made again where its mode says that it is not in use.
#[test]
fn a_resize_inode_without_a_mode_is_restored() {
    if !is_there() {
        return;
    }
    for name in ["plain", "ext3"] {
        let sound = sound(name);
        let (tree, _) = repaired(changed(&sound, "sif <7> mode 0\n"));
        assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new(), "{name}");
    }
}

/// A length of the resize inode that is too short or impossible is set as e2fsck sets it, by `-p`.
#[test]
fn the_length_of_a_resize_inode_is_set() {
    if !is_there() {
        return;
    }
    let image = Scratch::new("keeps-resize-len");
    for name in ["plain", "ext3"] {
        let sound = sound(name);
        for len in ["0", "1", "280375532466176"] {
            let damaged = changed(&sound, &format!("sif <7> size {len}\n"));
            let device = Arc::new(MemoryDevice::new(damaged.clone()));
            let preened = preen(device.clone()).expect("preen");
            assert_eq!(preened.outcome, Outcome::Corrected, "{name} {len}: {:#?}", preened.report);
            put(image.path(), &damaged);
            let theirs = e2fsck("-fp", image.path());
            assert_eq!(theirs.0, 1, "{name} {len}: {}", theirs.1);
            let theirs = debugfs(image.path(), "stat <7>\n");
            put(image.path(), &bytes_of(&*device));
            assert_eq!(debugfs(image.path(), "stat <7>\n"), theirs, "{name} {len}");
            assert_eq!(e2fsck("-fn", image.path()).0, 0, "{name} {len}");
        }
    }
}

/// With `bigalloc` each block of the resize inode counts as a cluster; it is checked and made again as
/// on other volumes.
#[test]
fn a_resize_inode_on_a_volume_with_clusters_is_restored() {
    if !is_there() {
        return;
    }
    let image = Scratch::new("keeps-clusters");
    let mut mke2fs = Command::new("mke2fs");
    let features = "bigalloc,resize_inode,^has_journal";
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", features, "-b", "1024", "-C", "2048"]);
    let made = mke2fs.args(["-g", "2048"]).arg(image.path()).arg("12M").output().expect("mke2fs");
    assert!(made.status.success(), "{made:?}");
    let bytes = fs::read(image.path()).expect("image");
    let report = seekless_ext::check(Arc::new(MemoryDevice::new(bytes.clone()))).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    for commands in [
        "sif <7> blocks 7",
        "sif <7> block[DIND] 0",
        "sif <7> size 1",
        "sif <7> size 280375532466176",
        "sif <7> mode 0",
        "clri <7>",
        // The first reserved block of descriptors, which lists those of the copies.
        "zap_block -p 255 3",
        "zap_block -p 0 3",
    ] {
        fs::write(image.path(), &bytes).expect("image");
        debugfs(image.path(), &format!("{commands}\n"));
        let damaged = fs::read(image.path()).expect("image");
        assert!(damaged != bytes, "{commands} changes nothing");
        let device = Arc::new(MemoryDevice::new(damaged.clone()));
        let preened = preen(device).expect("preen").outcome;
        let (code, said) = e2fsck("-fp", image.path());
        assert_eq!(preened == Outcome::Left, code == 4, "{commands}: {said}");
        assert_eq!(preened == Outcome::Clean, code == 0, "{commands}: {said}");
        if code != 0 {
            repaired(damaged);
        }
    }
}

/// Without the feature, an inode that is not in use has no flag for extents.
#[test]
fn an_unused_inode_has_no_extents_without_the_feature() {
    if !is_there() {
        return;
    }
    let sound = sound("ext2");
    repaired(changed(&sound, "sif <8> flags 0x80000\n"));
}

/// The depth of a leaf of an extent tree is known from its place.
#[test]
fn a_leaf_with_a_wrong_depth_keeps_its_extents() {
    if !is_there() {
        return;
    }
    let holed = Scratch::new("keeps-holed");
    let file = fs::File::create(holed.path()).expect("file");
    for at in 0..40 {
        file.write_all_at(&[at as u8 + 1; 1024], at * 4096).expect("write");
    }
    for name in ["plain", "single"] {
        let image = Scratch::new("keeps-depth");
        fs::write(image.path(), sound(name).bytes).expect("image");
        debugfs(image.path(), &format!("write {} holed\n", holed.path().display()));
        let leaf = debugfs(image.path(), "blocks holed\n");
        let leaf = leaf.lines().find_map(|line| line.split_whitespace().next()?.parse().ok());
        let leaf: usize = leaf.expect("the leaf comes first");
        let sound = holes::take(image.path());
        let tree = Tree::read(&sound).expect("a sound volume");
        for depth in [1, 5] {
            let mut damaged = sound.clone();
            damaged[leaf * 1024 + 6] = depth;
            let (found, _) = repaired(damaged);
            assert_eq!(found.lost(&tree, &tree), Vec::<String>::new(), "{name}, {depth}");
        }
    }
}

/// Directories in their inodes have no entries for `.` and `..` that could have a file type.
#[test]
fn file_types_go_with_their_feature() {
    if !is_there() {
        return;
    }
    let sound = sound("ext4");
    let (tree, _) = repaired(changed(&sound, "feature -filetype\n"));
    assert_eq!(tree.lost(&sound.tree, &sound.tree), Vec::<String>::new());
}

/// `-p` takes the mark of an orphan file in use from a volume whose orphan file is empty.
#[test]
fn an_empty_orphan_file_is_marked_so() {
    if !is_there() {
        return;
    }
    let bytes = changed(&sound("ext4"), "feature orphan_present\n");
    let device = Arc::new(MemoryDevice::new(bytes));
    let preened = preen(device.clone()).expect("preen");
    assert_eq!(preened.outcome, Outcome::Corrected, "{:#?}", preened.report.findings);
    let image = Scratch::new("keeps-orphans");
    fs::write(image.path(), bytes_of(device.as_ref())).expect("image");
    assert_eq!(findings(image.path()), None);
}

/// Volumes of many shapes as mke2fs makes them, with room for few and for as many descriptors
/// as the resize inode can list.
#[test]
fn what_mke2fs_makes_is_sound() {
    if !is_there() {
        return;
    }
    let shapes: [&[&str]; 8] = [
        &["-t", "ext2", "-b", "1024", "48M"],
        &["-t", "ext4", "-b", "1024", "48M"],
        &["-t", "ext4", "-b", "1024", "-E", "resize=4096G", "20M"],
        &["-t", "ext3", "-b", "1024", "-g", "512", "24M"],
        &["-t", "ext4", "-b", "2048", "-E", "resize=1000G", "40M"],
        &["-t", "ext4", "-b", "4096", "64M"],
        &["-t", "ext4", "-b", "4096", "-g", "1024", "64M"],
        &["-t", "ext4", "-b", "4096", "-O", "^resize_inode,sparse_super2", "64M"],
    ];
    for shape in shapes {
        let image = Scratch::new("keeps-shape");
        let (size, options) = shape.split_last().expect("a size");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F"]).args(options).arg(image.path()).arg(size);
        let made = mke2fs.output().expect("mke2fs");
        if !made.status.success() {
            // This mke2fs does not make that shape.
            continue;
        }
        assert_eq!(findings(image.path()), None, "{shape:?}");
        let device = Arc::new(MemoryDevice::new(holes::take(image.path())));
        let report = seekless_ext::check(device).expect("check");
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
    }
}

/// The number of inodes in the only superblock, with its old checksum and with the right one: e2fsck
/// sets it to that of the groups.
#[test]
fn a_wrong_number_of_inodes_without_a_copy_of_the_superblock() {
    if !is_there() {
        return;
    }
    let sound = sound("single");
    let scratch = Scratch::new("keeps-inodes");
    for wrong in [0x9700u32, 0, u32::MAX] {
        for is_sealed in [false, true] {
            let mut bytes = sound.bytes.clone();
            bytes[1024..1028].copy_from_slice(&wrong.to_le_bytes());
            if is_sealed {
                let sum = !crc32c::crc32c(&bytes[1024..2044]);
                bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
            }
            let what = format!("{wrong:#x}, sealed {is_sealed}");
            assert_eq!(judge(&sound, &bytes, scratch.path()), None, "{what}");
            let preened = preen(Arc::new(MemoryDevice::new(bytes.clone()))).expect("preen");
            assert_eq!(preened.outcome, Outcome::Left, "{what}");
            put(scratch.path(), &bytes);
            // With 8 where the checksum is wrong, too, or the number is zero; with zero it has deleted the
            // journal before.
            let theirs = e2fsck("-fp", scratch.path());
            assert_ne!(theirs.0 & 0b1100, 0, "{what}: {theirs:?}");
            let (_, ours) = repaired(bytes);
            assert_eq!(ours[1024..1028], sound.bytes[1024..1028], "{what}");
        }
    }
}
