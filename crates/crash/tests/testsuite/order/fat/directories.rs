//! Directories.

use super::{Do, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Person, Repaired, Twice, Unnamed};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Harm;
use crate::order::tree::Shows::{After, Before};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        bits: 16,
        prepare: &[],
        steps: &[Do::Then(&["mmd ::D/NEW"])],
        case: Case {
            operation: "mkdir",
            writes: &[
                ("cluster", "new entries of /D/NEW [0]"),
                ("end", "link of /D/NEW [0]"),
                ("copy", "copy of link of /D/NEW [0]"),
                ("name", "entry of /D/NEW"),
            ],
            order: Order::Rules(&[rule("cluster", "name"), rule("end", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("cluster", Clean(Before)),
                ("cluster end", Repaired(Before)),
                ("cluster end copy name", Clean(After)),
                ("cluster end name", Repaired(After)),
                ("copy", Repaired(Before)),
                ("end name", Person(Harm::Lost)),
                ("cluster name", Twice),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["mmd ::D/NEW"],
        steps: &[Do::Then(&["mrd ::D/NEW"])],
        case: Case {
            operation: "rmdir",
            writes: &[
                ("name", "entry of /D/NEW"),
                ("free", "link of /D/NEW [0]"),
                ("copy", "copy of link of /D/NEW [0]"),
            ],
            order: Order::Rules(&[rule("name", "free")]),
            rows: &[
                ("", Clean(Before)),
                ("name", Leak(After)),
                ("name free copy", Clean(After)),
                ("free", Twice),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["mmd ::D/SUB", "write D/SUB/F 300"],
        steps: &[Do::Then(&["mmove ::D/SUB ::E"])],
        case: Case {
            operation: "move a directory to one that is read later",
            writes: &[
                ("new", "entry of /E/SUB"),
                ("dotdot", "entry of /E/SUB/.."),
                ("old", "entry of /D/SUB"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("new", Twice),
                ("dotdot", Repaired(Before)),
                ("new dotdot", Twice),
                ("old", Unnamed),
                ("new old", Repaired(After)),
                ("dotdot old", Unnamed),
                ("new dotdot old", Clean(After)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["mmd ::E/SUB", "write E/SUB/F 300"],
        steps: &[Do::Then(&["mmove ::E/SUB ::D"])],
        case: Case {
            operation: "move a directory to one that is read earlier",
            writes: &[
                ("new", "entry of /D/SUB"),
                ("dotdot", "entry of /D/SUB/.."),
                ("old", "entry of /E/SUB"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("new", Twice),
                ("dotdot", Repaired(Before)),
                ("new dotdot", Twice),
                ("old", Unnamed),
                ("new old", Repaired(After)),
                ("dotdot old", Unnamed),
                ("new dotdot old", Clean(After)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &[
            "write D/A 9",
            "write D/B 9",
            "write D/C 9",
            "write D/G 9",
            "write D/H 9",
            "write D/I 9",
            "write D/J 9",
            "write D/L 9",
            "write D/M 9",
            "write D/N 9",
            "write D/O 9",
            "write D/P 9",
            "write D/Q 9",
        ],
        steps: &[Do::Then(&["write D/NEW 0"])],
        case: Case {
            operation: "a directory grows by a cluster",
            writes: &[
                ("cluster", "new entries of /D [1]"),
                ("end", "link of /D [1]"),
                ("link", "link of /D [0]"),
                ("copy", "copy of link of /D [0] & copy of link of /D [1]"),
            ],
            order: Order::Rules(&[rule("cluster", "link")]),
            rows: &[
                ("", Clean(Before)),
                ("cluster", Clean(Before)),
                ("cluster end", Repaired(Before)),
                ("cluster end link", Repaired(After)),
                ("cluster end link copy", Clean(After)),
                ("end link", Foreign),
            ],
        },
    },
];
