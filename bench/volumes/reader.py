"""Reads inodes, names, attributes and contents of an ext image, and compares two images."""

import hashlib
import re
import stat
import struct
from pathlib import Path

from .attributes import EXTENTS, INLINE
from .run import Wrong, must

PREFIXES = {1: "user.", 2: "system.posix_acl_access", 3: "system.posix_acl_default", 4: "trusted.", 6: "security.",
            7: "system.", 8: "system.richacl"}


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
