"""Makes a tree of small files and a list of some of them in random order.

usage: small_files.py DIR LIST

About 6,000 files of 14 KB on average in 3,600 directories; 1,500 of them are
listed. The same every time.
"""

import os
import random
import sys

DIRECTORIES, FILES, LISTED, MEAN_BYTES = 3600, 6157, 1500, 14000


def main(root, listing):
    chance = random.Random(1)
    os.makedirs(root)
    directories = [root]
    for number in range(DIRECTORIES):
        parent = chance.choice(directories[-400:])
        if parent.count("/") > root.count("/") + 12:
            parent = chance.choice(directories[:50])
        path = os.path.join(parent, f"d{number}")
        os.mkdir(path)
        directories.append(path)
    files = []
    for number in range(FILES):
        path = os.path.join(chance.choice(directories), f"file{number}")
        with open(path, "wb") as file:
            file.write(chance.randbytes(int(chance.expovariate(1 / MEAN_BYTES)) + 1))
        files.append("/" + os.path.relpath(path, root))
    chance.shuffle(files)
    with open(listing, "w") as out:
        out.writelines(path + "\n" for path in files[:LISTED])


if __name__ == "__main__":
    main(*sys.argv[1:])
