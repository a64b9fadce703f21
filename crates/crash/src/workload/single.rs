//! The operations that workloads are made of.

use super::names::Names;
use super::path;
use crate::script::{Op, Path};

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Single {
    /// A new file with something in it.
    Create,
    /// A new directory.
    Mkdir,
    /// A second name for a file.
    Link,
    /// A name less.
    Unlink,
    /// A directory less.
    Rmdir,
    /// A file takes the name of another.
    RenameOver,
    /// A file moves to another directory.
    RenameAcross,
    /// A directory moves to another one.
    RenameDirectory,
    /// Two files change names.
    Exchange,
    /// More bytes at a file's end: its last fragments grow or move.
    Append,
    /// Other bytes within a file.
    Overwrite,
    /// A file grows so far that it needs an indirect block.
    Indirect,
    /// A file is cut.
    Truncate,
    /// Space is allocated for a file, and it grows.
    Fallocate,
    /// A symbolic link whose target needs a block.
    Symlink,
    /// An extended attribute is set.
    Xattr,
    /// A new directory with a file in it.
    Fill,
    /// A directory grows past the blocks that its inode leads to.
    Widen,
    /// Adding names to a directory until it moves to other fragments, and removing and renaming
    /// some of them.
    Outgrow,
    /// A directory gets another name in its parent.
    RenameWithin,
    /// A directory takes the name of an empty one beside it.
    RenameOverDirectory,
    /// A directory takes the name of an empty one in another directory.
    RenameOverAcross,
    /// A directory moves to another one, and takes the name of an empty one there.
    RenameMovedOver,
    /// A directory moves into one that was below it.
    Nest,
    /// A file moves into a directory that was just made.
    MoveIntoNew,
    /// A name goes, and is given to a new file.
    Recreate,
    /// A file makes room for a new one of its name, as logs do.
    Rotate,
    /// A file grows past the blocks that its inode leads to, a little at a time.
    Grow,
    /// A file is cut inside of an indirect block, and grows again.
    CutIndirect,
    /// A file is written past a full indirect block.
    Far,
    /// A file that is open loses its name, is written to, and closed.
    UnlinkOpen,
    /// A file that is open is replaced by another, is written to, and closed.
    ReplaceOpen,
}

/// Files that an operation takes if it can: those that another may have made or touched come first.
const FILES: [&str; 6] = ["A/new", "B/link", "B/foo", "A/foo", "B/bar", "A/file"];

impl Single {
    /// All of them.
    pub const ALL: [Self; 32] = [
        Self::Create,
        Self::Mkdir,
        Self::Link,
        Self::Unlink,
        Self::Rmdir,
        Self::RenameOver,
        Self::RenameAcross,
        Self::RenameDirectory,
        Self::Exchange,
        Self::Append,
        Self::Overwrite,
        Self::Indirect,
        Self::Truncate,
        Self::Fallocate,
        Self::Symlink,
        Self::Xattr,
        Self::Fill,
        Self::Widen,
        Self::Outgrow,
        Self::RenameWithin,
        Self::RenameOverDirectory,
        Self::RenameOverAcross,
        Self::RenameMovedOver,
        Self::Nest,
        Self::MoveIntoNew,
        Self::Recreate,
        Self::Rotate,
        Self::Grow,
        Self::CutIndirect,
        Self::Far,
        Self::UnlinkOpen,
        Self::ReplaceOpen,
    ];

