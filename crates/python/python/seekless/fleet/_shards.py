"""Commands of the program that are divided into shards, each of which is a task."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import fsspec
from distributed import Client, Future

from ._errors import CommandError, ShardError
from ._store import store
from ._tasks import Cancellation, running, scratch

#: The output of a shard, in its working directory; no file that is sent has this name.
RESULTS = ".seekless-results"
#: Seconds between two looks at whether a task was cancelled.
PATIENCE = 0.2


@dataclass(frozen=True)
class Job:
    """A command with the options `--shard` and `-o`."""

    program: str
    arguments: tuple[str, ...]
    #: A file that the command reads, by its name in the working directory.
    file: Optional[tuple[str, bytes]] = None
    #: Exit codes with which the results are complete.
    accepted: tuple[int, ...] = (0,)

    def command(self, shard: str) -> list[str]:
        """The command of one shard."""
        return [self.program, *self.arguments, "--shard", shard, "-o", RESULTS]

    def digest(self, version: str) -> str:
        """A name of its own for each command, each contents of its file and each version."""
        parts = (self.arguments, self.file, version)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def named(given: Any, built_in: bool) -> tuple[str, Optional[tuple[str, bytes]]]:
    """The argument for an experiment or a workload, and the file if it is one."""
    if built_in:
        return str(given), None
    path = Path(os.fsdecode(given))
    # A name without a dot could be that of a built-in one, one with a hyphen that of an option.
    is_clear = "." in path.name and not path.name.startswith("-")
    name = path.name if is_clear else f"./{path.name}"
    return name, (path.name, path.read_bytes())


def located(program: str) -> str:
    """The program by a path that every working directory has, unless PATH has it."""
    return os.path.abspath(program) if "/" in program else program


def options(**values: object) -> list[str]:
    """Options of the command line: True is one without a value, None and False are none."""
    arguments: list[str] = []
    for name, value in values.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            arguments += [f"--{name}", str(value)]
    return arguments


def run_shards(
    client: Client, job: Job, count: int, retries: int, parts: Optional[str], into: Path
) -> list[Path]:
    """Runs all shards on the workers. Returns the output of each, below `into`.

    With `parts`, a URL of fsspec, workers write the results there, and those that are there already
    are not repeated.
    """
    names = [f"{number}/{count}" for number in range(1, count + 1)]
    tasks = {
        client.submit(run_shard, job, name, parts, pure=False, retries=retries): name
        for name in names
    }
    with running(client, tasks) as done:
        for name, future in done:
            archive = _result(future, job, name)
            if parts is not None:
                with fsspec.open(_part(parts, name), "rb") as file:
                    archive = file.read()
            _unpack(archive, into / _directory(name))
            future.release()
    return [into / _directory(name) / RESULTS for name in names]


def _result(future: Future, job: Job, shard: str) -> bytes:
    try:
        archive: bytes = future.result()
    except ShardError:
        raise
    except Exception as error:
        # The workers were lost, or could not load or store something.
        why = f"{type(error).__name__}: {error}"
        raise ShardError(shard, job.command(shard), None, why) from error
    return archive


def run_shard(job: Job, shard: str, parts: Optional[str]) -> bytes:
    """Runs a shard on this worker. Returns its results as an archive, unless they go to `parts`."""
    if parts is not None and _exists(_part(parts, shard)):
        return b""
    with tempfile.TemporaryDirectory(prefix="seekless-fleet-", dir=scratch()) as work:
        if job.file is not None:
            Path(work, job.file[0]).write_bytes(job.file[1])
        command = job.command(shard)
        status, stderr = _call(command, work)
        if status not in job.accepted:
            raise ShardError(shard, command, status, stderr)
        archive = _pack(Path(work, RESULTS))
    if parts is None:
        return archive
    _store(archive, _part(parts, shard))
    return b""


def merge(command: Sequence[str], accepted: Sequence[int] = (0,)) -> str:
    """Runs a command that merges the results, on this machine. Returns its output."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise CommandError(command, None, str(error)) from error
    if done.returncode not in accepted:
        raise CommandError(command, done.returncode, done.stderr)
    return done.stdout


def _call(command: Sequence[str], work: str) -> tuple[Optional[int], str]:
    """Runs a command in a directory, until it ends or the task is cancelled."""
    cancellation = Cancellation()
    with tempfile.TemporaryFile(dir=work) as stderr:
        try:
            process = subprocess.Popen(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        except OSError as error:
            return None, str(error)
        try:
            for _ in _waits(process):
                if cancellation.is_requested():
                    return None, "cancelled"
        finally:
            process.kill()
            process.wait()
        stderr.seek(0)
        return process.returncode, stderr.read().decode(errors="replace")


def _waits(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Yields from time to time until the process has ended."""
    while True:
        try:
            process.wait(PATIENCE)
            return
        except subprocess.TimeoutExpired:
            yield


def _pack(results: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(results, RESULTS)
    return packed.getvalue()


def _unpack(packed: bytes, into: Path) -> None:
    into.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # Older versions of Python have no filters.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(into, filter="data")
        else:
            archive.extractall(into)


def _directory(shard: str) -> str:
    return shard.replace("/", "-of-")


def _part(parts: str, shard: str) -> str:
    return f"{parts}/{_directory(shard)}.tar"


def _exists(url: str) -> bool:
    fs, path = fsspec.url_to_fs(url)
    return bool(fs.exists(path))


def _store(archive: bytes, url: str) -> None:
    """Writes a part, and makes its directory."""
    fs, path = fsspec.url_to_fs(url)
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    store(archive, url)
