"""Work on a cluster whose images and traces are in an object store, which speaks S3."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import seekless as sk
from conftest import numbers

pytest.importorskip("dask", reason="dask is not installed")
pytest.importorskip("distributed", reason="dask.distributed is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")
server = pytest.importorskip("moto.server", reason="moto is not installed")

import fsspec
from seekless import fleet
from test_fleet import two_workers


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A store on this machine, and its address in the environment."""
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        # One try: a store that does not answer is an error soon.
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield moto
    moto.stop()


@pytest.fixture(scope="module")
def client(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two processes, whose environment names the store."""
    with two_workers(tmp_path_factory.mktemp("workers")) as client:
        yield client


def test_images_and_traces_in_a_store(store: Any, client: Any, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for n in range(20):
        (tree / f"{n}").write_bytes(numbers(n, 40_000))
    image = tmp_path / "a.img"
    sk.build(tree, image)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    for bucket in ("images", "traces"):
        fs.mkdir(bucket)
    fs.put(str(image), "s3://images/a.img")
    urls, summaries = [], []
    for n in range(5):
        trace = tmp_path / f"{n}.trace"
        sk.Trace.of_paths(f"/{(7 * it + n) % 20}" for it in range(12)).save(trace)
        urls.append(f"s3://traces/{n}.trace")
        fs.put(str(trace), urls[-1])
        summaries.append(tmp_path / f"{n}.parquet")
        sk.summarize(trace, summaries[-1])
    assert fleet.summarize(urls, "s3://traces/sum.parquet", client, fan_in=2) == 5
    sk.merge_summaries(summaries, tmp_path / "sum.parquet")
    fs.invalidate_cache()
    assert fs.cat("s3://traces/sum.parquet") == (tmp_path / "sum.parquet").read_bytes()
    assert sorted(os.path.basename(it) for it in fs.ls("s3://traces")) == [
        *(f"{n}.trace" for n in range(5)),
        "sum.parquet",
    ]

    scores = fleet.score("s3://images/a.img", urls[:2], client).to_pylist()
    here = sk.open(image).score(sk.Trace.load(tmp_path / "1.trace"))
    assert [it["trace"] for it in scores] == urls[:2]
    assert scores[1]["seeks"] == here.seeks and scores[1]["bytes"] == here.bytes
    table = fleet.compare(["s3://images/a.img", image], client)
    assert table["shared"].to_pylist() == table["chunks"].to_pylist()

    with pytest.raises(sk.UsageError, match="over an input"):
        fleet.summarize(urls, urls[0], client)
    with pytest.raises(fleet.FleetError, match="s3://traces/none.trace"):
        fleet.summarize(["s3://traces/none.trace"], "s3://traces/x.parquet", client, retries=0)
    with pytest.raises(fleet.FleetError, match="s3://none/a.img"):
        fleet.score("s3://none/a.img", urls[:1], client, retries=0)
    with pytest.raises(fleet.FleetError, match="s3://none/a.trace"):
        fleet.score("s3://images/a.img", "s3://none/a.trace", client, retries=0)
    with pytest.raises(fleet.FleetError, match="s3://none/x.parquet"):
        fleet.summarize(urls[:1], "s3://none/x.parquet", client, retries=0)
    # A store that does not answer.
    store.stop()
    for work in (
        lambda: fleet.score("s3://images/a.img", urls[:1], client, retries=0),
        lambda: fleet.compare("s3://images/a.img", client, retries=0),
        lambda: fleet.summarize(urls[:1], tmp_path / "new", client, retries=0),
    ):
        with pytest.raises(fleet.FleetError, match="s3://"):
            work()
    assert not (tmp_path / "new").exists()
