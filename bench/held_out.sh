#!/usr/bin/env bash
# What a summary of recordings is worth beside the recordings themselves. Each recording of a program
# is left out in turn: the image is optimized by the others, and by their summary, and the one left
# out is replayed on both, in its own order, one request after the other, on the drive DEVICE. Prints
# the table of docs/trace.md: medians, as parts of the image as built. python3; 10 GB in TMPDIR.
#
#   KEEP=DIR RECORDINGS=5 RUNS=0 BLOCKS=4096 bench/ranges.sh && bench/held_out.sh DIR
#
#   SEEKLESS  the program [target/release/seekless]
#   DEVICE    the drive [sata-7200]
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seekless=$(realpath "${SEEKLESS:-$here/target/release/seekless}")
export device=${DEVICE:-sata-7200}
dir=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/held_out.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# score IMAGE TRACE: seeks, and milliseconds on the drive.
score() {
    "$seekless" score "$1" --trace "$2" --order recorded --device "$device" --json | python3 -c '
import json, sys
score = json.load(sys.stdin)
print(score["seeks"], round(score["devices"][0]["busy"] * 1000))'
}

echo '| program | seeks as built | by recordings | by their summary | time as built | by recordings | by their summary |'
echo '|---|---|---|---|---|---|---|'
for program in "$dir"/*/; do
    program=$(basename "$program")
    rm -f scores
    for left in "$dir/$program"/*.trace; do
        others=() traces=()
        for trace in "$dir/$program"/*.trace; do
            [ "$trace" != "$left" ] || continue
            others+=("$trace")
            traces+=(--trace "$trace")
        done
        rm -f sum.parquet
        "$seekless" -q trace summarize "${others[@]}" -o sum.parquet
        "$seekless" -q optimize "$dir/base.img" "${traces[@]}" -o by-traces.img --force >/dev/null
        "$seekless" -q optimize "$dir/base.img" --trace sum.parquet -o by-sum.img --force >/dev/null
        echo "$(score "$dir/base.img" "$left") $(score by-traces.img "$left") $(score by-sum.img "$left")" >>scores
    done
    python3 - "$program" <<'PY'
import statistics, sys
rows = [list(map(int, line.split())) for line in open("scores")]
seeks = [statistics.median(row[at] for row in rows) for at in (0, 2, 4)]
time = [statistics.median(row[at] for row in rows) for at in (1, 3, 5)]
print(f"| {sys.argv[1]} | {seeks[0]:,.0f} | {seeks[1]:,.0f} | {seeks[2]:,.0f} | {time[0] / 1000:.1f} s "
      f"| {time[1] / time[0]:.2f} | {time[2] / time[0]:.2f} |", flush=True)
PY
done
