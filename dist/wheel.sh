#!/bin/bash
# The wheel of the Python module, for Linux with glibc 2.17 or later and Python 3.9 or later.
# Needs Rust, Python with venv, and the network: maturin and zig, which links with the older
# glibc, are installed to target/tools where they are missing.
#
#   dist/wheel.sh [DIR]   where to [target/dist]
#   ARCHES                for which processors [that of this machine]; aarch64, x86_64
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$here/target}")
out=$(realpath -m "${1:-$target/dist}")
cd "$here"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C
# The last versions that were tried.
maturin=maturin==1.16.0
zig=ziglang==0.17.1

tools=$target/tools/wheel
if ! "$tools/bin/python" -m pip freeze 2>/dev/null | grep -qx "$maturin" ||
    ! "$tools/bin/python" -m pip freeze 2>/dev/null | grep -qx "$zig"; then
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install -q --disable-pip-version-check "$maturin" "$zig"
fi
PATH=$tools/bin:$PATH
for arch in ${ARCHES:-$(uname -m)}; do
    triple=$arch-unknown-linux-gnu
    if ! [ -d "$(rustc --print target-libdir --target "$triple")" ]; then
        echo "Rust's library is missing: rustup target add $triple" >&2
        exit 1
    fi
    maturin build --release --zig --compatibility manylinux_2_17 --target "$triple" \
        --manifest-path crates/python/Cargo.toml --out "$out"
done
for made in "$out"/seekless-*.whl; do
    stat -c "%s bytes  %n" "$made"
done
