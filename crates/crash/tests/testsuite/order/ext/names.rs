//! Links and symlinks.

use super::act::{link, symlink, unlink, write};
use super::{Do, Format, Operation};
use crate::order::case::Verdict::{Clean, Person, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        format: Format::Ext2,
        prepare: |r| {
            write(r, "d/f", 900);
            link(r, "d/f", "d/g")
        },
        steps: &[Do::Kernel(|r| unlink(r, "d/g"))],
        case: Case {
            operation: "unlink one of two names",
            writes: &[("name", "entries of /d -g"), ("links", "inode /d/f"), ("rest", "the rest")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("name", Repaired(After)),
                ("name links", Clean(After)),
                ("name links rest", Clean(After)),
                ("links", Repaired(Before)),
                ("rest", Clean(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |r| write(r, "d/f", 900),
        steps: &[Do::Kernel(|r| link(r, "d/f", "d/g"))],
        case: Case {
            operation: "link",
            writes: &[("links", "inode /d/f"), ("name", "entries of /d +g"), ("rest", "the rest")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("links", Repaired(Before)),
                ("links name", Clean(After)),
                ("links name rest", Clean(After)),
                ("name", Repaired(After)),
                ("rest", Clean(Before)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| symlink(r, 20, "d/s"))],
        case: Case {
            operation: "fast symlink",
            writes: &[
                ("inode", "inode /d/s but links"),
                ("name", "entries of /d +s"),
                ("links", "inode /d/s only links"),
                ("bitmap", "inode bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[rule("inode", "links"), rule("name", "links")]),
            rows: &[
                ("", Clean(Before)),
                ("inode", Repaired(Before)),
                ("inode name", Repaired(Before)),
                ("inode name links", Repaired(After)),
                ("inode name links bitmap rest", Clean(After)),
                ("name links", Person(Harm::None)),
                ("inode links", Person(Harm::None)),
            ],
        },
    },
    Operation {
        format: Format::Ext2,
        prepare: |_| (),
        steps: &[Do::Kernel(|r| symlink(r, 200, "d/s"))],
        case: Case {
            operation: "slow symlink",
            writes: &[
                ("target", "contents of /d/s [0]"),
                ("inode", "inode /d/s but links"),
                ("name", "entries of /d +s"),
                ("links", "inode /d/s only links"),
                ("bitmaps", "inode bitmap & block bitmap"),
                ("rest", "the rest"),
            ],
            order: Order::Rules(&[
                rule("target", "links"),
                rule("inode", "links"),
                rule("name", "links"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("target", Clean(Before)),
                ("target inode", Repaired(Before)),
                ("target inode name", Repaired(Before)),
                ("target inode name links", Repaired(After)),
                ("target inode name links bitmaps rest", Clean(After)),
                ("inode name links", Person(Harm::None)),
                ("target name links", Person(Harm::None)),
                ("target inode links", Person(Harm::None)),
            ],
        },
    },
];
