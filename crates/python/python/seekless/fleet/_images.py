"""Images by path or URL, on a worker."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Union

import fsspec

from ._errors import about
from ._tasks import scratch

AnyPath = Union[str, "os.PathLike[str]"]

#: Keys by which file systems of fsspec tell the version of a file; each has some of them.
_STATE = ("size", "mtime", "created", "LastModified", "last_modified", "updated", "ETag", "CRC")

_guard = threading.Lock()
_locks: dict[Path, threading.Lock] = {}


def names(images: Union[AnyPath, Iterable[AnyPath]]) -> list[str]:
    """Paths and URLs as texts."""
    if isinstance(images, (str, bytes, os.PathLike)):
        images = [images]
    return [os.fsdecode(image) for image in images]


def shown(name: str) -> str:
    """A name as a text of Arrow, which is UTF-8; as in tables of requests."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def local(image: str) -> str:
    """The path of an image on this worker: that of a copy if it is in another file system."""
    if "://" not in image:
        return image
    fs, path = fsspec.url_to_fs(image)
    if "::" not in image and "file" in fs.protocol:
        return str(path)
    # An image that was replaced is copied again.
    with about(image):
        info = fs.info(path)
    state = [str(info.get(name)) for name in _STATE]
    key = hashlib.sha256("\n".join([image, *state]).encode()).hexdigest()
    copy = Path(scratch(), "seekless-images", key[:32] + ".img")
    with _lock(copy):
        if not copy.exists():
            with about(image):
                _copy(fs, path, copy)
    return str(copy)


def _lock(copy: Path) -> threading.Lock:
    with _guard:
        return _locks.setdefault(copy, threading.Lock())


def _copy(fs: fsspec.AbstractFileSystem, path: str, copy: Path) -> None:
    copy.parent.mkdir(exist_ok=True)
    part = copy.with_suffix(".part")
    with fs.open(path, "rb") as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    part.rename(copy)
