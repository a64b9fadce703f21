#!/bin/bash
# What the score of a recorded trace predicts, and what the program itself, run from
# cold caches, asks the disk for: on an image by mke2fs, on one that cp -a has filled,
# and on one optimized for the trace; then on one that was recorded and optimized once
# more. Prints the tables of docs/figures.md and docs/recording.md. The trace is
# recorded on the image by mke2fs. Needs root, python3, git, gcc and 8 GB in TMPDIR.
#
#   SEEKLESS  the program [target/release/seekless]
#   BLOCKS    sizes of blocks ["4096 1024"]
#   PROGRAMS  which ones ["imports log compile find parallel"]; postgres and install
#             are run in a Debian system that mmdebstrap makes
#   SYSTEM    a tar of such a system, with postgresql and /hello.deb [made]
#   MIRROR    where its packages come from [http://deb.debian.org/debian]
#   RUNS      cold runs of each [5]
#   DEVICES   disks that the requests are timed on ["sata-7200 lazy-gp3"]
#   RESULTS   where to keep the results, as JSON, and what the programs said [nowhere]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
finish() {
    umount -R -l "$work/merged" 2>/dev/null || true
    umount -l "$work/over" 2>/dev/null || true
    umount -l "$work/mnt/tmp" 2>/dev/null || true
    umount -l "$work/mnt" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
results=${RESULTS:-$work/results}
mkdir -p "$work/merged" "$work/over" "$work/tree" "$work/usr/usr/bin" "$work/usr/usr/lib" "$work/usr/tmp" "$work/mnt" "$results"

# A Python installation and a git repository.
cp -r "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" "$work/tree/lib"
git clone -q --no-local "$here/.." "$work/tree/repo"

# A compiler with its linker, headers and libraries.
triple=$(gcc -print-multiarch)
for tool in gcc as ld; do
    path=$(command -v "$tool")
    cp "$(realpath "$path")" "$work/usr/usr/bin/$tool"
done
for part in /usr/include /usr/lib/gcc /usr/libexec/gcc; do
    [ -e "$part" ] || continue
    mkdir -p "$work/usr$(dirname "$part")"
    cp -a "$part" "$work/usr$part"
done
mkdir -p "$work/usr/usr/lib/$triple"
find "/usr/lib/$triple" -maxdepth 1 ! -type d -exec cp -a {} "$work/usr/usr/lib/$triple/" \;
cp -a /usr/lib64 "$work/usr/usr/" 2>/dev/null || true
ln -s usr/bin usr/lib usr/lib64 "$work/usr/"
printf '#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n%s\n' \
    'int main(void) { printf("%f\n", sqrt(atof("2"))); return 0; }' >"$work/usr/hello.c"

# A Debian system with a database, and a package that is not installed yet.
programs=${PROGRAMS:-imports log compile find parallel}
case $programs in
*postgres* | *install*)
    system=${SYSTEM:-$work/system.tar}
    [ -e "$system" ] || mmdebstrap --quiet --variant=minbase --include=apt,procps,postgresql \
        --customize-hook='chroot "$1" sh -c "cd /tmp && apt-get download hello && mv hello_*.deb /hello.deb"' \
        bookworm "$system" "${MIRROR:-http://deb.debian.org/debian}"
    mkdir "$work/system"
    tar -C "$work/system" -xpf "$system"
    cat >"$work/system/start-postgres" <<'SH'
