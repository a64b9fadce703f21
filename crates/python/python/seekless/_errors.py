"""Exceptions, a class for each kind of error."""

from __future__ import annotations

import errno as numbers
import os
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._seekless import Place


class Error(Exception):
    """An error of seekless: its text is the message, with the subject in front."""

    #: The kind: `usage`, `corrupt`, `unsupported`, `no-space` or `system`.
    kind: str = "system"
    #: The file that it is about, as in the message.
    path: Optional[str] = None
    #: Where the damage is, for an error about damage whose place is known.
    location: Optional[Place] = None

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {"kind": self.kind, "path": self.path, "location": self.location}
        return _again, (type(self), self.args, getattr(self, "errno", None), kept)


class UsageError(Error, ValueError):
    """The arguments contradict each other or name something that does not exist."""

    kind = "usage"


class CorruptError(Error):
    """The image or file is damaged."""

    kind = "corrupt"


class UnsupportedError(Error):
    """The image or the request needs a feature that is not supported."""

    kind = "unsupported"


class HostError(Error, OSError):
    """The system refused: permission is denied, a file is there already, or I/O failed."""

    kind = "system"

    def __str__(self) -> str:
        # OSError would write its number in front.
        return str(self.args[0])


class NotFoundError(HostError, FileNotFoundError):
    """A file is missing, in the system or in an image."""


class ExistsError(HostError, FileExistsError):
    """A file is there already."""


class NotDirectoryError(HostError, NotADirectoryError):
    """A part of a path is no directory."""


class NoSpaceError(HostError):
    """The contents do not fit."""

    kind = "no-space"


_KINDS: dict[str, type[Error]] = {
    "usage": UsageError,
    "corrupt": CorruptError,
    "unsupported": UnsupportedError,
    "no-space": NoSpaceError,
    "system": HostError,
}


_NUMBERS: dict[Optional[int], type[HostError]] = {
    numbers.ENOENT: NotFoundError,
    numbers.EEXIST: ExistsError,
    numbers.ENOTDIR: NotDirectoryError,
}


def make(
    kind: str,
    message: str,
    path: Optional[str],
    location: Optional[Place],
    errno: Optional[int],
) -> Error:
    """The exception for an error of the library."""
    chosen = _KINDS[kind]
    if chosen is HostError:
        chosen = _NUMBERS.get(errno, HostError)
    return _again(chosen, (message,), errno, {"path": path, "location": location})


def _again(
    chosen: type[Error], args: tuple[Any, ...], errno: Optional[int], kept: dict[str, Any]
) -> Error:
    """An exception with these attributes, here or in another process."""
    error = chosen(*args)
    for name, value in kept.items():
        setattr(error, name, value)
    if isinstance(error, OSError):
        error.errno = errno
        error.strerror = os.strerror(errno) if errno else None
    return error
