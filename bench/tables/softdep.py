"""docs/experiments.md: what soft updates save."""

from .page import Table, figure
from .program import percent, phases_of, published

DISCIPLINES = ["normal", "softdep"]
WORKLOADS = {
    "MAKEDEV": ("makedev", "make"),
    "Andrew benchmark": ("andrew", "all"),
    "torture test": ("torture", "all"),
}
REMOVALS = ["mh-100", "mh-20", "mh-2", "mh-none"]


class Softdep:
    """Phases of the experiment: all of them, or those of which one takes seconds."""

    def __init__(self, quick):
        few = ["small-tree", "makedev", "andrew", *REMOVALS]
        self._phases = phases_of("softdep", *(few if quick else []))
        self.has_torture = not quick

    def counts(self, workload, discipline, phase):
        return self._phases[workload, "ide", discipline, "old-dirpref", phase]["counts"]

    def seconds(self, workload, discipline, phase):
        return self._phases[workload, "ide", discipline, "old-dirpref", phase]["seconds"]

    def writes(self, *phase):
        counts = self.counts(*phase)
        return counts["sync_writes"] + counts["async_writes"]

    def requests(self, *phase):
        return self.counts(*phase)["reads"] + self.writes(*phase)


@figure(
    "softdep",
    Table("experiments.md", "| synchronous, asynchronous writes"),
    Table("experiments.md", "| requests; seconds | measured"),
    Table("experiments.md", "| Andrew benchmark, seconds", others="published"),
    Table("experiments.md", "| soft updates save"),
    Table("experiments.md", "| tickdelay | 100", others="published"),
)
def softdep(report, trees, totals, andrew, savings, removal):
    lab = Softdep(report.quick)
    small_tree(report, trees, lab)
    for row in totals.rows:
        name, discipline = row.removesuffix(": writes").split(", ")
        if name == "torture test" and not lab.has_torture:
            continue
        phase = (WORKLOADS[name][0], discipline, WORKLOADS[name][1])
        time, counts = lab.seconds(*phase), lab.counts(*phase)
        if name == "torture test":
            cell = f"{counts['sync_writes']:,} + {counts['async_writes']:,}; {time:,.0f}"
        else:
            cell = f"{lab.requests(*phase):,}; {time:.1f}"
        report.row(totals, row, [cell, None])
    for row in andrew.rows:
        discipline, source = row.split(", ")
        if source == "measured":
            report.row(andrew, row, [f"{lab.seconds('andrew', discipline, phase):.1f}" for phase in andrew.head[1:]])
    saved(report, savings, lab)
    large_removal(report, removal, lab)


def small_tree(report, table, lab):
    theirs = published("softdep")
    for row in table.rows:
        phase, discipline = row.split(", ")
        counts = lab.counts("small-tree", discipline, phase)
        writes = f"{counts['sync_writes']}, {counts['async_writes']}"
        time = f"{lab.seconds('small-tree', discipline, phase):.2f}"
        report.row(table, row, [writes, None, time, f"{theirs['small-tree', 'ide', discipline, phase]['new_s']:.2f}"])


def saved(report, table, lab):
    """Shares that soft updates save, and by how many times they are faster."""

    def share(figure, workload, phase):
        before, after = (figure(workload, discipline, phase) for discipline in DISCIPLINES)
        return percent(before - after, before)

    def times(phase):
        before, after = (lab.seconds("small-tree", discipline, phase) for discipline in DISCIPLINES)
        return f"{before / after:.1f} times"

    report.row(table, "Andrew benchmark: requests", [share(lab.requests, "andrew", "all"), None])
    report.row(table, "Andrew benchmark: seconds", [share(lab.seconds, "andrew", "all"), None])
    report.row(table, "small tree, untar: seconds", [times("untar"), None])
    report.row(table, "small tree, rm: seconds", [times("rm"), None])
    if lab.has_torture:
        report.row(table, "torture test: writes", [share(lab.writes, "torture", "all"), None])
        report.row(table, "torture test: seconds", [share(lab.seconds, "torture", "all"), None])


def large_removal(report, table, lab):
    phases = [(limit, "softdep", "rm") for limit in REMOVALS]
    times = [lab.seconds(*phase) for phase in phases]
    limited = phases[:-1]
    report.row(table, "seconds", [f"{time:.1f}" for time in times])
    report.row(table, "over the run without limits", [*(f"{time / times[-1]:.2f}" for time in times[:-1]), "1"])
    for key in ["max_limit_hit", "rush_requests"]:
        report.row(table, f"`{key}`", [*(str(lab.counts(*phase)[key]) for phase in limited), None])
    report.row(table, "requests", [*(f"{lab.requests(*phase):,}" for phase in limited), None])
