"""Exceptions of work on a cluster. All can be sent from one process to another."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

from .. import Error


#: The kinds by the exit code of the program.
_KINDS = {2: "usage", 3: "corrupt", 4: "unsupported", 5: "no-space"}


class FleetError(Error):
    """Work on a cluster failed."""

    @classmethod
    def of(cls, error: Exception, message: str) -> FleetError:
        """The same failure, of the same kind, with another message."""
        failure = cls(message)
        if isinstance(error, Error):
            failure.kind, failure.path, failure.location = error.kind, error.path, error.location
        return failure


class CommandError(FleetError):
    """The program `seekless` failed."""

    def __init__(self, command: Sequence[str], status: Optional[int], stderr: str) -> None:
        #: The program and its arguments.
        self.command = tuple(command)
        #: Its exit code, negative for a signal; None if it did not run or its worker was lost.
        self.status = status
        #: Its standard error.
        self.stderr = stderr
        self.kind = "system" if status is None else _KINDS.get(status, "system")
        super().__init__(self._message())

    def _message(self) -> str:
        code = "" if self.status is None else f" (exit code {self.status})"
        return f"{shlex.join(self.command)}{code}: {self.stderr.strip()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.command, self.status, self.stderr)


class ShardError(CommandError):
    """A shard failed."""

    def __init__(
        self, shard: str, command: Sequence[str], status: Optional[int], stderr: str
    ) -> None:
        #: The shard, such as `2/4`.
        self.shard = shard
        super().__init__(command, status, stderr)

    def _message(self) -> str:
        return f"shard {self.shard}: {super()._message()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shard, self.command, self.status, self.stderr)


@contextmanager
def about(url: str) -> Iterator[None]:
    """Makes an error of a file system of fsspec one of the cluster, with the URL.

    They have classes of their own, not all of which can be sent. Files of this machine keep the
    errors of Python.
    """
    try:
        yield
    except Error:
        raise
    except Exception as error:
        if "://" not in url:
            raise
        raise FleetError(f"{url}: {type(error).__name__}: {error}") from None
