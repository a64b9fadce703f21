#!/bin/bash
# `seekless watch` on a loop device under a workload: programs that are started again and
# again among noise, and are idle in between. First the daemon's share of a processor
# while RATE files a second are opened, then MINUTES of the workload. Printed: processor,
# peak memory, moves, and seeks of each program, as the device counts them, on the volume
# as it was and as it is. The figures of docs/watch.md. The programs: python importing
# modules, `git log -p`, gcc (in a root of its own), find with xargs wc, and, from a quarter
# of the time on, tar. Needs root, python3, git, gcc, e2fsprogs and 8 GB in TMPDIR.
#
#   SEEKLESS  the program [target/release/seekless]
#   MINUTES   how long [60]
#   RATE      files opened a second [200]
#   RATE_SECONDS  how long that is measured [60]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
minutes=${MINUTES:-60} rate=${RATE:-200} seconds=${RATE_SECONDS:-60}
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait || true
    umount "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/mnt"
truncate -s 4G "$work/image"
mke2fs -q -F -t ext4 "$work/image"
mount -o loop "$work/image" "$work/mnt"

# What the programs read: a Python installation, a git repository, a compiler with its
# headers and libraries.
from=$work/from
mkdir -p "$from/tree" "$from/usr/usr/bin" "$from/usr/usr/lib" "$from/usr/tmp"
cp -r "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" "$from/tree/lib"
git clone -q --no-local "$here/.." "$from/tree/repo"
triple=$(gcc -print-multiarch)
for tool in gcc as ld; do cp "$(realpath "$(command -v $tool)")" "$from/usr/usr/bin/$tool"; done
for part in /usr/include /usr/lib/gcc /usr/libexec/gcc; do
    [ ! -e "$part" ] || { mkdir -p "$from/usr$(dirname "$part")" && cp -a "$part" "$from/usr$part"; }
done
mkdir -p "$from/usr/usr/lib/$triple"
find "/usr/lib/$triple" -maxdepth 1 ! -type d -exec cp -a {} "$from/usr/usr/lib/$triple/" \;
cp -a /usr/lib64 "$from/usr/usr/" 2>/dev/null || true
ln -s usr/lib usr/lib64 "$from/usr/"
printf '#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n' >"$from/usr/hello.c"

# All of it in pieces, among files that are removed again.
python3 - "$from" "$work/mnt" <<'PY'
import os, random, shutil, stat, sys
random.seed(1)
source, target = sys.argv[1:]
files = []
for where, dirs, names in os.walk(source):
    dirs.sort()
    here = os.path.join(target, os.path.relpath(where, source))
    os.makedirs(here, exist_ok=True)
    for name in sorted(names) + [name for name in dirs if os.path.islink(os.path.join(where, name))]:
        old, new = os.path.join(where, name), os.path.join(here, name)
        if os.path.islink(old):
            os.symlink(os.readlink(old), new)
        else:
            files.append((old, new, os.path.getsize(old)))
    dirs[:] = [name for name in dirs if not os.path.islink(os.path.join(where, name))]
random.shuffle(files)
os.mkdir(f"{target}/filler")
fillers = 0
for part in range(3):
    for old, new, size in files:
        with open(old, "rb") as reader, open(new, "ab") as writer:
            reader.seek(size * part // 3)
            writer.write(reader.read(size * (part + 1) // 3 - size * part // 3))
        if random.random() < 0.2:
            with open(f"{target}/filler/{fillers}", "wb") as filler:
                filler.write(bytes(random.randint(1000, 40000)))
            fillers += 1
    os.sync()
for old, new, size in files:
    shutil.copymode(old, new)
shutil.rmtree(f"{target}/filler")
PY
rm -rf "$from"

sums() { (cd "$work/mnt" && find . -path ./usr/tmp -prune -o -type f -print0 | sort -z | xargs -0 sha256sum); }
sums >"$work/before"

# Short times, since the workload is that of days: the habits of a week in an hour.
cat >"$work/watch.toml" <<'TOML'
[record]
gap = "2s"
[idle]
quiet = "10s"
check = "5s"
[move]
retry = "10min"
TOML

cat >"$work/imports.py" <<'PY'
import importlib, pkgutil, sys
root = sys.argv[1]
sys.path[:] = [root + "/lib", root + "/lib/lib-dynload"]
for module in sorted(module.name for module in pkgutil.iter_modules(sys.path[:1]))[::3]:
    try:
        importlib.import_module(module)
    except BaseException:
        pass
PY
names=("python imports" "git log -p" "gcc -O2" "find, xargs wc" "tar")
run_program() {
    local tree=$work/mnt/tree
    case $1 in
    0) python3 -S -E -B "$work/imports.py" "$tree" </dev/null ;;
    1) git -c 'safe.directory=*' -C "$tree/repo" log -p ;;
    2) chroot "$work/mnt/usr" /usr/bin/gcc -O2 /hello.c -lm -o /tmp/hello ;;
    # More than 4,096 files would be taken for a search.
    3) find "$tree/lib" -maxdepth 2 -name "*.py" -print0 | xargs -0 wc ;;
    # An archive that is thrown away at once would not be filled.
    4) tar -C "$tree/repo" --exclude .git -cf - . | cat ;;
    esac >/dev/null 2>&1
}
export -f run_program
export work
find "$work/mnt/tree/lib" -type f | sort >"$work/noise"

