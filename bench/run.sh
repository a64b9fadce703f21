#!/bin/bash
# All of `make bench`: the tree, the peers, the table.
#
#   BENCH_OUT   where everything goes [bench/out]
#   BENCH_TREE  a directory to build from, instead of one made of Debian packages
#   BENCH_FAST  where images are written that should not wait for a disk [/dev/shm]
#   RUNS        runs of each [5]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export BENCH_OUT=${BENCH_OUT:-$here/out}
mkdir -p "$BENCH_OUT"
"$here/tree.sh"
"$here/builders.sh"
