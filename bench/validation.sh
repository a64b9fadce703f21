#!/bin/bash
# The table of docs/figures.md: what `seekless score` predicts, set against
# what the running kernel asks a loop device for. Three workloads on three
# images each: mke2fs -d, cp -a, and `seekless optimize`. Needs root, gcc and
# python3, and 4 GB of room.
#
#   SEEKLESS        the program [target/release/seekless]
#   VALIDATION_OUT  where trees, images and results go [bench/out/validation]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
SEEKLESS=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
out=${VALIDATION_OUT:-$here/out/validation}
mkdir -p "$out"
cd "$out"
mkdir -p mnt

mounted=
finish() { if [ -n "$mounted" ]; then umount -l "$mounted"; fi; }
trap finish EXIT
mount_on() { mount "$@" mnt; mounted=$PWD/mnt; }
unmount() { umount mnt; mounted=; }

# 20,000 files of 0 to 64 KiB, most of them small, and a list of 3,000 of them.
small_tree() {
    python3 - <<'PY'
import os, random
random.seed(1)
paths = []
for n in range(20000):
    d = f"small/d{n % 20}/e{n % 400}"
    os.makedirs(d, exist_ok=True)
    size = min(int(random.lognormvariate(8, 1.4)), 65536)
    with open(f"{d}/f{n}", "wb") as f: f.write(random.randbytes(size))
    paths.append(f"/{d[6:]}/f{n}")
random.shuffle(paths)
open("small.list", "w").write("\n".join(paths[:3000]) + "\n")
PY
}

# 75,000 files in 1,500 directories.
walk_tree() {
    python3 - <<'PY'
import os
for n in range(75000):
    d = f"walk/a{n % 15}/b{n // 15 % 100}"
    os.makedirs(d, exist_ok=True)
    with open(f"{d}/file-{n}", "w") as f: f.write("x" * (n % 100))
PY
}

# The compiler's part of this machine's /usr.
usr_tree() {
    mkdir -p usr/tmp usr/usr/lib
    for part in bin include libexec lib/gcc lib/x86_64-linux-gnu lib/aarch64-linux-gnu lib64; do
        [ -e "/usr/$part" ] || continue
        mkdir -p "usr/usr/$(dirname "$part")"
        cp -a "/usr/$part" "usr/usr/$part"
    done
    for link in bin lib lib64; do ln -s "usr/$link" "usr/$link"; done
    cat >usr/hello.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
int main(void) { printf("%f\n", sqrt(atof("2"))); return 0; }
C
}

# size_of TREE: room for it, in MiB.
size_of() { echo $(($(du -sm --apparent-size "$1" | cut -f1) * 13 / 10 + $(find "$1" | wc -l) / 150 + 64)); }

images_of() {
    local size
    size=$(size_of "$1")
    truncate -s "${size}M" "$1.mke2fs"
    mke2fs -q -F -t ext4 -N "$(($(find "$1" | wc -l) * 5 / 4 + 1000))" -d "$1" "$1.mke2fs"
    truncate -s "${size}M" "$1.cp"
    mke2fs -q -F -t ext4 -E lazy_itable_init=0 -N "$(($(find "$1" | wc -l) * 5 / 4 + 1000))" "$1.cp"
    mount_on -o loop "$1.cp"
    cp -a "$1/." mnt
    unmount
}

trace_of() {
    case $1 in
    small) "$SEEKLESS" trace import --paths small.list -o small.trace ;;
    walk)
        "$SEEKLESS" mount -f walk.mke2fs mnt --record walk.trace &
        local server=$!
        while ! [ -e mnt/a0 ]; do sleep 0.1; done
        find mnt -size +1M
        umount mnt
        wait $server
        ;;
    usr)
        mount_on -o loop,ro usr.mke2fs
        mount -t tmpfs none mnt/tmp
        "$SEEKLESS" record --mount mnt -o usr.trace -- \
            chroot mnt gcc -O2 hello.c -lm -o /tmp/hello
        umount mnt/tmp
        unmount
        ;;
    esac
}

for name in ${WORKLOADS:-small usr walk}; do
    [ -e "$name" ] || "${name}_tree"
    [ -e "$name.cp" ] || images_of "$name"
    [ -e "$name.trace" ] || trace_of "$name"
    "$SEEKLESS" -q optimize "$name.mke2fs" --trace "$name.trace" -o "$name.optimized" --force >/dev/null
    for image in mke2fs cp optimized; do
        "$SEEKLESS" score "$name.$image" --trace "$name.trace" --verify-kernel --json \
            >"$name.$image.json" || [ $? = 1 ]
    done
done

python3 - <<'PY'
import json, os
print("| workload | image | requests: score, kernel | seeks | metadata share | chunks of 512K | bytes | worst |")
print("|---|---|---|---|---|---|---|---|")
for name in ("small", "usr", "walk"):
    for image in ("mke2fs", "cp", "optimized"):
        if not os.path.exists(f"{name}.{image}.json"): continue
        v = json.load(open(f"{name}.{image}.json"))
        p, k = v["predicted"], v["kernel"]
        share = lambda f: f["metadata_requests"] / max(f["requests"], 1)
        both = lambda key: f"{p[key]:,}, {k[key]:,}"
        chunks = f"{p['chunks']['524288']:,}, {k['chunks']['524288']:,}"
        worst = max(v["difference_percent"].values(), key=abs)
        print(f"| {name} | {image} | {both('requests')} | {both('seeks')} | {share(p):.3f}, {share(k):.3f} "
              f"| {chunks} | {both('bytes')} | {worst:+.1f}% |")
print(f"\nLinux {v['kernel_release']}")
PY
