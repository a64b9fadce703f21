# Functions of the benchmarks of mounted UFS volumes; sourced. Sets `seekless` and `dir`, a directory
# that is removed at the end, with the mount point `$dir/at`.
seekless=$(realpath "${SEEKLESS:-target/release/seekless}")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/ufs-mount.XXXXXX")
server=
clean() {
    umount -l "$dir/at" 2>/dev/null || true
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean EXIT
mkdir "$dir/at"

# Prints the seconds since $1, of date +%s%N.
since() { echo "$1 $(date +%s%N)" | awk '{ printf "%.2f", ($2 - $1) / 1e9 }'; }

# Mounts $dir/image with the options $1; messages are in $dir/messages.
mount_it() {
    "$seekless" mount -f "$dir/image" "$dir/at" -o "$1" 2>"$dir/messages" &
    server=$!
    until mountpoint -q "$dir/at"; do
        kill -0 "$server" 2>/dev/null || { cat "$dir/messages" >&2; exit 1; }
        sleep 0.005
    done
}

# Unmounts it, and waits for the end of the server.
unmount_it() { umount "$dir/at"; wait "$server"; server=; }
