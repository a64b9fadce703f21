#!/bin/bash
# Builds and rearrangements that clone contents (--reflink) on XFS and Btrfs, beside ones that
# copy them and beside `cp --reflink=never` of the same bytes; and builds from many small files,
# of which none is long enough to be cloned.
#
# usage: bench/reflink.sh
#
# Needs root, loop devices, mkfs.xfs, mkfs.btrfs, and room in TMPDIR (default: /var/tmp) for 4
# times SIZE, on a disk. SIZE: MiB in FILES files [4096, 400]; SMALL: number of small files
# [199333]; RUNS: runs of each [3], of which the fastest counts, or with PICK=median the median;
# KINDS [xfs btrfs].
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
size=${SIZE:-4096} files=${FILES:-400} small=${SMALL:-199333} runs=${RUNS:-3}
pick=1
[[ ${PICK:-} != median ]] || pick=$(((runs + 1) / 2))
seekless=${SEEKLESS:-}
if [[ -z $seekless ]]; then
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" --bin seekless
    seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless
fi
seekless=$(realpath "$seekless")
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
finish() {
    umount "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/mnt"
mnt=$work/mnt

# tree KIND: `large` has SIZE in files of one length, `small` has files of 1 to 32,000 bytes.
tree() {
    python3 - "$1" "$2" "$3" "$4" <<'END'
import os, random, sys

kind, dir, mib, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
some = random.Random(1)
bytes = some.randbytes(1 << 20)
for number in range(files):
    if number % 200 == 0:
        os.makedirs(f"{dir}/{number // 200}")
    left = (mib << 20) // files + 1 if kind == "large" else some.randint(1, 32_000)
    with open(f"{dir}/{number // 200}/{number}", "wb") as file:
        file.write(number.to_bytes(8, "little"))
        while left > 0:
            file.write(bytes[: min(left, len(bytes))])
            left -= len(bytes)
END
}

# used: bytes in use, once those of removed files are free.
used() {
    local before now=
    sync -f "$mnt"
    until [[ ${before:-} == "$now" && -n $now ]]; do
        before=$now
        sleep 0.5
        now=$(df --output=used -B1 "$mnt" | tail -n 1)
    done
    echo "$now"
}

# once COMMAND...: seconds of a command, and with an fsync of what it writes; MiB that it takes.
# It writes $mnt/out.
once() {
    rm -rf "$mnt/out"
    local before
    before=$(used)
    python3 - "$mnt/out" "$@" <<'END'
import os, subprocess, sys, time

out, *command = sys.argv[1:]
begin = time.monotonic()
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
written = time.monotonic()
fd = os.open(out if os.path.isfile(out) else os.path.dirname(out), os.O_RDONLY)
os.fsync(fd)
os.close(fd)
if os.path.isdir(out):
    subprocess.run(["sync", "-f", out], check=True)
print(f"{written - begin:.3f} {time.monotonic() - begin:.3f}", end=" ")
END
    echo $((($(used) - before) >> 20))
}

# rows KIND [NAME COMMAND]...: a row of the table for each command, which takes its output as the
# last argument, with the run of it that counts. The commands take turns.
rows() {
    local kind=$1 names=() commands=() run at
    shift
    while (($#)); do
        names+=("$1") commands+=("$2")
        shift 2
    done
    rm -f "$work"/times-*
    for run in $(seq "$runs"); do
        for at in "${!names[@]}"; do
            # shellcheck disable=SC2086 # the words of the command
            once ${commands[at]} "$mnt/out" >>"$work/times-$at"
        done
    done
    for at in "${!names[@]}"; do
        sort -n "$work/times-$at" | sed -n "${pick}p" | while read -r plain durable took; do
            echo "| $kind | ${names[at]} | $plain | $durable | $took |"
        done
    done
}

echo "$size MiB in $files files; $small small files; $(uname -r)"
echo
echo "| host | | s | s with fsync | MiB taken |"
echo "|---|---|---|---|---|"
for kind in ${KINDS:-xfs btrfs}; do
    truncate -s $((size * 5 + 16384))M "$work/volume"
    case $kind in
    xfs) mkfs.xfs -q -f -m reflink=1 "$work/volume" ;;
    btrfs) mkfs.btrfs -q -f "$work/volume" >/dev/null ;;
    esac
    mount -o loop,noatime "$work/volume" "$mnt"
    tree large "$mnt/tree" "$size" "$files"
    sync
    build="$seekless build $mnt/tree -q"
    rows $kind \
        "cp --reflink=never" "cp -r --reflink=never $mnt/tree" \
        "build" "$build -o" \
        "build --reflink never" "$build --reflink never -o"
    $build -o "$mnt/cloned"
    cmp "$mnt/out" "$mnt/cloned"
    # A trace of every tenth file.
    {
        echo '{"seekless_trace":1}'
        find "$mnt/tree" -type f -name '*7' -printf '{"op":"read","path":"/%P"}\n' | LC_ALL=C sort
    } >"$work/trace"
    optimize="$seekless optimize $mnt/cloned --trace $work/trace -q"
    rows $kind \
        "cp --reflink=never of the image" "cp --reflink=never $mnt/cloned" \
        "optimize" "$optimize -o" \
        "optimize --reflink never" "$optimize --reflink never -o"
    rm -rf "$mnt/tree" "$mnt/out" "$mnt/cloned"
    tree small "$mnt/tree" 0 "$small"
    sync
    find "$mnt/tree" -type f -exec cat {} + >/dev/null
    rows $kind \
        "small files: build" "$build -o" \
        "small files: build --reflink never" "$build --reflink never -o"
    umount "$mnt"
    rm "$work/volume"
done
