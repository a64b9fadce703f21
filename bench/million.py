#!/usr/bin/env python3
"""A tar of a million files of a few bytes in 1,000 directories, on standard output."""
import io, sys, tarfile
archive = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.USTAR_FORMAT)
for directory in range(1000):
    parent = tarfile.TarInfo(f"dir-{directory}")
    parent.type, parent.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(parent)
    for number in range(1000):
        contents = b"%d" % number
        entry = tarfile.TarInfo(f"dir-{directory}/a-file-with-a-name-{number}")
        entry.size, entry.mtime = len(contents), 1700000000
        archive.addfile(entry, io.BytesIO(contents))
archive.close()
