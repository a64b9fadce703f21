//! States of ext volumes. The images before and after each operation are made by
//! the kernel, states are checked by e2fsck and read by the kernel again.

mod act;
mod attributes;
mod checksums;
mod directories;
mod files;
mod names;
pub(crate) mod own;
mod parts;
mod renames;
mod space;

use crate::holes;
use crate::order::case::{Case, Verdict};
use crate::order::judge::unmount::unmount;
use crate::order::judge::{Scratch, check, output, run, text};
use crate::order::state::{Part, Recorded, Step, contents, u32_at};
use crate::order::tree::{Harm, Kind, Node, Tree, judge};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// All operations.
pub(crate) fn operations() -> impl Iterator<Item = &'static Operation> {
    let all = [
        files::OPERATIONS,
        space::OPERATIONS,
        attributes::OPERATIONS,
        names::OPERATIONS,
        renames::OPERATIONS,
        directories::OPERATIONS,
        checksums::OPERATIONS,
    ];
    all.into_iter().flatten()
}

/// What makes the next image of an operation.
pub(crate) enum Do {
    /// A change through the kernel's mount.
    Kernel(fn(&Path)),
    /// Commands of debugfs, for what the kernel does not do without a journal;
    /// `{/PATH}` stands for the inode's number. Then the paths that are gone.
    Debugfs(&'static [&'static str], &'static [&'static str]),
}

/// The kinds of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Ext2,
    /// As `Ext2`, without the feature flag for files of 2 GiB and more.
    Ext2Small,
    /// As `Ext2`, with indexes of directories.
    Ext2Indexed,
    /// Extents and checksums of metadata, without a journal.
    Ext4,
}

impl Format {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Ext2 => &["-t", "ext2", "-I", "128", "-O", "^resize_inode,^dir_index"],
            Self::Ext2Small => {
                &["-t", "ext2", "-I", "128", "-O", "^resize_inode,^dir_index,^large_file"]
            }
            Self::Ext2Indexed => &["-t", "ext2", "-I", "128", "-O", "^resize_inode,dir_index"],
            Self::Ext4 => {
                &["-t", "ext4", "-O", "^resize_inode,^dir_index,^has_journal,^64bit,^orphan_file"]
            }
        }
    }

    fn driver(self) -> &'static str {
        match self {
            Self::Ext2 | Self::Ext2Small | Self::Ext2Indexed => "ext2",
            Self::Ext4 => "ext4",
        }
    }
}

/// An operation on an ext volume.
pub(crate) struct Operation {
    pub(crate) format: Format,
    pub(crate) prepare: fn(&Path),
    pub(crate) steps: &'static [Do],
    pub(crate) case: Case,
}

/// What all volumes have. In `/w` the names `edge` and whatever comes later are in
/// another sector than `old`.
fn common(root: &Path) {
    fs::write(root.join("keep"), contents("keep", 3000)).expect("write");
    fs::create_dir(root.join("d")).expect("mkdir");
    fs::write(root.join("d/in"), contents("in", 700)).expect("write");
    let wide = root.join("w");
    fs::create_dir(&wide).expect("mkdir");
    for (name, n) in
        [("old".into(), 1), ("f".repeat(236), 2), ("g".repeat(224), 3), ("edge".into(), 4)]
    {
        fs::write(wide.join(name), contents(&format!("wide {n}"), 600)).expect("write");
    }
}

