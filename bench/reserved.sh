#!/bin/bash
# What reserved inodes cost a check: blocks of the inode tables below the unused inodes of
# each group, as the descriptors have them, and those that e2fsck reads of the image on
# a disk that logs its requests, with the seconds of all of these on the drive `sata-7200`.
# Needs root (FUSE) and e2fsprogs; takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
seekless=${SEEKLESS:-target/release/seekless}
[ -x "$seekless" ] || cargo build --release -q --workspace --exclude seekless-python
seekless=$(realpath "$seekless")
work=$(mktemp -d)
trap 'umount -q "$work/mnt" "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/mnt" "$work/disk"
mounted() { for _ in $(seq 100); do mountpoint -q "$1" && return; sleep 0.1; done; return 1; }

echo "| inodes reserved | blocks below the unused | read by e2fsck | seconds of the drive |"
echo "|---|---|---|---|"
for window in 0 16 64; do
    image=$work/image
    rm -f "$image"
    truncate -s 2G "$image"
    mke2fs -q -F -t ext4 -b 4096 -I 256 -i 8192 -O ^flex_bg,^has_journal "$image"
    inodes=parent
    [ "$window" -eq 0 ] || inodes=dir-reserve=$window
    "$seekless" mount -f "$image" "$work/mnt" -q -o "rw,async,dirs=ext2-orlov,inodes=$inodes" &
    mounted "$work/mnt"
    # 3,000 directories, and five files in each, made in turn.
    (cd "$work/mnt" && seq -f 'd%.0f' 3000 | xargs mkdir
     for file in 1 2 3 4 5; do seq -f "d%.0f/f$file" 3000 | xargs touch; done)
    umount "$work/mnt"
    wait
    "$seekless" disk "$image" "$work/disk" --model sata-7200 --io-log "$work/log" -q &
    mounted "$work/disk"
    echo 1 > /proc/sys/vm/drop_caches
    e2fsck -fn "$work/disk/disk" > "$work/said" 2>&1 || { cat "$work/said"; exit 1; }
    cp "$work/disk/stats.json" "$work/stats"
    umount "$work/disk"
    wait
    dumpe2fs "$image" > "$work/dump" 2>/dev/null
    python3 - "$work/dump" "$work/log" "$window" "$work/stats" <<'PYTHON'
import json, re, sys
dump, log, window = open(sys.argv[1]).read(), sys.argv[2], sys.argv[3]
per_group = int(re.search(r"Inodes per group:\s+(\d+)", dump).group(1))
below, tables = 0, set()
for group in re.split(r"\nGroup \d+:", dump)[1:]:
    unused = int(re.search(r"(\d+) unused inodes", group).group(1)) if "unused" in group else 0
    first, last = map(int, re.search(r"Inode table at (\d+)-(\d+)", group).groups())
    tables.update(range(first, last + 1))
    below += -(-(per_group - unused) * 256 // 4096)
read = set()
for line in open(log):
    event = json.loads(line)
    start, end = (event.get(key) for key in ("offset", "bytes"))
    if start is None or event.get("op") != "read":
        continue
    read.update(range(start // 4096, -(-(start + end) // 4096)))
seconds = json.load(open(sys.argv[4]))["busy_ns"] / 1e9
print(f"| {window} | {below:,} | {len(read & tables):,} | {seconds:.1f} |")
PYTHON
done
