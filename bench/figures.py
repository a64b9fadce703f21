#!/usr/bin/env python3
"""Makes the tables and pictures of docs that depend on nothing but the program, and writes them
into their pages: the same version makes the same on every machine.

    bench/figures.py [--check] [--quick] [NAME...]

NAME   ageing, ageing-plot, dirpref, fragmentation, maxcontigdirs, reservation, scale, softdep,
       tarcp; all without a name
--check  writes nothing; names each figure that is not as its page has it, and fails
--quick  the first row of the first table of each, no pictures: a minute

The program is $SEEKLESS, or target/release/seekless. Needs mke2fs. Images are made in $TMPDIR, or
/var/tmp, and take 3 GB. Figures of real disks, kernels and other programs are not among these:
the pages name the command of each.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEEKLESS = os.environ.get("SEEKLESS", str(ROOT / "target/release/seekless"))
MIB = 1 << 20
PROFILES = ["packages", "mail", "build", "git"]


def seekless(*args):
    """What the program prints, as JSON."""
    done = subprocess.run(
        [SEEKLESS, "-q", *args, "--json"], check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    return json.loads(done.stdout) if done.stdout.strip() else None


class Table:
    """A table of a page: the first one behind a text of the page."""

    def __init__(self, page, behind):
        self.page = ROOT / "docs" / page
        self.behind = behind
        lines = self.page.read_text().splitlines()
        start = next((n for n, line in enumerate(lines) if behind in line), None)
        if start is None:
            sys.exit(f"{page}: nowhere says: {behind}")
        head = next(n for n in range(start, len(lines)) if lines[n].startswith("|"))
        end = next(n for n in range(head, len(lines) + 1) if n == len(lines) or not lines[n].startswith("|"))
        self.rows = {}
        for n in range(head + 2, end):
            label, *cells = (cell.strip() for cell in lines[n].strip("|").split("|"))
            self.rows[label] = cells
        self.head = [cell.strip() for cell in lines[head].strip("|").split("|")]

    def replace(self, label, cells):
        lines = self.page.read_text().splitlines(keepends=True)
        start = next(n for n, line in enumerate(lines) if self.behind in line)
        at = next(n for n in range(start, len(lines)) if lines[n].startswith(f"| {label} |"))
        lines[at] = f"| {label} | {' | '.join(cells)} |\n"
        self.page.write_text("".join(lines))


class Report:
    def __init__(self, check):
        self.check = check
        self.stale = []

    def row(self, table, label, cells):
        """Compares a row with its page's, and writes it there; None stands for any text."""
        held = table.rows[label]
        cells = [old if new is None else new for old, new in zip(held, cells, strict=True)]
        if held == cells:
            return
        self.stale.append(f"{table.page.relative_to(ROOT)}: {label}: {held}, now {cells}")
        if not self.check:
            table.replace(label, cells)

    def picture(self, path, made):
        path = ROOT / "docs" / path
        if path.exists() and path.read_bytes() == made:
            return
        self.stale.append(f"{path.relative_to(ROOT)}")
        if not self.check:
            path.write_bytes(made)


def options(label):
    """The mount options that a row names: `policy=depth`."""
    return re.search(r"`([^`]*)`", label).group(1)


def ext2(path):
    # The seed of the hashes is part of the image.
    fixed = ["-U", "6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2", "-E", "hash_seed=6b3a1cf0-52d1-4e0c-9a3e-0d7c5a9e41b2"]
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext2", "-b", "4096", *fixed, path, "300M"], check=True)


def aged(image, scratch, profile, ops, how, *more):
    output = str(scratch / "aged.img")
    found = seekless(
        "age", image, "-o", output, "--force", "--profile", profile, "--ops", str(ops),
        "--fullness", "0.8", "--seed", "1", *(["--mount-options", how] if how else []), *more,
    )
    os.remove(output)
    return found


def score(value):
    return f"{value:.3f}"


