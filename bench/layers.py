#!/usr/bin/env python3
"""Chunks of images with one base and an application each, built apart.

usage: bench/layers.py [DIR] [--seed N] [--images N]

DIR (default: /usr/lib/python3) is the base. Each application has files of its
own in a new directory, some beside files of the base, and replaces some. The
images are built with --share, whose freed blocks are kept or zeros, without,
and by mke2fs -d; and with --share from container images, whose layers are the
base in two halves and the application. Needs cargo (or SEEKLESS, the binary),
mke2fs, tar, and 25 times the room of DIR in TMPDIR. These builders are left
out if they are not installed:

- tar2ext4, or the path in TAR2EXT4:
  go install github.com/Microsoft/hcsshim/cmd/tar2ext4@v0.12.9
- mkext4, the path in MKEXT4:
  cargo install mkext4 --version 0.0.3 --example mkfs --root ROOT
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = [64 << 10, 512 << 10]


def application(path, number, present, dice):
    """Makes a layer; returns the bytes of its contents, and the blocks."""
    written, blocks = 0, 0

    def write(name, length):
        nonlocal written, blocks
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(dice.randbytes(length))
        written += length
        blocks += -(-length // 4096)

    for file in range(dice.randrange(20, 200)):
        length = dice.choice([2_000, 8_000, 30_000, 150_000])
        write(os.path.join(path, f"srv/app-{number}/{file // 20}/file-{file}"), length)
    for name in dice.sample(present, 10):
        write(os.path.join(path, os.path.dirname(name), f"of-app-{number}"), 3_000)
    for name in dice.sample(present, 5):
        write(os.path.join(path, name), dice.randrange(1_000, 20_000))
    return written, blocks


def blob(layout, media_type, content):
    """Writes a blob of a layout; returns its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    with open(os.path.join(layout, "blobs", "sha256", digest), "wb") as file:
        file.write(content)
    media_type = "application/vnd.oci.image." + media_type
    return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content)}


def archive(top, members):
    """An archive of names in a directory, the same for the same files."""
    command = ["tar", "-c", "--sort=name", "--owner=0", "--group=0", "--mtime=@1700000000"]
    return subprocess.check_output([*command, "-C", top, *members])


def container(layout, layers):
    """Writes an OCI layout with one image."""
    shutil.rmtree(layout, ignore_errors=True)
    os.makedirs(os.path.join(layout, "blobs", "sha256"))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "config": blob(layout, "config.v1+json", json.dumps(config).encode()),
        "layers": [blob(layout, "layer.v1.tar", layer) for layer in layers],
    }
    manifest = blob(layout, "manifest.v1+json", json.dumps(manifest).encode())
    for name, content in [
        ("index.json", {"schemaVersion": 2, "manifests": [manifest]}),
        ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
    ]:
        with open(os.path.join(layout, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def chunks(path, size):
    """Digests of the chunks of a file that are not zeros."""
    found = set()
    zeros = bytes(size)
    with open(path, "rb") as file:
        while chunk := file.read(size):
            if chunk != zeros[: len(chunk)]:
                found.add(hashlib.sha256(chunk).digest())
    return found


def seekless_binary():
    """The program, built if SEEKLESS does not name it."""
    if "SEEKLESS" in os.environ:
        return os.path.realpath(os.environ["SEEKLESS"])
    build_binary = ["cargo", "build", "--quiet", "--release", "--bin", "seekless"]
    subprocess.run(build_binary, check=True, cwd=HERE)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
    return os.path.join(target, "release", "seekless")


def installed(name):
    """The path of another builder; None, said, without it."""
    path = shutil.which(os.environ.get(name.upper(), name))
    if path is None:
        print(f"{name} is not installed, and left out", file=sys.stderr)
    return path


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", nargs="?", default="/usr/lib/python3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int, default=20)
    args = parser.parse_args()
    seekless = seekless_binary()
    tar2ext4, mkext4 = installed("tar2ext4"), installed("mkext4")
    os.environ.update(SOURCE_DATE_EPOCH="1700000000", MKE2FS_DETERMINISTIC="1")
    dice = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as work:
        base = os.path.join(work, "base")
        shutil.copytree(args.dir, base, symlinks=True)
        present = []
        for path, _, files in os.walk(base):
            names = [os.path.join(path, name) for name in files]
            present += [os.path.relpath(name, base) for name in names if not os.path.islink(name)]
        present.sort()
        total = sum(os.path.getsize(os.path.join(base, name)) for name in present)
        # Contents lie in whole blocks.
        blocks = sum(-(-os.path.getsize(os.path.join(base, name)) // 4096) for name in present)
        names = sorted(os.listdir(base))
        halves = [names[: len(names) // 2], names[len(names) // 2 :]]
        lower = [archive(base, half) for half in halves if half]
        layout = os.path.join(work, "layout")
        image, merged = os.path.join(work, "image"), os.path.join(work, "merged")
        unique = {}
        for number in range(args.images):
            layer = os.path.join(work, "layer")
            shutil.rmtree(layer, ignore_errors=True)
            os.mkdir(layer)
            own, own_blocks = application(layer, number, present, dice)
            total += own
            blocks += own_blocks
            shutil.rmtree(merged, ignore_errors=True)
            shutil.copytree(base, merged, symlinks=True)
            shutil.copytree(layer, merged, symlinks=True, dirs_exist_ok=True)
            build = [seekless, "build", base, layer, "-o", image, "--force", "-q"]
            room = str(int(subprocess.check_output(["du", "-sk", merged]).split()[0]) * 13 // 10)
            mke2fs = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256"]
            mke2fs += ["-U", "5ee61e55-b007-4000-8000-000000000001"]
            mke2fs += ["-E", "hash_seed=5ee61e55-b007-4000-8000-000000000002"]
            mke2fs += ["-d", merged, image, room + "K"]
            container(layout, [*lower, archive(layer, sorted(os.listdir(layer)))])
            flat = os.path.join(work, "flat.tar")
            if tar2ext4:
                with open(flat, "wb") as file:
                    file.write(archive(merged, ["."]))
            for builder, command in [
                ("seekless --share", [*build, "--share"]),
                ("seekless --share --freed zero", [*build, "--share", "--freed", "zero"]),
                (
                    "seekless --share, container images",
                    [seekless, "build", layout, "-o", image, "--force", "-q", "--share"],
                ),
                ("seekless", build),
                ("mke2fs", mke2fs),
                ("tar2ext4", [tar2ext4, "-i", flat, "-o", image]),
                ("mkext4", [mkext4, merged, image, str(int(room) // 4 * 4096)]),
            ]:
                if command[0] is None:
                    continue
                if os.path.exists(image):
                    os.remove(image)
                quiet = {"stdout": subprocess.DEVNULL}
                if builder == "mkext4":
                    quiet["stderr"] = subprocess.DEVNULL
                subprocess.run(command, check=True, **quiet)
                for size in SIZES:
                    unique.setdefault((builder, size), set()).update(chunks(image, size))
        print(f"{len(present)} files of {args.dir} and {args.images} applications, ", end="")
        print(f"{total:,} bytes of contents in {blocks:,} blocks, seed {args.seed}\n")
        print("| builder | chunks of 64K | beside contents | chunks of 512K | beside contents |")
        print("|---|---|---|---|---|")
        for builder in dict.fromkeys(builder for builder, _ in unique):
            cells = []
            for size in SIZES:
                count = len(unique[builder, size])
                cells += [f"{count:,}", f"{count / (total / size):.2f}"]
            print(f"| {builder} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
