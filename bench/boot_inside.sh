#!/bin/bash
# A boot recorded from inside, and from outside: what of the files that were read does
# the recorder in the initramfs see? The system of bench/boot.sh gets the recorder by
# `seekless record --install-boot`, and is booted in QEMU. The trace leaves the
# machine by a virtio port. The requests of the same boot are logged at the disk and
# mapped to files. The figure of docs/recording.md.
#
# Needs what bench/boot.sh needs, and loop devices; the program must be static
# (`make static`).
#
#   SEEKLESS, MODEL, BLOCK, KEEP, MIRROR, ACCEL   as for bench/boot.sh
#   INITRAMFS  what makes the initramfs of a new system, initramfs-tools or dracut
#              [initramfs-tools]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seekless=$(realpath "${SEEKLESS:-$here/../target/$(uname -m)-unknown-linux-gnu/static/seekless}")
. "$here/boot_machine.sh"

system_image
port=org.seekless.trace
cp --sparse=always "$image" "$work/inside"
mkdir "$work/mnt"
mount -o loop "$work/inside" "$work/mnt"
trap 'umount -l "$work/mnt"; finish' EXIT
# The system powers off when it is up: that ends the recording.
"$seekless" record --install-boot --recorder "$seekless" --root "$work/mnt" -- -o "/dev/virtio-ports/$port"
cp "$work"/mnt/boot/initrd.img-* "$work/initrd"
umount "$work/mnt"
trap finish EXIT
stat -L -c "initramfs: %s bytes" "$keep/initrd" "$work/initrd"

initrd=$work/initrd
devices="-device virtio-serial-pci -chardev file,id=trace,path=$work/inside.trace"
devices+=" -device virtserialport,chardev=trace,name=$port"
boot inside
[ -z "${KEEP:-}" ] || cp "$work/inside.trace" "$keep/"
"$seekless" trace import --blocks "$work/inside.log" --image "$work/inside" -o "$work/outside.trace"

# Blocks of regular files that were read from the disk, as each sees them.
mount -o loop,ro,noload "$work/inside" "$work/mnt"
trap 'umount -l "$work/mnt"; finish' EXIT
python3 - "$work/mnt" "$work/inside.trace" "$work/outside.trace" <<'PY'
import json, os, stat, sys
root, block = sys.argv[1], 4096
def blocks(trace):
    """The regular files' blocks of each read, in the order of the trace."""
    reads = []
    lines = open(trace)
    next(lines)
    for event in map(json.loads, lines):
        if event["op"] not in ("read", "fault") or "path" not in event or "length" not in event:
            continue
        try:
            meta = os.lstat(root + event["path"])
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(meta.st_mode):
            continue
        start, end = event.get("offset", 0), min(event.get("offset", 0) + event["length"], meta.st_size)
        reads.append([(event["path"], at) for at in range(start // block, -(-end // block))])
    return reads
inside, outside = map(blocks, sys.argv[2:])
# When the recording is over, the recorder reads the whole file system's structures, and
# the disk's read-ahead takes blocks of files with them. What was last read before, of
# the files that a boot does not write to, ends the comparison.
order = {}
for place, read in enumerate(outside):
    for key in read:
        order.setdefault(key, place)
late = [key for read in inside[-10:] for key in read if not key[0].startswith("/var/")]
end = max(order[key] for key in late if key in order)
inside = {key for read in inside for key in read}
outside = {key for key, place in order.items() if place <= end}
both = inside & outside
def files(found):
    return {path for path, _ in found}
def share(name, of, count):
    print(f"{name}: {len(of)} of {count} ({len(of) / count:.1%})")
share("files read from the disk that the recorder has", files(both), len(files(outside)))
share("their blocks that the recorder has", both, len(outside))
share("blocks that only the recorder has", inside - outside, len(inside))
print(f"blocks that were read after the end of the recording: {len(order) - len(outside)}")
lacking = {}
for path, _ in outside - inside:
    lacking[path] = lacking.get(path, 0) + 1
for path, count in sorted(lacking.items(), key=lambda item: (-item[1], item[0]))[:10]:
    print(f"  lacking {count:5} blocks of {path}")
PY