def ageing(report, scratch, quick):
    image = str(scratch / "ufs2.img")
    seekless("mkfs", "--format", "ufs2", "-s", "1G", "--force", image)
    scores = Table("ageing.md", "only their placement differs. Layout score at the end")
    spreads = Table("ageing.md", "Average distance from the end of a file to the next file")
    streams = Table("ageing.md", "The streams, and the results on ext4")
    profiles = PROFILES[-1:] if quick else PROFILES
    for number, label in enumerate(scores.rows):
        if quick and number > 0:
            break
        found = {profile: aged(image, scratch, profile, 200_000, options(label)) for profile in profiles}
        last = {profile: one["samples"][-1] for profile, one in found.items()}

        def cells(show):
            return [show(profile) if profile in found else None for profile in PROFILES]

        report.row(scores, label, cells(lambda profile: score(last[profile]["layout_score"])))
        report.row(spreads, label, cells(lambda profile: str(round(last[profile]["directory_spread"] / MIB))))
        if number > 0:
            continue

        def at_fullness(one):
            return next(s for s in one["samples"] if s["operations"] >= one["reached"])["layout_score"]

        def first(one):
            return next(s for s in one["samples"] if s["layout_score"] is not None)["layout_score"]

        def held(one):
            return f"{one['held']['low'] * 100:.1f} to {one['held']['high'] * 100:.1f}%"

        for row, show in {
            "virtual days": lambda p: str(round(last[p]["days"])),
            "operations until 0.8 was reached": lambda p: f"{found[p]['reached']:,}",
            "fullness after that (UFS2)": lambda p: held(found[p]),
            "files at the end": lambda p: f"{last[p]['files']:,}",
            "deleted early": lambda p: f"{found[p]['tally']['early_deaths']:,}",
            "GiB written": lambda p: f"{found[p]['tally']['bytes_written'] / 2**30:.1f}",
            "UFS2: score at first, at 0.8, at the end": lambda p: ", ".join(
                score(s) for s in [first(found[p]), at_fullness(found[p]), last[p]["layout_score"]]
            ),
            "UFS2: extents per file": lambda p: f"{last[p]['extents_per_file']:.2f}",
        }.items():
            report.row(streams, row, cells(show))
    os.remove(image)


def ageing_plot(report, scratch, quick):
    if quick:
        return
    image, plot = str(scratch / "disk.img"), scratch / "ageing.svg"
    seekless("mkfs", "--format", "ufs2", "-s", "1G", "--force", image)
    # The picture names its image.
    os.chdir(scratch)
    aged("disk.img", scratch, "mail", 200_000, None, "--plot", str(plot))
    report.picture("ageing.svg", plot.read_bytes())
    os.remove(image)


def fragmentation(report, scratch, quick):
    table = Table("ageing.md", "## Fragmentation by policy")
    image = str(scratch / "disk.img")
    last = None
    for label in table.rows:
        kind = label.split(",")[0]
        if kind == last and quick:
            continue
        if kind != last:
            if kind == "FAT32":
                seekless("mkfs", "--format", "fat32", "--size", "300M", "--sectors-per-cluster", "8", "--force", image)
            elif kind == "ext2":
                ext2(image)
            else:
                seekless("mkfs", "--format", "ufs2", "-s", "300M", "--force", image)
            last = kind
        found = aged(image, scratch, "server", 25_000, options(label))
        end = found["samples"][-1]
        report.row(table, label, [
            score(end["layout_score"]),
            f"{end['extents_per_file']:.2f}",
            str(round(end["directory_spread"] / MIB)),
            f"{found['free_extents']['after']['count']:,}",
        ])
    os.remove(image)


def maxcontigdirs(report, scratch, quick):
    if quick:
        return
    runs, plot = scratch / "maxcontigdirs", scratch / "maxcontigdirs.svg"
    seekless("lab", "run", "maxcontigdirs", "-o", str(runs))
    seekless("lab", "report", str(runs), "-o", str(plot))
    report.picture("maxcontigdirs.svg", plot.read_bytes())


