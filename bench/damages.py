#!/usr/bin/env python3
"""Compares `seekless check` with e2fsck on volumes of twelve kinds, and others, with random damage.

    bench/damages.py [--from SEED] [--count N] [--kind KIND]... [--all] [--strict] [--json FILE]
                     [--keep DIR]

--from   first seed, 0 without it
--count  number of seeds, 2,000 without it. Seed n damages kind n modulo 12
--kind   only these kinds; also mmp, verity and shared, which are left out without it. Of these, seed
         n damages kind n modulo 3
--all    prints the rows of cases without a difference too
--strict ends with 1 where the verdict differs, a volume is left that e2fsck repairs, or less is kept
--json   writes every row to a file
--keep   copies the damaged images of cases with a difference to a directory

The program is $SEEKLESS, or target/release/seekless. Needs e2fsprogs and setfattr. Nothing is
mounted. Volumes are made in $TMPDIR, or in /dev/shm without it, by `mke2fs -d`, debugfs and
`e2fsck -fD`, with files of several extents, holes, hard links, symlinks, devices, attributes, and
directories with an index. Each command runs on a copy of its own, for 20 seconds at most.

A seed damages one to three places of the volume's metadata: the superblock, descriptors, bitmaps,
inodes, blocks of directories, of extents and block numbers, of attributes, of the journal, of
quotas. A bit is changed, a byte or a number is set to another one, or a sector, an inode or a block
is zeroed, filled with random bytes or overwritten with another one of its kind.

verdict   whether there is anything to repair: `e2fsck -fn`, by its exit code or a question that it
          answers with no, compared with `seekless check -n`. A journal that is to be replayed
          counts, although e2fsck -n only warns of it
clean     `e2fsck -fn` finds nothing after `seekless check -y`, and after `e2fsck -fy`, which runs
          twice where the first run does not end with 0 or 1
in order  `seekless check` says that there is nothing to repair, or nothing any more after -y, where
          `e2fsck -fn` finds something
preen     whether -p repairs, or stops: `e2fsck -fp` and `seekless check -p`
keeps     every name of the sound volume that has its contents after `e2fsck -fy` has them after
          `seekless check -y`, and so do contents under other names (`seekless manifest`)
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2fsprogs_cases import CODES, RULES as E2FSPROGS_RULES, SEEKLESS, breaks, describe, manifest, run, verdict

TIME = "1700000000"
UUID = "6d9b3cbc-94f3-4b4e-8a4f-3d0b9a7a9f10"
# Options of mke2fs, and the size. Some have checksums; without, damage is not found by these.
KINDS = {
    "ext2": "-t ext2 -b 1024 8M",
    "ext3": "-t ext3 -b 1024 -J size=1 8M",
    "ext4": "-t ext4 -b 4096 -J size=4 24M",
    "plain": "-t ext4 -b 1024 -O ^metadata_csum,^64bit,uninit_bg -J size=1 8M",
    "bigalloc": "-t ext4 -b 1024 -O bigalloc,^metadata_csum,^resize_inode -C 8192 -J size=1 24M",
    "inline": "-t ext4 -b 1024 -O inline_data,orphan_file -I 256 -J size=1 8M",
    "ea_inode": "-t ext4 -b 1024 -O ea_inode,^metadata_csum -I 256 -J size=1 8M",
    "quota": "-t ext4 -b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota -I 256 -J size=1 8M",
    "meta_bg": "-t ext4 -b 1024 -g 1024 -O meta_bg,^resize_inode,^metadata_csum,uninit_bg -J size=1 10M",
    "casefold": "-t ext4 -b 1024 -O casefold,encrypt,metadata_csum_seed -E encoding=utf8 -J size=1 8M",
    "groups": "-t ext4 -b 1024 -g 2048 -O ^flex_bg,sparse_super2 -E lazy_itable_init=1,lazy_journal_init=1 -J size=1 12M",
    "journal": "-t ext4 -b 2048 -O ^metadata_csum,large_dir -J size=2 12M",
}
# Damaged only by name, so that the seeds of the others stay.
FURTHER = {
    "mmp": "-t ext4 -b 1024 -O mmp -J size=1 8M",
    "verity": "-t ext4 -b 1024 -O verity -J size=1 8M",
    "shared": "-t ext2 -b 1024 8M",
}
EXTENTS, INLINE, EA_INODE, VERITY = 0x80000, 0x10000000, 0x200000, 0x100000
# Bytes of the sealed file, and where its tree of hashes begins.
SEALED, TREE = 40_000, 65_536
WEIGHTS = {
    "superblock": 9, "descriptors": 9, "block bitmap": 4, "inode bitmap": 4, "inode": 30, "reserved inode": 7,
    "directory": 20, "map": 14, "attributes": 7, "journal": 4, "quota": 3, "mmp": 20, "anywhere": 2,
}


def contents(seed, length):
    return random.Random(f"contents {seed}").randbytes(length)


def populate(at):
    """Makes the tree that all volumes have."""
    for name in ("many", "few", "deep/er/still", "emptied"):
        (at / name).mkdir(parents=True)
    for n in range(150):
        (at / f"many/a-name-of-some-length-{n:03}").write_bytes(contents(n, 30 + n * 17))
    for n in range(8):
        (at / f"few/{n}").write_bytes(contents(1000 + n, n * 2500))
    (at / "deep/er/still/leaf").write_bytes(contents(2000, 5000))
    (at / "deep/er/twig").write_bytes(contents(2001, 70))
    os.link(at / "deep/er/twig", at / "deep/er/again")
    os.link(at / "deep/er/twig", at / "few/once-more")
    (at / "deep/empty").touch()
    for name, pieces, length in (("holes", 60, 1024), ("wide", 12, 4096)):
        with (at / name).open("wb") as file:
            for n in range(pieces):
                file.seek(n * 4 * length)
                file.write(contents(3000 + n, length))
    (at / "large").write_bytes(contents(4000, 700_000))
    (at / "fast").symlink_to("deep/er/twig")
    (at / "slow").symlink_to("many/" + "x/" * 120)
    for path, name, length in (("large", "long", 700), ("deep/er/twig", "note", 4), ("few", "note", 10),
                               ("few/1", "shared", 300), ("few/2", "shared", 300), ("few/3", "other", 60)):
        subprocess.run(["setfattr", "-n", f"user.{name}", "-v", "v" * length, at / path], check=True)
    for path in [*at.rglob("*"), at]:
        os.utime(path, (int(TIME), int(TIME)), follow_symlinks=False)


def make(*command, text=""):
    """Runs a program at the time of the volumes; its exit code and what it says."""
    env = {**os.environ, "E2FSPROGS_FAKE_TIME": TIME, "E2FSCK_TIME": TIME}
    done = subprocess.run([*map(str, command)], input=text.encode(), capture_output=True, check=False, env=env)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def debugfs(image, commands):
    make("debugfs", "-w", "-f", "-", image, text=f"set_current_time @{TIME}\n{commands}")


def build(kind, at, scratch):
    """Makes the sound volume of a kind."""
    *options, size = (KINDS | FURTHER)[kind].split()
    extended = ",".join(["hash_seed=" + UUID, *(options[n + 1] for n, it in enumerate(options) if it == "-E")])
    options = [it for n, it in enumerate(options) if "-E" not in (it, options[n - 1])]
    code, said = make("mke2fs", "-q", "-F", "-U", UUID, "-E", extended, *options, "-N", "512", "-d", scratch / "tree", at, size)
    if code:
        sys.exit(f"{kind}: {said}")
    value = scratch / f"{kind}-value"
    value.write_bytes(b"w" * 3000)
    commands = "mknod pipe p\nmknod tty c 4 1\nmknod disk b 259 70000\n"
    if kind == "ea_inode":
        commands += "".join(f"ea_set -f {value} /few/{n} user.big\n" for n in range(3, 6))
    if kind == "verity":
        sealed = scratch / "sealed"
        with sealed.open("wb") as file:
            file.write(contents(5000, SEALED))
            file.seek(TREE)
            file.write(contents(5001, 3000))
        commands += f"write {sealed} sealed\nsif sealed size {SEALED}\nsif sealed flags {VERITY | EXTENTS:#x}\n"
    if kind == "shared":
        # Two names of equal contents, with the blocks of one.
        blocks = subprocess.run(["debugfs", "-R", "blocks few/7", at], capture_output=True, check=True, text=True).stdout
        commands += "feature shared_blocks\n"
        commands += "".join(f"sif many/a-name-of-some-length-149 block[{n}] {block}\n" for n, block in enumerate(blocks.split()[:3]))
    debugfs(at, commands)
    code, said = make("e2fsck", "-fyD", at)
    if code > 1:
        sys.exit(f"{kind}: {said}")
    # Times of the run; an inode with the value of an attribute counts in some of them.
    volume = Volume(at)
    ours = [number for number, place in volume.inodes() if not volume.word(place + 32) & EA_INODE]
    fields = [f"sif <{n}> {field} @{TIME}" for n in ours for field in ("atime", "ctime", "ctime_extra", "crtime")]
    debugfs(at, "\n".join(fields).replace(f"extra @{TIME}", "extra 0") + "\n")
    if kind == "journal":
        volume = Volume(at)
        block = next(place // volume.block for name, place, _ in volume.places() if name == "directory")
        piece = scratch / "piece"
        with at.open("rb") as image:
            image.seek(block * volume.block)
            piece.write_bytes(image.read(volume.block))
        debugfs(at, f"jo\njw -b {block} {piece}\njc\n")
        # The time of the commit.
        with at.open("r+b") as image:
            for name, place, _ in Volume(at).places():
                image.seek(place)
                if name == "journal" and image.read(8) == bytes.fromhex("c03b399800000002"):
                    image.seek(place + 48)
                    image.write(bytes(12))
    if kind == "mmp":
        # The host and the time of the last change.
        debugfs(at, "smmp nodename host\nsmmp bdevname disk\n")
    code, said = run("e2fsck", "-fn", at)
    if verdict(code, said):
        sys.exit(f"{kind} is not sound: {said}")


class Volume:
    """Where the metadata of a volume lies."""

    def __init__(self, image):
        self.bytes = Path(image).read_bytes()
        said = subprocess.run(["dumpe2fs", image], capture_output=True, check=True, text=True).stdout
        self.block = int(re.search(r"Block size: +(\d+)", said)[1])
        self.inode_size = int(re.search(r"Inode size:\s+(\d+)", said)[1])
        self.per_group = int(re.search(r"Inodes per group: +(\d+)", said)[1])
        self.tables = [int(it) for it in re.findall(r"Inode table at (\d+)", said)]
        self.bitmaps = {kind: [int(it) for it in re.findall(rf"{kind} bitmap at (\d+)", said)] for kind in ("Block", "Inode")}
        lines = re.findall(r"(?:Primary superblock at .*Group descriptors? at|^  Group descriptor at) (\d+)(?:-(\d+))?",
                           said, re.MULTILINE)
        self.descriptors = [(int(one), int(other or one)) for one, other in lines]
        self.quotas = {int(it) for it in re.findall(r"(?:User|Group|Project) quota inode: +(\d+)", said)}
        self.first = int(re.search(r"First inode: +(\d+)", said)[1])
        self.mmp = [int(it) for it in re.findall(r"MMP block number: +(\d+)", said)]

    def word(self, at, size=4):
        return int.from_bytes(self.bytes[at:at + size], "little")

    def inodes(self):
        """Numbers and places of the inodes in use."""
        for group, table in enumerate(self.tables):
            for slot in range(self.per_group):
                at = table * self.block + slot * self.inode_size
                if self.word(at, 2) and self.word(at + 26, 2):
                    yield group * self.per_group + slot + 1, at

    def map(self, at):
        """Blocks of the map of an inode, and of its contents."""
        flags, found, data = self.word(at + 32), [], []
        kind = self.word(at, 2) >> 12
        if flags & INLINE or kind not in (4, 8, 10) or (kind == 10 and not self.word(at + 28)):
            return found, data
        if flags & EXTENTS:
            self.tree(at + 40, found, data)
            return found, data

        def follow(number, depth):
            if not number:
                return
            if depth == 0:
                data.append(number)
                return
            found.append(number)
            for slot in range(0, self.block, 4):
                follow(self.word(number * self.block + slot), depth - 1)

        for slot in range(15):
            follow(self.word(at + 40 + slot * 4), max(0, slot - 11))
        return found, data

    def tree(self, at, found, data):
        count, depth = self.word(at + 2, 2), self.word(at + 6, 2)
        for entry in range(at + 12, at + 12 + count * 12, 12):
            if depth:
                number = self.word(entry + 4) | self.word(entry + 8, 2) << 32
                found.append(number)
                self.tree(number * self.block, found, data)
            else:
                start = self.word(entry + 8) | self.word(entry + 6, 2) << 32
                data.extend(range(start, start + self.word(entry + 4, 2) % 32768))

    def places(self):
        """What can be damaged: kind, first byte, length."""
        yield "superblock", 1024, 1024
        for first, last in self.descriptors:
            for block in range(first, last + 1):
                used = self.bytes[block * self.block:(block + 1) * self.block].rstrip(b"\0")
                yield "descriptors", block * self.block, max(32, len(used))
        for kind, blocks in self.bitmaps.items():
            for block in blocks:
                yield f"{kind.lower()} bitmap", block * self.block, self.block
        for block in self.mmp:
            yield "mmp", block * self.block, 128
        seen = set()
        for number, at in self.inodes():
            is_own = number < self.first and number != 2 or number in self.quotas
            yield ("reserved inode" if is_own else "inode"), at, self.inode_size
            found, data = self.map(at)
            shared = self.word(at + 104)
            blocks = [("map", it) for it in found] + [("attributes", it) for it in [shared] if it]
            if self.word(at, 2) >> 12 == 4 or self.word(at, 2) >> 12 == 10:
                blocks += [("directory", it) for it in data]
            elif self.word(at + 32) & EA_INODE:
                blocks += [("attributes", it) for it in data]
            elif number == 8:
                blocks += [("journal", it) for it in data[:6]]
            elif number in self.quotas:
                blocks += [("quota", it) for it in data[:6]]
            for kind, block in blocks:
                if block not in seen:
                    seen.add(block)
                    yield kind, block * self.block, self.block
        yield "anywhere", 0, len(self.bytes)


def damage(volume, seed, weights):
    """The damaged bytes, and in words how; `weights` of the kinds of places."""
    rng = random.Random(f"damage {seed}")
    by_kind = {}
    for kind, at, length in volume.places():
        by_kind.setdefault(kind, []).append((at, length))
    kinds = [kind for kind in weights if kind in by_kind]
    data, told = bytearray(volume.bytes), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.choices(kinds, [weights[kind] for kind in kinds])[0]
        start, length = rng.choice(by_kind[kind])
        # Most bytes of most structures are zero: half of the damage hits others.
        filled = [at for at in range(start, start + min(length, 8192)) if data[at]]
        at = rng.choice(filled) if filled and rng.random() < 0.5 else start + rng.randrange(length)
        way = rng.choices(["bit", "byte", "end", "number", "zero", "random", "other", "sector"],
                          [36, 16, 12, 16, 6, 5, 6, 3])[0]
        if kind == "anywhere" and way in ("zero", "random", "other"):
            way = "sector"
        if way == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif way == "byte":
            data[at] = rng.randrange(256)
        elif way == "end":
            data[at] = rng.choice([0, 255])
        elif way == "number":
            size = rng.choice([2, 4])
            at -= at % size
            old = int.from_bytes(data[at:at + size], "little")
            new = rng.choice([0, 1, old + 1, old - 1, old * 2, rng.randrange(1 << 8 * size), rng.randrange(8192),
                              (1 << 8 * size) - 1])
            data[at:at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
        elif way == "zero":
            data[start:start + length] = bytes(length)
        elif way == "random":
            data[start:start + length] = rng.randbytes(length)
        elif way == "other":
            other, _ = rng.choice(by_kind[kind])
            data[start:start + length] = volume.bytes[other:other + length]
        else:
            at -= at % 512
            data[at:at + 512] = rng.choice([bytes(512), rng.randbytes(512)])
        where = at - start if way in ("bit", "byte", "end", "number", "sector") else 0
        told.append(f"{kind} at {start:#x}+{where:#x}: {way}")
    return bytes(data), told


def lost(sound, theirs, ours):
    """Names of the sound volume whose contents are in `theirs` and not in `ours`."""
    gone = [name for name, held in sound.items() if theirs.get(name) == held and ours.get(name) != held]
    # The contents under other names are as good, but for directories, which all are alike.
    is_file = {held: json.loads(held)[0] != "dir" for held in sound.values()}
    left = Counter(ours.values())
    for name, held in sound.items():
        if ours.get(name) == held:
            left[held] -= 1
    missing = []
    for name in gone:
        if is_file[sound[name]] and left[sound[name]] > 0:
            left[sound[name]] -= 1
        elif name != "/lost+found":
            missing.append(name)
    found, kept = Counter(theirs.values()), Counter(ours.values())
    for held in set(sound.values()):
        if is_file[held] and found[held] > 0 and kept[held] == 0:
            missing.append(f"contents of {next(name for name in sound if sound[name] == held)}")
    return missing


def judge(seed, kind, damaged, sound, scratch, keep):
    """The row of a case: the bytes of a damaged volume, and in words how."""
    scratch.mkdir()
    data, told = damaged
    copy = scratch / "copy"

    def fresh():
        with copy.open("wb") as out:
            out.write(data)

    row = {"seed": seed, "kind": kind, "damage": told}
    fresh()
    code, row["theirs say"] = run("e2fsck", "-fn", copy)
    row["theirs -n"] = verdict(code, row["theirs say"]) or int("skipping journal recovery" in row["theirs say"])
    row["theirs -p"], row["theirs say -p"] = run("e2fsck", "-fp", copy)
    fresh()
    row["theirs -y"], _ = run("e2fsck", "-fy", copy)
    if row["theirs -y"] not in (0, 1):
        row["theirs -y"], _ = run("e2fsck", "-fy", copy)
    row["theirs after -y"] = verdict(*run("e2fsck", "-fn", copy))
    theirs = manifest(copy) if row["theirs -y"] in (0, 1) else None
    fresh()
    row["ours -n"], row["ours say"] = run(SEEKLESS, "check", "-n", copy)
    row["ours -p"], row["ours say -p"] = run(SEEKLESS, "check", "-p", copy)
    fresh()
    row["ours -y"], row["ours say -y"] = run(SEEKLESS, "check", "-y", copy)
    code, row["asks"] = run("e2fsck", "-fn", copy)
    row["ours after -y"] = verdict(code, row["asks"])
    ours = manifest(copy)
    row["compared"] = theirs is not None
    row["lost"] = [] if theirs is None else ["all"] if ours is None else lost(sound, theirs, ours)
    if keep and breaks(row, RULES, DIFFERENCES):
        (keep / f"{seed}.img").write_bytes(data)
    shutil.rmtree(scratch)
    return row


RULES = E2FSPROGS_RULES | {
    "clean where e2fsck -fy is": lambda row: row["ours after -y"] == 0 or row["theirs after -y"] != 0,
}
# The others are figures of e2fsck, or follow.
DIFFERENCES = [name for name in RULES if name not in ("clean after -y", "clean after e2fsck -fy")]
STRICT = ["same verdict", "clean where e2fsck -fy is", "keeps what e2fsck keeps"]


def options(text):
    """The options that campaigns of damages have in common."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path)
    return parser


