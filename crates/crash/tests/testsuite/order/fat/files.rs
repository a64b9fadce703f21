//! Files that are made, grow, shrink and go.

use super::{Do, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Lost, Repaired};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        bits: 16,
        prepare: &[],
        steps: &[Do::Then(&["write D/NEW 1200"])],
        case: Case {
            operation: "create",
            writes: &[
                (
                    "data",
                    "contents of /D/NEW [0] & contents of /D/NEW [1] & contents of /D/NEW [2]",
                ),
                ("end", "link of /D/NEW [2]"),
                ("chain", "link of /D/NEW [0] & link of /D/NEW [1]"),
                (
                    "copy",
                    "copy of link of /D/NEW [0] & copy of link of /D/NEW [1] & copy of link of /D/NEW [2]",
                ),
                ("name", "entry of /D/NEW but start,size"),
                ("start", "entry of /D/NEW only start"),
                ("size", "entry of /D/NEW only size"),
            ],
            order: Order::Rules(&[rule("data", "size")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data end", Repaired(Before)),
                ("data end chain", Repaired(Before)),
                ("data end chain copy name", Leak(Part)),
                ("data end chain copy name start", Repaired(Part)),
                ("data end chain copy name start size", Clean(After)),
                ("data end chain name start size", Repaired(After)),
                ("copy", Repaired(Before)),
                ("chain name start size", Foreign),
                ("name size", Repaired(Part)),
                ("name start", Repaired(Part)),
                ("end chain copy", Leak(Before)),
                ("data chain copy name start size", Repaired(Part)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 500"],
        steps: &[Do::Instead(&["write D/F 900"])],
        case: Case {
            operation: "append a cluster",
            writes: &[
                ("data", "contents of /D/F [1] & contents of /D/F [0]"),
                ("end", "link of /D/F [1]"),
                ("link", "link of /D/F [0]"),
                ("copy", "copy of link of /D/F [0] & copy of link of /D/F [1]"),
                ("size", "entry of /D/F"),
            ],
            order: Order::Rules(&[rule("data", "size")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data end", Repaired(Before)),
                ("data end link", Repaired(Before)),
                ("data end link copy size", Clean(After)),
                ("data end link size", Repaired(After)),
                ("copy", Repaired(Before)),
                ("size", Foreign),
                ("data size", Repaired(Part)),
                ("link", Repaired(Before)),
                ("link copy", Repaired(Before)),
                ("end copy", Repaired(Before)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 300"],
        steps: &[Do::Instead(&["write D/F 500"])],
        case: Case {
            operation: "append within a cluster",
            writes: &[("data", "contents of /D/F [0]"), ("size", "entry of /D/F")],
            order: Order::Rules(&[rule("data", "size")]),
            rows: &[
                ("", Clean(Before)),
                ("data", Clean(Before)),
                ("data size", Clean(After)),
                ("size", Foreign),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 1400"],
        steps: &[Do::Instead(&["write D/F 400"])],
        case: Case {
            operation: "truncate to a cluster",
            writes: &[
                ("size", "entry of /D/F"),
                ("end", "link of /D/F [0]"),
                ("free", "link of /D/F [1] & link of /D/F [2]"),
                (
                    "copy",
                    "copy of link of /D/F [0] & copy of link of /D/F [1] & copy of link of /D/F [2]",
                ),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("size", Repaired(After)),
                ("size end", Repaired(After)),
                ("size end free copy", Clean(After)),
                ("end", Repaired(Part)),
                ("free", Repaired(Part)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900"],
        steps: &[Do::Instead(&["write D/F 0"])],
        case: Case {
            operation: "truncate to nothing",
            writes: &[
                ("start", "entry of /D/F only start"),
                ("size", "entry of /D/F only size"),
                ("free", "link of /D/F [0] & link of /D/F [1]"),
                ("copy", "copy of link of /D/F [0] & copy of link of /D/F [1]"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("start", Repaired(After)),
                ("start size", Leak(After)),
                ("start size free copy", Clean(After)),
                ("size", Repaired(After)),
                ("free", Repaired(After)),
                ("start size free", Repaired(After)),
                ("copy", Repaired(Before)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900"],
        steps: &[Do::Then(&["mdel ::D/F"])],
        case: Case {
            operation: "unlink",
            writes: &[
                ("name", "entry of /D/F"),
                ("free", "link of /D/F [0] & link of /D/F [1]"),
                ("copy", "copy of link of /D/F [0] & copy of link of /D/F [1]"),
            ],
            order: Order::Rules(&[rule("name", "free")]),
            rows: &[
                ("", Clean(Before)),
                ("name", Leak(After)),
                ("name free", Repaired(After)),
                ("name free copy", Clean(After)),
                ("copy", Repaired(Before)),
                ("free", Lost),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900"],
        steps: &[Do::Then(&["mdel ::D/F"]), Do::Then(&["write E/NEW 500"])],
        case: Case {
            operation: "reuse a cluster",
            writes: &[
                ("gone", "1 entry of /D/F"),
                ("free", "1 link of /D/F [0] & 1 link of /D/F [1]"),
                ("data", "2 contents of /E/NEW [0]"),
                ("taken", "2 link of /E/NEW [0]"),
                ("name", "2 entry of /E/NEW"),
                (
                    "copy",
                    "1 copy of link of /D/F [0] & 1 copy of link of /D/F [1] & 2 copy of link of /E/NEW [0]",
                ),
            ],
            order: Order::Rules(&[
                rule("gone", "free"),
                rule("gone", "data"),
                rule("gone", "taken"),
                rule("data", "name"),
            ]),
            rows: &[
                ("", Clean(Before)),
                ("gone", Leak(Part)),
                ("gone free data", Repaired(Part)),
                ("gone free data taken name", Repaired(After)),
                ("gone free data taken name copy", Clean(After)),
                ("free", Lost),
                ("data", Foreign),
                ("taken", Lost),
                ("gone name", Foreign),
                ("name", Repaired(Part)),
                ("data name", Foreign),
            ],
        },
    },
];
