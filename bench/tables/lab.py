"""docs/experiments.md: maxcontigdirs, scale and reservation."""

import re

from .page import Picture, Table, figure
from .program import experiment, phases_of, published, runs_of, seconds, seekless


@figure("maxcontigdirs", Picture("maxcontigdirs.svg"))
def maxcontigdirs(report, picture):
    if report.quick:
        return
    runs, plot = report.scratch / "maxcontigdirs", report.scratch / "maxcontigdirs.svg"
    seekless("lab", "run", "maxcontigdirs", "-o", str(runs))
    seekless("lab", "report", str(runs), "-o", str(plot))
    report.picture(picture, plot.read_bytes())


@figure("scale", Table("experiments.md", "seekless lab run scale"))
def scale(report, table):
    rows = list(table.rows)[:1] if report.quick else list(table.rows)
    systems = {row: "disk-" + row.replace(" ", "").replace("GB", "G").replace("TB", "T") for row in rows}
    cells = experiment("scale", *systems.values())["cells"]
    found = {(cell["system"], cell["phase"], cell["discipline"]): cell for cell in cells}
    for row, system in systems.items():
        cells = []
        for column in table.head[1:]:
            phase, discipline = column.split(", ")
            cell = found[system, phase, discipline]
            cells.append(f"{seconds(cell['old_s'])} / {seconds(cell['new_s'])}")
        report.row(table, row, cells)


@figure(
    "reservation",
    Table("experiments.md", "seekless lab run reservation --only", slow="a run takes minutes"),
    Table("experiments.md", "| rm -rf, seconds (speed-up)"),
)
def reservation(report, copies, removed):
    if report.quick:
        one = ("in-turn", "large-memory", "journal=ordered", "ext2-orlov")
        time = runs_of("reservation", "/".join(one))[*one, "rm"]
        report.row(removed, "`ext2-orlov`", [None, None, None, f"{time:.1f}"])
        return
    found = runs_of("reservation", "hash-order/journal=writeback", "in-turn/journal=ordered")
    systems = ["memory-48M", "small-memory", "large-memory"]
    theirs = published("reservation")
    modes = [f"journal={mode}" for mode in ["writeback", "ordered", "data"]]

    def times(phase):
        """As published under each mode, and as measured with each memory."""
        return [theirs["hash-order", systems[0], mode, phase]["new_s"] for mode in modes] + [
            found["hash-order", system, modes[0], "ext2-orlov", phase] for system in systems
        ]

    for row, phases in {
        "`cp -r` of the original": ["cp-first"],
        "`cp -r` of the ordered copy": ["cp-second"],
        "speed-up of `cp -r`": ["cp-first", "cp-second"],
        "`rm -rf` of the original": ["rm-first"],
        "`rm -rf` of the ordered copy": ["rm-copy"],
        "speed-up of `rm -rf`": ["rm-first", "rm-copy"],
    }.items():
        if len(phases) == 1:
            report.row(copies, row, [f"{time:,.1f}" for time in times(phases[0])])
            continue
        ratios = [first / second for first, second in zip(*map(times, phases), strict=True)]
        report.row(copies, row, [f"{ratio:.2f}" if ratio < 0.995 else f"{ratio:.1f}" for ratio in ratios])
    for row in removed.rows:
        policy = re.search(r"`([^`]*)`", row).group(1)
        policy = f"ext2-orlov+{policy}" if policy.startswith("dir-reserve") else policy
        cells = []
        for system in systems:
            first, one = (found["in-turn", system, "journal=ordered", it, "rm"] for it in ["ext2-orlov", policy])
            has_ratio = policy.startswith("ext2-orlov+")
            cells.append(f"{one:.1f} ({first / one:.2f})" if has_ratio else f"{one:.1f}")
        report.row(removed, row, [None, *cells])


RESERVED = "ext2-orlov+dir-reserve"


@figure(
    "reservation-faults",
    Table("experiments.md", "| reads; seconds | files"),
    Table("experiments.md", "| rm -rf, reads; seconds", slow="a run takes a minute"),
    Table("experiments.md", "| inodes reserved | files made", slow="a run takes a minute"),
)
def reservation_faults(report, large, areas, checked):
    name, discipline = "reservation-faults", "journal=ordered"
    only = ["one-large-500"] if report.quick else []
    found = phases_of(name, *only)

    def cell(workload, system, policy, phase):
        phase = found[workload, system, discipline, policy, phase]
        return f"{phase['counts']['reads']:,}; {seconds(phase['seconds'])}"

    for row in large.rows:
        files, order = row.split(" files, ")
        workload = "one-large-" + files.replace(",", "")
        if report.quick and workload not in only:
            continue
        policy = RESERVED + {"in order": "=16384", "by hash": "-hashed=16384"}[order]
        report.row(large, row, [cell(workload, "ext3-48M", policy, phase) for phase in ["files", "read", "rm"]])
    if report.quick:
        return
    for row in areas.rows:
        policy = row.split("`")[1]
        policy = policy if policy == "ext2-orlov" else f"ext2-orlov+{policy}"
        cells = [cell(workload, "ext3-48M", policy, "rm") for workload in ["one-mount", "two-mounts"]]
        is_linked = "hashed" in policy
        cells.append(cell("two-mounts-linked", "ext3-48M", policy, "rm") if is_linked else "")
        report.row(areas, row, cells)
    for row in checked.rows:
        policy = "ext2-orlov" if row == "0" else f"{RESERVED}={row}"
        phases = ["files", "check", "rm"]
        report.row(checked, row, [cell("checked", "ext4-48M", policy, phase) for phase in phases])


@figure("web-cache", Table("experiments.md", "| seconds | ext2, published", slow="a run takes minutes and 5 GB of memory"))
def web_cache(report, table):
    if report.quick:
        return
    found, theirs = runs_of("web-cache"), published("web-cache")
    sides = [("ext2", "async"), ("ext3", "journal=ordered")]
    kinds = {"extract": ("archive", "untar"), "remove": ("archive", "rm")}
    for row in table.rows:
        kind, phase = kinds.get(row.split(",")[0], ("postmark", row.split("`")[1] if "`" in row else ""))
        pairs = []
        for system, discipline in sides:
            workload = f"{kind}-{system}"
            said = theirs.get((workload, system, discipline, phase))
            pairs.append((said and said["new_s"], found[workload, system, discipline, "find-group-dir", phase]))
        (said, ours), (said3, ours3) = pairs
        cells = [f"{said:.0f}" if said else "", f"{ours:.2f}", f"{said3:.0f}" if said3 else "", f"{ours3:.2f}"]
        cells += [f"{said3 / said:.2f}" if said else "", f"{ours3 / ours:.2f}"]
        report.row(table, row, cells)
