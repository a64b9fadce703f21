#!/bin/bash
# The chunks that two builds of almost the same directory share, by builder.
#
# usage: bench/share.sh [DIR]
#
# DIR (default: /usr/lib/python3) is copied. Needs cargo, mke2fs and 4 times the
# room of DIR in TMPDIR.
set -euo pipefail

source=${1:-/usr/lib/python3}
here=$(cd "$(dirname "$0")/.." && pwd)
cargo build --quiet --release --manifest-path "$here/Cargo.toml" --bin seekless
seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000 MKE2FS_DETERMINISTIC=1

# random SEED BYTES: the same bytes every time.
random() {
    python3 -c 'import random, sys
sys.stdout.buffer.write(random.Random(int(sys.argv[1])).randbytes(int(sys.argv[2])))' "$1" "$2"
}

cp -a "$source" "$work/base"
cp -a "$work/base" "$work/changed"
mkdir "$work/changed/added"
random 1 300000 >"$work/changed/added/file"
grown=$(cd "$work/changed" && find . -type f -size +20k | LC_ALL=C sort | sed -n 2p)
random 2 5000 >>"$work/changed/${grown:?no two files of more than 20K in $source}"
cp -a "$work/base" "$work/derived"
mkdir "$work/derived/srv"
for number in $(seq 150); do
    random $((number + 2)) 100000 >"$work/derived/srv/file$number"
done

bytes=$(du -sb "$work/derived" | cut -f1)
size=$((bytes / 1024 * 13 / 10 + 65536))K
build() {
    case $1 in
    seekless) "$seekless" build "$work/$2" -o "$work/$2.img" --force --quiet ;;
    like)
        local like=()
        [[ $2 == base ]] || like=(--like "$work/base.img")
        "$seekless" build "$work/$2" -o "$work/$2.img" --force --quiet "${like[@]}"
        ;;
    fat*)
        local options=(--format fat16 --sectors-per-cluster 8 --size "$size")
        [[ $1 != fat-like || $2 == base ]] || options=(--format fat16 --like "$work/base.img")
        "$seekless" build "$work/$2" -o "$work/$2.img" --force --quiet --drop all "${options[@]}"
        ;;
    ufs*)
        local options=(--format ufs2 --size "$size")
        [[ $1 != ufs-like || $2 == base ]] || options=(--format ufs2 --like "$work/base.img")
        "$seekless" build "$work/$2" -o "$work/$2.img" --force --quiet "${options[@]}"
        ;;
    mke2fs)
        rm -f "$work/$2.img"
        mke2fs -q -F -t ext4 -b 4096 -I 256 -U 5ee61e55-b007-4000-8000-000000000001 \
            -E hash_seed=5ee61e55-b007-4000-8000-000000000002 \
            -d "$work/$2" "$work/$2.img" "$size" >/dev/null
        ;;
    esac
}

row=$(
    cat <<'END'
import json, sys

cells = []
for unit in json.load(sys.stdin)["units"]:
    second = unit["images"][1]
    cells.append(f"{second['new']['chunks']:,} of {second['all']['chunks']:,}")
print("|", " | ".join(sys.argv[1:] + cells), "|")
END
)

echo "$(find "$work/base" | wc -l) files, $(du -sh "$work/base" | cut -f1) in $source"
echo "| builder | change | new blocks of 4K | chunks of 64K | chunks of 512K | content-defined |"
echo "|---|---|---|---|---|---|"
for builder in seekless like ufs ufs-like fat fat-like mke2fs; do
    build $builder base
    for change in changed derived; do
        build $builder $change
        "$seekless" compare "$work/base.img" "$work/$change.img" --chunk 64K --chunk 512K --json |
            python3 -c "$row" $builder $change
    done
done
