//! The summary, the marks of a volume in use, and entries of FAT12 in two sectors.

use super::{Do, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Lost, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        bits: 16,
        prepare: &[],
        steps: &[Do::Set(&[(515, 0x7F), (9731, 0x7F)])],
        case: Case {
            operation: "mark as dirty, in the table",
            writes: &[("flag", "flags of the table"), ("copy", "copy of flags of the table")],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("flag", Repaired(Before)),
                ("flag copy", Repaired(Before)),
                ("copy", Repaired(Before)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &[],
        steps: &[Do::Set(&[(37, 0x01)])],
        case: Case {
            operation: "mark as dirty, in the boot sector",
            writes: &[("flag", "flags of the boot sector")],
            order: Order::Rules(&[]),
            rows: &[("", Clean(Before)), ("flag", Repaired(Before))],
        },
    },
    Operation {
        bits: 12,
        prepare: &["write BIG 169472", "write D/F 500"],
        steps: &[Do::Instead(&["write BIG 169472", "write D/F 900"])],
        case: Case {
            operation: "allocate the cluster of which the entry is in two sectors",
            writes: &[
                ("data", "contents of /D/F [1] & contents of /D/F [0]"),
                ("first", "table, sector 0"),
                ("second", "table, sector 1"),
                ("copy", "copy of table, sector 0 & copy of table, sector 1"),
                ("size", "entry of /D/F"),
            ],
            order: Order::Rules(&[rule("data", "size"), rule("second", "first")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data second", Repaired(Before)),
                ("data first second", Repaired(Before)),
                ("data first second copy size", Clean(After)),
                ("size", Foreign),
                ("first", Lost),
                ("second", Repaired(Before)),
            ],
        },
    },
    Operation {
        bits: 12,
        prepare: &[
            "write BIG 169472",
            "write D/X 1400",
            "write D/G 8000",
            "mdel ::D/X",
            "write D/F 900",
        ],
        steps: &[Do::Instead(&[
            "write BIG 169472",
            "write D/X 1400",
            "write D/G 8000",
            "mdel ::D/X",
            "write D/F 1400",
        ])],
        case: Case {
            operation: "append after the cluster of which the entry is in two sectors",
            writes: &[
                ("data", "contents of /D/F [1] & contents of /D/F [2]"),
                ("first", "table, sector 0"),
                ("second", "table, sector 1"),
                ("copy", "copy of table, sector 0 & copy of table, sector 1"),
                ("size", "entry of /D/F"),
            ],
            order: Order::Rules(&[rule("data", "size"), rule("first", "second")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data first", Repaired(Before)),
                ("data first second", Repaired(Before)),
                ("data first second size", Repaired(After)),
                ("data first second copy size", Clean(After)),
                ("size", Foreign),
                ("second", Lost),
                ("first", Repaired(Before)),
            ],
        },
    },
    Operation {
        bits: 12,
        prepare: &[
            "write BIG 169472",
            "write D/X 1400",
            "write D/G 8000",
            "mdel ::D/X",
            "write D/F 1400",
        ],
        steps: &[Do::Instead(&[
            "write BIG 169472",
            "write D/X 1400",
            "write D/G 8000",
            "mdel ::D/X",
            "write D/F 900",
        ])],
        case: Case {
            operation: "truncate at the cluster of which the entry is in two sectors",
            writes: &[
                ("first", "table, sector 0"),
                ("second", "table, sector 1"),
                ("copy", "copy of table, sector 0 & copy of table, sector 1"),
                ("size", "entry of /D/F"),
            ],
            order: Order::Rules(&[rule("second", "first")]),
            rows: &[
                ("", Clean(Before)),
                ("size", Repaired(After)),
                ("second size", Repaired(After)),
                ("first second size", Repaired(After)),
                ("first second copy size", Clean(After)),
                ("first", Foreign),
                ("second", Repaired(Part)),
                ("first size", Lost),
            ],
        },
    },
    Operation {
        bits: 32,
        prepare: &[],
        steps: &[Do::Then(&["write D/NEW 500"])],
        case: Case {
            operation: "create on FAT32",
            writes: &[
                ("data", "contents of /D/NEW [0]"),
                ("end", "link of /D/NEW [0]"),
                ("copy", "copy of link of /D/NEW [0]"),
                ("name", "entry of /D/NEW"),
                ("summary", "summary"),
            ],
            order: Order::Rules(&[rule("data", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data end", Repaired(Before)),
                ("data end copy name", Leak(After)),
                ("data end copy name summary", Clean(After)),
                ("end name", Foreign),
                ("summary", Leak(Before)),
            ],
        },
    },
    Operation {
        bits: 32,
        prepare: &[],
        steps: &[Do::Set(&[(1000, 0xFF), (1001, 0xFF), (1002, 0xFF), (1003, 0xFF)])],
        case: Case {
            operation: "set the count of free clusters to unknown",
            writes: &[("unknown", "summary")],
            order: Order::Rules(&[]),
            rows: &[("", Clean(Before)), ("unknown", Clean(Before))],
        },
    },
    Operation {
        bits: 32,
        prepare: &[],
        steps: &[Do::Set(&[(65, 0x01)])],
        case: Case {
            operation: "mark as dirty on FAT32",
            writes: &[("flag", "flags of the boot sector")],
            order: Order::Rules(&[]),
            rows: &[("", Clean(Before)), ("flag", Repaired(Before))],
        },
    },
];
