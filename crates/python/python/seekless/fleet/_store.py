"""Files that get their names when they are complete, here and in other file systems of fsspec."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress

import fsspec
from fsspec.implementations.local import LocalFileSystem

from .. import UsageError
from ._errors import about


def refuse(output: str, inputs: Iterable[str]) -> None:
    """Refuses an output that is one of the inputs, or a directory, into which it would be moved."""
    fs, path = fsspec.url_to_fs(output)
    with about(output):
        if fs.isdir(path):
            raise UsageError(f"{output}: is a directory")
    for name in inputs:
        other, read = fsspec.url_to_fs(name)
        if type(other) is not type(fs):
            continue
        is_same = read == path
        if isinstance(fs, LocalFileSystem) and os.path.exists(read) and os.path.exists(path):
            is_same = os.path.samefile(read, path)
        if is_same:
            raise UsageError(f"{output}: would be written over an input, {name}")


def store(contents: bytes, output: str) -> None:
    """Writes a file. The target of a link is replaced, not the link."""
    refuse(output, [])
    fs, path = fsspec.url_to_fs(output)
    if isinstance(fs, LocalFileSystem):
        path = os.path.realpath(path)
    part = f"{path}.{uuid.uuid4().hex}"
    with about(output):
        try:
            fs.pipe_file(part, contents)
            fs.mv(part, path)
        except BaseException:
            # The first error is the one to report.
            with suppress(Exception):
                if fs.exists(part):
                    fs.rm(part)
            raise
