"""Experiments."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import fsspec
from distributed import Client

from .. import ExistsError
from ._errors import CommandError
from ._shards import Job, located, merge, named, options, run_shards
from ._tasks import shard_count

#: Runs take different times: with several shards for each thread, all threads have work longer.
SHARDS_PER_THREAD = 4


def lab(
    experiment: Union[str, "os.PathLike[str]"],
    client: Client,
    *,
    only: Union[str, Sequence[str]] = (),
    seeds: Optional[int] = None,
    repetitions: Optional[int] = None,
    shards: Optional[int] = None,
    output: Union[str, "os.PathLike[str]"],
    program: str = "seekless",
    retries: int = 2,
) -> dict[str, Any]:
    """Runs an experiment, as `seekless lab run EXPERIMENT -o OUTPUT` does, on the workers.

    `experiment` is a built-in one, or the path of a file here, which is sent to the workers.
    `only`, `seeds` and `repetitions` are options of the command. The runs are divided into `shards`
    (default: four for each thread of the cluster); each is a task. Their results are merged here.

    If `output` is a path, the results of the shards are sent here. If it is a URL of fsspec, the
    workers write them below it, in `parts-*`; after a failure, the next call continues with those
    that are complete, if it has as many shards and the program is of the same version.

    `program` is the program `seekless`, here and on the workers. A task that fails is run `retries`
    more times; one whose worker was killed is run again by Dask, whatever `retries` is. Returns the
    results as `seekless lab merge --json` prints them. Raises `ShardError` if a shard fails.
    """
    program = located(program)
    built_in = isinstance(experiment, str) and not set("/.") & set(experiment)
    name, file = named(experiment, built_in)
    cells = [only] if isinstance(only, str) else list(only)
    chosen = ["--only", *cells] if cells else []
    arguments = ["lab", "run", name, "--quiet", *options(jobs=1, seeds=seeds)]
    arguments += [*options(repetitions=repetitions), *chosen]
    # Without the program here, nothing could be merged after all the work.
    version = merge([program, "--version"])
    job = Job(program, tuple(arguments), file)
    count = shard_count(shards, client, SHARDS_PER_THREAD)
    target = os.fspath(output)
    shared = _Shared(target, f"parts-{job.digest(version)}") if "://" in target else None
    if shared is None and os.path.exists(target) and not os.path.isdir(target):
        raise ExistsError(f"{target}: is no directory")
    work = Path(tempfile.mkdtemp(prefix="seekless-fleet-"))
    is_kept = False
    try:
        parts = shared.parts if shared else None
        found = run_shards(client, job, count, retries, parts, work)
        try:
            results = _merged(program, found, work / "merged" if shared else Path(target))
        except CommandError as error:
            is_kept = True
            kept = f"{error.stderr.strip()}\nThe results of the shards are in {work}."
            raise CommandError(error.command, error.status, kept) from None
        if shared:
            shared.publish(work / "merged")
        return results
    finally:
        if not is_kept:
            shutil.rmtree(work)


def _merged(program: str, parts: Sequence[Path], into: Path) -> dict[str, Any]:
    command = [program, "lab", "merge", *map(str, parts), "-o", str(into), "--json"]
    results: dict[str, Any] = json.loads(merge(command))
    return results


class _Shared:
    """A directory of fsspec for the results of shards, and later the merged results."""

    def __init__(self, url: str, parts: str) -> None:
        self._fs, self._path = fsspec.url_to_fs(url.rstrip("/"))
        self._parts = f"{self._path}/{parts}"
        self.parts = f"{url.rstrip('/')}/{parts}"
        there = self._fs.ls(self._path, detail=False) if self._fs.exists(self._path) else []
        names = {it.rstrip("/").rpartition("/")[2] for it in there}
        # Files beside the parts of the same shards are merged results, written in part.
        if parts not in names and any(not name.startswith("parts-") for name in names):
            raise ExistsError(f"{url}: has files already")

    def publish(self, merged: Path) -> None:
        """Writes the merged results, and removes those of the shards."""
        for path in sorted(merged.rglob("*")):
            if path.is_file():
                there = f"{self._path}/{path.relative_to(merged)}"
                self._fs.makedirs(there.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(path), there)
        self._fs.rm(self._parts, recursive=True)
