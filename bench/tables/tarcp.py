"""docs/experiments.md: file systems of FreeBSD by copying a source tree, and FAT by policy."""

import itertools

from .page import Table, figure
from .program import percent, published, runs_of

PHASES = ["tarcp", "tar"]
# Columns of the table of policies: workload, system, phase.
COLUMNS = [
    *(("one-writer", "msdosfs", phase) for phase in PHASES),
    *(("four-writers", "msdosfs", phase) for phase in PHASES),
    *(("aged-msdosfs", "msdosfs-small", phase) for phase in PHASES),
    *((f"postmark{size}", "msdosfs", "postmark") for size in ["-alone", "", "-1000-alone", "-1000"]),
]


@figure(
    "tarcp",
    Table("experiments.md", "seekless lab run tarcp --only"),
    Table("experiments.md", "the same one is faster in"),
    Table("experiments.md", "| sentences of the message"),
    Table("experiments.md", "### FAT by policy"),
)
def tarcp(report, copies, pairs, sentences, policies):
    only = ["ffs1/softdep", "postmark-alone"] if report.quick else []
    found = runs_of("tarcp", *only)
    copied(report, copies, found)
    by_policy(report, policies, found)
    in_order(report, pairs, copies)
    besides(report, sentences, copies, policies, found)


def copied(report, table, found):
    theirs = published("tarcp")
    for row in table.rows:
        where, _, policy = row.partition(", ")
        system, discipline = where.split("/")
        workload = system.rstrip("12") if system.startswith("ffs") else system.split("-")[0]
        wanted = {"": "orlov", "next-fit": "next-fit"}.get(policy, f"{policy}+old-find-group-other")
        cells = []
        for phase in PHASES:
            measured = found.get((workload, system, discipline, wanted, phase))
            if measured is None:
                break
            said = theirs[workload, system, discipline, phase]["new_s"]
            cells += [f"{said:.2f}", f"{measured:.2f}", f"{measured / said:.2f}"]
        else:
            report.row(table, row, cells)


def by_policy(report, table, found):
    for row in table.rows:
        times = [found.get((workload, system, "normal", row.strip("`"), phase)) for workload, system, phase in COLUMNS]
        report.row(table, row, [None, *(None if time is None else f"{time:,.2f}" for time in times)])


def in_order(report, table, copies):
    """Of the pairs whose published times differ by 15% or more, how many have the same one faster,
    by the table of copies. One time was spoiled by a fault of the kernel."""
    for at, phase in enumerate(PHASES):
        cells = []
        for rule in table.head[1:]:
            rows = [row for row in copies.rows if row.endswith(rule.strip("`")) or not row.startswith("ext2")]
            rows.remove("ffs2/softdep")
            times = [[float(copies.rows[row][at * 3 + column]) for column in (0, 1)] for row in rows]
            apart = [sorted(pair) for pair in itertools.combinations(times, 2) if max(pair)[0] >= min(pair)[0] * 1.15]
            same = sum(fast[1] < slow[1] for fast, slow in apart)
            cells.append(f"{same} of {len(apart)} ({percent(same, len(apart))})")
        report.row(table, f"`{phase}`", cells)


def besides(report, table, copies, policies, found):
    """Each row is known by how it begins."""

    def row(begins, cell):
        report.row(table, next(row for row in table.rows if row.startswith(begins)), [cell, None])

    def read(system, discipline):
        return float(copies.rows[f"{system}/{discipline}"][4])

    both = [(read(system, "softdep"), read(system, "normal")) for system in ["ffs1", "ffs2"]]
    named = ", ".join(f"{soft:.2f} and {normal:.2f} s ({system})" for system, (soft, normal) in zip(["ffs1", "ffs2"], both))
    less = percent(sum(normal - soft for soft, normal in both), sum(normal for _, normal in both))
    row("`tar` after soft updates", f"{named}: {less} less")
    anywhere, next_fit = (policies.rows[f"`{name}`"][-1] for name in ["random", "next-fit"])
    ratio = float(anywhere.replace(",", "")) / float(next_fit.replace(",", ""))
    row("Postmark by four processes", f"{anywhere} and {next_fit} s: {ratio:.1f} times")
    if report.quick:
        return
    fresh = found["ffs", "ffs1", "normal", "orlov", "tar"]
    aged = found["aged-ffs", "ffs1-small", "normal", "orlov", "tar"]
    row("`tar` on an aged volume", f"{aged:.2f} s, {aged / fresh:.2f} times that on the fresh one")
    in_line = found["in-line", "ffs1-in-line", "normal", "orlov", "tar"]
    row("`tar` with indirect blocks in line", f"{in_line:.2f} and {fresh:.2f} s: {percent(in_line - fresh, fresh)} more")
