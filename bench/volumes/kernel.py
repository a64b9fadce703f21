"""Mounted images: names, metadata, attributes, extents and contents as the kernel has them."""

import fcntl
import hashlib
import os
import stat
import struct
import time
import zlib

from .attributes import EXTENTS, FIEMAP, GETFLAGS, GETVERSION, GETXATTR, INDEX, INLINE, ioctl
from .run import Skip, Wrong, call, must


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
