#!/bin/bash
# fio (libaio, direct I/O, 4 KiB) on modelled drives that `seekless disk` serves, beside the model
# without a kernel (`seekless model bench`) and the published figures of the real drive
# (crates/model/tests/fio.toml). Each job runs twice:
#   virtual   the device's clock waits for fio (`iodepth N` in DIR/control): IOPS and mean latency
#             from stats.json (latency is iodepth/IOPS), however slow the host is
#   realtime  `--realtime`: fio's own figures. FUSE and the wake-ups of sleeping threads limit them:
#             a line `null` shows how fast this host is on a device that takes no time
# Needs root, FUSE, fio and Python 3.11.
#
#   bench/flash.sh [DIR] [SECONDS] [MODEL...]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/var/tmp/seekless-flash}
seconds=${2:-5}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- null intel-d3-s4610-480 samsung-860-pro samsung-pm883-480 kingston-dc500m \
    intel-p3600-1600 gp3-10000
seekless=${SEEKLESS:-$here/target/release/seekless}
mkdir -p "$work/mnt"
cd "$work"
server=
stop() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } || true
    server=
}
trap stop EXIT

serve() {
    rm -f image
    "$seekless" disk image mnt --create --size 2G --model "$@" &
    server=$!
    until [ -e mnt/disk ]; do
        kill -0 "$server"
        sleep 0.1
    done
}

job() {
    fio --name=job --filename=mnt/disk --ioengine=libaio --direct=1 --bs=4k --rw="$1" \
        --iodepth="$2" --size=2G --norandommap --output-format=json "${@:3}" >"$1-$2.json"
}

for model; do
    for mode in virtual realtime; do
        mkdir -p "$model/$mode"
        if [ $mode = realtime ]; then serve "$model" --realtime; else serve "$model"; fi
        for rw in randread randwrite; do
            for depth in 1 8 32; do
                if [ $mode = virtual ]; then
                    printf 'iodepth %s\nphase %s-%s\n' $depth $rw $depth >mnt/control
                    job $rw $depth --number_ios=20000
                    echo 'phase end' >mnt/control
                else
                    job $rw $depth --time_based --runtime="$seconds"
                fi
                mv $rw-$depth.json "$model/$mode/"
            done
        done
        cat mnt/stats.json >"$model/$mode/stats.json"
        stop
    done
    # The modelled disk is 2 GiB, so the job keeps to that.
    "$seekless" model bench "$model" --size 2G --json >"$model/bench.json"
done

python3 - "$here/crates/model/tests/fio.toml" "$@" <<'END'
import json, sys, tomllib

runs = tomllib.load(open(sys.argv[1], "rb"))["run"]


def published(model, rw, depth):
    for run in runs:
        if run["device"] == model and run.get("bs", 4096) == 4096:
            for one in run["results"]:
                if (one["rw"], one["iodepth"]) == (rw, depth):
                    return one["iops"], one.get("lat_us")
    return None, None


def cell(iops, us):
    return f"{iops:,.0f} / {us:,.0f}" if iops and us else f"{iops:,.0f}" if iops else "-"


print("| model | rw | iodepth | published IOPS / us | `model bench` | fio, virtual | fio, realtime |")
print("|---|---|---|---|---|---|---|")
for model in sys.argv[2:]:
    jobs = json.load(open(f"{model}/bench.json"))["jobs"]
    phases = json.load(open(f"{model}/virtual/stats.json"))["phases"]
    for job in jobs:
        rw, depth = job["rw"], job["iodepth"]
        phase = next(p for p in phases if p["name"] == f"{rw}-{depth}")
        count, elapsed = phase["reads"] + phase["writes"], phase["elapsed_ns"]
        # By Little's law, as the number in flight is constant.
        virtual = cell(count * 1e9 / elapsed, elapsed * depth / count / 1e3) if elapsed else "-"
        fio = json.load(open(f"{model}/realtime/{rw}-{depth}.json"))["jobs"][0][rw[4:]]
        real = cell(fio["iops"], fio["lat_ns"]["mean"] / 1e3)
        bench = cell(job["iops"], job["lat_us"]["mean"])
        print(f"| `{model}` | {rw} | {depth} | {cell(*published(model, rw, depth))} "
              f"| {bench} | {virtual} | {real} |")
END
