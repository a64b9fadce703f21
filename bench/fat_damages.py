#!/usr/bin/env python3
"""Compares `seekless check` with fsck.fat on FAT volumes of twelve kinds with random damage.

    bench/fat_damages.py [--from SEED] [--count N] [--all] [--json FILE] [--keep DIR]

--from   first seed, 0 without it
--count  number of seeds, 2,000 without it. Seed n damages kind n modulo 12
--all    prints the rows of cases without a difference too
--json   writes every row to a file
--keep   copies the damaged images of cases with a difference to a directory

The program is $SEEKLESS, or target/release/seekless. Needs dosfstools and mtools. Nothing is mounted.
Volumes are made in $TMPDIR, or in /dev/shm without it, by mkfs.fat, filled and aged by mtools, and
changed in what tools do not write (bench/fat_shapes.py). Each command runs on a copy of its own, for
20 seconds at most.

A seed damages one to three places: the boot sector and its copy, the sector with the number of free
clusters, sectors of the FATs, entries of directories (short, long, `.` and `..`, unused), in the ways of
bench/damages.py.

verdict   whether there is anything to repair: `fsck.fat -n` and `seekless check -n`
clean     `fsck.fat -n` finds nothing after `seekless check -y`, and after `fsck.fat -a`, which runs twice
          where the first run does not end with 0 or 1
in order  `seekless check` says that there is nothing to repair, or nothing any more after -y, where
          `fsck.fat -n` finds something
keeps     every name of the sound volume that has its contents after `fsck.fat -a` has them after
          `seekless check -y`, and so do contents under other names (`seekless manifest`)
"""

import json
import os
import random
import shutil
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from damages import damage, directory, lost, options
from dosfstools_cases import CODES, RULES as CASES
from e2fsprogs_cases import SEEKLESS, breaks, describe, manifest, run
from volumes import fat
from volumes.run import Wrong, must

# Options of mkfs.fat, and the size in KiB.
KINDS = {
    "fat12": "-F 12 -s 1 1440",
    "fat12, one FAT": "-F 12 -s 4 -f 1 6000",
    "fat12, few entries": "-F 12 -s 2 -r 112 3000",
    "fat12, large clusters": "-F 12 -s 16 -n LABEL 20000",
    "fat16": "-F 16 -s 1 2500",
    "fat16, clusters of 2K": "-F 16 -s 4 -n LABEL 12000",
    "fat16, sectors of 2K": "-F 16 -S 2048 -s 1 -r 1024 12000",
    "fat16, one FAT": "-F 16 -s 2 -f 1 -R 8 6000",
    "fat32": "-F 32 -s 1 34000",
    "fat32, one FAT": "-F 32 -s 1 -f 1 34000",
    "fat32, labelled": "-F 32 -s 1 -R 40 -n LABEL 34000",
    "fat32, few reserved": "-F 32 -s 1 -R 9 -b 6 34000",
}
WEIGHTS = {"boot": 10, "copy of boot": 3, "free clusters": 4, "fat": 34, "entry": 34, "long name": 8, "dots": 5, "unused": 3,
           "anywhere": 2}
ZEROS = bytes(1 << 16)


class Volume:
    """Where the metadata of a volume lies."""

    def __init__(self, image):
        self.reader = fat.FatReader(image)
        self.bytes = self.reader.image

    def directories(self):
        """Entries by kind and place, and the end of each directory."""
        todo = [0]
        while todo:
            first = todo.pop()
            for at in self.reader.slots(first):
                raw = self.bytes[at:at + 32]
                if raw[0] == 0:
                    yield "unused", at
                    break
                if raw[0] == 0xE5:
                    yield "unused", at
                elif raw[11] & 0x3F == fat.LONG:
                    yield "long name", at
                elif raw[0] == ord("."):
                    yield "dots", at
                else:
                    yield "entry", at
                    if raw[11] & fat.DIRECTORY:
                        todo.append(self.reader.first(raw))

    def places(self):
        """What can be damaged: kind, first byte, length."""
        reader = self.reader
        yield "boot", 0, 90
        if reader.wide:
            info, copy = struct.unpack_from("<HH", self.bytes, 48)
            yield "free clusters", info * reader.sector, 512
            yield "copy of boot", copy * reader.sector, 90
        for number in range(reader.fats):
            start = (reader.reserved + number * reader.fat_len) * reader.sector
            used = len(self.bytes[start:start + reader.fat_len * reader.sector].rstrip(b"\0"))
            for at in range(start, start + used, 512):
                yield "fat", at, 512
        for kind, at in self.directories():
            yield kind, at, 32
        yield "anywhere", 0, len(self.bytes)


