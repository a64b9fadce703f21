#!/bin/bash
# Price of snapshots of a UFS2 volume: the time to take one, by size of the volume, and the times to
# extract, overwrite and remove a tree while there are none, one and three. The tree is this
# repository's sources, four times. Sparse images; needs root and FUSE.
#
#   bench/snapshots.sh [SIZE...]      (default: 1G 64G)
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/ufs_mount.sh
mkdir "$dir/tree"
for n in 1 2 3 4; do
    mkdir "$dir/tree/$n"
    cp -r crates docs "$dir/tree/$n"
done
tar -C "$dir/tree" -cf "$dir/tree.tar" .

# Prints the seconds that a command takes on the mounted volume, until it is unmounted.
timed() {
    local began
    mount_it rw,softdep
    began=$(date +%s%N)
    "$@" >/dev/null
    unmount_it
    since "$began"
}

# Bytes that the snapshots have, all together.
held() {
    "$seekless" snapshot list --json "$dir/image" | { grep -o '"held_bytes":[0-9]*' || true; } |
        cut -d: -f2 | awk '{ all += $1 } END { printf "%.0f", all }'
}

overwrite() {
    find "$dir/at/one" -type f -exec sh -c '
        for file; do dd if=/dev/zero of="$file" conv=notrunc bs=4k count=1 status=none; done' sh {} +
}

echo "| size | to take a snapshot | bytes that it has |"
echo "|---|---|---|"
[ $# -gt 0 ] || set -- 1G 64G
for size in "$@"; do
    rm -f "$dir/image"
    "$seekless" mkfs --format ufs2 -s "$size" "$dir/image" >/dev/null
    timed cp -r "$dir/tree/1" "$dir/at/one" >/dev/null
    began=$(date +%s%N)
    "$seekless" snapshot take "$dir/image" daily >/dev/null
    seconds=$(since "$began")
    echo "| $size | $seconds s | $(($(held) / 1024)) KiB |"
done

echo
echo "| snapshots | extract a tree | overwrite the start of each file | remove the tree | bytes of the snapshots afterwards |"
echo "|---|---|---|---|---|"
for snapshots in 0 1 3; do
    rm -f "$dir/image"
    "$seekless" mkfs --format ufs2 -s 2G "$dir/image" >/dev/null
    timed cp -r "$dir/tree" "$dir/at/one" >/dev/null
    for n in $(seq "$snapshots"); do "$seekless" snapshot take "$dir/image" "s$n" >/dev/null; done
    extracted=$(timed sh -c "mkdir '$dir/at/two'; tar -C '$dir/at/two' -xf '$dir/tree.tar'")
    overwritten=$(timed overwrite)
    removed=$(timed rm -r "$dir/at/one")
    "$seekless" check "$dir/image" >/dev/null
    echo "| $snapshots | $extracted s | $overwritten s | $removed s | $(($(held) / 1048576)) MiB |"
done
