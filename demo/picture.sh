#!/usr/bin/env bash
# The picture of README.md: the map that `make demo` has drawn, as PNG. Needs the Debian package
# chromium. The demo's tree is this machine's toolchain, so pictures differ between machines.
#
#   demo/picture.sh [FILE]    [docs/map.png]
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
page=${OUT:-$here/demo-out}/map.html
picture=$(realpath -m "${1:-$here/docs/map.png}")
[ -f "$page" ] || { echo "picture: there is no $page: run make demo first" >&2; exit 1; }
command -v chromium >/dev/null || { echo "picture: needs chromium (apt-get install chromium)" >&2; exit 1; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# Chromium does not run in its sandbox as root; the page is our own and loads nothing.
HOME=$home chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
    --virtual-time-budget=10000 --window-size=1200,1580 --screenshot="$picture" "file://$page" 2>/dev/null
[ -s "$picture" ] || { echo "picture: chromium made no $picture" >&2; exit 1; }
echo "$picture"
