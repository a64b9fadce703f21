#!/bin/bash
# Times what builds ext4 images from a directory, a tar, a container image, and from a
# million files, page cache warm, and prints Markdown. See run.sh for the variables it
# takes.
#
#   ONLY    which tables: any of "directory tar oci empty million" [all]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${BENCH_OUT:-$here/out}
tree=${BENCH_TREE:-$out/tree}
fast=${BENCH_FAST:-/dev/shm}
runs=${RUNS:-5}
PATH=$PATH:/usr/sbin:/sbin

if ! command -v hyperfine > /dev/null; then
    cargo install --quiet --locked --root "$out/tools" --version 1.20.0 hyperfine
    PATH=$out/tools/bin:$PATH
fi
target=${CARGO_TARGET_DIR:-$here/../target}
cargo build --quiet --release --manifest-path "$here/../Cargo.toml" -p seekless-cli
seekless=$target/release/seekless
mkext4=${MKEXT4:-$out/tools/bin/mkfs}
[ -x "$mkext4" ] ||
    cargo install --quiet --root "$out/tools" --version 0.0.3 mkext4 --example mkfs
peers=${PEERS:-$out/peers/release/peers}
[ -x "$peers" ] ||
    cargo build --quiet --release --manifest-path "$here/peers/Cargo.toml" --target-dir "$out/peers"

many=$out/many
if [ ! -d "$many" ]; then
    mkdir -p "$many.new/one"
    (cd "$many.new/one" && seq -f 'file-%.0f' 40000 | xargs touch)
    mv "$many.new" "$many"
fi

# NAME COMMAND: seconds (median, least) and megabytes; IMG stands for the output.
row() {
    local name=$1 image=$3 command=${2//IMG/$3} runs=${4:-$runs} json=$out/last.json
    hyperfine --style none --warmup 1 --runs "$runs" --prepare "rm -f $image" \
        --export-json "$json" "$command" > /dev/null 2> "$out/last.err" || {
        echo "| $name | failed: $(tail -1 "$out/last.err") | | | |"
        return
    }
    rm -f "$image"
    /usr/bin/time -f %M -o "$out/last.kb" sh -c "$command" > /dev/null 2> "$out/last.err" || true
    rm -f "$image"
    python3 - "$json" "$name" "$(tail -1 "$out/last.kb")" "$reference" <<'PYTHON'
import json, sys
path, name, kilobytes, reference = sys.argv[1:]
result = json.load(open(path))["results"][0]
ratio = f"{result['median'] / float(reference):.2f}" if reference else ""
cpu = result["user"] + result["system"]
print(f"| {name} | {result['median']:.2f} | {result['min']:.2f} | {cpu:.2f} | {int(kilobytes) / 1024:.0f} | {ratio} |")
open(path + ".median", "w").write(str(result["median"]))
PYTHON
}

table() {
    printf '\n%s\n\n| builder | median s | fastest s | CPU s | peak MB | relative to seekless |\n|---|---|---|---|---|---|\n' "$1"
    reference=
}

# The first row is the reference of its table.
ours() {
    row "$@"
    reference=$(cat "$out/last.json.median")
}

bytes=$((6 << 30))
slow=$out
printf '%s, %s cores, load %s\n' "$(uname -sr)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"

wanted() { [[ " ${ONLY:-directory tar oci empty million} " = *" $1 "* ]]; }

for place in "$fast" "$slow"; do
    image=$place/seekless-bench.img
    if wanted directory; then
        table "Directory, output on \`$(df --output=fstype "$place" | tail -1)\`"
        ours "seekless build DIR" "$seekless build -q $tree -o IMG" "$image"
        row "mkext4 0.0.3" "$mkext4 $tree IMG $bytes" "$image"
        [ "$place" = "$slow" ] ||
            row "tar cf (reads the tree only)" "tar -C $tree -cf - . | cat > IMG" "$image"
        [ -n "${QUICK:-}" ] ||
            row "mke2fs $(mke2fs -V 2>&1 | awk '{print $2; exit}') -d" \
                "mke2fs -q -F -t ext4 -N 250000 -d $tree IMG $((bytes >> 10))k" "$image" 1
    fi
    if wanted tar; then
        table "Tar, output on \`$(df --output=fstype "$place" | tail -1)\`"
        ours "seekless build TAR" "$seekless build -q $out/tree.tar -o IMG" "$image"
        row "arcbox-ext4 0.1.2" "$peers arcbox $out/tree.tar IMG $bytes" "$image"
    fi
done
image=$fast/seekless-bench.img
if wanted oci; then
    [ -d "$out/oci" ] || { rm -rf "$out/oci.new"; "$here/oci.py" "$out/tree.tar" "$out/oci.new"; mv "$out/oci.new" "$out/oci"; }
    table "An OCI layout of three layers compressed by gzip"
    ours "seekless build OCI" "$seekless build -q $out/oci -o IMG" "$image"
    bundle=$fast/seekless-bundle
    # As root, or owners are lost.
    if [ "$(id -u)" = 0 ] && command -v umoci > /dev/null; then
        row "umoci $(umoci --version | awk '{print $3}') unpack, mkext4 0.0.3" \
            "rm -rf $bundle; umoci unpack --image $out/oci:latest $bundle && $mkext4 $bundle/rootfs IMG $bytes" "$image"
        rm -rf "$bundle"
    else
        echo "umoci is left out: it needs root and \`apt-get install umoci\`" >&2
    fi
fi
if wanted empty; then
    table "A directory of 40,000 empty files"
    ours "seekless build DIR" "$seekless build -q $many -o IMG" "$image"
    row "mkext4 0.0.3" "$mkext4 $many IMG $bytes" "$image"
fi
if wanted million; then
    million=$fast/seekless-million
    trap 'rm -rf "$million"' EXIT
    mkdir -p "$million"
    "$here/million.py" > "$million/tar"
    mkdir "$million/tree"
    tar -C "$million/tree" -xf "$million/tar"
    table "A tar of 1,000,000 small files in 1,000 directories"
    ours "seekless build TAR" "$seekless build -q $million/tar -o IMG" "$image"
    row "arcbox-ext4 0.1.2" "$peers arcbox $million/tar IMG $bytes" "$image"
    table "The same as a directory"
    ours "seekless build DIR" "$seekless build -q $million/tree -o IMG" "$image"
    row "mkext4 0.0.3" "$mkext4 $million/tree IMG $bytes" "$image"
    row "tar cf (reads the tree only)" "tar -C $million/tree -cf - . | cat > IMG" "$image"
fi
