"""docs/experiments.md: what snapshots cost."""

from .page import Table, figure
from .program import phases_of, published, seconds

FILES = 13_868
PHASES = ["untar", "rm", "sync", "take", "remove"]


class Snapshots:
    """Phases of the experiment: all of them, or those of one system."""

    def __init__(self, quick):
        self._phases = phases_of("snapshots", *(["ide-ufs2"] if quick else []))

    def has(self, row):
        return any(row.startswith(f"{system}, ") for _, system, *_ in self._phases)

    def of(self, system, workload, phase):
        return self._phases[workload, system, "softdep", "orlov", phase]

    def writes(self, system, workload, phase):
        counts = self.of(system, workload, phase)["counts"]
        return f"{counts['sync_writes']:,} + {counts['async_writes']:,}"

    def removed(self, system, workload):
        return f"{FILES / self.of(system, workload, 'rm')['seconds']:.0f}"


@figure(
    "snapshots",
    Table("experiments.md", "| seconds: volume, snapshots before"),
    Table("experiments.md", "| writes waited for + others"),
    Table("experiments.md", "| 8 GB | published"),
)
def snapshots(report, times, writes, compared):
    lab = Snapshots(report.quick)
    for row in filter(lab.has, times.rows):
        run = row.split(", ")
        report.row(times, row, [seconds(lab.of(*run, phase)["seconds"]) for phase in PHASES])
    for row in filter(lab.has, writes.rows):
        run = row.split(", ")
        report.row(writes, row, [*(lab.writes(*run, phase) for phase in ["untar", "rm"]), lab.removed(*run)])
    against(report, compared, lab)


def against(report, table, lab):
    """The published figures, and those of the two systems of 8 GB."""
    theirs = published("snapshots")
    systems = [system for system in table.head[2:] if lab.has(f"{system}, ")]

    def row(label, said, ours):
        measured = [ours(system) for system in systems]
        report.row(table, label, [said, *measured, *[None] * (len(table.head) - 2 - len(measured))])

    def took(phase):
        return lambda system: seconds(lab.of(system, "none", phase)["seconds"])

    said = {phase: f"{theirs['none', systems[0], 'softdep', phase]['new_s']:.0f}" for phase in ["take", "remove"]}
    row("one snapshot is taken, seconds", f"about {said['take']}", took("take"))
    row("of these, changes wait", None, took("take"))
    row("one snapshot is removed, seconds", said["remove"], took("remove"))
    row("small files removed a second that it keeps", None, lambda system: lab.removed(system, "one"))
