#!/usr/bin/env bash
# Processor time and memory of commands with large traces. Prints the table of docs/trace.md.
# python3 and GNU time; 2.5 GB of disk for each 10^7 events.
#
#   bench/large_trace.sh [EVENTS...]      (default: 10000000)
#
# Two traces of bench/large_trace.py, each of half of the events, are merged; the result is scored on
# an image of its tree, lays it out, and is summarized. So are the halves, whose summaries are merged.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/large_trace.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir
cd "$dir"

# A row of the table: the command of name $2 for $1 events.
row() {
    local events=$1 name=$2
    shift 2
    /usr/bin/time -o time -f '%U %S %M' "$seekless" "$@" >/dev/null
    awk -v events="$events" -v name="$name" \
        '{ printf "| %s | %s | %.1f | %.0f |\n", events, name, $1 + $2, $3 * 1024 / 1e6 }' time
}

python3 "$here/bench/large_trace.py" tree tree
"$seekless" build --quiet tree --format ext4 --size 1500M -o disk.img
rm -r tree
echo '| events | command | processor time, s | memory, MB |'
echo '|---|---|---|---|'
for events in "${@:-10000000}"; do
    python3 "$here/bench/large_trace.py" trace $((events / 2)) 1 >one.trace &
    python3 "$here/bench/large_trace.py" trace $((events / 2)) 2 >two.trace
    wait
    row "$events" 'trace merge' trace merge one.trace two.trace -o all.trace
    row "$events" 'trace merge, to zstd' trace merge one.trace two.trace -o all.trace.zst
    row "$events" 'trace summarize' trace summarize all.trace -o all.parquet
    for half in one two; do
        "$seekless" trace summarize --quiet $half.trace -o $half.parquet
    done
    row "$events" 'trace merge of two summaries' trace merge one.parquet two.parquet -o sum.parquet
    rm one.trace two.trace
    row "$events" score score disk.img --trace all.trace
    row "$events" 'score, of zstd' score disk.img --trace all.trace.zst
    row "$events" optimize optimize disk.img --trace all.trace -o fast.img
    rm fast.img
    row "$events" 'optimize, by the summary' optimize disk.img --trace all.parquet -o fast.img
    ls -l all.trace all.trace.zst all.parquet sum.parquet | awk '{ print $9 ": " $5 }' >&2
    rm fast.img all.* sum.parquet
done
