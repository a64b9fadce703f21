#!/usr/bin/env python3
"""Judges `seekless check` by UFS volumes of which one word of metadata is changed.

    bench/ufs_words.py [--from N] [--count N] [--every N] [--kind KIND]... [--place PLACE]... [--all]
                       [--json FILE] [--keep DIR]

--every  every n-th change only, 1 without it; 50 takes minutes
--from   first of the changes that are left, 0 without it
--count  how many of these, all without it
--kind   only these kinds of volumes
--place  only these kinds of places: superblock, copy, summary, group, inode, free inode, map,
         directory, attributes
--all    prints the rows of cases without a difference too
--json   writes every row to a file
--keep   copies the damaged images of cases with a difference to a directory

The program is $SEEKLESS, or target/release/seekless. Needs makefs (Debian: makefs) and setfattr.
Nothing is mounted. Volumes are made in $TMPDIR, or in /dev/shm without it: by makefs in both formats
and both byte orders, and by `seekless build` with attributes, with and without check hashes.

Each word of 16 bits of a superblock and of a copy, of the summaries and the heads of groups, of an
inode of each kind and of one not in use, and at the start of blocks of each other kind becomes 0, 1,
all ones, itself with its highest bit or a random one changed, and a random number. The same arguments
make the same changes. No program here checks UFS: the rules follow from the place that is changed.

ends       each run ends within 20 seconds with an exit code of the manual
settles    `check -n` finds nothing after `check -y`
settles -p `check -n` finds nothing after `check -p` that ends with 0 or 1
keeps      after `check -y`, names and contents are those of the sound volume. A file whose inode, map or
           attributes are changed may be lost; files of a directory of which an entry is changed may
           have another name
keeps -p   the same after `check -p` that ends with 0 or 1
in order   where `check -n` finds nothing, names and contents are those of the sound volume but for those
           of the file whose inode or map is changed

The last line counts files whose inode, map or attributes are changed, by their state after `check -y`:
with all of their contents and attributes, with other contents, and without their name.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

from damages import directory, populate
from e2fsprogs_cases import SEEKLESS, breaks, describe, manifest, run
from volumes.run import must
from volumes.ufs import DIRECTORY, HEAD, SUPERBLOCK, UfsReader
from words import SAMPLES, campaign, changes, damage, word_options

MAKEFS = "-t ffs -T 1700000000 -s 4m -f 200 -o bsize=4096,fsize=512,maxbpcg=200"
BUILD = "build --quiet --format ufs2 -b 4096 -f 512 --size 4M"
KINDS = {
    "ufs1": f"makefs -B le {MAKEFS},version=1",
    "ufs1, big-endian": f"makefs -B be {MAKEFS},version=1",
    "ufs2": f"makefs -B le {MAKEFS},version=2",
    "ufs2, big-endian": f"makefs -B be {MAKEFS},version=2",
    "ufs2, attributes": f"{BUILD} --check-hashes none",
    "ufs2, check hashes": BUILD,
}
PLACES = ["superblock", "copy", "summary", "group", "inode", "free inode", "map", "directory", "attributes"]
# Bytes at the start of a block.
START = 96


class Volume:
    """A sound volume: its places, and the files that a change in a place concerns."""

    def __init__(self, image):
        self.bytes = image.read_bytes()
        self.reader = UfsReader(self.bytes)
        self.names = self.reader.paths()
        # The inode that a place belongs to.
        self.owner = {}

    def places(self):
        """What is changed: kind, first byte, length."""
        reader = self.reader
        yield "superblock", reader.at, SUPERBLOCK
        yield "copy", (reader.group(1) + reader.field["sblkno"]) * reader.fragment, SUPERBLOCK
        yield "summary", reader.summary * reader.fragment, 32
        for number in (0, reader.groups - 1):
            yield "group", (reader.group(number) + reader.field["cblkno"]) * reader.fragment, HEAD + START
        seen = {}
        for number, at in reader.inodes():
            blocks = [*reader.map(at)]
            names = len(self.names.get(number, []))
            look = reader.kind(at), names > 1, any(depth for _, depth in blocks), reader.attributes(at) is not None
            seen[look] = seen.get(look, 0) + 1
            if seen[look] > SAMPLES and number != 2:
                continue
            self.owner[at] = number
            yield "inode", at, reader.inode_len
            kind = "directory" if reader.kind(at) == DIRECTORY else None
            found = [("map", fragment) if depth else (kind, fragment) for fragment, depth in blocks]
            if attributes := reader.attributes(at):
                found.append(("attributes", attributes[0]))
            for kind, fragment in found:
                if kind:
                    self.owner[fragment * reader.fragment] = number
                    yield kind, fragment * reader.fragment, START
        used = {number for number, _ in reader.inodes()}
        free = next(number for number in range(3, reader.groups * reader.field["ipg"]) if number not in used)
        yield "free inode", reader.inode(free), reader.inode_len

    def concerned(self, start):
        """Names whose contents a change may take, and those that it may change."""
        number = self.owner.get(start)
        if number is None:
            return [], []
        own = self.names.get(number, [])
        if self.reader.kind(self.reader.inode(number)) == DIRECTORY:
            return own, [path for paths in self.names.values() for path in paths if f"{path}/".startswith(f"{own[0]}/")]
        return own, own


def build(kind, image, tree):
    program, *options = KINDS[kind].split()
    if program == "makefs":
        must(program, *options, image, tree)
    else:
        must(SEEKLESS, program, *options, "-o", image, tree)
    code, said = run(SEEKLESS, "check", "-n", image)
    if code:
        sys.exit(f"{kind} is not sound: {said}")


def missing(sound, left, gone, moved):
    """Names and contents of the sound volume that are not left, but for those that a change may take or move."""
    if left is None:
        return ["all"]
    here = [path for path, held in sound.items() if path not in moved and left.get(path) != held]
    # Another name of the same file is as good.
    kept = {held: path for path, held in sound.items() if path not in gone and json.loads(held)[0] != "dir"}
    return sorted({*here, *(path for held, path in kept.items() if held not in left.values())})


def state(sound, left, names):
    """The state of a file that a change concerns."""
    if not names or not left or names[0] not in left:
        return "gone"
    return "whole" if left[names[0]] == sound[names[0]] else "in part"


def judge(number, change, volume, sound, scratch, keep):
    """The row of a change."""
    scratch.mkdir()
    kind, _, start, *_ = change
    data, told = damage(volume, change)
    gone, moved = volume.concerned(start)
    copy = scratch / "copy"
    row = {"seed": number, "kind": kind, "damage": told}
    copy.write_bytes(data)
    row["-n"], row["found"] = run(SEEKLESS, "check", "-n", copy)
    if copy.read_bytes() != data:
        row["-n"] = "written"
    row["as it is"] = [] if row["-n"] else missing(sound, manifest(copy), moved, moved)
    row["-p"], row["preen"] = run(SEEKLESS, "check", "-p", copy)
    row["after -p"], _ = run(SEEKLESS, "check", "-n", copy) if row["-p"] in (0, 1) else (0, "")
    row["lost by -p"] = missing(sound, manifest(copy), gone, moved) if row["-p"] in (0, 1) else []
    copy.write_bytes(data)
    row["-y"], row["repair"] = run(SEEKLESS, "check", "-y", copy)
    row["after -y"], row["asks"] = run(SEEKLESS, "check", "-n", copy)
    left = manifest(copy)
    row["lost"] = missing(sound, left, gone, moved)
    row["own"] = state(sound, left, gone) if change[1] in ("inode", "map", "attributes") else None
    if keep and breaks(row, RULES, RULES):
        (keep / f"{number}.img").write_bytes(data)
    shutil.rmtree(scratch)
    return row


RULES = {
    "ends": lambda row: all(row[key] in (0, 1, 4, 8) for key in ("-n", "-p", "-y", "after -p", "after -y")),
    "settles": lambda row: row["after -y"] == 0,
    "settles -p": lambda row: row["after -p"] == 0,
    "keeps": lambda row: not row["lost"],
    "keeps -p": lambda row: not row["lost by -p"],
    "in order": lambda row: not row["as it is"],
}
CODES = ["-n", "-p", "after -p", "-y", "after -y"]


def main():
    args = word_options(__doc__, [*KINDS], PLACES).parse_args()
    with directory("ufs-words-") as scratch:
        scratch = Path(scratch)
        tree = scratch / "tree"
        tree.mkdir()
        populate(tree)
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
        volumes, found = {}, []
        for number, kind in enumerate(args.kind or KINDS):
            image = scratch / f"{number}.img"
            build(kind, image, tree)
            volume = Volume(image)
            volumes[kind] = volume, manifest(image)
            found += changes(kind, volume, volume.places(), order=volume.reader.byteorder)

        def row_of(number, change):
            return judge(number, change, *volumes[change[0]], scratch / f"case-{number}", args.keep)

        rows = campaign(found, row_of, args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        broken = breaks(row, RULES, RULES)
        if args.all or broken:
            row["lost"] += row["lost by -p"] + row["as it is"]
            print(describe(f"{row['seed']} {row['kind']}: {row['damage'][0]}", row, CODES, broken))
    print(f"\n{len(rows)} damaged volumes of {len({row['kind'] for row in rows})} kinds; "
          f"check -n finds something: {sum(row['-n'] != 0 for row in rows)}; "
          f"check -p stops: {sum(row['-p'] not in (0, 1) for row in rows)}")
    for name, holds in RULES.items():
        print(f"{name}: {sum(map(holds, rows))} of {len(rows)}")
    own = Counter(row["own"] for row in rows if row["own"])
    print("files changed themselves: " + ", ".join(f"{own[name]} {name}" for name in ("whole", "in part", "gone")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
