#!/usr/bin/env bash
# Starting a program from a volume that is fetched chunk by chunk: the image as built and optimized,
# each without and with `seekless prefetch` beside the program. Prints the table of docs/trace.md.
# Root, for loop devices, FUSE and a mount namespace; python3, cc.
#
#   bench/lazy.sh [CHUNK...]      (default: 64K 512K 1M 4M)
#
# The program is `cc -O2` of a program of one line, with an image of this machine's /usr mounted over
# /usr. The volume is a file that `seekless disk --realtime` serves: each chunk costs 30 ms and its
# transfer at 90 MB/s, 32 at once. Waiting is the program's time less the time when it is warm; each
# figure is the median of RUNS runs (default 3). The list for `prefetch` is made of one trace, and the
# image is optimized for the same one; the runs are others.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/lazy.XXXXXX")
loop= server=
clean() {
    mountpoint -q "$dir/at" && umount "$dir/at"
    [ -z "$loop" ] || losetup -d "$loop"
    [ -z "$server" ] || { umount "$dir/d" 2>/dev/null; wait "$server"; } || true
    rm -rf "$dir"
}
trap clean EXIT
cd "$dir"
mkdir at d
printf '#include <stdio.h>\nint main(void) { puts("so it goes"); return 0; }\n' >hello.c

# Seconds that the program takes with $1 over /usr.
program() {
    unshare --mount sh -c "mount --bind '$1' /usr
        began=\$(date +%s%N); cc -O2 hello.c -o hello && ./hello >/dev/null; ended=\$(date +%s%N)
        echo \$began \$ended" | awk '{ printf "%.3f\n", ($2 - $1) / 1e9 }'
}

export -f program

spec() {
    cat <<TOML
name = "store"
summary = "30 ms a chunk, 90 MB/s a stream, 32 at once"
sources = ["figures of this benchmark"]
[lazy]
chunk = $1
stream_bandwidth = 90000000
total_bandwidth = 2880000000
parallel = 32
fetch_ahead = 0
first_byte = [{ share = 0.0, us = 30000.0 }, { share = 1.0, us = 30000.0 }]
[lazy.local]
iops = { rate = 100000 }
bandwidth = { rate = 2000000000 }
io_size = 262144
merge_from = 32768
flush_us = 20.0
read_latency = [{ share = 0.0, us = 100.0 }, { share = 1.0, us = 100.0 }]
write_latency = [{ share = 0.0, us = 100.0 }, { share = 1.0, us = 100.0 }]
TOML
}

# One run: image $1, bytes of a chunk $2, list for prefetch $3 or nothing. Prints seconds and chunks.
run() {
    "$seekless" disk "$1" d --realtime --model spec.toml --io-log io.jsonl >/dev/null &
    server=$!
    until [ -e d/disk ]; do sleep 0.02; done
    loop=$(losetup --find --show --direct-io=on --read-only d/disk)
    # That of most block devices; the kernel sets another one for a loop device on FUSE.
    echo 128 >"/sys/block/${loop#/dev/}/queue/read_ahead_kb"
    mount -o ro,noload "$loop" at
    echo 3 >/proc/sys/vm/drop_caches
    local ahead= seconds
    if [ -n "$3" ]; then
        "$seekless" prefetch -q "$3" d/disk --user "$loop" --window 256M --readers 32 &
        ahead=$!
    fi
    seconds=$(program at)
    umount at
    [ -z "$ahead" ] || { kill "$ahead" 2>/dev/null; wait "$ahead"; } || true
    losetup -d "$loop"
    loop=
    umount d
    wait "$server"
    server=
    python3 - "$seconds" "$2" <<'PY'
import json, sys
size, chunks = int(sys.argv[2]), set()
for line in open("io.jsonl"):
    io = json.loads(line)
    if io["op"] == "read":
        chunks.update(range(io["offset"] // size, (io["offset"] + io["bytes"] - 1) // size + 1))
print(sys.argv[1], len(chunks))
PY
    rm io.jsonl
}

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

"$seekless" build /usr -o built.img --exclude /share/doc --exclude /local >/dev/null
mount -o ro,loop built.img at
"$seekless" record -q --mount at -o one.trace -- bash -c 'program at' >/dev/null
warm=$(for _ in 1 2 3; do program at; done | median)
umount at
"$seekless" optimize built.img --trace one.trace -o optimized.img >/dev/null
echo "warm: $warm s"
echo "| chunk | image | prefetch | waiting, s | chunks fetched | MB |"
echo "|---|---|---|---|---|---|"
[ $# -gt 0 ] || set -- 64K 512K 1M 4M
for size in "$@"; do
    bytes=$(numfmt --from=iec "$size")
    spec "$bytes" >spec.toml
    for image in built optimized; do
        "$seekless" trace export --format chunks --chunk "$size" one.trace --image $image.img -o list -q
        for ahead in no yes; do
            list=
            [ $ahead = no ] || list=list
            for _ in $(seq "${RUNS:-3}"); do run $image.img "$bytes" "$list"; done >runs
            seconds=$(cut -d' ' -f1 runs | median)
            chunks=$(cut -d' ' -f2 runs | median)
            awk -v size="$size" -v image=$image -v ahead=$ahead -v s="$seconds" -v warm="$warm" -v n="$chunks" -v bytes="$bytes" \
                'BEGIN { printf "| %s | %s | %s | %.2f | %d | %.1f |\n", size, image, ahead, s - warm, n, n * bytes / 1e6 }'
        done
    done
done