def directory(prefix):
    """A directory for the volumes, in memory unless $TMPDIR says otherwise."""
    place = os.environ.get("TMPDIR") or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
    return tempfile.TemporaryDirectory(prefix=prefix, dir=place)


def prepare(kinds, scratch, keep):
    """Volumes of kinds, and what is in each; makes the directory of --keep."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    (scratch / "tree").mkdir()
    populate(scratch / "tree")
    volumes = {}
    for kind in kinds:
        image = scratch / kind
        build(kind, image, scratch)
        sound = manifest(image) or sys.exit(f"{kind} cannot be read")
        volumes[kind] = Volume(image), sound
    return volumes


def main():
    parser = options(__doc__)
    parser.add_argument("--kind", action="append", choices=[*KINDS, *FURTHER])
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    with directory("damages-") as scratch:
        scratch = Path(scratch)
        volumes = prepare(args.kind or list(KINDS), scratch, args.keep)
        seeds = range(args.first, args.first + args.count)
        cases = []
        for kinds in map(list, (KINDS, FURTHER)):
            cases += [(seed, kinds[seed % len(kinds)]) for seed in seeds if kinds[seed % len(kinds)] in volumes]

        def row_of(case):
            seed, kind = case
            volume, sound = volumes[kind]
            return judge(seed, kind, damage(volume, seed, WEIGHTS), sound, scratch / f"{kind}-{seed}", args.keep)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(row_of, cases))
    return report(rows, args)


def report(rows, args):
    """Prints the rows with a difference, and of how many each rule holds; the exit code."""
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        broken = breaks(row, RULES, DIFFERENCES)
        if args.all or broken:
            title = f"{row['seed']} {row['kind']}: {'; '.join(row['damage'])}"
            print(describe(title, row, CODES, broken))
    version = run("e2fsck", "-V")[1].splitlines()[0]
    kinds = {row["kind"] for row in rows}
    print(f"\n{len(rows)} damaged volumes of {len(kinds)} kinds, judged by {version}")
    print(f"e2fsck -fn finds something: {sum(row['theirs -n'] != 0 for row in rows)}; "
          f"e2fsck -fy does not end with 0 or 1 twice: {sum(not row['compared'] for row in rows)}")
    for name, holds in RULES.items():
        print(f"{name}: {sum(map(holds, rows))} of {len(rows)}")
    return int(args.strict and not all(RULES[name](row) for name in STRICT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
