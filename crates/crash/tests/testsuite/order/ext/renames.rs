//! Renames of files.

use super::act::{exchange, link, rename, unlink, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Leak, Lost, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| rename(r, "d/in", "d/out"))],
        case: Case {
            operation: "rename in a sector",
            writes: &[("names", "entries of /d -in +out"), ("rest", "the rest")],
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
        prepare: |_| (),
        steps: &[Do::Kernel(|r| rename(r, "w/old", "w/new"))],
        case: Case {
            operation: "rename across sectors",
            writes: &[
                ("new", "entries of /w +new"),
                ("old", "entries of /w -old"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("new", Repaired(Part)),
                ("new old", Clean(After)),
                ("new old rest", Clean(After)),
                ("old", Person(Harm::Unnamed)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| link(r, "w/old", "w/new")), Do::Kernel(|r| unlink(r, "w/old"))],
        case: Case {
            operation: "rename by link and unlink",
            writes: &[
                ("up", "1 inode /w/old"),
                ("new", "1 entries of /w +new"),
                ("old", "2 entries of /w -old"),
                ("down", "2 inode /w/new"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("up", Repaired(Before)),
                ("up new", Clean(Part)),
                ("up new old", Repaired(After)),
                ("up new old down", Clean(After)),
                ("up new old down rest", Clean(After)),
                ("old", Person(Harm::Unnamed)),
                ("new old", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| rename(r, "d/in", "w/new"))],
        case: Case {
            operation: "rename to another directory",
            writes: &[
                ("new", "entries of /w +new"),
                ("old", "entries of /d -in"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("new", Repaired(Part)),
                ("new old", Clean(After)),
                ("new old rest", Clean(After)),
                ("old", Person(Harm::Unnamed)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| rename(r, "w/old", "w/edge"))],
        case: Case {
            operation: "rename over a file",
            writes: &[
                ("links", "inode /w/edge"),
                ("target", "entries of /w -edge +edge"),
                ("old", "entries of /w -old"),
                ("rest", "inode bitmap & block bitmap & the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("links", Lost),
                ("target", Person(Harm::None)),
                ("links target", Repaired(Part)),
                ("old", Person(Harm::Unnamed)),
                ("links old", Person(Harm::Lost)),
                ("target old", Person(Harm::None)),
                ("links target old", Leak(After)),
                ("links target old rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[
            Do::Kernel(|r| link(r, "w/edge", "d/hidden")),
            Do::Kernel(|r| rename(r, "w/old", "w/edge")),
            Do::Kernel(|r| unlink(r, "d/hidden")),
        ],
        case: Case {
            operation: "rename over a file, with a hidden name",
            writes: &[
                ("up", "1 inode /d/hidden"),
                ("hidden", "1 entries of /d +hidden"),
                ("target", "2 entries of /w -edge +edge"),
                ("old", "2 entries of /w -old"),
                ("down", "2 inode /d/hidden only links"),
                ("gone", "3 inode /d/hidden"),
                ("unhide", "3 entries of /d -hidden"),
                ("bitmaps", "3 inode bitmap & 3 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("hidden", "target"),
                rule("target", "old"),
                rule("target", "gone"),
                rule("gone", "unhide"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("up", Repaired(Before)),
                ("up hidden", Clean(Part)),
                ("up hidden target", Repaired(Part)),
                ("up hidden target old", Repaired(Part)),
                ("up hidden target old down", Clean(Part)),
                ("up hidden target old down gone", Repaired(After)),
                ("up hidden target old down gone unhide", Leak(After)),
                ("up hidden target old down gone unhide bitmaps rest", Clean(After)),
                ("target", Person(Harm::None)),
                ("old", Person(Harm::Unnamed)),
                ("gone", Lost),
                ("hidden target unhide", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 900),
        steps: &[Do::Kernel(|r| exchange(r, "d/f", "d/in")), Do::Kernel(|r| unlink(r, "d/f"))],
        case: Case {
            operation: "rename over a file in a sector, by an exchange",
            writes: &[
                ("exchange", "1 entries*"),
                ("links", "2 inode /d/f"),
                ("name", "2 entries of /d -f"),
                ("bitmaps", "2 inode bitmap & 2 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("exchange", "links"), rule("links", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("exchange", Clean(Part)),
                ("exchange links", Repaired(After)),
                ("exchange links name", Leak(After)),
                ("exchange links name bitmaps rest", Clean(After)),
                ("links", Lost),
                ("name", Person(Harm::None)),
            ],
        },
    },
];