#!/bin/sh
bin=$(echo /usr/lib/postgresql/*/bin) data=$(echo /var/lib/postgresql/*/main) etc=$(echo /etc/postgresql/*/main)
run() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
run "$bin/pg_ctl" -s -w -D "$data" -o "-c config_file=$etc/postgresql.conf -c dynamic_shared_memory_type=mmap -c unix_socket_directories=/tmp" -l /tmp/log start
run "$bin/psql" -h /tmp -qtc "select count(*) from pg_class" postgres
run "$bin/pg_ctl" -s -w -m fast -D "$data" stop
SH
    chmod +x "$work/system/start-postgres"
    ;;
esac

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
printf '#!/bin/sh\nfind "$1/lib" -name site-packages -prune -o -name "*.py" -print | xargs wc\n' >"$work/find"
printf '#!/bin/sh\nfind "$1/lib" -name site-packages -prune -o -name "*.py" -print | xargs -P4 -n 50 cat\n' >"$work/parallel"
chmod +x "$work/find" "$work/parallel"

# command_of PROGRAM: sets `tree`, `in_it` and `command`.
command_of() {
    tree=tree in_it=
    case $1 in
    imports) command=(python3 -S -E -B "$work/imports.py" {}) ;;
    log) command=(git -c 'safe.directory=*' -C {}/repo log -p) ;;
    find) command=("$work/find" {}) ;;
    parallel) command=("$work/parallel" {}) ;;
    postgres) tree=system in_it=--chroot command=(/start-postgres) ;;
    install) tree=system in_it=--chroot command=(/usr/bin/apt-get install -qq -y /hello.deb) ;;
    compile) tree=usr in_it=--chroot command=(/usr/bin/gcc -O2 /hello.c -lm -o /tmp/hello) ;;
    esac
}

# images_of TREE SIZE: one by mke2fs -d, one by cp -a. They hold the same: mke2fs makes
# holes of zeros and no indexes, so cp makes holes as well, and e2fsck indexes. Both then
# list directories in the same order, which is that of the hashes of names.
images_of() {
    local seed=hash_seed=6d0a0b57-2c41-4d3a-9a52-0f3f2f1c7e11
    mke2fs -q -F -t ext4 -b "$block" -E "$seed" -d "$work/$1" "$work/$1.mke2fs" "$2" >/dev/null
    e2fsck -fyD "$work/$1.mke2fs" >/dev/null || [ $? = 1 ]
    mke2fs -q -F -t ext4 -b "$block" -E "lazy_itable_init=0,$seed" "$work/$1.cp" "$2" >/dev/null
    mount -o loop "$work/$1.cp" "$work/mnt"
    cp -a --sparse=always "$work/$1/." "$work/mnt"
    umount "$work/mnt"
}

# relay FROM TO: records the program on one image and optimizes it into another.
relay() {
    mount -o loop,ro,noatime "$1" "$work/mnt"
    local run=("${command[@]//\{\}/$work/mnt}")
    if [ -n "$in_it" ]; then
        # As seekless runs it: under an overlay that takes what is written.
        mount -t tmpfs none "$work/over"
        mkdir "$work/over/upper" "$work/over/work"
        mount -t overlay -o "lowerdir=$work/mnt,upperdir=$work/over/upper,workdir=$work/over/work" none "$work/merged"
        for part in proc dev; do
            [ ! -d "$work/merged/$part" ] || mount --rbind --make-rslave "/$part" "$work/merged/$part"
        done
        run=(chroot "$work/merged" "${command[@]}")
    fi
    "$seekless" record --mount "$work/mnt" -o "$2.trace" -- "${run[@]}" >"$results/$program.record" 2>&1 || true
    if [ -n "$in_it" ]; then
        umount -R "$work/merged"
        umount "$work/over"
    fi
    umount "$work/mnt"
    "$seekless" optimize "$1" --trace "$2.trace" -o "$2" --force -q >/dev/null
}

# verify NAME IMAGE TRACE: the exit code says how good the prediction is.
verify() {
    local devices=() device
    for device in ${DEVICES-sata-7200 lazy-gp3}; do devices+=(--device "$device"); done
    "$seekless" score "$2" --trace "$3" --verify-program $in_it --explain --runs "${RUNS:-5}" --json "${devices[@]}" \
        -- "${command[@]}" >"$results/$1.json" 2>"$results/$1.err" || [ $? = 1 ]
}

for block in ${BLOCKS:-4096 1024}; do
    images_of tree 1600M
    images_of usr 1000M
    [ ! -d "$work/system" ] || images_of system 1600M
    for program in $programs; do
        command_of "$program"
        image=$work/$tree
        relay "$image.mke2fs" "$image.optimized"
        for layout in mke2fs cp optimized; do
            verify "$program.$block.$layout" "$image.$layout" "$image.optimized.trace"
        done
        relay "$image.optimized" "$image.again"
        verify "$program.$block.again" "$image.again" "$image.again.trace"
        rm -f "$image.optimized" "$image.again"
    done
    rm -f "$work"/*.mke2fs "$work"/*.cp
done
python3 "$here/programs.py" "$results"
