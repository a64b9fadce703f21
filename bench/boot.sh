#!/bin/bash
# What laying an image out does for a whole boot. A Debian system (systemd, nginx,
# PostgreSQL) is booted in QEMU from a modelled disk on the network, its blocks are
# recorded there, without an agent in the guest, and the image is optimized for
# them. Then five boots: as built by mke2fs, as copied by cp, and optimized, the first
# and the last also with a service that begins by fetching the chunks which the boot
# needs, four at a time. The tables of docs/recording.md.
#
# Needs root, mmdebstrap, qemu-system-x86_64, qemu-img, e2fsprogs, 12 GB in TMPDIR. Where the
# processor cannot virtualize, QEMU interprets: boots take half a minute then, and
# read what they read anyway.
#
#   SEEKLESS  the program [target/release/seekless]
#   TRACE     a trace of a boot of KEEP/image, instead of the one of the log
#   SCORED    a trace of another boot of it, for the promises: a layout keeps the order of
#             the boot that it was made for, which no other boot has [TRACE]
#   MODEL     the modelled disk [lazy-gp3]
#   BLOCK     bytes in a block of the file system [4096]
#   CHUNK     what it fetches at once [512K]
#   REALTIME  1: the disk takes the time that it models, and boots last accordingly
#   KEEP      a directory that keeps the system between runs, and the last logs
#   MIRROR    where packages come from [http://deb.debian.org/debian]
#   ACCEL     kvm or tcg [kvm where a first boot with it succeeds]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
. "$here/boot_machine.sh"

# row NAME: its figures, with the chunks that its reads lie in.
row() {
    local up
    up=$(grep -ao "boot-end at [0-9.]*" "$work/$1.console")
    python3 - "$work/$1.json" "$work/$1.log" "$chunk" "$1" "${up##* }" <<'PY'
import json, sys
stats, log, chunk, name, up = json.load(open(sys.argv[1])), *sys.argv[2:]
chunk, block = int(chunk[:-1]) << {"K": 10, "M": 20}[chunk[-1]], 4096
chunks, blocks = set(), set()
for line in open(log):
    request = json.loads(line)
    if request["op"] == "read":
        first, end = request["offset"], request["offset"] + request["bytes"]
        chunks.update(range(first // chunk, (end - 1) // chunk + 1))
        blocks.update(range(first // block, (end - 1) // block + 1))
floor = -(-len(blocks) * block // chunk)
print(f"{name:16} reads {stats['reads']:5}  seeks {stats['seeks']:5}  {stats['read_bytes'] / 1e6:5.1f} MB  "
      f"chunks {len(chunks):3} (floor {floor:3})  busy {stats['busy_ms'] / 1e3:5.2f} s  up at {up} s")
PY
}

system_image
ln -s "$image" "$work/built"
copied "$work/copied"
boot built
if [ -n "${TRACE:-}" ]; then
    cp "$TRACE" "$work/trace"
else
    "$seekless" trace import --blocks "$work/built.log" --image "$image" -o "$work/trace"
fi
cp "${SCORED:-$work/trace}" "$work/scored"
"$seekless" optimize "$image" --trace "$work/trace" -o "$work/optimized" --chunk "$chunk" -q
e2fsck -fn "$work/optimized" >&2
echo "promised:"
for name in copied optimized; do
    "$seekless" score "$work/built" "$work/$name" --trace "$work/scored" --chunk "$chunk" --device "$model" |
        grep -vE "^ *prefetch"
done
boot copied
boot optimized
# The chunks that the trace needs of an image, in the order of first use: touching one
# fetches it.
for name in built optimized; do
    "$seekless" score "$work/$name" --trace "$work/trace" --io-log "$work/$name.asked" -q >/dev/null
    python3 - "$work/$name.asked" "$chunk" >"$work/list" <<'PY'
import json, sys
chunk, seen = int(sys.argv[2][:-1]) << {"K": 10, "M": 20}[sys.argv[2][-1]], set()
for line in open(sys.argv[1]):
    request = json.loads(line)
    for number in range(request["offset"] // chunk, (request["offset"] + request["bytes"] - 1) // chunk + 1):
        if number not in seen:
            seen.add(number)
            print(number * chunk, 4096)
PY
    cp --sparse=always "$work/$name" "$work/$name,fetch"
    debugfs -w -R "write $work/list /fetch.list" "$work/$name,fetch" >/dev/null 2>&1
    debugfs -R "stat /fetch.list" "$work/$name,fetch" 2>/dev/null | grep -q "Type: regular"
    boot "$name,fetch"
done
echo "booted:"
for name in built copied optimized built,fetch optimized,fetch; do row "$name"; done
# How often processes take turns differs from boot to boot: what each boot read, set on
# the same layout.
echo "seeks of each boot on the optimized layout:"
turns() {
    "$seekless" score "$work/optimized" --trace "$2" --order recorded --json |
        python3 -c "import json, sys; print('%-16s %5d' % (sys.argv[1], json.load(sys.stdin)['seeks']))" "$1"
}
turns trace "$work/trace"
turns scored "$work/scored"
for name in built copied optimized; do
    "$seekless" trace import --blocks "$work/$name.log" --image "$work/$name" -o "$work/$name.trace" -q 2>/dev/null
    turns "$name" "$work/$name.trace"
done
