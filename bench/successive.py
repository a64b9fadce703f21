#!/usr/bin/env python3
"""Ten successive images of a tree whose packages are upgraded, removed and added.

usage: bench/successive.py [DIR] [--seed N] [--images N] [--move-budget SIZE]

DIR (default: /usr/lib/python3) is copied; each of its directories with three
files or more counts as a package. Each image is built with --like of the one
before it, and without; the last one also with --move-budget. Needs cargo (or
SEEKLESS, the binary), and five times the room of DIR in TMPDIR.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile

CHUNK = 512 << 10
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def packages(root):
    """Directories with three files or more, with these files, in order."""
    found = []
    for path, dirs, files in os.walk(root):
        dirs.sort()
        own = [os.path.join(path, name) for name in sorted(files)]
        own = [name for name in own if os.path.isfile(name) and not os.path.islink(name)]
        if len(own) >= 3 and path != root:
            found.append((path, own))
    return found


def upgrade(files, dice):
    """Half of the files get other contents of about the same length."""
    written = 0
    for name in files:
        if dice.random() < 0.5:
            length = int(os.path.getsize(name) * dice.uniform(0.8, 1.25))
            with open(name, "wb") as file:
                file.write(dice.randbytes(length))
            written += length
    return written


def change(root, step, dice):
    """A week of a distribution; returns the bytes of new contents."""
    present = packages(root)
    count = len(present)
    written = 0
    chosen = dice.sample(present, max(2, count // 25))
    removed = chosen[: max(1, count // 100)]
    for _, files in chosen[len(removed) :]:
        written += upgrade(files, dice)
    for _, files in removed:
        for name in files:
            os.remove(name)
    for number in range(max(1, count // 100)):
        path = os.path.join(root, f"package-{step}-{number}")
        os.mkdir(path)
        for file in range(dice.randrange(3, 30)):
            length = dice.choice([800, 4_000, 12_000, 60_000])
            with open(os.path.join(path, f"file-{file}"), "wb") as out:
                out.write(dice.randbytes(length))
            written += length
    return written


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", nargs="?", default="/usr/lib/python3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--move-budget", default="16M")
    args = parser.parse_args()
    seekless = os.environ.get("SEEKLESS")
    if seekless is None:
        build_binary = ["cargo", "build", "--quiet", "--release", "--bin", "seekless"]
        subprocess.run(build_binary, check=True, cwd=HERE)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
        seekless = os.path.join(target, "release", "seekless")
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    dice = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as work:
        at = lambda name: os.path.join(work, name)
        root = at("root")
        shutil.copytree(args.dir, root, symlinks=True)

        def run(*command):
            done = subprocess.run([seekless, *command], check=True, stdout=subprocess.PIPE)
            return done.stdout

        # A program that reads some files of a fifth of the packages.
        read = []
        present = packages(root)
        for _, files in dice.sample(present, max(1, len(present) // 5)):
            read += dice.sample(files, min(len(files), 5))
        with open(at("paths"), "w", encoding="utf-8") as paths:
            paths.writelines("/" + os.path.relpath(name, root) + "\n" for name in read)
        run("trace", "import", "--paths", at("paths"), "-o", at("trace"))

        def build(name, *options):
            run("build", root, "-o", at(name), "--trace", at("trace"), "--force", "-q", *options)

        def new_chunks(old, new):
            found = json.loads(run("compare", at(old), at(new), "--chunk", "512K", "--json"))
            unit = next(unit for unit in found["units"] if unit["size"] == CHUNK)
            return unit["images"][1]["new"]["chunks"], unit["images"][1]["all"]["chunks"]

        build("like")
        shutil.copy(at("like"), at("free"))
        files = sum(len(names) for _, _, names in os.walk(root))
        print(f"{files} files, {len(present)} packages of {args.dir}, seed {args.seed}\n")
        print("| image | bytes of new contents | in chunks of 512K | --like | laid out anew |")
        print("|---|---|---|---|---|")
        total = [0, 0, 0]
        moved = None
        for step in range(1, args.images + 1):
            written = change(root, step, dice)
            if step == args.images:
                build("moved", "--like", at("like"), "--move-budget", args.move_budget)
                moved = new_chunks("like", "moved")[0]
            build("like-new", "--like", at("like"))
            build("free-new")
            like, chunks = new_chunks("like", "like-new")
            free, _ = new_chunks("free", "free-new")
            least = -(-written // CHUNK)
            total = [total[0] + least, total[1] + like, total[2] + free]
            print(f"| {step} | {written:,} | {least} | {like} of {chunks} | {free} |", flush=True)
            os.replace(at("like-new"), at("like"))
            os.replace(at("free-new"), at("free"))
        print(f"| sum | | {total[0]} | {total[1]} | {total[2]} |\n")

        def score(name):
            found = json.loads(run("score", at(name), "--trace", at("trace"), "--json"))
            return found["seeks"], os.path.getsize(at(name))

        (like, size), (free, least) = score("like"), score("free")
        print(f"Seeks of the trace on the last image: {like} --like, {free} laid out anew.")
        print(f"With --move-budget {args.move_budget} in the last step: ", end="")
        print(f"{score('moved')[0]} seeks, and {moved} new chunks in it.")
        print(f"Size: {size / least:.3f} times that of the image laid out anew.")
        run("build", root, "-o", at("plain"), "--force", "-q")
        build("moved", "--like", at("plain"))
        print(f"On an image that is not laid out by the trace: {score('moved')[0]} seeks;", end=" ")
        command = ["build", root, "-o", at("moved"), "--trace", at("trace"), "--force", "--json"]
        told = json.loads(run(*command, "--like", at("plain"), "--move-budget", args.move_budget))
        print(f"with --move-budget {score('moved')[0]}, {new_chunks('plain', 'moved')[0]} new", end="")
        print(f" chunks, windows of inodes {told['inode_reads_before']}, then", end=" ")
        print(f"{told['inode_reads_after']}, {told['renumbered_inodes']} inodes renumbered.")


if __name__ == "__main__":
    main()
