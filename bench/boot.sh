#!/bin/bash
# What laying an image out does for a whole boot. A Debian system (systemd, nginx,
# PostgreSQL) is booted in QEMU from a modelled disk on the network, its blocks are
# recorded there, without an agent in the guest, and the image is optimized for
# them. Then four boots: as built and optimized, each with and without a service
# that begins by fetching the chunks which the boot needs, four at a time. The
# table of docs/recording.md.
#
# Needs root, mmdebstrap, qemu-system-x86_64, qemu-img, e2fsprogs, 12 GB in TMPDIR. Where the
# processor cannot virtualize, QEMU interprets: boots take half a minute then, and
# read what they read anyway.
#
#   SEEKLESS  the program [target/release/seekless]
#   MODEL     the modelled disk [lazy-gp3]
#   CHUNK     what it fetches at once [512K]
#   REALTIME  1: the disk takes the time that it models, and boots last accordingly
#   KEEP      a directory that keeps the system between runs, and the last logs
#   MIRROR    where packages come from [http://deb.debian.org/debian]
#   ACCEL     kvm or tcg [kvm where a first boot with it succeeds]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/release/seekless}")
model=${MODEL:-lazy-gp3} chunk=${CHUNK:-512K}
work=$(mktemp -d)
disk=$work/disk
finish() {
    [ -z "${KEEP:-}" ] || cp "$work"/*.log "$work"/*.console "$work/trace" "$KEEP" 2>/dev/null || true
    umount -l "$disk" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "${KEEP:-$work/system}" "$disk"
keep=$(realpath "${KEEP:-$work/system}")

# The system, as a person would make one. A unit at the end of the boot asks the
# database and the server something, and powers off.
make_system() {
    packages=systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools,e2fsprogs,procps,kmod
    packages+=,ifupdown,openssh-server,cron,rsyslog,curl,python3,nginx-light,postgresql
    mmdebstrap --quiet --variant=minbase --include="$packages" bookworm "$work/system.tar" \
        "${MIRROR:-http://deb.debian.org/debian}"
    mkdir "$work/root"
    tar -C "$work/root" -xpf "$work/system.tar"
    rm "$work/system.tar"
    cp "$work"/root/boot/vmlinuz-* "$keep/vmlinuz"
    cp "$work"/root/boot/initrd.img-* "$keep/initrd"
    echo "/dev/vda / ext4 defaults,noatime 0 1" >"$work/root/etc/fstab"
    units=$work/root/etc/systemd/system
    cat >"$units/boot-end.service" <<'UNIT'
[Unit]
Description=End of the measured boot
After=multi-user.target nginx.service postgresql.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'su postgres -c "psql -qtc \'select count(*) from pg_class\'" && curl -s -o /dev/null http://localhost/ && echo boot-end at $(cut -d" " -f1 /proc/uptime)'
ExecStart=/bin/systemctl --no-block poweroff
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
UNIT
    cat >"$units/fetch.service" <<'UNIT'
[Unit]
Description=Fetches the chunks of a boot
DefaultDependencies=no
ConditionPathExists=/fetch.list
[Service]
ExecStart=/bin/sh -c 'xargs -P 4 -L 1 sh -c \'dd if=/dev/vda of=/dev/null iflag=direct,skip_bytes,count_bytes bs=1M skip=$0 count=$1 status=none\' </fetch.list'
[Install]
WantedBy=sysinit.target
UNIT
    for want in multi-user.target/boot-end sysinit.target/fetch; do
        mkdir -p "$units/${want%/*}.wants"
        ln -s "../${want#*/}.service" "$units/${want%/*}.wants/"
    done
    mke2fs -q -F -t ext4 -d "$work/root" "$keep/made.img" 3G
    rm -rf "$work/root"
    # The first boot writes keys, an identity and a journal; later ones only read.
    for accel in ${ACCEL:-kvm tcg}; do
        cp --sparse=always "$keep/made.img" "$keep/first"
        echo "$accel" >"$keep/accel"
        if machine "$keep/first" direct 600 | grep -a "boot-end at"; then
            e2fsck -fp "$keep/first" >/dev/null || [ $? -eq 1 ]
            mv "$keep/first" "$keep/image"
            rm "$keep/made.img"
            return
        fi
        echo "no boot with $accel" >&2
    done
    exit 1
}

# machine IMAGE overlay|direct SECONDS: boots; with an overlay writes stay there.
machine() {
    local accel cpu=max drive=file=$1,format=raw
    accel=$(cat "$keep/accel")
    if [ "$2" = overlay ]; then
        # In units of a block: else a write would read what lies around it.
        qemu-img create -q -f qcow2 -F raw -b "$1" -o cluster_size=4096 "$work/overlay"
        drive=file=$work/overlay,format=qcow2
    fi
    [ "$accel" = tcg ] || { cpu=host; [ -w /dev/kvm ] || return 1; }
    timeout "$3" qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -m 1024 -smp 2 \
        -nographic -nodefaults -no-reboot -serial stdio \
        -kernel "$keep/vmlinuz" -initrd "$keep/initrd" \
        -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0" \
        -drive "$drive,if=none,id=root" \
        -device virtio-blk-pci,drive=root,request-merging=off </dev/null || true
}

# boot NAME: boots an image from the modelled disk; what the disk counted.
boot() {
    "$seekless" disk "$work/$1" "$disk" --model "$model" --io-log "$work/$1.log" -q \
        ${REALTIME:+--realtime} &
    local server=$!
    until [ -e "$disk/disk" ]; do
        kill -0 $server
        sleep 0.1
    done
    machine "$disk/disk" overlay 600 >"$work/$1.console"
    grep -qa "boot-end at" "$work/$1.console" || { cat "$work/$1.console" >&2; exit 1; }
    cp "$disk/stats.json" "$work/$1.json"
    umount "$disk"
    wait $server
}

# row NAME: its figures, with the chunks that its reads lie in.
row() {
    local up
    up=$(grep -ao "boot-end at [0-9.]*" "$work/$1.console")
    python3 - "$work/$1.json" "$work/$1.log" "$chunk" "$1" "${up##* }" <<'PY'
import json, sys
stats, log, chunk, name, up = json.load(open(sys.argv[1])), *sys.argv[2:]
chunk, block = int(chunk[:-1]) << {"K": 10, "M": 20}[chunk[-1]], 4096
chunks, blocks = set(), set()
for line in open(log):
    request = json.loads(line)
    if request["op"] == "read":
        first, end = request["offset"], request["offset"] + request["bytes"]
        chunks.update(range(first // chunk, (end - 1) // chunk + 1))
        blocks.update(range(first // block, (end - 1) // block + 1))
floor = -(-len(blocks) * block // chunk)
print(f"{name:16} reads {stats['reads']:5}  seeks {stats['seeks']:5}  {stats['read_bytes'] / 1e6:5.1f} MB  "
      f"chunks {len(chunks):3} (floor {floor:3})  busy {stats['busy_ms'] / 1e3:5.2f} s  up at {up} s")
PY
}

[ -e "$keep/image" ] || make_system
ln -s "$keep/image" "$work/built"
boot built
"$seekless" trace import --blocks "$work/built.log" --image "$keep/image" -o "$work/trace"
"$seekless" optimize "$keep/image" --trace "$work/trace" -o "$work/optimized" --chunk "$chunk" -q
e2fsck -fn "$work/optimized" >&2
echo "promised:"
"$seekless" score "$keep/image" "$work/optimized" --trace "$work/trace" --chunk "$chunk" --device "$model" |
    grep -vE "^ *prefetch"
boot optimized
# The chunks that the trace needs of an image, in the order of first use.
for name in built optimized; do
    "$seekless" score "$work/$name" --trace "$work/trace" --io-log "$work/$name.asked" -q >/dev/null
    python3 - "$work/$name.asked" "$chunk" >"$work/list" <<'PY'
import json, sys
chunk, seen = int(sys.argv[2][:-1]) << {"K": 10, "M": 20}[sys.argv[2][-1]], set()
for line in open(sys.argv[1]):
    request = json.loads(line)
    for number in range(request["offset"] // chunk, (request["offset"] + request["bytes"] - 1) // chunk + 1):
        if number not in seen:
            seen.add(number)
            print(number * chunk, chunk)
PY
    cp --sparse=always "$work/$name" "$work/$name,fetch"
    debugfs -w -R "write $work/list /fetch.list" "$work/$name,fetch" >/dev/null 2>&1
    debugfs -R "stat /fetch.list" "$work/$name,fetch" 2>/dev/null | grep -q "Type: regular"
    boot "$name,fetch"
done
echo "booted:"
for name in built optimized built,fetch optimized,fetch; do row "$name"; done
