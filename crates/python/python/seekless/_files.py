"""File objects for files of an image."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._seekless import File


class ImageFile(io.RawIOBase):
    """A file of an image, which is read and not written."""

    def __init__(self, file: File, name: str) -> None:
        super().__init__()
        self._file = file
        self._size = file.metadata.size
        self._at = 0
        self.name = name

    @property
    def mode(self) -> str:
        return "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        if whence not in origins:
            raise ValueError(f"invalid whence: {whence}")
        at = origins[whence] + offset
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def readinto(self, buffer: Buffer) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        part = self._file.read_at(self._at, len(view))
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def readall(self) -> bytes:
        self._check_open()
        rest = self._file.read_at(self._at, max(0, self._size - self._at))
        self._at += len(rest)
        return rest

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class BufferedImageFile(io.BufferedReader):
    """A buffered file object."""

    def __init__(self, file: File, name: str) -> None:
        super().__init__(ImageFile(file, name), buffer_size=128 << 10)
        #: The number of bytes, as those that use files of fsspec expect.
        self.size = file.metadata.size


def reader(file: File, name: str) -> io.BufferedReader:
    """A buffered file object."""
    return BufferedImageFile(file, name)
