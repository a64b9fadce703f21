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
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
finish() {
    umount -l "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/mnt" "$work/tree"
cp -r "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" "$work/tree/lib"
mkdir "$work/tree/gcc"
cp -a /usr/lib/gcc/. "$work/tree/gcc"
printf 'int main(void) { return 0; }\n' >"$work/tree/hello.c"
printf 'import sys\nsys.path[:] = [sys.argv[1] + "/lib", sys.argv[1] + "/lib/lib-dynload"]\nimport %s\n' \
    "asyncio, http.client, sqlite3, unittest, decimal, ctypes, multiprocessing, email.mime.text, logging.config, concurrent.futures, tkinter, xml.etree.ElementTree, pydoc, turtle, idlelib" \
    >"$work/imports.py"
printf '#!/bin/sh\nfind "$1/lib" -name site-packages -prune -o -name "*.py" -print | xargs wc\n' >"$work/find"
chmod +x "$work/find"

# How large the image is when the tree fills 80% of it.
size=$(($(du -sm --apparent-size "$work/tree" | cut -f1) * 10 / 8 + 100))M
mke2fs -q -F -t ext4 -b 4096 -E lazy_itable_init=0 "$work/image" "$size"
mount -o loop "$work/image" "$work/mnt"
cp -a "$work/tree/." "$work/mnt"
umount "$work/mnt"
rm -rf "$work/tree"

for program in ${PROGRAMS:-find compile imports}; do
    case $program in
    find) command=("$work/find" {}) ;;
    compile) command=(gcc -c -O2 -B {}/gcc/x86_64-linux-gnu/"$(gcc -dumpversion)" {}/hello.c -o /dev/null) ;;
    imports) command=(python3 -S -E -B "$work/imports.py" {}) ;;
    esac
    mount -o loop,ro,noatime "$work/image" "$work/mnt"
    "$seekless" record --mount "$work/mnt" -o "$work/trace" -- "${command[@]//\{\}/$work/mnt}" >/dev/null 2>&1 || true
    umount "$work/mnt"
    "$seekless" optimize "$work/image" --trace "$work/trace" -o "$work/new" --force -q >/dev/null
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
