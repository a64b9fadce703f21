//! Directories.

use super::act::{add_names, cross, dir_before, fill_dir, link, mkdir, rename, rmdir, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Leak, Lost, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext2,
        prepare: |r| cross(r),
        steps: &[Do::Kernel(|r| link(r, "d/in", &format!("y/{}", "n".repeat(60))))],
        case: Case {
            operation: "a name across two sectors",
            writes: &[
                ("links", "inode /d/in"),
                ("tail", "entries of /y"),
                ("head", "entries of /y +*"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("tail", "head")]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(Before)),
                ("links tail", Repaired(Before)),
                ("links tail head", Clean(After)),
                ("links tail head rest", Clean(After)),
                ("head", Person(Harm::Foreign)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| mkdir(r, "d/new"))],
        case: Case {
            operation: "mkdir",
            writes: &[
                ("block", "new entries of /d/new"),
                ("inode", "inode /d/new but links"),
                ("name", "entries of /d +new"),
                ("links", "inode /d/new only links"),
                ("parent", "inode /d"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("block", "links"),
                rule("inode", "links"),
                rule("name", "links"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("block", Clean(Before)),
                ("block inode", Repaired(Before)),
                ("block inode name", Repaired(Before)),
                ("block inode name links", Repaired(After)),
                ("block inode name links parent", Repaired(After)),
                ("block inode name links parent bitmaps rest", Clean(After)),
                ("bitmaps", Leak(Before)),
                ("inode name links", Person(Harm::None)),
                ("block name links", Person(Harm::None)),
                ("block inode links", Person(Harm::None)),
                ("parent", Repaired(Before)),
                ("links", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| mkdir(r, "d/new"),
        steps: &[Do::Kernel(|r| rmdir(r, "d/new"))],
        case: Case {
            operation: "rmdir",
            writes: &[
                ("links", "inode /d/new"),
                ("name", "entries of /d -new"),
                ("parent", "inode /d"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("links", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(After)),
                ("links name", Repaired(After)),
                ("links name parent", Leak(After)),
                ("links name parent bitmaps rest", Clean(After)),
                ("name", Person(Harm::None)),
                ("parent", Repaired(Before)),
                ("links parent", Repaired(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            mkdir(r, "d/new");
            write(r, "d/new/f", 900)
        },
        steps: &[Do::Kernel(|r| rename(r, "d/new", "d/two"))],
        case: Case {
            operation: "rename a directory in a sector",
            writes: &[("names", "entries of /d -new +two"), ("rest", "the rest")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("names", Clean(After)),
                ("names rest", Clean(After)),
                ("rest", Clean(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| dir_before(r),
        steps: &[Do::Kernel(|r| rename(r, "v/old", "v/new"))],
        case: Case {
            operation: "rename a directory across sectors",
            writes: &[
                ("new", "entries of /v +new"),
                ("old", "entries of /v -old"),
                ("rest", "the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("new", Person(Harm::None)),
                ("old", Person(Harm::Unnamed)),
                ("new old", Clean(After)),
                ("new old rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| dir_before(r),
        steps: &[Do::Kernel(|r| rename(r, "v/old", "d/new"))],
        case: Case {
            operation: "rename a directory to another parent",
            writes: &[
                ("new", "entries of /d +new"),
                ("dotdot", "entries of /d/new -.. +.."),
                ("old", "entries of /v -old"),
                ("rest", "inode /d & inode /v & the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("new", Person(Harm::None)),
                ("dotdot", Person(Harm::None)),
                ("new dotdot", Person(Harm::None)),
                ("old", Person(Harm::Unnamed)),
                ("new old", Person(Harm::None)),
                ("dotdot old", Person(Harm::Unnamed)),
                ("new dotdot old", Repaired(After)),
                ("new dotdot old rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            dir_before(r);
            mkdir(r, "v/new")
        },
        steps: &[Do::Kernel(|r| rename(r, "v/old", "v/new"))],
        case: Case {
            operation: "rename a directory over an empty one",
            writes: &[
                ("target", "entries of /v -new +new"),
                ("old", "entries of /v -old"),
                ("links", "inode /v/new"),
                ("rest", "inode /v & inode bitmap & block bitmap & the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("target", Person(Harm::Lost)),
                ("old", Person(Harm::Unnamed)),
                ("target old", Person(Harm::None)),
                ("links", Lost),
                ("target links", Person(Harm::Lost)),
                ("old links", Person(Harm::Lost)),
                ("target old links", Repaired(After)),
                ("target old links rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| fill_dir(r),
        steps: &[Do::Kernel(|r| write(r, "x/new", 0))],
        case: Case {
            operation: "a directory grows by a block",
            writes: &[
                ("block", "new entries of /x"),
                ("grown", "inode /x"),
                ("inode", "inode /x/new but links"),
                ("links", "inode /x/new only links"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("block", "grown"), rule("inode", "links")]),
            rows: &[
                ("", Clean(Before)),
                ("block", Clean(Before)),
                ("block grown", Repaired(Before)),
                ("block grown inode", Repaired(Before)),
                ("block grown inode links", Repaired(After)),
                ("block grown inode links bitmaps rest", Clean(After)),
                ("grown", Person(Harm::None)),
                ("links", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2Indexed,
        prepare: fill_dir,
        steps: &[Do::Kernel(|r| link(r, "d/in", "x/new"))],
        case: Case {
            operation: "a directory gets an index",
            writes: &[
                ("leaves", "block 1 of /x & block 2 of /x"),
                ("size", "inode /x only size,pointers,count"),
                ("root", "block 0 of /x"),
                ("flag", "inode /x only flags"),
                ("rest", "inode /d/in & block bitmap & the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("leaves", Clean(Before)),
                ("size", Person(Harm::None)),
                ("leaves size", Person(Harm::None)),
                ("root", Person(Harm::Lost)),
                ("leaves root", Person(Harm::Lost)),
                ("size root", Person(Harm::Lost)),
                ("leaves size root", Repaired(After)),
                ("flag", Repaired(Before)),
                ("leaves flag", Repaired(Before)),
                ("size flag", Person(Harm::None)),
                ("leaves size flag", Person(Harm::None)),
                ("root flag", Person(Harm::Lost)),
                ("leaves root flag", Person(Harm::Lost)),
                ("size root flag", Person(Harm::Lost)),
                ("leaves size root flag", Repaired(After)),
                ("leaves size root flag rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2Indexed,
        prepare: |r| {
            fill_dir(r);
            add_names(r, 0..2)
        },
        steps: &[Do::Kernel(|r| add_names(r, 2..3))],
        case: Case {
            operation: "a leaf of an index is split",
            writes: &[
                ("leaf", "block 3 of /x"),
                ("size", "inode /x"),
                ("root", "block 0 of /x"),
                ("old", "block 2 of /x"),
                ("rest", "inode /d/in & block bitmap & the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("leaf", Clean(Before)),
                ("size", Person(Harm::None)),
                ("leaf size", Person(Harm::None)),
                ("root", Person(Harm::None)),
                ("leaf root", Person(Harm::None)),
                ("size root", Person(Harm::None)),
                ("leaf size root", Person(Harm::None)),
                ("old", Lost),
                ("leaf old", Lost),
                ("size old", Person(Harm::Lost)),
                ("leaf size old", Person(Harm::None)),
                ("root old", Person(Harm::Lost)),
                ("leaf root old", Person(Harm::Lost)),
                ("size root old", Person(Harm::Lost)),
                ("leaf size root old", Repaired(After)),
                ("leaf size root old rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2Indexed,
        prepare: |r| {
            fill_dir(r);
            link(r, "d/in", "x/new")
        },
        steps: &[Do::Debugfs(&["sif x flags 0"], &[])],
        case: Case {
            operation: "an index is given up",
            writes: &[("flag", "inode /x")],
            order: Order::Rules(&[]),
            rows: &[("", Clean(Before)), ("flag", Clean(Before))],
        },
    },
];
