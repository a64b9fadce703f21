#!/usr/bin/env python3
"""Compares `seekless check` with fsck.fat on the damaged images of dosfstools' own tests.

    bench/dosfstools_cases.py [--source DIR] [--all] [--json FILE] [NAME...]

NAME      cases, by the names of their files without an ending; all check-* without a name
--source  unpacked sources of dosfstools; without it, they are fetched by apt-get as those of
          e2fsprogs are (bench/e2fsprogs_cases.py)
--all     prints the rows of cases without a difference too
--json    writes every row to a file

The program is $SEEKLESS, or target/release/seekless. Needs dosfstools, and for the fetch apt-get, the
keys of Debian and tar. Nothing is mounted. Images are made in $TMPDIR: they are hex dumps in the
sources. Each command runs on a copy of its own, for 20 seconds at most.

verdict   whether there is anything to repair: `fsck.fat -n` and `seekless check -n`
clean     `fsck.fat -n` finds nothing after `seekless check -y`, and after `fsck.fat -a`
in order  `seekless check` says that there is nothing to repair, or nothing any more after -y, where
          `fsck.fat -n` finds something
keeps     every name after `fsck.fat -a` is there after `seekless check -y`, with the same kind and the
          same contents (`seekless manifest`). The contents of a name may have another name
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2fsprogs_cases import SEEKLESS, breaks, describe, fetch, lost, manifest, run


def unpack(dump, to):
    """Writes the image of a hex dump as xxd prints it; repeated lines are zeros."""
    with to.open("wb") as out:
        for line in dump.read_text().splitlines():
            offset, colon, rest = line.partition(":")
            if colon:
                out.seek(int(offset, 16))
                out.write(bytes.fromhex(rest[:41].replace(" ", "")))


def judge(dump, scratch):
    """The row of a case."""
    scratch.mkdir()
    image = scratch / "image"
    unpack(dump, image)
    options = dump.with_suffix(".args")
    options = options.read_text().split() if options.exists() else []

    def on_copy(*command):
        copy = scratch / "copy"
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        return (copy, *run(*command, copy))

    row = {"name": dump.stem}
    _, row["theirs -n"], _ = on_copy("fsck.fat", "-n", *options)
    copy, row["theirs -a"], _ = on_copy("fsck.fat", "-a", *options)
    row["theirs after -a"], _ = run("fsck.fat", "-n", copy)
    theirs = manifest(copy)
    _, row["ours -n"], row["found"] = on_copy(SEEKLESS, "check", "-n")
    copy, row["ours -y"], _ = on_copy(SEEKLESS, "check", "-y")
    row["ours after -y"], row["asks"] = run("fsck.fat", "-n", copy)
    ours = manifest(copy)
    row["compared"] = theirs is not None and ours is not None
    row["lost"] = lost(theirs, ours) if row["compared"] else [] if theirs is None else sorted(theirs)
    shutil.rmtree(scratch)
    return row


RULES = {
    "same verdict": lambda row: (row["theirs -n"] == 0) == (row["ours -n"] == 0),
    "clean after -y": lambda row: row["ours after -y"] == 0,
    "clean after fsck.fat -a": lambda row: row["theirs after -a"] == 0,
    "not in order wrongly, -n": lambda row: row["ours -n"] != 0 or row["theirs -n"] == 0,
    "not in order wrongly, -y": lambda row: row["ours -y"] > 1 or row["ours after -y"] == 0,
    "keeps what fsck.fat keeps": lambda row: not row["lost"],
}
# The others are figures of fsck.fat.
DIFFERENCES = [name for name in RULES if name != "clean after fsck.fat -a"]


CODES = ["theirs -n", "ours -n", "theirs after -a", "ours -y", "ours after -y"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dosfstools-cases-") as scratch:
        scratch = Path(scratch)
        source = args.source.resolve() if args.source else fetch(scratch / "source", "dosfstools")
        dumps = [it for it in sorted(source.glob("tests/check-*.fsck")) if not args.name or it.stem in args.name]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(lambda it: judge(it, scratch / it.stem), dumps))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        broken = breaks(row, RULES, DIFFERENCES)
        if args.all or broken:
            print(describe(row["name"], row, CODES, broken))
    print(f"\n{source.name}, judged by {run('fsck.fat', '-n', '/dev/null')[1].splitlines()[0]}")
    for name, holds in RULES.items():
        print(f"{name}: {sum(map(holds, rows))} of {len(rows)}")
    print(f"without a comparison of contents: {sum(not row['compared'] for row in rows)}")


if __name__ == "__main__":
    main()
