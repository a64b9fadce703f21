#!/bin/bash
# Makes the small images that the damage tests and the fuzz targets start from.
# Needs e2fsprogs and attr; the ACLs need root. Run it in this directory.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export E2FSPROGS_FAKE_TIME=1700000000

tree=$work/tree
mkdir -p "$tree"/{dir/below,many}
printf 'small' > "$tree/dir/small"
head -c 5000 /etc/services > "$tree/dir/below/text"
ln -s short "$tree/dir/fast"
ln -s "$(printf 'l%.0s' {1..150})" "$tree/dir/slow"
ln "$tree/dir/small" "$tree/dir/hard"
mkfifo "$tree/dir/fifo"
# A file in pieces, for maps with blocks of their own.
for n in $(seq 0 24); do
    printf 'piece %02d' "$n" | dd of="$tree/pieces" bs=1024 seek=$((n * 3)) conv=notrunc status=none
done
for n in $(seq 100 160); do : > "$tree/many/some-longer-name-$n"; done
setfattr -n user.note -v "a value" "$tree/dir/small"
setfattr -n user.large -v "$(printf 'v%.0s' {1..600})" "$tree/dir/below/text"
setfacl -m u:1234:rw "$tree/dir/small"
touch -h -d @1700000000 $(find "$tree")

make() { # NAME SIZE OPTIONS...
    local image=$work/$1 size=$2
    shift 2
    mke2fs -q -F -b 1024 -N 112 -U 12345678-1234-1234-1234-123456789abc \
        -E hash_seed=12345678-1234-1234-1234-123456789abc -d "$tree" "$@" "$image" "$size"
    e2fsck -fyD "$image" > /dev/null 2>&1 || true
    e2fsck -fn "$image" > /dev/null 2>&1
}
small=^has_journal,^resize_inode
make ext2 192K -t ext2 -O "$small,dir_index"
make ext4 192K -t ext4 -O "$small"
make inline 192K -t ext4 -O "$small,inline_data" -I 256
make features 256K -t ext4 -O "$small,meta_bg,^flex_bg,metadata_csum_seed,large_dir,ea_inode" -g 256 -N 128
make bigalloc 512K -t ext4 -O "$small,bigalloc" -C 4096
make journal 2200K -t ext4 -J size=1 -O ^resize_inode
# A transaction that was committed and not written back: a data block and a
# revoke record.
block=$(debugfs -R 'blocks /dir/below/text' "$work/journal" 2> /dev/null | cut -d' ' -f1)
head -c 1024 /dev/zero | tr '\0' 'J' > "$work/block"
printf 'jo -c -v 3\njw -b %d %s\njw -r %d\njw -b %d %s\njc\n' \
    "$block" "$work/block" "$((block + 1))" "$block" "$work/block" > "$work/commands"
debugfs -w -f "$work/commands" "$work/journal" > /dev/null 2>&1
debugfs -w -R 'feature needs_recovery' "$work/journal" > /dev/null 2>&1
# Fast commits on top of a transaction, as the kernel leaves them: the copy is
# taken while the volume is mounted. Needs root and a kernel that has them.
make fastcommit 8M -t ext4 -O fast_commit,^resize_inode -J size=2,fast_commit_size=64
mkdir "$work/mount"
mount -o loop,noatime "$work/fastcommit" "$work/mount"
python3 - "$work/mount" <<'PYTHON'
import os, sys
root = sys.argv[1]
def fsync(name):
    fd = os.open(os.path.join(root, name), os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def write(name, data):
    with open(os.path.join(root, name), "wb") as file:
        file.write(data)
fsync(".")
write("dir/created", b"by a fast commit" * 200)
fsync("dir/created")
os.rename(f"{root}/dir/created", f"{root}/dir/renamed")
os.unlink(f"{root}/many/some-longer-name-100")
fsync("dir/renamed")
os.mkdir(f"{root}/dir/new")
write("dir/new/below", b"below")
os.link(f"{root}/dir/renamed", f"{root}/dir/new/second")
fsync("dir/new/below")
with open(f"{root}/dir/below/text", "r+b") as file:
    file.truncate(1500)
    os.fsync(file.fileno())
    for piece in range(9):
        os.pwrite(file.fileno(), b"piece", 20000 + piece * 4096)
    os.fsync(file.fileno())
PYTHON
cp "$work/fastcommit" "$work/copy"
umount "$work/mount"
mv "$work/copy" "$work/fastcommit"

# Quota files whose trees have several blocks on each level: owners all over the range of numbers.
# Needs root.
owners=$work/owners
mkdir "$owners"
for owner in 0 1 2 255 256 1000 65534 65536 100000 16777216 16777217 305419896 4294967294; do
    for n in 1 2; do
        head -c $((n * 700)) /etc/services > "$owners/$owner-$n"
        chown "$owner:$((owner / 3))" "$owners/$owner-$n"
    done
done
for n in $(seq 2000 2060); do
    : > "$owners/many-$n"
    chown "$n:$n" "$owners/many-$n"
done
touch -d @1700000000 "$owners" "$owners"/*
tree=$owners make quota 512K -t ext4 -O "$small,quota,project" -I 256 -E quotatype=usrquota:grpquota:prjquota

for image in ext2 ext4 inline features bigalloc journal fastcommit quota; do
    gzip -9n < "$work/$image" > "$image.img.gz"
done
