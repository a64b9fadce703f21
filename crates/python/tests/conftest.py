"""Shared fixtures: a tree of files, images of it, and programs of other authors."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Union

import pytest
import seekless as sk

# Jobs in the background of a shell ignore it, and so does Python then.
signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIRED = os.environ.get("SEEKLESS_JUDGES") == "required"


def judge(
    program: str, *args: Union[str, Path], stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Runs a program of other authors, which judges a result."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        if REQUIRED:
            pytest.fail(f"a judge is missing: {program}")
        pytest.skip(f"{program} is not installed")
    return subprocess.run([found, *map(str, args)], input=stdin, capture_output=True)


def numbers(seed: int, size: int) -> bytes:
    """Bytes without order, the same each time."""
    return hashlib.shake_128(seed.to_bytes(8, "little")).digest(size)


def archive(files: dict[str, bytes]) -> bytes:
    """A tar archive of regular files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            tar.addfile(entry, io.BytesIO(contents))
    return out.getvalue()


def container(layers: list[bytes]) -> bytes:
    """A container image as `docker save` writes it."""
    names = [f"{n}.tar" for n in range(len(layers))]
    digests = [f"sha256:{hashlib.sha256(contents).hexdigest()}" for contents in layers]
    configuration = {"rootfs": {"type": "layers", "diff_ids": digests}}
    image = {"Config": "config.json", "RepoTags": None, "Layers": names}
    files = dict(zip(names, layers))
    files["config.json"] = json.dumps(configuration).encode()
    files["manifest.json"] = json.dumps([image]).encode()
    return archive(files)


#: A name that is not UTF-8.
STRANGE = b"caf\xe9"


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with the kinds of files that any user can make."""
    root = tmp_path_factory.mktemp("tree")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/large").write_bytes(numbers(1, 3_000_001))
    (root / "deep/link").symlink_to("er/large")
    (root / "empty").mkdir()
    (root / "none").write_bytes(b"")
    os.link(root / "etc/passwd", root / "deep/again")
    (root / "größe").write_text("text")
    (root / "etc/secret").write_text("s")
    (root / "etc/secret").chmod(0o4640)
    with open(os.fsencode(root) + b"/" + STRANGE, "wb") as file:
        file.write(b"strange")
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            os.utime(Path(directory, name), ns=(10**18 + 5, 10**18 + 7), follow_symlinks=False)
        os.utime(directory, ns=(10**18, 10**18 + 9))
    return root


@pytest.fixture(scope="session")
def path(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ext4 image of the tree."""
    path = tmp_path_factory.mktemp("image") / "disk.img"
    sk.build(tree, path, label="root")
    return path


@pytest.fixture(scope="session")
def image(path: Path) -> sk.Image:
    """The same, open."""
    return sk.open(path)
