"""docs/sensitivity.md: claims of experiments when their assumptions change."""

import functools

from .page import Table, figure
from .program import seekless

# Experiments whose page has a row for each variation; the others have one for each claim.
BY_VARIATION = ["dirpref", "tarcp"]
BY_CLAIM = ["dirpref-claims", "softdep", "snapshots", "scale", "maxcontigdirs", "reservation"]
# Of experiments that take hours otherwise, the assumptions that are varied.
VARIED = {"reservation": ["calls", "memory", "drive"]}


def varied(name):
    return ["--vary", *VARIED[name]] if name in VARIED else []


@functools.cache
def sensitivity(name):
    return seekless("lab", "sensitivity", name, *varied(name))


def number(value):
    return "-" if value is None else f"{value:.2f}"


def variation(row):
    agreement = row["agreement"]
    cells = [f"{row['holds']} of {row['of']}"]
    if agreement:
        rank = agreement["spearman"]
        cells += [f"{agreement['within_factor_2']} of {agreement['cells']}", "-" if rank is None else f"{rank:.3f}"]
    return [*cells, number(row["times"])]


def claim(row, all_variations):
    held = all_variations - len(row["fails"])
    fails = "; ".join(row["fails"]) if held > all_variations / 2 else ""
    least, greatest = number(row["least"]), number(row["greatest"])
    return [number(row["published"]), number(row["ratio"]), f"{least} to {greatest}", f"{held} of {all_variations}", fails]


def enter(name):
    behind = f"`{' '.join(['seekless lab sensitivity', name, *varied(name)])}`"
    slow = "all runs of an experiment are made again for each variation"

    @figure(f"sensitivity-{name}", Table("sensitivity.md", behind, slow=slow))
    def make(report, table):
        if report.quick:
            return
        found = sensitivity(name)
        if name in BY_VARIATION:
            for row in found["variations"]:
                report.row(table, row["variation"], variation(row))
        else:
            for row in found["claims"]:
                report.row(table, row["claim"], claim(row, len(found["variations"])))


for name in [*BY_VARIATION, *BY_CLAIM]:
    enter(name)
