#!/bin/bash
# Speed of the read-write mount beside bindfs (FUSE's floor: it only passes
# calls on) and fuse2fs: tar -x, find, cat of all and rm -rf of 80,000 entries,
# everything in memory. Medians in seconds. Needs root, FUSE, and the Debian
# packages bindfs, e2fsprogs and fuse2fs.
#
#   bench/mount.sh [DIR] [RUNS]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/dev/shm/seekless-mount}
runs=${2:-5}
seekless=${SEEKLESS:-$here/target/release/seekless}
mkdir -p "$work/mnt" "$work/below"
cd "$work"

if [ ! -e tree.tar ]; then
    python3 - <<'END'
import io, random, tarfile
chance = random.Random(1)
directories = ["tree"]
with tarfile.open("tree.tar", "w") as tar:
    def add(name, size=None):
        info = tarfile.TarInfo(name)
        info.mtime = 1_700_000_000
        if size is None:
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        else:
            info.size = size
            tar.addfile(info, io.BytesIO(chance.randbytes(size)))
    add("tree")
    for number in range(7999):
        directories.append(f"{chance.choice(directories[-300:])}/d{number}"
                           if number % 40 else f"tree/d{number}")
        add(directories[-1])
    for number in range(72000):
        add(f"{directories[number % len(directories)]}/f{number}",
            int(chance.expovariate(1 / 4000)) + 1)
END
fi

start() {
    case $1 in
    seekless-ext4) "$seekless" mount -f image mnt -o rw,cache=256M,journal=ordered & ;;
    seekless-*) "$seekless" mount -f image mnt -o rw,cache=256M,"${1#seekless-}" & ;;
    bindfs) bindfs -f below mnt & ;;
    fuse2fs) fuse2fs image mnt -f >/dev/null 2>&1 & ;;
    esac
    server=$!
    for _ in $(seq 200); do
        mountpoint -q mnt && return
        sleep 0.05
    done
    echo "$1: not mounted" >&2
    exit 1
}

stop() {
    umount mnt
    wait $server || echo "$1: ended with an error" >&2
}

fresh() {
    rm -rf image below/*
    case $1 in
    seekless-ext4) mke2fs -q -t ext4 -N 200000 image 2G ;;
    seekless-*) "$seekless" mkfs --format ufs2 -s 2G image >/dev/null ;;
    fuse2fs) mke2fs -q -t ext4 -O ^has_journal -N 200000 image 2G ;;
    esac
}

clock() {
    local began=$EPOCHREALTIME
    "${@:3}"
    local ended=$EPOCHREALTIME
    echo "$1 $2 $(awk "BEGIN { print $ended - $began }")" >>times
}

# With everything written: what is put off must be done some time.
unpack() { tar -x -f tree.tar -C mnt; }
list() { find mnt -printf '%s\n' >/dev/null; }
read_all() { find mnt -type f -print0 | xargs -0 cat >/dev/null; }
remove() { rm -rf mnt/tree; }

: >times
for ((run = 0; run < runs; run++)); do
    for who in ${PEERS:-bindfs seekless-softdep seekless-async seekless-ext4 fuse2fs}; do
        [ "$run" -lt 1 ] || [ $who != fuse2fs ] || continue
        fresh $who
        start $who
        clock $who tar unpack
        clock $who sync stop $who
        start $who
        clock $who find list
        stop $who
        start $who
        clock $who cat read_all
        clock $who rm remove
        clock $who sync-rm stop $who
    done
done
python3 - <<'END'
import statistics
times = {}
for line in open("times"):
    who, what, seconds = line.split()
    times.setdefault((what, who), []).append(float(seconds))
for (what, who), all in sorted(times.items()):
    print(f"{what:8} {who:18} {statistics.median(all):.2f}")
END
rm -f image
