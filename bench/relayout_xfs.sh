#!/bin/bash
# What moving the files of a mounted XFS gives a program: an image that is 80% full, filled
# by cp -a, is recorded for a program and rearranged for it. The program itself is run cold
# before and after, and its requests are counted at the block device. The table of
# docs/relayout.md. Needs root, xfsprogs, python3, gcc and 4 GB in TMPDIR.
#
#   SEEKLESS  the program [target/release/seekless]
#   PROGRAMS  which ones ["find compile imports"]
#   RUNS      cold runs of each [5]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
fs=xfs
. "$here/filled_image.sh"

# cold IMAGE NAME: runs the program, each time on a new mount; a line of figures each.
cold() {
    : >"$work/$2.counts"
    for _ in $(seq "${RUNS:-5}"); do
        mount -o loop,ro,noatime "$1" "$work/mnt"
        device=$(findmnt -n -o SOURCE "$work/mnt")
        # As disks have it.
        blockdev --setra 256 "$device"
        sync
        echo 3 >/proc/sys/vm/drop_caches
        python3 "$here/block_requests.py" "$device" "${command[@]//\{\}/$work/mnt}" >>"$work/$2.counts"
        umount "$work/mnt"
    done
}

for program in ${PROGRAMS:-find compile imports}; do
    prepare "$program"
    cp --sparse=always "$work/image" "$work/moved"
    mount -o loop "$work/moved" "$work/mnt"
    "$seekless" relayout "$work/mnt" --trace "$work/trace" --json >"$work/moved.json"
    umount "$work/mnt"
    cold "$work/image" before
    cold "$work/moved" after
    python3 - "$program" "$work" <<'PY'
import json, statistics, sys
program, work = sys.argv[1:]
cells = []
for figure in ("seeks", "requests"):
    for name in ("before", "after"):
        runs = [json.loads(line)[figure] for line in open(f"{work}/{name}.counts")]
        cells.append(f"{statistics.median(runs):,.0f} ({min(runs):,}-{max(runs):,})")
told = json.load(open(f"{work}/moved.json"))
for figure in ("data_seeks", "data_runs"):
    cells += [f"{told[figure][name]:,}" for name in ("before", "after")]
cells.append(f"{told['moved_in_bytes'] / 1e6:.1f}")
print(f"| {program} | " + " | ".join(cells) + " |", flush=True)
PY
done
