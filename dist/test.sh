#!/bin/bash
# Judges the Debian packages: lintian, and an installation of this machine's in a clean
# Debian in which it builds and checks an image. A program for another processor builds the
# same image under its emulator (qemu-user-static), bit by bit. Needs root, lintian,
# mmdebstrap and e2fsprogs.
#
#   dist/test.sh [DIR]    where dist/make.sh has written to [target/dist]
#   MIRROR                where packages come from [http://deb.debian.org/debian]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath "${1:-${CARGO_TARGET_DIR:-$here/target}/dist}")
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'umount -l "$work/root/proc" 2>/dev/null; rm -rf "$work"' EXIT
(cd "$out" && sha256sum -c --quiet SHA256SUMS)
lintian --fail-on error,warning "$out"/*.deb
package=$(echo "$out"/*_"$(dpkg --print-architecture)".deb)
own=$(echo "$out"/seekless-*-"$(uname -m)"-linux)
for other in "$out"/seekless-*-linux; do
    [ "$other" != "$own" ] || continue
    arch=${other%-linux}
    "$own" -q build "$here/docs" -o "$work/own.img" --force
    "qemu-${arch##*-}-static" "$other" -q build "$here/docs" -o "$work/other.img" --force
    cmp "$work/own.img" "$work/other.img"
    e2fsck -fn "$work/other.img" >/dev/null
    rm "$work/own.img" "$work/other.img"
done
mmdebstrap --quiet --variant=minbase --include=man-db,e2fsprogs bookworm "$work/root" "${MIRROR:-http://deb.debian.org/debian}"
cp "$package" "$work/root/seekless.deb"
mount -t proc proc "$work/root/proc"
inside() { chroot "$work/root" env LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
inside dpkg -i /seekless.deb >/dev/null
inside seekless --version
inside seekless build /etc -o /etc.img
inside e2fsck -fn /etc.img >/dev/null
inside seekless check /etc.img
inside man -w seekless seekless-build seekless-optimize seekless-formats
inside dpkg -V seekless
inside dpkg -r seekless >/dev/null
left=$(inside find / -xdev -name "*seekless*" -not -name seekless.deb -not -path "/var/lib/dpkg/*" -not -path "/proc/*")
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
# One file in a container without anything else.
mkdir "$work/empty"
cp "$own" "$work/empty/seekless"
chroot "$work/empty" /seekless --version
