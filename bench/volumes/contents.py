"""Random contents of a mounted volume."""

import os
import stat
import struct

from .attributes import APPEND, GETFLAGS, GETXATTR, IMMUTABLE, SETFLAGS, SETVERSION, SETXATTR, ioctl
from .run import Wrong, call, must


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