    /// Its name, as a workload.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::RenameOver => "rename-over",
            Self::RenameAcross => "rename-across",
            Self::RenameDirectory => "rename-directory",
            Self::Exchange => "exchange",
            Self::Append => "append",
            Self::Overwrite => "overwrite",
            Self::Indirect => "indirect",
            Self::Truncate => "truncate",
            Self::Fallocate => "fallocate",
            Self::Symlink => "symlink",
            Self::Xattr => "xattr",
            Self::Fill => "fill",
            Self::Widen => "widen",
            Self::Outgrow => "outgrow",
            Self::RenameWithin => "rename-within",
            Self::RenameOverDirectory => "rename-over-directory",
            Self::RenameOverAcross => "rename-over-across",
            Self::RenameMovedOver => "rename-moved-over",
            Self::Nest => "nest",
            Self::MoveIntoNew => "move-into-new",
            Self::Recreate => "recreate",
            Self::Rotate => "rotate",
            Self::Grow => "grow",
            Self::CutIndirect => "cut-indirect",
            Self::Far => "far",
            Self::UnlinkOpen => "unlink-open",
            Self::ReplaceOpen => "rename-over-open",
        }
    }

    /// Its description, for people.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Create => "create a file and write 5,000 bytes",
            Self::Mkdir => "create a directory",
            Self::Link => "create a hard link in another directory",
            Self::Unlink => "remove a file",
            Self::Rmdir => "remove an empty directory",
            Self::RenameOver => "rename a file over another",
            Self::RenameAcross => "move a file to another directory",
            Self::RenameDirectory => "move a directory to another directory",
            Self::Exchange => "exchange two files in two directories",
            Self::Append => "append 6,000 bytes to a file",
            Self::Overwrite => "overwrite 2,000 bytes within a file",
            Self::Indirect => "extend a file until it needs an indirect block",
            Self::Truncate => "truncate a file to 1,000 bytes",
            Self::Fallocate => "allocate 12,000 bytes, which read as zeros",
            Self::Symlink => "create a symbolic link whose target needs a block",
            Self::Xattr => "set an extended attribute of 300 bytes",
            Self::Fill => "create a directory and a file in it",
            Self::Widen => "add names to a directory until it needs an indirect block",
            Self::Outgrow => {
                "add names to a directory until it moves, and remove and rename some of them"
            }
            Self::RenameWithin => "rename a directory within its parent",
            Self::RenameOverDirectory => "rename a directory over an empty one in the same parent",
            Self::RenameOverAcross => "rename a directory over an empty one in another parent",
            Self::RenameMovedOver => "move a directory, then rename it over an empty one beside it",
            Self::Nest => "move a directory into one that was just moved out of it",
            Self::MoveIntoNew => "move a file into a new directory",
            Self::Recreate => "remove a file and create a new one with its name",
            Self::Rotate => "rename a file and create two new ones, one with its name",
            Self::Grow => "extend a file past twelve blocks in four steps",
            Self::CutIndirect => "truncate a file inside an indirect block, then extend it",
            Self::Far => "write past a full indirect block of a file",
            Self::UnlinkOpen => "remove a file that is open, write to it, and close it",
            Self::ReplaceOpen => "rename a file over one that is open, write to that, and close it",
        }
    }

    /// Its operations, and the file they are done to.
    pub(super) fn lines(self, names: &mut Names) -> (Vec<Op>, Path) {
        let mut ops = Vec::new();
        let object = match self {
            Self::Create => {
                let file = names.new_file(&["A/new", "A/foo", "B/new"]);
                ops.extend([Op::Open(file.clone()), Op::Write(None, 0, 5000), Op::Close]);
                file
            }
            Self::Mkdir => {
                let dir = names.new_dir(&["A/dir", "A/sub", "B/dir"]);
                ops.push(Op::Mkdir(dir.clone()));
                dir
            }
            Self::Symlink => {
                let name = names.new_link(&["A/soft", "B/soft"]);
                ops.push(Op::Symlink("a-long-way/".repeat(17), name.clone()));
                name
            }
            Self::Link | Self::RenameOver | Self::RenameAcross | Self::Exchange => {
                self.two_names(names, &mut ops)
            }
            Self::RenameDirectory => {
                let from = names.dir(&["A/dir", "A/sub"], &mut ops);
                names.remove(from);
                let to = names.new_dir(&["B/dir", "B/sub", "B/moved"]);
                ops.push(Op::Rename(path(from), to.clone()));
                to
            }
            Self::Unlink => {
                let file = names.file(&FILES, &mut ops);
                names.remove(file);
                ops.push(Op::Unlink(path(file)));
                parent(file)
            }
            Self::Rmdir => {
                let dir = names.dir(&["A/dir", "B/dir", "B/sub", "A/sub"], &mut ops);
                names.remove(dir);
                ops.push(Op::Rmdir(path(dir)));
                parent(dir)
            }
            Self::Fill | Self::Widen | Self::Outgrow | Self::Nest | Self::MoveIntoNew => {
                self.directories(names, &mut ops)
            }
            Self::RenameWithin
            | Self::RenameOverDirectory
            | Self::RenameOverAcross
            | Self::RenameMovedOver => self.renamed_directory(names, &mut ops),
            Self::Recreate | Self::Rotate => self.again(names, &mut ops),
            Self::UnlinkOpen | Self::ReplaceOpen => self.held(names, &mut ops),
            _ => self.one_file(names, &mut ops),
        };
        (ops, object)
    }

    fn two_names(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        let from = names.file(&["A/new", "A/foo", "B/foo", "A/needed"], ops);
        if self == Self::Exchange {
            let other = names.file(&["B/link", "B/bar", "B/needed"], ops);
            ops.push(Op::Exchange(path(from), path(other)));
            return path(other);
        }
        if self == Self::RenameOver {
            let over = names.file(&["B/link", "B/bar", "B/needed"], ops);
            names.remove(from);
            ops.push(Op::Rename(path(from), path(over)));
            return path(over);
        }
        if self == Self::RenameAcross {
            names.remove(from);
            let to = names.new_file(&["B/foo", "A/moved", "B/moved"]);
            ops.push(Op::Rename(path(from), to.clone()));
            return to;
        }
        let to = names.new_file(&["B/link", "A/link", "B/more"]);
        ops.push(Op::Link(path(from), to.clone()));
        to
    }

    /// Directories that are made or moved with something that comes into them.
    fn directories(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        match self {
            Self::Fill => {
                // In the root, whose directories lie in groups of their own.
                let dir = names.new_dir(&["full", "fuller", "fullest"]);
                let file = path(&format!("{dir}/file"));
                ops.extend([
                    Op::Mkdir(dir.clone()),
                    Op::Open(file.clone()),
                    Op::Write(None, 0, 2500),
                    Op::Close,
                ]);
                names.fill(&dir.to_string());
                file
            }
            Self::Widen => {
                // One name to a unit of 512 bytes: 96 of them in twelve blocks.
                let file = path(names.file(&FILES, ops));
                let dir = names.new_dir(&["wide", "wider", "widest"]);
                ops.push(Op::Mkdir(dir.clone()));
                for n in 0..100 {
                    if n == 94 {
                        ops.push(Op::Sync);
                    }
                    let name = path(&format!("{dir}/{n:0>250}"));
                    if names.has.inodes {
                        ops.push(Op::Link(file.clone(), name));
                    } else {
                        ops.extend([Op::Open(name), Op::Close]);
                    }
                }
                names.fill(&dir.to_string());
                dir
            }
            Self::Outgrow => {
                // Two names to a unit of 512 bytes. The disk's state of each half of them differs:
                // names that are on the disk, and names that are not, are in the units that move.
                let dir = names.new_dir(&["long", "longer", "longest"]);
                let name = |n: usize| path(&format!("{dir}/{n:0>200}"));
                ops.push(Op::Mkdir(dir.clone()));
                for n in 0..12 {
                    ops.extend([Op::Open(name(n)), Op::Write(None, 0, 300), Op::Close]);
                    match n {
                        1 => ops.push(Op::Sync),
                        // The block behind the directory's last one is in use.
                        5 => ops.extend([Op::Unlink(name(0)), Op::Rename(name(3), name(20))]),
                        9 => ops.extend([Op::Unlink(name(4)), Op::Unlink(name(1))]),
                        _ => {}
                    }
                }
                names.fill(&dir.to_string());
                name(11)
            }
            Self::MoveIntoNew => {
                let from = names.file(&["A/new", "A/foo", "B/foo", "A/needed"], ops);
                names.remove(from);
                let dir = names.new_dir(&["B/box", "A/box", "B/case"]);
                let file = path(&format!("{dir}/kept"));
                ops.extend([Op::Mkdir(dir.clone()), Op::Rename(path(from), file)]);
                names.fill(&dir.to_string());
                parent(from)
            }
            _ => {
                let outer = names.dir(&["A/dir", "A/sub", "B/dir"], ops);
                names.remove(outer);
                let inner = path(&format!("{outer}/inner"));
                let to = names.new_dir(&["B/inner", "B/innermost", "A/inner"]);
                let below = path(&format!("{to}/outer"));
                ops.extend([
                    Op::Mkdir(inner.clone()),
                    Op::Sync,
                    Op::Rename(inner, to.clone()),
                    Op::Rename(path(outer), below.clone()),
                ]);
                names.fill(&to.to_string());
                below
            }
        }
    }

    fn renamed_directory(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        let from = names.dir(&["A/dir", "A/sub"], ops);
        names.remove(from);
        let (wishes, made): (&[&'static str], bool) = match self {
            Self::RenameWithin => (&["A/named", "A/renamed", "A/afresh"], false),
            Self::RenameOverDirectory => (&["A/empty", "A/emptier", "A/emptiest"], true),
            Self::RenameOverAcross => (&["B/empty", "B/emptier", "B/emptiest"], true),
            _ => (&["B/vacant", "B/hollow", "B/void"], true),
        };
        let to = names.new_dir(wishes);
        if made {
            ops.extend([Op::Mkdir(to.clone()), Op::Sync]);
        }
        let mut from = path(from);
        if self == Self::RenameMovedOver {
            // A name that never gets to be another's.
            let between = path(&format!("{to}-soon"));
            ops.push(Op::Rename(from, between.clone()));
            from = between;
        }
        ops.push(Op::Rename(from, to.clone()));
        to
    }

    /// A name that is given to a new file at once.
    fn again(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        let name = names.file(&FILES, ops);
        if self == Self::Recreate {
            ops.push(Op::Unlink(path(name)));
        } else {
            let to = names.new_file(&["A/log.1", "A/log.2", "B/log.1"]);
            ops.push(Op::Rename(path(name), to));
            // Another takes the place that the name had in its directory.
            let other = names.new_file(&["A/oth", "B/oth", "A/etc"]);
            ops.extend([Op::Open(other), Op::Close]);
        }
        ops.extend([Op::Open(path(name)), Op::Write(None, 0, 1500), Op::Close]);
        path(name)
    }

    /// A file goes while it is open: it is on the disk without a name, longer and shorter
    /// than it was, until it is closed.
    fn held(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        let object = if self == Self::UnlinkOpen {
            let held = names.file(&FILES, ops);
            names.remove(held);
            ops.extend([Op::Open(path(held)), Op::Unlink(path(held))]);
            parent(held)
        } else {
            let from = names.file(&["A/new", "A/foo", "B/foo", "A/needed"], ops);
            let held = names.file(&["B/link", "B/bar", "B/needed"], ops);
            names.remove(from);
            ops.extend([Op::Open(path(held)), Op::Rename(path(from), path(held))]);
            path(held)
        };
        ops.extend([
            Op::Append(None, 30_000),
            Op::Sync,
            Op::Write(None, 500, 2000),
            Op::Truncate(None, 9000),
            Op::Sync,
            Op::Append(None, 700),
            Op::Close,
        ]);
        object
    }

    fn one_file(self, names: &mut Names, ops: &mut Vec<Op>) -> Path {
        let file = path(names.file(&FILES, ops));
        let some = Some(file.clone());
        match self {
            Self::Grow => {
                ops.push(Op::Write(some.clone(), 44_000, 4000));
                ops.extend((0..3).map(|_| Op::Append(some.clone(), 6000)));
                return file;
            }
            Self::CutIndirect => {
                ops.push(Op::Write(some.clone(), 40_000, 50_000));
                ops.push(Op::Truncate(some.clone(), 60_000));
                ops.push(Op::Append(some, 3000));
                return file;
            }
            Self::Far => {
                ops.push(Op::Write(some, 4_300_000, 5000));
                return file;
            }
            _ => {}
        }
        ops.push(match self {
            Self::Append => Op::Append(some, 6000),
            Self::Overwrite => Op::Write(some, 700, 2000),
            Self::Truncate => Op::Truncate(some, 1000),
            Self::Fallocate => Op::Fallocate(some, 2000, 10_000),
            Self::Xattr => Op::SetXattr(some, "user.new".into(), 300),
            _ => Op::Write(some, 44_000, 16_000),
        });
        file
    }
}

fn parent(name: &str) -> Path {
    path(name.split('/').next().unwrap_or(name))
}
