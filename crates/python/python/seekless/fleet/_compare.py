"""Chunks that images share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Union

from distributed import Client

from .. import Error, sharing
from ._errors import FleetError
from ._images import AnyPath, local, names, shown
from ._tasks import running

if TYPE_CHECKING:
    import pyarrow


def compare(
    images: Union[AnyPath, Iterable[AnyPath]],
    client: Client,
    *,
    chunk: int = 524_288,
    retries: int = 2,
) -> pyarrow.Table:
    """The number of chunks that each two images share, by `seekless.sharing` on the workers.

    `images` are paths on the workers, or URLs of fsspec, as for `score`. Each two images are a
    task, which reads both of them. Returns a table with a row for each image and each other one, in
    this order: `image`, `other`, `chunks`, the different chunks of `image` that are not all zeros,
    and `shared`, those of them that `other` has too. It needs pyarrow.
    """
    import pyarrow as pa

    paths = names(images)
    pairs = list(combinations_with_replacement(range(len(paths)), 2))
    tasks = {
        client.submit(
            _pair, paths[one], paths[other], chunk, pure=False, retries=retries
        ): (one, other)
        for one, other in pairs
    }
    chunks, shared = {}, {}
    with running(client, tasks) as done:
        for (one, other), future in done:
            chunks[one], chunks[other], common = future.result()
            shared[one, other] = shared[other, one] = common
    cells = [(one, other) for one in range(len(paths)) for other in range(len(paths))]
    return pa.table(
        {
            "image": pa.array([shown(paths[one]) for one, _ in cells], pa.string()),
            "other": pa.array([shown(paths[other]) for _, other in cells], pa.string()),
            "chunks": pa.array([chunks[one] for one, _ in cells], pa.uint64()),
            "shared": pa.array([shared[cell] for cell in cells], pa.uint64()),
        }
    )


def _pair(one: str, other: str, chunk: int) -> tuple[int, int, int]:
    """The chunks of two images, and how many both have."""
    try:
        first, second = sharing([local(one), local(other)], chunk=chunk)
    except (Error, OSError) as error:
        raise FleetError.of(error, f"{one}, {other}: {error}") from None
    return first.chunks, second.chunks, second.chunks - second.new
