"""Flags of inodes, and the requests of ioctl for them (`include/uapi/linux/fs.h`, `fiemap.h`)."""

import fcntl
import os

EXTENTS, INLINE, INDEX, IMMUTABLE, APPEND = 0x80000, 0x10000000, 0x1000, 0x10, 0x20
GETFLAGS, SETFLAGS, GETVERSION, SETVERSION = 0x80086601, 0x40086602, 0x80087601, 0x40087602
GETXATTR, SETXATTR, FIEMAP = 0x801C581F, 0x401C5820, 0xC020660B


def ioctl(path, request, value):
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        data = bytearray(value)
        fcntl.ioctl(file, request, data)
        return bytes(data)
    finally:
        os.close(file)
