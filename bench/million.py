#!/usr/bin/env python3
"""A tar of a million files of a few bytes in 1,000 directories, on standard output.

    bench/million.py [DIRECTORIES [FILES]]    (default: 1000 directories with 1000 files each)
"""
import io, sys, tarfile
directories, files = (int(number) for number in (sys.argv[1:] + ["1000", "1000"][len(sys.argv) - 1:]))
archive = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.USTAR_FORMAT)
for directory in range(directories):
    parent = tarfile.TarInfo(f"dir-{directory}")
    parent.type, parent.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(parent)
    for number in range(files):
        contents = b"%d" % number
        entry = tarfile.TarInfo(f"dir-{directory}/a-file-with-a-name-{number}")
        entry.size, entry.mtime = len(contents), 1700000000
        archive.addfile(entry, io.BytesIO(contents))
archive.close()
