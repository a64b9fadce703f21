# The machine of bench/boot.sh and bench/boot_inside.sh, which say what it needs and
# what can be set: a Debian system (systemd, nginx, PostgreSQL), booted in QEMU from
# a modelled disk.
model=${MODEL:-lazy-gp3} chunk=${CHUNK:-512K} block=${BLOCK:-4096}
work=$(mktemp -d)
disk=$work/disk
finish() {
    [ -z "${KEEP:-}" ] || cp "$work"/*.log "$work"/*.console "$work/trace" "$KEEP" 2>/dev/null || true
    umount -l "$disk" "$work/from" "$work/to" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "${KEEP:-$work/system}" "$disk"
keep=$(realpath "${KEEP:-$work/system}")

# The system, as a person would make one. A unit at the end of the boot asks the
# database and the server something, and powers off.
make_system() {
    packages=systemd-sysv,udev,dbus,linux-image-cloud-amd64,${INITRAMFS:-initramfs-tools},e2fsprogs,procps,kmod
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

# system_image: the system in blocks of that size; made if it is not there, the one
# with other blocks than 4096 bytes from the one with them. Sets `image`.
system_image() {
    image=$keep/image
    [ -e "$image" ] || make_system
    [ "$block" = 4096 ] && return
    image=$keep/image.$block
    [ -e "$image" ] && return
    mkdir -p "$work/from"
    mount -o loop,ro,noload "$keep/image" "$work/from"
    mke2fs -q -F -t ext4 -b "$block" -d "$work/from" "$work/made.$block" 3G
    umount "$work/from"
    mv "$work/made.$block" "$image"
}

# copied IMAGE: what cp makes of the system on a new file system. mke2fs makes holes of
# zeros, so cp makes holes as well.
copied() {
    mkdir -p "$work/from" "$work/to"
    mke2fs -q -F -t ext4 -b "$block" -E lazy_itable_init=0 "$1" 3G
    mount -o loop,ro,noload "$image" "$work/from"
    mount -o loop "$1" "$work/to"
    cp -a --sparse=always "$work/from/." "$work/to"
    umount "$work/from" "$work/to"
}

# machine IMAGE overlay|direct SECONDS: boots; with an overlay writes stay there. With
# `initrd` another one than that of the system, with more `devices`, and with `append`
# more arguments of the kernel.
machine() {
    local accel cpu=max drive=file=$1,format=raw
    accel=$(cat "$keep/accel")
    if [ "$2" = overlay ]; then
        # In units of a block: else a write would read what lies around it from the disk.
        # A cluster has 32 of them; if it were a block, its tables would be so short that
        # QEMU splits requests between two.
        qemu-img create -q -f qcow2 -F raw -b "$1" \
            -o extended_l2=on,cluster_size=$((32 * block)) "$work/overlay"
        drive=file=$work/overlay,format=qcow2
    fi
    [ "$accel" = tcg ] || { cpu=host; [ -w /dev/kvm ] || return 1; }
    timeout "$3" qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -m 1024 -smp 2 \
        -nographic -nodefaults -no-reboot -serial stdio \
        -kernel "$keep/vmlinuz" -initrd "${initrd:-$keep/initrd}" \
        -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 ${append:-}" \
        -drive "$drive,if=none,id=root" \
        -device virtio-blk-pci,drive=root,request-merging=off ${devices:-} </dev/null || true
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
