#!/bin/bash
# The chunks that two builds of almost the same directory share, by builder.
#
# usage: bench/share.sh [DIR]
#
# DIR (default: /usr/lib/python3) is copied. Needs cargo (or SEEKLESS, the binary), mke2fs, and 4
# times the room of DIR in TMPDIR. These builders are left out if they are not installed:
# - makefs (Debian's package of that name);
# - tar2ext4, or the path in TAR2EXT4:
#   go install github.com/Microsoft/hcsshim/cmd/tar2ext4@v0.12.9;
# - mkext4, the path in MKEXT4: cargo install mkext4 --version 0.0.3 --example mkfs --root ROOT.
set -euo pipefail

source=${1:-/usr/lib/python3}
here=$(cd "$(dirname "$0")/.." && pwd)
seekless=${SEEKLESS:-}
if [[ -z $seekless ]]; then
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" --bin seekless
    seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless
fi
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
    makefs)
        makefs -t ffs -o version=2 -T "$SOURCE_DATE_EPOCH" -s "$(bytes_of "$size")" \
            "$work/$2.img" "$work/$2" >/dev/null
        ;;
    tar2ext4)
        tar -C "$work/$2" -c --sort=name . >"$work/$2.tar"
        "$tar2ext4" -i "$work/$2.tar" -o "$work/$2.img"
        rm "$work/$2.tar"
        ;;
    mkext4)
        rm -f "$work/$2.img"
        "$mkext4" "$work/$2" "$work/$2.img" "$(bytes_of "$size")" 2>/dev/null
        ;;
    esac
}

# bytes_of NUMBERK: the bytes, a multiple of 32 KiB.
bytes_of() {
    echo $((${1%K} / 32 * 32 * 1024))
}

tar2ext4=${TAR2EXT4:-tar2ext4} mkext4=${MKEXT4:-mkext4}
builders="seekless like fat fat-like ufs ufs-like mke2fs"
for builder in makefs tar2ext4 mkext4; do
    program=$builder
    [[ $builder == makefs ]] || program=${!builder}
    if command -v "$program" >/dev/null; then
        builders+=" $builder"
    else
        echo "$builder is not installed, and left out" >&2
    fi
done

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
for builder in $builders; do
    build $builder base
    for change in changed derived; do
        build $builder $change
        "$seekless" compare "$work/base.img" "$work/$change.img" --chunk 64K --chunk 512K --json |
            python3 -c "$row" $builder $change
    done
done
