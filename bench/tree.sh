#!/bin/bash
# A real tree of about 200,000 files and 3 GB: documentation and kernel source
# from Debian packages, unpacked, and as a tar. Needs apt-get, but not root.
set -euo pipefail
out=${BENCH_OUT:-$(cd "$(dirname "$0")" && pwd)/out}
tree=${BENCH_TREE:-$out/tree}
mkdir -p "$out/debs"

# The newest of each; releases name them differently.
patterns=('^linux-source-[0-9.]+$' '^linux-doc-[0-9.]+$' '^rust-doc$' '^trilinos-doc$')
if [ ! -d "$tree" ]; then
    cd "$out/debs"
    for pattern in "${patterns[@]}"; do
        package=$(apt-cache search --names-only "$pattern" | cut -d' ' -f1 | sort -V | tail -1)
        if [ -z "$package" ]; then
            echo "no package matches $pattern: the tree is smaller for it" >&2
        elif ! compgen -G "${package}_*.deb" > /dev/null; then
            apt-get download "$package"
        fi
    done
    mkdir "$tree.new"
    for package in *.deb; do dpkg -x "$package" "$tree.new"; done
    for source in "$tree.new"/usr/src/linux-source-*.tar.*; do
        tar -C "$tree.new/usr/src" -xf "$source"
    done
    mv "$tree.new" "$tree"
fi
[ -f "$out/tree.tar" ] || tar -C "$tree" -cf "$out/tree.tar" .
printf '%s: %d files, %d directories, %s\n' "$tree" \
    "$(find "$tree" ! -type d | wc -l)" "$(find "$tree" -type d | wc -l)" \
    "$(du -sh --apparent-size "$tree" | cut -f1)"
