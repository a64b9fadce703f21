#!/bin/bash
# Makes the small images that the damage tests and the fuzz target start from.
# Needs makefs (Debian: makefs). Run it in this directory.
# suj-ufs1 and suj-ufs2 are others: IMAGES=DIR cargo test -p seekless-crash journaled::images --
# --ignored writes them, and gzip -9n packs them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tree=$work/tree
mkdir -p "$tree"/{dir/below,many}
printf 'small' > "$tree/dir/small"
head -c 5000 /etc/services > "$tree/dir/below/text"
ln -s short "$tree/dir/fast"
ln -s "$(printf 'l%.0s' {1..150})" "$tree/dir/slow"
ln "$tree/dir/small" "$tree/dir/hard"
mkfifo "$tree/dir/fifo"
# A file that needs an indirect block.
for n in $(seq 60 70); do
    printf 'piece %02d' "$n" | dd of="$tree/pieces" bs=1024 seek="$n" conv=notrunc status=none
done
for n in $(seq 100 160); do : > "$tree/many/some-longer-name-$n"; done
touch -h -d @1700000000 $(find "$tree")

for version in 1 2; do
    for order in le be; do
        makefs -t ffs -T 1700000000 -B "$order" -s 400k -f 20 \
            -o "version=$version,bsize=4096,fsize=512" "$work/image" "$tree" > /dev/null
        gzip -9n < "$work/image" > "ufs$version-$order.img.gz"
    done
done
