"""Tasks: waiting for them here, and the state that they need on a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional, TypeVar

from distributed import Client, Future, as_completed, get_worker
from distributed.worker import thread_state

from .. import UsageError

T = TypeVar("T")


def shard_count(shards: Optional[int], client: Client, per_thread: int) -> int:
    """The number of shards: a given one, or `per_thread` for each thread of the cluster."""
    if shards is None:
        shards = per_thread * sum(client.nthreads().values())
        if shards == 0:
            raise UsageError("the cluster has no workers yet: wait for them, or give shards=")
    if shards < 1:
        raise UsageError(f"{shards} shards: at least one is needed")
    return shards


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
    """Whether the task of this thread was cancelled, or its client has ended."""

    def __init__(self) -> None:
        self._key: Any = thread_state.key
        self._tasks: Mapping[Any, Any] = get_worker().state.tasks

    def is_requested(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"
