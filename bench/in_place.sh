#!/bin/bash
# What rearranging an image in place gives a program, beside a new image: an image that is
# 80% full, filled by cp -a, is rearranged for a recorded program, once into a new image
# and once in place. The program itself is run cold on all three, and its requests are
# counted at the block device. The table of docs/in-place.md. Needs root, python3, gcc and
# 6 GB in TMPDIR.
#
#   SEEKLESS  the program [target/release/seekless]
#   PROGRAMS  which ones ["find compile imports"]
#   RUNS      cold runs of each [5]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
. "$here/filled_image.sh"

for program in ${PROGRAMS:-find compile imports}; do
    prepare "$program"
    cp --sparse=always "$work/image" "$work/same"
    "$seekless" optimize "$work/same" --trace "$work/trace" --in-place --json >"$work/moved.json"
    e2fsck -fn "$work/same" >/dev/null
    for image in image new same; do
        "$seekless" score "$work/$image" --trace "$work/trace" --verify-program --runs "${RUNS:-5}" --json \
            -- "${command[@]}" >"$work/$image.json" 2>/dev/null || [ $? = 1 ]
    done
    python3 - "$program" "$work" <<'PY'
import json, sys
program, work = sys.argv[1:]
figures = {name: json.load(open(f"{work}/{name}.json"))["program"] for name in ("image", "new", "same")}
moved = json.load(open(f"{work}/moved.json"))
def row(figure, name=None):
    return [figures[image][figure]["median"] for image in ("image", "new", "same")]
seeks, chunks = row("seeks"), row("chunks_524288")
share = (seeks[0] - seeks[2]) / max(seeks[0] - seeks[1], 1)
copied = moved["moved_in_bytes"] + moved["moved_out_bytes"]
print(f"| {program} | {seeks[0]:,.0f} | {seeks[1]:,.0f} | {seeks[2]:,.0f} | {share:.0%} | "
      f"{chunks[0]:,.0f} | {chunks[1]:,.0f} | {chunks[2]:,.0f} | "
      f"{moved['touched_bytes'] / 1e6:.1f} | {copied / moved['touched_bytes']:.2f} |", flush=True)
PY
done
