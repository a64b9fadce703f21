"""docs/experiments.md: dirpref, and sentences about the policy."""

import re

from .page import Table, figure
from .program import experiment

CELLS = ["first/normal", "first/softdep", "second/normal", "second/softdep"]
# The sentences, and the speed-ups of which each is true.
SENTENCES = {
    "5 to 12% faster": lambda ratio: 1.05 <= ratio <= 1.12,
    "not faster for compilation": lambda ratio: ratio <= 1,
    "better in all cases": lambda ratio: ratio > 1,
}
# The phases that the rows name.
PHASES = {
    "build": ("build", "all"),
    "build, compile": ("build", "compile"),
    "andrew": ("andrew", "all"),
    "andrew, compile": ("andrew", "compile"),
    "tarcp": ("tarcp", "tarcp"),
    "tar": ("tarcp", "tar"),
    "postmark": ("postmark", "postmark"),
    "untar": ("ports", "untar"),
    "rm": ("ports", "rm"),
}


@figure("dirpref", Table("experiments.md", "| system, discipline, phase | old s"))
def dirpref(report, table):
    keys = ["old_s", "new_s", "speedup", "published_speedup", "published_old_s", "published_new_s"]
    for cell in experiment("dirpref")["cells"]:
        label = "/".join(cell[key] for key in ["system", "discipline", "phase"])
        report.row(table, label, [f"{cell[key]:.2f}" for key in keys])


@figure("dirpref-claims", Table("experiments.md", "seekless lab run dirpref-claims"))
def claims(report, table):
    only = ["andrew"] if report.quick else []
    cells = experiment("dirpref")["cells"] + experiment("dirpref-claims", *only)["cells"]
    found = {(c["workload"], c["phase"], f"{c['system']}/{c['discipline']}"): c["speedup"] for c in cells}
    for row in table.rows:
        sentence, named = re.fullmatch(r"(.*): `(.*)`", row).groups()
        if (*PHASES[named], CELLS[0]) not in found:
            continue
        # The sentence is compared with the figures that the table shows.
        shown = [f"{found[*PHASES[named], cell]:.2f}" for cell in CELLS]
        true = sum(SENTENCES[sentence](float(ratio)) for ratio in shown)
        verdict = "holds" if true == len(shown) else f"falls in {len(shown) - true} of {len(shown)}"
        report.row(table, row, [*shown, verdict])
