#!/bin/bash
# Contexts of `build --file-contexts` beside those of matchpathcon (selinux-utils), by the lines of all
# modules of Debian's reference policy, for the paths of this machine:
#
#   bench/contexts.sh [SEEKLESS]
#
# Needs selinux-utils, semodule-utils and apt-get download.
set -euo pipefail
seekless=$(realpath "${1:-target/release/seekless}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq download selinux-policy-default 2>/dev/null
dpkg -x selinux-policy-default_*.deb policy
for module in policy/usr/share/selinux/default/*.pp.bz2; do
    bunzip2 -c "$module" >module.pp
    semodule_unpackage module.pp module.mod module.fc
    cat module.fc
done | grep -v 'HOME_DIR\|HOME_ROOT\|HOME_ROLE\|^#' | awk 'NF > 1' >file_contexts
echo "$(wc -l <file_contexts) lines of $(echo selinux-policy-default_*.deb)"

python3 - "$seekless" <<'END'
import base64, os, re, stat, subprocess, sys

SKIPPED = {"/proc", "/sys", "/dev", "/tmp", "/work", "/root"}
for root, dirs, files in os.walk("/"):
    dirs[:] = [name for name in dirs if os.path.join(root, name) not in SKIPPED]
    for name in dirs + files:
        path = os.path.join(root, name)
        copy, mode = "tree" + path, os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            os.makedirs(copy, exist_ok=True)
        elif stat.S_ISLNK(mode):
            os.symlink("target", copy)
        elif stat.S_ISREG(mode):
            open(copy, "w").close()

seekless, image = sys.argv[1], "disk.img"
build = [seekless, "build", "tree", "-o", image, "-q", "--file-contexts", "file_contexts"]
subprocess.run(build, check=True)
listing = subprocess.run([seekless, "manifest", image], check=True, capture_output=True, text=True)
plain = lambda text: re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), text.encode())
kinds = {"type=file": "file", "type=dir": "dir", "type=link": "lnk_file"}
ours = {kind: {} for kind in kinds}
for line in listing.stdout.splitlines()[1:]:
    path, kind, *words = line.split()
    found = [word.split("=", 1)[1] for word in words if word.startswith("xattr.security.selinux=")]
    context = base64.b64decode(found[0]).rstrip(b"\0") if found else b"<<none>>"
    ours[kind][plain(path)[1:] or b"/"] = context
paths = differing = 0
for kind, contexts in ours.items():
    names = list(contexts)
    for start in range(0, len(names), 500):
        part = names[start : start + 500]
        judge = ["matchpathcon", "-m", kinds[kind], "-f", "file_contexts", *part]
        said = subprocess.run(judge, capture_output=True).stdout.splitlines()
        theirs = dict(line.split(b"\t", 1) for line in said if b"\t" in line)
        for name in part:
            paths += 1
            if theirs.get(name, b"<<none>>") != contexts[name]:
                differing += 1
                print(name, contexts[name], theirs.get(name))
print(f"{paths} paths, {differing} differ")
sys.exit(differing > 0)
END
