"""The figures of a score are those of its requests, and these are of the bytes of the image."""

from pathlib import Path

import pytest
import seekless as sk
from conftest import judge


@pytest.fixture(scope="module")
def trace() -> sk.Trace:
    return sk.Trace.of_paths(["/deep/er/large", "/etc/passwd", "/missing"])


def test_figures_are_those_of_the_requests(image: sk.Image, trace: sk.Trace) -> None:
    score = image.score(trace, chunk=[65536, 4096])
    requests = list(score.requests())
    assert len(requests) == len(score.requests()) == score.request_count
    assert sum(it.size for it in requests) == score.bytes
    assert sum(it.purpose == "data" for it in requests) == score.data_requests
    assert score.metadata_requests == score.request_count - score.data_requests
    gaps = [b.offset - (a.offset + a.size) for a, b in zip(requests, requests[1:])]
    assert sum(gap != 0 for gap in gaps) == score.seeks
    assert sum(map(abs, gaps)) == score.seek_distance_bytes
    for size in (65536, 4096):
        touched = {
            chunk
            for it in requests
            for chunk in range(it.offset // size, (it.offset + it.size - 1) // size + 1)
        }
        assert score.chunks[size] == len(touched)
    assert score.missing == ["/missing"]
    assert score.to_dict()["requests"] == score.request_count
    assert 0 <= score.layout_score <= 1 and score.prefetch.bytes > 3_000_000
    with pytest.raises(IndexError):
        score.requests()[len(requests)]


def test_requests_are_of_the_files(path: Path, image: sk.Image, trace: sk.Trace) -> None:
    contents, large = path.read_bytes(), image.read("/deep/er/large")
    data = [it for it in image.score(trace).requests() if it.path == "deep/er/large"]
    data = [it for it in data if it.purpose == "data"]
    assert sum(it.size for it in data) >= len(large)
    for request in data:
        end = min(request.file_offset + request.size, len(large))
        wanted = large[request.file_offset : end]
        assert contents[request.offset :][: len(wanted)] == wanted
        assert request.inode == image.stat("/deep/er/large").inode


def test_requests_are_a_table(image: sk.Image, trace: sk.Trace) -> None:
    pa = pytest.importorskip("pyarrow")
    score = image.score(trace)
    table = score.to_arrow()
    fields = ["offset", "size", "purpose", "inode", "path", "file_offset", "access"]
    assert table.column_names == fields
    rows = [{field: getattr(it, field) for field in fields} for it in score.requests()]
    assert table.to_pylist() == rows
    assert any(row["path"] is None for row in rows) and any(row["path"] for row in rows)
    # By the interface of C, as other libraries take it.
    assert pa.table(score.requests()) == table
    table.validate(full=True)


def test_several_traces_are_one(path: Path) -> None:
    traces = [sk.Trace.of_paths(["/etc/passwd"]), sk.Trace.of_paths(["/deep/er/large"])]
    assert sk.score(path, traces) == sk.score(path, sk.Trace.merge(*traces))
    with pytest.raises(sk.UsageError):
        sk.score(path, [])
    with pytest.raises(sk.UsageError):
        sk.score(path, traces, chunk=0)


def test_a_store_sends_compressed_chunks(path: Path, image: sk.Image, trace: sk.Trace) -> None:
    size = 65536
    contents = path.read_bytes()
    score = image.score(trace, chunk=[size], store="none")
    touched = {
        chunk
        for it in score.requests()
        for chunk in range(it.offset // size, (it.offset + it.size - 1) // size + 1)
    }
    chunks = [contents[n * size :][:size] for n in touched]
    assert score.stored_bytes == {size: sum(len(it) for it in chunks if any(it))}
    sent = 0
    for chunk in filter(any, chunks):
        args = ["-q", "--no-check", f"--stream-size={len(chunk)}", "-6", "-c"]
        sent += len(judge("zstd", *args, stdin=chunk).stdout)
    found = sk.score(path, trace, chunk=size, store="zstd:6").stored_bytes
    assert found is not None and list(found) == [size]
    # Versions of zstd differ by half a percent at most.
    assert abs(found[size] - sent) < 0.005 * sent
    assert sent < 0.98 * sum(map(len, chunks))
    assert image.score(trace).stored_bytes is None
    with pytest.raises(sk.UsageError, match="zstd:20"):
        image.score(trace, store="zstd:20")
