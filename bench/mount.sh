#!/bin/bash
# Speed of the read-write mount beside bindfs (FUSE's floor: it only passes
# calls on) and fuse2fs: tar -x, find, cat of all and rm -rf of 80,000 entries,
# everything in memory. Medians in seconds. Needs root, FUSE, and the Debian
# packages bindfs, e2fsprogs and fuse2fs.
#
#   bench/mount.sh [DIR] [RUNS]
#
# COUNT=1 prints the requests that FUSE sends instead, by kind, for a tenth of the entries (one run;
# by the kernel's tracepoint fuse_request_send).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/dev/shm/seekless-mount}
runs=${2:-5}
seekless=${SEEKLESS:-$here/target/release/seekless}
mkdir -p "$work/mnt" "$work/below"
cd "$work"

tenth=${COUNT:+0}
tree=tree$tenth.tar
if [ ! -e "$tree" ]; then
    TENTH=$tenth python3 - "$tree" <<'END'
import io, os, random, sys, tarfile
scale = 10 if os.environ["TENTH"] else 1
chance = random.Random(1)
directories = ["tree"]
with tarfile.open(sys.argv[1], "w") as tar:
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
    for number in range(8000 // scale - 1):
        directories.append(f"{chance.choice(directories[-300:])}/d{number}"
                           if number % 40 else f"tree/d{number}")
        add(directories[-1])
    for number in range(72000 // scale):
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

trace=/sys/kernel/tracing
if [ -n "$tenth" ]; then
    mountpoint -q $trace || mount -t tracefs none $trace
    echo 65536 >$trace/buffer_size_kb
fi

# count WHO WHAT COMMAND...: the requests of the command.
count() {
    echo >$trace/trace
    echo 1 >$trace/events/fuse/fuse_request_send/enable
    "${@:3}"
    echo 0 >$trace/events/fuse/fuse_request_send/enable
    { grep -o '(FUSE_[A-Z]*)' $trace/trace || true; } | sort | uniq -c | tr -d '()' |
        while read -r times kind; do echo "$1 $2 $kind $times"; done >>counts
}

clock() {
    if [ -n "$tenth" ]; then
        count "$@"
        return
    fi
    local began=$EPOCHREALTIME
    "${@:3}"
    local ended=$EPOCHREALTIME
    echo "$1 $2 $(awk "BEGIN { print $ended - $began }")" >>times
}

# With everything written: what is put off must be done some time.
unpack() { tar -x -f "$tree" -C mnt; }
list() { find mnt -printf '%s\n' >/dev/null; }
read_all() { find mnt -type f -print0 | xargs -0 cat >/dev/null; }
remove() { rm -rf mnt/tree; }

: >times
: >counts
[ -z "$tenth" ] || runs=1
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
if [ -n "$tenth" ]; then
    python3 - <<'END'
rows, whos = {}, []
for line in open("counts"):
    who, what, kind, times = line.split()
    if what in ("sync", "sync-rm"):
        continue
    rows.setdefault((what, kind.removeprefix("FUSE_")), {})[who] = int(times)
    if who not in whos:
        whos.append(who)
print(f"| | request | {' | '.join(whos)} |")
print("|---|---|" + "---|" * len(whos))
for what in ("tar", "find", "cat", "rm"):
    kinds = {kind: by for (row, kind), by in rows.items() if row == what}
    kinds["all"] = {who: sum(by.get(who, 0) for by in kinds.values()) for who in whos}
    for kind, by in kinds.items():
        if max(by.values()) >= 100:
            print(f"| {what} | {kind} | {' | '.join(f'{by.get(who, 0):,}' for who in whos)} |")
END
    rm -f image
    exit
fi
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
