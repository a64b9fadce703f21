//! Attributes of files.

use super::act::{change, chmod, set, set_as, truncate, unset, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Leak, Lost, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 900),
        steps: &[Do::Kernel(|r| chmod(r, "d/f"))],
        case: Case {
            operation: "chmod",
            writes: &[("inode", "inode /d/f"), ("rest", "the rest")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("inode", Clean(After)),
                ("inode rest", Clean(After)),
                ("rest", Clean(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 9);
            write(r, "d/g", 8);
            set(r, "d/f")
        },
        steps: &[Do::Kernel(|r| set_as(r, "d/f", "d/g"))],
        case: Case {
            operation: "share an attribute block",
            writes: &[
                ("count", "attributes of /d/f"),
                ("pointer", "inode /d/g"),
                ("rest", "the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("count", Person(Harm::None)),
                ("pointer", Person(Harm::None)),
                ("count pointer", Clean(After)),
                ("count pointer rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 9);
            write(r, "d/g", 8);
            set(r, "d/f");
            set(r, "d/g")
        },
        steps: &[Do::Kernel(|r| unset(r, "d/g"))],
        case: Case {
            operation: "leave a shared attribute block",
            writes: &[
                ("pointer", "inode /d/g"),
                ("count", "attributes of /d/f"),
                ("rest", "the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("pointer", Person(Harm::None)),
                ("count", Person(Harm::None)),
                ("pointer count", Clean(After)),
                ("pointer count rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 9),
        steps: &[Do::Kernel(|r| set(r, "d/f"))],
        case: Case {
            operation: "first attribute",
            writes: &[
                ("block", "attributes of /d/f"),
                ("pointer", "inode /d/f"),
                ("bitmap", "block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("block", "pointer")]),
            rows: &[
                ("", Clean(Before)),
                ("block", Clean(Before)),
                ("block pointer", Repaired(After)),
                ("block pointer bitmap rest", Clean(After)),
                ("pointer", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 9);
            set(r, "d/f")
        },
        steps: &[Do::Kernel(|r| unset(r, "d/f"))],
        case: Case {
            operation: "last attribute",
            writes: &[("pointer", "inode /d/f"), ("bitmap", "block bitmap"), ("rest", "the rest")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("pointer", Leak(After)),
                ("pointer bitmap rest", Clean(After)),
                ("bitmap", Repaired(Before)),
                ("rest", Leak(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 9);
            set(r, "d/f")
        },
        steps: &[Do::Kernel(|r| change(r, "d/f"))],
        case: Case {
            operation: "change an attribute in place",
            writes: &[
                ("first", "attributes of /d/f only sector 0"),
                ("second", "attributes of /d/f only sector 1"),
                ("rest", "the rest"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("first", Lost),
                ("second", Lost),
                ("first second", Clean(After)),
                ("first second rest", Clean(After)),
            ],
        },
    },
    Operation {
        format: Format::Ext2Small,
        prepare: |r| write(r, "d/f", 9),
        steps: &[Do::Kernel(|r| truncate(r, "d/f", 3 << 30))],
        case: Case {
            operation: "a first file of 3 GiB",
            writes: &[("flag", "superblock"), ("size", "inode /d/f")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("flag", Clean(Before)),
                ("flag size", Clean(After)),
                ("size", Repaired(After)),
            ],
        },
    },
];
