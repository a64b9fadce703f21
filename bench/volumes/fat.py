"""Random FAT volumes by mkfs.fat and mtools, and a reader of them."""

import hashlib
import os
import struct

from .run import Skip, Wrong, call, must

READ_ONLY, HIDDEN, SYSTEM, LABEL, DIRECTORY, LONG = 1, 2, 4, 8, 16, 15
LOWER_BASE, LOWER_EXTENSION = 8, 16
# The mark of a bad cluster, by width; higher ones end a chain.
BAD = {12: 0xFF7, 16: 0xFFF7, 32: 0xFFFFFF7}
MTOOLS = {"MTOOLS_SKIP_CHECK": "1", "MTOOLS_NO_VFAT": "0"}


class FatReader:
    """Names, entries, clusters and contents of a volume, by Microsoft's description of 2000."""

    def __init__(self, path):
        self.image = path.read_bytes()
        self.sector, self.per, self.reserved, self.fats, self.root_entries, small = struct.unpack_from("<HBHBHH", self.image, 11)
        self.fat_len = struct.unpack_from("<H", self.image, 22)[0]
        self.wide = self.fat_len == 0
        sectors = small or struct.unpack_from("<I", self.image, 32)[0]
        if self.wide:
            self.fat_len, self.flags, _, self.root = struct.unpack_from("<IHHI", self.image, 36)
        self.root_at = (self.reserved + self.fats * self.fat_len) * self.sector
        self.data = self.root_at + -(-self.root_entries * 32 // self.sector) * self.sector
        self.cluster_len = self.per * self.sector
        self.clusters = (sectors - self.data // self.sector) // self.per
        self.bits = 32 if self.wide else 12 if self.clusters < 4085 else 16
        active = self.flags & 15 if self.wide and self.flags & 128 else 0
        self.fat = self.fat_at(active)
        self.mirrors = [self.fat_at(n) for n in range(self.fats)] if not (self.wide and self.flags & 128) else []

    def fat_at(self, number):
        start = (self.reserved + number * self.fat_len) * self.sector
        raw = self.image[start:start + self.fat_len * self.sector]
        if self.bits == 12:
            triples = [raw[n] | raw[n + 1] << 8 | raw[n + 2] << 16 for n in range(0, len(raw) - 2, 3)]
            found = [half for three in triples for half in (three & 0xFFF, three >> 12)]
        elif self.bits == 16:
            found = struct.unpack(f"<{len(raw) // 2}H", raw)
        else:
            found = [entry & 0xFFFFFFF for entry in struct.unpack(f"<{len(raw) // 4}I", raw)]
        return list(found[:self.clusters + 2])

    def chain(self, first):
        found = []
        while 2 <= first < BAD[self.bits]:
            found.append(first)
            if len(found) > self.clusters or first >= len(self.fat):
                raise Wrong(f"a chain of {len(found)} clusters leads to {first}")
            first = self.fat[first]
        return found

    def place(self, cluster):
        return self.data + (cluster - 2) * self.cluster_len

    def contents(self, chain):
        return b"".join(self.image[self.place(one):self.place(one) + self.cluster_len] for one in chain)

    def slots(self, first):
        """Offsets in the image of the entries of a directory; the root of FAT12 and FAT16 for 0."""
        if first == 0 and not self.wide:
            return list(range(self.root_at, self.root_at + self.root_entries * 32, 32))
        chain = self.chain(first or self.root)
        return [at for one in chain for at in range(self.place(one), self.place(one) + self.cluster_len, 32)]

    def entries(self, first):
        """Long name or None, and the offset of the entry, in the order of the directory."""
        pieces, sum_of = [], None
        for at in self.slots(first):
            raw = self.image[at:at + 32]
            if raw[0] == 0:
                return
            if raw[0] == 0xE5:
                pieces = []
            elif raw[11] & 0x3F == LONG:
                if raw[0] & 0x40:
                    pieces, sum_of = [], raw[13]
                pieces.insert(0, raw[1:11] + raw[14:26] + raw[28:32])
                if raw[13] != sum_of:
                    pieces = []
            else:
                short = 0
                for byte in raw[:11]:
                    short = ((short << 7 | short >> 1) + byte) & 0xFF
                name = b"".join(pieces).decode("utf-16-le", "surrogatepass").split("\0")[0] if pieces and short == sum_of else None
                yield name, at
                pieces = []

    @staticmethod
    def shown(long, raw):
        if long is not None:
            return long
        base, extension = raw[:8].rstrip(b" "), raw[8:11].rstrip(b" ")
        if base[:1] == b"\x05":
            base = b"\xe5" + base[1:]
        base = base.lower() if raw[12] & LOWER_BASE else base
        extension = extension.lower() if raw[12] & LOWER_EXTENSION else extension
        return (base + (b"." + extension if extension else b"")).decode("cp850")

    def first(self, raw):
        low, high = struct.unpack_from("<H", raw, 26)[0], struct.unpack_from("<H", raw, 20)[0]
        return low | (high << 16 if self.wide else 0)

    def tree(self):
        """By path: the entry without its first cluster, the long name, and contents or clusters."""
        found, todo = {}, [("", 0)]
        while todo:
            path, first = todo.pop()
            for long, at in self.entries(first):
                raw = bytearray(self.image[at:at + 32])
                start, size = self.first(raw), struct.unpack_from("<I", raw, 28)[0]
                raw[20:22] = raw[26:28] = b"\0\0"
                name = self.shown(long, raw)
                if raw[11] & LABEL:
                    found[path + "/", "label"] = bytes(raw)
                    continue
                if name in (".", ".."):
                    found[f"{path}/{name}", name] = bytes(raw[:22])
                    continue
                if raw[11] & DIRECTORY:
                    todo.append((f"{path}/{name}", start))
                    body = len(self.chain(start))
                else:
                    body = hashlib.sha256(self.contents(self.chain(start))[:size]).hexdigest()
                if (f"{path}/{name}", "file") in found:
                    raise Wrong(f"{path}/{name}: twice in its directory")
                found[f"{path}/{name}", "file"] = bytes(raw), long, body
        return found

    def bad(self):
        return {number for number, entry in enumerate(self.fat) if number > 1 and entry == BAD[self.bits]}

    def free(self):
        return [number for number, entry in enumerate(self.fat) if number > 1 and entry == 0]


def make(rng, image):
    """Makes a volume by mkfs.fat; its options."""
    bits = rng.choice([12, 12, 16, 16, 32])
    sector = rng.choice([512, 512, 512, 1024, 2048, 4096])
    per = rng.choice([1, 1, 2, 4, 8, 16])
    clusters = {12: rng.randrange(200, 4000), 16: rng.randrange(4200, 9000), 32: rng.randrange(65600, 67000)}[bits]
    size = min((clusters + 200) * per * sector, 120 << 20) // 1024
    options = ["-F", bits, "-S", sector, "-s", per, "-f", rng.choice([1, 2, 2])]
    if rng.random() < .5:
        options += ["-n", rng.choice(["A", "EFI SYSTEM", "x-1"])]
    if bits != 32 and rng.random() < .5:
        options += ["-r", rng.choice([112, 224, 512, 1024])]
    if rng.random() < .3:
        options += ["-R", rng.randrange(3 if bits == 32 else 1, 60)]
    if bits == 32 and rng.random() < .3:
        options += ["-b", 6] if "-R" not in options else []
    if rng.random() < .3:
        options.append("-a")
    if rng.random() < .2:
        options += ["-M", "0xf0"]
    image.unlink(missing_ok=True)
    code, out, err = call("mkfs.fat", *options, "-C", image, size)
    if code:
        raise Skip(f"mkfs.fat: {(out + err).strip().splitlines()[-1][-120:]}")
    return f"mkfs.fat {' '.join(map(str, options))} -C {size}"


def name_of(rng):
    kind = rng.randrange(6)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    word = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 9)))
    if kind == 0:
        return word.upper()
    if kind == 1:
        return word + "." + rng.choice(["txt", "EXE", "c", "longer"])
    if kind == 2:
        return word + rng.choice(["Ω", "文字", "-1", " +,;=[]"]) + word + ".bin"
    if kind == 3:
        return word * rng.randrange(2, 20)
    if kind == 4:
        return word + " " + rng.choice(["a", "txt"])
    return word


