"""Experiments, crash campaigns, scores and summaries of traces on the workers of a Dask cluster.

    from dask.distributed import Client
    from seekless import fleet

    with Client("scheduler:8786") as client:
        fleet.lab("dirpref", client, output="results")
        fleet.crash("pairs", client, discipline="softdep", format="ext2", sample=200)
        fleet.score(["a.img", "s3://images/b.img"], ["boot.trace"], client)
        fleet.summarize(["s3://traces/1.zst", "s3://traces/2.zst"], "fleet.parquet", client)

It needs `pip install seekless[fleet]`, here and on the workers; `lab` and `crash` also need the
program `seekless` there.
"""

try:
    import distributed as _distributed
    import fsspec as _fsspec
except ImportError as error:
    raise ImportError(f"{error}: pip install seekless[fleet]", name=error.name) from error

from ._compare import compare
from ._crash import crash
from ._errors import CommandError, FleetError, ShardError
from ._lab import lab
from ._score import score
from ._summarize import summarize

del _distributed, _fsspec

__all__ = [
    "CommandError",
    "FleetError",
    "ShardError",
    "compare",
    "crash",
    "lab",
    "score",
    "summarize",
]
