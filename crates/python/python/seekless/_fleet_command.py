"""The command `seekless-fleet`: what `seekless.fleet` does, for the shell."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Optional

from ._errors import Error

if TYPE_CHECKING:
    from distributed import Client

#: Exit codes by the kind of an error, as those of `seekless`.
_CODES = {"usage": 2, "corrupt": 3, "unsupported": 4, "no-space": 5, "system": 6}

_CRASH_HELP = "see `seekless crash run --help`"
_CRASH_NUMBERS = ["sample", "bound", "sequences", "seed", "schedules"]
_CRASH_NAMES = ["dirs", "inodes", "blocks", "clusters"]
_CRASH_FLAGS = ["exhaustive", "queue", "discard"]

_EPILOG = """\
examples:
  seekless-fleet lab dirpref -o results
  seekless-fleet --scheduler tcp://head:8786 lab mine.toml --shards 64 -o s3://lab/mine
  seekless-fleet --workers 4 crash pairs -d softdep -f ext2 --sample 200
  seekless-fleet score a.img b.img --trace boot.trace -o scores.parquet
  seekless-fleet summarize *.trace --min-machines 5 -o fleet.parquet
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command. Returns its exit code."""
    given = _parser().parse_args(arguments)
    try:
        with _client(given) as client:
            return _run(given, client)
    except ImportError as error:
        return _fail(str(error), 6)
    except Error as error:
        return _fail(str(error), _CODES.get(error.kind, 6))
    except OSError as error:
        return _fail(str(error), 6)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _fail(message: str, code: int) -> int:
    print(f"seekless-fleet: {message}", file=sys.stderr)
    return code


def _client(given: argparse.Namespace) -> AbstractContextManager[Client]:
    """The cluster, or one on this machine that ends with the command."""
    # First, because it says which packages are missing.
    from . import fleet
    from distributed import Client

    if given.scheduler is not None:
        client: AbstractContextManager[Client] = Client(given.scheduler)
        return client
    workers = given.workers if given.workers is not None else os.cpu_count() or 1
    client = Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    return client


def _run(given: argparse.Namespace, client: Client) -> int:
    from . import fleet

    if given.command == "lab":
        result = fleet.lab(
            given.experiment,
            client,
            only=given.only,
            seeds=given.seeds,
            repetitions=given.repetitions,
            shards=given.shards,
            output=given.output,
            program=given.program,
        )
        print(json.dumps(result))
    elif given.command == "crash":
        names = [*_CRASH_NUMBERS, *_CRASH_NAMES, *_CRASH_FLAGS, "discipline", "format", "shards"]
        options = {name: getattr(given, name) for name in names}
        result = fleet.crash(given.workload, client, program=given.program, **options)
        print(json.dumps(result))
        return 0 if result["holds"] else 1
    elif given.command == "score":
        _refuse(given.output, [*given.images, *given.trace])
        _write(fleet.score(given.images, given.trace, client, chunk=given.chunk), given.output)
    elif given.command == "summarize":
        count = fleet.summarize(
            given.traces,
            given.output,
            client,
            weight=given.weight,
            min_machines=given.min_machines,
        )
        print(json.dumps({"machines": count}))
    else:
        _refuse(given.output, given.images)
        _write(fleet.compare(given.images, client, chunk=given.chunk), given.output)
    return 0


def _refuse(output: Optional[str], inputs: list[str]) -> None:
    """Refuses an output that is an input, before the work begins."""
    from .fleet._store import refuse

    if output is not None:
        refuse(output, inputs)


def _write(table: Any, output: Optional[str]) -> None:
    """Writes a table as Parquet if the name of the file says so, otherwise as JSON, row by row."""
    from .fleet._store import store

    if output is not None and output.endswith(".parquet"):
        import pyarrow.parquet

        packed = io.BytesIO()
        pyarrow.parquet.write_table(table, packed)
        store(packed.getvalue(), output)
        return
    rows = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    if output is None:
        print(rows, end="")
    else:
        store(rows.encode(), output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seekless-fleet",
        description="Experiments, crash campaigns, scores and summaries on a Dask cluster",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="scheduler of the cluster")
    where.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help="start N workers on this machine [default: number of processors]",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _lab(commands.add_parser("lab", help="run an experiment", allow_abbrev=False))
    _crash(commands.add_parser("crash", help="run a crash campaign", allow_abbrev=False))
    _tables(commands)
    _summarize(commands.add_parser("summarize", help="summarize traces", allow_abbrev=False))
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number of at least 1 is needed")
    return int(text)


def _lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="built-in experiment, or path of a file")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CELL", help="run only these cells"
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds")
    parser.add_argument("--repetitions", type=int, metavar="N", help="repetitions of each seed")
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="directory or URL for the results"
    )
    _shards(parser)


def _crash(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", help="name of a workload, or path of a script")
    parser.add_argument("-d", "--discipline", required=True, help="update discipline")
    parser.add_argument("-f", "--format", required=True, help="format")
    for name in _CRASH_NUMBERS:
        parser.add_argument(f"--{name}", type=int, metavar="N", help=_CRASH_HELP)
    for name in _CRASH_NAMES:
        parser.add_argument(f"--{name}", metavar="NAME", help=_CRASH_HELP)
    for name in _CRASH_FLAGS:
        parser.add_argument(f"--{name}", action="store_true", help=_CRASH_HELP)
    _shards(parser)


def _summarize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", nargs="+", help="a trace of each machine (path or URL)")
    parser.add_argument("--weight", type=float, default=1.0, metavar="X", help="of each trace")
    parser.add_argument(
        "--min-machines",
        type=int,
        default=0,
        metavar="N",
        help="leave out ranges that fewer machines touched",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the summary (path or URL)"
    )


def _shards(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=int, metavar="N", help="number of shards, each a task")
    parser.add_argument(
        "--program",
        default="seekless",
        metavar="PATH",
        help="the program, here and on the workers [default: seekless, by PATH]",
    )


def _tables(commands: Any) -> None:
    score = commands.add_parser("score", help="score images by traces", allow_abbrev=False)
    compare = commands.add_parser("compare", help="count shared chunks", allow_abbrev=False)
    score.add_argument(
        "--trace", action="append", required=True, metavar="FILE", help="trace (path or URL)"
    )
    for parser in (score, compare):
        parser.add_argument("images", nargs="+", help="paths on the workers, or URLs")
        parser.add_argument(
            "--chunk", type=int, default=524_288, metavar="BYTES", help="size of chunks"
        )
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="table as Parquet (.parquet) or lines of JSON [default: standard output]",
        )
