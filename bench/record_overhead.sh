#!/bin/bash
# What recording costs a build of this project: with and without, in turn, each
# from cold caches and into an empty target directory. Prints a line a run, then
# the medians and the ratio of each pair. Needs root.
#
#   SEEKLESS  the program [target/release/seekless]
#   PAIRS     how many pairs [5]
#   CRATE     what is built [seekless-ext]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
SEEKLESS=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
crate=${CRATE:-seekless-ext}
cd "$here/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build="env CARGO_TARGET_DIR=$work/target cargo build --offline -q -p $crate"
export TIMEFORMAT='%R %U %S'

# Seconds of the build itself, as the program sees them, then all that passed.
run() {
    rm -rf "$work/target"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    local start end
    start=$(date +%s.%N)
    "$@" bash -c "{ time $build 2>&3 || exit; } 3>&2 2>$work/time"
    end=$(date +%s.%N)
    echo "$(cat "$work/time") $(echo "$end - $start" | bc)"
}

for pair in $(seq "${PAIRS:-5}"); do
    # Whoever goes first changes.
    if [ $((pair % 2)) = 1 ]; then
        plain=$(run env)
        recorded=$(run "$SEEKLESS" record --mount / -o "$work/trace" --)
    else
        recorded=$(run "$SEEKLESS" record --mount / -o "$work/trace" --)
        plain=$(run env)
    fi
    echo "$plain $recorded $(wc -l <"$work/trace")"
done | tee "$work/runs" | awk '{ print "plain", $1, "s, cpu", $2 + $3, "s; recorded", $5, "s, cpu", $6 + $7, "s, with naming", $8, "s,", $9, "events; ratio", $5 / $1, "cpu", ($6 + $7) / ($2 + $3) }'
python3 - "$work/runs" <<'PY'
import statistics, sys
rows = [list(map(float, line.split())) for line in open(sys.argv[1])]
print(f"median ratio of {len(rows)} pairs: wall {statistics.median(r[4] / r[0] for r in rows):.3f},",
      f"cpu {statistics.median((r[5] + r[6]) / (r[1] + r[2]) for r in rows):.3f}")
PY
