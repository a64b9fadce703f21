"""Scores of many images and traces."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

import fsspec
from distributed import Client

from .. import Error, Figures, Trace
from .. import open as open_image
from ._errors import FleetError, about
from ._images import AnyPath, local, names, shown
from ._tasks import running

if TYPE_CHECKING:
    import pyarrow

_COUNTS = [
    "request_count",
    "metadata_requests",
    "data_requests",
    "bytes",
    "touched_bytes",
    "seeks",
    "seek_distance_bytes",
    "recorded_order_seeks",
]
_RATIOS = ["layout_score", "dynamic_layout_score"]

Traces = Union[AnyPath, Iterable[AnyPath], Mapping[str, Union[Trace, AnyPath]]]


def score(
    images: Union[AnyPath, Iterable[AnyPath]],
    traces: Traces,
    client: Client,
    *,
    chunk: int = 524_288,
    partition: Optional[str] = None,
    retries: int = 2,
) -> pyarrow.Table:
    """Scores each image by each trace on the workers: `seekless.open(image).score(trace)`.

    `images` are paths on the workers, or URLs of fsspec; these are copied to the temporary
    directory of each worker that needs them, once. `traces` are paths or URLs that are read here,
    or a dict that has a name for each `seekless.Trace`, path or URL.

    Returns a table with a row for each image and trace, in this order: `image`, `trace`, the
    figures, `chunks` and `chunks_floor` of `chunk` bytes, those of the prefetch, and the missing
    paths. It needs pyarrow.
    """
    import pyarrow as pa

    texts = {name: client.submit(_same, text) for name, text in _contents(traces).items()}
    pairs = [(image, trace) for image in names(images) for trace in texts]
    tasks = {
        client.submit(
            _figures, image, trace, texts[trace], chunk, partition, pure=False, retries=retries
        ): number
        for number, (image, trace) in enumerate(pairs)
    }
    with running(client, tasks) as done:
        rows = {number: future.result() for number, future in done}
    return pa.Table.from_pylist([rows[number] for number in range(len(pairs))], _schema())


def _contents(traces: Traces) -> dict[str, bytes]:
    if isinstance(traces, Mapping):
        return {name: _read(trace) for name, trace in traces.items()}
    return {name: _read(name) for name in names(traces)}


def _read(trace: Union[Trace, AnyPath]) -> bytes:
    if isinstance(trace, Trace):
        with tempfile.TemporaryDirectory(prefix="seekless-fleet-") as work:
            trace.save(Path(work, "trace"))
            return Path(work, "trace").read_bytes()
    name = os.fspath(trace)
    if "://" not in name:
        return Path(name).read_bytes()
    with about(name), fsspec.open(name, "rb") as file:
        return bytes(file.read())


def _same(contents: bytes) -> bytes:
    """Contents as a task of their own: Dask computes it again if their worker is lost."""
    return contents


def _figures(
    image: str, trace: str, contents: bytes, chunk: int, partition: Optional[str]
) -> dict[str, Any]:
    try:
        with tempfile.NamedTemporaryFile(prefix="seekless-fleet-") as file:
            file.write(contents)
            file.flush()
            loaded = Trace.load(file.name)
        found = open_image(local(image), partition=partition).score(loaded, chunk=chunk)
    except (Error, OSError) as error:
        raise FleetError.of(error, f"{image}, {trace}: {error}") from None
    return {"image": shown(image), "trace": shown(trace), **_row(found, chunk)}


def _row(found: Figures, chunk: int) -> dict[str, Any]:
    row = {name: getattr(found, name) for name in [*_COUNTS, *_RATIOS, "missing"]}
    row["chunks"], row["chunks_floor"] = found.chunks[chunk], found.chunks_floor[chunk]
    ahead = found.prefetch
    row["prefetch_requests"], row["prefetch_seeks"] = ahead.requests, ahead.seeks
    row["prefetch_bytes"], row["prefetch_chunks"] = ahead.bytes, ahead.chunks[chunk]
    row["missing"] = [shown(path) for path in found.missing]
    return row


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    ahead = [f"prefetch_{name}" for name in ("requests", "seeks", "bytes", "chunks")]
    return pa.schema(
        [(name, pa.string()) for name in ("image", "trace")]
        + [(name, pa.uint64()) for name in [*_COUNTS, "chunks", "chunks_floor"]]
        + [(name, pa.float64()) for name in _RATIOS]
        + [(name, pa.uint64()) for name in ahead]
        + [("missing", pa.list_(pa.string()))]
    )
