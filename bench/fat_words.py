#!/usr/bin/env python3
"""Compares `seekless check` with fsck.fat on FAT volumes of which one byte of metadata is changed.

    bench/fat_words.py [--from N] [--count N] [--every N] [--kind KIND]... [--place PLACE]... [--all]
                       [--json FILE] [--keep DIR]

--every  every n-th change only, 1 without it; 50 takes minutes
--from   first of the changes that are left, 0 without it
--count  how many of these, all without it
--kind   only these kinds of volumes, see bench/fat_damages.py; all twelve without it
--place  only these kinds of places: boot, copy of boot, free clusters, fat, file, directory, label,
         long name, dots, unused

Other options, the judges and the columns are those of bench/fat_damages.py, which damages random
places: a byte that decides much is seldom hit there. Here each byte of the fields of the boot sector
and of its copy, of the signatures and counts of FSInfo, of entries of each FAT (the first two, some
in use and free ones), and of entries of directories of each kind becomes 0, 1, all ones, itself with
its highest bit or a random one changed, and a random number. The same arguments make the same changes.
"""

import os
import random
import struct
import sys
from pathlib import Path

from damages import TIME, directory
from fat_damages import KINDS, judge, prepare, report
from volumes import fat
from words import campaign, changes, judged, word_options

PLACES = ["boot", "copy of boot", "free clusters", "fat", "file", "directory", "label", "long name", "dots", "unused"]
# Entries of a kind, of clusters in use in a FAT, and of free ones.
SAMPLES, USED, FREE = 2, 12, 2


def fields(volume):
    """Places in the reserved sectors: kind, first byte, length."""
    reader = volume.reader
    sectors = [("boot", 0)]
    if reader.wide:
        info, copy = struct.unpack_from("<HH", volume.bytes, 48)
        sectors.append(("copy of boot", copy * reader.sector))
        for at, length in ((0, 4), (484, 12), (508, 4)):
            yield "free clusters", info * reader.sector + at, length
    for kind, at in sectors:
        yield kind, at, 90
        yield kind, at + 510, 2


def links(volume, rng):
    """Places of entries of the FATs."""
    reader = volume.reader
    by_use = {True: [], False: []}
    for cluster in range(2, reader.clusters + 2):
        by_use[reader.fat[cluster] != 0].append(cluster)
    found = [0, 1]
    for is_used, most in ((True, USED), (False, FREE)):
        found += sorted(rng.sample(by_use[is_used], min(most, len(by_use[is_used]))))
    for number in range(reader.fats):
        start = (reader.reserved + number * reader.fat_len) * reader.sector
        for cluster in found:
            yield "fat", start + cluster * reader.bits // 8, max(2, reader.bits // 8)


def entries(volume):
    """Places of entries of directories."""
    seen, after = {}, False
    for kind, at in volume.directories():
        raw = volume.bytes[at:at + 32]
        look = raw[0]
        if kind == "entry":
            kind = "label" if raw[11] & fat.LABEL else "directory" if raw[11] & fat.DIRECTORY else "file"
            # With a long name or without, with clusters or without.
            look = after, raw[26:32] == bytes(6)
        elif kind == "dots":
            look = raw[1]
        after = kind == "long name"
        seen[kind, look] = seen.get((kind, look), 0) + 1
        if seen[kind, look] <= SAMPLES:
            yield kind, at, 32


def places(kind, volume):
    """What is changed: kind, first byte, length."""
    yield from fields(volume)
    yield from links(volume, random.Random(f"links {kind}"))
    yield from entries(volume)


def main():
    args = word_options(__doc__, KINDS, PLACES).parse_args()
    # The time of mtools.
    os.environ["SOURCE_DATE_EPOCH"] = TIME
    with directory("fat-words-") as scratch:
        scratch = Path(scratch)
        volumes = prepare(args.kind or KINDS, scratch, args.keep)
        found = [it for kind, (volume, _) in volumes.items() for it in changes(kind, volume, places(kind, volume), 1)]
        rows = campaign(found, judged(judge, volumes, scratch, args.keep), args)
    return report(rows, args)


if __name__ == "__main__":
    sys.exit(main())
