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

import argparse
import base64
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEKLESS = os.environ.get("SEEKLESS", str(ROOT / "target/release/seekless"))
EXTENTS, INLINE, EA_INODE, INDEX, IMMUTABLE, APPEND = 0x80000, 0x10000000, 0x200000, 0x1000, 0x10, 0x20
GETFLAGS, SETFLAGS, GETVERSION, SETVERSION = 0x80086601, 0x40086602, 0x80087601, 0x40087602
GETXATTR, SETXATTR, FIEMAP = 0x801C581F, 0x401C5820, 0xC020660B
PREFIXES = {1: "user.", 2: "system.posix_acl_access", 3: "system.posix_acl_default", 4: "trusted.", 6: "security.",
            7: "system.", 8: "system.richacl"}


class Wrong(Exception):
    """A judge objects."""


class Skip(Exception):
    """This shape cannot be made, or seekless refuses it by name."""


def call(*command, text=None, limit=60, env=None):
    """Runs a program; its exit code and its outputs."""
    done = subprocess.run(["timeout", "-s", "KILL", str(limit), *map(str, command)], input=text, capture_output=True, check=False,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def must(*command, **rest):
    code, out, err = call(*command, **rest)
    if code:
        raise Wrong(f"{' '.join(map(str, command))}: {code}\n{out[-3000:]}{err[-3000:]}")
    return out


# ---------------------------------------------------------------- shapes

def shape(rng):
    """Options of mke2fs, the size, and features to add when the kernel has filled the volume."""
    block = rng.choice([1024, 1024, 2048, 4096, 4096])
    inode = rng.choice([size for size in (128, 256, 256, 512, 1024) if size <= block])
    kind = rng.choices(["ext4", "ext3", "ext2"], [8, 1, 1])[0]
    size = rng.randrange(6 << 20, (24 << 20) if block == 1024 else (90 << 20)) // 1024
    options, features, extended, after = ["-t", kind, "-b", block, "-I", inode], [], [], []
    if kind == "ext4":
        for name, share in (("64bit", .5), ("metadata_csum", .5), ("flex_bg", .7), ("huge_file", .8), ("dir_nlink", .8),
                            ("extra_isize", .8), ("large_dir", .3), ("ea_inode", .4), ("uninit_bg", .4), ("sparse_super", .9),
                            ("large_file", .9), ("dir_index", .9), ("filetype", .95), ("has_journal", .85), ("resize_inode", .7),
                            ("encrypt", .15), ("stable_inodes", .1), ("extent", .93), ("ext_attr", .97)):
            features.append(name if rng.random() < share else "^" + name)
        on = set(features)
        if "metadata_csum" in on and "uninit_bg" in on:
            features[features.index("uninit_bg")] = "^uninit_bg"
        if "metadata_csum" in on and rng.random() < .4:
            features.append("metadata_csum_seed")
        if "^extent" in on:
            features[features.index("64bit") if "64bit" in features else features.index("^64bit")] = "^64bit"
        if "has_journal" in on and rng.random() < .4:
            features.append("orphan_file")
        if inode >= 256 and "ext_attr" in on and rng.random() < .3:
            features.append("inline_data")
        if "extent" in on and rng.random() < .2:
            features.append("bigalloc")
            options += ["-C", block * rng.choice([2, 4, 16])]
        if rng.random() < .2:
            features = [name for name in features if "resize_inode" not in name] + ["meta_bg", "^resize_inode"]
        if rng.random() < .15:
            features = [name for name in features if name not in ("sparse_super", "resize_inode", "^resize_inode")]
            features += ["sparse_super2", "^resize_inode"]
            if rng.random() < .7:
                extended.append(f"num_backup_sb={rng.randrange(3)}")
        if rng.random() < .15:
            after.append("quota")
        if inode >= 256 and rng.random() < .15:
            after.append("project")
        if rng.random() < .1:
            after.append("verity")
        if "^encrypt" in features and rng.random() < .1:
            after.append("casefold")
        if rng.random() < .3:
            options += ["-G", rng.choice([1, 2, 4, 32])]
        if rng.random() < .2 and "flex_bg" in features:
            extended.append("packed_meta_blocks=1")
        if "has_journal" in features and rng.random() < .2:
            features.append("fast_commit")
    elif rng.random() < .3:
        features += ["^resize_inode"]
    if rng.random() < .4:
        options += ["-g", rng.choice([it for it in (256, 1024, 2048, 4096, 8192) if it <= block * 8])]
    if rng.random() < .3:
        extended.append(f"stride={rng.choice([4, 16, 32])},stripe_width={rng.choice([16, 64, 128])}")
    if rng.random() < .2 and "resize_inode" in features:
        extended.append(f"resize={size * 1024 // block * rng.randrange(2, 60)}")
    if rng.random() < .3:
        extended.append("lazy_itable_init=1")
    if rng.random() < .3:
        options += ["-m", rng.choice([0, 1, 20])]
    if rng.random() < .3:
        options += ["-N", rng.randrange(400, 4000)]
    if rng.random() < .3:
        options += ["-e", rng.choice(["continue", "remount-ro"])]
    options += ["-J", "size=1"] if block == 1024 and kind != "ext2" and "^has_journal" not in features else []
    options += ["-E", ",".join(extended)] if extended else []
    options += ["-O", ",".join(features)] if features else []
    return [str(it) for it in options], size, after


# ---------------------------------------------------------------- contents

def ioctl(path, request, value):
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        data = bytearray(value)
        fcntl.ioctl(file, request, data)
        return bytes(data)
    finally:
        os.close(file)


def name_of(rng):
    length = rng.choices([rng.randrange(1, 20), rng.randrange(20, 100), rng.randrange(200, 256)], [6, 2, 2])[0]
    if rng.random() < .15:
        return bytes(rng.choice([it for it in range(1, 256) if it != 47]) for _ in range(length))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDE0123456789-_. \\\"") for _ in range(length)).encode()