def build(number, kind, image, scratch):
    """Makes the sound volume of a kind. mtools damages some volumes: then another one is made."""
    *options, size = KINDS[kind].split()
    for attempt in range(20):
        rng = random.Random(f"fat damages {number} {attempt}")
        image.unlink(missing_ok=True)
        must("mkfs.fat", "-i", "5eed5eed", "--invariant", *options, "-C", image, size)
        fat.fill(rng, image, scratch)
        try:
            fat.sound(image, kind)
            fat.edit(rng, image)
            fat.sound(image, kind)
        except Wrong:
            continue
        return
    sys.exit(f"{kind}: mtools makes no sound volume")


def judge(seed, kind, damaged, sound, scratch, keep):
    """The row of a case: the bytes of a damaged volume, and in words how."""
    scratch.mkdir()
    data, told = damaged
    copy = scratch / "copy"

    def fresh():
        # Most is zeros, which are left out.
        with copy.open("wb") as out:
            out.truncate(len(data))
            for at in range(0, len(data), len(ZEROS)):
                piece = data[at:at + len(ZEROS)]
                if piece != ZEROS[:len(piece)]:
                    out.seek(at)
                    out.write(piece)

    row = {"seed": seed, "kind": kind, "damage": told}
    fresh()
    row["theirs -n"], row["theirs say"] = run("fsck.fat", "-n", copy)
    row["theirs -a"], _ = run("fsck.fat", "-a", copy)
    if row["theirs -a"] not in (0, 1):
        row["theirs -a"], _ = run("fsck.fat", "-a", copy)
    row["theirs after -a"], _ = run("fsck.fat", "-n", copy)
    theirs = manifest(copy) if row["theirs -a"] in (0, 1) else None
    fresh()
    row["ours -n"], row["found"] = run(SEEKLESS, "check", "-n", copy)
    row["ours -y"], row["ours say -y"] = run(SEEKLESS, "check", "-y", copy)
    row["ours after -y"], row["asks"] = run("fsck.fat", "-n", copy)
    ours = manifest(copy)
    row["compared"] = theirs is not None
    row["lost"] = [] if theirs is None else ["all"] if ours is None else lost(sound, theirs, ours)
    if keep and breaks(row, RULES, DIFFERENCES):
        (keep / f"{seed}.img").write_bytes(data)
    shutil.rmtree(scratch)
    return row


RULES = CASES | {
    "clean where fsck.fat -a is": lambda row: row["ours after -y"] == 0 or row["theirs after -a"] != 0,
}
# The others are figures of fsck.fat, or follow.
DIFFERENCES = [name for name in RULES if name not in ("clean after -y", "clean after fsck.fat -a")]


def prepare(kinds, scratch, keep):
    """Volumes of kinds, and what is in each; makes the directory of --keep."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    volumes = {}
    for number, kind in enumerate(KINDS):
        if kind in kinds:
            image = scratch / f"{number}.img"
            build(number, kind, image, scratch)
            volumes[kind] = Volume(image), manifest(image) or sys.exit(f"{kind} cannot be read")
    return volumes


def main():
    args = options(__doc__).parse_args()
    with directory("fat-damages-") as scratch:
        scratch = Path(scratch)
        volumes = prepare(KINDS, scratch, args.keep)
        kinds = list(KINDS)

        def row_of(seed):
            kind = kinds[seed % len(kinds)]
            volume, sound = volumes[kind]
            return judge(seed, kind, damage(volume, seed, WEIGHTS), sound, scratch / str(seed), args.keep)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(row_of, range(args.first, args.first + args.count)))
    return report(rows, args)


def report(rows, args):
    """Prints the rows with a difference, and of how many each rule holds; the exit code."""
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        broken = breaks(row, RULES, DIFFERENCES)
        if args.all or broken:
            print(describe(f"{row['seed']} {row['kind']}: {'; '.join(row['damage'])}", row, CODES, broken))
    kinds = {row["kind"] for row in rows}
    print(f"\n{len(rows)} damaged volumes of {len(kinds)} kinds, judged by {run('fsck.fat', '-n', '/dev/null')[1].splitlines()[0]}")
    print(f"fsck.fat -n finds something: {sum(row['theirs -n'] != 0 for row in rows)}; "
          f"fsck.fat -a does not end with 0 or 1 twice: {sum(not row['compared'] for row in rows)}")
    for name, holds in RULES.items():
        print(f"{name}: {sum(map(holds, rows))} of {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
