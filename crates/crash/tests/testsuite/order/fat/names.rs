//! Long names and renames.

use super::{Do, Operation};
use crate::order::case::Verdict::{Clean, Foreign, Leak, Lost, Repaired, Unnamed};
use crate::order::case::{Case, Order, rule};
use crate::order::tree::Shows::{After, Before, Part};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        bits: 16,
        prepare: &[],
        steps: &[Do::Then(&["write D/a-long-name.text 0"])],
        case: Case {
            operation: "create with a long name",
            writes: &[
                ("second", "slots of /D/a-long-name.text only first"),
                ("first", "slots of /D/a-long-name.text but first"),
                ("name", "entry of /D/a-long-name.text"),
            ],
            order: Order::Rules(&[]),
            rows: &[
                ("", Clean(Before)),
                ("second", Repaired(Before)),
                ("second first", Repaired(Before)),
                ("second first name", Clean(After)),
                ("first", Clean(Before)),
                ("name", Clean(Before)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &[
            "write D/A 0",
            "write D/B 0",
            "write D/C 0",
            "write D/G 0",
            "mdel ::D/A ::D/B ::D/C",
        ],
        steps: &[Do::Then(&["write D/a-long-name.text 0"])],
        case: Case {
            operation: "create with a long name in slots used before",
            writes: &[
                ("second", "slots of /D/a-long-name.text only first"),
                ("first", "slots of /D/a-long-name.text but first"),
                ("name", "entry of /D/a-long-name.text"),
            ],
            order: Order::Rules(&[rule("second", "name"), rule("first", "name")]),
            rows: &[
                ("", Clean(Before)),
                ("second", Repaired(Before)),
                ("second first", Repaired(Before)),
                ("second first name", Clean(After)),
                ("first name", Foreign),
                ("second name", Foreign),
                ("first", Clean(Before)),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/a-long-name.text 400"],
        steps: &[Do::Then(&["mdel ::D/a-long-name.text"])],
        case: Case {
            operation: "unlink a long name",
            writes: &[
                ("name", "entry of /D/a-long-name.text"),
                ("slots", "slots of /D/a-long-name.text"),
                ("free", "link of /D/a-long-name.text [0]"),
                ("copy", "copy of link of /D/a-long-name.text [0]"),
            ],
            order: Order::Rules(&[rule("name", "slots"), rule("name", "free")]),
            rows: &[
                ("", Clean(Before)),
                ("name", Repaired(After)),
                ("name slots", Leak(After)),
                ("name slots free copy", Clean(After)),
                ("slots", Foreign),
                ("free", Lost),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900"],
        steps: &[Do::Then(&["mren ::D/F NEW"])],
        case: Case {
            operation: "rename in a directory",
            writes: &[("name", "entry of /D/NEW")],
            order: Order::Rules(&[]),
            rows: &[("", Clean(Before)), ("name", Clean(After))],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900", "write D/G 300"],
        steps: &[Do::Then(&["mren ::D/F a-long-name.text"])],
        case: Case {
            operation: "rename to a long name",
            writes: &[
                ("slots", "slots of /D/a-long-name.text"),
                ("new", "entry of /D/a-long-name.text"),
                ("old", "entry of /D/F"),
            ],
            order: Order::Rules(&[rule("slots", "old"), rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("slots", Repaired(Before)),
                ("slots new", Repaired(Part)),
                ("slots new old", Clean(After)),
                ("new old", Lost),
                ("slots old", Unnamed),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900"],
        steps: &[Do::Then(&["mmove ::D/F ::E"])],
        case: Case {
            operation: "rename to a directory that is read later",
            writes: &[("new", "entry of /E/F"), ("old", "entry of /D/F")],
            order: Order::Rules(&[rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("new", Repaired(Part)),
                ("new old", Clean(After)),
                ("old", Unnamed),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write E/F 900"],
        steps: &[Do::Then(&["mmove ::E/F ::D"])],
        case: Case {
            operation: "rename to a directory that is read earlier",
            writes: &[("new", "entry of /D/F"), ("old", "entry of /E/F")],
            order: Order::Rules(&[rule("new", "old")]),
            rows: &[
                ("", Clean(Before)),
                ("new", Repaired(Part)),
                ("new old", Clean(After)),
                ("old", Unnamed),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 900", "write D/TMP 700"],
        steps: &[Do::Then(&["mren -D o ::D/TMP F"])],
        case: Case {
            operation: "rename over a file that is read earlier",
            writes: &[
                ("old", "entry of /D/TMP"),
                ("target", "entry of /D/F"),
                ("free", "link of /D/F [0] & link of /D/F [1]"),
                ("copy", "copy of link of /D/F [0] & copy of link of /D/F [1]"),
            ],
            order: Order::Rules(&[rule("target", "old"), rule("target", "free")]),
            rows: &[
                ("", Clean(Before)),
                ("target", Repaired(Part)),
                ("old target", Leak(After)),
                ("old target free copy", Clean(After)),
                ("old", Unnamed),
                ("free", Lost),
            ],
        },
    },
    Operation {
        bits: 16,
        prepare: &["write D/F 700", "write E/F 900"],
        steps: &[Do::Then(&["mmove -D o ::D/F ::E"])],
        case: Case {
            operation: "rename over a file that is read later",
            writes: &[
                ("old", "entry of /D/F"),
                ("target", "entry of /E/F"),
                ("free", "link of /E/F [0] & link of /E/F [1]"),
                ("copy", "copy of link of /E/F [0] & copy of link of /E/F [1]"),
            ],
            order: Order::Impossible,
            rows: &[
                ("", Clean(Before)),
                ("old", Unnamed),
                ("target", Lost),
                ("old target", Leak(After)),
                ("old target free copy", Clean(After)),
            ],
        },
    },
];
