"""Summaries of the traces of many machines."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar, Union

import fsspec
from distributed import Client

from .. import Error, UsageError, merge_summaries
from .. import summarize as summarize_one
from ._errors import FleetError
from ._images import AnyPath, names
from ._store import refuse, store
from ._tasks import running, scratch

T = TypeVar("T")
Machine = Union[AnyPath, Iterable[AnyPath]]


def summarize(
    machines: Union[AnyPath, Iterable[Machine]],
    output: AnyPath,
    client: Client,
    *,
    weight: float = 1.0,
    min_machines: int = 0,
    fan_in: int = 16,
    retries: int = 2,
) -> int:
    """Summarizes the traces of many machines on the workers, and adds the summaries up in a tree.

    Each of `machines` is the trace of one, or several traces of it: paths on the workers, or URLs
    of fsspec. A task reads the traces of `fan_in` machines, one machine after the other, or adds up
    `fan_in` sums. `output`, a path here or a URL, gets its name when the sum is complete. It has
    the bytes of `seekless.merge_summaries` of the summaries of all machines, whatever `fan_in`,
    the number of the workers, and those that are lost. It must be none of the traces. Ranges that
    fewer than `min_machines` machines touched are left out.

    A task whose store does not answer is run `retries` more times; `FleetError` then has its URL.
    Returns the number of machines.
    """
    if fan_in < 2:
        raise UsageError(f"fan_in is {fan_in}: at least two are needed")
    if isinstance(machines, (str, bytes, os.PathLike)):
        machines = [machines]
    given = [names(machine) for machine in machines]
    if not given:
        raise UsageError("no trace to summarize")
    target = os.fsdecode(output)
    refuse(target, [trace for traces in given for trace in traces])
    tasks = [
        client.submit(_leaf, part, weight, pure=False, retries=retries)
        for part in _parts(given, fan_in)
    ]
    # All tasks stay wanted until the end: cancelling a task fails if a task that needs it is not.
    tree = list(tasks)
    while len(tasks) > 1:
        # The floor is applied to the whole only.
        floor = min_machines if len(tasks) <= fan_in else 0
        tasks = [
            client.submit(_sum, part, floor, pure=False, retries=retries)
            for part in _parts(tasks, fan_in)
        ]
        tree += tasks
    if len(tree) == 1:
        tasks = [client.submit(_sum, tasks, min_machines, pure=False, retries=retries)]
        tree += tasks
    with running(client, dict.fromkeys(tree)) as done:
        # The first failure ends the work.
        for _, future in done:
            if future.status == "error":
                future.result()
        contents: bytes = tasks[0].result()
    store(contents, target)
    return len(given)


def _parts(items: Sequence[T], size: int) -> list[list[T]]:
    return [list(items[at : at + size]) for at in range(0, len(items), size)]


def _leaf(machines: list[list[str]], weight: float) -> bytes:
    """The sum of the summaries of some machines."""
    with tempfile.TemporaryDirectory(prefix="seekless-fleet-", dir=scratch()) as work:
        summaries = []
        for number, traces in enumerate(machines):
            summary = Path(work, f"{number}.parquet")
            _summary(traces, weight, summary, Path(work))
            summaries.append(summary)
        return _added(summaries, 0, Path(work))


def _summary(traces: list[str], weight: float, output: Path, work: Path) -> None:
    copies = []
    for number, trace in enumerate(traces):
        copy = work / f"trace-{number}"
        try:
            with fsspec.open(trace, "rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except Exception as error:
            # File systems of fsspec have errors of their own, not all of which can be sent.
            raise FleetError.of(error, f"{trace}: {type(error).__name__}: {error}") from None
        copies.append(copy)
    try:
        summarize_one(copies, output, weight=weight)
    except Error as error:
        said = str(error)
        for copy, trace in zip(copies, traces):
            said = said.replace(str(copy), trace)
        raise FleetError.of(error, said) from None
    for copy in copies:
        copy.unlink()


def _sum(summaries: list[bytes], min_machines: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="seekless-fleet-", dir=scratch()) as work:
        paths = []
        for number, contents in enumerate(summaries):
            path = Path(work, f"{number}.parquet")
            path.write_bytes(contents)
            paths.append(path)
        return _added(paths, min_machines, Path(work))


def _added(summaries: list[Path], min_machines: int, work: Path) -> bytes:
    output = work / "sum.parquet"
    try:
        merge_summaries(summaries, output, min_machines=min_machines)
    except Error as error:
        raise FleetError.of(error, str(error)) from None
    return output.read_bytes()
