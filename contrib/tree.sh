# For the tests of the recipes, which source it: a small tree, and what judges an image of it.

# Ends the test as left out unless a program is there.
require() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is not installed"; exit 77; }
    done
}

# Ends the test as left out unless root runs it.
require_root() {
    [ "$(id -u)" -eq 0 ] || { echo "needs root"; exit 77; }
}

# A tree with a program, a configuration file, a symlink and a large file.
make_tree() {
    mkdir -p "$1/etc" "$1/usr/bin" "$1/var/lib"
    printf 'NAME=recipe\n' >"$1/etc/os-release"
    printf '#!/bin/sh\necho started\n' >"$1/usr/bin/start"
    chmod 755 "$1/usr/bin/start"
    ln -s usr/bin "$1/bin"
    seq 1 200000 >"$1/var/lib/numbers"
    find "$1" -exec touch -h -d @1700000000 {} +
}

# A trace in which /usr/bin/start comes first.
make_trace() {
    printf '/usr/bin/start\n/etc/os-release\n' >"$1.list"
    "$SEEKLESS" trace import --paths "$1.list" -o "$1"
}

# An ext4 image that e2fsck finds in order and that has the contents of the tree, as debugfs reads
# them.
judge() {
    local image=$1 tree=$2 file
    e2fsck -fn "$image"
    for file in etc/os-release usr/bin/start var/lib/numbers; do
        debugfs -R "cat /$file" "$image" 2>/dev/null | cmp - "$tree/$file"
    done
    debugfs -R 'stat /bin' "$image" 2>/dev/null | grep -q 'Fast link dest: "usr/bin"'
}
