#!/bin/bash
# What laying an image out does for the programs themselves: each is recorded on
# an image by mke2fs, the image optimized for the trace, and the program run again
# from cold caches; then the same once more from the optimized image. The table of
# docs/recording.md. Needs root, python3, git and 3 GB in TMPDIR.
#
#   SEEKLESS  the program [target/release/seekless]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
work=$(mktemp -d)
finish() { umount -l "$work/mnt" 2>/dev/null || true; rm -rf "$work"; }
trap finish EXIT
mkdir -p "$work/tree" "$work/mnt"

cp -r "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" "$work/tree/lib"
git clone -q --no-local "$here/.." "$work/tree/repo"
mke2fs -q -F -t ext4 -b 4096 -d "$work/tree" "$work/image" 1500M

cat >"$work/imports.py" <<'PY'
import importlib, pkgutil, sys
root = sys.argv[1]
sys.path[:] = [root + "/lib", root + "/lib/lib-dynload", root + "/lib/site-packages"]
names = ["json", "asyncio", "http.client", "xml.etree.ElementTree", "sqlite3", "unittest", "decimal",
         "ctypes", "multiprocessing", "email.mime.text", "logging.config", "concurrent.futures"]
names += sorted(module.name for module in pkgutil.iter_modules([sys.path[2]]))[:40]
for name in names:
    try:
        importlib.import_module(name)
    except BaseException:
        pass
PY
printf '#!/bin/sh\nfind "$1/lib" -name "*.py" | head -3000 | xargs wc\n' >"$work/find"
printf '#!/bin/sh\nfind "$1/lib" -name "*.py" | head -3000 | xargs -P4 -n 50 cat\n' >"$work/parallel"
chmod +x "$work/find" "$work/parallel"

# relay FROM TO COMMAND: records on one image and optimizes it into another.
relay() {
    mount -o loop,ro,noatime "$work/$1" "$work/mnt"
    # shellcheck disable=SC2086
    "$seekless" record --mount "$work/mnt" -o "$work/trace" -- ${3//\{\}/$work/mnt} >/dev/null 2>&1 || true
    umount "$work/mnt"
    "$seekless" optimize "$work/$1" --trace "$work/trace" -o "$work/$2" --force -q >/dev/null
}

program() {
    echo "== $1"
    relay image laid "$2"
    relay laid again "$2"
    for image in image laid again; do
        python3 "$here/programs.py" "$work/$image" 2 "$2" | sed "s/^/$image: /"
    done
    "$seekless" score "$work/laid" --trace "$work/trace" --chunk 512K | grep -E 'seeks  |chunks|floor'
}

program "python imports" "python3 -S -E -B $work/imports.py {}"
program "git log -p" "git -c safe.directory=* -C {}/repo log -p"
program "find | xargs wc" "$work/find {}"
program "xargs -P4 cat" "$work/parallel {}"