def fill(rng, image, scratch):
    """Fills and ages a volume by mtools. What does not fit is left out."""
    env = {**MTOOLS, "LC_ALL": "C.UTF-8"}
    names, directories, local = [], [""], scratch / "local"

    def tool(name, *arguments):
        return call(name, "-i", image, *arguments, env=env)[0] == 0

    for _ in range(rng.choice([20, 60, 120])):
        kind, path = rng.random(), f"{rng.choice(directories)}/{name_of(rng)}"
        if kind < .15 and len(directories) < 20:
            if tool("mmd", "-D", "s", f"::{path}"):
                directories.append(path)
        elif kind < .75 or not names:
            local.write_bytes(b"" if rng.random() < .1 else rng.randbytes(rng.choice([1, 511, 3000, 20_000, 90_000])))
            os.utime(local, (0, rng.randrange(315_600_000, 4_000_000_000)))
            if tool("mcopy", "-D", "s", *(["-m"] if rng.random() < .8 else []), local, f"::{path}"):
                names.append(path)
        elif kind < .9:
            tool("mdel", f"::{names.pop(rng.randrange(len(names)))}")
        else:
            flags = [rng.choice("+-") + flag for flag in "rhs" if rng.random() < .5] or ["+h"]
            tool("mattrib", *flags, f"::{rng.choice(names)}")