def write(rng, path):
    """One file of a random form."""
    form = rng.choice(["empty", "tiny", "small", "middle", "large", "holes", "pieces", "unwritten", "behind", "punched", "huge"])
    with open(path, "wb") as file:
        if form == "tiny":
            file.write(rng.randbytes(rng.randrange(1, 200)))
        elif form == "small":
            file.write(rng.randbytes(rng.randrange(200, 9000)))
        elif form == "middle":
            file.write(rng.randbytes(rng.randrange(9000, 80000)))
        elif form == "large":
            file.write(rng.randbytes(rng.randrange(80000, 700000)))
        elif form == "holes":
            for _ in range(rng.randrange(1, 12)):
                file.seek(rng.randrange(1 << rng.randrange(12, 30)))
                file.write(rng.randbytes(rng.randrange(1, 5000)))
        elif form == "pieces":
            step = rng.choice([2048, 4096, 8192, 16384])
            for n in rng.sample(range(400), rng.randrange(20, 300)):
                file.seek(n * step)
                file.write(rng.randbytes(rng.randrange(1, 1500)))
                if rng.random() < .1:
                    file.flush()
                    os.fdatasync(file.fileno())
        elif form in ("unwritten", "behind", "punched"):
            file.write(rng.randbytes(rng.randrange(1, 100000)))
            file.flush()
            at, length = rng.randrange(0, 300000), rng.randrange(1, 300000)
            mode = {"unwritten": 0, "behind": 1, "punched": 3}[form]
            call("fallocate", *{0: [], 1: ["-n"], 3: ["-p"]}[mode], "-o", at, "-l", length, path)
            if rng.random() < .3:
                call("fallocate", "-z", "-n", "-o", at // 2, "-l", length, path)
            if rng.random() < .2:
                call("fallocate", "-c", "-o", 0, "-l", 4096, path)
        elif form == "huge":
            os.ftruncate(file.fileno(), rng.randrange(1 << 30, 1 << rng.randrange(31, 44)))
    if form == "huge" and rng.random() < .5:
        try:
            with open(path, "r+b") as file:
                file.seek(rng.randrange(1 << 32))
                file.write(b"far")
        except OSError:
            pass


def dress(rng, path, is_link):
    """Attributes, owner, mode, times of a name."""
    if rng.random() < .3:
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            name = rng.choice(["user.", "trusted.", "security."]) + "".join(rng.choices("abcxyz", k=rng.randrange(1, 12)))
            try:
                os.setxattr(path, name, rng.randbytes(rng.choice([0, 1, 4, 30, 100, 900, 3000, 20000])), follow_symlinks=False)
            except OSError:
                pass
    if not is_link and rng.random() < .15:
        entries = [(1, 6, 0xFFFFFFFF), (2, 7, rng.randrange(70000)), (4, 5, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF), (0x20, 4, 0xFFFFFFFF)]
        value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *it) for it in entries)
        for name in ("system.posix_acl_access", "system.posix_acl_default"):
            try:
                os.setxattr(path, name, value)
            except OSError:
                pass
    if rng.random() < .4:
        os.chown(path, rng.choice([0, 1, 1000, 65535, 65536, 3_000_000_000]), rng.choice([0, 5, 70000]), follow_symlinks=False)
    if not is_link and rng.random() < .4:
        os.chmod(path, rng.randrange(0o10000))
    if rng.random() < .6:
        seconds = [0, -1, rng.randrange(-2**31, 2**31), rng.randrange(0, 2**33), 1_700_000_000]
        times = [rng.choice(seconds) * 10**9 + rng.choice([0, 1, 999_999_999]) for _ in range(2)]
        try:
            os.utime(path, ns=tuple(times), follow_symlinks=False)
        except (OSError, OverflowError):
            pass


