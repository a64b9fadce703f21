#!/bin/sh
# Makes the small images of the tests of damage, with qemu-img and qemu-io (qemu-utils). Each
# holds 16 KiB of one byte at 8 KiB, zeros at 64 KiB and text at 100 KiB.
set -eu
cd "$(dirname "$0")"
fill() {
    qemu-io -f qcow2 -c 'write -P 0x55 8k 16k' -c 'write -z 64k 16k' -c 'write -P 0x74 100k 4k' "$1" >/dev/null
}
make() {
    name=$1 options=$2
    qemu-img create -q -f qcow2 -o "$options" "$name.qcow2" 1M
    fill "$name.qcow2"
}
make v2 compat=0.10,cluster_size=512
make v3 compat=1.1,cluster_size=4096
make extended cluster_size=16k,extended_l2=on
qemu-img convert -c -f qcow2 -O qcow2 -o cluster_size=4096 v3.qcow2 deflate.qcow2
qemu-img convert -c -f qcow2 -O qcow2 -o cluster_size=4096,compression_type=zstd v3.qcow2 zstd.qcow2
for image in *.qcow2; do gzip -9nf "$image"; done
