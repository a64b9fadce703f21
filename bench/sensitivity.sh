#!/bin/bash
# How far the figures of the experiment dirpref depend on what it assumes: the
# table of docs/experiments.md, one changed assumption a row. The figures are
# virtual time and do not depend on this machine.
#   SEEKLESS=target/release/seekless bench/sensitivity.sh
set -euo pipefail
cd "$(dirname "$0")/.."
seekless=${SEEKLESS:-target/release/seekless}
[ -x "$seekless" ] || { cargo build --release --workspace --exclude seekless-python; seekless=target/release/seekless; }
seekless=$(realpath "$seekless")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
"$seekless" lab show dirpref >base.toml

# row NAME SCRIPT [OPTION...]: the experiment as changed by a script of sed.
row() {
    local name=$1 script=$2
    shift 2
    sed -E -e "$script" base.toml >changed.toml
    if [ -n "$script" ] && cmp -s base.toml changed.toml; then
        echo "nothing has changed for: $name" >&2
        exit 1
    fi
    "$seekless" lab run changed.toml --quiet --json "$@" | jq -r --arg name "$name" '
        def mean: (map(log) | add / length | exp * 100 | round / 100);
        .agreement as $a
        | [.cells[] | (.old_s / .published_old_s), (.new_s / .published_new_s)] as $times
        | [.cells[] | select(.system == "first" and (.discipline == "async" or .discipline == "softdep"))
            | (.old_s / .published_old_s), (.new_s / .published_new_s)] as $first
        | "| \($name) | \($a.new_is_faster) | \($a.within_factor_2) | \($a.spearman * 1000 | round / 1000)"
        + " | \($times | mean) | \($first | min * 100 | round / 100) to \($first | max * 100 | round / 100) |"'
}

first='/name = "first"/,/^\[system.format/'
echo "| changed in the file | cells faster | within 2x | Spearman | geometric mean | first, async and softdep |"
echo "|---|---|---|---|---|---|"
row "nothing" ""
row "three seeds" "" --seeds 3
row "queue = 64" 's/^queue = .*/queue = 64/'
row "queue = 1024" 's/^queue = .*/queue = 1024/'
row "change and look halved" 's/"133us"/"67us"/; s/"27us"/"13us"/; s/"100us"/"50us"/; s/"20us"/"10us"/'
row "change and look doubled" 's/"133us"/"267us"/; s/"27us"/"53us"/; s/"100us"/"200us"/; s/"20us"/"40us"/'
row "cache halved" 's/^size = "45M"/size = "22528K"/; s/^size = "64M"/size = "32M"/'
row "cache doubled" 's/^size = "45M"/size = "90M"/; s/^size = "64M"/size = "128M"/'
row "second drive raptor-74" 's/dtla-307045/raptor-74/'
row "first drive dtla-307045" 's/ide-8gb/dtla-307045/'
row "first drive cheetah-9lp" 's/ide-8gb/cheetah-9lp/'
row "no page" '/^page = /d'
row "no delay_bitmaps" '/^delay_bitmaps = /d'
row "second drive with replace_writes = false" 's/^drive = "dtla-307045"/&\nreplace_writes = false/'
row "first drive with write_cache = false" "$first s/^drive = .*/&\\nwrite_cache = false/"
row "both drives with write_cache = false" 's/^drive = .*/&\nwrite_cache = false/'