def mark(rng, path):
    """Flags, generation and project of a file or directory; after all else, since flags forbid changes."""
    try:
        if rng.random() < .3:
            flags = struct.unpack("<I", ioctl(path, GETFLAGS, bytes(8))[:4])[0]
            for flag in (0x1, 0x2, 0x8, 0x40, 0x80, 0x4000, IMMUTABLE, APPEND, 0x10000, 0x20000, 0x20000000):
                if rng.random() < .15:
                    try:
                        ioctl(path, SETFLAGS, struct.pack("<Q", flags | flag))
                        flags |= flag
                    except OSError:
                        pass
        if rng.random() < .2:
            ioctl(path, SETVERSION, struct.pack("<Q", rng.randrange(2**32)))
        if rng.random() < .2:
            now = bytearray(ioctl(path, GETXATTR, bytes(28)))
            now[12:16] = struct.pack("<I", rng.randrange(2**31))
            ioctl(path, SETXATTR, now)
    except OSError:
        pass


def fill(rng, root):
    """Fills an empty volume, removes parts of it, and fills it again."""
    dirs, files = [root], []
    left = rng.choice([60, 150, 400])
    for again in range(rng.choice([1, 2, 3])):
        for _ in range(left):
            parent = rng.choice(dirs)
            path = os.path.join(parent, name_of(rng))
            if len(path) > 1500:
                continue
            try:
                roll = rng.random()
                if roll < .12:
                    os.mkdir(path)
                    dirs.append(path)
                elif roll < .72:
                    write(rng, path)
                    files.append(path)
                elif roll < .8 and files:
                    os.link(rng.choice(files), path)
                    files.append(path)
                elif roll < .9:
                    long = b"t" * rng.choice([1, 20, 59, 60, 61, 100, 300, 1000])
                    os.symlink(long if rng.random() < .6 else rng.choice(files or [b"x"]), path)
                    files.append(path)
                else:
                    kind = rng.choice([stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK])
                    os.mknod(path, kind | 0o644, os.makedev(rng.choice([0, 1, 8, 255, 256, 4095]), rng.choice([0, 3, 255, 256, 1048575])))
                    files.append(path)
                dress(rng, path, os.path.islink(path))
            except OSError:
                pass
        if rng.random() < .5:
            # Many names in a directory: an index, with levels where names are long.
            parent = os.path.join(root, b"many-%d" % again)
            try:
                os.mkdir(parent)
                dirs.append(parent)
                first, long = None, rng.random() < .4
                for n in range(rng.choice([60, 300, 1500])):
                    path = os.path.join(parent, (b"%0200d" if long else b"name-%d") % n)
                    if first and n % 500:
                        os.link(first, path)
                    else:
                        open(path, "wb").close()
                        first = path
                    if n % 7 != 3:
                        files.append(path)
                for n in range(3, 1500, 7):
                    try:
                        os.unlink(os.path.join(parent, (b"%0200d" if long else b"name-%d") % n))
                    except FileNotFoundError:
                        break
            except OSError:
                pass
        if again == 0:
            for path in rng.sample(files, len(files) // 3):
                try:
                    if rng.random() < .7:
                        os.unlink(path)
                    else:
                        os.rename(path, os.path.join(rng.choice(dirs), name_of(rng)))
                except OSError:
                    pass
            files = [it for it in files if os.path.lexists(it)]
        os.sync()
    # Many small pieces, between which nothing is free.
    if rng.random() < .3:
        try:
            with open(os.path.join(root, b"one"), "wb") as one, open(os.path.join(root, b"other"), "wb") as other:
                for _ in range(rng.randrange(10, 400)):
                    for file in (one, other):
                        file.write(rng.randbytes(4096))
                        file.flush()
                        os.fdatasync(file.fileno())
        except OSError:
            pass
    for top, below, names in os.walk(root):
        for name in names + below:
            path = os.path.join(top, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                mark(rng, path)


def leave_open(rng, root):
    """Files that are removed and still open, and one that is being truncated; the descriptors."""
    held = []
    for n in range(rng.randrange(1, 6)):
        path = os.path.join(root, b"orphan-%d" % n)
        try:
            file = open(path, "wb")
            file.write(rng.randbytes(rng.choice([0, 10, 50000])))
            file.flush()
            os.fsync(file.fileno())
            os.unlink(path)
            held.append(file)
        except OSError:
            pass
    return held


def add_features(rng, image, after):
    """Features that the running kernel may lack."""
    if "quota" in after or "project" in after:
        if "project" in after:
            must("tune2fs", "-O", "project", image)
        must("tune2fs", "-O", "quota", image)
        must("tune2fs", "-Q", "usrquota,grpquota" + (",prjquota" if "project" in after else ""), image)
    if "verity" in after:
        must("tune2fs", "-O", "verity", image)
    if "casefold" in after:
        must("tune2fs", "-O", "casefold", image)
    # The counts of new quota files are right after the second run.
    call("e2fsck", "-fy" + ("D" if rng.random() < .2 else ""), image)
    code, out, err = call("e2fsck", "-fy", image)
    if code > 1:
        raise Wrong(f"harness: e2fsck {out}{err}")


# ---------------------------------------------------------------- an independent reader

class Reader:
    def __init__(self, image):
        self.bytes = Path(image).read_bytes()
        out = must("dumpe2fs", image)
        self.sb = self.bytes[1024:2048]
        self.block = 1024 << self.word(24)
        self.inode_size = struct.unpack_from("<H", self.sb, 88)[0] or 128
        self.per_group = self.word(40)
        self.tables = [int(it) for it in re.findall(r"Inode table at (\d+)", out)]
        self.has_filetype = bool(self.word(96) & 2)
        self.maps = {}

    def word(self, at):
        return struct.unpack_from("<I", self.sb, at)[0]

    def raw(self, ino):
        group, index = divmod(ino - 1, self.per_group)
        at = self.tables[group] * self.block + index * self.inode_size
        return self.bytes[at:at + self.inode_size]

    def at(self, block):
        return self.bytes[block * self.block:(block + 1) * self.block]

    def runs(self, raw):
        """Ranges of a file: first block, place, blocks, whether they are unwritten."""
        flags = struct.unpack_from("<I", raw, 32)[0]
        found = []
        if flags & EXTENTS:
            def node(data):
                magic, count, _, depth = struct.unpack_from("<HHHH", data)
                assert magic == 0xF30A
                for n in range(count):
                    if depth:
                        _, low, high = struct.unpack_from("<IIH", data, 12 + n * 12)
                        node(self.at(low | high << 32))
                    else:
                        first, length, high, low = struct.unpack_from("<IHHI", data, 12 + n * 12)
                        found.append((first, low | high << 32, length - 32768 if length > 32768 else length, length > 32768))
            node(raw[40:100])
        else:
            numbers = struct.unpack_from("<15I", raw, 40)
            per = self.block // 4

            def tree(block, level, first):
                if not block:
                    return
                if level == 0:
                    found.append((first, block, 1, False))
                    return
                for n, child in enumerate(struct.unpack(f"<{per}I", self.at(block))):
                    tree(child, level - 1, first + n * per ** (level - 1))
            first = 0
            for n, block in enumerate(numbers):
                level = max(0, n - 11)
                tree(block, level, first)
                first += per ** level
        return found

    def size(self, raw):
        return struct.unpack_from("<I", raw, 4)[0] | struct.unpack_from("<I", raw, 108)[0] << 32

    def has_map(self, raw):
        """Whether the inode leads to blocks."""
        mode, flags = struct.unpack_from("<H", raw, 0)[0], struct.unpack_from("<I", raw, 32)[0]
        if flags & INLINE:
            return False
        if stat.S_ISLNK(mode):
            return bool(flags & EXTENTS) or self.size(raw) >= 60
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)

    def data(self, raw):
        written = [(place, length) for _, place, length, unwritten in sorted(self.runs(raw)) if not unwritten]
        return b"".join(self.at(place + n) for place, length in written for n in range(length))

    def entries(self, data, first):
        """Attributes of a header's list; places of values count from the beginning of `data`."""
        found, at = {}, first
        while at + 16 <= len(data) and data[at:at + 4] != bytes(4):
            length, index, offset, inum, size, hashed = struct.unpack_from("<BBHIII", data, at)
            name = PREFIXES.get(index, f"{index}.") + data[at + 16:at + 16 + length].decode("latin1")
            if inum:
                value = self.data(self.raw(inum))[:size]
            else:
                base = 0 if first == 32 else first
                value = data[base + offset:base + offset + size]
            found[name] = value
            at += (16 + length + 3) & ~3
        return found

    def attributes(self, raw):
        found = {}
        if self.inode_size > 128:
            start = 128 + struct.unpack_from("<H", raw, 128)[0]
            if start > 128 and raw[start:start + 4] == b"\0\0\2\xea":
                found.update(self.entries(raw, start + 4))
        block = struct.unpack_from("<I", raw, 104)[0] | struct.unpack_from("<H", raw, 118)[0] << 32
        if block:
            more = self.entries(self.at(block), 32)
            assert not more.keys() & found.keys()
            found.update(more)
        return found

    def names(self, raw):
        flags = struct.unpack_from("<I", raw, 32)[0]
        pieces = []
        if flags & INLINE:
            pieces = [raw[44:100], self.attributes(raw).get("system.data", b"")]
        else:
            pieces = [self.at(place + n) for _, place, length, _ in self.runs(raw) for n in range(length)]
        for data in pieces:
            at = 0
            while at + 8 <= len(data):
                ino, length, name, kind = struct.unpack_from("<IHBB", data, at)
                if length < 8:
                    break
                if ino:
                    yield data[at + 8:at + 8 + name], ino, kind if self.has_filetype else 0
                at += length

    def describe(self, ino):
        """All that must stay of an inode."""
        raw = bytearray(self.raw(ino))
        mode, flags = struct.unpack_from("<H", raw, 0)[0], struct.unpack_from("<I", raw, 32)[0]
        attributes = self.attributes(raw)
        if stat.S_ISDIR(mode):
            attributes.pop("system.data", None)
        told = {"attributes": attributes}
        if self.has_map(raw):
            state, digest = [], hashlib.sha256()
            for first, place, length, unwritten in sorted(self.runs(raw)):
                if state and state[-1][0] + state[-1][1] == first and state[-1][2] == unwritten:
                    state[-1][1] += length
                else:
                    state.append([first, length, unwritten])
                if not unwritten:
                    digest.update(b"%d" % first if state[-1][0] == first else b"")
                    digest.update(self.bytes[place * self.block:(place + length) * self.block])
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                told["ranges"], told["digest"] = state, digest.hexdigest()
            elif stat.S_ISDIR(mode):
                told["ranges"] = state
            raw[40:100] = bytes(60)
        elif stat.S_ISDIR(mode):
            raw[40:100] = bytes(60)
        extra = struct.unpack_from("<H", raw, 128)[0] if self.inode_size > 128 else 0
        if self.inode_size > 128:
            del raw[128 + extra:]
        for start, end in ((28, 32), (104, 108), (116, 120), (124, 126), (130, 132)):
            if start < len(raw) and (start < 128 or extra):
                raw[start:end] = bytes(end - start)
        told["inode"] = raw.hex()
        return told

    def tree(self):
        found, numbers, todo = {}, {}, [(b"", 2)]
        while todo:
            path, ino = todo.pop()
            listed = []
            for name, child, kind in self.names(self.raw(ino)):
                if name in (b".", b".."):
                    continue
                listed.append((name, kind))
                full = path + b"/" + name
                numbers[full] = child
                if stat.S_ISDIR(struct.unpack_from("<H", self.raw(child), 0)[0]):
                    todo.append((full, child))
            found[path or b"/"] = {"listed": sorted(listed)}
        numbers[b"/"] = 2
        for path, ino in numbers.items():
            found.setdefault(path, {}).update(self.describe(ino))
        links = {}
        for path, ino in numbers.items():
            links.setdefault(ino, set()).add(path)
        for path, ino in numbers.items():
            found[path]["names"] = min(links[ino])
        self.numbers = numbers
        return found


# Of the superblock: free counts, times of mount, write and check, counts of mounts, last orphan, backup of the
# journal's map, lifetime writes, checksum.
SUPER = [(12, 20), (44, 54), (64, 68), (232, 236), (268, 336), (344, 348), (376, 384), (1020, 1024)]


def compare_trees(old, new, what, ignore=()):
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    if gone or come:
        raise Wrong(f"{what}: names gone {sorted(gone)[:5]}, come {sorted(come)[:5]}")
    wrong = []
    for path in sorted(old):
        for key in old[path].keys() | new[path].keys():
            if key not in ignore and old[path].get(key) != new[path].get(key):
                wrong.append(f"{path!r} {key}: {str(old[path].get(key))[:700]}\n   -> {str(new[path].get(key))[:700]}")
    if wrong:
        raise Wrong(f"{what}: {len(wrong)} differences\n" + "\n".join(wrong[:6]))


def compare_raw(old, new, what):
    one, other = Reader(old), Reader(new)
    compare_trees(one.tree(), other.tree(), what)
    first, second = bytearray(one.sb), bytearray(other.sb)
    for start, end in SUPER:
        first[start:end] = second[start:end] = bytes(end - start)
    if first != second:
        at = [n for n in range(1024) if first[n] != second[n]]
        raise Wrong(f"{what}: superblock differs at {at}: {[(n, first[n], second[n]) for n in at[:8]]}")


# ---------------------------------------------------------------- the kernel

class Mount:
    def __init__(self, image, at, options):
        self.at, self.image = at, image
        at.mkdir(exist_ok=True)
        code, _, err = call("mount", "-o", f"loop,{options}", image, at)
        if code:
            raise Skip(f"mount: {err.strip()}")

    def __enter__(self):
        return os.fsencode(self.at)

    def __exit__(self, *_):
        self.end(self.image, self.at)

    @staticmethod
    def end(image, at):
        for _ in range(50):
            code, _, err = call("umount", at)
            if code == 0:
                break
            time.sleep(.1)
        # Another mount namespace may hold the volume for a moment.
        for _ in range(300):
            if not call("losetup", "-j", image)[1]:
                return
            time.sleep(.1)
        raise Wrong(f"harness: umount {err}")


def fiemap(path):
    found, start = [], 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while True:
            data = bytearray(struct.pack("<QQIIII", start, 2**64 - 1 - start, 0, 0, 256, 0)) + bytearray(56 * 256)
            fcntl.ioctl(file, FIEMAP, data)
            count = struct.unpack_from("<I", data, 20)[0]
            for n in range(count):
                logical, _, length, _, _, flags = struct.unpack_from("<QQQQQI", data, 32 + n * 56)
                state = flags & (0x800 | 0x200)
                if found and found[-1][0] + found[-1][1] == logical and found[-1][2] == state:
                    found[-1][1] += length
                else:
                    found.append([logical, length, state])
                start = logical + length
                if flags & 1:
                    return found
            if not count:
                return found


def listing(root, build=False):
    """What the kernel shows of every name."""
    found, links = {}, {}
    todo = [b""]
    while todo:
        path = todo.pop()
        names = os.listdir(root + path)
        for name in names:
            full = path + b"/" + name
            seen = os.lstat(root + full)
            links.setdefault(seen.st_ino, []).append(full)
            if stat.S_ISDIR(seen.st_mode):
                todo.append(full)
            # A second lookup by another path, and one that must fail.
            os.lstat(root + path + b"/./" + name)
        if os.path.lexists(root + path + b"/no such name"):
            raise Wrong(f"kernel finds a missing name in {path!r}")
        links.setdefault(os.lstat(root + path).st_ino, []).append(path or b"/")
    for names in links.values():
        names = sorted(set(names))
        for path in names:
            full = root + (b"" if path == b"/" else path)
            seen = os.lstat(full)
            told = {"stat": (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_nlink, seen.st_rdev), "names": tuple(names),
                    "times": (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_atime_ns)}
            if not stat.S_ISDIR(seen.st_mode) or not build:
                told["size"] = seen.st_size
            names_of = os.listxattr(full, follow_symlinks=False)
            told["attributes"] = {name: os.getxattr(full, name, follow_symlinks=False) for name in names_of}
            if stat.S_ISLNK(seen.st_mode):
                told["target"] = os.readlink(full)
            if stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode):
                flags = struct.unpack("<I", ioctl(full, GETFLAGS, bytes(8))[:4])[0]
                told["flags"] = flags & ~(EXTENTS | INDEX | INLINE | 0x40000 | 0x20000000) if build else flags
                if not build:
                    told["project"] = ioctl(full, GETXATTR, bytes(28)).hex()[:8] + ioctl(full, GETXATTR, bytes(28)).hex()[24:]
                    told["generation"] = ioctl(full, GETVERSION, bytes(8))[:4].hex()
            if stat.S_ISREG(seen.st_mode):
                ranges = fiemap(full)
                if not build:
                    told["fiemap"] = ranges
                digest = hashlib.sha256()
                with open(full, "rb") as file:
                    for start, length, state in ranges:
                        if start >= seen.st_size or state & 0x800 and not state & 0x200:
                            continue
                        file.seek(start)
                        data = file.read(min(length, seen.st_size - start))
                        # Independent of where holes lie.
                        for n in range(0, len(data), 1024):
                            piece = data[n:n + 1024]
                            if piece.count(0) != len(piece):
                                digest.update(struct.pack("<QI", start + n, zlib.crc32(piece)))
                                digest.update(piece.rstrip(b"\0") if build else piece)
                told["digest"] = digest.hexdigest()
            found[path] = told
    return found


