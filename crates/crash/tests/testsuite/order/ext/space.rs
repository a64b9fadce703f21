//! Blocks and inodes that are given up, and used again.

use super::act::{append_to_all, exhaust_blocks, exhaust_inodes, truncate, unlink, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Lost, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 14 * 1024),
        steps: &[Do::Kernel(|r| truncate(r, "d/f", 0))],
        case: Case {
            operation: "truncate to nothing",
            writes: &[
                ("size", "inode /d/f only size"),
                ("pointers", "inode /d/f only pointers,count"),
                ("bitmap", "block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("size", Repaired(Before)),
                ("size pointers", Leak(After)),
                ("size pointers bitmap rest", Clean(After)),
                ("pointers", Leak(Part)),
                ("bitmap", Repaired(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 3 * 1024),
        steps: &[Do::Kernel(|r| truncate(r, "d/f", 700))],
        case: Case {
            operation: "truncate within a block",
            writes: &[
                ("tail", "contents of /d/f [0]"),
                ("size", "inode /d/f only size"),
                ("pointers", "inode /d/f only pointers,count"),
                ("bitmap", "block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("tail", Clean(Part)),
                ("tail size", Repaired(Part)),
                ("tail size pointers", Leak(After)),
                ("tail size pointers bitmap rest", Clean(After)),
                ("size", Repaired(Before)),
                ("pointers", Leak(Part)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 15 * 1024),
        steps: &[Do::Kernel(|r| truncate(r, "d/f", 13 * 1024))],
        case: Case {
            operation: "truncate within the indirect block",
            writes: &[
                ("size", "inode /d/f only size"),
                ("map", "map of /d/f, level 1"),
                ("count", "inode /d/f only count"),
                ("bitmap", "block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("size", Repaired(Before)),
                ("size map", Repaired(After)),
                ("size map count", Leak(After)),
                ("size map count bitmap rest", Clean(After)),
                ("map", Repaired(Part)),
                ("count", Repaired(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 900),
        steps: &[Do::Kernel(|r| unlink(r, "d/f"))],
        case: Case {
            operation: "unlink the last name",
            writes: &[
                ("links", "inode /d/f only links,dtime"),
                ("pointers", "inode /d/f only pointers,count,size"),
                ("name", "entries of /d -f"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("links", "name"), rule("links", "pointers")]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(After)),
                ("links pointers", Repaired(After)),
                ("links pointers name", Leak(After)),
                ("links pointers name bitmaps rest", Clean(After)),
                ("bitmaps", Repaired(Before)),
                ("name", Person(Harm::None)),
                ("pointers", Lost),
                ("pointers name", Repaired(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 0),
        steps: &[Do::Kernel(|r| unlink(r, "d/f"))],
        case: Case {
            operation: "unlink the last name of an empty file",
            writes: &[
                ("links", "inode /d/f only links"),
                ("dtime", "inode /d/f only dtime"),
                ("name", "entries of /d -f"),
                ("bitmap", "inode bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(After)),
                ("links dtime", Repaired(After)),
                ("links dtime name", Leak(After)),
                ("links dtime name bitmap rest", Clean(After)),
                ("dtime", Repaired(Before)),
                ("name", Repaired(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 900),
        steps: &[
            Do::Debugfs(&["ssv last_orphan {/d/f}", "sif d/f links_count 0"], &["/d/f"]),
            Do::Debugfs(&["unlink d/f"], &["/d/f"]),
        ],
        case: Case {
            operation: "unlink with the list of orphans",
            writes: &[
                ("list", "1 superblock"),
                ("links", "1 inode /d/f"),
                ("name", "2 entries of /d -f"),
            ],
            order: Order::Rules(&[rule("links", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("list", Clean(Before)),
                ("list links", Repaired(After)),
                ("list links name", Repaired(After)),
                ("name", Person(Harm::None)),
                ("list name", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 900);
            exhaust_blocks(r)
        },
        steps: &[Do::Kernel(|r| unlink(r, "d/f")), Do::Kernel(append_to_all)],
        case: Case {
            operation: "reuse a block",
            writes: &[
                ("links", "1 inode /d/f only links,dtime"),
                ("pointers", "1 inode /d/f only pointers,count,size"),
                ("name", "1 entries of /d -f"),
                ("free", "1 block bitmap & 1 inode bitmap"),
                ("data", "2 contents of /all*"),
                ("map", "2 map of /all*"),
                ("size", "2 inode /all"),
                ("taken", "2 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("links", "pointers"),
                rule("links", "name"),
                rule("links", "data"),
                rule("data", "map"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(Part)),
                ("links name", Leak(Part)),
                ("links data", Repaired(Part)),
                ("links data map", Repaired(Part)),
                ("links data map size", Repaired(After)),
                ("links pointers name free data map size", Repaired(After)),
                ("links pointers name free data map size taken rest", Clean(After)),
                ("pointers", Lost),
                ("name", Person(Harm::None)),
                ("data", Foreign),
                ("data map", Person(Harm::None)),
                ("data map size", Person(Harm::None)),
                ("links map", Repaired(Part)),
                ("links map size", Foreign),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 900);
            exhaust_blocks(r)
        },
        steps: &[Do::Kernel(|r| truncate(r, "d/f", 0)), Do::Kernel(append_to_all)],
        case: Case {
            operation: "reuse a block after a truncation",
            writes: &[
                ("length", "1 inode /d/f only size"),
                ("cut", "1 inode /d/f only pointers,count"),
                ("free", "1 block bitmap"),
                ("data", "2 contents of /all*"),
                ("map", "2 map of /all*"),
                ("size", "2 inode /all"),
                ("taken", "2 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("cut", "data"), rule("data", "map")]),
            rows: &[
                ("", Clean(Before)),
                ("length", Clean(Part)),
                ("cut", Leak(Part)),
                ("cut data", Leak(Part)),
                ("cut data map", Repaired(Part)),
                ("cut data map size", Clean(Part)),
                ("length cut free data map size taken rest", Clean(After)),
                ("data", Foreign),
                ("length data", Clean(Part)),
                ("length data map size", Person(Harm::Lost)),
                ("cut map size", Foreign),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        // Of blocks too there is none but the one that is given up: the kernel would
        // not always take that.
        prepare: |r| {
            write(r, "d/f", 900);
            write(r, "all", 0);
            exhaust_inodes(r);
            exhaust_blocks(r)
        },
        steps: &[Do::Kernel(|r| unlink(r, "d/f")), Do::Kernel(|r| write(r, "w/new", 600))],
        case: Case {
            operation: "reuse an inode",
            writes: &[
                ("gone", "1 inode /d/f"),
                ("name", "1 entries of /d -f"),
                ("inode", "2 inode /w/new but links"),
                ("data", "2 contents of /w/new [0]"),
                ("new", "2 entries of /w +new"),
                ("links", "2 inode /w/new only links"),
                ("bitmaps", "1 inode bitmap & 1 block bitmap & 2 inode bitmap & 2 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("gone", "name"),
                rule("name", "inode"),
                rule("inode", "links"),
                rule("data", "links"),
                rule("new", "links"),
                rule("gone", "new"),
                rule("gone", "data"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("gone", Repaired(Part)),
                ("gone name", Leak(Part)),
                ("gone name inode", Repaired(Part)),
                ("gone name inode data", Repaired(Part)),
                ("gone name inode data new", Repaired(Part)),
                ("gone name inode data new links", Clean(After)),
                ("gone name inode data new links bitmaps rest", Clean(After)),
                ("name", Person(Harm::None)),
                ("inode", Lost),
                ("gone data new links", Lost),
                ("gone name inode new links", Foreign),
                ("gone name inode data links", Person(Harm::None)),
                ("new", Foreign),
                ("data", Foreign),
            ],
        },
    },
];
