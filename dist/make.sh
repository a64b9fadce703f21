#!/bin/bash
# What is given out: the program as one static file, an archive of it with its manual
# pages, and a Debian package of the same. The same program gives the same archives. Needs
# what `make static` needs, and dpkg-deb for the package; for a processor that is not this
# machine's also its emulator (qemu-user-static), to have the program write its pages.
#
#   dist/make.sh [DIR]    where to [target/dist]
#   ARCHES                for which processors [that of this machine]; aarch64, x86_64
#   MAINTAINER            whose address the package has [seekless@users.noreply.github.com]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$here/target}/dist}")
cd "$here"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
maintainer=${MAINTAINER:-seekless@users.noreply.github.com}
# An initramfs holds the program.
most=$((20 << 20))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files of an installation, below $tree.
install_files() {
    install -D "$program" "$tree/usr/bin/seekless"
    mkdir -p "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" \
        "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d"
    "${run[@]}" -q generate man "$tree/usr/share/man/man1" >/dev/null
    "${run[@]}" generate completions bash >"$tree/usr/share/bash-completion/completions/seekless"
    "${run[@]}" generate completions zsh >"$tree/usr/share/zsh/vendor-completions/_seekless"
    "${run[@]}" generate completions fish >"$tree/usr/share/fish/vendor_completions.d/seekless.fish"
    mkdir -p "$tree/usr/share/man/man5"
    mv "$tree"/usr/share/man/man1/*.5 "$tree/usr/share/man/man5"
    gzip -9n "$tree"/usr/share/man/man1/* "$tree"/usr/share/man/man5/*
    install -D -m 644 dist/seekless-watch@.service "$tree/usr/lib/systemd/system/seekless-watch@.service"
    install -D -m 644 dist/watch.toml "$tree/usr/share/doc/seekless/watch.toml"
    doc=$tree/usr/share/doc/seekless
    mkdir -p "$doc"
    cp README.md "$doc/"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: seekless
Source: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)

Files: *
Copyright: the authors of seekless
License: MIT or Apache-2.0

License: MIT
$(sed '1,/^$/d; s/^$/./; s/^/ /' LICENSE-MIT)

License: Apache-2.0
 On Debian systems the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
    chmod -R u=rwX,go=rX "$tree"
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# The Debian package of these files.
package() {
    mkdir -p "$tree/DEBIAN" "$tree/usr/share/lintian/overrides"
    cat >"$tree/usr/share/lintian/overrides/seekless" <<END
# It runs in an initramfs, where nothing else is.
seekless: statically-linked-binary [usr/bin/seekless]
seekless: shared-library-lacks-prerequisites [usr/bin/seekless]
# Names of files that an experiment writes in a file system of its own.
seekless: uses-dpkg-database-directly [usr/bin/seekless]
END
    cat >"$tree/DEBIAN/control" <<END
Package: seekless
Version: $version
Architecture: $1
Maintainer: the authors of seekless <$maintainer>
Installed-Size: $(du -sk --apparent-size "$tree/usr" | cut -f1)
Recommends: fuse3, e2fsprogs
Suggests: qemu-utils
Section: admin
Priority: optional
Homepage: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
Description: store files that are used together next to each other
 Builds ext4, UFS and FAT images, records what a program reads from a file
 system, and rearranges images and mounted volumes so that it is read with
 fewer seeks, and with fewer chunks of a lazily loaded volume.
END
    # Debian has a form of its own for changelogs; the project's are its news.
    mv "$doc/changelog.gz" "$doc/NEWS.gz"
    {
        echo "seekless ($version) unstable; urgency=medium"
        echo
        echo "  * Changes are told in /usr/share/doc/seekless/NEWS.gz."
        echo
        echo " -- the authors of seekless <$maintainer>  $(date -uRd "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$doc/changelog.gz"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    chmod -R u=rwX,go=rX "$tree"
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out" >/dev/null
}

rm -rf "$out"
mkdir -p "$out"
for arch in ${ARCHES:-$(uname -m)}; do
    case $arch in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) debian=$(dpkg --print-architecture 2>/dev/null || echo "$arch") ;;
    esac
    program=$(make -s static ARCH="$arch" | tee /dev/stderr | awk 'END { print $NF }')
    [ "$(stat -c %s "$program")" -le $most ] || { echo "$program: larger than 20 MiB" >&2; exit 1; }
    run=("$program")
    if [ "$arch" != "$(uname -m)" ]; then
        run=("qemu-$arch-static" "$program")
        command -v "${run[0]}" >/dev/null || { echo "${run[0]} is missing: apt-get install qemu-user-static" >&2; exit 1; }
    fi
    tree=$work/$arch
    mkdir "$tree"
    install_files
    name=seekless-$version-$arch-linux
    tar --sort=name --owner=0 --group=0 --numeric-owner --transform "s,^\./usr,$name," \
        -C "$tree" -c ./usr | gzip -9n >"$out/$name.tar.gz"
    cp "$program" "$out/$name"
    if command -v dpkg-deb >/dev/null; then
        package "$debian"
    fi
done
(cd "$out" && sha256sum -- * >SHA256SUMS)
stat -c "%s bytes  %n" "$out"/*
