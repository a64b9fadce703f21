"""Work on a cluster has the results of one process."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import seekless as sk
from conftest import numbers
from test_docs import ROOT, examples

dask = pytest.importorskip("dask", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

from seekless import _fleet_command, fleet
from seekless.fleet._images import local

CAMPAIGN: dict[str, Any] = {"discipline": "softdep", "format": "ufs2", "exhaustive": True}
ASYNC: dict[str, Any] = {"discipline": "async", "format": "ufs1", "sample": 60, "seed": 3}
#: Seconds until a test gives up, also on machines where processes start slowly.
PATIENCE = 120


@pytest.fixture(scope="module")
def program() -> str:
    """The program `seekless` that cargo has built."""
    if "SEEKLESS_PROGRAM" not in os.environ:
        pytest.skip("SEEKLESS_PROGRAM does not say where the program is")
    return os.environ["SEEKLESS_PROGRAM"]


@contextmanager
def two_workers(directory: Path) -> Iterator[Any]:
    """A client of a cluster of two processes on this machine."""
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(directory),
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two processes on this machine."""
    # A worker that a test has killed is replaced, however long that takes. After 15 seconds the
    # cluster would go on with the other one.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    with patient, two_workers(tmp_path_factory.mktemp("workers")) as client:
        yield client