def settle(image, to, scratch):
    """Makes a copy of an image after recovery by the kernel, or by e2fsck where it does not mount for writing."""
    must("cp", "--sparse=always", image, to)
    code, _, _ = call("mount", "-o", "loop,rw,noatime", to, scratch / "mnt")
    if code == 0:
        Mount.end(to, scratch / "mnt")
        if call("e2fsck", "-fn", to)[0] == 0:
            return True
    code, out, err = call("e2fsck", "-fp", to)
    if code > 1:
        raise Wrong(f"harness: e2fsck -fp {out}{err}")
    code, _, _ = call("mount", "-o", "loop,ro", to, scratch / "mnt")
    if code == 0:
        Mount.end(to, scratch / "mnt")
    return code == 0


def go_on(rng, image, to, scratch):
    """The kernel goes on with an image."""
    must("cp", "--sparse=always", image, to)
    with Mount(to, scratch / "mnt", "rw") as root:
        for n in range(40):
            try:
                os.mkdir(root + b"/new-dir-%d" % n)
                with open(root + b"/new-dir-%d/file" % n, "wb") as file:
                    file.write(rng.randbytes(rng.randrange(20000)))
            except OSError:
                break
        victims = []
        for top, below, names in os.walk(root):
            victims += [os.path.join(top, it) for it in names]
            # An index whose leaves split.
            for n in range(30):
                try:
                    os.link(root + b"/new-dir-0/file", os.path.join(top, b"added-%d" % n))
                except OSError:
                    break
        for path in rng.sample(victims, len(victims) // 2):
            try:
                os.unlink(path)
            except OSError:
                pass
    code, out, err = call("e2fsck", "-fn", to)
    if code:
        raise Wrong(f"e2fsck after the kernel went on: {code}\n{out[-2000:]}{err[-500:]}")


# ---------------------------------------------------------------- traces and commands

def trace(rng, paths, to):
    """A trace of random accesses: times, processes, ranges, names that are missing."""
    lines, at = [json.dumps({"seekless_trace": 1, "recorder": "seed"})], 0
    chosen = rng.sample(paths, min(len(paths), rng.choice([1, 10, 50, 400])))
    for path in chosen:
        for _ in range(rng.choice([1, 1, 2, 4])):
            at += rng.randrange(200000)
            ops = ["read", "read", "open", "stat", "lookup", "readdir", "readlink", "exec", "mmap", "fault"]
            event = {"time": at, "op": rng.choice(ops)}
            if rng.random() < .5:
                event["pid"] = rng.randrange(1, 5)
            if rng.random() < .05:
                path = path + b"/missing"
                event["missing"] = True
            try:
                event["path"] = path.decode()
            except UnicodeDecodeError:
                event["path_b64"] = base64.b64encode(path).decode()
            if event["op"] in ("read", "fault", "mmap") and rng.random() < .5:
                event["offset"] = rng.choice([0, 1, 4096, 100000, 1 << 32, 1 << 50])
                event["length"] = rng.choice([0, 1, 4096, 100000, 1 << 40])
                if rng.random() < .3:
                    event["fetched"] = True
            lines.append(json.dumps(event))
    to.write_text("\n".join(lines) + "\n")


def seekless(*arguments, env=None, codes=(0,)):
    code, out, err = call(SEEKLESS, *arguments, env=env)
    command = "seekless " + " ".join(map(str, arguments))
    if "panicked" in err or code < 0 or code in (101, 124, 134, 137):
        raise Wrong(f"{command}: {code}\n{err[-3000:]}")
    if code == 4 or (code == 2 and "needs inodes of" in err):
        raise Skip(f"refused: {err.strip().splitlines()[-1][-160:]}")
    if code == 5 and 5 not in codes:
        raise Skip(f"no room: {err.strip()[-160:]}")
    if code not in codes:
        raise Wrong(f"{command}: {code}\n{out[-1500:]}{err[-3000:]}")
    return out, err


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sound(image, what):
    code, out, err = call("e2fsck", "-fn", image)
    # Times of superblocks are those of the source, which may lie in the future.
    out = re.sub(r"Superblock last \w+ time .*\n.*is in the future.\nFix\? no\n", "", out)
    # So are trees of extents that the kernel made.
    out = re.sub(r"Inode \d+ extent tree \(at level \d\) could be \w+.  Optimize\? no\n", "", out)
    if code or re.search(r"\? no\b", out):
        raise Wrong(f"{what}: e2fsck -fn {code}\n{out[-2500:]}{err[-500:]}")


class Seed:
    def __init__(self, number, scratch, verbose):
        self.rng, self.scratch, self.number, self.passed = random.Random(f"shapes {number}"), scratch, number, []
        self.verbose, self.told = verbose, []

    def make(self):
        rng, scratch = self.rng, self.scratch
        options, size, after = shape(rng)
        self.image = image = scratch / "old.img"
        image.unlink(missing_ok=True)
        self.shape = f"mke2fs {' '.join(options)} {size}K + {','.join(after)}"
        if self.verbose:
            print(self.number, self.shape, flush=True)
        code, out, err = call("mke2fs", "-q", "-F", *options, image, f"{size}K")
        if code:
            raise Skip(f"mke2fs: {(out + err).strip().splitlines()[-1]}")
        self.dirty = rng.random() < .33 and not after and "has_journal" in must("dumpe2fs", "-h", image)
        # The kernel's replay sets other times, and leaves attributes of a removed file that had the inode.
        self.commits_fast = self.dirty and "fast_commit" in self.shape
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
        for image, key in ((self.image, "before"), (new, "after")):
            scored = json.loads(seekless("score", image, "--trace", self.trace, *chunk, "--json")[0])
            text, promise = json.dumps(scored), told[key]
            for field in ("requests", "seeks", "bytes"):
                if field in promise and f'"{field}": {promise[field]}' not in text:
                    raise Wrong(f"score of {key} has no {field} {promise[field]}: {text[:600]}")
        self.passed.append("optimize: score")
        first = digest(new)
        seekless(*command, "--force", env={"RAYON_NUM_THREADS": "1"})
        if digest(new) != first:
            raise Wrong("optimize: other bytes the second time")
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
        first = digest(new)
        seekless(*command, "--force", env={"RAYON_NUM_THREADS": "1"})
        if digest(new) != first:
            raise Wrong(f"build {more}: other bytes the second time")
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    passed, left, failed, start = Counter(), Counter(), [], time.monotonic()
    base = os.environ.get("TMPDIR", "/dev/shm")
    for number in range(args.first, args.first + args.count):
        if time.monotonic() - start > args.seconds:
            break
        scratch = Path(tempfile.mkdtemp(prefix=f"shapes-{number}-", dir=base))
        (scratch / "mnt").mkdir()
        seed = Seed(number, scratch, args.verbose)
        try:
            seed.make()
            passed["made"] += 1
            passed["made, journal to replay"] += seed.dirty
            for step in (seed.optimize, seed.in_place, seed.build, seed.partition):
                if seed.commits_fast and step in (seed.build, seed.partition):
                    continue
                try:
                    step()
                except Skip as error:
                    left[f"{step.__name__}: {re.sub(r'/dev/shm/[^ ]*|/work/[^ ]*', '', str(error))}"] += 1
                except (Wrong, AssertionError, OSError, struct.error) as error:
                    failed.append(number)
                    print(f"seed {number} {step.__name__}: {type(error).__name__} {error}\n   {seed.shape} dirty={seed.dirty}", flush=True)
                    if args.keep:
                        at = args.keep / f"{number}-{step.__name__}"
                        at.mkdir(parents=True, exist_ok=True)
                        for name in ("old.img", "a.trace", "settled.img"):
                            call("cp", "--sparse=always", scratch / name, at / name)
        except (Skip, Wrong) as error:
            # Volumes that the kernel or e2fsck leaves unsound, too.
            left[re.sub(r"/\S*shapes-\S*", "", str(error))[:200]] += 1
        finally:
            call("umount", scratch / "mnt")
            passed.update(seed.passed)
            for line in seed.told:
                print(f"seed {number} note: {line}", flush=True)
            shutil.rmtree(scratch, ignore_errors=True)
    for name, count in sorted(passed.items()):
        print(f"{count:6} {name}")
    for name, count in left.most_common():
        print(f"{count:6} left out: {name}")
    print(f"{len(set(failed))} seeds with a difference: {sorted(set(failed))}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
