# What bench/in_place.sh, bench/relayout.sh and bench/relayout_xfs.sh begin with: an image
# that is 80% full, filled by cp -a, and programs that are recorded on it. They say what is
# needed and what can be set; `fs` is the kind of the image [ext4].
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
finish() {
    umount -l "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/mnt" "$work/tree"
cp -r "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" "$work/tree/lib"
mkdir "$work/tree/gcc"
cp -a /usr/lib/gcc/. "$work/tree/gcc"
printf 'int main(void) { return 0; }\n' >"$work/tree/hello.c"
printf 'import sys\nsys.path[:] = [sys.argv[1] + "/lib", sys.argv[1] + "/lib/lib-dynload"]\nimport %s\n' \
    "asyncio, http.client, sqlite3, unittest, decimal, ctypes, multiprocessing, email.mime.text, logging.config, concurrent.futures, tkinter, xml.etree.ElementTree, pydoc, turtle, idlelib" \
    >"$work/imports.py"
printf '#!/bin/sh\nfind "$1/lib" -name site-packages -prune -o -name "*.py" -print | xargs wc\n' >"$work/find"
chmod +x "$work/find"

# How large the image is when the tree fills 80% of it.
size=$(($(du -sm --apparent-size "$work/tree" | cut -f1) * 10 / 8 + 100))M
case ${fs:=ext4} in
ext4) mke2fs -q -F -t ext4 -b 4096 -E lazy_itable_init=0 "$work/image" "$size" ;;
xfs)
    truncate -s "$size" "$work/image"
    mkfs.xfs -q -f -i exchange=1 "$work/image" 2>/dev/null || {
        mkfs.xfs -q -f "$work/image"
        python3 "$here/xfs_exchange.py" "$work/image"
    }
    ;;
esac
mount -o loop "$work/image" "$work/mnt"
cp -a "$work/tree/." "$work/mnt"
umount "$work/mnt"
rm -rf "$work/tree"

# prepare PROGRAM: records it, and makes a new image of ext4 for what it reads. Sets
# `command`.
prepare() {
    case $1 in
    find) command=("$work/find" {}) ;;
    compile) command=(gcc -c -O2 -B {}/gcc/x86_64-linux-gnu/"$(gcc -dumpversion)" {}/hello.c -o /dev/null) ;;
    imports) command=(python3 -S -E -B "$work/imports.py" {}) ;;
    esac
    mount -o loop,ro,noatime "$work/image" "$work/mnt"
    "$seekless" record --mount "$work/mnt" -o "$work/trace" -- "${command[@]//\{\}/$work/mnt}" >/dev/null 2>&1 || true
    umount "$work/mnt"
    [ "$fs" = ext4 ] || return 0
    "$seekless" optimize "$work/image" --trace "$work/trace" -o "$work/new" --force -q >/dev/null
}