@pytest.fixture(scope="module")
def small(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment dirpref with a small tree."""
    text = said(program, "lab", "show", "dirpref")
    for old, new in [
        ("directories = 6596, files = 13868", "directories = 130, files = 260"),
        ("categories = 50", "categories = 5"),
    ]:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path_factory.mktemp("experiment") / "small.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def whole(program: str, small: Path) -> dict[str, bytes]:
    """The results of the experiment in one process."""
    output = small.parent / "whole"
    said(program, "lab", "run", str(small), "--only", "first", "-o", str(output))
    return files(output)


def said(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def files(directory: Path) -> dict[str, bytes]:
    """The results in a directory, without the notes of the runs that were requested."""
    found = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith("selection-")
    }
    assert {"experiment.toml", "runs.csv", "runs.parquet", "cells.csv", "cells.json"} <= set(found)
    assert sum(name.startswith("run-") for name in found) > 4
    return found


def wrapper(directory: Path, program: str, before: str) -> str:
    """A program that does something before it becomes `program`; `$here` is its directory."""
    path = directory / "wrapper"
    path.write_text(f'#!/bin/sh\nhere={directory}\n{before}\nexec {program} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def waits(condition: str) -> str:
    """Shell: waits for a condition, at most two minutes."""
    return f"n=0; until {condition} || [ $n = 1200 ]; do sleep 0.1; n=$((n + 1)); done"


def test_lab(client: Any, program: str, small: Path, whole: dict[str, bytes]) -> None:
    output = small.parent / "merged"
    result = fleet.lab(small, client, only="first", shards=3, output=output, program=program)
    assert files(output) == whole
    again = json.loads(said(program, "lab", "merge", str(output), "--json"))
    assert result["cells"] == again["cells"]
    # The parts are all there: the merged directory is a whole experiment.
    assert len(list(output.glob("selection-*"))) == 3


def test_lab_continues_in_a_shared_place(
    client: Any, program: str, small: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    fails = wrapper(
        tmp_path,
        program,
        'echo "$*" >> $here/calls\n'
        'case "$*" in *" 2/2 "*) if mkdir $here/once 2>/dev/null; then\n'
        f'{waits("ls $here/shared/parts-*/1-of-2.tar >/dev/null 2>&1")}; exit 6; fi;; esac',
    )
    options: dict[str, Any] = {"only": ["first"], "shards": 2, "output": f"file://{shared}"}
    with pytest.raises(fleet.ShardError, match="shard 2/2"):
        fleet.lab(small, client, program=fails, retries=0, **options)
    # As if the merged results had been written in part.
    (shared / "cells.csv").write_text("half")
    fleet.lab(small, client, program=fails, retries=0, **options)
    assert files(shared) == whole
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "--shard" in line]
    assert [line.count("--shard 1/2") for line in calls].count(1) == 1, "shard 1 is not repeated"
    assert not list(shared.glob("parts-*"))
    with pytest.raises(sk.ExistsError):
        fleet.lab(small, client, program=program, **options)


def test_results_stay_where_they_cannot_be_merged(
    client: Any, program: str, small: Path, tmp_path: Path
) -> None:
    fails = wrapper(tmp_path, program, 'case "$*" in "lab merge "*) echo full >&2; exit 5;; esac')
    options: dict[str, Any] = {"only": "first", "shards": 2, "program": fails}
    with pytest.raises(fleet.CommandError, match="full") as failed:
        fleet.lab(small, client, output=tmp_path / "merged", **options)
    kept = Path(failed.value.stderr.rpartition(" in ")[2].rstrip("."))
    assert sorted(it.name for it in kept.iterdir()) == ["1-of-2", "2-of-2"]
    shutil.rmtree(kept)
    (tmp_path / "file").write_text("")
    with pytest.raises(sk.ExistsError):
        fleet.lab(small, client, output=tmp_path / "file", **options)
    with pytest.raises(fleet.CommandError, match="nowhere"):
        fleet.lab(small, client, only="first", output=tmp_path / "x", program="./nowhere")


@pytest.mark.parametrize("workload, options", [("mkdir", CAMPAIGN), ("unlink", ASYNC)])
def test_crash(
    client: Any, program: str, tmp_path: Path, workload: str, options: dict[str, Any]
) -> None:
    found = fleet.crash(workload, client, shards=3, program=program, **options)
    assert found == undivided(program, tmp_path, workload, options)
    assert found["holds"] == (options is CAMPAIGN) == (found["failing"] == 0)
    assert found["states"] >= 60 and len(found["workloads"]) == 1


def undivided(program: str, directory: Path, workload: str, options: dict[str, Any]) -> Any:
    command = [program, "crash", "run", "-w", workload, "-o", str(directory / "state")]
    for name, value in options.items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    ran = subprocess.run([*command, "--json"], stdout=subprocess.PIPE)
    merged = subprocess.run(
        [program, "crash", "merge", str(directory / "state"), "--json"], stdout=subprocess.PIPE
    )
    one, same = json.loads(ran.stdout), json.loads(merged.stdout)
    for name in ("holds", "states", "failing"):
        assert one[name] == same[name]
    return same


def test_scripts_are_sent(client: Any, program: str, tmp_path: Path) -> None:
    script = tmp_path / "results"
    script.write_text("open a\nwrite 0 4K\nfsync\nrename a b\nsync\n")
    found = fleet.crash(script, client, program=program, **CAMPAIGN)
    assert found["holds"] and found["workloads"][0]["workload"] == "./results"


def test_a_worker_is_killed(
    client: Any, program: str, small: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    workers = set(client.run(os.getpid).values())
    kills = wrapper(
        tmp_path,
        program,
        'case "$*" in *--shard*) if mkdir $here/once 2>/dev/null; then\n'
        "echo $PPID > $here/killed; kill -KILL $PPID; exit 1; fi;; esac",
    )
    output = tmp_path / "merged"
    fleet.lab(small, client, only="first", shards=3, output=output, program=kills, retries=0)
    assert int((tmp_path / "killed").read_text()) in workers
    assert files(output) == whole
    client.wait_for_workers(2, timeout=PATIENCE)


def test_a_shard_that_kills_its_workers_is_named(
    client: Any, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    kills = wrapper(tmp_path, program, 'case "$*" in *" 2/2 "*) kill -KILL $PPID; exit 1;; esac')
    with pytest.raises(fleet.ShardError, match="KilledWorker") as caught:
        fleet.crash("mkdir", client, shards=2, program=kills, retries=0, **CAMPAIGN)
    assert caught.value.shard == "2/2" and caught.value.status is None
    client.wait_for_workers(2, timeout=PATIENCE)


def test_a_shard_that_fails_is_named(client: Any, program: str, tmp_path: Path) -> None:
    fails = wrapper(
        tmp_path,
        program,
        'case "$*" in *" 2/2 "*) echo x >> $here/tries\n'
        f'{waits("ls $here/*.pid >/dev/null 2>&1")}; echo the disk is full >&2; exit 5;; esac\n'
        "touch $here/$$.pid; exec sleep 600",
    )
    with pytest.raises(fleet.ShardError) as caught:
        fleet.crash("mkdir", client, shards=2, program=fails, retries=1, **CAMPAIGN)
    error = caught.value
    assert (error.shard, error.status, error.stderr) == ("2/2", 5, "the disk is full\n")
    assert error.command[:3] == (fails, "crash", "run") and "2/2" in error.command
    assert error.kind == "no-space"
    for text in ("shard 2/2", "crash run", "the disk is full"):
        assert text in str(error)
    assert (tmp_path / "tries").read_text() == "x\nx\n"
    # The other shard is cancelled.
    until(lambda: not any(is_running(path) for path in tmp_path.glob("*.pid")))


def test_a_program_that_refuses_or_is_missing(client: Any, program: str, tmp_path: Path) -> None:
    with pytest.raises(fleet.ShardError, match="no such workload") as caught:
        fleet.crash("nothing", client, shards=1, program=program, retries=0, **CAMPAIGN)
    assert (caught.value.status, caught.value.kind) == (2, "usage")
    with pytest.raises(sk.UsageError, match="at least one"):
        fleet.crash("mkdir", client, shards=0, program=program, **CAMPAIGN)
    missing = str(tmp_path / "missing")
    with pytest.raises(fleet.ShardError, match="No such file"):
        fleet.crash("mkdir", client, shards=1, program=missing, retries=0, **CAMPAIGN)


def test_an_interruption_ends_the_programs(client: Any, program: str, tmp_path: Path) -> None:
    hangs = wrapper(tmp_path, program, "touch $here/$$.pid; exec sleep 600")

    def interrupt() -> None:
        until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        fleet.crash("mkdir", client, shards=4, program=hangs, **CAMPAIGN)
    thread.join()
    until(lambda: not any(is_running(path) for path in tmp_path.glob("*.pid")))
    # The tasks that had not begun do not begin.
    until(lambda: not any(client.processing().values()))
    assert len(list(tmp_path.glob("*.pid"))) == 2


def test_the_end_of_the_client_ends_the_programs(
    client: Any, program: str, tmp_path: Path
) -> None:
    hangs = wrapper(tmp_path, program, "touch $here/$$.pid; exec sleep 600")
    script = "from seekless._fleet_command import main; raise SystemExit(main())"
    command = [sys.executable, "-c", script, "--scheduler", client.scheduler.address]
    command += ["crash", "mkdir", "-d", "softdep", "-f", "ufs2", "--program", hangs]
    # It cannot remove its temporary directory.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment) as process:
        until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        process.kill()
    until(lambda: not any(is_running(path) for path in tmp_path.glob("*.pid")))


def is_running(pid: Path) -> bool:
    """Whether the process runs that made this file."""
    return Path("/proc", pid.stem).exists()


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def traces_of(directory: Path, count: int) -> list[str]:
    """Traces of as many machines, which have some files in common."""
    made = []
    for machine in range(count):
        names = [f"/f{(machine * number) % 40}" for number in range(1, 30)]
        made.append(str(directory / f"{machine}.trace"))
        sk.Trace.of_paths(names).save(made[-1])
    return made


def added_here(traces: list[str], directory: Path, **options: Any) -> bytes:
    """The sum of the summaries of traces, in one process."""
    summaries = [f"{trace}.parquet" for trace in traces]
    for trace, summary in zip(traces, summaries):
        sk.summarize(trace, summary)
    sk.merge_summaries(summaries, directory / "here", **options)
    return (directory / "here").read_bytes()


def test_summarize(client: Any, tmp_path: Path) -> None:
    traces = traces_of(tmp_path, 30)
    output = tmp_path / "sum.parquet"
    given = [traces[0], f"file://{traces[1]}", *traces[2:]]
    for options in ({}, {"min_machines": 5}):
        here = added_here(traces, tmp_path, **options)
        for fan_in in (2, 7, 64):
            assert fleet.summarize(given, output, client, fan_in=fan_in, **options) == 30
            assert output.read_bytes() == here
    assert fleet.summarize([traces[:2], traces[2]], output, client) == 2
    sk.summarize(traces[:2], tmp_path / "one")
    sk.summarize(traces[2], tmp_path / "two")
    sk.merge_summaries([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert output.read_bytes() == (tmp_path / "both").read_bytes()
    (tmp_path / "whole").write_bytes(here)
    assert len(sk.Trace.load(tmp_path / "whole")) > 0


def test_summarize_names_what_fails(client: Any, tmp_path: Path) -> None:
    traces = traces_of(tmp_path, 5)
    output = tmp_path / "sum.parquet"
    text = Path(traces[3]).read_bytes()
    Path(traces[3]).write_bytes(text[:-9])
    with pytest.raises(fleet.FleetError, match="3.trace: line .*cut short"):
        fleet.summarize(traces, output, client, fan_in=2, retries=0)
    with pytest.raises(fleet.FleetError, match="nowhere.trace"):
        fleet.summarize([*traces[:2], "nowhere.trace"], output, client, retries=0)
    assert not output.exists() and not list(tmp_path.glob("sum.parquet*"))
    with pytest.raises(sk.UsageError):
        fleet.summarize([], output, client)


def test_summarize_replaces_nothing_that_it_reads(client: Any, tmp_path: Path) -> None:
    traces = traces_of(tmp_path, 3)
    before = [Path(trace).read_bytes() for trace in traces]
    (tmp_path / "link").symlink_to(traces[1])
    for output in (traces[1], f"file://{traces[1]}", tmp_path / "link", tmp_path):
        with pytest.raises(sk.UsageError, match="over an input|a directory"):
            fleet.summarize(traces, output, client)
    assert [Path(trace).read_bytes() for trace in traces] == before
    assert sorted(it.name for it in tmp_path.iterdir()) == sorted(
        ["link", *(Path(trace).name for trace in traces)]
    )
    # So does the command, also for tables.
    image = tmp_path / "x.img"
    image.write_text("kept")
    at = ["--scheduler", client.scheduler.address]
    tables = [["compare"], ["score", "--trace", str(traces[0])]]
    for table in tables:
        assert _fleet_command.main([*at, *table, str(image), "-o", str(image)]) == 2
    assert image.read_text() == "kept"
    assert _fleet_command.main([*at, "summarize", *map(str, traces), "-o", str(traces[2])]) == 2
    # The target of a link is replaced, not the link.
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("old")
    assert fleet.summarize(traces[0], tmp_path / "link", client) == 1
    assert (tmp_path / "link").is_symlink() and len(sk.Trace.load(tmp_path / "old")) > 0


def test_summarize_on_four_workers_of_which_one_is_killed(tmp_path: Path) -> None:
    traces = traces_of(tmp_path, 24)
    here = added_here(traces, tmp_path)
    # The worker that reads it waits, until it is killed.
    waits, real = Path(traces[13]), tmp_path / "real"
    waits.rename(real)
    os.mkfifo(waits)
    cluster = distributed.LocalCluster(
        n_workers=4,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path / "workers"),
    )
    with cluster, distributed.Client(cluster) as four:
        pids = four.run(os.getpid)

        def kill() -> None:
            def busy() -> list[str]:
                return [worker for worker, tasks in four.processing().items() if tasks]

            # All others are done: the sums wait for the one.
            until(lambda: len(busy()) == 1 and len(four.has_what()) == 4)
            until(lambda: sum(map(len, four.has_what().values())) >= 11)
            worker = busy()[0]
            real.rename(waits)
            os.kill(pids[worker], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        fleet.summarize(traces, tmp_path / "sum", four, fan_in=2, retries=0)
        thread.join()
        assert pids != four.run(os.getpid), "a worker was killed"
    assert (tmp_path / "sum").read_bytes() == here


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three images, the first two of which have most contents in common."""
    work = tmp_path_factory.mktemp("images")
    made = []
    for number, seeds in enumerate([(1, 2, 3), (1, 2, 4), (5, 6, 7)]):
        tree = work / f"tree{number}"
        tree.mkdir()
        for seed in seeds:
            (tree / f"file{seed}").write_bytes(numbers(seed, 400_000))
        made.append(work / f"{number}.img")
        sk.build(tree, made[-1])
    return made


def test_score(client: Any, images: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    one, other = sk.Trace.of_paths(["/file1", "/missing"]), sk.Trace.of_paths(["/file7", "/file2"])
    other.save(tmp_path / "other.trace")
    archive = tmp_path / "images.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(images[2], "third.img")
    given = [str(images[0]), f"file://{images[1]}", f"zip://third.img::file://{archive}"]
    traces: dict[str, Any] = {"one": one, "other": tmp_path / "other.trace"}
    # Each worker makes one copy of an image that is no file of the host.
    workers = client.scheduler_info()["workers"]
    tasks = [client.submit(local, given[2], workers=[it], pure=False) for it in workers]
    before = {Path(place): Path(place).stat().st_ino for place in client.gather(tasks)}
    assert len(before) == 2
    table = fleet.score(given, traces, client, chunk=65_536)
    after = {path: path.stat().st_ino for it in before for path in it.parent.iterdir()}
    assert after == before
    table.validate(full=True)
    loaded = [("one", one), ("other", other)]
    cells = list(product(zip(given, images), loaded))
    assert len(table) == len(cells) == 6
    for row, ((image, path), (name, trace)) in zip(table.to_pylist(), cells):
        single = sk.open(path).score(trace, chunk=65_536)
        assert (row.pop("image"), row.pop("trace")) == (image, name)
        assert row.pop("chunks") == single.chunks[65_536]
        assert row.pop("chunks_floor") == single.chunks_floor[65_536]
        assert row.pop("prefetch_chunks") == single.prefetch.chunks[65_536]
        for field in ("requests", "seeks", "bytes"):
            assert row.pop(f"prefetch_{field}") == getattr(single.prefetch, field)
        assert len(row) == 11
        assert row == {field: getattr(single, field) for field in row}
    with pytest.raises(fleet.FleetError, match="nothing.img, one: "):
        fleet.score("/nothing.img", {"one": one}, client, retries=0)


def test_errors_have_their_kind(client: Any, images: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.img"
    damaged.write_bytes(images[0].read_bytes()[: 300_000])
    with pytest.raises(fleet.FleetError) as compared:
        fleet.compare([images[0], damaged], client, retries=0)
    assert compared.value.kind == "corrupt" and "damaged.img" in str(compared.value)
    trace = tmp_path / "x.trace"
    sk.Trace.of_paths(["/0"]).save(trace)
    with pytest.raises(fleet.FleetError) as scored:
        fleet.score([damaged], trace, client, retries=0)
    assert scored.value.kind == "corrupt"
    with pytest.raises(fleet.FleetError) as parted:
        fleet.score([images[0]], trace, client, partition="none", retries=0)
    assert parted.value.kind == "unsupported"


def test_compare(client: Any, images: list[Path]) -> None:
    pytest.importorskip("pyarrow")
    table = fleet.compare(images, client, chunk=4096)
    chunks = [contents(path, 4096) for path in images]
    wanted: list[dict[str, Any]] = [
        {
            "image": str(images[one]),
            "other": str(images[other]),
            "chunks": len(chunks[one]),
            "shared": len(chunks[one] & chunks[other]),
        }
        for one, other in product(range(3), range(3))
    ]
    assert table.to_pylist() == wanted
    assert wanted[1]["shared"] > 190 > 50 > wanted[2]["shared"]


def contents(path: Path, size: int) -> set[bytes]:
    data = path.read_bytes()
    return {data[at : at + size] for at in range(0, len(data), size)} - {bytes(size)}


def test_command(
    client: Any,
    program: str,
    images: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scheduler = ["--scheduler", client.scheduler.address]
    campaign = ["crash", "mkdir", "-d", "softdep", "-f", "ufs2", "--exhaustive"]
    assert _fleet_command.main([*scheduler, *campaign, "--program", program]) == 0
    whole = undivided(program, tmp_path, "mkdir", CAMPAIGN)
    assert json.loads(capsys.readouterr().out) == whole
    trace = tmp_path / "a.trace"
    sk.Trace.of_paths(["/file1"]).save(trace)
    command = [*scheduler, "score", str(images[0]), "--trace", str(trace)]
    assert _fleet_command.main(command) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["seeks"] == sk.score(images[0], trace).seeks and row["trace"] == str(trace)
    output = tmp_path / "shared.parquet"
    command = [*scheduler, "compare", str(images[0]), "-o", str(output)]
    assert _fleet_command.main(command) == 0 and output.stat().st_size > 100
    wrong = [*scheduler, "lab", "nothing", "-o", str(tmp_path / "x"), "--shards", "1"]
    assert _fleet_command.main([*wrong, "--program", program]) == 2
    assert "shard 1/1" in capsys.readouterr().err


def test_the_first_example_of_the_docs(
    program: str,
    small: Path,
    images: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.toml").write_bytes(small.read_bytes())
    for name, image in zip(("old.img", "new.img"), images):
        (tmp_path / name).symlink_to(image)
    sk.Trace.of_paths(["/file1"]).save(tmp_path / "boot.trace")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.fspath(Path(program).parent), prepend=os.pathsep)
    page = ROOT / "docs/fleet.md"
    example, *_ = examples(page)
    exec(compile(example, os.fspath(page), "exec"), {"__name__": "__main__"})
    states, *tables, machines = capsys.readouterr().out.splitlines()
    assert states.endswith("True") and len(tables) == 2 and machines == "1"
    assert len(sk.Trace.load(tmp_path / "boot.parquet")) > 0
    assert (tmp_path / "results/cells.csv").exists()
