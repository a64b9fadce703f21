"""Exceptions, a class for each kind of error."""

from __future__ import annotations

import errno as numbers
from typing import TYPE_CHECKING, Optional

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
    error = chosen(message)
    error.path, error.location = path, location
    if isinstance(error, OSError):
        error.errno = errno
    return error
