#!/usr/bin/env python3
"""Compares `seekless check` with e2fsck on the damaged images of e2fsprogs' own tests.

    bench/e2fsprogs_cases.py [--source DIR] [--all] [--json FILE] [NAME...]

NAME      cases, by the names of their folders; all f_* and j_* without a name
--source  unpacked sources of e2fsprogs; without it, they are fetched by apt-get from a deb-src
          entry of their own, which leaves the system's entries as they are
--all     prints the rows of cases without a difference too
--json    writes every row to a file

The program is $SEEKLESS, or target/release/seekless. Needs e2fsprogs, and for the fetch apt-get,
the keys of Debian and tar. Nothing is mounted. Images are made in $TMPDIR.

A case is the image of its folder, or the one that its script has made when it first calls e2fsck
and e2fsck finds something. Folders whose script makes no image with the installed programs are left
out, and their number is printed. Each command runs on a copy of its own, for 20 seconds at most,
and so does a script.

verdict   whether there is anything to repair: `e2fsck -fn`, by its exit code or a question that it
          answers with no, compared with `seekless check -n`. A journal that is to be replayed
          counts, although e2fsck -n only warns of it
clean     `e2fsck -fn` finds nothing after `seekless check -y`, and after `e2fsck -fy`
in order  `seekless check` says that there is nothing to repair, or nothing any more after -y, where
          `e2fsck -fn` finds something
preen     whether -p repairs, or stops: `e2fsck -fp` and `seekless check -p`
keeps     every name after `e2fsck -fy` is there after `seekless check -y`, with the same kind and
          the same contents (`seekless manifest`). The contents of a name may have another name, as
          those of duplicate names and in lost+found do
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEKLESS = os.environ.get("SEEKLESS", str(ROOT / "target/release/seekless"))
SECONDS = "20"
MIRROR = "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What `tests/test_config` of the sources sets, with the installed programs.
CONFIG = """
FSCK={fsck} MKE2FS=mke2fs DUMPE2FS=dumpe2fs TUNE2FS=tune2fs CHATTR=chattr LSATTR=lsattr
E2IMAGE=e2image E2IMAGE_EXE=$(command -v e2image) DEBUGFS=debugfs DEBUGFS_EXE=$(command -v debugfs)
RESIZE2FS=resize2fs RESIZE2FS_EXE=$(command -v resize2fs) E2UNDO=e2undo
E2UNDO_EXE=$(command -v e2undo) TEST_BITS=test_data.tmp CLEAN_OUTPUT=cat
export TZ=GMT0 LC_ALL=C E2FSCK_CONFIG=/dev/null MKE2FS_CONFIG={tests}/mke2fs.conf
export BLKID_FILE=/dev/null EXT2FS_NO_MTAB_OK=yes E2FSPROGS_SKIP_PROGRESS=yes
export RESIZE2FS_FORCE_LAZY_ITABLE_INIT=yes E2FSPROGS_LIBMAGIC_SUPPRESS=yes
SRCDIR={tests} cmd_dir={tests} test_dir={folder} test_name={name} TMPFILE={image} DD=dd
. {folder}/script
"""
# Takes the place of e2fsck in a script: keeps the image that it is called for.
KEEPER = """#!/bin/sh
for argument; do
    if [ "$argument" = {image} ] && [ ! -e {kept}.damaged ]; then
        cp --sparse=always {image} {kept}
        timeout -s KILL {seconds} e2fsck -fn {kept} >{kept}.said 2>&1 || touch {kept}.damaged
        grep -q "skipping journal recovery" {kept}.said && touch {kept}.damaged
    fi
done
exec timeout -s KILL {seconds} e2fsck "$@"
"""


def fetch(folder, package):
    """Fetches and unpacks a package's sources of the Debian release that runs here; returns their folder."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    code = release.get("VERSION_CODENAME", "").strip('"') or sys.exit("no Debian release: give --source")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    entry = folder / "sources.list"
    entry.write_text(f"deb-src [signed-by={KEYS}] {MIRROR} {code} main\n")
    settings = {"Dir::Etc::sourcelist": entry, "Dir::Etc::sourceparts": "/dev/null",
                "Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache"}
    if os.getuid() == 0:
        settings["APT::Sandbox::User"] = "root"
    apt = ["apt-get", "-qq", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "source", "--download-only", package], check=True, cwd=folder)
    archive = next(it for it in folder.glob(f"{package}_*.orig.tar.*") if it.suffix != ".asc")
    subprocess.run(["tar", "xf", archive, "-C", folder], check=True)
    return next(folder.glob(f"{package}-*/"))


