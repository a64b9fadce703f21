#!/bin/bash
# Makes the small images that the damage tests and the fuzz target start from.
# Needs mkfs.fat and mtools (Debian: dosfstools, mtools). Run it in this directory.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MTOOLS_SKIP_CHECK=1 MTOOLSRC=/dev/null TZ=UTC SOURCE_DATE_EPOCH=1700000000

tree=$work/tree
mkdir -p "$tree"/{dir/below,many}
printf 'small' > "$tree/dir/SMALL.TXT"
for n in $(seq 0 11); do
    printf 'piece %02d' "$n" | dd of="$tree/pieces" bs=512 seek="$n" conv=notrunc status=none
done
head -c 3000 /etc/services > "$tree/dir/below/a text with a long name.text"
: > "$tree/dir/empty"
printf 'snow' > "$tree/dir/snow ☃ Ünïcode.txt"
for n in $(seq 100 140); do : > "$tree/many/some-longer-name-$n"; done
find "$tree" -exec touch -d @1700000000 {} +

# mtools writes FAT32 only where it has 65,525 clusters; the first 500 are kept.
shrink() {
    python3 - "$1" <<'EOF'
import struct, sys
path, clusters = sys.argv[1], 500
old = bytearray(open(path, "rb").read())
(reserved,), (sectors,) = struct.unpack_from("<H", old, 14), struct.unpack_from("<I", old, 36)
few = -(-(clusters + 2) * 4 // 512)
fat = old[reserved * 512 : (reserved + few) * 512]
data = (reserved + 2 * sectors) * 512
new = old[: reserved * 512] + fat + fat + old[data : data + clusters * 512]
for boot in (0, 6 * 512):
    struct.pack_into("<H", new, boot + 19, 0)
    struct.pack_into("<I", new, boot + 32, len(new) // 512)
    struct.pack_into("<I", new, boot + 36, few)
used = sum(1 for n in range(2, clusters + 2) if struct.unpack_from("<I", fat, n * 4)[0])
struct.pack_into("<I", new, 512 + 488, clusters - used)
open(path, "wb").write(new)
EOF
}

for kind in "12 1 400" "16 1 2200" "32 1 34000"; do
    read -r bits cluster kib <<<"$kind"
    image=$work/image
    rm -f "$image"
    mkfs.fat -C -a -F "$bits" -s "$cluster" -f 2 --invariant -n "SMALL IMAGE" "$image" "$kib" \
        > /dev/null 2>&1
    # A hole in front of a file that does not fit in it: it lies in two runs.
    mcopy -i "$image" "$tree/dir/SMALL.TXT" ::HOLE1
    mcopy -i "$image" "$tree/dir/SMALL.TXT" ::HOLE2
    mcopy -i "$image" "$tree/dir/SMALL.TXT" ::STAYS
    mcopy -s -m -i "$image" "$tree/dir" "$tree/many" ::
    mdel -i "$image" ::HOLE1 ::HOLE2
    # The hint of FAT32 leads behind the hole.
    [ "$bits" != 32 ] || printf '\2\0\0\0' | dd of="$image" bs=1 seek=1004 conv=notrunc status=none
    mcopy -m -i "$image" "$tree/pieces" ::pieces
    [ "$bits" != 32 ] || shrink "$image"
    fsck.fat -n "$image" > /dev/null
    gzip -9n < "$image" > "fat$bits.img.gz"
done
