#!/bin/bash
# What moving the files of a mounted ext4 gives a program, beside images that are laid out
# anew while they are not mounted: an image that is 80% full, filled by cp -a, is recorded
# for a program, and rearranged for it into a new image, in place, and mounted. The
# program itself is run cold on all four, and its requests are counted at the block
# device; seeks for contents of files are those of the score. The table of
# docs/relayout.md. Needs root, python3, gcc and 8 GB in TMPDIR.
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
    for copy in same online; do cp --sparse=always "$work/image" "$work/$copy"; done
    "$seekless" optimize "$work/same" --trace "$work/trace" --in-place --json >/dev/null
    mount -o loop "$work/online" "$work/mnt"
    "$seekless" relayout "$work/mnt" --trace "$work/trace" --json >"$work/moved.json"
    umount "$work/mnt"
    e2fsck -fn "$work/online" >/dev/null 2>&1
    for image in image new same online; do
        "$seekless" score "$work/$image" --trace "$work/trace" --explain --json >"$work/$image.score"
        "$seekless" score "$work/$image" --trace "$work/trace" --verify-program --runs "${RUNS:-5}" --json \
            -- "${command[@]}" >"$work/$image.json" 2>/dev/null || [ $? = 1 ]
    done
    python3 - "$program" "$work" <<'PY'
import json, sys
program, work = sys.argv[1:]
images = ("image", "new", "same", "online")
counted = [json.load(open(f"{work}/{name}.json"))["program"]["seeks"]["median"] for name in images]
scored = [json.load(open(f"{work}/{name}.score"))["by_purpose"] for name in images]
data = [purposes["data"]["seeks"] for purposes in scored]
moved = json.load(open(f"{work}/moved.json"))
share = lambda row: (row[0] - row[3]) / max(row[0] - row[1], 1)
copied = moved["moved_in_bytes"] + moved["moved_out_bytes"]
rest = sum(row["seeks"] for name, row in scored[3].items() if name != "data")
print(f"| {program} | " + " | ".join(f"{seeks:,.0f}" for seeks in counted) + f" | {share(counted):.0%} | "
      + " | ".join(f"{seeks:,.0f}" for seeks in data) + f" | {share(data):.0%} | {rest:,} | "
      f"{copied / 1e6:.1f} |", flush=True)
PY
done
