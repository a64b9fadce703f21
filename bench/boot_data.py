#!/usr/bin/env python3
"""Writes what `seekless lab run boots` is given: which packages a Debian system consists
of, with the lengths of their files, and what a boot of it reads. Contents are left out.

    boot_data.py ROOT TRACE DIR

ROOT is the mounted image of bench/boot.sh (KEEP/image), TRACE what bench/boot_inside.sh
recorded of it (KEEP/inside.trace). Writes DIR/system.zst and DIR/boot.trace.zst.
"""
import json, os, stat, subprocess, sys

root, trace, out = sys.argv[1:]
RANKS = {"required": 1, "important": 2, "standard": 3}


def packages():
    """Names and lists of the installed packages, as they are unpacked: essential ones
    first, then by priority and name."""
    found = []
    for paragraph in open(f"{root}/var/lib/dpkg/status").read().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line[1:] and line[0] != " ")
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, info = fields["Package"], f"{root}/var/lib/dpkg/info"
        lists = [f"{info}/{name}.list", f"{info}/{name}:{fields['Architecture']}.list"]
        rank = 0 if fields.get("Essential") == "yes" else RANKS.get(fields.get("Priority"), 4)
        found.append((rank, name, next(path for path in lists if os.path.exists(path))))
    return sorted(found)


def canonical(path):
    """A path of a package without the links that merge /bin, /lib and /sbin into /usr."""
    parent = os.path.realpath(root + os.path.dirname(path))
    # Absolute links lead out of the mount.
    parent = parent[len(root):] if parent.startswith(root) else os.path.dirname(path)
    return os.path.join(parent or "/", os.path.basename(path))


lines, seen, inodes = ["# seekless system 1"], {"/"}, {}


def add(path):
    meta = os.lstat(root + path)
    if path in seen:
        return
    seen.add(path)
    assert "\t" not in path and "\n" not in path, path
    if stat.S_ISDIR(meta.st_mode):
        lines.append(f"d\t{path}")
    elif stat.S_ISLNK(meta.st_mode):
        lines.append(f"s\t{path}\t{os.readlink(root + path)}")
    elif stat.S_ISREG(meta.st_mode):
        if meta.st_nlink > 1 and meta.st_ino in inodes:
            lines.append(f"h\t{path}\t{inodes[meta.st_ino]}")
            return
        inodes[meta.st_ino] = path
        lines.append(f"f\t{path}\t{meta.st_size}")


for _, name, listing in packages():
    lines.append(f"p\t{name}")
    for path in map(canonical, open(listing).read().splitlines()):
        # /. is the root; some files of packages are left out by configuration.
        if path not in ("/", "/.") and os.path.lexists(root + path):
            add(path)
# What was made on the machine belongs to nobody.
lines.append("p\t-")
for directory, names, files in os.walk(root):
    names.sort()
    for name in sorted(names + files):
        path = os.path.join(directory, name)[len(root):]
        if path != "/lost+found":
            add(path)

events = []
with open(trace) as file:
    header = next(file)
    for line in file:
        event = json.loads(line)
        # The first that was begun after the system was up.
        if event.get("comm") == "systemd-shutdow":
            break
        events.append(line)
# The last thing that the boot does is to ask for the time (`cut`); the shutdown follows.
end = max(at for at, line in enumerate(events) if json.loads(line).get("comm") == "cut")
text = {"system": "\n".join(lines) + "\n", "boot.trace": header + "".join(events[: end + 1])}
for name, content in text.items():
    subprocess.run(["zstd", "-19", "-q", "-f", "-o", f"{out}/{name}.zst"], input=content.encode(), check=True)
    print(f"{name}.zst: {os.path.getsize(f'{out}/{name}.zst')} bytes of {len(content)}")
