#!/usr/bin/env python3
"""Optimizes and rebuilds ext images of random features that the kernel has filled and aged.

    bench/shapes.py [--from SEED] [--count N] [--seconds S] [--keep DIR] [--verbose]

--from    first seed, 0 without it
--count   number of seeds, 50 without it
--seconds begins no seed after this time
--keep    copies images, trace and commands of a seed with a difference to a directory
--verbose prints the shape of each seed

The program is $SEEKLESS, or target/release/seekless. Needs root, loop devices, e2fsprogs, setfattr
and qemu-img. Images are made in $TMPDIR, or in /dev/shm without it.

A seed makes an image by mke2fs with random features, sizes of blocks, inodes, clusters and groups.
The kernel mounts it, fills it and ages it; every third seed takes the image from below the mount,
so that its journal is to be replayed and files without names are on the list of orphans. Features
that the running kernel lacks are added by tune2fs and debugfs afterwards. A random trace is written,
and the image is rearranged by `optimize -o`, `optimize --in-place` and `build`, with random options.

sound     `e2fsck -fn` finds nothing
equal     each inode of the new image has all bytes of the old one's (flags, times with nanoseconds,
          generation, project, version), the same attributes, the same written, unwritten and missing
          ranges with the same contents, and the same names; a reader of this script compares them.
          After `build`: what docs/limits.md promises
kernel    the same names, metadata, attributes, FIEMAP and contents through the kernel's mount
goes on   the kernel writes to the new image and removes from it, and `e2fsck -fn` finds nothing
again     the same command writes the same bytes, with one thread too
kept      the input has its bytes; no other file appears
score     `score` of both images gives what `optimize --json` promised
"""

import json
import os
import random
import re
import shutil
import stat

from volumes.campaign import arguments, perform
from volumes.contents import add_features, fill, leave_open, write
from volumes.kernel import Mount, go_on, listing, settle
from volumes.program import digest, score_is_promised, seekless, writes_again
from volumes.reader import Reader, compare_raw, compare_trees
from volumes.run import Skip, Wrong, call, must
from volumes.shape import shape
from volumes.trace import trace


def sound(image, what):
    code, out, err = call("e2fsck", "-fn", image)
    # Times of superblocks are those of the source, which may lie in the future.
    out = re.sub(r"Superblock last \w+ time .*\n.*is in the future.\nFix\? no\n", "", out)
    # So are trees of extents that the kernel made.
    out = re.sub(r"Inode \d+ extent tree \(at level \d\) could be \w+.  Optimize\? no\n", "", out)
    if code or re.search(r"\? no\b", out):
        raise Wrong(f"{what}: e2fsck -fn {code}\n{out[-2500:]}{err[-500:]}")


