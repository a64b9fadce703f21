"""Images as file systems of fsspec, which are read and not written.

    import fsspec

    with fsspec.open("ext4://etc/passwd::file:///path/disk.img") as file:
        print(file.read())
    fs = fsspec.filesystem("seekless", fo="disk.img", partition="root")
    fs.ls("/etc")

The protocols `seekless`, `ext4`, `ufs` and `fat` are the same: the image tells its format. Images of
other protocols than `file` are copied to a temporary file.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from typing import Any, BinaryIO, Optional, Union

import fsspec
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path, tokenize

from . import Image, Metadata
from . import open as open_image

_TYPES = {"regular": "file", "directory": "directory", "symlink": "link"}


class ImageFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of an image.

    `fo` is the path or URL of the image, or a file object with its bytes; `target_protocol` and
    `target_options` are those with which fsspec opens it. The other parameters are those of
    `seekless.open`.
    """

    protocol = ("seekless", "ext4", "ufs", "fat")
    root_marker = ""
    # The image may be another one later.
    cachable = False

    def __init__(
        self,
        fo: Union[str, "os.PathLike[str]", BinaryIO] = "",
        mode: str = "r",
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        *,
        partition: Optional[str] = None,
        offset: Optional[int] = None,
        ignore_checksums: bool = False,
        skip_journal: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode != "r":
            raise ValueError("an image is only read")
        if not fo:
            raise ValueError("fo: the path or URL of an image is needed")
        self.fo = fo
        local, temporary = _local(fo, target_protocol, target_options or {})
        try:
            self.image: Image = open_image(
                local,
                partition=partition,
                offset=offset,
                ignore_checksums=ignore_checksums,
                skip_journal=skip_journal,
            )
        finally:
            # The image keeps the file open.
            if temporary is not None:
                os.unlink(temporary)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        # Paths begin at the root of the image.
        stripped = super()._strip_protocol(path)
        if isinstance(stripped, list):
            return [it.lstrip("/") for it in stripped]
        return stripped.lstrip("/")

    def ukey(self, path: str) -> str:
        return str(tokenize(path, self.fo, self.protocol))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._describe(path, self.image.stat(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        metadata = self.image.stat(path)
        if metadata.is_dir():
            names = self.image.list(path)
            paths = [f"{path}/{name}" if path else name for name in names]
        else:
            paths = [path]
        if not detail:
            return paths
        return [self._describe(it, self.image.stat(it)) for it in paths]

    def created(self, path: str) -> Any:
        raise NotImplementedError("not all formats record it")

    def modified(self, path: str) -> Any:
        from datetime import datetime, timedelta, timezone

        nanoseconds = self.info(path)["mtime_ns"]
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return epoch + timedelta(microseconds=nanoseconds // 1000)

    def _describe(self, path: str, metadata: Metadata) -> dict[str, Any]:
        found = {
            "name": path,
            "size": metadata.size if metadata.is_file() else 0,
            "type": _TYPES.get(metadata.kind, "other"),
            "islink": metadata.is_symlink(),
            "mode": metadata.mode,
            "uid": metadata.uid,
            "gid": metadata.gid,
            "ino": metadata.inode,
            "nlink": metadata.links,
            "mtime": metadata.modified_ns / 1e9,
            "mtime_ns": metadata.modified_ns,
        }
        if metadata.is_symlink():
            found["destination"] = self.image.readlink(path)
        return found

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        raise self._read_only(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not (exist_ok and self.isdir(path)):
            raise self._read_only(path)

    def rmdir(self, path: str) -> None:
        raise self._read_only(path)

    def _read_only(self, path: str) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def _file(self, path: str) -> str:
        """The path of a file, which is no directory."""
        path = self._strip_protocol(path)
        if self.image.stat(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return path

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BufferedReader:
        if mode != "rb":
            raise OSError("an image is only read")
        return self.image.open(self._file(path))

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        file = self.image.file(self._file(path))
        size = file.metadata.size
        # As slices: negative positions count from the end.
        first, behind, _ = slice(start, end).indices(size)
        return file.read_at(first, max(0, behind - first))


def _local(fo: Any, protocol: Optional[str], options: dict[str, Any]) -> tuple[str, Optional[str]]:
    """The path of an image in the file system of the host, and the same where it is a copy."""
    if hasattr(fo, "read"):
        return _copy(fo)
    path = stringify_path(fo)
    if protocol in (None, "file", "local") and "::" not in path:
        fs, plain = fsspec.url_to_fs(path, **({"protocol": protocol} if protocol else {}))
        if "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
            return plain, None
    with fsspec.open(path, "rb", protocol=protocol, **options) as file:
        return _copy(file)


def _copy(file: Any) -> tuple[str, str]:
    with tempfile.NamedTemporaryFile(prefix="seekless-", suffix=".img", delete=False) as copy:
        try:
            shutil.copyfileobj(file, copy, 1 << 20)
        except BaseException:
            os.unlink(copy.name)
            raise
    return copy.name, copy.name
