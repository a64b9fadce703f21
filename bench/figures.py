#!/usr/bin/env python3
"""Makes the tables and pictures of docs that depend on nothing but the program, and writes them
into their pages: the same version makes the same on every machine.

    bench/figures.py [--check] [--quick] [NAME...]
    bench/figures.py --list

NAME     some of them, by the names that a run prints; all without a name
--check  writes nothing; names each figure that is not as its page has it, and fails
--quick  some rows of the tables that do not take long, and one of three pictures: a minute
--list   the tables (page, line and head) and pictures that are made

The program is $SEEKLESS, or target/release/seekless. Needs mke2fs and jq, and chromium
where docs/map.png has changed. Images are made in $TMPDIR, or /var/tmp, and take 3 GB. Figures of real disks, kernels and other programs are not
among these: each of their tables has a comment with the command in front of it, as
<!-- measured: bench/mount.sh -->. A table of figures that others published has its source there,
as <!-- published: SOURCE -->. crates/cli/tests/examples/figures.rs requires one of the three.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
os.environ.setdefault("TMPDIR", "/var/tmp")

from tables import FIGURES, Report  # noqa: E402
from tables.page import ROOT  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("name", nargs="*", choices=[*FIGURES, []])
    args = parser.parse_args()
    chosen = {name: FIGURES[name] for name in args.name or FIGURES}
    if args.list:
        for one in chosen.values():
            print(*one.places(), sep="\n")
        return
    with tempfile.TemporaryDirectory(prefix="seekless-figures-") as scratch:
        report = Report(args.check, args.quick, Path(scratch))
        for name, one in chosen.items():
            began = time.monotonic()
            report.make(one)
            os.chdir(ROOT)
            print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    for line in report.stale:
        print(("stale: " if args.check else "changed: ") + line)
    sys.exit(1 if args.check and report.stale else 0)


if __name__ == "__main__":
    main()
