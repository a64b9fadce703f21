#!/bin/bash
# Price of snapshots of a UFS2 volume: the time to take one, by size of the volume, and the times to
# extract, overwrite and remove a tree while there are none, one and three. The tree is this
# repository's sources, four times. Sparse images; needs root and FUSE.
#
#   bench/snapshots.sh [SIZE...]      (default: 1G 64G)
set -euo pipefail
cd "$(dirname "$0")/.."
seekless=${SEEKLESS:-target/release/seekless}
seekless=$(realpath "$seekless")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/snapshots.XXXXXX")
server=
clean() {
    umount -l "$dir/at" 2>/dev/null || true
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean EXIT
mkdir "$dir/at" "$dir/tree"
for n in 1 2 3 4; do cp -r crates docs "$dir/tree/"; mv "$dir/tree/crates" "$dir/tree/$n"; mv "$dir/tree/docs" "$dir/tree/d$n"; done
tar -C "$dir/tree" -cf "$dir/tree.tar" .

# Prints the seconds since $1, of date +%s%N.
since() { echo "$1 $(date +%s%N)" | awk '{ printf "%.2f", ($2 - $1) / 1e9 }'; }

mount_it() {
    "$seekless" mount -f "$dir/image" "$dir/at" -o rw,softdep 2>"$dir/messages" &
    server=$!
    until mountpoint -q "$dir/at"; do
        kill -0 "$server" 2>/dev/null || { cat "$dir/messages" >&2; exit 1; }
        sleep 0.005
    done
}

unmount_it() { umount "$dir/at"; wait "$server"; server=; }

# Prints the seconds that a command takes on the mounted volume, until it is unmounted.
timed() {
    local began
    mount_it
    began=$(date +%s%N)
    "$@" >/dev/null
    unmount_it
    since "$began"
}

overwrite() { find "$dir/at/one" -type f -exec sh -c 'for f; do cat "$f" >/dev/null; done; for f; do dd if=/dev/zero of="$f" conv=notrunc bs=4k count=1 status=none; done' sh {} +; }

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
    held=$("$seekless" snapshot list --json "$dir/image" | grep -o '"held_bytes":[0-9]*' | cut -d: -f2)
    echo "| $size | $seconds s | $((held / 1024)) KiB |"
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
    held=$("$seekless" snapshot list --json "$dir/image" | grep -o '"held_bytes":[0-9]*' | cut -d: -f2 | awk '{ all += $1 } END { printf "%.0f", all / 1048576 }')
    echo "| $snapshots | $extracted s | $overwritten s | $removed s | $held MiB |"
done
