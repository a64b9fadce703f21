"""Crash campaigns."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Optional, Union

from distributed import Client

from ._errors import FleetError
from ._shards import Job, located, merge, named, options, run_shards
from ._tasks import shard_count


def crash(
    workload: Union[str, "os.PathLike[str]"],
    client: Client,
    *,
    discipline: str,
    format: str,
    sample: Optional[int] = None,
    exhaustive: bool = False,
    bound: Optional[int] = None,
    sequences: Optional[int] = None,
    seed: Optional[int] = None,
    schedules: Optional[int] = None,
    queue: bool = False,
    discard: bool = False,
    dirs: Optional[str] = None,
    inodes: Optional[str] = None,
    blocks: Optional[str] = None,
    clusters: Optional[str] = None,
    shards: Optional[int] = None,
    program: str = "seekless",
    retries: int = 2,
) -> dict[str, Any]:
    """Runs a campaign, as `seekless crash run --workload WORKLOAD` does, on the workers.

    `workload` is a name, or the path of a script here, which is sent to the workers and named by
    its last component in the results. The other parameters are options of the command. The states
    are divided into `shards` (default: one for each thread of the cluster); each is a task.

    `program` and `retries` are those of `lab`. Returns the result of the campaign as `seekless
    crash merge --json` prints it; `holds` is whether all states hold. Raises `ShardError` if a
    shard fails.
    """
    program = located(program)
    built_in = isinstance(workload, str) and not set("/.") & set(workload)
    name, file = named(workload, built_in)
    arguments = ["crash", "run", "--quiet", "--workload", name]
    arguments += options(discipline=discipline, format=format, sample=sample, exhaustive=exhaustive)
    arguments += options(bound=bound, sequences=sequences, seed=seed, schedules=schedules)
    arguments += options(queue=queue, discard=discard, dirs=dirs, inodes=inodes, blocks=blocks)
    arguments += options(clusters=clusters)
    # With 1, a state does not hold; the shard is complete.
    job = Job(program, tuple(arguments), file, accepted=(0, 1))
    with tempfile.TemporaryDirectory(prefix="seekless-fleet-") as temporary:
        count = shard_count(shards, client, 1)
        parts = run_shards(client, job, count, retries, None, Path(temporary))
        said = merge([program, "crash", "merge", "--json", *map(str, parts)], accepted=(0, 1))
    return _complete(json.loads(said))


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    """Refuses a campaign of which a part is missing."""
    if not result["merged"]:
        raise FleetError("; ".join(result["gaps"]))
    return result
