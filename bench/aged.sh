#!/usr/bin/env bash
# How long an aged image takes to be laid out anew; root, for a loop mount.
# A file system of blocks of 1 KiB is filled with small files, of which every
# second one is removed again: RUNS free runs (default 100,000). Then all files
# of a list in random order are laid out together. Prints the line of
# docs/figures.md.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$here/bench/out/aged}
runs=${RUNS:-100000}
seekless=${SEEKLESS:-${CARGO_TARGET_DIR:-$here/target}/release/seekless}
mkdir -p "$out/mnt"
cd "$out"

cleanup() {
    mountpoint -q "$out/mnt" && umount "$out/mnt"
    return 0
}
trap cleanup EXIT

rm -f aged.img
truncate -s 440M aged.img
mke2fs -q -F -t ext4 -b 1024 -N $((runs * 2 + 20000)) aged.img
mount -o loop,nodelalloc aged.img mnt
python3 - "$runs" <<'PYTHON'
import os, random, sys
runs, chance = int(sys.argv[1]), random.Random(1)
paths = []
for n in range(2 * runs):
    name = f"mnt/{n // 1000}"
    if n % 1000 == 0:
        os.mkdir(name)
    paths.append(f"{name}/{n}")
    with open(paths[-1], "wb") as file:
        file.write(b"x" * (1024 * chance.randint(1, 2)))
os.sync()
for path in paths[::2]:
    os.unlink(path)
# Files that are as scattered as the room is.
for n in range(20):
    with open(f"mnt/large{n}", "wb") as file:
        for _ in range(2000):
            file.write(b"y" * 1024)
kept = paths[1::2]
chance.shuffle(kept)
with open("list", "w") as out:
    out.writelines(path[3:] + "\n" for path in kept[:runs // 4])
    out.writelines(f"/large{n}\n" for n in range(20))
PYTHON
umount mnt
e2fsck -fn aged.img > /dev/null 2>&1
echo "$(e2freefrag aged.img 2> /dev/null | sed -n 's/^Num. free extent: *//p') free runs," \
    "$(dumpe2fs -h aged.img 2> /dev/null | sed -n 's/^Free blocks: *//p') free blocks"
"$seekless" trace import --paths list -o list.trace
start=$(date +%s.%N)
"$seekless" optimize aged.img --trace list.trace -o new.img --force
end=$(date +%s.%N)
e2fsck -fn new.img > /dev/null 2>&1
echo "laid out in $(echo "$end $start" | awk '{ printf "%.1f", $1 - $2 }') s"
