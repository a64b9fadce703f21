"""Tasks: waiting for them here, and what they need to know on a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from distributed import Client, Future, as_completed, get_worker
from distributed.worker import thread_state

from .. import UsageError

T = TypeVar("T")


def threads(client: Client) -> int:
    """The number of tasks that the cluster runs at once."""
    count = sum(client.nthreads().values())
    if count == 0:
        raise UsageError("the cluster has no workers yet: wait for them, or give shards=")
    return int(count)


@contextmanager
def running(client: Client, tasks: Mapping[Future, T]) -> Iterator[Iterator[tuple[T, Future]]]:
    """The tasks in the order in which they complete, as an iterator.

    If the block fails or is interrupted, the tasks are cancelled.
    """
    try:
        yield ((tasks[future], future) for future in as_completed(list(tasks)))
    except BaseException:
        client.cancel(list(tasks))
        raise


def scratch() -> str:
    """The temporary directory of this worker, which Dask removes with the worker."""
    return str(get_worker().local_directory)


class Cancellation:
    """Whether the task of this thread was cancelled, or its client is gone."""

    def __init__(self) -> None:
        self._key: Any = thread_state.key
        self._tasks: Mapping[Any, Any] = get_worker().state.tasks

    def is_requested(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"
