#!/bin/bash
# Peak memory of building an image of a million small files, from a tar on
# standard input and from a directory in memory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fast=${BENCH_FAST:-/dev/shm}
seekless=${CARGO_TARGET_DIR:-$here/../target}/release/seekless
work=$fast/seekless-million
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"

measure() { # NAME COMMAND...
    local name=$1
    shift
    /usr/bin/time -f "| $name | %e | %M |" "$@"
    rm -f "$work/image"
}

echo '| a million files | s | peak KB |'
echo '|---|---|---|'
"$here/million.py" > "$work/tar"
measure 'tar on standard input' \
    env TMPDIR="$work" "$seekless" build -q - -o "$work/image" < "$work/tar"
measure 'tar' "$seekless" build -q "$work/tar" -o "$work/image"
mkdir "$work/tree"
tar -C "$work/tree" -xf "$work/tar"
rm "$work/tar"
measure 'directory' "$seekless" build -q "$work/tree" -o "$work/image"