fn mounted<T>(
    scratch: &Scratch,
    image: &Path,
    format: Format,
    rw: bool,
    what: impl FnOnce(&Path) -> T,
) -> T {
    let at = scratch.join("mount");
    fs::create_dir_all(&at).expect("mount point");
    let options = if rw { "loop,noatime" } else { "loop,noatime,ro" };
    persist("mount", &["-t", format.driver(), "-o", options, text(image), text(&at)]);
    // A panic must not leave the mount behind.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(&at)));
    unmount(&at, image);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Mounts. Another thread may have taken the loop device that was free.
fn persist(program: &str, args: &[&str]) {
    for _ in 0..1000 {
        if output(Command::new(program).args(args)).status.success() {
            return;
        }
        std::thread::yield_now();
    }
    run(program, args);
}

/// Returns the image as a crash would leave it now (mounted, with everything written) and its
/// tree. The kernel may write the superblock's counts later than the rest; then the image is
/// mounted again.
fn snapshot(scratch: &Scratch, image: &Path, format: Format) -> (Vec<u8>, Tree) {
    for _ in 0..20 {
        let (bytes, tree) = mounted(scratch, image, format, true, |at| {
            run("sync", &["-f", text(at)]);
            (holes::take(image), walk(at, true))
        });
        if has_current_counts(&bytes) {
            return (bytes, tree);
        }
    }
    panic!("the superblock never gets the counts of the only group");
}

/// Whether the superblock's counts of free blocks and inodes are those of the only group.
fn has_current_counts(image: &[u8]) -> bool {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
    let group = 2 * 1024;
    let of_superblock = (u32_at(image, 1024 + 12), u32_at(image, 1024 + 16));
    of_superblock == (u16_at(group + 12), u16_at(group + 14))
}

/// Gives all free blocks the bytes of a file that was deleted.
fn soil(image: &mut [u8]) {
    let block = 1024 << u32_at(image, 1024 + 24);
    let bitmap = u32_at(image, block * (u32_at(image, 1024 + 20) + 1)) * block;
    let first = u32_at(image, 1024 + 20);
    let deleted = contents("DELETED", block);
    for n in first..image.len() / block {
        let bit = n - first;
        if image[bitmap + bit / 8] >> (bit % 8) & 1 == 0 {
            image[n * block..(n + 1) * block].copy_from_slice(&deleted);
        }
    }
}

/// Performs an operation; returns its images, and what each of them shows.
pub(crate) fn record(operation: &Operation) -> (Recorded, Vec<Tree>) {
    let scratch = Scratch::new("record");
    let image = scratch.join("image");
    let format = operation.format;
    fs::File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("image");
    let mut make = vec!["-q", "-F", "-b", "1024", "-m", "0", "-N", "64"];
    make.extend(["-U", "12345678-1234-1234-1234-123456789abc"]);
    make.extend(["-E", "hash_seed=12345678-1234-1234-1234-123456789abc"]);
    make.extend_from_slice(format.options());
    make.push(text(&image));
    run("mke2fs", &make);
    mounted(&scratch, &image, format, true, |root| {
        common(root);
        (operation.prepare)(root);
    });
    let mut bytes = holes::take(&image);
    soil(&mut bytes);
    holes::put(&image, &bytes);
    let (before, tree) = snapshot(&scratch, &image, format);
    let mut trees = vec![tree];
    let mut steps: Vec<Step> = Vec::new();
    for step in operation.steps {
        let last = steps.last().map_or(&before, |step| &step.image);
        let (after, tree) = match step {
            Do::Kernel(change) => {
                mounted(&scratch, &image, format, true, change);
                snapshot(&scratch, &image, format)
            }
            Do::Debugfs(commands, gone) => {
                holes::put(&image, last);
                let script = scratch.join("commands");
                let commands: Vec<String> =
                    commands.iter().map(|command| numbered(command, &image)).collect();
                fs::write(&script, commands.join("\n")).expect("commands");
                run("debugfs", &["-w", "-f", text(&script), text(&image)]);
                let mut tree = trees[trees.len() - 1].clone();
                tree.retain(|path, _| !gone.contains(&path.as_str()));
                (holes::take(&image), tree)
            }
        };
        let parts: Vec<Part> = parts::parts(last, &after);
        steps.push(Step { image: after, parts });
        trees.push(tree);
    }
    let recorded = Recorded { before, steps };
    operation.case.assert_complete(&recorded, fields);
    (recorded, trees)
}

/// The bytes of a field of a part.
pub(crate) fn fields(part: &Part, field: &str) -> Option<Vec<Range<usize>>> {
    parts::fields(part, field)
}

/// What a mounted volume shows, with or without extended attributes.
fn walk(root: &Path, attributes: bool) -> Tree {
    let mut tree = Tree::new();
    descend(root, root, &mut tree);
    if !attributes {
        return tree;
    }
    let listed = output(Command::new("getfattr").args(["-R", "-P", "-d", "-m", "user."]).arg(root));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for group in listed.split("\n\n") {
        let Some((path, values)) = group.trim().split_once('\n') else { continue };
        let name = root.file_name().and_then(|name| name.to_str()).expect("a mount point");
        let (_, path) =
            path.split_once(&format!("/{name}/")).expect("a path below the mount point");
        let node = tree.get_mut(&format!("/{path}")).expect("a file with attributes");
        node.attributes.push_str(values);
    }
    tree
}

fn descend(root: &Path, dir: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        let found = fs::symlink_metadata(&path).expect("metadata");
        let (kind, data) = if found.is_dir() {
            descend(root, &path, tree);
            (Kind::Directory, Vec::new())
        } else if found.is_symlink() {
            let target = fs::read_link(&path).expect("target");
            (Kind::Symlink, target.to_str().expect("target").as_bytes().to_vec())
        } else {
            let len = found.len().min(1 << 20);
            let mut data = Vec::new();
            let file = fs::File::open(&path).expect("open");
            std::io::Read::read_to_end(&mut std::io::Read::take(file, len), &mut data)
                .expect("read");
            (Kind::File, data)
        };
        let mode = found.permissions().mode();
        let name = path.strip_prefix(root).expect("a path below the root");
        let name = format!("/{}", name.to_str().expect("a name of characters"));
        let big = if found.len() > 1 << 20 { format!(" {}", found.len()) } else { String::new() };
        tree.insert(name, Node { kind, data, attributes: format!("{mode:o}{big} ") });
    }
}

