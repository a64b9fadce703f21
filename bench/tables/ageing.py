"""docs/ageing.md: aged volumes."""

import os
import re
import subprocess

from .page import Picture, Table, figure
from .program import MIB, score, seekless

PROFILES = ["packages", "mail", "build", "git"]
SLOW = "200,000 operations take half a minute"


def policy(label):
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


def stream(profile):
    """The rows of the table of streams that are made here, and how each shows its figure."""
    last = profile["samples"][-1]
    first = next(s for s in profile["samples"] if s["layout_score"] is not None)
    full = next(s for s in profile["samples"] if s["operations"] >= profile["reached"])
    held = profile["held"]
    tally = profile["tally"]
    return {
        "virtual days": str(round(last["days"])),
        "operations until 0.8 was reached": f"{profile['reached']:,}",
        "fullness after that (UFS2)": f"{held['low'] * 100:.1f} to {held['high'] * 100:.1f}%",
        "files at the end": f"{last['files']:,}",
        "deleted early": f"{tally['early_deaths']:,}",
        "GiB written": f"{tally['bytes_written'] / 2**30:.1f}",
        "UFS2: score at first, at 0.8, at the end": ", ".join(score(s["layout_score"]) for s in [first, full, last]),
        "UFS2: extents per file": f"{last['extents_per_file']:.2f}",
    }


@figure(
    "ageing",
    Table("ageing.md", "only their placement differs. Layout score at the end", slow=SLOW),
    Table("ageing.md", "Average distance from the end of a file to the next file", slow=SLOW),
    Table("ageing.md", "The streams, and the results on ext4", others="ext4|seconds"),
)
def ageing(report, scores, spreads, streams):
    image = str(report.scratch / "ufs2.img")
    seekless("mkfs", "--format", "ufs2", "-s", "1G", "--force", image)
    if report.quick:
        # The other profiles reach this fullness later.
        reached = aged(image, report.scratch, "build", 20_000, policy(next(iter(scores.rows))))["reached"]
        row = "operations until 0.8 was reached"
        report.row(streams, row, [f"{reached:,}" if one == "build" else None for one in PROFILES])
        os.remove(image)
        return
    for number, label in enumerate(scores.rows):
        found = {one: aged(image, report.scratch, one, 200_000, policy(label)) for one in PROFILES}
        last = {profile: one["samples"][-1] for profile, one in found.items()}

        def cells(show):
            return [show(profile) if profile in found else None for profile in PROFILES]

        report.row(scores, label, cells(lambda profile: score(last[profile]["layout_score"])))
        report.row(spreads, label, cells(lambda profile: str(round(last[profile]["directory_spread"] / MIB))))
        if number == 0:
            shown = {profile: stream(one) for profile, one in found.items()}
            for row in next(iter(shown.values())):
                report.row(streams, row, cells(lambda profile: shown[profile][row]))
    os.remove(image)


@figure("ageing-plot", Picture("ageing.svg"))
def ageing_plot(report, picture):
    """The profile mail under the default policies; the picture names the image."""
    if report.quick:
        return
    image, plot = "disk.img", report.scratch / "ageing.svg"
    os.chdir(report.scratch)
    seekless("mkfs", "--format", "ufs2", "-s", "1G", "--force", image)
    aged(image, report.scratch, "mail", 200_000, None, "--plot", str(plot))
    os.remove(image)
    report.picture(picture, plot.read_bytes())


@figure("fragmentation", Table("ageing.md", "## Fragmentation by policy"))
def fragmentation(report, table):
    image = str(report.scratch / "disk.img")
    last = None
    for label in table.rows:
        kind = label.split(",")[0]
        if kind == last and report.quick:
            continue
        if kind != last:
            if kind == "FAT32":
                seekless("mkfs", "--format", "fat32", "--size", "300M", "--sectors-per-cluster", "8", "--force", image)
            elif kind == "ext2":
                ext2(image)
            else:
                seekless("mkfs", "--format", "ufs2", "-s", "300M", "--force", image)
            last = kind
        found = aged(image, report.scratch, "server", 25_000, policy(label))
        end = found["samples"][-1]
        report.row(table, label, [
            score(end["layout_score"]),
            f"{end['extents_per_file']:.2f}",
            str(round(end["directory_spread"] / MIB)),
            f"{found['free_extents']['after']['count']:,}",
        ])
    os.remove(image)
