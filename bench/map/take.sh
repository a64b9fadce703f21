#!/bin/bash
# Takes the trace of the last `make demo`, and the paths and lengths of the toolchain's files, for
# docs/map.png, which `make figures ONLY=map` then draws. The header of the trace keeps neither
# paths nor names of the machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/../../demo-out}
tree=$(rustc --print sysroot)
(cd "$tree" && find . -path ./share -prune -o -type f -printf '%s %P\n') | LC_ALL=C sort -k 2 >"$here/files"
{
    head -n 1 "$out/rustc.trace" | jq -c '{seekless_trace, block_size, pages, read_ahead_kb}'
    tail -n +2 "$out/rustc.trace"
} | xz -9e --stdout >"$here/rustc.trace.xz"
