#!/bin/sh
# How far the read-write mount is from POSIX, beside fuse2fs on the same
# machine: pjdfstest (the Rust one) and fsx, on fresh images in a directory
# that should be a tmpfs. Needs root, FUSE, cargo, and the Debian packages
# e2fsprogs and fuse2fs. FSX_RUNS of 20,000 operations (by default a million in all)
# are for each of the default mounts, UFS2 with soft updates and ext4 with an
# ordered journal, one for each other.
#
#   bench/posix.sh [DIR] [FSX_RUNS]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/dev/shm/seekless-posix}
most=${2:-50}
seekless=${SEEKLESS:-$here/target/release/seekless}
tools=$work/tools
mkdir -p "$work/mnt"
cd "$work"
for tool in pjdfstest@0.2.2 fsx@0.3.2; do
    [ -x "$tools/bin/${tool%@*}" ] || cargo install -q --locked --root "$tools" "$tool"
done
for user in pjd1 pjd2 pjd3; do
    id "$user" >/dev/null 2>&1 || useradd -M "$user"
done
cat >pjdfstest.toml <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
stat_st_birthtime = {}
[settings]
naptime = 0.01
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["pjd1", "pjd1"], ["pjd2", "pjd2"], ["pjd3", "pjd3"]]
END

wait_for() {
    for _ in $(seq 100); do
        mountpoint -q mnt && return 0
        sleep 0.1
    done
    echo "$1: not mounted" >&2
    exit 1
}

judge() {
    chmod 777 mnt
    summary=$("$tools/bin/pjdfstest" -c pjdfstest.toml -p mnt 2>&1 | tee "$1.pjdfstest" | grep ^Summary)
    echo "$1: pjdfstest: $summary"
    grep ' FAILED' "$1.pjdfstest" || true
    # fsx forgets to unmap what it maps, and slows down: many short runs.
    runs=1
    case $1 in ufs2-softdep | ext4-ordered) runs=$most ;; esac
    faults=0
    for seed in $(seq "$runs"); do
        "$tools/bin/fsx" -q -S "$seed" -N 20000 -P . mnt/fsx >"$1.fsx" 2>&1 || {
            faults=$((faults + 1))
            cp "$1.fsx" "$1.fsx.$seed"
        }
    done
    echo "$1: fsx: $runs runs of 20,000 operations, $faults with a fault"
    umount mnt
    wait || echo "$1: the mount ended with an error"
}

for format in ufs1 ufs2; do
    for discipline in softdep async normal sync; do
        "$seekless" mkfs --force --format $format -s 2G image >/dev/null
        "$seekless" mount -f image mnt -o rw,$discipline,dev,suid &
        wait_for $format
        judge $format-$discipline
        fls -r -p -u image >$format-$discipline.fls 2>&1 || echo "$format-$discipline: fls fails"
    done
done
for discipline in normal softdep async sync; do
    rm -f image
    mke2fs -q -t ext2 image 2G
    "$seekless" mount -f image mnt -o rw,$discipline,dev,suid &
    wait_for ext2
    judge ext2-$discipline
    e2fsck -fn image >ext2-$discipline.e2fsck 2>&1 || echo "ext2-$discipline: e2fsck finds faults"
done
for format in ext3 ext4; do
    for mode in ordered writeback data; do
        rm -f image
        mke2fs -q -t $format image 2G
        "$seekless" mount -f image mnt -o rw,journal=$mode,dev,suid &
        wait_for $format
        judge $format-$mode
        e2fsck -fn image >$format-$mode.e2fsck 2>&1 || echo "$format-$mode: e2fsck finds faults"
    done
done
rm -f image
mke2fs -q -t ext4 image 2G
fuse2fs image mnt -f -o dev,suid,allow_other >fuse2fs.log 2>&1 &
wait_for fuse2fs
judge fuse2fs
e2fsck -fn image >fuse2fs.e2fsck 2>&1 || echo "fuse2fs: e2fsck finds faults"
rm -f image
