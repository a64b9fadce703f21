#!/usr/bin/env python3
"""Optimizes and rebuilds FAT images of random shapes that mtools has filled and aged.

    bench/fat_shapes.py [--from SEED] [--count N] [--seconds S] [--keep DIR] [--verbose]

--from    first seed, 0 without it
--count   number of seeds, 200 without it
--seconds begins no seed after this time
--keep    copies the image and the trace of a seed with a difference to a directory
--verbose prints the shape of each seed

The program is $SEEKLESS, or target/release/seekless. Needs dosfstools and mtools. Images are made in
$TMPDIR, or in /dev/shm without it.

A seed makes a volume by mkfs.fat with random options (width, sectors, clusters, FATs), fills and ages
it by mtools, and changes what tools do not write: times, cases of short names, bad clusters, ends of
chains, reserved bits of FAT32, the boot program, unused bytes. A random trace is written, and the
image is rearranged by `optimize` and built again by `build`, also like the old one.

sound     `fsck.fat -n` finds nothing
equal     each entry of the new image has all bytes of the old one's (attributes, times, short and long
          name, case, length) and its contents; directories have as many clusters; the bytes in front of
          the FATs, bad clusters and the length of the image are the old ones; copies of the FAT are
          equal. A reader of this script compares them. After `build`: names, contents, lengths, times of
          changes, and the attributes read-only, hidden and system
mtools    copies the same contents out of both images
again     the same command writes the same bytes
kept      the input has its bytes
score     `score` of both images gives what `optimize --json` promised
"""

import json
import random
import struct

from volumes import fat
from volumes.campaign import arguments, perform
from volumes.program import digest, score_is_promised, seekless, writes_again
from volumes.run import Skip, Wrong
from volumes.trace import trace


def compare(old, new, what):
    differs = [f"{name}: {old.get(name)} -> {new.get(name)}" for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if differs:
        raise Wrong(f"{what}: {len(differs)} differences\n" + "\n".join(differs[:8]))


def built(tree):
    """What `build` keeps of files and directories."""
    keeps = fat.READ_ONLY | fat.HIDDEN | fat.SYSTEM | fat.DIRECTORY
    return {
        path: (raw[11] & keeps, raw[22:26], struct.unpack_from("<I", raw, 28)[0], body if isinstance(body, str) else None)
        for (path, kind), (raw, _, body) in ((key, value) for key, value in tree.items() if key[1] == "file")
    }


class Seed:
    def __init__(self, number, scratch):
        self.rng, self.scratch, self.passed = random.Random(f"fat {number}"), scratch, []
        self.shape, self.told = "no volume", []

    def steps(self):
        return [self.optimize, self.build]

    def end(self):
        pass

    def make(self):
        self.image, self.trace = self.scratch / "old.img", self.scratch / "a.trace"
        self.shape = fat.make(self.rng, self.image)
        fat.fill(self.rng, self.image, self.scratch)
        try:
            # mtools damages some volumes that are full.
            fat.sound(self.image, "harness: mtools")
            self.shape += f" + {', '.join(fat.edit(self.rng, self.image))}"
            fat.sound(self.image, "harness: edited")
        except Wrong as error:
            raise Skip(str(error)[:60].splitlines()[0]) from error
        self.old = fat.FatReader(self.image)
        self.tree = self.old.tree()
        paths = sorted(path.encode() for path, kind in self.tree if kind == "file")
        if not paths:
            raise Skip("harness: no file")
        trace(self.rng, paths, self.trace)
        self.before = digest(self.image)
        self.listed = fat.listed(self.image, self.scratch)

    def kept(self, what):
        if digest(self.image) != self.before:
            raise Wrong(f"{what} changes its input")

    def optimize(self):
        new = self.scratch / "new.img"
        more = ["--chunk", self.rng.choice(["4K", "64K"])] if self.rng.random() < .4 else ["--chunk", "512K"]
        command = ["optimize", self.image, "--trace", self.trace, "-o", new, *more]
        told = json.loads(seekless(*command, "--json")[0])["traces"][0]
        self.kept("optimize")
        fat.sound(new, "optimize")
        there = fat.FatReader(new)
        compare(self.tree, there.tree(), "optimize")
        if there.bad() != self.old.bad() or len(there.image) != len(self.old.image):
            raise Wrong("optimize: other bad clusters, or another length")
        if any(copy[2:] != there.fat[2:] for copy in there.mirrors):
            raise Wrong("optimize: copies of the FAT differ")
        # The sector of FAT32 with the number of free clusters, and its copy.
        info = struct.unpack_from("<H", self.old.image, 48)[0] if self.old.wide else 0
        backup = struct.unpack_from("<H", self.old.image, 50)[0] if self.old.wide else 0
        for sector in range(self.old.reserved):
            at = slice(sector * self.old.sector, (sector + 1) * self.old.sector)
            one, other = bytearray(self.old.image[at]), bytearray(there.image[at])
            if self.old.wide and sector in (0, backup):
                # The first cluster of the root directory.
                one[44:48] = other[44:48] = bytes(4)
            if sector not in (info, backup + info) and one != other:
                raise Wrong(f"optimize: sector {sector} differs")
        self.passed.append("optimize: equal")
        compare(self.listed, fat.listed(new, self.scratch), "optimize, mtools")
        self.passed.append("optimize: mtools")
        score_is_promised(told, self.image, new, self.trace, more)
        self.passed.append("optimize: score")
        writes_again(command, new, "optimize")
        self.passed.append("optimize: again")

    def build(self):
        new = self.scratch / "built.img"
        kind = self.rng.choice(["fat12", "fat16", "fat32"])
        more = ["--trace", self.trace] if self.rng.random() < .5 else []
        if self.rng.random() < .4:
            kind = f"fat{self.old.bits}"
            more += ["--like", self.image]
        command = ["build", self.image, "-o", new, "--format", kind, *more]
        seekless(*command)
        self.kept("build")
        fat.sound(new, f"build {more}")
        compare(built(self.tree), built(fat.FatReader(new).tree()), f"build {kind} {more}")
        self.passed.append("build: equal")
        compare(self.listed, fat.listed(new, self.scratch), "build, mtools")
        self.passed.append("build: mtools")
        writes_again(command, new, "build")
        self.passed.append("build: again")


def main():
    perform(arguments(__doc__, 200), "fat-shapes", Seed, ["old.img", "a.trace"])


if __name__ == "__main__":
    main()
