"""A reader of small UFS volumes: where their metadata lies."""

import struct

# First bytes of superblocks, in the order of the search, and the magic numbers of UFS1 and UFS2.
PLACES, MAGIC = (65536, 8192), {0x11954: 1, 0x19540119: 2}
DIRECTORY, FILE, SYMLINK = 4, 8, 10
ROOT = 2
# Bytes of a superblock's fields, and of a group's head in front of its maps.
SUPERBLOCK, HEAD = 1376, 168


class UfsReader:
    """Structures and their places, by FreeBSD's `sys/ufs/ffs/fs.h`, `sys/ufs/ufs/dinode.h` and `sys/ufs/ufs/dir.h`."""

    def __init__(self, image):
        self.bytes = image
        found = [(at, order) for at in PLACES for order in "<>" if struct.unpack_from(order + "I", image, at + 1372)[0] in MAGIC]
        self.at, self.order = found[0]
        self.byteorder = "little" if self.order == "<" else "big"
        self.version = MAGIC[self.word(self.at + 1372)]
        field = {name: self.word(self.at + at) for name, at in
                 {"sblkno": 8, "cblkno": 12, "iblkno": 16, "old_cgoffset": 24, "old_cgmask": 28, "old_size": 36, "ncg": 44,
                  "bsize": 48, "fsize": 52, "frag": 56, "old_csaddr": 152, "cssize": 156, "ipg": 184, "fpg": 188}.items()}
        self.groups, self.block, self.fragment = field["ncg"], field["bsize"], field["fsize"]
        self.field = field
        self.inode_len = 128 if self.version == 1 else 256
        self.pointer = 4 if self.version == 1 else 8
        self.fragments = field["old_size"] if self.version == 1 else self.word(self.at + 1080, 8)
        self.summary = field["old_csaddr"] if self.version == 1 else self.word(self.at + 1096, 8)

    def word(self, at, size=4):
        return int.from_bytes(self.bytes[at:at + size], self.byteorder)

    def group(self, number):
        """The fragment with which a group's structures begin."""
        start = number * self.field["fpg"]
        if self.version == 1:
            start += self.field["old_cgoffset"] * (number & ~self.field["old_cgmask"] & 0xFFFFFFFF)
        return start

    def inode(self, number):
        group, slot = divmod(number, self.field["ipg"])
        return (self.group(group) + self.field["iblkno"]) * self.fragment + slot * self.inode_len

    def kind(self, at):
        return self.word(at, 2) >> 12

    def size(self, at):
        return self.word(at + (8 if self.version == 1 else 16), 8)

    def inodes(self):
        """Numbers and places of the inodes in use."""
        for number in range(ROOT, self.groups * self.field["ipg"]):
            at = self.inode(number)
            if self.word(at, 2):
                yield number, at

    def attributes(self, at):
        """The fragment with which the attributes of an inode begin, and their bytes."""
        if self.version == 1 or not self.word(at + 92):
            return None
        return self.word(at + 96, 8), self.word(at + 92)

    def map(self, at):
        """Fragments with which blocks of the map and blocks of contents begin, and how deep in the map."""
        is_fast = self.kind(at) == SYMLINK and self.size(at) < (60 if self.version == 1 else 120)
        if is_fast or self.kind(at) not in (DIRECTORY, FILE, SYMLINK):
            return
        first = at + (40 if self.version == 1 else 112)

        def follow(number, depth):
            if number:
                yield number, depth
                if depth:
                    for slot in range(0, self.block, self.pointer):
                        yield from follow(self.word(number * self.fragment + slot, self.pointer), depth - 1)

        for slot in range(15):
            yield from follow(self.word(first + slot * self.pointer, self.pointer), max(0, slot - 11))

    def entries(self, at):
        """Names of a directory: place, inode, name."""
        left = self.size(at)
        for number, depth in self.map(at):
            if depth:
                continue
            place, end = number * self.fragment, number * self.fragment + min(self.block, left)
            left -= end - place
            while place < end:
                inode, length, _, name_len = struct.unpack_from(self.order + "IHBB", self.bytes, place)
                if inode:
                    yield place, inode, bytes(self.bytes[place + 8:place + 8 + name_len])
                place += length

    def paths(self):
        """Names of all files as in a manifest, each by the number of its inode."""
        found, todo = {ROOT: ["."]}, [(ROOT, ".")]
        while todo:
            number, path = todo.pop()
            for _, inode, name in self.entries(self.inode(number)):
                if name in (b".", b".."):
                    continue
                below = f"{path}/{name.decode()}"
                found.setdefault(inode, []).append(below)
                if self.kind(self.inode(inode)) == DIRECTORY:
                    todo.append((inode, below))
        return found
