#!/bin/sh
# How long reads take on a read-write mount while a file on it is appended to and fsynced:
# p50 and p99 over 4 processes that read other files, each read 4 KiB at a random place. The
# image lies on a device of its own, a modelled one served by `seekless disk --realtime`, which
# takes WRITE_US for a write, READ_US for a read and FLUSH_US for a flush. Cold: each reader's
# file is read for the first time after the mount. Warm: the engine has read it before, and the
# readers drop the kernel's pages (`POSIX_FADV_DONTNEED`) so that each read reaches the engine.
# Needs root, FUSE, Python, and the Debian packages e2fsprogs, dosfstools and fuse2fs (left out
# where it is not installed).
#
#   bench/latency.sh [DIR] [SECONDS] [FLUSH_US]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/var/tmp/seekless-latency}
seconds=${2:-10}
flush=${3:-20000}
seekless=${SEEKLESS:-$here/target/release/seekless}
mkdir -p "$work/disk" "$work/mnt"
cd "$work"
cat >device.toml <<END
name = "latency"
summary = "a device with a slow flush"

[volume]
iops = { rate = 100000 }
bandwidth = { rate = 1000000000 }
io_size = 262144
flush_us = $flush.0
read_latency = [{ share = 0.0, us = ${READ_US:-100}.0 }, { share = 1.0, us = ${READ_US:-100}.0 }]
write_latency = [{ share = 0.0, us = ${WRITE_US:-100}.0 }, { share = 1.0, us = ${WRITE_US:-100}.0 }]
END
cat >load.py <<'END'
import multiprocessing, os, random, sys, time

where, seconds, mode = sys.argv[1], float(sys.argv[2]), sys.argv[3]
SIZE, READERS = 16 << 20, 4

def name(n):
    return f"{where}/read{n}"

def open_reader(n):
    return os.open(name(n), os.O_RDONLY)

def read(n, until, out):
    fd, draw, times = open_reader(n), random.Random(n), []
    places = list(range(0, SIZE, 4096))
    draw.shuffle(places)
    turn = 0
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    # Cold: no place twice.
    while time.monotonic() < until and (mode == "warm" or turn < len(places)):
        at = places[turn % len(places)]
        turn += 1
        os.posix_fadvise(fd, at, 4096, os.POSIX_FADV_DONTNEED)
        began = time.monotonic()
        assert len(os.pread(fd, 4096, at)) == 4096
        times.append(time.monotonic() - began)
        # Readers that wait for nothing would only measure the processor.
        time.sleep(0.002)
    out.put(times)

def write(until, out):
    fd, times = os.open(f"{where}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), []
    while time.monotonic() < until:
        began = time.monotonic()
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
        times.append(time.monotonic() - began)
    out.put(times)

def at(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))] * 1000

if mode == "make":
    for n in range(READERS):
        with open(name(n), "wb") as file:
            file.write(random.Random(n).randbytes(SIZE))
            file.flush()
            os.fsync(file.fileno())
    sys.exit()
if mode == "warm":
    for n in range(READERS):
        with open(name(n), "rb") as file:
            while file.read(1 << 20):
                pass
until = time.monotonic() + seconds
reads, writes = multiprocessing.Queue(), multiprocessing.Queue()
workers = [multiprocessing.Process(target=read, args=(n, until, reads)) for n in range(READERS)]
workers.append(multiprocessing.Process(target=write, args=(until, writes)))
for worker in workers:
    worker.start()
times = [time for _ in range(READERS) for time in reads.get()]
synced = writes.get()
for worker in workers:
    worker.join()
print(f"{mode} | {at(times, .5):.2f} | {at(times, .99):.2f} | {max(times) * 1000:.1f} | {len(times)} | {at(synced, .5):.1f}")
END

wait_for() {
    for _ in $(seq 200); do
        if eval "$1"; then return 0; fi
        sleep 0.1
    done
    echo "$2: not there" >&2
    exit 1
}

# Waits until a server has written everything and has ended.
leave() {
    umount "$1"
    wait "$2" || true
}

serve() {
    "$seekless" -q disk --realtime --model device.toml image disk &
    disk=$!
    wait_for "[ -e disk/disk ]" disk
}

mount_it() {
    if [ "$1" = fuse2fs ]; then
        fuse2fs -f -o rw disk/disk mnt 2>/dev/null &
    else
        "$seekless" -q mount -f -o "rw,$1" disk/disk mnt &
    fi
    server=$!
    wait_for "mountpoint -q mnt" mnt
}

# measure NAME SERVER COMMAND...: makes the image with the command, then measures. The server
# is fuse2fs, or a discipline of `seekless mount`.
measure() {
    name=$1 server_of=$2
    shift 2
    rm -f image
    truncate -s 256M image
    "$@" >/dev/null 2>&1
    # The files are made on the image itself.
    if [ "$server_of" = fuse2fs ]; then
        fuse2fs -f -o rw image mnt 2>/dev/null &
    else
        "$seekless" -q mount -f -o "rw,$server_of" image mnt &
    fi
    server=$!
    wait_for "mountpoint -q mnt" mnt
    python3 load.py mnt 0 make
    leave mnt "$server"
    for mode in cold warm; do
        sync
        serve
        mount_it "$server_of"
        echo "| $name | $(python3 load.py mnt "$seconds" $mode) |"
        leave mnt "$server"
        leave disk "$disk"
    done
}

echo "| file system | readers | p50 ms | p99 ms | longest ms | reads | fsync p50 ms |"
echo "|---|---|---|---|---|---|---|"
measure "ext4, ordered journal" journal=ordered mke2fs -q -t ext4 -F image
measure "ext4, journal of data" journal=data mke2fs -q -t ext4 -F image
measure "ext4, writeback journal" journal=writeback mke2fs -q -t ext4 -F image
measure "ext2, async" async mke2fs -q -t ext2 -F image
measure "ext2, normal" normal mke2fs -q -t ext2 -F image
measure "ext2, sync" sync mke2fs -q -t ext2 -F image
measure "ext2, soft updates" softdep mke2fs -q -t ext2 -F image
measure "UFS2, soft updates" softdep "$seekless" -q mkfs --format ufs2 --force image
measure "UFS2, normal" normal "$seekless" -q mkfs --format ufs2 --force image
measure "UFS2, sync" sync "$seekless" -q mkfs --format ufs2 --force image
measure "FAT32, sync" sync "$seekless" -q mkfs --format fat32 --force image
measure "FAT32, soft updates" softdep "$seekless" -q mkfs --format fat32 --force image
if command -v fuse2fs >/dev/null; then
    measure "ext4, fuse2fs" fuse2fs mke2fs -q -t ext4 -F image
fi