def seconds(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def scale(report, scratch, quick):
    table = Table("experiments.md", "seekless lab run scale")
    rows = list(table.rows)[:1] if quick else list(table.rows)
    systems = {row: "disk-" + row.replace(" ", "").replace("GB", "G").replace("TB", "T") for row in rows}
    only = [part for system in systems.values() for part in ("--only", system)]
    cells = seekless("lab", "run", "scale", *only)["cells"]
    found = {(cell["system"], cell["phase"], cell["discipline"]): cell for cell in cells}
    for row, system in systems.items():
        columns = [column.split("|")[0].strip() for column in table.head[1:]]
        cells = []
        for column in columns:
            phase, discipline = column.split(", ")
            cell = found[system, phase, discipline]
            cells.append(f"{seconds(cell['old_s'])} / {seconds(cell['new_s'])}")
        report.row(table, row, cells)


def dirpref(report, scratch, quick):
    table = Table("experiments.md", "| system, discipline, phase | old s")
    row = next(iter(table.rows))
    only = ["--only", row.rsplit("/", 1)[0]] if quick else []
    for cell in seekless("lab", "run", "dirpref", *only)["cells"]:
        label = "/".join(cell[key] for key in ["system", "discipline", "phase"])
        if quick and label != row:
            continue
        keys = ["old_s", "new_s", "speedup", "published_speedup", "published_old_s", "published_new_s"]
        report.row(table, label, [f"{cell[key]:.2f}" for key in keys])


def phases_of(experiment, scratch, *only):
    """Each phase that ran, by workload, system, discipline, policy and phase."""
    output = scratch / experiment
    seekless("lab", "run", experiment, "-o", str(output), *(part for cell in only for part in ("--only", cell)))
    found = {}
    for path in output.glob("run-*.json"):
        run = json.loads(path.read_text())
        key = (run["workload"], run["system"], run["discipline"], run["policy"])
        for phase in run["phases"]:
            found[*key, phase["phase"]] = phase
    return found


def runs_of(experiment, scratch, *only):
    """The seconds of each phase, by workload, system, discipline, policy and phase."""
    return {key: phase["seconds"] for key, phase in phases_of(experiment, scratch, *only).items()}


def tarcp(report, scratch, quick):
    copies = Table("experiments.md", "seekless lab run tarcp --only")
    policies = Table("experiments.md", "### FAT by policy")
    only = ["ffs1/normal"] if quick else []
    found = runs_of("tarcp", scratch, *only)
    for row in list(copies.rows)[:1] if quick else copies.rows:
        where, _, policy = row.partition(", ")
        system, discipline = where.split("/")
        workload = system.rstrip("12") if system.startswith("ffs") else system.split("-")[0]
        wanted = {"": "orlov", "next-fit": "next-fit"}.get(policy, f"{policy}+old-find-group-other")
        cells = []
        for phase, published in zip(["tarcp", "tar"], copies.rows[row][::3], strict=True):
            measured = found[workload, system, discipline, wanted, phase]
            cells += [None, f"{measured:.2f}", f"{measured / float(published):.2f}"]
        report.row(copies, row, cells)
    if quick:
        return
    both = ["tarcp", "tar"]
    columns = [("one-writer", "msdosfs", both), ("four-writers", "msdosfs", both), ("aged-msdosfs", "msdosfs-small", both)]
    columns += [(f"postmark{which}", "msdosfs", ["postmark"]) for which in ["-alone", "", "-1000-alone", "-1000"]]
    for row in policies.rows:
        cells = [
            f"{found[workload, system, 'normal', row.strip('`'), phase]:,.2f}"
            for workload, system, phases in columns
            for phase in phases
        ]
        report.row(policies, row, [None, *cells])


def softdep(report, scratch, quick):
    trees = Table("experiments.md", "| synchronous, asynchronous writes")
    totals = Table("experiments.md", "| requests; seconds | measured")
    andrew = Table("experiments.md", "| Andrew benchmark, seconds")
    removal = Table("experiments.md", "| tickdelay | 100")
    found = phases_of("softdep", scratch, *(["small-tree"] if quick else []))

    def counted(workload, discipline, phase):
        one = found[workload, "ide", discipline, "old-dirpref", phase]
        counts = one["counts"]
        requests = counts["reads"] + counts["sync_writes"] + counts["async_writes"]
        return one["seconds"], requests, counts

    for row in list(trees.rows)[:1] if quick else trees.rows:
        phase, discipline = row.split(", ")
        _, _, counts = counted("small-tree", discipline, phase)
        report.row(trees, row, [f"{counts['sync_writes']}, {counts['async_writes']}", None])
    if quick:
        return
    for row in totals.rows:
        name, discipline = row.removesuffix(": writes").split(", ")
        workload, phase = {
            "MAKEDEV": ("makedev", "make"),
            "Andrew benchmark": ("andrew", "all"),
            "torture test": ("torture", "all"),
        }[name]
        time, requests, counts = counted(workload, discipline, phase)
        if workload == "torture":
            cell = f"{counts['sync_writes']:,} + {counts['async_writes']:,}; {time:,.0f}"
        else:
            cell = f"{requests:,}; {time:.1f}"
        report.row(totals, row, [cell, None])
    for row in andrew.rows:
        discipline, source = row.split(", ")
        if source == "measured":
            phases = andrew.head[1:]
            report.row(andrew, row, [f"{counted('andrew', discipline, phase)[0]:.1f}" for phase in phases])
    limits = ["mh-100", "mh-20", "mh-2", "mh-none"]
    removals = [counted(limit, "softdep", "rm") for limit in limits]
    report.row(removal, "seconds", [f"{time:.1f}" for time, _, _ in removals])
    unlimited = removals[-1][0]
    ratios = [f"{time / unlimited:.2f}" for time, _, _ in removals[:-1]]
    report.row(removal, "over the run without limits", [*ratios, "1"])
    for key in ["max_limit_hit", "rush_requests"]:
        report.row(removal, f"`{key}`", [*(str(counts[key]) for _, _, counts in removals[:-1]), None])
    report.row(removal, "requests", [*(f"{requests:,}" for _, requests, _ in removals[:-1]), None])


def reservation(report, scratch, quick):
    # The least of it takes minutes.
    if quick:
        return
    copies = Table("experiments.md", "seekless lab run reservation --only")
    removed = Table("experiments.md", "| rm -rf, seconds (speed-up)")
    found = runs_of("reservation", scratch, "hash-order/journal=writeback", "in-turn/journal=ordered")
    systems = ["small-memory", "large-memory"]

    def seconds_of(system, phase):
        return found["hash-order", system, "journal=writeback", "ext2-orlov", phase]

    times = {
        "`cp -r` of the original": "cp-first",
        "`cp -r` of the ordered copy": "cp-second",
        "`rm -rf` of the original": "rm-first",
        "`rm -rf` of the ordered copy": "rm-copy",
    }
    for row, phase in times.items():
        report.row(copies, row, [None] * 3 + [f"{seconds_of(system, phase):,.1f}" for system in systems])
    for row in removed.rows:
        policy = re.search(r"`([^`]*)`", row).group(1)
        policy = f"ext2-orlov+{policy}" if policy.startswith("dir-reserve") else policy
        cells = []
        for system in systems:
            first, one = (found["in-turn", system, "journal=ordered", it, "rm"] for it in ["ext2-orlov", policy])
            has_ratio = policy.startswith("ext2-orlov+")
            cells.append(f"{one:.1f} ({first / one:.2f})" if has_ratio else f"{one:.1f}")
        report.row(removed, row, [None, *cells])


FIGURES = {
    "ageing": ageing,
    "ageing-plot": ageing_plot,
    "dirpref": dirpref,
    "fragmentation": fragmentation,
    "maxcontigdirs": maxcontigdirs,
    "reservation": reservation,
    "scale": scale,
    "softdep": softdep,
    "tarcp": tarcp,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("name", nargs="*", choices=[*FIGURES, []])
    args = parser.parse_args()
    report = Report(args.check)
    parent = os.environ.get("TMPDIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="seekless-figures-", dir=parent) as scratch:
        for name in args.name or FIGURES:
            print(f"{name} ...", file=sys.stderr)
            FIGURES[name](report, Path(scratch), args.quick)
            os.chdir(ROOT)
    for line in report.stale:
        print(("stale: " if args.check else "changed: ") + line)
    sys.exit(1 if args.check and report.stale else 0)


if __name__ == "__main__":
    main()
