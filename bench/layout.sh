#!/usr/bin/env bash
# What re-layout wins, on two workloads; root, for mkfs, loop mounts and a mount
# namespace. Prints the tables of docs/figures.md.
#
#   small   1,500 of 6,157 small files read in random order, 1 GiB image made by
#           mke2fs and cp -a, and by seekless
#   usr     cc compiles a C program, run from an image of this machine's /usr
#
# With KERNEL=1 each image is also mounted by the kernel on a loop device, cold,
# and the reads that arrive there are counted beside the prediction (small only).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$here/bench/out/layout}
seekless=${SEEKLESS:-${CARGO_TARGET_DIR:-$here/target}/release/seekless}
mkdir -p "$out/mnt"
chunks="--chunk 64K --chunk 512K --chunk 1M"
cd "$out"

cleanup() {
    mountpoint -q "$out/mnt" && umount "$out/mnt"
    [ -n "${loop:-}" ] && losetup -d "$loop"
    return 0
}
trap cleanup EXIT

# Reads of the kernel, cold, of the files in a list: requests and bytes.
kernel_reads() {
    loop=$(losetup -f --show --direct-io=on "$1")
    mount -o ro "$loop" mnt
    echo 3 > /proc/sys/vm/drop_caches
    read -r before_requests _ before_sectors _ < "/sys/block/${loop#/dev/}/stat"
    python3 -c '
import sys
for path in open(sys.argv[1]):
    open("mnt" + path.rstrip("\n"), "rb").read()
' "$2"
    read -r after_requests _ after_sectors _ < "/sys/block/${loop#/dev/}/stat"
    umount mnt
    losetup -d "$loop"
    loop=
    echo "kernel, $1: $((after_requests - before_requests)) requests," \
        "$(((after_sectors - before_sectors) * 512)) bytes"
}

small() {
    rm -rf tree
    python3 "$here/bench/small_files.py" tree small.list
    "$seekless" trace import --paths small.list -o small.trace
    rm -f cp.img
    truncate -s 1G cp.img
    mke2fs -q -F -t ext4 cp.img
    mount -o loop cp.img mnt
    cp -a tree/. mnt/
    umount mnt
    "$seekless" build tree -o built.img --size 1G --force
    "$seekless" optimize cp.img --trace small.trace -o optimized.img --force > /dev/null
    echo "### small files: cp -a, and the same image re-laid"
    "$seekless" score cp.img optimized.img --trace small.trace $chunks
    echo "### small files: seekless build without a trace"
    "$seekless" score built.img --trace small.trace $chunks
    if [ -n "${KERNEL:-}" ]; then
        kernel_reads cp.img small.list
        kernel_reads optimized.img small.list
    fi
}

usr() {
    "$seekless" build /usr -o usr.img --force --exclude /share/doc --exclude /local
    rm -f usr.trace
    "$seekless" mount -f usr.img mnt --record usr.trace &
    local server=$!
    until mountpoint -q mnt; do sleep 0.1; done
    printf '#include <stdio.h>\nint main(void) { puts("so it goes"); return 0; }\n' > hello.c
    unshare --mount sh -c 'mount --bind mnt /usr && cc -O2 hello.c -o hello && ./hello'
    umount mnt
    wait "$server"
    "$seekless" optimize usr.img --trace usr.trace -o usr-optimized.img --force > /dev/null
    echo "### cc from an image of /usr"
    "$seekless" score usr.img usr-optimized.img --trace usr.trace $chunks
}

for workload in "${@:-small usr}"; do
    for name in $workload; do "$name"; done
done
