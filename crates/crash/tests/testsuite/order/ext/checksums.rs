//! Volumes with checksums of their metadata, without a journal.

use super::act::{append, mkdir, rename, unlink, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext4,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| write(r, "d/new", 900))],
        case: Case {
            operation: "create and write, with checksums",
            writes: &[
                ("data", "contents of /d/new [0]"),
                ("inode", "inode /d/new"),
                ("name", "entries of /d +new & entries of /d"),
                ("block-bitmap", "block bitmap"),
                ("inode-bitmap", "inode bitmap"),
                ("descriptor", "descriptors"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("data", "name"),
                rule("inode", "name"),
                rule("name", "descriptor"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data inode", Clean(Before)),
                ("data inode name", Repaired(After)),
                ("data inode name block-bitmap", Repaired(After)),
                ("data inode name block-bitmap inode-bitmap", Repaired(After)),
                ("data inode name block-bitmap inode-bitmap descriptor", Leak(After)),
                ("data inode name block-bitmap inode-bitmap descriptor rest", Clean(After)),
                ("inode name", Foreign),
                ("data name", Person(Harm::None)),
                ("inode descriptor", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext4,
        prepare: |r| write(r, "d/f", 1024),
        steps: &[Do::Kernel(|r| append(r, "d/f", 1000))],
        case: Case {
            operation: "append a block, with checksums",
            writes: &[
                ("data", "contents of /d/f [1]"),
                ("inode", "inode /d/f"),
                ("bitmap", "block bitmap"),
                ("descriptor", "descriptors"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("data", "inode")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data inode", Repaired(After)),
                ("data inode bitmap descriptor", Leak(After)),
                ("data inode bitmap descriptor rest", Clean(After)),
                ("data inode descriptor", Repaired(After)),
                ("bitmap", Repaired(Before)),
                ("inode", Foreign),
                ("descriptor", Repaired(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext4,
        prepare: |r| write(r, "d/f", 900),
        steps: &[Do::Kernel(|r| unlink(r, "d/f"))],
        case: Case {
            operation: "unlink the last name, with checksums",
            writes: &[
                ("inode", "inode /d/f"),
                ("name", "entries of /d -f & entries of /d"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("descriptor", "descriptors"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("inode", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("inode", Repaired(After)),
                ("inode name", Leak(After)),
                ("inode name bitmaps descriptor", Leak(After)),
                ("inode name bitmaps descriptor rest", Clean(After)),
                ("name", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext4,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| rename(r, "w/old", "w/new"))],
        case: Case {
            operation: "rename across sectors, with checksums",
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
        format: Format::Ext4,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| mkdir(r, "d/new"))],
        case: Case {
            operation: "mkdir, with checksums",
            writes: &[
                ("block", "new entries of /d/new"),
                ("inode", "inode /d/new"),
                ("name", "entries of /d +new & entries of /d"),
                ("parent", "inode /d"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("descriptor", "descriptors"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("block", "name"),
                rule("inode", "name"),
                rule("name", "descriptor"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("block", Clean(Before)),
                ("block inode", Clean(Before)),
                ("block inode name", Repaired(After)),
                ("block inode name parent", Repaired(After)),
                ("block inode name parent bitmaps descriptor", Leak(After)),
                ("block inode name parent bitmaps descriptor rest", Clean(After)),
                ("inode name", Person(Harm::None)),
                ("block name", Person(Harm::None)),
                ("inode descriptor", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext4,
        prepare: |_| (),
        steps: &[
            Do::Kernel(|r| write(r, "d/new", 900)),
            Do::Debugfs(&["sif d/new links_count 0"], &[]),
            Do::Debugfs(&["sif d/new links_count 1"], &[]),
        ],
        case: Case {
            operation: "create and write, with checksums, link count last",
            writes: &[
                ("data", "1 contents of /d/new [0]"),
                ("inode", "2 inode /d/new"),
                ("name", "1 entries of /d +new & 1 entries of /d"),
                ("descriptor", "1 descriptors"),
                ("links", "3 inode /d/new"),
                ("bitmaps", "1 inode bitmap & 1 block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("descriptor", "name"),
                rule("name", "links"),
                rule("data", "links"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data inode", Clean(Before)),
                ("data inode descriptor", Repaired(Before)),
                ("data inode name descriptor", Repaired(Before)),
                ("data inode name descriptor links", Repaired(After)),
                ("data inode name descriptor links bitmaps", Leak(After)),
                ("data inode name descriptor links bitmaps rest", Clean(After)),
                ("name", Person(Harm::None)),
                ("data descriptor links", Person(Harm::None)),
                ("name descriptor links", Foreign),
                ("inode", Clean(Before)),
                ("inode name", Repaired(Before)),
            ],
        },
    },
];
