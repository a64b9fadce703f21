#!/bin/bash
# Checks of ext4 volumes beside e2fsck -fn, and of FAT32 beside fsck.fat -n: processor time, time and
# memory, the medians of runs that alternate. The images are in the page cache. Files go to
# BENCH_DISK, 6 GB of it. CHECK_MILLIONS=10 adds a volume of 10,000,000 files; each million takes 4 GB.
#
#   bench/check.sh [RUNS]      (default: 5)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=${SEEKLESS:-${CARGO_TARGET_DIR:-$here/../target}/release/seekless}
work=$(mktemp -d "${BENCH_DISK:-/var/tmp}/seekless-check-XXXXXX")
trap 'rm -rf "$work"' EXIT

"$here/million.py" 200 | "$seekless" build -q - --format ext4 -o "$work/200,000 files"
"$here/million.py" | "$seekless" build -q - --format ext4 -o "$work/1,000,000 files"
"$here/million.py" 65607 0 | "$seekless" build -q - --format ext4 -o "$work/65,607 directories"
"$here/million.py" 200 | "$seekless" build -q - --format fat32 --drop all -o "$work/200,000 files, FAT32"
if [ "${CHECK_MILLIONS:-0}" -gt 0 ]; then
    TMPDIR=$work "$here/million.py" "${CHECK_MILLIONS}000" |
        TMPDIR=$work "$seekless" build -q - --format ext4 --block-size 1K \
            -o "$work/$CHECK_MILLIONS,000,000 files, blocks of 1K"
fi
truncate -s 100G "$work/100 GB, sparse"
mke2fs -q -t ext4 -E nodiscard -d "$here" "$work/100 GB, sparse"

exec python3 - "$seekless" "$work" "${1:-5}" <<'EOF'
import os, statistics, subprocess, sys, time

seekless, work, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
images = ["200,000 files", "1,000,000 files", "65,607 directories", "100 GB, sparse"]
images += sorted(name for name in os.listdir(work) if name.endswith("blocks of 1K"))
tables = [("e2fsck -fn", images), ("fsck.fat -n", ["200,000 files, FAT32"])]


def measure(command):
    # The peak of a child's memory is at least that of its parent, which is small for time.
    command = ["/usr/bin/time", "-f", "%M", "-o", f"{work}/peak", *command]
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    taken = time.monotonic() - began
    if status != 0:
        sys.exit(f"{command}: status {status}")
    with open(f"{work}/peak") as peak:
        return usage.ru_utime + usage.ru_stime, taken, int(peak.read()) / 1024


for peer, images in tables:
    head = [f"of {peer}", "ratio"]
    print("| " + " | ".join(["volume", "processor time", *head, "time", *head, "memory", head[0]]) + " |")
    print("|---" * 9 + "|")
    for image in images:
        path = f"{work}/{image}"
        commands = [[seekless, "check", "-q", path], [*peer.split(), path]]
        for command in commands:
            measure(command)
        taken = [[measure(command) for command in commands] for _ in range(runs)]
        ours, theirs = (
            [statistics.median(run[who][what] for run in taken) for what in range(3)] for who in range(2)
        )
        cells = [image]
        for what in range(2):
            cells += [f"{ours[what]:.2f} s", f"{theirs[what]:.2f} s", f"{ours[what] / theirs[what]:.2f}"]
        cells += [f"{ours[2]:.0f} MB", f"{theirs[2]:.0f} MB"]
        print("| " + " | ".join(cells) + " |", flush=True)
    print()
EOF
