#!/usr/bin/env bash
# The start of one program from images of several formats of the same tree: ext4 as mke2fs built it
# and as seekless optimized it, squashfs and EROFS. Prints the table of docs/which-tool.md. Root, for
# loop devices and a mount namespace; python3, cc, zstd, squashfs-tools, erofs-utils; 8 GB in TMPDIR.
#
# The program is `cc -O2` of a program of one line, with the image mounted over /usr. The tree is the
# part of this machine's /usr with its programs, headers and libraries. Each run begins with cold
# caches, except for the image's file: requests are counted at the loop device, from the mount to
# the program's end, and processor time is that of the program and of the kernel's threads meanwhile.
# A store sends whole chunks of 512K; in zstd:3 each is compressed by itself, and zeros cost nothing.
# Each figure is the median of RUNS runs (default 3). ext4 is optimized, and squashfs sorted, by one
# recording; the runs are others.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=${SEEKLESS:-${CARGO_TARGET_DIR:-$here/target}/release/seekless}
export dir=$(mktemp -d "${TMPDIR:-/var/tmp}/formats.XXXXXX")
# The program writes into memory, so that no thread of the kernel works for that.
export memory=$(mktemp -d /dev/shm/formats.XXXXXX)
[ -d /sys/kernel/tracing/instances ] || mount -t tracefs tracefs /sys/kernel/tracing
loop=
clean() {
    mountpoint -q "$dir/at" && umount "$dir/at"
    [ -z "$loop" ] || losetup -d "$loop"
    rm -rf "$dir" "$memory"
}
trap clean EXIT
cd "$dir"
mkdir at tree
printf '#include <stdio.h>\nint main(void) { puts("so it goes"); return 0; }\n' >"$memory/hello.c"

# Seconds of the processor that the program takes with $1 over /usr.
program() {
    unshare --mount bash -c 'mount --bind "$1" /usr && cd "$memory" && export TMPDIR=$memory
        TIMEFORMAT="%3U %3S"
        time { cc -O2 hello.c -o hello && ./hello >said; }' bash "$1" 2>&1 | awk '{ print $1 + $2 }'
}

# Seconds of the processor that all threads of the kernel have taken.
kernel() {
    ps -o pid= --ppid 2 | sed 's|[^0-9]*\(.*\)|/proc/\1/schedstat|' | xargs cat 2>/dev/null |
        awk '{ sum += $1 } END { printf "%.6f\n", sum / 1e9 }'
}

# The part of a run of which the requests are counted.
start() {
    local before
    # With its type: mount would look for others all over the image.
    mount -t "$2" -o "ro$3" "$1" "$dir/at"
    before=$(kernel)
    echo "$(program "$dir/at") $before $(kernel)" >"$memory/processor"
    umount "$dir/at"
}
export -f program kernel start

# One run on an image, mounted with its type and options. Prints chunks, their bytes, those in zstd:3,
# seeks, and milliseconds of the processor.
run() {
    loop=$(losetup --find --show --read-only "$1")
    echo 128 >"/sys/block/${loop#/dev/}/queue/read_ahead_kb"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    cat "$1" >/dev/null
    python3 "$here/bench/block_requests.py" "$loop" bash -c 'start "$@"' bash "$loop" "$2" "${3:-}" >counts
    losetup -d "$loop"
    loop=
    [ "$(cat "$memory/said")" = "so it goes" ]
    rm "$memory/said"
    python3 - "$1" "$memory/processor" <<'PY'
import json, subprocess, sys
image, processor = open(sys.argv[1], "rb"), open(sys.argv[2]).read().split()
counts, size, plain, packed = json.load(open("counts")), 512 << 10, 0, 0
for number in counts["chunks"]:
    image.seek(number * size)
    chunk = image.read(size)
    plain += len(chunk)
    if any(chunk):
        frame = subprocess.run(["zstd", "-q", "-3", "-c", "--no-check"], input=chunk, capture_output=True, check=True)
        packed += len(frame.stdout)
program, before, after = map(float, processor)
print(len(counts["chunks"]), plain, packed, counts["seeks"], 1000 * program, 1000 * (after - before))
PY
}

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# A row of the table: its name, the image, its type, and options of its mount.
row() {
    local n columns=()
    for _ in $(seq "${RUNS:-3}"); do run "${@:2}"; done >runs
    for n in 1 2 3 4 5 6; do columns+=("$(cut -d' ' -f$n runs | median)"); done
    printf '%s\n' "$1" "$(du --block-size=1 "$2" | cut -f1)" "${columns[@]}" | python3 -c '
import sys
name, image, chunks, plain, packed, seeks, program, kernel = sys.stdin.read().splitlines()
mega = lambda number: f"{int(number) / 1e6:,.1f}"
print("|", " | ".join([name, f"{int(image) / 1e6:,.0f}", chunks, mega(plain), mega(packed), f"{int(seeks):,}",
      f"{float(program):.0f}", f"{float(kernel):.0f}"]), "|")'
}

for part in bin sbin include lib64 libexec lib/gcc "lib/$(gcc -print-multiarch)"; do
    mkdir -p "tree/$(dirname "$part")"
    cp -a "/usr/$part" "tree/$part"
done
mke2fs -q -F -t ext4 -d tree built.img "$(du -s --block-size=1K tree | awk '{ print int($1 * 1.15) + 65536 "K" }')" >/dev/null
mount -o ro,noload,loop built.img at
"$seekless" record -q --mount at -o one.trace -- bash -c 'program "$dir/at"' >/dev/null
for _ in 1 2 3; do program at; done | median | awk '{ printf "warm: %.0f ms\n\n", $1 * 1000 }'
umount at
"$seekless" optimize -q built.img --trace one.trace -o optimized.img >/dev/null
"$seekless" optimize -q built.img --trace one.trace -o lazy.img --for lazy >/dev/null
"$seekless" trace export -q --format squashfs-sort one.trace --image built.img -o sort
mksquashfs tree plain.squashfs -comp zstd -quiet -no-progress >/dev/null
mksquashfs tree sorted.squashfs -comp zstd -sort sort -quiet -no-progress >/dev/null
mkfs.erofs plain.erofs tree >/dev/null
mkfs.erofs -zlz4hc packed.erofs tree >/dev/null
mkfs.erofs -zlz4hc -C65536 clusters.erofs tree >/dev/null

echo "| image | size, MB | chunks | fetched, MB | in zstd:3, MB | seeks | program, ms | kernel, ms |"
echo "|---|---|---|---|---|---|---|---|"
row "ext4, \`mke2fs -d\`" built.img ext4 ,noload
row "ext4, \`optimize\`" optimized.img ext4 ,noload
row "ext4, \`optimize --for lazy\`" lazy.img ext4 ,noload
row "squashfs, zstd" plain.squashfs squashfs
row "squashfs, zstd, sorted" sorted.squashfs squashfs
row "EROFS" plain.erofs erofs
row "EROFS, lz4hc" packed.erofs erofs
row "EROFS, lz4hc, \`-C65536\`" clusters.erofs erofs
echo
for image in built optimized lazy; do
    "$seekless" score $image.img --trace one.trace --chunk 512K --store zstd:3 --json | python3 -c '
import json, sys
score = json.load(sys.stdin)
stored, chunks = score["store"]["fetched_bytes"]["524288"], score["chunks"]["524288"]
print(f"score, {sys.argv[1]}: {chunks} chunks, {stored / 1e6:.1f} MB in zstd:3")' $image
done
