#!/bin/bash
# How soon a UFS2 volume can be used after a crash, by its size: with the check in the background
# (mount -o recover=background), and after a preen. Sparse images; needs root and FUSE.
#
#   bench/recover.sh [SIZE...]      (default: 1G 1T)
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/ufs_mount.sh

echo "| size | first read, recover=background | check in the background | its memory | check -p, then the first read | its memory |"
echo "|---|---|---|---|---|---|"
[ $# -gt 0 ] || set -- 1G 1T
for size in "$@"; do
    rm -f "$dir/image" "$dir/crashed"
    "$seekless" mkfs --format ufs2 -s "$size" "$dir/image" >/dev/null
    mount_it rw,softdep,cache=2M,max_softdeps=400
    cp -r bench docs "$dir/at"
    echo kept >"$dir/at/docs/kept"
    # Of FUSE, the kernel syncs single files alone.
    sync "$dir/at/docs/kept"
    rm -r "$dir/at/bench"
    cp -r crates/cli/src "$dir/at"
    kill -9 "$server"; wait "$server" 2>/dev/null || true
    umount -l "$dir/at"
    cp --sparse=always "$dir/image" "$dir/crashed"

    began=$(date +%s%N)
    mount_it rw,recover=background
    cat "$dir/at/docs/kept" >/dev/null
    read_after=$(since "$began")
    until [ -s "$dir/messages" ]; do sleep 0.02; done
    grep -q checked "$dir/messages" || { cat "$dir/messages" >&2; exit 1; }
    checked=$(since "$began")
    memory=$(awk '/VmHWM/ { printf "%.0f MB", $2 / 1024 }' "/proc/$server/status")
    unmount_it
    "$seekless" check "$dir/image" >/dev/null

    mv "$dir/crashed" "$dir/image"
    began=$(date +%s%N)
    # It exits with 1, since it repairs.
    preened=$( { /usr/bin/time -f %M "$seekless" check -p "$dir/image" >/dev/null || true; } 2>&1 | tail -1)
    mount_it rw
    cat "$dir/at/docs/kept" >/dev/null
    preen=$(since "$began")
    unmount_it
    echo "| $size | $read_after s | $checked s | $memory | $preen s | $((preened / 1024)) MB |"
done
