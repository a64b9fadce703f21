#!/bin/bash
# Processor time of unpacking and removing a tree of 70,000 files on a mounted
# UFS1 image, with soft updates and async in turn: that of the mount, and that
# of all (tar and rm as well). Needs root, FUSE and room in /dev/shm.
#
#   SEEKLESS  the program [target/release/seekless]
#   PAIRS     how many pairs [5]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
SEEKLESS=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
work=$(mktemp -d -p /dev/shm)
mkdir "$work/mnt"
finish() { umount -l "$work/mnt" 2>/dev/null || true; rm -rf "$work"; }
trap finish EXIT

# 70,000 files of 0 to 8 KiB in 7,000 directories of ten.
python3 - "$work/tree.tar" <<'PY'
import io, sys, tarfile
out = tarfile.open(sys.argv[1], "w")
def add(name, data=None):
    info = tarfile.TarInfo(name)
    if data is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        out.addfile(info)
    else:
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))
add("tree")
for top in range(100):
    add(f"tree/{top}")
    for sub in range(70):
        add(f"tree/{top}/{sub}")
        for n in range(10):
            add(f"tree/{top}/{sub}/file-{n}", b"x" * ((n * 811 + sub * 577 + top * 131) % 8192))
PY

# Ticks of the clock that a process has used.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

run() {
    rm -f "$work/image"
    "$SEEKLESS" -q mkfs --format ufs1 -b 8K -f 1K --size 768M "$work/image" >/dev/null
    "$SEEKLESS" mount -f "$work/image" "$work/mnt" -o "rw,$1" &
    local server=$!
    while ! mountpoint -q "$work/mnt"; do sleep 0.05; done
    local begin before after
    begin=$(ticks $server)
    before=$(awk '{ print $1 * 100 }' <(echo 0))
    TIMEFORMAT='%U %S'
    { time { tar -C "$work/mnt" -xf "$work/tree.tar"; rm -rf "$work/mnt/tree"; sync -f "$work/mnt"; }; } 2>"$work/time"
    after=$(ticks $server)
    umount "$work/mnt"
    wait $server
    "$SEEKLESS" check "$work/image" >/dev/null
    echo "$(((after - begin))) $(awk -v b="$before" '{ print ($1 + $2) * 100 - b }' "$work/time")"
}

for pair in $(seq "${PAIRS:-5}"); do
    if [ $((pair % 2)) = 1 ]; then
        soft=$(run softdep) plain=$(run async)
    else
        plain=$(run async) soft=$(run softdep)
    fi
    echo "$soft $plain"
done | tee "$work/runs" >&2
python3 - "$work/runs" "$(getconf CLK_TCK)" <<'PY'
import statistics as s, sys
rows = [list(map(float, line.split())) for line in open(sys.argv[1])]
hz = float(sys.argv[2])
med = lambda f: s.median(map(f, rows))
print(f"seconds of processor time, median of {len(rows)} pairs")
print("| | async | softdep | ratio |\n|---|---|---|---|")
print(f"| the mount | {med(lambda r: r[2])/hz:.2f} | {med(lambda r: r[0])/hz:.2f} | {med(lambda r: r[0]/r[2]):.2f} |")
print(f"| with tar and rm | {med(lambda r: r[2]/hz + r[3]/100):.2f} | {med(lambda r: r[0]/hz + r[1]/100):.2f} "
      f"| {med(lambda r: (r[0]/hz + r[1]/100)/(r[2]/hz + r[3]/100)):.2f} |")
PY