def run(*command):
    """Runs a command for a limited time; its exit code and what it says."""
    done = subprocess.run(["timeout", "-s", "KILL", SECONDS, *map(str, command)], capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def make(folder, to, scratch):
    """Writes the image of a case; whether it has one."""
    script = folder / "script"
    packed = folder / "image.gz"
    if packed.exists():
        with to.open("wb") as out:
            subprocess.run(["gunzip", "-c", packed], stdout=out, check=True)
        subprocess.run(["fallocate", "--dig-holes", to], check=False)
        return True
    if not script.exists():
        return False
    scratch.mkdir()
    image, fsck = scratch / "image", scratch / "fsck"
    image.touch()
    fsck.write_text(KEEPER.format(image=image, kept=to, seconds=SECONDS))
    fsck.chmod(0o755)
    config = CONFIG.format(fsck=fsck, tests=folder.parent, folder=folder, name=folder.name, image=image)
    subprocess.run(["timeout", "-s", "KILL", SECONDS, "sh", "-c", config], cwd=scratch, capture_output=True,
                   stdin=subprocess.DEVNULL, check=False)
    return to.exists() and to.stat().st_size > 0


def manifest(image):
    """Names of an image with kind and contents; `None` where it cannot be read."""
    code, text = run(SEEKLESS, "manifest", "--json", image)
    if code != 0:
        return None
    names = {}
    for line in text.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            kept = ("type",) if entry["type"] == "dir" else ("type", "size", "sha256digest", "link", "device")
            path = entry["path"]
            # A path that is no UTF-8 is an object with its bytes.
            names[path if isinstance(path, str) else json.dumps(path)] = json.dumps([entry.get(key) for key in kept])
    return names


def lost(theirs, ours):
    """Names and contents of `theirs` that `ours` lacks."""
    left = Counter(ours.values())
    for name, contents in theirs.items():
        if ours.get(name) == contents:
            left[contents] -= 1
    gone = []
    for name, contents in theirs.items():
        if ours.get(name) == contents:
            continue
        if left[contents] > 0:
            left[contents] -= 1
        else:
            gone.append(name)
    return gone


def verdict(code, said):
    """The exit code of `e2fsck -n`: not 0 where it asked for more than an optimization."""
    return code or int("? no" in said.replace("Optimize? no", ""))


def judge(folder, scratch):
    """The row of a case; `None` where it has no image."""
    scratch.mkdir()
    image = scratch / "image"
    if not make(folder, image, scratch / "script"):
        shutil.rmtree(scratch)
        return None

    def on_copy(*command):
        copy = scratch / "copy"
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        return (copy, *run(*command, copy))

    row = {"name": folder.name}
    _, asked, said = on_copy("e2fsck", "-fn")
    _, row["theirs -p"], _ = on_copy("e2fsck", "-fp")
    copy, row["theirs -y"], _ = on_copy("e2fsck", "-fy")
    row["theirs -n"] = verdict(asked, said) or int("skipping journal recovery" in said)
    row["theirs after -y"] = verdict(*run("e2fsck", "-fn", copy))
    theirs = manifest(copy)
    _, row["ours -n"], said = on_copy(SEEKLESS, "check", "-n")
    row["found"] = sorted(set(re.findall(r"\b[a-z]+(?:-[a-z]+)*\.[a-z]+(?:-[a-z]+)*\b", said)))
    _, row["ours -p"], _ = on_copy(SEEKLESS, "check", "-p")
    copy, row["ours -y"], said = on_copy(SEEKLESS, "check", "-y")
    code, row["asks"] = run("e2fsck", "-fn", copy)
    row["ours after -y"] = verdict(code, row["asks"])
    if row["ours -y"] > 1:
        row["refused"] = said.strip().splitlines()[-1:]
    ours = manifest(copy)
    row["compared"] = theirs is not None and ours is not None
    row["lost"] = lost(theirs, ours) if row["compared"] else [] if theirs is None else sorted(theirs)
    shutil.rmtree(scratch)
    return row


def stops(code):
    return code not in (0, 1)


RULES = {
    "same verdict": lambda row: (row["theirs -n"] == 0) == (row["ours -n"] == 0),
    "clean after -y": lambda row: row["ours after -y"] == 0,
    "clean after e2fsck -fy": lambda row: row["theirs after -y"] == 0,
    "not in order wrongly, -n": lambda row: row["ours -n"] != 0 or row["theirs -n"] == 0,
    "not in order wrongly, -y": lambda row: row["ours -y"] > 1 or row["ours after -y"] == 0,
    "same decision of -p": lambda row: stops(row["theirs -p"]) == stops(row["ours -p"]),
    "keeps what e2fsck keeps": lambda row: not row["lost"],
}
# The others are figures of e2fsck.
DIFFERENCES = [name for name in RULES if name != "clean after e2fsck -fy"]


CODES = ["theirs -n", "ours -n", "theirs -p", "ours -p", "theirs after -y", "ours -y", "ours after -y"]


def breaks(row, rules, names):
    """Those of the named rules that a row breaks."""
    return [name for name in names if not rules[name](row)]


def describe(title, row, keys, broken):
    """A row as a line: its exit codes, and the rules that it breaks."""
    codes = " ".join(f"{key} {row[key]}," for key in keys)
    text = f"{title}: {codes} broken: {', '.join(broken) or 'none'}"
    return text + (f"; lost: {', '.join(row['lost'][:8])}" if row["lost"] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="e2fsprogs-cases-") as scratch:
        scratch = Path(scratch)
        source = args.source.resolve() if args.source else fetch(scratch / "source", "e2fsprogs")
        folders = [it for kind in "fj" for it in sorted(source.glob(f"tests/{kind}_*/"))]
        folders = [it for it in folders if not args.name or it.name in args.name]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda it: judge(it, scratch / it.name), folders))
    rows = [row for row in made if row]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        broken = breaks(row, RULES, DIFFERENCES)
        if args.all or broken:
            print(describe(row["name"], row, CODES, broken))
    version = run("e2fsck", "-V")[1].splitlines()[0]
    print(f"\n{source.name}, judged by {version}; left out, without an image: {len(made) - len(rows)}")
    groups = {kind: [row for row in rows if row["name"].startswith(kind)] for kind in ("f_", "j_")}
    for name, holds in RULES.items():
        counts = (f"{kind}* {sum(map(holds, group))} of {len(group)}" for kind, group in groups.items())
        print(f"{name}: {', '.join(counts)}")
    print(f"without a comparison of contents: {sum(not row['compared'] for row in rows)}")


if __name__ == "__main__":
    main()
