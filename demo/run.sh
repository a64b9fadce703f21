#!/usr/bin/env bash
# The main job, start to end, on this machine's own Rust toolchain: build an
# image, record a compiler run from it, re-lay it, compare, draw.
# Needs no root where fusermount3 is there; root needs nothing else.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$here/demo-out}
seekless=${CARGO_TARGET_DIR:-$here/target}/release/seekless

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
    echo "demo: /dev/fuse is not there or not open to you; recording through a mount needs it" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ] && ! command -v fusermount3 >/dev/null; then
    echo "demo: needs fusermount3 (apt-get install fuse3), or root" >&2
    exit 1
fi

say "Building seekless"
(cd "$here" && cargo build --release --workspace --exclude seekless-python)
mkdir -p "$out/mnt"
cd "$out"
rm -f before.img after.img rustc.trace map.html hello

# The tree: the toolchain that has just compiled this. A distribution's lives in
# /usr, of which the rest would only make the demonstration longer.
tree=$(rustc --print sysroot)
exclude=(--exclude /share)
if [ "$tree" = /usr ]; then
    exclude+=(--exclude /src --exclude /include --exclude /games --exclude /local)
fi

say "1. An ext4 image of $tree"
time "$seekless" build "$tree" -o before.img "${exclude[@]}"
"$seekless" info before.img

say "2. rustc compiles a program, run from a read-only mount of the image; its reads are recorded"
cat > hello.rs <<'RUST'
use std::collections::BTreeMap;
fn main() {
    let words: BTreeMap<_, _> = "so it goes".split(' ').map(|w| (w, w.len())).collect();
    println!("{words:?}");
}
RUST
compiler() {
    local libraries={}/lib dir
    for dir in mnt/lib/*-linux-gnu*; do [ -d "$dir" ] && libraries+=:{}/${dir#mnt/}; done
    compile=(env "LD_LIBRARY_PATH=$libraries" {}/bin/rustc -O hello.rs -o hello)
}
# Root records on a mount of the kernel's, whose requests have the order in which threads make
# them; everybody else through FUSE, which sees one request after the other.
recorded=
if [ "$(id -u)" -eq 0 ] && mount -o ro,loop before.img mnt 2>/dev/null; then
    trap 'umount mnt' EXIT
    compiler
    if "$seekless" record --mount mnt -o rustc.trace -- "${compile[@]//\{\}/$PWD/mnt}"; then
        recorded=kernel
    fi
    umount mnt
    trap - EXIT
fi
if [ -z "$recorded" ]; then
    "$seekless" mount before.img mnt --record rustc.trace
    trap 'umount mnt 2>/dev/null || fusermount3 -u mnt' EXIT
    compiler
    "${compile[@]//\{\}/$PWD/mnt}"
    umount mnt 2>/dev/null || fusermount3 -u mnt
    trap - EXIT
    flock rustc.trace true
fi
./hello
"$seekless" trace show rustc.trace | head -n 12
echo "... $(wc -l < rustc.trace) events"

say "3. The image re-laid by that trace"
time "$seekless" optimize before.img --trace rustc.trace -o after.img > /dev/null

say "4. What it won"
"$seekless" score before.img after.img --trace rustc.trace

if [ "$(id -u)" -eq 0 ]; then
    say "   What the compiler itself asks the disk for, run from cold caches on both images"
    echo "Its threads read at once, in an order that differs from run to run:"
    if [ "$recorded" = kernel ]; then
        echo "a run may make some tenths more or fewer seeks than the score counts."
    else
        echo "the recording through FUSE does not see it; more seeks than the score counts are expected."
    fi
    "$seekless" score before.img after.img --trace rustc.trace --chunk 512K --verify-program \
        -- "${compile[@]}" || [ $? = 1 ] || echo "(not possible on this machine)"
fi

say "5. A picture of where the reads fell"
"$seekless" map before.img after.img --trace rustc.trace --html map.html
echo "open $out/map.html"

if command -v e2fsck >/dev/null || [ -x /sbin/e2fsck ]; then
    say "6. e2fsck's opinion"
    PATH=$PATH:/sbin:/usr/sbin e2fsck -fn after.img
fi
"$seekless" manifest --compare before.img after.img && echo "contents and attributes: equal"
