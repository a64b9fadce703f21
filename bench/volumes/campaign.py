"""Seeds one after the other: what they pass, what is left out, and where a judge objects."""

import argparse
import os
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .run import Skip, Wrong, call


def arguments(doc, count):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def perform(args, name, seed_of, kept):
    """Runs the steps of each seed; ends the program with 1 if a judge objected. `kept` are the files of
    a seed that --keep copies."""
    passed, left, failed, start = Counter(), Counter(), [], time.monotonic()
    base = os.environ.get("TMPDIR", "/dev/shm")
    for number in range(args.first, args.first + args.count):
        if time.monotonic() - start > args.seconds:
            break
        scratch = Path(tempfile.mkdtemp(prefix=f"{name}-{number}-", dir=base))
        seed = seed_of(number, scratch)

        def shown(error, scratch=scratch):
            return str(error).replace(str(scratch), "").replace(base, "")[:200]

        try:
            seed.make()
            passed["made"] += 1
            for step in seed.steps():
                try:
                    step()
                except Skip as error:
                    left[f"{step.__name__}: {shown(error)}"] += 1
                except (Wrong, AssertionError, IndexError, OSError, struct.error) as error:
                    failed.append(number)
                    print(f"seed {number} {step.__name__}: {type(error).__name__} {error}\n   {seed.shape}", flush=True)
                    if args.keep:
                        at = args.keep / f"{number}-{step.__name__}"
                        at.mkdir(parents=True, exist_ok=True)
                        for file in kept:
                            call("cp", "--sparse=always", scratch / file, at / file)
        except (Skip, Wrong) as error:
            # Volumes that other programs leave unsound, too.
            left[shown(error)] += 1
        finally:
            if args.verbose:
                print(number, seed.shape, flush=True)
            seed.end()
            passed.update(seed.passed)
            for line in seed.told:
                print(f"seed {number} note: {line}", flush=True)
            shutil.rmtree(scratch, ignore_errors=True)
    for what, count in sorted(passed.items()):
        print(f"{count:6} {what}")
    for what, count in left.most_common():
        print(f"{count:6} left out: {what}")
    print(f"{len(set(failed))} seeds with a difference: {sorted(set(failed))}")
    sys.exit(1 if failed else 0)