# Seeks of a program from a cold start: reads of the loop device that do not begin where
# the one before ended, by the block layer's own events.
trace=/sys/kernel/tracing
[ -e $trace/trace ] || mount -t tracefs tracefs $trace
device=$(findmnt -no SOURCE "$work/mnt")
number=$(stat -c '%Hr %Lr' "$device" | awk '{ print $1 * 1048576 + $2 }')
seeks() {
    local i=$trace/instances/watch-bench
    mkdir -p $i
    echo "dev == $number" >$i/events/block/block_rq_issue/filter
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo 1 >$i/events/block/block_rq_issue/enable
    run_program "$1"
    echo 0 >$i/events/block/block_rq_issue/enable
    awk '/block_rq_issue/ { for (n = 1; n < NF; n++) if ($n == "+") { s = $(n - 1); l = $(n + 1) }
        if (seen && s != end) count++; end = s + l; seen = 1 } END { print count + 0 }' $i/trace
    rmdir $i
}
# The first time not all is dropped from memory.
seeks 0 >/dev/null
for n in 0 1 2 3 4; do seeks $n; done >"$work/seeks.before"

start_daemon() {
    "$seekless" watch run "$work/mnt" --state "$work/state" --config "$work/watch.toml" 2>>"$work/log" &
    daemon=$!
    until "$seekless" watch status "$work/mnt" --state "$work/state" --json 2>/dev/null | grep -q '"running":true'; do
        sleep 0.2
    done
}
# Processor time in ticks.
ticks() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; }

start_daemon
python3 - "$work/noise" "$rate" "$seconds" "$work/opens" <<'PY' &
import sys, time
names = open(sys.argv[1]).read().split("\n")[:-1]
rate, seconds = float(sys.argv[2]), float(sys.argv[3])
start, opened = time.monotonic(), 0
while time.monotonic() - start < seconds:
    with open(names[opened % len(names)], "rb") as file:
        file.read(1)
    opened += 1
    wait = start + opened / rate - time.monotonic()
    if wait > 0:
        time.sleep(wait)
open(sys.argv[4], "w").write(str(opened))
PY
opener=$!
before=$(ticks)
wait $opener
after=$(ticks)
opens=$(cat "$work/opens")
python3 - "$((after - before))" "$(getconf CLK_TCK)" "$seconds" "$opens" <<'PY'
import sys
ticks, hertz, seconds, opens = map(float, sys.argv[1:])
print(f"{opens / seconds:.0f} files opened a second by one process: {ticks / hertz / seconds:.2%} of a processor", flush=True)
PY
# The same by programs that end at once, which must be asked for.
before=$(ticks)
began=$(date +%s%N)
xargs -a "$work/noise" -n 4 sh -c 'cat "$@" >/dev/null; sleep 0.015' x &
opener=$!
sleep "$((seconds / 2))"
kill $opener 2>/dev/null || true
wait $opener 2>/dev/null || true
ended=$(date +%s%N)
after=$(ticks)
python3 - "$((after - before))" "$(getconf CLK_TCK)" "$((ended - began))" <<'PY'
import sys
ticks, hertz, nanos = map(float, sys.argv[1:])
print(f"short programs of 4 files each, about 40 programs a second: {ticks / hertz / (nanos / 1e9):.2%} of a processor", flush=True)
PY

began=$(date +%s)
end=$((began + minutes * 60))
before=$(ticks)
turn=0
while [ "$(date +%s)" -lt $end ]; do
    # From the last quarter on, one that was not there before.
    programs=4
    [ $(($(date +%s) - began)) -gt $((minutes * 15)) ] && programs=5
    setsid --wait bash -c run_program\ $((turn % programs))
    shuf -n 30 --random-source=<(yes $turn) "$work/noise" | setsid --wait xargs cat >/dev/null
    turn=$((turn + 1))
    # Busy, then idle.
    sleep $((turn % 8 ? 4 : 30))
done
after=$(ticks)
peak=$(awk '/VmHWM/ { print $2 }' "/proc/$daemon/status")
lasted=$(($(date +%s) - began))
python3 - "$((after - before))" "$(getconf CLK_TCK)" "$lasted" "$peak" "$turn" <<'PY'
import sys
ticks, hertz, seconds, peak, turns = map(float, sys.argv[1:])
print(f"{seconds / 60:.0f} minutes, {turns:.0f} runs among noise: {ticks / hertz / seconds:.2%} of a processor, moving included; peak memory {peak / 1024:.1f} MiB", flush=True)
PY
"$seekless" watch status "$work/mnt" --state "$work/state" --config "$work/watch.toml"
kill "$daemon"
wait "$daemon" || true
daemon=
cat "$work/log"
seeks 0 >/dev/null
for n in 0 1 2 3 4; do seeks $n; done >"$work/seeks.after"
echo "seeks of each program at the device, before and after:"
printf '%s\n' "${names[@]}" | paste - "$work/seeks.before" "$work/seeks.after"
sums >"$work/after"
cmp "$work/before" "$work/after"
umount "$work/mnt"
e2fsck -fn "$work/image" >/dev/null
echo "contents are the same; e2fsck finds nothing"