class Seed:
    def __init__(self, number, scratch):
        self.rng, self.scratch, self.number, self.passed = random.Random(f"shapes {number}"), scratch, number, []
        self.told, self.shape = [], "no volume"
        (scratch / "mnt").mkdir()

    def steps(self):
        return [self.optimize, self.in_place] + ([] if self.commits_fast else [self.build, self.partition])

    def end(self):
        call("umount", self.scratch / "mnt")

    def make(self):
        rng, scratch = self.rng, self.scratch
        options, size, after = shape(rng)
        self.image = image = scratch / "old.img"
        image.unlink(missing_ok=True)
        self.shape = f"mke2fs {' '.join(options)} {size}K + {','.join(after)}"
        code, out, err = call("mke2fs", "-q", "-F", *options, image, f"{size}K")
        if code:
            raise Skip(f"mke2fs: {(out + err).strip().splitlines()[-1]}")
        self.dirty = rng.random() < .33 and not after and "has_journal" in must("dumpe2fs", "-h", image)
        # The kernel's replay sets other times, and leaves attributes of a removed file that had the inode.
        self.commits_fast = self.dirty and "fast_commit" in self.shape
        if self.dirty:
            self.passed.append("made, journal to replay")
            self.shape += ", not unmounted"
        first = scratch / "first.img"
        ways = ["", ",delalloc", ",nodelalloc", ",iversion"] if "-t ext4" in self.shape else [""]
        with Mount(image, scratch / "mnt", "rw" + rng.choice(ways)) as root:
            fill(rng, root)
            if self.dirty:
                held = leave_open(rng, root)
                os.sync()
                for n in range(rng.randrange(8)):
                    try:
                        os.mkdir(root + b"/late-%d" % n)
                        write(rng, root + b"/late-%d/file" % n)
                        if rng.random() < .5:
                            with open(root + b"/late-%d/file" % n, "ab") as file:
                                os.fsync(file.fileno())
                    except OSError:
                        pass
                must("cp", "--sparse=always", image, first)
                for file in held:
                    file.close()
        if self.dirty:
            first.replace(image)
        if after:
            try:
                add_features(rng, image, after)
            except Wrong as error:
                raise Skip(f"harness: {str(error)[:150]}") from error
        self.settled = scratch / "settled.img"
        self.mounts = settle(image, self.settled, scratch)
        self.goes_on = self.mounts and not after
        code, out, err = call("e2fsck", "-fn", self.settled)
        if code:
            raise Skip(f"harness: the kernel's volume is not sound: {out[-300:]}")
        if self.mounts:
            try:
                with Mount(self.settled, scratch / "mnt", "ro") as root:
                    listing(root)
            except OSError as error:
                raise Skip(f"harness: the kernel refuses a file that it or e2fsck has left: {error.strerror}") from error
        self.tree = Reader(self.settled).tree()
        self.trace = scratch / "a.trace"
        trace(rng, sorted(self.tree), self.trace)
        self.before = digest(image)

    def judge_same(self, new, what):
        """A rearranged image."""
        settled = self.scratch / "new-settled.img"
        settle(new, settled, self.scratch)
        sound(settled if self.dirty else new, what)
        if self.commits_fast:
            return
        compare_raw(self.settled, settled, what)
        self.passed.append(f"{what}: raw")
        if self.mounts:
            with Mount(self.settled, self.scratch / "mnt", "ro") as root:
                old = listing(root)
            with Mount(settled, self.scratch / "mnt", "ro") as root:
                compare_trees(old, listing(root), f"{what}, kernel")
            self.passed.append(f"{what}: kernel")
            if self.goes_on:
                go_on(random.Random(self.number), new, self.scratch / "on.img", self.scratch)
                self.passed.append(f"{what}: goes on")

    def optimize(self):
        rng, scratch = self.rng, self.scratch
        new, more = scratch / "new.img", []
        new.unlink(missing_ok=True)
        for option, values in (("--chunk", ["4K", "64K", "1M"]), ("--for", ["disk", "lazy"])):
            if rng.random() < .4:
                more += [option, rng.choice(values)]
        command = ["optimize", self.image, "--trace", self.trace, "-o", new, *more]
        here = set(os.listdir(scratch))
        out, _ = seekless(*command, "--json")
        told = json.loads(out)["traces"][0]
        if set(os.listdir(scratch)) - here - {"new.img"}:
            raise Wrong("optimize leaves a file")
        if digest(self.image) != self.before:
            raise Wrong("optimize changes its input")
        self.judge_same(new, "optimize")
        chunk = ["--chunk", more[more.index("--chunk") + 1]] if "--chunk" in more else ["--chunk", "512K"]
        score_is_promised(told, self.image, new, self.trace, chunk)
        self.passed.append("optimize: score")
        writes_again(command, new, "optimize")
        self.passed.append("optimize: again")
        # The result once more: nothing may be lost on the way, and it may not get worse.
        out, _ = seekless("optimize", new, "--trace", self.trace, "-o", scratch / "twice.img", *more, "--json", "--force")
        twice = json.loads(out)["traces"][0]
        if twice["after"].get("seeks", 0) > twice["before"].get("seeks", 0) + 2:
            self.told.append(f"optimize twice: seeks {told['before']['seeks']} {told['after']['seeks']} {twice['after']['seeks']}")
        if not self.dirty:
            sound(scratch / "twice.img", "optimize twice")
        self.passed.append("optimize: twice")
        if told["after"].get("seeks", 0) > told["before"].get("seeks", 0) + 2:
            self.told.append(f"worse: seeks {told['before']['seeks']} {told['after']['seeks']}")

    def in_place(self):
        scratch = self.scratch
        work, undo = scratch / "work.img", scratch / "undo"
        undo.unlink(missing_ok=True)
        must("cp", "--sparse=always", self.image, work)
        more = self.rng.choice([[], ["--budget", "200K"], ["--chunk", "64K"]])
        try:
            dry = json.loads(seekless("optimize", work, "--trace", self.trace, "--in-place", "--dry-run", "--json", *more)[0])
        except Skip:
            if digest(work) != self.before:
                raise Wrong("in place: a refused image is changed") from None
            raise
        if digest(work) != self.before:
            raise Wrong("in place: --dry-run changes the image")
        done = json.loads(seekless("optimize", work, "--trace", self.trace, "--in-place", "--json", "--undo", undo, *more)[0])
        for key in dry.keys() & done.keys():
            if key not in ("undo", "dry_run") and dry[key] != done[key]:
                self.told.append(f"in place: trial {key} {str(dry[key])[:200]} {str(done[key])[:200]}")
        self.judge_same(work, "in place")
        code, out, err = call("e2undo", undo, work)
        if code or digest(work) != self.before:
            raise Wrong(f"e2undo: {code} {out[-300:]}{err[-300:]}")
        self.passed.append("in place: e2undo")

    def build(self):
        rng, scratch = self.rng, self.scratch
        new, more = scratch / "built.img", []
        new.unlink(missing_ok=True)
        if rng.random() < .5:
            more += ["-b", rng.choice(["1024", "2048", "4096"])]
        if rng.random() < .3:
            more += ["-I", rng.choice(["256", "512"])]
        choices = ("inline_data", "^metadata_csum", "^64bit", "^has_journal", "large_dir", "^extent,^64bit")
        lists = [name for name in choices if rng.random() < .2]
        more += ["--features", ",".join(["ea_inode", *lists])]
        if rng.random() < .5:
            more += ["--trace", self.trace]
        if rng.random() < .3:
            more += ["--share"]
        elif rng.random() < .3:
            more += ["--like", self.image]
        if rng.random() < .4:
            more += ["--free", "20%"]
        command = ["build", self.image, "-o", new, *more]
        _, err = seekless(*command)
        sound(new, f"build {more}")
        if digest(self.image) != self.before:
            raise Wrong("build changes its input")
        if self.mounts:
            with Mount(self.settled, scratch / "mnt", "ro") as root:
                old = listing(root, True)
            with Mount(new, scratch / "mnt", "ro") as root:
                now = listing(root, True)
            ignore = {"flags"} if re.search("flag|project", err) else set()
            for told in (*old.values(), *now.values()):
                mode, uid, gid, links, rdev = told["stat"]
                told["stat"] = (mode, uid, gid, 0 if stat.S_ISDIR(mode) else links, rdev)
            old.pop(b"/lost+found", None), now.pop(b"/lost+found", None)
            if re.search("time", err):
                ignore.add("times")
            try:
                compare_trees(old, now, f"build {more}", ignore)
            except Wrong as error:
                raise Wrong(f"{error}\nsaid: {err[-1000:]}") from None
            self.passed.append("build: kernel")
            go_on(random.Random(self.number), new, scratch / "on.img", scratch)
            self.passed.append("build: goes on")
        writes_again(command, new, f"build {more}")
        self.passed.append("build: again")

    def partition(self):
        """The image as a partition, rearranged, and by way of qcow2."""
        rng, scratch = self.rng, self.scratch
        disk, new, packed = scratch / "disk.img", scratch / "new-disk.img", scratch / "disk.qcow2"
        size = (self.image.stat().st_size + 511) // 512
        disk.unlink(missing_ok=True)
        with disk.open("wb") as file:
            file.truncate((size + 4096 + 2048) * 512)
        start = rng.choice([64, 2048, 2049])
        must("sgdisk", "-a", 1, "-n", f"1:34:40", "-n", f"2:{start}:{start + size - 1}", "-c", "2:vol", disk)
        with disk.open("r+b") as file, self.image.open("rb") as source:
            file.seek(start * 512)
            shutil.copyfileobj(source, file)
        outputs = {}
        source = disk
        if rng.random() < .5:
            must("qemu-img", "convert", "-c", "-O", "qcow2", disk, packed)
            source = packed
        for name in ("new-disk.img", "new-disk.qcow2"):
            seekless("optimize", source, "--partition", rng.choice(["2", "vol"]), "--trace", self.trace, "-o", scratch / name, "--force")
        must("qemu-img", "convert", "-O", "raw", scratch / "new-disk.qcow2", scratch / "flat.img")
        if digest(scratch / "flat.img") != digest(new):
            raise Wrong("partition: qcow2 and raw outputs differ")
        with new.open("rb") as one, disk.open("rb") as other:
            if one.read(start * 512) != other.read(start * 512):
                raise Wrong("partition: bytes in front differ")
            one.seek((start + size) * 512), other.seek((start + size) * 512)
            if one.read() != other.read():
                raise Wrong("partition: bytes behind differ")
            one.seek(start * 512)
            inner = scratch / "inner.img"
            inner.write_bytes(one.read(self.image.stat().st_size))
        alone = scratch / "alone.img"
        seekless("optimize", self.image, "--trace", self.trace, "-o", alone, "--force")
        if digest(alone) != digest(inner):
            # A volume's chunks count from the beginning of the disk.
            settle(inner, scratch / "inner-settled.img", scratch)
            compare_raw(self.settled, scratch / "inner-settled.img", "partition")
        self.passed.append("partition")


def main():
    perform(arguments(__doc__, 50), "shapes", Seed, ["old.img", "a.trace", "settled.img"])


if __name__ == "__main__":
    main()
