#!/usr/bin/env bash
# The map that `make demo` has drawn, as PNG. Needs the Debian package chromium.
#
#   OUT                       the directory of the map [demo-out]
#   demo/picture.sh [FILE]    [map.png in OUT]
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$here/demo-out}
page=$out/map.html
picture=$(realpath -m "${1:-$out/map.png}")
[ -f "$page" ] || { echo "picture: there is no $page: run make demo first" >&2; exit 1; }
command -v chromium >/dev/null || { echo "picture: needs chromium (apt-get install chromium)" >&2; exit 1; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# Chromium does not run in its sandbox as root; the page is our own and loads nothing.
HOME=$home chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
    --virtual-time-budget=10000 --window-size=1200,1580 --screenshot="$picture" "file://$page" 2>/dev/null
[ -s "$picture" ] || { echo "picture: chromium made no $picture" >&2; exit 1; }
echo "$picture"
