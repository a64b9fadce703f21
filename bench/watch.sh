#!/bin/bash
# `seekless watch` on a loop device under a workload: programs that are started again and
# again among noise, and are idle in between. First the daemon's share of a processor
# while RATE files a second are opened, then MINUTES of the workload. Printed: processor,
# peak memory, moves, and seeks of each program, as the device counts them, on the volume
# as it was and as it is. The figures of docs/watch.md. Needs root, python3, e2fsprogs and
# 3 GB in TMPDIR.
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
truncate -s 2G "$work/image"
mke2fs -q -F -t ext4 "$work/image"
mount -o loop "$work/image" "$work/mnt"

# 12,000 files in pieces, a third of them removed: 600 MB in use.
python3 - "$work/mnt" <<'PY'
import os, random, sys
random.seed(1)
mnt = sys.argv[1]
for n in range(120):
    os.mkdir(f"{mnt}/d{n}")
names = [f"{mnt}/d{n % 120}/f{n}" for n in range(12000)]
for _ in range(3):
    for name in names:
        if random.random() < 0.8:
            with open(name, "ab") as file:
                file.write(os.urandom(random.randint(1000, 40000)))
    os.sync()
for name in random.sample(names, 4000):
    if os.path.exists(name):
        os.unlink(name)
PY
(cd "$work/mnt" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/before"

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

# Programs: each opens files of its own in an order of its own.
python3 - "$work" <<'PY'
import os, random, sys
random.seed(2)
work = sys.argv[1]
files = [os.path.join(d, f) for d, _, fs in os.walk(f"{work}/mnt") for f in fs if f.startswith("f")]
files.sort()
random.shuffle(files)
for number, size in enumerate([60, 120, 200, 90, 150]):
    with open(f"{work}/program{number}", "w") as out:
        out.write("\n".join(files[:size]) + "\n")
    files = files[size:]
with open(f"{work}/noise", "w") as out:
    out.write("\n".join(files) + "\n")
PY

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
    xargs -a "$1" cat >/dev/null
    echo 0 >$i/events/block/block_rq_issue/enable
    awk '/block_rq_issue/ { for (n = 1; n < NF; n++) if ($n == "+") { s = $(n - 1); l = $(n + 1) }
        if (seen && s != end) count++; end = s + l; seen = 1 } END { print count + 0 }' $i/trace
    rmdir $i
}
# The first time not all is dropped from memory.
seeks "$work/program0" >/dev/null
for n in 0 1 2 3 4; do seeks "$work/program$n"; done >"$work/seeks.before"

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
    setsid --wait xargs -a "$work/program$((turn % programs))" cat >/dev/null
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
seeks "$work/program0" >/dev/null
for n in 0 1 2 3 4; do seeks "$work/program$n"; done >"$work/seeks.after"
echo "seeks of each program at the device, before and after:"
paste "$work/seeks.before" "$work/seeks.after"
(cd "$work/mnt" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/after"
cmp "$work/before" "$work/after"
umount "$work/mnt"
e2fsck -fn "$work/image" >/dev/null
echo "contents are the same; e2fsck finds nothing"