def edit(rng, image):
    """Changes what tools do not write: times, cases, marks, unused bytes; named."""
    reader, done = FatReader(image), []
    raw = bytearray(reader.image)

    def entry_of(number, value):
        for n in range(reader.fats):
            start = (reader.reserved + n * reader.fat_len) * reader.sector
            if reader.bits == 12:
                at = start + number * 3 // 2
                pair = raw[at] | raw[at + 1] << 8
                pair = pair & 0xF | value << 4 if number % 2 else pair & 0xF000 | value
                raw[at:at + 2] = struct.pack("<H", pair)
            elif reader.bits == 16:
                struct.pack_into("<H", raw, start + number * 2, value)
            else:
                struct.pack_into("<I", raw, start + number * 4, value)

    todo, places = [0], []
    while todo:
        for long, at in reader.entries(todo.pop()):
            one = reader.image[at:at + 32]
            if one[:1] != b"." and not one[11] & LABEL:
                places.append((long, at))
                if one[11] & DIRECTORY:
                    todo.append(reader.first(one))
    for long, at in places:
        if rng.random() < .3:
            raw[at + 13] = rng.randrange(200)
            struct.pack_into("<HHH", raw, at + 14, rng.choice([0, 0x8C21, 0x5800]), rng.choice([0x21, 0x5A9F]), rng.choice([0, 0x21, 0x5A9F]))
            done.append("times")
        if long is None and rng.random() < .3:
            raw[at + 12] = rng.choice([0, 8, 16, 24])
            done.append("cases")
    free = reader.free()
    if free and rng.random() < .4:
        bad = rng.sample(free, min(len(free), rng.randrange(1, 5)))
        for number in bad:
            entry_of(number, BAD[reader.bits])
        if reader.wide:
            # The number of free clusters, of which fsck.fat takes note.
            at = struct.unpack_from("<H", raw, 48)[0] * reader.sector + 488
            struct.pack_into("<I", raw, at, struct.unpack_from("<I", raw, at)[0] - len(bad))
        done.append("bad clusters")
    if rng.random() < .3:
        ends = [n for n, entry in enumerate(reader.fat) if n > 1 and entry > BAD[reader.bits]]
        for number in ends:
            entry_of(number, BAD[reader.bits] + 1 + rng.randrange(8))
        done.append("ends of chains")
    if reader.bits == 32 and rng.random() < .3:
        for number, entry in enumerate(reader.fat):
            if number > 1 and entry and rng.random() < .2:
                entry_of(number, entry | rng.randrange(16) << 28)
        done.append("reserved bits")
    if rng.random() < .5:
        code = 90 if reader.wide else 62
        raw[code:510] = rng.randbytes(510 - code)
        backup = struct.unpack_from("<H", raw, 50)[0] if reader.wide else 0
        raw[backup * reader.sector:backup * reader.sector + 512] = raw[:512]
        done.append("boot program")
    if rng.random() < .3:
        # Behind the end of a directory, and in free clusters.
        for number in free[:20]:
            at = reader.place(number)
            raw[at:at + 64] = rng.randbytes(64)
        done.append("free clusters")
    image.write_bytes(raw)
    return sorted(set(done))


def sound(image, what):
    """fsck.fat finds nothing."""
    code, out, err = call("fsck.fat", "-n", image)
    if code:
        raise Wrong(f"{what}: fsck.fat -n {code}\n{out[-1500:]}{err[-500:]}")


def listed(image, scratch):
    """Contents that mtools copies out."""
    to = scratch / "out"
    call("rm", "-rf", to)
    to.mkdir()
    must("mcopy", "-i", image, "-s", "-Q", "-n", "::/", to, env={**MTOOLS, "LC_ALL": "C.UTF-8"}, limit=120)
    return {str(path.relative_to(to)): hashlib.sha256(path.read_bytes()).hexdigest() for path in to.rglob("*") if path.is_file()}
