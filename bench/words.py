#!/usr/bin/env python3
"""Compares `seekless check` with e2fsck on volumes of which one word of metadata is changed.

    bench/words.py [--from N] [--count N] [--every N] [--kind KIND]... [--place PLACE]... [--all]
                   [--strict] [--json FILE] [--keep DIR]

--every  every n-th change only, 1 without it
--from   first of the changes that are left, 0 without it
--count  how many of these, all without it
--kind   only these kinds of volumes, see bench/damages.py; those without checksums of metadata
         otherwise, where nothing but the word says that it is wrong
--place  only these kinds of places: superblock, descriptors, inode, reserved inode, attributes,
         map, directory, journal, quota

Other options, the judges and the columns are those of bench/damages.py, which damages random places:
a word that decides much is seldom hit there. Here each word of 16 bits of the superblock, of the
group descriptors, of an inode of each kind and of each reserved one, and at the start of each other
kind of block becomes 0, 1, all ones, itself with its highest bit or a random one changed, and a
random number. The same arguments make the same changes.
"""

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from damages import FURTHER, KINDS, directory, judge, options, prepare, report

UNCHECKED = ["ext2", "ext3", "plain", "bigalloc", "ea_inode", "meta_bg", "journal"]
PLACES = ["superblock", "descriptors", "inode", "reserved inode", "attributes", "map", "directory", "journal", "quota"]
# Bytes at the start of a block: heads, and the first entries.
HEAD = 96
# Blocks of a kind, and inodes of a mode and the same flags.
SAMPLES = 2


def places(volume):
    """What is changed: kind, first byte, length."""
    seen = {}
    for kind, at, length in volume.places():
        if kind not in PLACES:
            continue
        look = kind
        if kind == "inode":
            look = kind, volume.word(at, 2) >> 12, volume.word(at + 32), volume.word(at + 104) != 0
        elif kind == "reserved inode":
            look = kind, at
        seen[look] = seen.get(look, 0) + 1
        if seen[look] > SAMPLES:
            continue
        if kind in ("superblock", "inode", "reserved inode"):
            yield kind, at, length
        elif kind == "descriptors":
            yield kind, at, min(length, 128)
        else:
            yield kind, at, HEAD


def changes(kind, volume, found, size=2, order="little"):
    """Places of words of `size` bytes and their new values, of the places that are found."""
    rng = random.Random(f"words {kind}")
    every, highest = (1 << 8 * size) - 1, 1 << 8 * size - 1
    for place, start, length in found:
        for at in range(start, start + length, size):
            old = int.from_bytes(volume.bytes[at:at + size], order)
            values = [0, 1, every, old ^ highest, old ^ 1 << rng.randrange(8 * size), rng.randrange(1 << 8 * size)]
            for value in sorted({*values} - {old}):
                yield kind, place, start, at, size, order, old, value


def damage(volume, change):
    """The damaged bytes, and in words how."""
    _, place, start, at, size, order, old, value = change
    data = bytearray(volume.bytes)
    data[at:at + size] = value.to_bytes(size, order)
    return bytes(data), [f"{place} at {start:#x}+{at - start:#x}: {old:#x} becomes {value:#x}"]


def word_options(text, kinds, places):
    """The options that campaigns of words have in common."""
    parser = options(text)
    parser.set_defaults(count=sys.maxsize)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=kinds)
    parser.add_argument("--place", action="append", choices=places)
    return parser


def campaign(found, row_of, args):
    """The rows of the changes that the options leave: `row_of` gets the number of a change, and it."""
    found = [it for it in found if not args.place or it[1] in args.place]
    found = found[::args.every][args.first:args.first + args.count]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(row_of, range(args.first, args.first + len(found)), found))


def judged(judge, volumes, scratch, keep):
    """The row of a change of one of the volumes, by a judge of bench/damages.py or bench/fat_damages.py."""
    def row_of(number, change):
        volume, sound = volumes[change[0]]
        return judge(number, change[0], damage(volume, change), sound, scratch / f"case-{number}", keep)

    return row_of


def main():
    parser = word_options(__doc__, [*KINDS, *FURTHER], PLACES)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    with directory("words-") as scratch:
        scratch = Path(scratch)
        volumes = prepare(args.kind or UNCHECKED, scratch, args.keep)
        found = [it for kind, (volume, _) in volumes.items() for it in changes(kind, volume, places(volume))]
        rows = campaign(found, judged(judge, volumes, scratch, args.keep), args)
    return report(rows, args)


if __name__ == "__main__":
    sys.exit(main())