/// What e2fsck makes of a state, and what is left of it.
pub(crate) fn verdict(format: Format, state: &[u8], trees: &[Tree]) -> (Verdict, String) {
    let scratch = Scratch::new("state");
    let image = scratch.join("image");
    holes::put(&image, state);
    let (_, says) = check("e2fsck", "-fn", &image);
    let (code, preened) = check("e2fsck", "-fp", &image);
    assert!(matches!(code, 0 | 1 | 4), "e2fsck -p: {code}: {preened}");
    if code == 4 {
        let (code, repaired) = check("e2fsck", "-fy", &image);
        assert!(code <= 1, "e2fsck -y: {code}: {repaired}");
    }
    let (again, left) = check("e2fsck", "-fn", &image);
    assert_eq!(again, 0, "not clean after the check: {left}");
    let (harm, shows) = judge(trees, &show(&scratch, &image, format, trees));
    let verdict = match (code, harm) {
        (4, harm) => Verdict::Person(harm),
        (_, Harm::Unnamed) => Verdict::Unnamed,
        (_, Harm::Lost) => Verdict::Lost,
        (_, Harm::Foreign) => Verdict::Foreign,
        (_, Harm::None) => {
            let mut findings = says.lines().filter(|line| finding(line)).peekable();
            match (findings.peek().is_some(), findings.all(leak)) {
                (false, _) => Verdict::Clean(shows),
                (true, true) => Verdict::Leak(shows),
                (true, false) => Verdict::Repaired(shows),
            }
        }
    };
    (verdict, says)
}

/// What a mount of an image shows, with attributes where there are any.
fn show(scratch: &Scratch, image: &Path, format: Format, trees: &[Tree]) -> Tree {
    let attributes = trees.iter().flat_map(Tree::values).any(|node| node.attributes.contains('='));
    mounted(scratch, image, format, false, |at| walk(at, attributes))
}

/// Whether a line of e2fsck's is a finding.
fn finding(line: &str) -> bool {
    let progress = ["e2fsck ", "Pass ", "Fix? no", "Clear? no", "Connect to /lost+found? no"];
    !line.trim().is_empty()
        && !progress.iter().any(|start| line.starts_with(start))
        && !line.contains("***** ")
        && !line.contains("non-contiguous")
}

/// Whether it is no more than room that nothing uses, or a count that is wrong.
fn leak(line: &str) -> bool {
    line.contains("bitmap differences:") && !line.contains('+') || line.contains("count wrong")
}

/// A command of debugfs with the number of the inode that it names by a path.
fn numbered(command: &str, image: &Path) -> String {
    let Some((start, rest)) = command.split_once('{') else { return command.into() };
    let (path, end) = rest.split_once('}').expect("a path in braces");
    let stat = run("debugfs", &["-R", &format!("stat {path}"), text(image)]);
    let number = stat.split_whitespace().nth(1).expect("Inode: NUMBER");
    assert!(number.parse::<u32>().is_ok(), "{stat}");
    format!("{start}{number}{end}")
}
